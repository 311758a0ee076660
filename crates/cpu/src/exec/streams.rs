//! What models with several residual streams do with a row of them, and factors that files have.
//!
//! Sums are f64, as in the interpreter: rows of these ops are few, and what follows a cut depends on every bit before it.

/// `x` times `factors`, over and over, each of which goes with `each` elements.
pub(super) fn multiply(x: &[f32], factors: &[f32], each: usize, out: &mut [f32]) {
    let scale = |out: &mut [f32], x: &[f32], factor: f32| {
        out.iter_mut().zip(x).for_each(|(out, x)| *out = x * factor);
    };
    if let [factor] = factors {
        return scale(out, x, *factor);
    }
    let len = factors.len() * each;
    for (out, x) in out.chunks_exact_mut(len).zip(x.chunks_exact(len)) {
        if each == 1 {
            out.iter_mut().zip(x).zip(factors).for_each(|((out, x), factor)| *out = x * factor);
            continue;
        }
        for ((out, x), factor) in out.chunks_exact_mut(each).zip(x.chunks_exact(each)).zip(factors)
        {
            scale(out, x, *factor);
        }
    }
}

/// Weighted sums of the `groups` of `x`, into as many as `weights` are for.
pub(super) fn mix(weights: &[f32], x: &[f32], groups: usize, out: &mut [f32]) {
    let dim = x.len() / groups;
    for (weights, out) in weights.chunks_exact(groups).zip(out.chunks_exact_mut(dim)) {
        for (e, out) in out.iter_mut().enumerate() {
            let terms = weights.iter().zip(x[e..].iter().step_by(dim));
            *out = terms.map(|(w, x)| f64::from(*w) * f64::from(*x)).sum::<f64>() as f32;
        }
    }
}

/// `x` as long as `y`.
pub(super) fn resize(x: &[f32], y: &[f32], out: &mut [f32]) {
    let square = |x: &[f32]| x.iter().map(|x| f64::from(*x) * f64::from(*x)).sum::<f64>();
    let of_x = square(x);
    let factor = if of_x == 0.0 { 0.0 } else { (square(y) / of_x).sqrt() };
    for (out, x) in out.iter_mut().zip(x) {
        *out = (f64::from(*x) * factor) as f32;
    }
}

/// The sum of each run of `dim`.
pub(super) fn sums(x: &[f32], dim: usize, out: &mut [f32]) {
    for (out, x) in out.iter_mut().zip(x.chunks_exact(dim)) {
        *out = x.iter().map(|x| f64::from(*x)).sum::<f64>() as f32;
    }
}

/// The root of each size, at least of `least`, with its sign; 0 stays 0.
pub(super) fn signed_roots(x: &[f32], least: f32, out: &mut [f32]) {
    for (out, &x) in out.iter_mut().zip(x) {
        *out = if x == 0.0 || x.is_nan() { x } else { x.abs().max(least).sqrt().copysign(x) };
    }
}

/// The first numbers of all runs of `dim`, then the second ones.
pub(super) fn turned(x: &[f32], dim: usize, out: &mut [f32]) {
    for (i, out) in out.chunks_exact_mut(x.len() / dim).enumerate() {
        out.iter_mut().zip(x[i..].iter().step_by(dim)).for_each(|(out, x)| *out = *x);
    }
}

/// `exp(x)` over the sum of them.
pub(super) fn softmax(x: &[f32], out: &mut [f32]) {
    let most = x.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let weight = |x: &f32| (f64::from(*x) - f64::from(most)).exp();
    let sum: f64 = x.iter().map(weight).sum();
    out.iter_mut().zip(x).for_each(|(out, x)| *out = (weight(x) / sum) as f32);
}

/// A matrix `[n, n]` whose rows and columns are made to sum to nearly 1, turned. It is small.
pub(super) fn sinkhorn(x: &[f32], n: usize, rounds: u32, eps: f64, out: &mut [f32]) {
    let mut s = Vec::with_capacity(n * n);
    for row in x.chunks_exact(n) {
        let most = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let start = s.len();
        s.extend(row.iter().map(|x| (f64::from(*x) - f64::from(most)).exp()));
        let sum: f64 = s[start..].iter().sum();
        s[start..].iter_mut().for_each(|x| *x = *x / sum + eps);
    }
    for round in 0..rounds {
        for row in s.chunks_exact_mut(n).filter(|_| round > 0) {
            let sum = row.iter().sum::<f64>() + eps;
            row.iter_mut().for_each(|x| *x /= sum);
        }
        for column in 0..n {
            let sum = s[column..].iter().step_by(n).sum::<f64>() + eps;
            s[column..].iter_mut().step_by(n).for_each(|x| *x /= sum);
        }
    }
    for (i, out) in out.iter_mut().enumerate() {
        *out = s[i % n * n + i / n] as f32;
    }
}

/// What exceeds the mean by so many deviations.
pub(super) fn excess(x: &[f32], deviations: f32, out: &mut [f32]) {
    let n = x.len() as f64;
    let mean = x.iter().map(|x| f64::from(*x)).sum::<f64>() / n;
    let square = |x: &f32| (f64::from(*x) - mean).powi(2);
    let least =
        mean + f64::from(deviations) * (x.iter().map(square).sum::<f64>() / (n - 1.0)).sqrt();
    for (out, x) in out.iter_mut().zip(x) {
        *out = (f64::from(*x) - least).max(0.0) as f32;
    }
}
