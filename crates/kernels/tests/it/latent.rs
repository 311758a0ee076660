//! Latent attention's kernels: naive against softmax in f64, the others against naive to the bit.

use crate::support::{Random, assert_same_bits, candidates, sizes};
use kernels::Kernel;
use kernels::attention::{ElemType, MERGE, Partials};
use kernels::latent::{
    LATENT_ATTEND, LATENT_TILE, LatentAttendFn, LatentQueries, LatentRows, LatentShape,
    latent_scratch_floats,
};

const SENTINEL: f32 = 1234.5;
const GUARD: usize = 40;

/// Cached rows in several calls, and queries.
pub(crate) struct Case {
    shape: LatentShape,
    cached: Vec<u8>,
    n: usize,
    lanes: usize,
    q: Vec<f32>,
    /// Of all positions.
    visible: Vec<usize>,
}

impl Case {
    /// Positions that no row sees hold NaN.
    pub(crate) fn new(shape: LatentShape, n: usize, visible: Vec<usize>, seed: u64) -> Case {
        let mut random = Random::new(seed);
        let mut cached = vec![0; n * shape.row_bytes()];
        let seen = visible.iter().max().map_or(0, |n| *n);
        for (position, row) in cached.chunks_exact_mut(shape.row_bytes()).enumerate() {
            let mut latent = random.floats(shape.rank, 2.0);
            if position >= seen {
                latent.fill(f32::NAN);
            }
            shape.store(row, &latent, &random.floats(shape.rope_dim, 2.0));
        }
        let lanes = visible.len().next_multiple_of(16);
        let mut q = random.floats(shape.width() * lanes, 1.0);
        for row in q.chunks_exact_mut(lanes) {
            row[visible.len()..].fill(f32::NAN);
        }
        Case { shape, cached, n, lanes, q, visible }
    }

    /// The state after all positions, as [`Partials::new`] lays it out. Checks that nothing around it is written.
    pub(crate) fn run(&self, kernel: &Kernel<LatentAttendFn>) -> Vec<f32> {
        let (n_rows, head) = (self.visible.len(), self.shape.head());
        let floats = Partials::floats(n_rows, &head);
        let mut memory = vec![SENTINEL; GUARD + floats + GUARD];
        let needed = latent_scratch_floats(self.lanes, &self.shape);
        let mut scratch = vec![SENTINEL; needed + GUARD];
        let mut state = Partials::new(&mut memory[GUARD..][..floats], n_rows, &head);
        state.clear();
        for first in (0..self.n).step_by(LATENT_TILE) {
            let n = LATENT_TILE.min(self.n - first);
            let size = self.shape.row_bytes();
            let bytes = &self.cached[first * size..(first + n) * size];
            let visible: Vec<u32> =
                self.visible.iter().map(|seen| seen.saturating_sub(first).min(n) as u32).collect();
            let queries = LatentQueries { q: &self.q, lanes: self.lanes, visible: &visible };
            let rows = LatentRows { shape: self.shape, bytes };
            kernel.call(&rows, &queries, &mut state, &mut scratch);
        }
        for guard in [&memory[..GUARD], &memory[GUARD + floats..], &scratch[needed..]] {
            assert!(guard.iter().all(|x| *x == SENTINEL), "{} writes outside", kernel.name());
        }
        memory[GUARD..][..floats].to_vec()
    }

    /// The first rows only.
    fn part(&self, first: usize, n: usize) -> Case {
        let lanes = n.next_multiple_of(16);
        let mut q = vec![0.0; self.shape.width() * lanes];
        for (q, all) in q.chunks_exact_mut(lanes).zip(self.q.chunks_exact(self.lanes)) {
            q[..n].copy_from_slice(&all[first..][..n]);
        }
        let visible = self.visible[first..][..n].to_vec();
        Case { shape: self.shape, cached: self.cached.clone(), n: self.n, lanes, q, visible }
    }

    /// Softmax of one row in f64.
    fn exact(&self, row: usize) -> Vec<f64> {
        let shape = self.shape;
        let mut wide = Vec::new();
        for bytes in self.cached.chunks_exact(shape.row_bytes()).take(self.visible[row]) {
            let mut x = vec![0.0; shape.width()];
            let (latent, rope) = x.split_at_mut(shape.rank);
            shape.load(bytes, latent, rope);
            wide.push(x);
        }
        let q = |d: usize| f64::from(self.q[d * self.lanes + row]);
        let score =
            |x: &Vec<f32>| x.iter().enumerate().map(|(d, x)| q(d) * f64::from(*x)).sum::<f64>();
        let scores: Vec<f64> = wide.iter().map(score).collect();
        let max = scores.iter().fold(f64::NEG_INFINITY, |max, s| max.max(*s));
        let weights: Vec<f64> = scores.iter().map(|s| (s - max).exp()).collect();
        let sum: f64 = weights.iter().sum();
        (0..shape.rank)
            .map(|i| wide.iter().zip(&weights).map(|(x, w)| f64::from(x[i]) * w).sum::<f64>() / sum)
            .collect()
    }
}

fn shape(rank: usize, rope_dim: usize, elem: ElemType) -> LatentShape {
    LatentShape { rank, rope_dim, elem }
}

/// How many of `n` positions query rows see: alike, by token, and anything.
fn visibles(n_rows: usize, n: usize, seed: u64) -> [Vec<usize>; 3] {
    let mut random = Random::new(seed);
    let tokens =
        (0..n_rows).map(|i| (n + i / 3).saturating_sub(n_rows.div_ceil(3)).min(n)).collect();
    [vec![n; n_rows], tokens, (0..n_rows).map(|_| random.below(n + 1)).collect()]
}

#[test]
fn naive_is_softmax() {
    for elem in ElemType::ALL {
        let seen = sizes(&[0, 1, 2, 15, 16, 63, 64, 65, 100, 200][..], &[0, 1, 17, 66]).to_vec();
        let (n, rank, rope) = sizes((200, 48, 16), (66, 12, 4));
        let case = Case::new(shape(rank, rope, elem), n, seen, 3);
        let mut memory = case.run(LATENT_ATTEND.naive());
        let state = Partials::new(&mut memory, case.visible.len(), &case.shape.head());
        for row in 0..case.visible.len() {
            if case.visible[row] == 0 {
                assert_eq!((state.max[row], state.sum[row]), (f32::NEG_INFINITY, 0.0));
                continue;
            }
            let mut got = vec![0.0; case.shape.rank];
            state.finish(row, &mut got);
            for (got, want) in got.iter().zip(case.exact(row)) {
                assert!((f64::from(*got) - want).abs() < 1e-4, "{elem:?} row {row}");
            }
        }
    }
}

#[test]
fn kernels_match_naive_to_the_bit() {
    let all = &[(32, 16), (512, 64), (64, 32), (33, 2), (1, 1), (80, 18)][..];
    for (i, &(rank, rope_dim)) in sizes(all, &[(1, 1), (33, 2)]).iter().enumerate() {
        for &n_rows in sizes(&[1, 3, 16, 17, 33, 128][..], &[17]) {
            for &n in sizes(&[1, 7, 64, 70][..], &[1, 66]) {
                let seed = (i * 1000 + n_rows * 10 + n) as u64;
                let elem = ElemType::ALL[(i + n_rows + n) % 3];
                for visible in visibles(n_rows, n, seed) {
                    let case = Case::new(shape(rank, rope_dim, elem), n, visible, seed);
                    let want = case.run(LATENT_ATTEND.naive());
                    for kernel in candidates(&LATENT_ATTEND) {
                        let what = format!(
                            "{} {rank} + {rope_dim} {elem:?}, {n_rows} rows, {n} positions",
                            kernel.name()
                        );
                        assert_same_bits(&case.run(kernel), &want, &what);
                    }
                }
            }
        }
    }
}

#[test]
fn rows_do_not_depend_on_their_neighbours() {
    let (n_rows, positions, some) = sizes((40, 150, 20), (17, 20, 3));
    let (rank, rope) = sizes((64, 32), (16, 3));
    for elem in ElemType::ALL {
        let visible = visibles(n_rows, positions, 9).concat()[n_rows..2 * n_rows].to_vec();
        let case = Case::new(shape(rank, rope, elem), positions, visible, 5);
        for kernel in LATENT_ATTEND.available(kernels::Isa::detect()) {
            let mut whole = case.run(kernel);
            let whole = Partials::new(&mut whole, n_rows, &case.shape.head());
            for (first, n) in [(0, 1), (3, some), (n_rows - 1, 1)] {
                let mut part = case.part(first, n).run(kernel);
                let part = Partials::new(&mut part, n, &case.shape.head());
                assert_same_bits(part.max, &whole.max[first..][..n], kernel.name());
                assert_same_bits(part.sum, &whole.sum[first..][..n], kernel.name());
                let of_part = first * rank..(first + n) * rank;
                assert_same_bits(part.out, &whole.out[of_part], kernel.name());
            }
        }
    }
}

#[test]
fn spans_fold_to_softmax() {
    let (rank, rope, all, span) = sizes((32, 16, 300, 128), (6, 2, 40, 16));
    let shape = shape(rank, rope, ElemType::F32);
    let case = Case::new(shape, all, vec![all, all - 1, span, span + 1], 8);
    let head = shape.head();
    let mut memory = vec![0.0; Partials::floats(4, &head)];
    let mut state = Partials::new(&mut memory, 4, &head);
    state.clear();
    for first in (0..all).step_by(span) {
        let n = span.min(all - first);
        let size = shape.row_bytes();
        let part = Case {
            shape,
            cached: case.cached[first * size..(first + n) * size].to_vec(),
            n,
            lanes: case.lanes,
            q: case.q.clone(),
            visible: case.visible.iter().map(|seen| seen.saturating_sub(first).min(n)).collect(),
        };
        let mut partial = part.run(LATENT_ATTEND.naive());
        MERGE.naive().call(&mut state, &Partials::new(&mut partial, 4, &head));
    }
    for row in 0..4 {
        let mut got = vec![0.0; rank];
        state.finish(row, &mut got);
        for (got, want) in got.iter().zip(case.exact(row)) {
            assert!((f64::from(*got) - want).abs() < 1e-5, "row {row}");
        }
    }
}

#[test]
fn rows_take_what_they_must_and_come_back() {
    let shape = |elem| LatentShape { rank: 512, rope_dim: 64, elem };
    let bytes = ElemType::ALL.map(|elem| shape(elem).row_bytes());
    assert_eq!(bytes, [2304, 1152, 512 + 32 + 128]);
    for (rank, rope_dim) in [(512, 64), (33, 2), (1, 1), (40, 18)] {
        for (elem, error) in ElemType::ALL.into_iter().zip([0.0, 1e-3, 1e-2]) {
            let shape = LatentShape { rank, rope_dim, elem };
            let x: Vec<f32> = (0..shape.width()).map(|i| (i as f32 * 0.37).sin()).collect();
            let (latent, rope) = x.split_at(rank);
            let mut row = vec![0xff; shape.row_bytes()];
            shape.store(&mut row, latent, rope);
            let mut back = vec![0.0; shape.width()];
            let (back_latent, back_rope) = back.split_at_mut(rank);
            shape.load(&row, back_latent, back_rope);
            for (back, x) in back.iter().zip(&x) {
                assert!((back - x).abs() <= error, "{elem:?} {rank} + {rope_dim}");
            }
        }
    }
}
