//! What models with several residual streams do with them, row by row.

use super::ops::{Heads, dot};

/// The groups of all values, `n` rows of each.
pub(super) fn concat(values: &[Heads<'_>], n: usize) -> Vec<f32> {
    let row = |i: usize| values.iter().flat_map(move |value| &value.x[value.row(i)]).copied();
    (0..n).flat_map(row).collect()
}

/// Weighted sums of the groups of each row of `x`.
pub(super) fn mix(weights: &[f32], x: &Heads<'_>, groups_out: usize) -> Vec<f32> {
    let weights = weights.chunks_exact(groups_out * x.groups);
    let row = |(weights, i): (&[f32], usize)| {
        let x = &x.x[x.row(i)];
        let group = |weights: &[f32]| -> Vec<f32> {
            let sum = |e: usize| -> f64 {
                let terms = weights.iter().zip(x.chunks_exact(x.len() / weights.len()));
                terms.map(|(&w, x)| f64::from(w) * f64::from(x[e])).sum()
            };
            (0..x.len() / weights.len()).map(|e| sum(e) as f32).collect()
        };
        weights.chunks_exact(weights.len() / groups_out).flat_map(group).collect::<Vec<_>>()
    };
    weights.zip(0..).flat_map(row).collect()
}

/// Each group of `x` as long as that of `y`.
pub(super) fn resize(x: &[f32], y: &[f32], dim: usize) -> Vec<f32> {
    let group = |(x, y): (&[f32], &[f32])| {
        let square = dot(x, x);
        let factor = if square == 0.0 { 0.0 } else { (dot(y, y) / square).sqrt() };
        x.iter().map(|&x| (f64::from(x) * factor) as f32).collect::<Vec<_>>()
    };
    x.chunks_exact(dim).zip(y.chunks_exact(dim)).flat_map(group).collect()
}

/// What exceeds the mean and so many deviations of each group.
pub(super) fn excess(x: &[f32], dim: usize, deviations: f32) -> Vec<f32> {
    let group = |x: &[f32]| {
        let n = dim as f64;
        let mean = x.iter().map(|&x| f64::from(x)).sum::<f64>() / n;
        let square = |&x: &f32| (f64::from(x) - mean).powi(2);
        let std = (x.iter().map(square).sum::<f64>() / (n - 1.0)).sqrt();
        let least = mean + f64::from(deviations) * std;
        x.iter().map(|&x| (f64::from(x) - least).max(0.0) as f32).collect::<Vec<_>>()
    };
    x.chunks_exact(dim).flat_map(group).collect()
}

/// The sum of each group.
pub(super) fn sums(x: &[f32], dim: usize) -> Vec<f32> {
    let sum = |x: &[f32]| x.iter().map(|&x| f64::from(x)).sum::<f64>() as f32;
    x.chunks_exact(dim).map(sum).collect()
}

/// The root of each size, at least of `least`, with its sign; 0 stays 0.
pub(super) fn signed_roots(x: &[f32], least: f32) -> Vec<f32> {
    let root = |&x: &f32| match f64::from(x) {
        none if none == 0.0 || none.is_nan() => x,
        x => x.abs().max(f64::from(least)).sqrt().copysign(x) as f32,
    };
    x.iter().map(root).collect()
}

/// Shares of each group.
pub(super) fn softmax(x: &[f32], dim: usize) -> Vec<f32> {
    let group = |x: &[f32]| shares(x).into_iter().map(|share| share as f32).collect::<Vec<_>>();
    x.chunks_exact(dim).flat_map(group).collect()
}

/// The first numbers of all groups of a row, then the second ones.
pub(super) fn turned(x: &[f32], groups: usize, dim: usize) -> Vec<f32> {
    let row =
        |x: &[f32]| (0..x.len()).map(|i| x[i % groups * dim + i / groups]).collect::<Vec<_>>();
    x.chunks_exact(groups * dim).flat_map(row).collect()
}

fn shares(x: &[f32]) -> Vec<f64> {
    let most = x.iter().fold(f64::NEG_INFINITY, |most, x| most.max(f64::from(*x)));
    let weights: Vec<f64> = x.iter().map(|x| (f64::from(*x) - most).exp()).collect();
    let sum: f64 = weights.iter().sum();
    weights.into_iter().map(|weight| weight / sum).collect()
}

/// Matrices of `n` rows whose rows and columns sum to nearly 1, turned.
pub(super) fn sinkhorn(x: &[f32], n: usize, rounds: u32, eps: f64) -> Vec<f32> {
    let matrix = |x: &[f32]| {
        let mut s: Vec<Vec<f64>> = x
            .chunks_exact(n)
            .map(|row| shares(row).into_iter().map(|share| share + eps).collect())
            .collect();
        for round in 0..rounds {
            for row in s.iter_mut().filter(|_| round > 0) {
                let sum = row.iter().sum::<f64>() + eps;
                row.iter_mut().for_each(|x| *x /= sum);
            }
            for column in 0..n {
                let sum = s.iter().map(|row| row[column]).sum::<f64>() + eps;
                s.iter_mut().for_each(|row| row[column] /= sum);
            }
        }
        let turned = |column: usize| s.iter().map(|row| row[column] as f32).collect::<Vec<_>>();
        (0..n).flat_map(turned).collect::<Vec<_>>()
    };
    x.chunks_exact(n * n).flat_map(matrix).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_by_hand() {
        // two rows of two groups of two
        let x = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0];
        let heads = Heads { x: &x, groups: 2, dim: 2 };
        let one = Heads { x: &[0.0, -1.0, 9.0, 9.0], groups: 1, dim: 2 };
        let both = concat(&[one, Heads { x: &x, groups: 2, dim: 2 }], 2);
        assert_eq!(both, [0.0, -1.0, 1.0, 2.0, 3.0, 4.0, 9.0, 9.0, 5.0, 6.0, 7.0, 8.0]);
        let mixed = mix(&[1.0, 10.0, 0.0, -1.0], &heads, 1);
        assert_eq!(mixed, [31.0, 42.0, -7.0, -8.0]);
        let mixed = mix(&[1.0, 0.0, 1.0, 1.0, 2.0, 0.0, 0.0, 0.5], &heads, 2);
        assert_eq!(mixed, [1.0, 2.0, 4.0, 6.0, 10.0, 12.0, 3.5, 4.0]);
        assert_eq!(resize(&[3.0, 4.0, 0.0, 2.0], &[0.0, 10.0, 1.0, 0.0], 2), [6.0, 8.0, 0.0, 1.0]);
        assert_eq!(resize(&[0.0, 0.0], &[3.0, 4.0], 2), [0.0, 0.0]);
        // mean 2, deviation 2: what exceeds 3
        assert_eq!(excess(&[0.0, 2.0, 4.0], 3, 0.5), [0.0, 0.0, 1.0]);
        assert_eq!(turned(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], 2, 3), [1.0, 4.0, 2.0, 5.0, 3.0, 6.0]);
        assert_eq!(turned(&[1.0, 2.0, 3.0, 4.0], 1, 2), [1.0, 2.0, 3.0, 4.0]);
        let roots = signed_roots(&[4.0, -9.0, 0.01, -0.01, 0.0], 0.25);
        assert_eq!(roots, [2.0, -3.0, 0.5, -0.5, 0.0]);
        assert!(signed_roots(&[f32::NAN], 0.25)[0].is_nan());
        let two = 2f32.ln();
        let close = |found: &[f32], want: &[f32]| {
            assert!(found.iter().zip(want).all(|(a, b)| (a - b).abs() < 1e-6), "{found:?}");
        };
        close(&softmax(&[0.0, two, 9.0, 9.0], 2), &[1.0 / 3.0, 2.0 / 3.0, 0.5, 0.5]);
    }

    /// Of rows 1:1 and 1:3 the columns are 1/2 + 1/4 and 1/2 + 3/4; one round divides by them, a second one by rows first.
    #[test]
    fn a_matrix_is_balanced_and_turned() {
        let close = |found: &[f32], want: [f32; 4]| {
            assert!(found.iter().zip(want).all(|(a, b)| (a - b).abs() < 1e-6), "{found:?}");
        };
        let x = [0.0, 0.0, 0.0, 3f32.ln()];
        close(&sinkhorn(&x, 2, 1, 0.0), [2.0 / 3.0, 1.0 / 3.0, 0.4, 0.6]);
        // rows 2/3 + 2/5 and 1/3 + 3/5
        let [a, b, c, d] = [0.625, 0.375, 5.0 / 14.0, 9.0 / 14.0];
        close(&sinkhorn(&x, 2, 2, 0.0), [a / (a + c), c / (a + c), b / (b + d), d / (b + d)]);
        let many = sinkhorn(&x, 2, 60, 0.0);
        close(&[many[0] + many[1], many[0] + many[2], many[1] + many[3], 1.0], [1.0; 4]);
        // half of a number that is added is half of the sum that divides
        close(&sinkhorn(&[7.0], 1, 1, 1.0), [2.0 / 3.0; 4]);
    }
}
