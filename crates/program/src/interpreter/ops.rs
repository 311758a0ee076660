//! The ops, each by its definition: f32 in, f64 sums, f32 out.

use std::ops::Range;

use super::acts;
use crate::{Act, Gate, NormKind, Rope, RopePairs};

/// `[rows, groups, dim]`, row-major.
pub(super) struct Heads<'a> {
    pub(super) x: &'a [f32],
    pub(super) groups: usize,
    pub(super) dim: usize,
}

impl Heads<'_> {
    /// Where row `i` lies in `x`.
    pub(super) fn row(&self, i: usize) -> Range<usize> {
        let cols = self.groups * self.dim;
        i * cols..(i + 1) * cols
    }
}

/// The rows of `table` `[_, cols]` with these indices, in this order.
pub(super) fn rows(table: &[f32], cols: usize, wanted: impl Iterator<Item = usize>) -> Vec<f32> {
    wanted.flat_map(|i| &table[i * cols..(i + 1) * cols]).copied().collect()
}

/// The mean of the rows of `x` `[_, cols]` with these indices, of which there is one at least.
pub(super) fn mean(x: &[f32], cols: usize, wanted: impl Iterator<Item = usize>) -> Vec<f32> {
    let (mut sums, mut n) = (vec![0.0; cols], 0.0);
    for i in wanted {
        sums.iter_mut().zip(&x[i * cols..]).for_each(|(sum, x)| *sum += f64::from(*x));
        n += 1.0;
    }
    sums.iter().map(|sum| (sum / n) as f32).collect()
}

/// `n(x) * weight + bias` over each group, `n` of this kind.
pub(super) fn norm(
    x: &Heads<'_>,
    kind: NormKind,
    [weight, bias]: [Option<&[f32]>; 2],
    eps: f32,
) -> Vec<f32> {
    // one vector for all groups or one for each
    let of = |vector: Option<&[f32]>, group: usize, i: usize| {
        vector.map(|v| f64::from(v[(group % x.groups * x.dim + i) % v.len()]))
    };
    let normed = |(group, numbers): (usize, &[f32])| {
        let n = numbers.len() as f64;
        let mean = match kind {
            NormKind::Rms => 0.0,
            NormKind::Layer => numbers.iter().map(|&x| f64::from(x)).sum::<f64>() / n,
        };
        let square = |&x: &f32| (f64::from(x) - mean).powi(2);
        let scale = (numbers.iter().map(square).sum::<f64>() / n + f64::from(eps)).sqrt().recip();
        let one = move |(i, &x): (usize, &f32)| {
            let (weight, bias) = (of(weight, group, i), of(bias, group, i));
            ((f64::from(x) - mean) * scale * weight.unwrap_or(1.0) + bias.unwrap_or(0.0)) as f32
        };
        numbers.iter().enumerate().map(one).collect::<Vec<_>>()
    };
    x.x.chunks_exact(x.dim).enumerate().flat_map(normed).collect()
}

/// `weight . x + bias` for each row of `x` `[rows, cols]`; `weight` is `[out, cols]`.
pub(super) fn linear(x: &[f32], weight: &[f32], cols: usize, bias: Option<&[f32]>) -> Vec<f32> {
    let mut out = Vec::with_capacity(x.len() / cols * (weight.len() / cols));
    for x in x.chunks_exact(cols) {
        for (i, w) in weight.chunks_exact(cols).enumerate() {
            let bias = bias.map_or(0.0, |bias| f64::from(bias[i]));
            out.push((dot(w, x) + bias) as f32);
        }
    }
    out
}

/// `act(x)`.
pub(super) fn act(act: Act, x: &[f32]) -> Vec<f32> {
    x.iter().map(|&x| acts::act(act, f64::from(x)) as f32).collect()
}

/// Gates and what they let through; each number of a shorter `gate` goes with as many of `up`.
pub(super) fn gated_act(gate: Gate, gates: &[f32], up: &[f32]) -> Vec<f32> {
    let Some(each) = up.len().checked_div(gates.len()) else { return Vec::new() };
    let row = |(&g, up): (&f32, &[f32])| {
        up.iter().map(|&u| acts::gate(gate, f64::from(g), f64::from(u)) as f32).collect::<Vec<_>>()
    };
    gates.iter().zip(up.chunks_exact(each)).flat_map(row).collect()
}

/// `a + b`.
pub(super) fn add(a: &[f32], b: &[f32]) -> Vec<f32> {
    a.iter().zip(b).map(|(a, b)| a + b).collect()
}

/// `x * factor`.
pub(super) fn scale(x: &[f32], factor: f32) -> Vec<f32> {
    x.iter().map(|x| x * factor).collect()
}

/// `x` times a vector, over and over, each number of which goes with `each` of its own.
pub(super) fn multiply(x: &[f32], factors: &[f32], each: usize) -> Vec<f32> {
    let factor = |i: usize| factors[i / each % factors.len()];
    x.iter().enumerate().map(|(i, x)| x * factor(i)).collect()
}

/// Rotary position embedding, ready to turn heads.
pub(super) struct Rotation {
    pairs: RopePairs,
    frequencies: Vec<f64>,
    magnitude: f64,
}

impl Rotation {
    pub(super) fn new(rope: &Rope, factors: Option<&[f32]>) -> Self {
        let frequencies = rope.frequencies(factors);
        Rotation { pairs: rope.pairs, frequencies, magnitude: f64::from(rope.magnitude()) }
    }

    /// Turn every head of a row `[groups, dim]` that stands at `position`; elements beyond the rotated ones stay.
    pub(super) fn turn(&self, row: &mut [f32], dim: usize, position: usize) {
        let half = self.frequencies.len();
        for head in row.chunks_exact_mut(dim) {
            for (i, frequency) in self.frequencies.iter().enumerate() {
                let (a, b) = match self.pairs {
                    RopePairs::HalfSplit => (i, i + half),
                    RopePairs::Interleaved => (2 * i, 2 * i + 1),
                };
                let (sin, cos) = (position as f64 * frequency).sin_cos();
                let (sin, cos) = (sin * self.magnitude, cos * self.magnitude);
                let (x, y) = (f64::from(head[a]), f64::from(head[b]));
                head[a] = (x * cos - y * sin) as f32;
                head[b] = (x * sin + y * cos) as f32;
            }
        }
    }
}

/// Eight sums side by side, because a single one would wait for itself at every addition.
pub(super) fn dot(a: &[f32], b: &[f32]) -> f64 {
    let mut sums = [0.0; 8];
    let add = |sums: &mut [f64; 8], a: &[f32], b: &[f32]| {
        for ((sum, &a), &b) in sums.iter_mut().zip(a).zip(b) {
            *sum += f64::from(a) * f64::from(b);
        }
    };
    let (eights, last) = a.as_chunks::<8>();
    let (others, last_others) = b.as_chunks::<8>();
    for (a, b) in eights.iter().zip(others) {
        add(&mut sums, a, b);
    }
    add(&mut sums, last, last_others);
    sums.iter().sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RopeScaling;

    fn turned(pairs: RopePairs) -> Vec<f32> {
        let rope = Rope { pairs, dims: 4, theta: 100.0, scaling: RopeScaling::None, factors: None };
        let mut row = [1.0, 2.0, 3.0, 4.0, 9.0];
        Rotation::new(&rope, None).turn(&mut row, 5, 2);
        row.to_vec()
    }

    #[test]
    fn rope_turns_the_right_pairs_and_leaves_the_rest() {
        let turn = |x: f64, y: f64, angle: f64| {
            ((x * angle.cos() - y * angle.sin()) as f32, (x * angle.sin() + y * angle.cos()) as f32)
        };
        // theta 100, 4 dims: frequencies 1 and 0.1; position 2.
        let ((a, c), (b, d)) = (turn(1.0, 3.0, 2.0), turn(2.0, 4.0, 0.2));
        assert_eq!(turned(RopePairs::HalfSplit), [a, b, c, d, 9.0]);
        let ((a, b), (c, d)) = (turn(1.0, 2.0, 2.0), turn(3.0, 4.0, 0.2));
        assert_eq!(turned(RopePairs::Interleaved), [a, b, c, d, 9.0]);
    }

    #[test]
    fn means_of_some_rows() {
        let x = [1.0, 2.0, 9.0, 9.0, 2.0, 5.0];
        assert_eq!(mean(&x, 2, [0, 2].into_iter()), [1.5, 3.5]);
    }

    #[test]
    fn norm_linear_and_gate_by_hand() {
        let heads = Heads { x: &[3.0, 4.0, 0.0, 2.0], groups: 2, dim: 2 };
        let y = norm(&heads, NormKind::Rms, [Some(&[1.0, 2.0]), None], 1e-9);
        let want = [3.0 / 12.5f32.sqrt(), 8.0 / 12.5f32.sqrt(), 0.0, 4.0 / 2.0f32.sqrt()];
        assert!(y.iter().zip(want).all(|(a, b)| (a - b).abs() < 1e-6), "{y:?}");
        let x = [1.0, 5.0, 2.0, 2.0];
        let heads = Heads { x: &x, groups: 2, dim: 2 };
        let y =
            norm(&heads, NormKind::Layer, [Some(&[1.0, 2.0, 3.0, 4.0]), Some(&[0.5, 7.0])], 1e-9);
        // means 3 and 2, deviations 2 and 0
        let want = [-0.5, 9.0, 0.5, 7.0];
        assert!(y.iter().zip(want).all(|(a, b)| (a - b).abs() < 1e-6), "{y:?}");
        assert_eq!(multiply(&[1.0, 2.0, 3.0, 4.0], &[2.0, -1.0], 1), [2.0, -2.0, 6.0, -4.0]);
        assert_eq!(multiply(&[1.0, 2.0, 3.0, 4.0], &[2.0, -1.0], 2), [2.0, 4.0, -3.0, -4.0]);
        assert_eq!(linear(&[1.0, 2.0], &[3.0, 4.0, 5.0, 6.0], 2, Some(&[0.5, -1.0])), [11.5, 16.0]);
        assert_eq!(gated_act(Act::Silu.into(), &[0.0, 1e9], &[5.0, 2.0]), [0.0, 2e9]);
        assert_eq!(
            gated_act(Act::Sigmoid.into(), &[0.0, 1e9], &[5.0, 2.0, 3.0, 4.0]),
            [2.5, 1.0, 3.0, 4.0]
        );
    }
}
