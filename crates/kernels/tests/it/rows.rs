//! Row ops: naive against f64, the others against naive to the bit.

use crate::support::{Random, assert_same_bits, candidates, sizes};
use kernels::rows::{
    ACT, ADD, ADD_WEIGHTED, GATED, Gated, LAYER_NORM, PEAK, PEAKS, Pairs, RMS_NORM, ROTATE, Unary,
    rope_angles,
};

const LENGTHS: &[usize] =
    sizes(&[1, 2, 7, 15, 16, 17, 33, 64, 100, 896, 1025, 4096], &[1, 7, 16, 33]);

#[test]
fn norms_match() {
    for &n in LENGTHS {
        let mut random = Random::new(n as u64);
        let (x, weight) = (random.floats(n, 5.0), random.floats(n, 2.0));
        let mean = x.iter().map(|x| f64::from(*x)).sum::<f64>() / n as f64;
        for (slot, mean) in [(&RMS_NORM, 0.0), (&LAYER_NORM, mean)] {
            let mut want = vec![0.0; n];
            slot.naive().call(&x, &weight, 1e-6, &mut want);
            let square = x.iter().map(|x| (f64::from(*x) - mean).powi(2)).sum::<f64>() / n as f64;
            for ((x, weight), got) in x.iter().zip(&weight).zip(&want) {
                let exact = (f64::from(*x) - mean) / (square + 1e-6).sqrt() * f64::from(*weight);
                // a lone number is its mean
                assert!((f64::from(*got) - exact).abs() <= 4e-6 * exact.abs() + 1e-5 * mean.abs());
            }
            for kernel in candidates(slot) {
                let mut got = vec![0.0; n];
                kernel.call(&x, &weight, 1e-6, &mut got);
                assert_same_bits(&got, &want, kernel.name());
            }
        }
    }
}

const XIELU: Unary = Unary::Xielu { alpha_p: 0.8, alpha_n: 0.9, beta: 0.5, eps: -1e-6 };

pub(crate) const UNARY: [Unary; 13] = [
    Unary::Silu,
    Unary::Sigmoid,
    Unary::Gelu,
    Unary::GeluErf,
    Unary::Relu,
    Unary::Relu2,
    Unary::Softplus,
    Unary::Tanh,
    Unary::Exp,
    Unary::Identity,
    Unary::Softcap(30.0),
    Unary::Clamp(1.5),
    XIELU,
];

pub(crate) fn gates() -> Vec<Gated> {
    let mut all: Vec<Gated> = UNARY.into_iter().map(Gated::Unary).collect();
    all.extend([
        Gated::SwigluOai { alpha: 1.702, limit: 7.0 },
        Gated::ClampedSwiglu { limit: 5.0, after: false },
        Gated::ClampedSwiglu { limit: 5.0, after: true },
        Gated::Situ { gate: 4.0, up: 25.0 },
    ]);
    all
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// The error function by its series; its tail is of no account here.
fn erf(x: f64) -> f64 {
    if x.abs() > 5.5 {
        return x.signum();
    }
    let (mut term, mut sum) = (x, x);
    for n in 1..200 {
        term *= 2.0 * x * x / f64::from(2 * n + 1);
        sum += term;
    }
    std::f64::consts::FRAC_2_SQRT_PI * (-x * x).exp() * sum
}

fn exact(act: Unary, x: f64) -> f64 {
    match act {
        Unary::Silu => x * sigmoid(x),
        Unary::Sigmoid => sigmoid(x),
        Unary::Gelu => {
            let inner = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x.powi(3));
            x * sigmoid(2.0 * inner)
        }
        Unary::GeluErf => 0.5 * x * (1.0 + erf(x / 2f64.sqrt())),
        Unary::Relu => x.max(0.0),
        Unary::Relu2 => x.max(0.0).powi(2),
        Unary::Softplus => x.max(0.0) + (-x.abs()).exp().ln_1p(),
        // it ends where f32 would
        Unary::Exp => {
            if x < -87.0 {
                0.0
            } else {
                x.min(88.0).exp()
            }
        }
        Unary::Identity => x,
        Unary::Tanh => x.tanh(),
        Unary::Softcap(c) => f64::from(c) * (x / f64::from(c)).tanh(),
        Unary::Clamp(c) => x.clamp(-f64::from(c), f64::from(c)),
        Unary::Xielu { alpha_p, alpha_n, beta, eps } => {
            let [alpha_p, alpha_n, beta, eps] = [alpha_p, alpha_n, beta, eps].map(f64::from);
            let curved =
                if x > 0.0 { alpha_p * x * x } else { alpha_n * (x.min(eps).exp_m1() - x) };
            curved + beta * x
        }
    }
}

fn exact_gated(act: Gated, g: f64, u: f64) -> f64 {
    match act {
        Gated::Unary(act) => exact(act, g) * u,
        Gated::SwigluOai { alpha, limit } => {
            let limit = f64::from(limit);
            let g = g.min(limit);
            g * sigmoid(f64::from(alpha) * g) * (u.clamp(-limit, limit) + 1.0)
        }
        Gated::ClampedSwiglu { limit, after } => {
            let limit = f64::from(limit);
            let silu = |x| exact(Unary::Silu, x);
            let factor = if after { silu(g).min(limit) } else { silu(g.min(limit)) };
            factor * u.clamp(-limit, limit)
        }
        Gated::Situ { gate, up } => {
            exact(Unary::Softcap(gate), g) * sigmoid(g) * exact(Unary::Softcap(up), u)
        }
    }
}

/// What may be lost where parts of the size of `x` cancel.
fn slack(act: Unary, x: f32) -> f64 {
    if act == XIELU { 1e-6 * f64::from(x.abs()) } else { 0.0 }
}

/// Numbers of all sizes; some are far out.
fn inputs(n: usize) -> (Vec<f32>, Vec<f32>) {
    let mut random = Random::new(n as u64);
    let (mut x, up) = (random.floats(n, 6.0), random.floats(n, 9.0));
    x.iter_mut().step_by(5).for_each(|x| *x *= 30.0);
    x.iter_mut().step_by(7).for_each(|x| *x *= 1e-3);
    (x, up)
}

#[test]
fn unary_activations_match() {
    for &n in LENGTHS {
        let (x, _) = inputs(n);
        for act in UNARY {
            let mut want = x.clone();
            ACT.naive().call(act, &mut want);
            for (x, got) in x.iter().zip(&want) {
                let exact = exact(act, f64::from(*x));
                let error = (f64::from(*got) - exact).abs();
                let bound = 4e-6 * exact.abs() + slack(act, *x) + 1e-12;
                assert!(error <= bound, "{act:?}({x}): {got} and {exact}");
            }
            for kernel in candidates(&ACT) {
                let mut got = x.clone();
                kernel.call(act, &mut got);
                assert_same_bits(&got, &want, &format!("{} {act:?}", kernel.name()));
            }
        }
    }
}

#[test]
fn gated_activations_match() {
    for &n in LENGTHS {
        let (gate, up) = inputs(n);
        for act in gates() {
            let mut want = vec![0.0; n];
            GATED.naive().call(act, &gate, &up, &mut want);
            for ((g, u), got) in gate.iter().zip(&up).zip(&want) {
                let exact = exact_gated(act, f64::from(*g), f64::from(*u));
                if exact.abs() > f64::from(f32::MAX) {
                    assert!(got.is_infinite(), "{act:?}({g}, {u}): {got} and {exact}");
                    continue;
                }
                let error = (f64::from(*got) - exact).abs();
                let slack = match act {
                    Gated::Unary(act) => slack(act, *g) * f64::from(u.abs()),
                    _ => 0.0,
                };
                let bound = 5e-6 * exact.abs() + slack + 1e-11;
                assert!(error <= bound, "{act:?}({g}, {u}): {got} and {exact}");
            }
            for kernel in candidates(&GATED) {
                let mut got = vec![0.0; n];
                kernel.call(act, &gate, &up, &mut got);
                assert_same_bits(&got, &want, &format!("{} {act:?}", kernel.name()));
            }
        }
    }
}

#[test]
fn activations_of_what_is_not_finite_are_not_finite() {
    let gate = [f32::NAN, f32::INFINITY, 0.0, -1e30, f32::NEG_INFINITY];
    for kernel in candidates(&GATED).into_iter().chain([GATED.naive()]) {
        let mut out = [0.0; 5];
        kernel.call(Gated::Unary(Unary::Silu), &gate, &[1.0; 5], &mut out);
        assert!(
            out[0].is_nan() && out[1] == f32::INFINITY && out[2] == 0.0,
            "{} {out:?}",
            kernel.name()
        );
        assert!(out[3].abs() < 1e-6 && !out[4].is_finite(), "{} {out:?}", kernel.name());
        for act in gates() {
            kernel.call(act, &[f32::NAN; 5], &[1.0; 5], &mut out);
            assert!(out.iter().all(|x| x.is_nan()), "{} {act:?} of NaN", kernel.name());
            kernel.call(act, &[1.0; 5], &[f32::NAN; 5], &mut out);
            assert!(out.iter().all(|x| x.is_nan()), "{} {act:?} times NaN", kernel.name());
        }
    }
}

#[test]
fn add_weighted_matches() {
    for n in [0, 1, 5, 12] {
        let mut random = Random::new(n as u64);
        let rows: Vec<u32> = (0..n as u32).map(|i| i * 3).collect();
        let (x, weights) = (random.floats(16 * n, 5.0), random.floats(n, 2.0));
        let sums = random.floats(16 * 36, 1.0);
        let mut want = sums.clone();
        for (i, sum) in want.iter_mut().enumerate() {
            if let Some(at) = rows.iter().position(|row| *row as usize == i / 16) {
                *sum = weights[at].mul_add(x[at * 16 + i % 16], *sum);
            }
        }
        for kernel in candidates(&ADD_WEIGHTED).into_iter().chain([ADD_WEIGHTED.naive()]) {
            let mut got = sums.clone();
            kernel.call(&x, &rows, &weights, &mut got);
            assert_same_bits(&got, &want, kernel.name());
        }
    }
}

#[test]
fn add_matches() {
    for &n in LENGTHS {
        let mut random = Random::new(n as u64);
        let (a, b) = (random.floats(n, 5.0), random.floats(n, 2.0));
        let want: Vec<f32> = a.iter().zip(&b).map(|(a, b)| a + b).collect();
        for kernel in candidates(&ADD).into_iter().chain([ADD.naive()]) {
            let mut got = vec![0.0; n];
            kernel.call(&a, &b, &mut got);
            assert_same_bits(&got, &want, kernel.name());
        }
    }
}

#[test]
fn rotation_matches() {
    let frequencies: Vec<f64> = (0..40).map(|i| 10_000f64.powf(-f64::from(i) / 40.0)).collect();
    for (dims, width) in [(80, 80), (80, 96), (6, 6), (2, 3), (64, 128)] {
        let pairs = dims / 2;
        let (mut cos, mut sin) = (vec![0.0; 2 * pairs], vec![0.0; 2 * pairs]);
        rope_angles(&[0, 1717], &frequencies[..pairs], 1.5, &mut cos, &mut sin);
        assert!(cos[..pairs].iter().all(|c| *c == 1.5) && sin[..pairs].iter().all(|s| *s == 0.0));
        let (cos, sin) = (&cos[pairs..], &sin[pairs..]);
        let x = Random::new(dims as u64).floats(width, 4.0);
        for order in [Pairs::HalfSplit, Pairs::Interleaved] {
            let mut want = x.clone();
            ROTATE.naive().call(&mut want, cos, sin, order);
            assert_same_bits(&want[dims..], &x[dims..], "elements past the pairs stay");
            for (i, frequency) in frequencies[..pairs].iter().enumerate() {
                let (a, b) = match order {
                    Pairs::HalfSplit => (i, i + pairs),
                    Pairs::Interleaved => (2 * i, 2 * i + 1),
                };
                let (s, c) = (1717.0 * frequency).sin_cos();
                let first = 1.5 * (f64::from(x[a]) * c - f64::from(x[b]) * s);
                let second = 1.5 * (f64::from(x[a]) * s + f64::from(x[b]) * c);
                assert!(
                    (f64::from(want[a]) - first).abs() < 2e-6
                        && (f64::from(want[b]) - second).abs() < 2e-6
                );
            }
            for kernel in candidates(&ROTATE) {
                let mut got = x.clone();
                kernel.call(&mut got, cos, sin, order);
                assert_same_bits(&got, &want, kernel.name());
            }
        }
    }
}

#[test]
fn peaks_are_the_greatest_of_their_stretch() {
    let mut random = Random::new(5);
    for &n in sizes(&[0usize, 1, 15, 16, 17, 63, 64, 65, 200, 256, 1000][..], &[0, 1, 17, 65]) {
        let row: Vec<f32> = (0..n).map(|_| random.below(500) as f32 - 400.0).collect();
        let mut want = vec![0.0; n.div_ceil(PEAK)];
        PEAKS.naive().call(&row, &mut want);
        let most: Vec<f32> =
            row.chunks(PEAK).map(|part| part.iter().copied().fold(f32::MIN, f32::max)).collect();
        assert_eq!(want, most);
        for kernel in candidates(&PEAKS) {
            let mut got = vec![0.0; want.len()];
            kernel.call(&row, &mut got);
            assert_eq!(got, want, "{} of {n}", kernel.name());
        }
    }
}

#[test]
fn one_number_that_is_not_finite_shows_in_its_peak_alone() {
    for kernel in candidates(&PEAKS).into_iter().chain([PEAKS.naive()]) {
        for &n in sizes(&[1usize, 16, 63, 64, 65, 200][..], &[1, 17, 65]) {
            let mut row = vec![f32::MAX; n];
            let mut peaks = vec![0.0; n.div_ceil(PEAK)];
            for at in 0..n {
                for bad in [f32::INFINITY, f32::NEG_INFINITY, f32::NAN] {
                    row[at] = bad;
                    kernel.call(&row, &mut peaks);
                    for (i, peak) in peaks.iter().enumerate() {
                        assert_eq!(peak.is_nan(), i == at / PEAK, "{} {at}", kernel.name());
                    }
                }
                row[at] = -0.0;
            }
        }
    }
}
