//! Arithmetic of 16-bit floats, rounded once.

/// Exact value of an f16.
#[inline(always)]
pub(crate) fn to_f32(half: u32) -> f32 {
    let sign = (half & 0x8000) << 16;
    let magnitude = half & 0x7fff;
    // The exponent of f32 is 112 larger; the product makes subnormals right, too.
    let finite = f32::from_bits(magnitude << 13) * f32::from_bits(0x7780_0000);
    let bits = if magnitude >= 0x7c00 { 0x7f80_0000 | magnitude << 13 } else { finite.to_bits() };
    f32::from_bits(bits | sign)
}

/// Nearest f16 of an f32, ties to even.
#[inline(always)]
pub(crate) fn from_f32(value: f32) -> u32 {
    let bits = value.to_bits();
    let sign = bits >> 16 & 0x8000;
    let magnitude = bits & 0x7fff_ffff;
    if magnitude > 0x7f80_0000 {
        return 0x7fff;
    }
    let result = if magnitude >= 0x4780_0000 {
        // 65536 and more, infinity too.
        0x7c00
    } else if magnitude < 0x3880_0000 {
        // Subnormal: the sum's last bit is worth 2^-24.
        let sum = f32::from_bits(magnitude) + 0.5;
        sum.to_bits() - 0x3f00_0000
    } else {
        // Ties to even; a carry goes into the exponent, and from 65520 on to infinity.
        let odd = magnitude >> 13 & 1;
        (magnitude - 0x3800_0000 + 0xfff + odd) >> 13
    };
    result | sign
}

/// Nearest f16 of an f64, ties to even.
pub(crate) fn from_f64(value: f64) -> u32 {
    // Rounded to odd, the f32 in between keeps which side of a tie the value is on.
    let near = value as f32;
    let back = f64::from(near);
    let mut bits = near.to_bits();
    if back != value && !value.is_nan() && bits & 1 == 0 {
        let beyond = back.abs() > value.abs();
        bits = if beyond { bits - 1 } else { bits + 1 };
    }
    from_f32(f32::from_bits(bits))
}

/// `a + b`. f32 has more than twice the bits of f16, so that its rounding does no harm.
#[inline(always)]
pub(crate) fn add(a: u32, b: u32) -> u32 {
    from_f32(to_f32(a) + to_f32(b))
}

/// `a - b`.
#[inline(always)]
pub(crate) fn sub(a: u32, b: u32) -> u32 {
    from_f32(to_f32(a) - to_f32(b))
}

/// `a * b`.
#[inline(always)]
pub(crate) fn mul(a: u32, b: u32) -> u32 {
    from_f32(to_f32(a) * to_f32(b))
}

/// `a * b + c`, rounded once. The product is exact in f64; where the sum is not, one term is too
/// small to change how the other rounds.
#[inline(always)]
pub(crate) fn fma(a: u32, b: u32, c: u32) -> u32 {
    let product = f64::from(to_f32(a)) * f64::from(to_f32(b));
    from_f64(product + f64::from(to_f32(c)))
}

/// Applies an operation to both halves of pairs.
#[inline(always)]
pub(crate) fn pairs(a: u32, b: u32, f: impl Fn(u32, u32) -> u32) -> u32 {
    f(a & 0xffff, b & 0xffff) | f(a >> 16, b >> 16) << 16
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Value of an f16 by its definition.
    fn defined(half: u32) -> f64 {
        let sign = if half & 0x8000 == 0 { 1.0 } else { -1.0 };
        let exponent = half >> 10 & 31;
        let fraction = f64::from(half & 0x3ff) / 1024.0;
        sign * match exponent {
            0 => fraction * 2_f64.powi(-14),
            31 if half & 0x3ff == 0 => f64::INFINITY,
            31 => f64::NAN,
            e => (1.0 + fraction) * 2_f64.powi(e as i32 - 15),
        }
    }

    /// Nearest f16 by search over all of them.
    fn nearest(value: f64) -> u32 {
        let sign = if value.is_sign_negative() { 0x8000 } else { 0 };
        let x = value.abs();
        if x >= 65520.0 {
            return sign | 0x7c00;
        }
        let (mut low, mut high) = (0_u32, 0x7bff);
        while low < high {
            let middle = (low + high).div_ceil(2);
            if defined(middle) <= x { low = middle } else { high = middle - 1 }
        }
        let next = if low == 0x7bff { 65536.0 } else { defined(low + 1) };
        let (below, above) = (x - defined(low), next - x);
        let up = above < below || (above == below && low & 1 == 1);
        sign | (low + u32::from(up))
    }

    #[test]
    fn every_half_is_exact_and_returns() {
        for half in 0..0x1_0000_u32 {
            let value = to_f32(half);
            if defined(half).is_nan() {
                assert!(value.is_nan());
                assert_eq!(from_f32(value) & 0x7fff, 0x7fff);
            } else {
                assert_eq!(f64::from(value), defined(half));
                assert_eq!(from_f32(value), half);
                assert_eq!(from_f64(defined(half)), half);
            }
        }
    }

    #[test]
    fn conversions_and_sums_round_to_nearest_even() {
        let mut state = 1_u64;
        let mut next = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 32) as u32
        };
        for _ in 0..200_000 {
            let bits = next();
            let value = f32::from_bits(bits);
            if value.is_finite() {
                assert_eq!(from_f32(value), nearest(f64::from(value)), "{value:e}");
            }
            // Near ties.
            let half = next() % 0x7bff;
            let tie = f32::midpoint(to_f32(half), to_f32(half + 1));
            for value in [tie, tie.next_up(), tie.next_down()] {
                assert_eq!(from_f32(value), nearest(f64::from(value)), "{value:e}");
            }
            let wide = f64::from(tie);
            for value in [wide, wide.next_up(), wide.next_down()] {
                assert_eq!(from_f64(value), nearest(value), "{value:e}");
            }
            let (a, b, c) = (next() & 0xffff, next() & 0xffff, next() & 0xffff);
            let (x, y, z) = (defined(a), defined(b), defined(c));
            if (x + y + z).is_finite() {
                assert_eq!(defined(add(a, b)), defined(nearest(x + y)));
                assert_eq!(defined(sub(a, b)), defined(nearest(x - y)));
                assert_eq!(defined(mul(a, b)), defined(nearest(x * y)));
                assert_eq!(defined(fma(a, b, c)), defined(nearest(x * y + z)));
            }
        }
    }
}
