//! Attention's kernels: naive against softmax in f64, the others against naive to the bit.

use crate::support::{Random, assert_same_bits, candidates, sizes};
use kernels::Kernel;
use kernels::attention::{
    ATTEND, Alibi, AttendFn, BLOCK, ElemType, HeadBlock, HeadShape, MASSES, MERGE, MassesFn,
    Partials, QueryRows, SCORE_SUMS, ScoreSum, ScoreSumsFn, ScoresFn, Seen, score_floats, score_of,
    scores_scratch, scratch_floats, weight_at_most,
};

const SENTINEL: f32 = 1234.5;
const GUARD: usize = 40;

/// One head of one block, and queries.
pub(crate) struct Case {
    shape: HeadShape,
    keys: Vec<u8>,
    values: Vec<u8>,
    q: Vec<f32>,
    seen: Vec<Seen>,
    softcap: Option<f32>,
    alibi: Vec<Alibi>,
}

impl Case {
    /// Rows that see the first of a block's positions.
    fn new(shape: HeadShape, visible: impl IntoIterator<Item = u32>, seed: u64) -> Case {
        let seen = visible.into_iter().map(|n| Seen::first(n as usize)).collect();
        Case::ranges(shape, seen, seed)
    }

    /// Positions that no row sees hold NaN.
    pub(crate) fn ranges(shape: HeadShape, seen: Vec<Seen>, seed: u64) -> Case {
        let mut random = Random::new(seed);
        let (mut keys, mut values) = (vec![0; shape.key_bytes()], vec![0; shape.value_bytes()]);
        let stored = |position| seen.iter().any(|seen| seen.range().contains(&position));
        for position in 0..BLOCK {
            let (mut key, mut value) =
                (random.floats(shape.key_dim, 2.0), random.floats(shape.value_dim, 3.0));
            if !stored(position) {
                key.fill(f32::NAN);
                value.fill(f32::NAN);
            }
            shape.store_key(&mut keys, position, &key);
            shape.store_value(&mut values, position, &value);
        }
        let q = random.floats(seen.len() * shape.key_dim, 1.0);
        Case { shape, keys, values, q, seen, softcap: None, alibi: Vec::new() }
    }

    /// The same with bounded scores that fall with distance.
    pub(crate) fn adjusted(self, cap: f32, seed: u64) -> Case {
        let mut random = Random::new(seed);
        let alibi = (0..self.seen.len()).map(|_| Alibi {
            slope: random.floats(1, 0.5)[0],
            // before the block, within it and behind it
            offset: 200.0 - random.below(5000) as f32,
        });
        let alibi = alibi.collect();
        Case { softcap: Some(cap), alibi, ..self }
    }

    fn block(&self) -> HeadBlock<'_> {
        HeadBlock { shape: self.shape, keys: &self.keys, values: &self.values }
    }

    /// Partials as [`Partials::new`] lays them out. Checks that nothing around them is written.
    pub(crate) fn run(&self, kernel: &Kernel<AttendFn>) -> Vec<f32> {
        self.run_rows(kernel, 0, self.seen.len())
    }

    fn run_rows(&self, kernel: &Kernel<AttendFn>, first: usize, n: usize) -> Vec<f32> {
        let shape = &self.shape;
        let rows = QueryRows {
            q: &self.q[first * shape.key_dim..][..n * shape.key_dim],
            seen: &self.seen[first..][..n],
            softcap: self.softcap,
            alibi: self.alibi.get(first..first + n).unwrap_or(&[]),
        };
        let floats = Partials::floats(n, shape);
        let mut memory = vec![SENTINEL; GUARD + floats + GUARD];
        let needed = scratch_floats(n, shape);
        let mut scratch = vec![SENTINEL; needed + GUARD];
        let mut out = Partials::new(&mut memory[GUARD..][..floats], n, shape);
        kernel.call(&self.block(), &rows, &mut out, &mut scratch);
        for guard in [&memory[..GUARD], &memory[GUARD + floats..], &scratch[needed..]] {
            assert!(guard.iter().all(|x| *x == SENTINEL), "{} writes outside", kernel.name());
        }
        memory[GUARD..][..floats].to_vec()
    }

    /// Greatest scores and sums of what [`run`](Self::run) yields.
    pub(crate) fn sums<'m>(&self, memory: &'m mut [f32]) -> (&'m [f32], &'m [f32]) {
        let Partials { max, sum, .. } = Partials::new(memory, self.seen.len(), &self.shape);
        (max, sum)
    }

    /// What the rows' scores come to. Checks that nothing beyond the scratch is written, and that values are not read.
    pub(crate) fn run_sums(&self, kernel: &Kernel<ScoreSumsFn>) -> Vec<ScoreSum> {
        let n = self.seen.len();
        let alibi = &self.alibi[..];
        let rows = QueryRows { q: &self.q, seen: &self.seen, softcap: self.softcap, alibi };
        let needed = score_floats(n, &self.shape);
        let mut scratch = vec![SENTINEL; needed + GUARD];
        let mut out = vec![ScoreSum::of(SENTINEL); n];
        let block = HeadBlock { values: &[], ..self.block() };
        kernel.call(&block, &rows, &mut out, &mut scratch);
        let rest = &scratch[needed..];
        assert!(rest.iter().all(|x| *x == SENTINEL), "{} writes outside", kernel.name());
        out
    }

    /// The scores of what each row sees. Checks that nothing around them is written, and that values are not read.
    pub(crate) fn run_scores(&self, kernel: &Kernel<ScoresFn>) -> Vec<Vec<f32>> {
        let (n, alibi) = (self.seen.len(), &self.alibi[..]);
        let rows = QueryRows { q: &self.q, seen: &self.seen, softcap: self.softcap, alibi };
        let needed = scores_scratch(&self.shape);
        let mut scratch = vec![SENTINEL; needed + GUARD];
        let mut out = vec![SENTINEL; GUARD + n * BLOCK + GUARD];
        let block = HeadBlock { values: &[], ..self.block() };
        kernel.call(&block, &rows, &mut out[GUARD..][..n * BLOCK], &mut scratch);
        for guard in [&out[..GUARD], &out[GUARD + n * BLOCK..], &scratch[needed..]] {
            assert!(guard.iter().all(|x| *x == SENTINEL), "{} writes outside", kernel.name());
        }
        let row = |(row, seen): (&[f32], &Seen)| row[seen.range()].to_vec();
        out[GUARD..].chunks_exact(BLOCK).zip(&self.seen).map(row).collect()
    }

    /// What attention positions get from rows that see this block alone, beside some they had.
    pub(crate) fn run_masses(&self, kernel: &Kernel<MassesFn>) -> Vec<f32> {
        let sums = self.run_sums(SCORE_SUMS.naive());
        let alibi = &self.alibi[..];
        let rows = QueryRows { q: &self.q, seen: &self.seen, softcap: self.softcap, alibi };
        let needed = score_floats(self.seen.len(), &self.shape);
        let mut scratch = vec![SENTINEL; needed + GUARD];
        let mut masses = std::array::from_fn(|i| i as f32 / 64.0);
        let block = HeadBlock { values: &[], ..self.block() };
        kernel.call(&block, &rows, &sums, &mut masses, &mut scratch);
        let rest = &scratch[needed..];
        assert!(rest.iter().all(|x| *x == SENTINEL), "{} writes outside", kernel.name());
        masses.to_vec()
    }

    /// Softmax of one row over this block in f64: greatest score, sum, output.
    fn exact(&self, row: usize) -> (f64, f64, Vec<f64>) {
        let (shape, seen) = (&self.shape, self.seen[row].range());
        let q = &self.q[row * shape.key_dim..][..shape.key_dim];
        let key = |position, d| f64::from(shape.key_at(&self.keys, position, d));
        let score = |p: usize| {
            let dot: f64 = q.iter().enumerate().map(|(d, q)| f64::from(*q) * key(p, d)).sum();
            let bounded = self.softcap.map(f64::from).map_or(dot, |cap| cap * (dot / cap).tanh());
            let lean = |a: &Alibi| f64::from(a.slope) * -(f64::from(a.offset) + p as f64).abs();
            bounded + self.alibi.get(row).map_or(0.0, lean)
        };
        let scores: Vec<f64> = seen.clone().map(score).collect();
        let max = scores.iter().fold(f64::NEG_INFINITY, |max, s| max.max(*s));
        let weights: Vec<f64> = scores.iter().map(|s| (s - max).exp()).collect();
        let value = |position, e| f64::from(shape.value_at(&self.values, position, e));
        let out = (0..shape.value_dim)
            .map(|e| seen.clone().zip(&weights).map(|(p, w)| w * value(p, e)).sum())
            .collect();
        (max, weights.iter().sum(), out)
    }
}

fn shape(key_dim: usize, value_dim: usize, k: ElemType, v: ElemType) -> HeadShape {
    HeadShape { key_dim, value_dim, k, v }
}

/// Ranges that rows see: a window sliding over the block, one for all, and anything.
fn ranges(n: usize, seed: u64) -> [Vec<Seen>; 3] {
    let mut random = Random::new(seed);
    let window = [1, 7, 16, 100, BLOCK][random.below(5)];
    let start = random.below(BLOCK + n);
    let slides = (0..n).map(|i| {
        let end = start + i / 3 + 1;
        Seen::within(&(end.saturating_sub(window)..end), 0)
    });
    let mut any = || {
        let from = random.below(BLOCK);
        Seen::new(from, from + random.below(BLOCK + 1 - from))
    };
    [slides.collect(), vec![any(); n], (0..n).map(|_| any()).collect()]
}

/// How many positions rows see: alike, growing as in a prompt, and anything.
fn visibles(n: usize, seed: u64) -> [Vec<u32>; 3] {
    let mut random = Random::new(seed);
    let all = 1 + random.below(BLOCK) as u32;
    let start = random.below(BLOCK + n) as i64 - n as i64;
    let grows = (0..n as i64).map(|i| (start + i / 3).clamp(0, BLOCK as i64) as u32).collect();
    let any = (0..n).map(|_| random.below(BLOCK + 1) as u32).collect();
    [vec![all; n], grows, any]
}

#[test]
fn naive_is_softmax() {
    for k in ElemType::ALL {
        for v in ElemType::ALL {
            let all = [0, 1, 2, 15, 16, 17, 100, (BLOCK - 1) as u32, BLOCK as u32];
            let (key_dim, value_dim) = sizes((80, 48), (9, 5));
            let visible = sizes(&all[..], &[0, 17, BLOCK as u32]).to_vec();
            let case = Case::new(shape(key_dim, value_dim, k, v), visible, 3);
            let mut memory = case.run(ATTEND.naive());
            let n = case.seen.len();
            let partials = Partials::new(&mut memory, n, &case.shape);
            for row in 0..n {
                let (max, sum, out) = case.exact(row);
                if case.seen[row] == Seen::NOTHING {
                    assert_eq!((partials.max[row], partials.sum[row]), (f32::NEG_INFINITY, 0.0));
                    continue;
                }
                assert!((f64::from(partials.max[row]) - max).abs() < 1e-4);
                assert!((f64::from(partials.sum[row]) / sum - 1.0).abs() < 1e-4);
                let mut got = vec![0.0; value_dim];
                partials.finish(row, &mut got);
                for (got, want) in got.iter().zip(&out) {
                    assert!((f64::from(*got) - want / sum).abs() < 1e-4, "{k:?} {v:?} row {row}");
                }
            }
        }
    }
}

#[test]
fn kernels_match_naive_to_the_bit() {
    let all = &[
        (32, 32),
        (64, 64),
        (80, 80),
        (96, 96),
        (128, 128),
        (256, 256),
        (33, 17),
        (1, 1),
        (192, 128),
    ][..];
    for (i, &(key_dim, value_dim)) in sizes(all, &[(33, 17), (1, 1)]).iter().enumerate() {
        for &n in sizes(&[1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 20, 33][..], &[1, 6]) {
            let seed = (i * 100 + n) as u64;
            let (k, v) = (ElemType::ALL[(i + n) % 3], ElemType::ALL[(i + n / 3) % 3]);
            for visible in visibles(n, seed) {
                let case = Case::new(shape(key_dim, value_dim, k, v), visible, seed);
                let want = case.run(ATTEND.naive());
                for kernel in candidates(&ATTEND) {
                    let what = format!("{} {:?} rows {:?}", kernel.name(), case.shape, case.seen);
                    assert_same_bits(&case.run(kernel), &want, &what);
                }
            }
        }
    }
}

#[test]
fn naive_is_softmax_of_what_rows_see() {
    for (i, ty) in ElemType::ALL.into_iter().enumerate() {
        for cap in [1.0, 50.0] {
            let [slides, same, any] = ranges(sizes(9, 2), i as u64 + 40);
            let seen = [slides, same, any].concat();
            let case = Case::ranges(shape(33, 17, ty, ty), seen, 3).adjusted(cap, 5);
            let mut memory = case.run(ATTEND.naive());
            let n = case.seen.len();
            let partials = Partials::new(&mut memory, n, &case.shape);
            for row in (0..n).filter(|row| case.seen[*row] != Seen::NOTHING) {
                let (max, sum, out) = case.exact(row);
                let close = |got: f32, want: f64| (f64::from(got) - want).abs() < 3e-4;
                assert!(close(partials.max[row], max), "{ty:?} row {row}: {max}");
                let mut got = vec![0.0; 17];
                partials.finish(row, &mut got);
                for (got, want) in got.iter().zip(&out) {
                    assert!(close(*got, want / sum), "{ty:?} row {row}: {got} {}", want / sum);
                }
            }
        }
    }
}

#[test]
fn ranges_softcap_and_alibi_match_naive_to_the_bit() {
    for (i, &dim) in sizes(&[33, 64, 80, 128, 256][..], &[17]).iter().enumerate() {
        for &n in sizes(&[1, 2, 3, 5, 8, 9, 13, 21, 33][..], &[3, 9]) {
            let seed = (i * 100 + n) as u64;
            let (k, v) = (ElemType::ALL[(i + n) % 3], ElemType::ALL[(i + n / 3) % 3]);
            for (j, seen) in ranges(n, seed).into_iter().enumerate() {
                let mut case = Case::ranges(shape(dim, dim, k, v), seen, seed);
                if (i + j + n) % 2 == 0 {
                    case = case.adjusted(if n < 8 { 2.0 } else { 30.0 }, seed);
                }
                let want = case.run(ATTEND.naive());
                for kernel in candidates(&ATTEND) {
                    let what = format!("{} {:?} rows {:?}", kernel.name(), case.shape, case.seen);
                    let mut got = case.run(kernel);
                    assert_same_bits(&got, &want, &what);
                    let together = Partials::new(&mut got, n, &case.shape);
                    let mut alone = case.run_rows(kernel, n - 1, 1);
                    let alone = Partials::new(&mut alone, 1, &case.shape);
                    let last = &together.out[(n - 1) * case.shape.value_stride()..];
                    assert_same_bits(alone.out, last, &what);
                }
            }
        }
    }
}

/// Each row gives one to all positions that it sees together, and nothing to others.
#[test]
fn masses_are_probabilities() {
    let seen = [(0, 128), (3, 20), (0, 0), (127, 128)].map(|(from, to)| Seen::new(from, to));
    let case = Case::ranges(shape(33, 16, ElemType::F16, ElemType::F32), seen.to_vec(), 5);
    let found = case.run_masses(MASSES.naive());
    let had = |i: usize| i as f32 / 64.0;
    let gained: Vec<f64> = found.iter().enumerate().map(|(i, x)| f64::from(x - had(i))).collect();
    assert!((gained.iter().sum::<f64>() - 3.0).abs() < 1e-4, "{gained:?}");
    let (max, sum, _) = case.exact(1);
    let score = |p: usize| -> f64 {
        (0..33)
            .map(|d| f64::from(case.q[33 + d]) * f64::from(case.shape.key_at(&case.keys, p, d)))
            .sum()
    };
    let (all, total, _) = case.exact(0);
    let of_first = |p: usize| -> f64 {
        (0..33).map(|d| f64::from(case.q[d]) * f64::from(case.shape.key_at(&case.keys, p, d))).sum()
    };
    for p in [3, 10, 19] {
        let want = (score(p) - max).exp() / sum + (of_first(p) - all).exp() / total;
        assert!((gained[p] - want).abs() < 1e-4, "{p}: {} {want}", gained[p]);
    }
}

/// Scores in parts come to what they come to together, and bounds on them are never less.
#[test]
fn sums_of_scores_add_up() {
    let scores = Random::new(3).floats(200, 30.0);
    let of = |part: &[f32]| {
        part.iter().fold(ScoreSum::NOTHING, |sum, score| sum.plus(ScoreSum::of(*score)))
    };
    let exact: f64 = scores.iter().map(|s| f64::from(*s).exp()).sum();
    let close = |sum: ScoreSum| (f64::from(sum.max).exp() * f64::from(sum.sum) / exact - 1.0).abs();
    for cut in [0, 1, 100, 200] {
        let found = of(&scores[..cut]).plus(of(&scores[cut..]));
        assert!(close(found) < 1e-5, "{cut}: {found:?}");
    }
    assert_eq!(ScoreSum::NOTHING.plus(ScoreSum::NOTHING), ScoreSum::NOTHING);
    assert_eq!(weight_at_most(200.0, 0.0), f32::INFINITY);
    assert!((weight_at_most(1.5, 0.5) - std::f32::consts::E).abs() < 1e-5);
    assert!(
        (score_of(3.0, Some(2.0), Some([0.5, 4.0])) - (2.0 * 1.5f32.tanh() - 2.0)).abs() < 1e-6
    );
    assert_eq!(score_of(3.0, None, None).to_bits(), 3f32.to_bits());
}

#[test]
fn a_sink_is_a_score_without_a_value() {
    let shape = shape(16, 16, ElemType::F32, ElemType::F32);
    let case = Case::new(shape, vec![5, 0], 8);
    let (max, sum, out) = case.exact(0);
    for kernel in candidates(&MERGE).into_iter().chain([MERGE.naive()]) {
        let mut memory = vec![SENTINEL; Partials::floats(2, &shape)];
        let mut state = Partials::new(&mut memory, 2, &shape);
        state.start([0.7, 0.7]);
        let mut block = case.run(ATTEND.naive());
        kernel.call(&mut state, &Partials::new(&mut block, 2, &shape));
        let mut got = [SENTINEL; 16];
        state.finish(0, &mut got);
        let all = sum + (0.7 - max).exp();
        for (got, want) in got.iter().zip(&out) {
            assert!((f64::from(*got) - want / all).abs() < 1e-5, "{}", kernel.name());
        }
        state.finish(1, &mut got);
        assert_eq!(got, [0.0; 16], "{}", kernel.name());
    }
}

#[test]
fn every_pair_of_types_and_every_count_of_rows_matches() {
    for k in ElemType::ALL {
        for v in ElemType::ALL {
            for n in (1..=sizes(20, 10)).step_by(sizes(1, 9)) {
                let [_, grows, _] = visibles(n, n as u64);
                let dim = sizes(64, 16);
                let case = Case::new(shape(dim, dim, k, v), grows, n as u64);
                let want = case.run(ATTEND.naive());
                for kernel in candidates(&ATTEND) {
                    assert_same_bits(
                        &case.run(kernel),
                        &want,
                        &format!("{} {k:?} {v:?} {n} rows", kernel.name()),
                    );
                }
            }
        }
    }
}

#[test]
fn a_row_has_the_same_bits_in_any_company() {
    let (n, key_dim, value_dim) = sizes((21, 64, 96), (5, 16, 33));
    for k in ElemType::ALL {
        let [_, _, any] = visibles(n, 9);
        let case = Case::new(shape(key_dim, value_dim, k, k), any, 9);
        for kernel in candidates(&ATTEND) {
            let mut together = case.run(kernel);
            let together = Partials::new(&mut together, n, &case.shape);
            for row in 0..n {
                let mut alone = case.run_rows(kernel, row, 1);
                let alone = Partials::new(&mut alone, 1, &case.shape);
                let stride = case.shape.value_stride();
                let out = &together.out[row * stride..][..stride];
                assert_same_bits(alone.out, out, kernel.name());
                assert_same_bits(
                    &[alone.max[0], alone.sum[0]],
                    &[together.max[row], together.sum[row]],
                    kernel.name(),
                );
            }
        }
    }
}

#[test]
fn folded_blocks_are_softmax_over_all() {
    let (n, key_dim, value_dim) = sizes((5, 64, 32), (3, 9, 17));
    let all = BLOCK as u32;
    let seen = [vec![all; 5], vec![all, 0, 3, all, all], vec![17, 0, 0, 1, all - 56]];
    let shape = shape(key_dim, value_dim, ElemType::F16, ElemType::F16);
    let seen = seen.into_iter().map(|seen| seen[..n].to_vec());
    let cases: Vec<Case> = seen.zip(1..).map(|(seen, seed)| Case::new(shape, seen, seed)).collect();
    // The same queries ask all blocks.
    let cases: Vec<Case> = cases
        .iter()
        .map(|c| Case {
            q: cases[0].q.clone(),
            keys: c.keys.clone(),
            values: c.values.clone(),
            seen: c.seen.clone(),
            softcap: None,
            alibi: Vec::new(),
            shape,
        })
        .collect();
    let mut results = Vec::new();
    for kernel in candidates(&MERGE).into_iter().chain([MERGE.naive()]) {
        let mut state_memory = vec![SENTINEL; Partials::floats(n, &shape)];
        let mut state = Partials::new(&mut state_memory, n, &shape);
        state.clear();
        for case in &cases {
            let mut memory = case.run(ATTEND.naive());
            kernel.call(&mut state, &Partials::new(&mut memory, n, &shape));
        }
        for row in 0..n {
            let parts: Vec<_> = cases.iter().map(|case| case.exact(row)).collect();
            let max = parts.iter().fold(f64::NEG_INFINITY, |max, part| max.max(part.0));
            let sum: f64 = parts.iter().map(|part| part.1 * (part.0 - max).exp()).sum();
            let mut got = vec![0.0; value_dim];
            state.finish(row, &mut got);
            for (e, got) in got.iter().enumerate() {
                let want: f64 =
                    parts.iter().map(|part| part.2[e] * (part.0 - max).exp()).sum::<f64>() / sum;
                assert!(
                    (f64::from(*got) - want).abs() < 1e-4,
                    "{} row {row}: {got} and {want}",
                    kernel.name()
                );
            }
        }
        results.push((kernel.name(), state_memory));
    }
    for (name, memory) in &results {
        assert_same_bits(memory, &results[results.len() - 1].1, name);
    }
}

#[test]
fn a_row_that_saw_nothing_gives_zeros() {
    let shape = shape(8, 8, ElemType::F32, ElemType::F32);
    let mut memory = vec![SENTINEL; Partials::floats(2, &shape)];
    let mut state = Partials::new(&mut memory, 2, &shape);
    state.clear();
    let mut result = [SENTINEL; 8];
    state.finish(1, &mut result);
    assert_eq!(result, [0.0; 8]);
}

#[test]
fn what_is_not_finite_stays_so_where_it_is_seen() {
    for v in ElemType::ALL {
        let shape = shape(32, 32, ElemType::F16, v);
        let mut case = Case::new(shape, 1..=12, 4);
        let mut poison = vec![0.5; 32];
        poison[7] = f32::INFINITY;
        shape.store_value(&mut case.values, 6, &poison);
        for kernel in candidates(&ATTEND).into_iter().chain([ATTEND.naive()]) {
            let mut memory = case.run(kernel);
            let partials = Partials::new(&mut memory, 12, &shape);
            for row in 0..12 {
                let finite = partials.out[row * 32..][..32].iter().all(|x| x.is_finite());
                assert_eq!(finite, row < 6, "{} {v:?} row {row}", kernel.name());
            }
        }
    }
}

#[test]
fn stored_elements_come_back() {
    let mut random = Random::new(5);
    for ty in ElemType::ALL {
        for &dim in sizes(&[1, 16, 31, 32, 33, 80, 128][..], &[1, 33]) {
            let shape = shape(dim, dim, ty, ty);
            assert!(shape.key_bytes().is_multiple_of(64) && shape.value_bytes().is_multiple_of(64));
            let (mut keys, mut values) = (vec![0; shape.key_bytes()], vec![0; shape.value_bytes()]);
            let rows: Vec<Vec<f32>> = (0..BLOCK).map(|_| random.floats(dim, 100.0)).collect();
            for (position, row) in rows.iter().enumerate().rev() {
                shape.store_key(&mut keys, position, row);
                shape.store_value(&mut values, position, row);
            }
            for (position, row) in rows.iter().enumerate() {
                for (i, x) in row.iter().enumerate() {
                    let group = &row[i / 32 * 32..dim.min(i / 32 * 32 + 32)];
                    let most = group.iter().fold(0.0f32, |most, x| most.max(x.abs()));
                    let bound = match ty {
                        ElemType::F32 => 0.0,
                        ElemType::F16 => x.abs() / 2048.0,
                        ElemType::Q8_0 => most / 127.0 * 0.5 + most / 2048.0,
                    };
                    let (key, value) =
                        (shape.key_at(&keys, position, i), shape.value_at(&values, position, i));
                    assert!((key - x).abs() <= bound, "{ty:?} {dim}: {key} for {x}");
                    assert_eq!(key.to_bits(), value.to_bits());
                }
            }
        }
    }
}
