use conformance::{MemoryWeights, Random, deep_config, tiny_model};

use super::*;
use crate::formats::FORMATS;
use crate::kernels::{Abilities, Matrices};
use crate::model::tests::device;

/// Shapes of teams that can be, by rows of activations at once.
fn possible() -> Vec<(usize, TeamShape)> {
    let of = |rows| [1, 2, 4, 8].map(|teams| TeamShape { rows, teams, ..TeamShape::USUAL });
    let shapes: Vec<_> = [2, 4, 8].into_iter().flat_map(of).collect();
    let all = AT_ONCE.into_iter().flat_map(|n| shapes.iter().map(move |shape| (n, *shape)));
    all.filter(|(at_once, shape)| shape.is_possible(*at_once)).collect()
}

/// A tiny model whose shapes change.
struct Reshaped {
    model: GpuModel,
    able: Abilities,
    types: Vec<GgmlType>,
    tokens: Vec<u32>,
}

impl Reshaped {
    fn load(gpu: &Arc<Gpu>, (name, width): (&str, usize), ty: GgmlType) -> Reshaped {
        let program = tiny_model(&deep_config(name, width, false, 2), ty);
        let weights = MemoryWeights::random(&program, 3);
        let storage = CacheStorage::default();
        let loaded = GpuModel::load(gpu, Arc::clone(&program), &weights, &storage, &mut |_| ());
        let types = program.weights.iter().map(|spec| spec.ty).collect();
        let tokens = Random::new(4).tokens(48, program.vocab_size());
        Reshaped { model: loaded.expect("it loads"), able: gpu.able(), types, tokens }
    }

    /// Logits of a prompt of many rows, of few, and of single ones, in shapes by how many rows are at once.
    fn logits(&mut self, shape: impl Fn(usize) -> Option<TeamShape>) -> Vec<f32> {
        let of = |ty: &GgmlType| {
            let told = |at_once| Some(shape(at_once)?.told(*ty, at_once));
            AT_ONCE.into_iter().filter_map(told).collect::<Vec<_>>()
        };
        let shapes: Vec<_> = self.types.iter().flat_map(of).collect();
        self.model.reshape(&Shapes::of(&shapes, self.able));
        let options = CacheOptions::new(CacheType::F32, CacheType::F32, 64);
        let session = self.model.open(&options).expect("a session opens");
        let chunks =
            [&self.tokens[..40], &self.tokens[40..46], &self.tokens[46..47], &self.tokens[47..]];
        let found = chunks.map(|tokens| {
            let outputs = Outputs::ALL;
            let sequence = Sequence { session, tokens, outputs, prompt: None, rows: &[] };
            let out = self.model.step(&Step { sequences: &[sequence] });
            out.and_then(program::StepOut::single).expect("a step").into_logits().logits
        });
        self.model.close(session);
        found.concat()
    }

    /// Of the errors of rows of logits that in the middle: some may choose other experts, which is another matter.
    fn middle_error(&self, want: &[f32], got: &[f32]) -> f64 {
        let width = want.len() / self.tokens.len();
        let rows = want.chunks(width).zip(got.chunks(width));
        let mut off: Vec<_> = rows.map(|(want, got)| error(want, got)).collect();
        off.sort_by(f64::total_cmp);
        off[off.len() / 2]
    }
}

/// Whether everything is tested, as in `cargo xtask full`. Software devices take up to a second to compile a kernel.
fn is_complete(what: &str) -> bool {
    testing::full(&format!("wgpu: {what}"))
}

fn bit_list(logits: &[f32]) -> Vec<u32> {
    bits(logits).collect()
}

/// Sums in several shapes are the same numbers: matrices, gates, experts, with one row and several.
#[test]
fn no_bit_depends_on_a_shape() {
    let Some(gpu) = device(None) else { return };
    let gpu = Arc::new(gpu);
    if !gpu.able().subgroups {
        testing::skipped("sums in subgroups: the device has none");
    }
    let all = is_complete("shapes of workgroups: of two models three each, rounded products");
    let models = [
        (("qwen2moe", 64), GgmlType::F32),
        (("llama", 1280), GgmlType::Q4K),
        (("deepseek2", 64), GgmlType::F16),
    ];
    for (model, ty) in &models[..if all { 3 } else { 1 }] {
        let mut model = Reshaped::load(&gpu, *model, *ty);
        let products =
            if *ty == GgmlType::Q4K { &ProductType::ALL[..] } else { &[ProductType::F32] };
        for &product in products {
            let usual = TeamShape { product, ..TeamShape::USUAL };
            let want = bit_list(&model.logits(|_| Some(usual)));
            // for one row and for four
            let pairs = [[(8, 8), (8, 4)], [(4, 1), (4, 8)], [(2, 8), (8, 1)], [(2, 2), (2, 2)]];
            let n = if all && product == ProductType::F32 { pairs.len() } else { 1 };
            for [one, four] in &pairs[..n] {
                let shape = |subgroups| {
                    move |at_once| {
                        let (rows, teams) = if at_once > 1 { *four } else { *one };
                        let its = TeamShape { rows, teams, product, subgroups, ..TeamShape::USUAL };
                        match at_once {
                            MATMAT_TILE => Some(usual),
                            _ => Some(its).filter(|its| its.is_possible(at_once)),
                        }
                    }
                };
                for subgroups in [false, true] {
                    let got = bit_list(&model.logits(shape(subgroups)));
                    assert!(got == want, "{product:?}, {one:?} {four:?}, subgroups: {subgroups}");
                }
            }
        }
    }
}

/// Products of every type of weights round as much as they should, and no more: in steps of one row, of several, of many, and
/// with experts.
#[test]
fn products_round_what_they_say() {
    let Some(gpu) = device(None) else { return };
    let gpu = Arc::new(gpu);
    if !gpu.able().f16 {
        testing::skipped("products of f16: the device has none");
    }
    let all = is_complete("rounded products of 13 types, each kernel alone");
    let in_gate = [GgmlType::Q8_0, GgmlType::Q4K, GgmlType::Iq4Nl];
    let mut seen = 0;
    for format in FORMATS.iter().filter(|format| all || in_gate.contains(&format.ty)) {
        // experts, and each kernel alone, by a type without mins and one with them
        let is_close = all && [GgmlType::Q8_0, GgmlType::Q4K].contains(&format.ty);
        let models = [("llama", 256), ("qwen2moe", 256)];
        for model in &models[..1 + usize::from(is_close)] {
            let mut model = Reshaped::load(&gpu, *model, format.ty);
            let want = model.logits(|_| None);
            for product in [ProductType::F16, ProductType::Int8] {
                let shape = TeamShape { product, ..TeamShape::USUAL };
                let is_able = shape.is_able(format, 1, gpu.able());
                let alone = is_close.then(|| AT_ONCE.map(Some)).into_iter().flatten();
                for at_once in alone.chain([None]) {
                    let of = |n| at_once.is_none_or(|at_once| n == at_once).then_some(shape);
                    let got = model.logits(of);
                    if !is_able {
                        assert_eq!(bit_list(&got), bit_list(&want), "{} {product:?}", format.ty);
                        continue;
                    }
                    assert!(
                        bit_list(&got) != bit_list(&want),
                        "{} {product:?} {at_once:?}",
                        format.ty
                    );
                    let middle = model.middle_error(&want, &got);
                    let most = 4.0 * most_error(product);
                    assert!(middle < most, "{} {product:?} {at_once:?}: {middle:e}", format.ty);
                    seen += 1;
                }
            }
        }
    }
    // of each product every type, and of two types each of three kernels and all of another model
    let products = if gpu.able().f16 { 2 } else { 1 };
    let want = if all { 16 + 2 * (3 + 4) } else { in_gate.len() };
    assert_eq!(seen, products * want, "every type was multiplied");
}

/// Tiles made of matrices, with arithmetic in their place: where numbers lie, how they are scaled, and what becomes of sums.
#[test]
fn matrices_are_laid_out_as_they_should() {
    let Some(mut gpu) = device(None) else { return };
    let able = gpu.able();
    if !able.f16 {
        testing::skipped("matrices of f16: the device has no such numbers");
        return;
    }
    let cases = [
        // lanes of a subgroup: one has all matrices, or several some of them
        ((16, 32), ("llama", 256), GgmlType::Q6K),
        ((8, 32), ("llama", 64), GgmlType::F32),
        ((16, 64), ("llama", 256), GgmlType::Q4K),
        ((16, 8), ("qwen2moe", 64), GgmlType::F16),
        ((8, 16), ("llama", 256), GgmlType::Mxfp4),
    ];
    let n = if is_complete("tiles of matrices: three more layouts") { cases.len() } else { 2 };
    for ((side, lanes), model, ty) in cases.into_iter().take(n) {
        let matrices = [Some(Matrices { side, lanes, played: true }); 2];
        gpu.set_able(Abilities { subgroups: true, matrices, ..able });
        let shared = Arc::new(gpu);
        {
            let mut model = Reshaped::load(&shared, model, ty);
            let want = model.logits(|_| None);
            for product in [ProductType::F32, ProductType::F16] {
                let format = device_format(ty).expect("it has a form");
                if !Matrices::suit(format, product) {
                    continue;
                }
                let shape = TeamShape { product, subgroups: true, ..TeamShape::USUAL };
                let got = model.logits(|n| (n == MATMAT_TILE).then_some(shape));
                // exact products may be added up alike
                let differs = bit_list(&got) != bit_list(&want);
                assert!(differs || product == ProductType::F32, "{ty} {product:?}");
                let middle = model.middle_error(&want, &got);
                assert!(middle < 4.0 * most_error(product), "{ty} {side} {product:?}: {middle:e}");
            }
        }
        gpu = Arc::into_inner(shared).expect("all models are gone");
    }
}

/// What is no number stays none, whatever it is rounded to.
#[test]
fn what_is_no_number_is_not_lost() {
    let Some(gpu) = device(None) else { return };
    let gpu = Arc::new(gpu);
    let mut trial = Trial::load(&gpu, GgmlType::Q8_0).expect("it loads");
    for product in ProductType::ALL {
        let shape = TeamShape { product, ..TeamShape::USUAL };
        for (at_once, x) in [(1, f32::NAN), (4, f32::NAN), (MATMAT_TILE, f32::INFINITY)] {
            let format = device_format(GgmlType::Q8_0).expect("it has a form");
            if !shape.is_able(format, at_once, gpu.able()) {
                continue;
            }
            trial.reshape(at_once, shape);
            let before = std::mem::replace(&mut trial.checked.x[5], x);
            let outputs = Outputs { rows: OutputRows::All, what: Wanted::Rows };
            let rows = trial.checked.step(at_once, outputs).expect("a step");
            trial.checked.x[5] = before;
            let (first, others) = rows.split_at(CHECKED.rows);
            assert!(first.iter().all(|x| !x.is_finite()), "{product:?} {at_once}");
            assert!(others.iter().all(|x| x.is_finite()), "{product:?} {at_once}");
        }
    }
}

/// Shapes whose times are made up.
struct MadeUp<F> {
    time: F,
    wrong: Option<ProductType>,
    tried: Vec<TeamShape>,
}

impl<F: Fn(TeamShape) -> u64> Tried for MadeUp<F> {
    fn time(&mut self, _: usize, shape: TeamShape) -> Result<Duration> {
        self.tried.push(shape);
        Ok(Duration::from_micros((self.time)(shape)))
    }

    fn is_right(&mut self, _: usize, shape: TeamShape) -> Result<bool> {
        Ok(self.wrong != Some(shape.product))
    }
}

fn chosen(
    at_once: usize,
    wrong: Option<ProductType>,
    time: impl Fn(TeamShape) -> u64,
) -> TeamShape {
    let mut made_up = MadeUp { time, wrong, tried: Vec::new() };
    let found = fastest(at_once, |_| true, &mut made_up).expect("all can be timed");
    assert!(made_up.tried.iter().all(|shape| shape.is_possible(at_once)));
    let is_usual = |shape: &TeamShape| shape.product == ProductType::F32 && !shape.subgroups;
    let is_wrong = |shape: &TeamShape| Some(shape.product) == wrong && !is_usual(shape);
    assert!(!made_up.tried.iter().any(is_wrong));
    found
}

#[test]
fn the_fastest_is_chosen_and_nothing_that_cannot_be() {
    let off = |shape: TeamShape, like: TeamShape| {
        100 + 10 * (shape.rows.abs_diff(like.rows) + shape.teams.abs_diff(like.teams)) as u64
    };
    for (at_once, like) in possible() {
        // neither rounding nor subgroups gain anything
        assert_eq!(chosen(at_once, None, |shape| off(shape, like)), like, "{at_once}");
        for product in ProductType::ALL {
            let like = TeamShape { product, ..like };
            let time = |shape: TeamShape| match shape.product == product {
                true => off(shape, like),
                false => 2 * off(shape, like),
            };
            assert_eq!(chosen(at_once, None, time), like, "{at_once} {product:?}");
            let right = chosen(at_once, Some(product), time);
            assert!(product == ProductType::F32 || right.product != product, "{right:?}");
        }
        let time = |shape: TeamShape| off(shape, like) - if shape.subgroups { 50 } else { 0 };
        let with = TeamShape { subgroups: true, ..like };
        assert_eq!(chosen(at_once, None, time), with, "{at_once}");
    }
    // matrices of rounded numbers gain, though such numbers alone do not
    let f16 = TeamShape { product: ProductType::F16, subgroups: true, ..TeamShape::USUAL };
    assert_eq!(chosen(MATMAT_TILE, None, |shape| if shape == f16 { 50 } else { 100 }), f16);
    // what rounds more has to gain more
    let little = |shape: TeamShape| if shape.product == ProductType::F32 { 100 } else { 96 };
    assert_eq!(chosen(MATMAT_TILE, None, little), TeamShape::USUAL);
    // as fast as the usual one: that one stays
    assert_eq!(chosen(1, None, |_| 7), TeamShape::USUAL);
}

#[test]
fn what_a_device_has_not_is_not_taken() {
    let able = Abilities { f16: true, subgroups: true, ..Abilities::default() };
    let (rows, teams) = (8, 8);
    let large = TeamShape { rows, teams, ..TeamShape::USUAL };
    let shapes = Shapes::of(&[large.told(GgmlType::F32, 4)], able);
    assert_eq!(shapes.get(GgmlType::F32, 4), TeamShape::USUAL, "there is no room for it");
    let f16 = TeamShape { product: ProductType::F16, ..TeamShape::USUAL };
    let subgroups = TeamShape { subgroups: true, ..TeamShape::USUAL };
    for (shape, ty, without) in [
        (f16, GgmlType::Q4_0, Abilities { f16: false, ..able }),
        (subgroups, GgmlType::F32, Abilities { subgroups: false, ..able }),
    ] {
        let told = [shape.told(ty, 1)];
        assert_eq!(Shapes::of(&told, able).get(ty, 1), shape);
        assert_eq!(Shapes::of(&told, without).get(ty, 1), TeamShape::USUAL);
    }
    // plain numbers would lose by it
    let told = [f16.told(GgmlType::Bf16, 1)];
    assert_eq!(Shapes::of(&told, able).get(GgmlType::Bf16, 1), TeamShape::USUAL);
}

#[test]
fn a_device_is_tuned_once_for_all_models() {
    let Some(gpu) = device(None) else { return };
    let gpu = Arc::new(gpu);
    let mut told = Vec::new();
    // floats have no rounded products, so that few kernels are compiled
    let all = is_complete("tuning of a quantized type");
    let types = [GgmlType::F16, GgmlType::I32, GgmlType::Q4_0];
    let types = &types[..if all { 3 } else { 2 }];
    let chosen = tune(&gpu, types, &mut |part| told.push(part)).expect("it is measured");
    let keys: Vec<_> = chosen.iter().map(|its| (its.ty, its.at_once)).collect();
    let is_float = |ty: &&GgmlType| **ty != GgmlType::I32;
    let want = types.iter().filter(is_float).map(|ty| AT_ONCE.map(|n| (*ty, n)));
    let want = want.collect::<Vec<_>>().concat();
    assert_eq!(keys, want, "no matrix is of integers");
    let n = want.len();
    assert_eq!(told, (1..=n).map(|i| i as f64 / n as f64).collect::<Vec<_>>());
    gpu.set_shapes(Shapes::of(&chosen, gpu.able()));
    for its in &chosen {
        assert_eq!(gpu.shapes().get(its.ty, its.at_once), TeamShape::from(its));
    }
}

/// What shapes are checked by are weights as models have them: in reach of f16, whatever they are boosted with, and of both signs.
#[test]
fn checked_weights_are_like_those_of_models() {
    for format in FORMATS {
        let program = program(format.ty, CHECKED).expect("a program");
        let bytes = Bytes::scattered(&program);
        let mut weights = vec![0.0; CHECKED.rows * CHECKED.cols];
        quant::format(format.ty).expect("a weight type").dequantize(&bytes.0, &mut weights);
        let largest = weights.iter().fold(0.0_f32, |most, w| most.max(w.abs()));
        assert!(largest > 1e-3 && largest < 65504.0 / 64.0, "{}: {largest}", format.ty);
        let n_negative = weights.iter().filter(|w| **w < 0.0).count();
        assert!(n_negative > weights.len() / 5, "{}: {n_negative}", format.ty);
        assert!(n_negative < weights.len() * 4 / 5, "{}: {n_negative}", format.ty);
    }
}

/// On the device at hand all that can be tried is right.
#[test]
fn what_is_tried_is_right() {
    let Some(gpu) = device(None) else { return };
    let gpu = Arc::new(gpu);
    let n = if is_complete("checked products of a second type") { 2 } else { 1 };
    for ty in [GgmlType::Q4K, GgmlType::Mxfp4].into_iter().take(n) {
        let mut trial = Trial::load(&gpu, ty).expect("it loads");
        for product in ProductType::ALL {
            for (at_once, subgroups) in [(1, false), (1, true), (4, true), (MATMAT_TILE, false)] {
                let shape = TeamShape { product, subgroups, ..TeamShape::USUAL };
                let format = device_format(ty).expect("it has a form");
                if shape.is_able(format, at_once, gpu.able()) {
                    assert!(trial.is_right(at_once, shape).expect("steps"), "{ty} {shape:?}");
                }
            }
        }
        // and what is wrong is seen
        assert!(error(&[1.0, 2.0], &[1.0, 2.1]) > most_error(ProductType::Int8));
        assert!(error(&[1.0], &[f32::NAN]).is_nan(), "which is within nothing");
    }
}
