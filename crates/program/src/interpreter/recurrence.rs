//! What recurs, by its definition: states in f64, made of all rows before where they are not at hand.

use super::acts;
use super::ops::Heads;
use super::session::{Cached, Session};
use super::{Batch, Interpreted};
use crate::{CausalConv, Held, Scan, ScanDims, ScanKind, WeightId, alibi_slope};

impl Interpreted {
    /// The rows of a convolution.
    pub(super) fn causal_conv(
        &self,
        sessions: &mut [Held<'_, Session>],
        batch: &Batch,
        conv: &CausalConv,
        x: &Heads<'_>,
    ) -> Vec<f32> {
        let [taps, bias] = [conv.taps, conv.bias].map(|id| id.map(|id| self.weight(id)));
        let mut out = Vec::with_capacity(x.x.len());
        for (i, row) in batch.rows.iter().enumerate() {
            let session = &mut sessions[row.sequence];
            session.append(conv.cache, &x.x[x.row(i)], &[]);
            let all = &session.cache(conv.cache).k;
            let sums = self::conv(conv, all, x.groups * x.dim, taps, bias);
            let act = |sum: f64| conv.act.map_or(sum, |act| acts::act(act, sum)) as f32;
            out.extend(sums.into_iter().map(act));
        }
        out
    }

    /// The rows of a recurrence. Where a session's matrices are not those of the position before, they are made again of
    /// all rows.
    pub(super) fn scan(
        &self,
        sessions: &mut [Held<'_, Session>],
        batch: &Batch,
        scan: &Scan,
        inputs: &[Heads<'_>],
    ) -> Vec<f32> {
        let mut weights: [&[f32]; 2] = [&[]; 2];
        let of_kind: Vec<WeightId> = scan.kind.weights().collect();
        weights.iter_mut().zip(of_kind).for_each(|(weight, id)| *weight = self.weight(id));
        let recurrence = Recurrence { scan, weights };
        let widths: Vec<usize> = inputs[1..].iter().map(|x| x.groups * x.dim).collect();
        let mut out = Vec::new();
        for (i, row) in batch.rows.iter().enumerate() {
            let (query, given) = (&inputs[0].x[inputs[0].row(i)], rows_of(&inputs[1..], i));
            let session = &mut sessions[row.sequence];
            session.append(scan.cache, &given.concat(), &[]);
            let cached = session.cache_mut(scan.cache);
            let read = recurrence.advance(cached, query, &widths);
            out.extend(read.into_iter().map(|y| y as f32));
        }
        out
    }
}

/// Convolution of row `position`: `rows` `[positions, channels]` are all rows up to it; `taps` `[channels, width]`.
pub(super) fn conv(
    conv: &CausalConv,
    rows: &[f32],
    channels: usize,
    taps: Option<&[f32]>,
    bias: Option<&[f32]>,
) -> Vec<f64> {
    let n = rows.len() / channels;
    let at = |before: usize, c: usize| match n.checked_sub(1 + before) {
        Some(row) => f64::from(rows[row * channels + c]),
        None => 0.0,
    };
    let Some(taps) = taps else { return (0..channels).map(|c| at(1, c)).collect() };
    let sum = |c: usize| -> f64 {
        let taps = &taps[c * conv.width..(c + 1) * conv.width];
        let products =
            taps.iter().rev().enumerate().map(|(i, w)| f64::from(*w) * at(i * conv.step, c));
        bias.map_or(0.0, |bias| f64::from(bias[c])) + products.sum::<f64>()
    };
    (0..channels).map(sum).collect()
}

/// A recurrence with the weights of its kind.
pub(super) struct Recurrence<'a> {
    pub(super) scan: &'a Scan,
    pub(super) weights: [&'a [f32]; 2],
}

impl Recurrence<'_> {
    /// What `query`, of the last row that is cached, reads.
    fn advance(&self, cached: &mut Cached, query: &[f32], widths: &[usize]) -> Vec<f64> {
        let all = cached.k.chunks_exact(cached.row[0]);
        let n = all.len();
        if cached.states >= n || cached.state.is_empty() {
            cached.state = vec![0.0; self.scan.dims.elements()];
            cached.states = 0;
        }
        let mut read = Vec::new();
        for mut row in all.skip(cached.states) {
            let part = |width: &usize| {
                let (part, rest) = row.split_at(*width);
                row = rest;
                part
            };
            let given: Vec<&[f32]> = widths.iter().map(part).collect();
            read = self.row(&mut cached.state, query, &given);
        }
        cached.states = n;
        read
    }

    /// Change the matrices `state` `[n_heads, key_dim, value_dim]` by a row, given in parts as wide as its inputs but the
    /// first; `query` is the first, and what it reads is returned `[n_heads, value_dim]`.
    pub(super) fn row(&self, state: &mut [f64], query: &[f32], given: &[&[f32]]) -> Vec<f64> {
        let dims @ ScanDims { n_heads, key_dim, value_dim, .. } = self.scan.dims;
        let each = state.chunks_exact_mut(key_dim * value_dim);
        let head = |(h, state): (usize, &mut [f64])| self.head(dims, h, state, query, given);
        let out: Vec<f64> = each.enumerate().flat_map(head).collect();
        debug_assert_eq!(out.len(), n_heads * value_dim, "a row of every head");
        out
    }

    fn head(
        &self,
        dims: ScanDims,
        h: usize,
        state: &mut [f64],
        query: &[f32],
        given: &[&[f32]],
    ) -> Vec<f64> {
        let ScanDims { n_heads, key_dim, value_dim, .. } = dims;
        let part = |x: &[f32], head: usize, width: usize| -> Vec<f64> {
            x[head * width..(head + 1) * width].iter().map(|x| f64::from(*x)).collect()
        };
        let (q, k) =
            (part(query, dims.key_head(h), key_dim), part(given[0], dims.key_head(h), key_dim));
        let v = part(given[1], h, value_dim);
        let own = |i: usize| part(given[i], h, key_dim);
        let weight = |i: usize, j: usize| f64::from(self.weights[i][j]);
        // one number for a head, or one for each of its rows
        let decay = |i: usize| match given[i].len() == n_heads {
            true => vec![f64::from(given[i][h]).exp(); key_dim],
            false => own(i).into_iter().map(f64::exp).collect(),
        };
        let mut s = Matrix { numbers: state, width: value_dim };
        match self.scan.kind {
            ScanKind::Delta { eps } => {
                let eps = f64::from(eps);
                let unit = |x: &[f64]| {
                    let length = (x.iter().map(|x| x * x).sum::<f64>() + eps).sqrt();
                    x.iter().map(|x| x / length).collect::<Vec<f64>>()
                };
                let (q, k, beta) = (unit(&q), unit(&k), f64::from(given[3][h]));
                s.scale(&decay(2));
                let known = s.read(&k);
                let change = v.iter().zip(&known).map(|(v, known)| beta * (v - known));
                s.add(&k, &change.collect::<Vec<_>>());
                s.read(&q).into_iter().map(|y| y / (key_dim as f64).sqrt()).collect()
            }
            ScanKind::Linear { scale } => {
                s.scale(&decay(2));
                s.add(&k, &v);
                s.read(&q).into_iter().map(|y| y * f64::from(scale)).collect()
            }
            ScanKind::Lightning { factor } => {
                let decay = (-alibi_slope(h, n_heads, 8.0) * f64::from(factor)).exp();
                s.scale(&vec![decay; key_dim]);
                s.add(&k, &v);
                s.read(&q)
            }
            ScanKind::Ssd { .. } => {
                let dt = f64::from(given[2][h]);
                s.scale(&vec![(dt * weight(0, h)).exp(); key_dim]);
                s.add(&k, &v.iter().map(|x| dt * x).collect::<Vec<_>>());
                s.read(&q).into_iter().zip(&v).map(|(y, x)| y + weight(1, h) * x).collect()
            }
            ScanKind::Selective { .. } => {
                let dt = part(given[2], 0, value_dim);
                for (i, row) in s.numbers.chunks_exact_mut(value_dim).enumerate() {
                    for (c, s) in row.iter_mut().enumerate() {
                        let decay = (dt[c] * weight(0, c * key_dim + i)).exp();
                        *s = decay * *s + k[i] * dt[c] * v[c];
                    }
                }
                let read = s.read(&q).into_iter().zip(&v).enumerate();
                read.map(|(c, (y, x))| y + weight(1, c) * x).collect()
            }
            ScanKind::Wkv6 { .. } => {
                let bonus: Vec<f64> =
                    k.iter().enumerate().map(|(i, k)| weight(0, h * key_dim + i) * k).collect();
                let mut seen = Matrix { numbers: &mut s.numbers.to_vec(), width: value_dim };
                seen.add(&bonus, &v);
                let y = seen.read(&q);
                s.scale(&decay(2));
                s.add(&k, &v);
                y
            }
            ScanKind::Wkv7 => {
                let known = s.read(&own(3));
                s.scale(&decay(2));
                s.add(&own(4), &known);
                s.add(&k, &v);
                s.read(&q)
            }
        }
    }
}

/// `[rows, width]`.
struct Matrix<'a> {
    numbers: &'a mut [f64],
    width: usize,
}

impl Matrix<'_> {
    /// Each row times a number.
    fn scale(&mut self, factors: &[f64]) {
        for (row, factor) in self.numbers.chunks_exact_mut(self.width).zip(factors) {
            row.iter_mut().for_each(|s| *s *= factor);
        }
    }

    /// `+ k v^T`.
    fn add(&mut self, k: &[f64], v: &[f64]) {
        for (row, k) in self.numbers.chunks_exact_mut(self.width).zip(k) {
            row.iter_mut().zip(v).for_each(|(s, v)| *s += k * v);
        }
    }

    /// The sum of rows, each times a number.
    fn read(&self, by: &[f64]) -> Vec<f64> {
        let mut sums = vec![0.0; self.width];
        for (row, by) in self.numbers.chunks_exact(self.width).zip(by) {
            sums.iter_mut().zip(row).for_each(|(sum, s)| *sum += by * s);
        }
        sums
    }
}

/// Row `i` of each of these values.
pub(super) fn rows_of<'a>(inputs: &[Heads<'a>], i: usize) -> Vec<&'a [f32]> {
    inputs.iter().map(|input| &input.x[input.row(i)]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::CacheId;

    fn scan(kind: ScanKind, key_dim: usize, value_dim: usize) -> Scan {
        let dims = ScanDims { n_heads: 1, n_key_heads: 1, key_dim, value_dim, by_turns: false };
        Scan { cache: CacheId(0), kind, dims }
    }

    #[test]
    fn recurrences_by_hand() {
        let close = |a: &[f64], b: &[f64]| a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-6);
        let half = 0.5f32.ln();
        // a key of length 1: what it had is halved, then goes a fourth of the way to the value
        let delta = scan(ScanKind::Delta { eps: 0.0 }, 1, 2);
        let delta = Recurrence { scan: &delta, weights: [&[]; 2] };
        let mut s = vec![4.0, 8.0];
        let y = delta.row(&mut s, &[3.0], &[&[2.0], &[6.0, 0.0], &[half], &[0.25]]);
        assert!(close(&s, &[3.0, 3.0]) && close(&y, &[3.0, 3.0]), "{s:?} {y:?}");
        let linear = scan(ScanKind::Linear { scale: 10.0 }, 1, 1);
        let linear = Recurrence { scan: &linear, weights: [&[]; 2] };
        let mut s = vec![4.0];
        let y = linear.row(&mut s, &[3.0], &[&[2.0], &[5.0], &[half]]);
        assert!(close(&s, &[12.0]) && close(&y, &[360.0]), "{s:?} {y:?}");
        let ids = (crate::WeightId(0), crate::WeightId(1));
        let ssd = scan(ScanKind::Ssd { a: ids.0, d: ids.1 }, 1, 1);
        let ssd = Recurrence { scan: &ssd, weights: [&[half], &[7.0]] };
        let mut s = vec![4.0];
        // twice a time of 1: a fourth stays
        let y = ssd.row(&mut s, &[3.0], &[&[2.0], &[5.0], &[2.0]]);
        assert!(close(&s, &[21.0]) && close(&y, &[63.0 + 35.0]), "{s:?} {y:?}");
        let selective = scan(ScanKind::Selective { a: ids.0, d: ids.1 }, 1, 2);
        let selective = Recurrence { scan: &selective, weights: [&[half, 0.0], &[7.0, 0.0]] };
        let mut s = vec![4.0, 4.0];
        let y = selective.row(&mut s, &[3.0], &[&[2.0], &[5.0, 1.0], &[2.0, 1.0]]);
        assert!(close(&s, &[21.0, 6.0]) && close(&y, &[98.0, 18.0]), "{s:?} {y:?}");
        let wkv6 = scan(ScanKind::Wkv6 { first: ids.0 }, 1, 1);
        let wkv6 = Recurrence { scan: &wkv6, weights: [&[10.0], &[]] };
        let mut s = vec![4.0];
        let y = wkv6.row(&mut s, &[3.0], &[&[2.0], &[5.0], &[half]]);
        assert!(close(&s, &[12.0]) && close(&y, &[3.0 * (4.0 + 100.0)]), "{s:?} {y:?}");
        let wkv7 = scan(ScanKind::Wkv7, 1, 1);
        let wkv7 = Recurrence { scan: &wkv7, weights: [&[]; 2] };
        let mut s = vec![4.0];
        let y = wkv7.row(&mut s, &[3.0], &[&[2.0], &[5.0], &[half], &[-1.0], &[0.5]]);
        assert!(close(&s, &[10.0]) && close(&y, &[30.0]), "{s:?} {y:?}");
    }

    #[test]
    fn a_convolution_by_hand() {
        let shape =
            CausalConv { cache: CacheId(0), taps: None, bias: None, width: 3, step: 1, act: None };
        let (taps, bias) = ([1.0, 10.0, 100.0, 2.0, 0.0, 1.0], [0.5, 0.0]);
        let rows = [1.0, 5.0, 2.0, 6.0, 3.0, 7.0];
        let of = |n: usize| conv(&shape, &rows[..2 * n], 2, Some(&taps), Some(&bias));
        assert_eq!(of(1), [100.5, 5.0]);
        assert_eq!(of(2), [210.5, 6.0]);
        assert_eq!(of(3), [321.5, 17.0]);
        // of taps 1, 10, 100 the last two meet rows 3 and 1
        let wide = CausalConv { step: 2, ..shape };
        assert_eq!(conv(&wide, &rows, 2, Some(&taps), Some(&bias)), [310.5, 7.0]);
        assert_eq!(conv(&shape, &rows[..2], 2, None, None), [0.0, 0.0]);
        assert_eq!(conv(&shape, &rows[..4], 2, None, None), [1.0, 5.0]);
    }
}
