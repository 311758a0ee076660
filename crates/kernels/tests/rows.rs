//! Row ops: naive against f64, the others against naive to the bit.

mod support;

use kernels::rows::{
    ADD, ADD_WEIGHTED, GATED_SIGMOID, GATED_SILU, PEAK, PEAKS, Pairs, RMS_NORM, ROTATE, rope_angles,
};
use support::{Random, assert_same_bits, candidates, naive};

const LENGTHS: [usize; 12] = [1, 2, 7, 15, 16, 17, 33, 64, 100, 896, 1025, 4096];

#[test]
fn rms_norm_matches() {
    for n in LENGTHS {
        let mut random = Random::new(n as u64);
        let (x, weight) = (random.floats(n, 5.0), random.floats(n, 2.0));
        let mut want = vec![0.0; n];
        naive(&RMS_NORM).call(&x, &weight, 1e-6, &mut want);
        let mean = x.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>() / n as f64;
        for ((x, weight), got) in x.iter().zip(&weight).zip(&want) {
            let exact = f64::from(*x) / (mean + 1e-6).sqrt() * f64::from(*weight);
            assert!(
                (f64::from(*got) - exact).abs() <= 2e-6 * exact.abs(),
                "{n}: {got} and {exact}"
            );
        }
        for kernel in candidates(&RMS_NORM) {
            let mut got = vec![0.0; n];
            kernel.call(&x, &weight, 1e-6, &mut got);
            assert_same_bits(&got, &want, kernel.name());
        }
    }
}

#[test]
fn gated_silu_matches() {
    for n in LENGTHS {
        let mut random = Random::new(n as u64);
        let (mut gate, up) = (random.floats(n, 20.0), random.floats(n, 3.0));
        gate.iter_mut().step_by(5).for_each(|x| *x *= 30.0);
        let mut want = vec![0.0; n];
        naive(&GATED_SILU).call(&gate, &up, &mut want);
        for ((gate, up), got) in gate.iter().zip(&up).zip(&want) {
            let exact = f64::from(*gate) / (1.0 + (-f64::from(*gate)).exp()) * f64::from(*up);
            assert!(
                (f64::from(*got) - exact).abs() <= 1e-6 * exact.abs() + 1e-30,
                "{gate}: {got} and {exact}"
            );
        }
        for kernel in candidates(&GATED_SILU) {
            let mut got = vec![0.0; n];
            kernel.call(&gate, &up, &mut got);
            assert_same_bits(&got, &want, kernel.name());
        }
    }
}

#[test]
fn gated_sigmoid_matches() {
    for n in LENGTHS {
        let mut random = Random::new(n as u64);
        let (gate, up) = (random.floats(n, 40.0), random.floats(n, 3.0));
        let mut want = vec![0.0; n];
        naive(&GATED_SIGMOID).call(&gate, &up, &mut want);
        for ((gate, up), got) in gate.iter().zip(&up).zip(&want) {
            let exact = f64::from(*up) / (1.0 + (-f64::from(*gate)).exp());
            assert!(
                (f64::from(*got) - exact).abs() <= 1e-6 * exact.abs() + 1e-30,
                "{gate}: {got} and {exact}"
            );
        }
        for kernel in candidates(&GATED_SIGMOID) {
            let mut got = vec![0.0; n];
            kernel.call(&gate, &up, &mut got);
            assert_same_bits(&got, &want, kernel.name());
        }
    }
}

#[test]
fn activations_of_what_is_not_finite_are_not_finite() {
    let gate = [f32::NAN, f32::INFINITY, 0.0, -1e30, f32::NEG_INFINITY];
    for kernel in candidates(&GATED_SILU).into_iter().chain([naive(&GATED_SILU)]) {
        let mut out = [0.0; 5];
        kernel.call(&gate, &[1.0; 5], &mut out);
        assert!(
            out[0].is_nan() && out[1] == f32::INFINITY && out[2] == 0.0,
            "{} {out:?}",
            kernel.name()
        );
        assert!(out[3].abs() < 1e-6 && !out[4].is_finite(), "{} {out:?}", kernel.name());
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
        for kernel in candidates(&ADD_WEIGHTED).into_iter().chain([naive(&ADD_WEIGHTED)]) {
            let mut got = sums.clone();
            kernel.call(&x, &rows, &weights, &mut got);
            assert_same_bits(&got, &want, kernel.name());
        }
    }
}

#[test]
fn add_matches() {
    for n in LENGTHS {
        let mut random = Random::new(n as u64);
        let (a, b) = (random.floats(n, 5.0), random.floats(n, 2.0));
        let want: Vec<f32> = a.iter().zip(&b).map(|(a, b)| a + b).collect();
        for kernel in candidates(&ADD).into_iter().chain([naive(&ADD)]) {
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
            naive(&ROTATE).call(&mut want, cos, sin, order);
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
    for n in [0usize, 1, 15, 16, 17, 63, 64, 65, 200, 256, 1000] {
        let row: Vec<f32> = (0..n).map(|_| random.below(500) as f32 - 400.0).collect();
        let mut want = vec![0.0; n.div_ceil(PEAK)];
        naive(&PEAKS).call(&row, &mut want);
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
    for kernel in candidates(&PEAKS).into_iter().chain([naive(&PEAKS)]) {
        for n in [1usize, 16, 63, 64, 65, 200] {
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
