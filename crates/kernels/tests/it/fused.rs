//! `a * b + c`, rounded once.

use kernels::internals::{by_arithmetic, fma};
use proptest::prelude::*;

const LANES: usize = 16;

type Array = [f32; LANES];

/// Both ways give what the library gives, whatever the bits.
fn check(a: Array, b: Array, c: Array) {
    let want: Array = std::array::from_fn(|i| a[i].mul_add(b[i], c[i]));
    for found in [fma(&a, &b, &c), by_arithmetic(&a, &b, &c)] {
        for i in 0..LANES {
            let same = want[i].to_bits() == found[i].to_bits();
            let none = want[i].is_nan() && found[i].is_nan();
            assert!(same || none, "{:e} * {:e} + {:e}", a[i], b[i], c[i]);
        }
    }
}

#[test]
fn halves_and_edges_are_rounded_once() {
    let edges = [
        0.0,
        -0.0,
        1.0,
        1.0 + f32::EPSILON,
        1.0 - f32::EPSILON / 2.0,
        f32::EPSILON,
        f32::EPSILON / 2.0,
        f32::MIN_POSITIVE,
        f32::from_bits(1),
        f32::from_bits(0x007f_ffff),
        f32::MAX,
        f32::INFINITY,
        f32::NAN,
        16_777_217.0,
        8_388_609.0,
        3.0,
    ];
    for a in edges {
        for b in edges {
            for sign in [1.0, -1.0] {
                check([a; LANES], [b; LANES], edges.map(|c| sign * c));
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn any_bits(bits in prop::array::uniform16(any::<[u32; 3]>())) {
        let lane = |k: usize| bits.map(|bits| f32::from_bits(bits[k]));
        check(lane(0), lane(1), lane(2));
    }

    /// Products and sums of like size, where bits are lost.
    #[test]
    fn like_sizes(
        bits in prop::array::uniform16(any::<[u32; 3]>()),
        far in prop::array::uniform16(-40..40i32),
    ) {
        let of = |bits: u32, exponent: i32| {
            let exponent = (127 + exponent) as u32;
            f32::from_bits(bits & 0x807f_ffff | exponent << 23)
        };
        let lane = |k: usize| bits.map(|bits| of(bits[k], 0));
        let c = std::array::from_fn(|i| of(bits[i][2], far[i]));
        check(lane(0), lane(1), c);
    }
}
