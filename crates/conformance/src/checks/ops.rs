//! Op by op: small programs of odd shapes against the interpreter.

use program::{
    Act, Attention, CacheKind, CacheSpec, Executor, LinearWeight, Norm, NormKind, Outputs,
    Recorder, Result, Rope, RopePairs, RopeScaling, ValueId, WeightId, WeightSpec,
};
use quant::GgmlType;

use crate::made::{EXACT, Made, all_logits, feed, program};
use crate::{MemoryWeights, Random, assert_close, bound};

pub(super) const VOCAB: usize = 41;

pub(super) fn weight(r: &Recorder, name: &str, ty: GgmlType, rows: usize, cols: usize) -> WeightId {
    r.weight(WeightSpec { name: name.into(), ty, rows, cols, start: 0 })
}

/// Random rows `[n, cols]` to compute with.
pub(super) fn input(r: &Recorder, cols: usize) -> Result<ValueId> {
    r.embed(weight(r, "token_embd.weight", GgmlType::F32, VOCAB, cols))
}

/// Types a matrix may have.
pub(super) fn types() -> impl Iterator<Item = GgmlType> {
    GgmlType::all().filter(|&ty| quant::format(ty).is_some())
}

pub(super) fn check(
    executor: &dyn Executor,
    bound: f64,
    what: &str,
    record: impl FnOnce(&Recorder) -> Result<ValueId>,
) {
    let made = Made::new(executor, &program(record), 7);
    let mut all = (Vec::new(), Vec::new());
    for n in [1, 2, 5, 8, 9, 67] {
        let tokens = Random::new(n as u64).tokens(n, VOCAB);
        let found = all_logits(&*made.tested, &EXACT, &tokens, n);
        let want = all_logits(&*made.oracle, &EXACT, &tokens, n);
        // where types round, few outputs may happen to be near zero, and their relative error large
        if found.len() >= 16 || bound < 1e-8 {
            assert_close(&found, &want, bound, &format!("{what}, {n} rows"));
        }
        all.0.extend(found);
        all.1.extend(want);
    }
    assert_close(&all.0, &all.1, bound, &format!("{what}, all rows"));
}

pub(super) fn embed(executor: &dyn Executor) {
    for ty in types() {
        for blocks in [1, 3] {
            let cols = ty.block_len() * blocks;
            // A row of an embedding table is dequantized, not multiplied: nothing is lost but f16 rounding.
            check(executor, 1e-12, &format!("embed {ty} x {cols}"), |r| {
                r.embed(weight(r, "token_embd.weight", ty, VOCAB, cols))
            });
        }
    }
}

pub(super) fn norms(executor: &dyn Executor) {
    for (cols, groups) in [(1, 1), (37, 1), (256, 1), (1056, 1), (96, 3), (105, 7), (128, 2)] {
        for (kind, form) in all_norms() {
            check(
                executor,
                1e-11,
                &format!("{kind:?} {form:?} of {groups} x {}", cols / groups),
                |r| {
                    let x = r.view("groups", input(r, cols)?, groups)?;
                    r.norm("norm", x, norm(r, kind, form, [groups, cols / groups]))
                },
            );
        }
    }
    for (kind, form) in all_norms() {
        check(executor, 1e-9, &format!("{kind:?} {form:?} before matrices"), |r| {
            let h = r.norm("norm", input(r, 37)?, norm(r, kind, form, [1, 37]))?;
            let [a, b] = ["a", "b"].map(|name| weight(r, name, GgmlType::F32, 33, 37));
            r.add("sum", r.linear("first", h, a)?, r.linear("second", h, b)?)
        });
    }
}

/// Which vectors a norm has.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Form {
    Plain,
    Factors,
    FactorsAndSums,
    /// For each group its own.
    Own,
}

fn all_norms() -> impl Iterator<Item = (NormKind, Form)> {
    let forms = [Form::Plain, Form::Factors, Form::FactorsAndSums, Form::Own];
    [NormKind::Rms, NormKind::Layer]
        .into_iter()
        .flat_map(move |kind| forms.map(|form| (kind, form)))
}

fn norm(r: &Recorder, kind: NormKind, form: Form, [groups, dim]: [usize; 2]) -> Norm {
    let rows = if form == Form::Own { groups } else { 1 };
    let vector = |name: &str| weight(r, name, GgmlType::F32, rows, dim);
    let factors = (form != Form::Plain).then(|| vector("norm.weight"));
    let sums = matches!(form, Form::FactorsAndSums | Form::Own).then(|| vector("norm.bias"));
    Norm { kind, weight: factors, bias: sums, eps: 1e-5 }
}

pub(super) fn linear(executor: &dyn Executor) {
    for ty in types() {
        let shapes = if ty.block_len() == 1 {
            vec![(1, 1), (17, 37), (50, 96), (33, 512)]
        } else {
            [(1, 1), (17, 2), (50, 3), (16, 5)]
                .map(|(rows, blocks)| (rows, blocks * ty.block_len()))
                .to_vec()
        };
        for (rows, cols) in shapes {
            for biased in [false, true] {
                let bias = if biased { " + bias" } else { "" };
                check(executor, bound(ty), &format!("linear {ty} {rows} x {cols}{bias}"), |r| {
                    let bias = biased.then(|| weight(r, "w.bias", GgmlType::F32, 1, rows));
                    r.linear(
                        "y",
                        input(r, cols)?,
                        LinearWeight { weight: weight(r, "w.weight", ty, rows, cols), bias },
                    )
                });
            }
        }
    }
    zeros(executor);
}

/// Activations that are all zero give the bias and nothing else.
fn zeros(executor: &dyn Executor) {
    for ty in types() {
        let cols = 2 * ty.block_len().max(32);
        let program = program(|r| {
            let bias = Some(weight(r, "w.bias", GgmlType::F32, 1, 19));
            r.linear(
                "y",
                input(r, cols)?,
                LinearWeight { weight: weight(r, "w.weight", ty, 19, cols), bias },
            )
        });
        let mut weights = MemoryWeights::random(&program, 3);
        let table = program
            .weights
            .iter()
            .find(|w| w.name == "token_embd.weight")
            .expect("the input's table");
        weights.set(table, &vec![0.0; VOCAB * cols]);
        let made = Made::with(executor, &program, &weights);
        let found = all_logits(&*made.tested, &EXACT, &[0, 1, 2], 3);
        let want = all_logits(&*made.oracle, &EXACT, &[0, 1, 2], 3);
        assert_close(&found, &want, 0.0, &format!("linear {ty} of zeros"));
    }
}

pub(super) fn elementwise(executor: &dyn Executor) {
    let two = |r: &Recorder, cols: usize| -> Result<[ValueId; 2]> {
        let other = r.embed(weight(r, "token_embd.other.weight", GgmlType::F32, VOCAB, cols))?;
        Ok([input(r, cols)?, other])
    };
    for cols in [1, 37, 64, 515] {
        check(executor, 1e-12, &format!("gated_act of {cols}"), |r| {
            let [gate, up] = two(r, cols)?;
            r.gated_act("act", Act::Silu, gate, up)
        });
        check(executor, 1e-12, &format!("gated_act of {cols}, large"), |r| {
            let [gate, up] = two(r, cols)?;
            r.gated_act("act", Act::Silu, r.scale("large", gate, 90.0)?, up)
        });
        check(executor, 0.0, &format!("add of {cols}"), |r| {
            let [a, b] = two(r, cols)?;
            r.add("sum", a, b)
        });
        check(executor, 0.0, &format!("add of {cols} to itself"), |r| {
            let [a, _] = two(r, cols)?;
            r.add("sum", a, a)
        });
        check(executor, 0.0, &format!("scale of {cols}"), |r| {
            r.scale("scaled", input(r, cols)?, -0.37)
        });
        streams(executor, cols);
        check(executor, 0.0, &format!("three groups of {cols}, each times its own"), |r| {
            let x = r.view("groups", input(r, 3 * cols)?, 3)?;
            let y = r.multiply_groups("times", x, weight(r, "gains", GgmlType::F32, 1, 3))?;
            r.view("joined", y, 1)
        });
        for len in [1, cols, 2 * cols] {
            check(executor, 0.0, &format!("two groups of {cols} times {len}"), |r| {
                let x = r.view("groups", input(r, 2 * cols)?, 2)?;
                let vector = weight(r, "factors", GgmlType::F32, 1, len);
                r.view("joined", r.multiply("times", x, vector)?, 1)
            });
        }
        check(executor, 1e-11, &format!("a product of {cols} gates itself"), |r| {
            let x = input(r, cols)?;
            let w = weight(r, "both.weight", GgmlType::F32, cols, cols);
            r.gated_act("act", Act::Silu, r.linear("gate", x, w)?, r.linear("up", x, w)?)
        });
        check(executor, 1e-11, &format!("a product of {cols} gates what was there before"), |r| {
            let [up, x] = two(r, cols)?;
            let gate = r.linear("gate", x, weight(r, "gate.weight", GgmlType::F32, cols, cols))?;
            r.gated_act("act", Act::Gelu, gate, up)
        });
    }
}

/// Several residual streams of `cols`.
fn streams(executor: &dyn Executor, cols: usize) {
    let three = |r: &Recorder| r.view("streams", input(r, 3 * cols)?, 3);
    let joined = |r: &Recorder, x| r.view("joined", x, 1);
    check(executor, 0.0, &format!("concat of {cols}"), |r| {
        let x = three(r)?;
        let first = r.slice("first", r.view("all", x, 1)?, 0, cols)?;
        joined(r, r.concat("both", &[first, x, first])?)
    });
    for (k, m) in [(1, 4), (3, 3), (3, 2)] {
        check(executor, 1e-13, &format!("mix of {k} into {m} of {cols}"), |r| {
            let by = r.embed(weight(r, "token_embd.by.weight", GgmlType::F32, VOCAB, m * k))?;
            joined(r, r.mix("mixed", by, r.view("streams", input(r, k * cols)?, k)?)?)
        });
    }
    check(executor, 1e-13, &format!("resize of {cols}"), |r| {
        let y = r.embed(weight(r, "token_embd.y.weight", GgmlType::F32, VOCAB, 3 * cols))?;
        joined(r, r.resize("resized", three(r)?, r.view("as", y, 3)?)?)
    });
    if cols > 1 {
        check(executor, 1e-12, &format!("sums of {cols}"), |r| r.sum_groups("sums", three(r)?));
        check(executor, 1e-12, &format!("excess of {cols}"), |r| {
            joined(r, r.excess("excess", three(r)?, 0.7)?)
        });
    }
}

/// Heads and rotation of one attention case.
struct Case {
    n_heads: usize,
    n_kv_heads: usize,
    key_dim: usize,
    value_dim: usize,
    rope: Option<Rope>,
    factors: bool,
}

fn cases() -> Vec<Case> {
    let rope =
        |pairs, dims, scaling| Some(Rope { pairs, dims, theta: 1e4, scaling, factors: None });
    let yarn = RopeScaling::Yarn {
        factor: 4.0,
        original_context: 64,
        beta_fast: 32.0,
        beta_slow: 1.0,
        attention_factor: 1.138_629_4,
        extrapolation: 1.0,
    };
    let linear = RopeScaling::Linear { factor: 2.5 };
    let case = |heads: [usize; 4], rope, factors| {
        let [n_heads, n_kv_heads, key_dim, value_dim] = heads;
        Case { n_heads, n_kv_heads, key_dim, value_dim, rope, factors }
    };
    use RopePairs::{HalfSplit, Interleaved};
    vec![
        case([1, 1, 8, 8], None, false),
        case([4, 4, 64, 64], rope(HalfSplit, 64, RopeScaling::None), false),
        case([6, 2, 32, 32], rope(Interleaved, 32, RopeScaling::None), false),
        case([7, 1, 24, 24], rope(HalfSplit, 16, RopeScaling::None), false),
        case([4, 2, 20, 20], rope(Interleaved, 6, RopeScaling::None), false),
        case([3, 3, 24, 40], rope(HalfSplit, 24, linear), false),
        case([4, 1, 64, 32], rope(Interleaved, 64, yarn), false),
        case([2, 2, 32, 32], rope(HalfSplit, 32, yarn), true),
        case([14, 2, 128, 128], rope(Interleaved, 128, RopeScaling::None), true),
    ]
}

fn attention_program(r: &Recorder, case: &Case, scale: f32) -> Result<ValueId> {
    let Case { n_heads, n_kv_heads, key_dim, value_dim, .. } = *case;
    let x = input(r, 48)?;
    let heads = |name: &str, n: usize, dim: usize| {
        let w = weight(r, &format!("{name}.weight"), GgmlType::F32, n * dim, 48);
        r.view(&format!("{name}_heads"), r.linear(name, x, w)?, n)
    };
    let qkv = [
        heads("q", n_heads, key_dim)?,
        heads("k", n_kv_heads, key_dim)?,
        heads("v", n_kv_heads, value_dim)?,
    ];
    let mut rope = case.rope.clone();
    if let Some(rope) = rope.as_mut().filter(|_| case.factors) {
        rope.factors = Some(weight(r, "rope_freqs.weight", GgmlType::F32, 1, rope.dims / 2));
    }
    let kind = CacheKind::Heads { n_kv_heads, key_dim, value_dim, window: None };
    let cache = r.cache(CacheSpec { layer: 0, kind });
    r.attention("attn", Attention::causal(cache, rope, scale), &qkv)
}

/// A prompt, then a chunk, then single tokens, past the positions that caches hold in one block.
pub(super) fn fed_in_pieces(
    executor: &dyn Executor,
    bound: f64,
    what: &str,
    record: impl FnOnce(&Recorder) -> Result<ValueId>,
) {
    let made = Made::new(executor, &program(record), 11);
    let tokens = Random::new(5).tokens(300, VOCAB);
    let run = |model: &dyn program::Model| {
        let session = model.open(&EXACT).expect("a session opens");
        let (prompt, rest) = tokens.split_at(250);
        let mut out = feed(model, session, prompt, Outputs::ALL);
        let (chunk, singles) = rest.split_at(30);
        out.extend(feed(model, session, chunk, Outputs::ALL));
        out.extend(singles.iter().flat_map(|&token| feed(model, session, &[token], Outputs::ALL)));
        out
    };
    assert_close(&run(&*made.tested), &run(&*made.oracle), bound, what);
}

fn attend(executor: &dyn Executor, case: &Case, scale: f32, bound: f64) {
    let Case { n_heads, n_kv_heads, key_dim, value_dim, rope, factors } = case;
    let what = format!(
        "attention {n_heads}/{n_kv_heads} x {key_dim}/{value_dim}, {rope:?}, factors {factors}"
    );
    fed_in_pieces(executor, bound, &what, |r| attention_program(r, case, scale));
}

pub(super) fn attention(executor: &dyn Executor) {
    for case in cases() {
        attend(executor, &case, (case.key_dim as f32).powf(-0.5), 1e-9);
    }
}

/// Scores in the hundreds: exponentials must not overflow. Rounding of a score counts in full here.
pub(super) fn attention_peaked(executor: &dyn Executor) {
    for case in cases() {
        attend(executor, &case, 20.0, 1e-6);
    }
}
