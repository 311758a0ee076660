//! Attention's kernels: naive against softmax in f64, the others against naive to the bit.

mod support;

use kernels::Kernel;
use kernels::attention::{
    ATTEND, AttendFn, BLOCK, ElemType, HeadBlock, HeadShape, MERGE, Partials, QueryRows,
    scratch_floats,
};
use support::{Random, assert_same_bits, candidates, naive};

const SENTINEL: f32 = 1234.5;
const GUARD: usize = 40;

/// One head of one block, and queries.
struct Case {
    shape: HeadShape,
    keys: Vec<u8>,
    values: Vec<u8>,
    q: Vec<f32>,
    visible: Vec<u32>,
}

impl Case {
    /// Positions that no row sees hold NaN.
    fn new(shape: HeadShape, visible: Vec<u32>, seed: u64) -> Case {
        let mut random = Random::new(seed);
        let (mut keys, mut values) = (vec![0; shape.key_bytes()], vec![0; shape.value_bytes()]);
        let stored = visible.iter().max().map_or(0, |n| *n as usize);
        for position in 0..BLOCK {
            let (mut key, mut value) =
                (random.floats(shape.key_dim, 2.0), random.floats(shape.value_dim, 3.0));
            if position >= stored {
                key.fill(f32::NAN);
                value.fill(f32::NAN);
            }
            shape.store_key(&mut keys, position, &key);
            shape.store_value(&mut values, position, &value);
        }
        let q = random.floats(visible.len() * shape.key_dim, 1.0);
        Case { shape, keys, values, q, visible }
    }

    fn block(&self) -> HeadBlock<'_> {
        HeadBlock { shape: self.shape, keys: &self.keys, values: &self.values }
    }

    /// Partials as [`Partials::new`] lays them out. Checks that nothing around them is written.
    fn run(&self, kernel: &Kernel<AttendFn>) -> Vec<f32> {
        self.run_rows(kernel, 0, self.visible.len())
    }

    fn run_rows(&self, kernel: &Kernel<AttendFn>, first: usize, n: usize) -> Vec<f32> {
        let shape = &self.shape;
        let rows = QueryRows {
            q: &self.q[first * shape.key_dim..][..n * shape.key_dim],
            visible: &self.visible[first..][..n],
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

    /// Softmax of one row over this block in f64: greatest score, sum, output.
    fn exact(&self, row: usize) -> (f64, f64, Vec<f64>) {
        let (shape, seen) = (&self.shape, self.visible[row] as usize);
        let q = &self.q[row * shape.key_dim..][..shape.key_dim];
        let key = |position, d| f64::from(shape.key_at(&self.keys, position, d));
        let scores: Vec<f64> = (0..seen)
            .map(|p| q.iter().enumerate().map(|(d, q)| f64::from(*q) * key(p, d)).sum())
            .collect();
        let max = scores.iter().fold(f64::NEG_INFINITY, |max, s| max.max(*s));
        let weights: Vec<f64> = scores.iter().map(|s| (s - max).exp()).collect();
        let value = |position, e| f64::from(shape.value_at(&self.values, position, e));
        let out = (0..shape.value_dim)
            .map(|e| weights.iter().enumerate().map(|(p, w)| w * value(p, e)).sum())
            .collect();
        (max, weights.iter().sum(), out)
    }
}

fn shape(key_dim: usize, value_dim: usize, k: ElemType, v: ElemType) -> HeadShape {
    HeadShape { key_dim, value_dim, k, v }
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
            let case = Case::new(shape(80, 48, k, v), vec![0, 1, 2, 15, 16, 17, 100, 255, 256], 3);
            let mut memory = case.run(naive(&ATTEND));
            let n = case.visible.len();
            let partials = Partials::new(&mut memory, n, &case.shape);
            for row in 0..n {
                let (max, sum, out) = case.exact(row);
                if case.visible[row] == 0 {
                    assert_eq!((partials.max[row], partials.sum[row]), (f32::NEG_INFINITY, 0.0));
                    continue;
                }
                assert!((f64::from(partials.max[row]) - max).abs() < 1e-4);
                assert!((f64::from(partials.sum[row]) / sum - 1.0).abs() < 1e-4);
                let mut got = vec![0.0; 48];
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
    let dims = [
        (32, 32),
        (64, 64),
        (80, 80),
        (96, 96),
        (128, 128),
        (256, 256),
        (33, 17),
        (1, 1),
        (192, 128),
    ];
    for (i, (key_dim, value_dim)) in dims.into_iter().enumerate() {
        for n in [1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 20, 33] {
            let seed = (i * 100 + n) as u64;
            let (k, v) = (ElemType::ALL[(i + n) % 3], ElemType::ALL[(i + n / 3) % 3]);
            for visible in visibles(n, seed) {
                let case = Case::new(shape(key_dim, value_dim, k, v), visible, seed);
                let want = case.run(naive(&ATTEND));
                for kernel in candidates(&ATTEND) {
                    let what =
                        format!("{} {:?} rows {:?}", kernel.name(), case.shape, case.visible);
                    assert_same_bits(&case.run(kernel), &want, &what);
                }
            }
        }
    }
}

#[test]
fn every_pair_of_types_and_every_count_of_rows_matches() {
    for k in ElemType::ALL {
        for v in ElemType::ALL {
            for n in 1..=20 {
                let [_, grows, _] = visibles(n, n as u64);
                let case = Case::new(shape(64, 64, k, v), grows, n as u64);
                let want = case.run(naive(&ATTEND));
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
    let n = 21;
    for k in ElemType::ALL {
        let [_, _, any] = visibles(n, 9);
        let case = Case::new(shape(64, 96, k, k), any, 9);
        for kernel in candidates(&ATTEND) {
            let mut together = case.run(kernel);
            let together = Partials::new(&mut together, n, &case.shape);
            for row in 0..n {
                let mut alone = case.run_rows(kernel, row, 1);
                let alone = Partials::new(&mut alone, 1, &case.shape);
                assert_same_bits(alone.out, &together.out[row * 96..][..96], kernel.name());
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
    let n = 5;
    let seen = [vec![256; n], vec![256, 0, 3, 256, 256], vec![17, 0, 0, 1, 200]];
    let shape = shape(64, 32, ElemType::F16, ElemType::F16);
    let cases: Vec<Case> =
        seen.into_iter().zip(1..).map(|(seen, seed)| Case::new(shape, seen, seed)).collect();
    // The same queries ask all blocks.
    let cases: Vec<Case> = cases
        .iter()
        .map(|c| Case {
            q: cases[0].q.clone(),
            keys: c.keys.clone(),
            values: c.values.clone(),
            visible: c.visible.clone(),
            shape,
        })
        .collect();
    let mut results = Vec::new();
    for kernel in candidates(&MERGE).into_iter().chain([naive(&MERGE)]) {
        let mut state_memory = vec![SENTINEL; Partials::floats(n, &shape)];
        let mut state = Partials::new(&mut state_memory, n, &shape);
        state.clear();
        for case in &cases {
            let mut memory = case.run(naive(&ATTEND));
            kernel.call(&mut state, &Partials::new(&mut memory, n, &shape));
        }
        for row in 0..n {
            let parts: Vec<_> = cases.iter().map(|case| case.exact(row)).collect();
            let max = parts.iter().fold(f64::NEG_INFINITY, |max, part| max.max(part.0));
            let sum: f64 = parts.iter().map(|part| part.1 * (part.0 - max).exp()).sum();
            let mut got = [0.0; 32];
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
        let mut case = Case::new(shape, (1..=12).collect(), 4);
        let mut poison = vec![0.5; 32];
        poison[7] = f32::INFINITY;
        shape.store_value(&mut case.values, 6, &poison);
        for kernel in candidates(&ATTEND).into_iter().chain([naive(&ATTEND)]) {
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
        for dim in [1, 16, 31, 32, 33, 80, 128] {
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
