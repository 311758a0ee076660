//! `a * b + c`, rounded once, on 16 lanes of any CPU: with the instruction where the CPU at hand has it, else in exact
//! arithmetic that the compiler makes vectors of. A library's `fma` is a call for every lane.

use crate::math::LANES;

type Array = [f32; LANES];

/// `a * b + c` in every lane.
// kept out of line: callers have it dozens of times, and its work outweighs the call
#[inline(never)]
pub(super) fn fma(a: &Array, b: &Array, c: &Array) -> Array {
    #[cfg(target_arch = "x86_64")]
    if std::is_x86_feature_detected!("fma") {
        // SAFETY: the CPU has the instruction.
        return unsafe { by_instruction(a, b, c) };
    }
    by_arithmetic(a, b, c)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "fma")]
fn by_instruction(a: &Array, b: &Array, c: &Array) -> Array {
    std::array::from_fn(|i| a[i].mul_add(b[i], c[i]))
}

/// In double precision the product is exact, and what the sum loses can be computed. Where it lost something, the sum is
/// moved to the neighbour whose last bit is set: such a number is never halfway between two floats, so that rounding it
/// again rounds the true sum. (Boldo, Melquiond: "Emulation of FMA and correctly rounded sums", 2008.)
fn by_arithmetic(a: &Array, b: &Array, c: &Array) -> Array {
    std::array::from_fn(|i| {
        let (product, c) = (f64::from(a[i]) * f64::from(b[i]), f64::from(c[i]));
        let sum = product + c;
        let part = sum - product;
        let lost = (product - (sum - part)) + (c - part);
        let bits = sum.to_bits();
        // not a number where the sum is infinite or none: nothing was lost
        let moved = u64::from((lost < 0.0) | (lost > 0.0)) & !bits;
        let outwards = (lost > 0.0) == (sum > 0.0);
        let step = if outwards { 1 } else { u64::MAX };
        f64::from_bits(bits.wrapping_add((moved & 1).wrapping_mul(step))) as f32
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

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
}
