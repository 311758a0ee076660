//! `a * b + c`, rounded once, on 16 lanes of any CPU: with the instruction where the CPU at hand has it, else in exact
//! arithmetic that the compiler makes vectors of. A library's `fma` is a call for every lane.

use crate::math::LANES;

type Array = [f32; LANES];

/// `a * b + c` in every lane.
// kept out of line: callers have it dozens of times, and its work outweighs the call
#[inline(never)]
pub fn fma(a: &Array, b: &Array, c: &Array) -> Array {
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

/// `a * b + c` in every lane, without the instruction.
///
/// In double precision the product is exact, and what the sum loses can be computed. Where it lost something, the sum is
/// moved to the neighbour whose last bit is set: such a number is never halfway between two floats, so that rounding it
/// again rounds the true sum. (Boldo, Melquiond: "Emulation of FMA and correctly rounded sums", 2008.)
pub fn by_arithmetic(a: &Array, b: &Array, c: &Array) -> Array {
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
