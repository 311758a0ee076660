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

/// Arguments whose square is below this have their hyperbolic tangent by [`TANH_POLY`].
pub(crate) const TANH_SMALL: f32 = 0.390_625;
/// `(tanh(x) / x - 1) / x^2` by powers of `x^2` up to [`TANH_SMALL`], highest first; fitted at Chebyshev nodes.
pub(crate) const TANH_POLY: [f32; 5] =
    [-6.104_949_4e-3, 2.100_364_3e-2, -5.385_25e-2, 1.333_278_3e-1, -3.333_332_8e-1];

/// The hyperbolic tangent within 4 units in the last place; NaN stays NaN.
#[inline(always)]
pub(crate) fn tanh(x: f32) -> f32 {
    let z = x * x;
    let mut p = TANH_POLY[0];
    for c in &TANH_POLY[1..] {
        p = p.mul_add(z, *c);
    }
    let small = (z * x).mul_add(p, x);
    let large = 1.0 - 2.0 / (exp(x + x) + 1.0);
    if z < TANH_SMALL { small } else { large }
}

/// `2 atanh(s) / s` by powers of `s^2` up to 1/9, highest first; fitted at Chebyshev nodes.
pub(crate) const LN_1P_POLY: [f32; 5] =
    [2.817_465_7e-1, 2.796_141_8e-1, 4.002_485_3e-1, 6.666_632e-1, 2.0];

/// `ln(1 + x)` for `0 <= x <= 1`, within 4 units in the last place.
#[inline(always)]
pub fn ln_1p(x: f32) -> f32 {
    let s = x / (x + 2.0);
    let z = s * s;
    let mut p = LN_1P_POLY[0];
    for c in &LN_1P_POLY[1..] {
        p = p.mul_add(z, *c);
    }
    s * p
}

/// `ln(erfc(x) e^(x^2) / t)` by powers of `t = 1 / (1 + x / 2)`, highest first; fitted at Chebyshev nodes for `x < 31`.
pub(crate) const ERFC_POLY: [f32; 10] = [
    1.790_141_9e-1,
    -8.614_618e-1,
    1.568_741_6,
    -1.225_228_9,
    3.393_767_2e-1,
    -2.111_658_2e-1,
    1.029_116_4e-1,
    3.732_452e-1,
    1.000_080_8,
    -1.265_513_5,
];

/// `1 - erf(x)`, within a relative error of 1e-5 wherever it is normal; NaN stays NaN.
#[inline(always)]
pub fn erfc(x: f32) -> f32 {
    let a = greater(x, -x);
    let t = 1.0 / a.mul_add(0.5, 1.0);
    let mut p = ERFC_POLY[0];
    for c in &ERFC_POLY[1..] {
        p = p.mul_add(t, *c);
    }
    let tail = t * exp((-a).mul_add(a, p));
    if x < 0.0 { 2.0 - tail } else { tail }
}

/// `e^x - 1` for `x <= 0`.
#[inline(always)]
pub fn exp_m1(x: f32) -> f32 {
    let t = tanh(0.5 * x);
    (t + t) / (1.0 - t)
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
