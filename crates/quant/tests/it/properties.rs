//! What holds for every format: error budgets, total functions, accessors that agree with each other.

use bytemuck::Zeroable;
use proptest::prelude::*;
use quant::formats::*;
use quant::{Block, FORMATS, Format, GgmlType, MAX_LEN, Values, format};

/// A check that is made for each block type.
trait Check {
    fn check<B: Block>(&self);
}

fn for_each_block(check: &impl Check) {
    check.check::<BlockQ4_0>();
    check.check::<BlockQ4_1>();
    check.check::<BlockQ5_0>();
    check.check::<BlockQ5_1>();
    check.check::<BlockQ8_0>();
    check.check::<BlockQ2K>();
    check.check::<BlockQ3K>();
    check.check::<BlockQ4K>();
    check.check::<BlockQ5K>();
    check.check::<BlockQ6K>();
    check.check::<BlockIq4Nl>();
    check.check::<BlockMxfp4>();
    check.check::<BlockIq4Xs>();
    check.check::<BlockIq3S>();
    check.check::<BlockTq1_0>();
    check.check::<BlockTq2_0>();
}

#[test]
fn registry_names_every_type_once() {
    for f in FORMATS {
        assert_eq!(FORMATS.iter().filter(|other| other.ty() == f.ty()).count(), 1, "{}", f.ty());
    }
    let integers = [GgmlType::I8, GgmlType::I16, GgmlType::I32, GgmlType::I64, GgmlType::F64];
    for ty in GgmlType::all() {
        assert_eq!(format(ty).is_some(), !integers.contains(&ty), "{ty}");
    }
}

#[test]
fn geometry_agrees_with_the_type_table() {
    struct Geometry;
    impl Check for Geometry {
        fn check<B: Block>(&self) {
            assert_eq!(B::LEN, B::TY.block_len(), "{}", B::TY);
            assert_eq!(size_of::<B>(), B::TY.block_bytes(), "{}", B::TY);
            assert!(B::LEN.is_multiple_of(B::GROUP) && B::LEN <= MAX_LEN, "{}", B::TY);
            let Some(f) = format(B::TY) else { panic!("{} is not in FORMATS", B::TY) };
            assert_eq!(f.can_quantize(), B::QUANTIZE.is_some(), "{}", B::TY);
        }
    }
    for_each_block(&Geometry);
}

/// The accessors' contract on one random block, whose bytes are the start of `self.0`.
struct Accessors<'a>(&'a [u8]);

impl Check for Accessors<'_> {
    fn check<B: Block>(&self) {
        let block = B::read(&self.0[..size_of::<B>()]);
        let mut codes = [0xEE; MAX_LEN];
        block.codes(&mut codes[..B::LEN]);
        let mut weights = [0.0; MAX_LEN];
        block.dequantize(&mut weights[..B::LEN]);
        for i in 0..B::LEN {
            let code = block.code(i);
            assert_eq!(code, codes[i], "{} code {i}", B::TY);
            assert!(u32::from(code) < 1 << B::BITS, "{} code {i} is {code}", B::TY);
            let value = i16::from(block.value(i));
            match B::VALUES {
                Values::Linear { zero } => {
                    assert_eq!(value, i16::from(code) - i16::from(zero), "{}", B::TY)
                }
                Values::Table(table) => {
                    assert_eq!(value, i16::from(table[usize::from(code)]), "{}", B::TY)
                }
            }
            let g = i / B::GROUP;
            let want = block.d() * f32::from(block.scale_code(g)) * f32::from(block.value(i))
                - block.dmin() * f32::from(block.min_code(g));
            assert!(
                weights[i].to_bits() == want.to_bits() || (weights[i].is_nan() && want.is_nan()),
                "{} weight {i}: {} instead of {want}",
                B::TY,
                weights[i]
            );
            assert!(B::HAS_MIN || block.min(g).to_bits() == 0, "{} has a min", B::TY);
        }
    }
}

fn quantized(f: &dyn Format, x: &[f32]) -> Vec<u8> {
    let mut bytes = vec![0; f.ty().row_bytes(x.len()).expect("whole blocks")];
    assert!(f.quantize(x, &mut bytes));
    bytes
}

fn dequantized(f: &dyn Format, bytes: &[u8]) -> Vec<f32> {
    let mut x = vec![0.0; bytes.len() / f.ty().block_bytes() * f.ty().block_len()];
    f.dequantize(bytes, &mut x);
    x
}

fn rms(x: impl ExactSizeIterator<Item = f32>) -> f64 {
    let n = x.len() as f64;
    (x.map(|x| f64::from(x) * f64::from(x)).sum::<f64>() / n).sqrt()
}

fn rms_error(a: &[f32], b: &[f32]) -> f64 {
    rms(a.iter().zip(b).map(|(a, b)| a - b))
}

/// Quantizing formats with two budgets: of the wave (root of the summed squared error over n, the measure and for
/// the quantized types the numbers of llama.cpp's own test) and of normal data (error over data, both root mean
/// square; closer, a little above what good quantizers reach).
const BUDGETS: &[(GgmlType, f64, f64)] = &[
    (GgmlType::F32, 0.0, 0.0),
    (GgmlType::F16, 1e-5, 3e-4),
    (GgmlType::Bf16, 1e-4, 2.5e-3),
    (GgmlType::Q4_0, 0.002, 0.095),
    (GgmlType::Q4_1, 0.002, 0.085),
    (GgmlType::Q5_0, 0.002, 0.047),
    (GgmlType::Q5_1, 0.002, 0.041),
    (GgmlType::Q8_0, 0.002, 0.0059),
    (GgmlType::Q2K, 0.0075, 0.285),
    (GgmlType::Q3K, 0.004, 0.152),
    (GgmlType::Q4K, 0.002, 0.074),
    (GgmlType::Q5K, 0.002, 0.0365),
    (GgmlType::Q6K, 0.002, 0.0182),
    (GgmlType::Iq4Nl, 0.002, 0.079),
    (GgmlType::Iq4Xs, 0.002, 0.08),
    (GgmlType::Mxfp4, 0.004, 0.125),
    (GgmlType::Tq1_0, 0.01, 0.9),
    (GgmlType::Tq2_0, 0.01, 0.9),
];

/// Normally distributed numbers, the same on every run.
fn normal(n: usize) -> Vec<f32> {
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    let mut uniform = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((state >> 40) as f64 + 0.5) / (1u64 << 24) as f64
    };
    (0..n)
        .map(|_| {
            ((-2.0 * uniform().ln()).sqrt() * (std::f64::consts::TAU * uniform()).cos()) as f32
        })
        .collect()
}

#[test]
fn errors_stay_within_budget() {
    let wave: Vec<f32> = (0..4096).map(|i| 0.1 + 2.0 * (i as f32).cos()).collect();
    let normal = normal(8192);
    for f in FORMATS.iter().filter(|f| f.can_quantize()) {
        let ty = f.ty();
        let Some(&(_, wave_budget, normal_budget)) = BUDGETS.iter().find(|b| b.0 == ty) else {
            panic!("{ty} has no error budget");
        };
        let error = |x: &[f32]| rms_error(x, &dequantized(*f, &quantized(*f, x)));
        let wave_error = error(&wave) / (wave.len() as f64).sqrt();
        assert!(wave_error <= wave_budget, "{ty}: {wave_error} on the wave");
        let normal_error = error(&normal) / rms(normal.iter().copied());
        assert!(normal_error <= normal_budget, "{ty}: {normal_error} on normal data");
    }
}

#[test]
fn weights_that_a_block_can_hold_come_back_exactly() {
    let constant = |x: f32| vec![x; MAX_LEN];
    let ternary: Vec<f32> = (0..MAX_LEN).map(|i| (i % 3) as f32 * 0.25 - 0.25).collect();
    for f in FORMATS.iter().filter(|f| f.can_quantize()) {
        let back = |x: &[f32]| dequantized(*f, &quantized(*f, x));
        assert_eq!(back(&constant(0.0)), constant(0.0), "{}", f.ty());
        if matches!(f.ty(), GgmlType::Tq1_0 | GgmlType::Tq2_0) {
            assert_eq!(back(&ternary), ternary, "{}", f.ty());
        }
        // The scales of the others are found by search or are a 127th part, which f16 rounds.
        let searched = [
            GgmlType::Q2K,
            GgmlType::Q3K,
            GgmlType::Q4K,
            GgmlType::Q5K,
            GgmlType::Q6K,
            GgmlType::Iq4Nl,
            GgmlType::Iq4Xs,
        ];
        if f.ty() != GgmlType::Q8_0 && !searched.contains(&f.ty()) {
            assert_eq!(back(&constant(-0.5)), constant(-0.5), "{}", f.ty());
        }
    }
}

#[test]
fn a_wrong_length_is_a_panic_that_names_the_type() {
    let error = std::panic::catch_unwind(|| {
        format(GgmlType::Q4K).unwrap().dequantize(&[0; 143], &mut [0.0; 256])
    });
    let message = *error.unwrap_err().downcast::<String>().unwrap();
    assert!(message.contains("Q4_K"), "{message}");
}

#[test]
fn zeroed_blocks_are_zero_weights() {
    struct Zero;
    impl Check for Zero {
        fn check<B: Block>(&self) {
            let mut weights = [1.0; MAX_LEN];
            <B as Zeroable>::zeroed().dequantize(&mut weights[..B::LEN]);
            assert!(weights[..B::LEN].iter().all(|&w| w == 0.0), "{}", B::TY);
        }
    }
    for_each_block(&Zero);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    /// Any bytes are blocks, and every accessor says the same of them.
    #[test]
    fn accessors_agree_on_any_bytes(bytes in prop::collection::vec(any::<u8>(), 256)) {
        for_each_block(&Accessors(&bytes));
    }

    /// Quantizers take any floats: infinite, NaN, subnormal, huge.
    #[test]
    fn any_floats_quantize_without_panic(bits in prop::collection::vec(any::<u32>(), 256)) {
        let x: Vec<f32> = bits.into_iter().map(f32::from_bits).collect();
        for f in FORMATS.iter().filter(|f| f.can_quantize()) {
            dequantized(*f, &quantized(*f, &x));
        }
    }

    /// Blocks whose scales are normal f16 numbers keep their precision, and what was dequantized once quantizes to
    /// almost itself.
    #[test]
    fn round_trips_keep_precision_and_settle(
        x in prop::collection::vec(-1.0f32..1.0, 512),
        exponent in -2i32..=10,
        offset in -0.5f32..0.5,
    ) {
        let x: Vec<f32> = x.iter().map(|x| (x + offset) * 2f32.powi(exponent)).collect();
        for f in FORMATS.iter().filter(|f| f.can_quantize()) {
            let once = dequantized(*f, &quantized(*f, &x));
            let twice = dequantized(*f, &quantized(*f, &once));
            let (size, first, second) = (rms(x.iter().copied()), rms_error(&x, &once), rms_error(&once, &twice));
            let &(_, _, budget) = BUDGETS.iter().find(|b| b.0 == f.ty()).expect("a budget for every format");
            prop_assert!(first <= 1.25 * budget * size, "{}: error {first} on {size}", f.ty());
            prop_assert!(second <= 0.5 * first + 1e-3 * size, "{}: {first}, then {second}", f.ty());
        }
    }
}
