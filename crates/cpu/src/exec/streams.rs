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
