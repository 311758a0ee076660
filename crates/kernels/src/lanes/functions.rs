//! Functions of lanes: operation by operation those of [`crate::math`].

use super::{Simd, exp};
use crate::math::{ERFC_POLY, LN_1P_POLY, TANH_POLY, TANH_SMALL};

/// `poly` at `x`, highest power first.
#[inline(always)]
fn polynomial<S: Simd>(simd: S, poly: &[f32], x: S::V) -> S::V {
    let mut p = simd.splat(poly[0]);
    for c in &poly[1..] {
        p = simd.fma(p, x, simd.splat(*c));
    }
    p
}

/// [`crate::math::tanh`] of each lane.
#[inline(always)]
pub(crate) fn tanh<S: Simd>(simd: S, x: S::V) -> S::V {
    let (one, two) = (simd.splat(1.0), simd.splat(2.0));
    let z = simd.mul(x, x);
    let small = simd.fma(simd.mul(z, x), polynomial(simd, &TANH_POLY, z), x);
    let e = exp(simd, simd.add(x, x));
    let large = simd.sub(one, simd.div(two, simd.add(e, one)));
    simd.less(z, simd.splat(TANH_SMALL), small, large)
}

/// [`crate::math::ln_1p`] of each lane.
#[inline(always)]
pub(crate) fn ln_1p<S: Simd>(simd: S, x: S::V) -> S::V {
    let s = simd.div(x, simd.add(x, simd.splat(2.0)));
    simd.mul(s, polynomial(simd, &LN_1P_POLY, simd.mul(s, s)))
}

/// [`crate::math::erfc`] of each lane.
#[inline(always)]
pub(crate) fn erfc<S: Simd>(simd: S, x: S::V) -> S::V {
    let zero = simd.splat(0.0);
    let a = simd.max(x, simd.sub(zero, x));
    let one = simd.splat(1.0);
    let t = simd.div(one, simd.fma(a, simd.splat(0.5), one));
    let p = polynomial(simd, &ERFC_POLY, t);
    let tail = simd.mul(t, exp(simd, simd.fnma(a, a, p)));
    simd.less(x, zero, simd.sub(simd.splat(2.0), tail), tail)
}

/// [`crate::math::exp_m1`] of each lane.
#[inline(always)]
pub(crate) fn exp_m1<S: Simd>(simd: S, x: S::V) -> S::V {
    let t = tanh(simd, simd.mul(x, simd.splat(0.5)));
    simd.div(simd.add(t, t), simd.sub(simd.splat(1.0), t))
}
