//! Scalar functions against those of f64.

use kernels::internals::{erfc, exp_m1, ln_1p};
use kernels::rows::{ACT, Unary};

/// Arguments below this have an exponential of 0.
const EXP_MIN: f32 = -87.0;
/// Arguments above this are taken as this.
const EXP_MAX: f32 = 88.0;

/// The naive kernel of an activation, of one number.
fn naive(act: Unary, x: f32) -> f32 {
    let mut x = [x];
    ACT.naive().call(act, &mut x);
    x[0]
}

fn exp(x: f32) -> f32 {
    naive(Unary::Exp, x)
}

fn tanh(x: f32) -> f32 {
    naive(Unary::Tanh, x)
}

#[test]
fn exp_is_close_everywhere() {
    let mut worst = 0.0f64;
    let mut x = EXP_MIN;
    while x < EXP_MAX {
        let want = f64::from(x).exp();
        let ulp = f64::from(f32::from_bits((want as f32).to_bits() + 1)) - f64::from(want as f32);
        worst = worst.max((f64::from(exp(x)) - want).abs() / ulp);
        x += if cfg!(miri) { 0.237 } else { 0.001_37 };
    }
    assert!(worst <= 2.0, "{worst} units in the last place");
}

/// The greatest error of `found` relative to `want` from `first` to `last`.
fn worst(found: fn(f32) -> f32, want: fn(f64) -> f64, first: f32, last: f32) -> f64 {
    const N: i32 = if cfg!(miri) { 300 } else { 30_000 };
    let at = |i: i32| first + (last - first) * i as f32 / N as f32;
    let error = |x: f32| (f64::from(found(x)) / want(f64::from(x)) - 1.0).abs();
    (0..=N).map(at).filter(|x| *x != 0.0).map(error).fold(0.0, f64::max)
}

#[test]
fn functions_are_close_to_those_of_f64() {
    for (first, last) in [(-1e-3, 1e-3), (-1.0, 1.0), (-20.0, 20.0)] {
        let error = worst(tanh, f64::tanh, first, last);
        assert!(error <= 3e-7, "tanh in {first}..{last}: {error:e}");
    }
    for last in [1e-4, 1.0] {
        let error = worst(ln_1p, f64::ln_1p, 0.0, last);
        assert!(error <= 4e-7, "ln_1p below {last}: {error:e}");
    }
    for first in [-1e-3, -1.0, -80.0] {
        let error = worst(exp_m1, f64::exp_m1, first, 0.0);
        assert!(error <= 6e-7, "exp_m1 above {first}: {error:e}");
    }
    assert!(tanh(f32::NAN).is_nan() && ln_1p(f32::NAN).is_nan() && erfc(f32::NAN).is_nan());
    assert_eq!((tanh(f32::INFINITY), tanh(f32::NEG_INFINITY)), (1.0, -1.0));
    assert_eq!((erfc(f32::INFINITY), erfc(f32::NEG_INFINITY)), (0.0, 2.0));
}

#[test]
fn erfc_is_close_to_its_integral() {
    // 2 / sqrt(pi) times the integral of e^(-t^2) from x on, by Simpson's rule
    let integral = |x: f64| {
        let (n, end) = (if cfg!(miri) { 1200 } else { 4000 }, x.max(0.0) + 7.0);
        let step = (end - x) / f64::from(n);
        let at = |i: i32| {
            let t = x + step * f64::from(i);
            let weight = if i == 0 || i == n { 1.0 } else { f64::from(2 + i % 2 * 2) };
            weight * (-t * t).exp()
        };
        std::f64::consts::FRAC_2_SQRT_PI * step / 3.0 * (0..=n).map(at).sum::<f64>()
    };
    for i in (-32..=72).step_by(if cfg!(miri) { 26 } else { 1 }) {
        let x = i as f32 * 0.125;
        let want = integral(f64::from(x));
        let error = (f64::from(erfc(x)) / want - 1.0).abs();
        assert!(error < if x < 4.0 { 2e-6 } else { 1e-5 }, "{x}: {error:e}");
    }
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
