//! Scalar pieces that every instruction set repeats operation by operation, so that their bits agree.

/// Lanes of every reduction and of every vector in [`crate::lanes`].
pub(crate) const LANES: usize = 16;

/// Arguments below this have an exponential of 0.
pub(crate) const EXP_MIN: f32 = -87.0;
/// Arguments above this are taken as this: the result stays finite.
pub(crate) const EXP_MAX: f32 = 88.0;
/// Adding `1.5 * 2^23` rounds to an integer and leaves it in the low bits of the mantissa.
pub(crate) const ROUND: f32 = 12_582_912.0;
/// The part of ln 2 that products with small integers keep exact.
pub(crate) const LN2_HIGH: f32 = 0.693_359_4;
/// `ln 2 - LN2_HIGH`.
pub(crate) const LN2_LOW: f32 = -2.121_944_4e-4;
/// `exp(r)` for `|r| <= ln(2) / 2`, highest power first. Source: Cephes `expf`.
pub(crate) const EXP_POLY: [f32; 8] =
    [1.987_569_1e-4, 1.398_199_9e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 0.5, 1.0, 1.0];

/// `e^x` within 2 units in the last place; 0 below [`EXP_MIN`], constant above [`EXP_MAX`]; NaN stays NaN.
#[inline(always)]
pub(crate) fn exp(x: f32) -> f32 {
    let x = if EXP_MAX < x { EXP_MAX } else { x };
    let t = x.mul_add(std::f32::consts::LOG2_E, ROUND);
    let n = t - ROUND;
    let r = n.mul_add(-LN2_LOW, n.mul_add(-LN2_HIGH, x));
    let mut p = EXP_POLY[0];
    for c in &EXP_POLY[1..] {
        p = p.mul_add(r, *c);
    }
    let power = f32::from_bits((t.to_bits() << 23).wrapping_add(0x3f80_0000));
    if x < EXP_MIN { 0.0 } else { p * power }
}

/// The greater one; `b` if either is NaN.
#[inline(always)]
pub(crate) fn greater(a: f32, b: f32) -> f32 {
    if a > b { a } else { b }
}

/// Sum of the lanes: halves are added until one is left.
#[inline(always)]
pub(crate) fn sum_lanes(mut lanes: [f32; LANES]) -> f32 {
    for half in [8, 4, 2, 1] {
        for i in 0..half {
            lanes[i] += lanes[i + half];
        }
    }
    lanes[0]
}

/// Greatest lane; NaN lanes are passed over where there is another.
#[inline(always)]
pub(crate) fn max_lanes(mut lanes: [f32; LANES]) -> f32 {
    for half in [8, 4, 2, 1] {
        for i in 0..half {
            lanes[i] = greater(lanes[i + half], lanes[i]);
        }
    }
    lanes[0]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exp_is_close_everywhere() {
        let mut worst = 0.0f64;
        let mut x = EXP_MIN;
        while x < EXP_MAX {
            let want = f64::from(x).exp();
            let ulp =
                f64::from(f32::from_bits((want as f32).to_bits() + 1)) - f64::from(want as f32);
            worst = worst.max((f64::from(exp(x)) - want).abs() / ulp);
            x += 0.001_37;
        }
        assert!(worst <= 2.0, "{worst} units in the last place");
    }

    #[test]
    fn exp_at_the_edges() {
        assert_eq!(exp(0.0).to_bits(), 1.0f32.to_bits());
        assert_eq!(exp(-0.0).to_bits(), 1.0f32.to_bits());
        assert_eq!(exp(f32::NEG_INFINITY).to_bits(), 0);
        assert_eq!(exp(-87.01).to_bits(), 0);
        assert!(exp(-87.0) >= f32::MIN_POSITIVE);
        assert!(exp(f32::INFINITY).is_finite());
        assert!(exp(f32::NAN).is_nan());
    }
}
