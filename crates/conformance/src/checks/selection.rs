//! What chooses, and what reads by choice: indexers, attention over what they chose. And streams that are balanced.

use std::sync::Arc;

use program::{
    Attention, CacheKind, CacheSpec, Executor, GramHead, Grams, IndexScore, Indexer,
    LatentAttention, LatentUp, Model, Program, Recorder, Result, Rope, RopePairs, RopeScaling,
    Selection, UnitScore, ValueId, Variation,
};
use quant::GgmlType;

use super::ops::{check, fed_in_pieces, input, types, weight};
use super::sessions::{self, Subject};
use crate::Made;
use crate::made::{EXACT, all_logits, program, prompt_logits};
use crate::{Random, assert_close, assert_same_bits};

pub(super) fn balance(executor: &dyn Executor) {
    for cols in [1, 37, 64] {
        check(executor, 1e-12, &format!("softmax of {cols}"), |r| {
            r.softmax("shares", r.view("streams", input(r, 3 * cols)?, 3)?)
        });
        check(executor, 1e-12, &format!("signed roots of {cols}"), |r| {
            r.signed_root("roots", input(r, cols)?, 0.3)
        });
        check(executor, 0.0, &format!("turn of {cols}"), |r| {
            r.turn("turned", r.view("groups", input(r, 3 * cols)?, 3)?)
        });
        check(executor, 0.0, &format!("shift of {cols}"), |r| {
            r.shift("shifted", input(r, cols)?, -0.37)
        });
    }
    for (n, rounds) in [(1, 1), (3, 1), (4, 5), (4, 20)] {
        check(executor, 1e-12, &format!("{rounds} rounds of a matrix of {n}"), |r| {
            let x = r.view("square", input(r, n * n)?, n)?;
            r.sinkhorn("balanced", r.scale("wide", x, 5.0)?, rounds, 1e-3)
        });
    }
}

/// Rows by hashes of tokens, of tables of every type.
pub(super) fn grams(executor: &dyn Executor) {
    for (i, ty) in types().enumerate() {
        fed_in_pieces(executor, 1e-12, &format!("rows by hashes, of {ty}"), |r| {
            let mut ids = vec![r.ids("ids")?];
            for i in 0..2 {
                ids.push(r.row_before("before", ids[i])?);
            }
            let head = |i: usize| GramHead { start: 3 * i, n_rows: 31 - 4 * i };
            let (heads, end) = ((0..4).map(head).collect(), 5 + i as u32);
            let multipliers = vec![0x9E37_79B9_7F4A_7C15, 12_345, u64::MAX - 58];
            let grams = Grams { multipliers, heads, end };
            let cols = 2 * ty.block_len().max(16);
            let table = weight(r, "table", ty, 40, cols);
            r.grams("rows", r.concat("grams", &ids)?, table, grams)
        });
    }
}

/// An indexer of `heads` of `dim`.
#[derive(Clone, Copy, Debug)]
struct Case {
    score: IndexScore,
    heads: usize,
    dim: usize,
    unit: u32,
    unit_score: UnitScore,
    n_units: u32,
    n_last: u32,
    /// Elements that rotate, and those before them.
    rotates: usize,
    rope_start: usize,
    keys_back: u32,
}

const CASES: [Case; 12] = {
    let case = Case {
        score: IndexScore::Weighted,
        heads: 4,
        dim: 64,
        unit: 1,
        unit_score: UnitScore::Greatest,
        n_units: 16,
        n_last: 0,
        rotates: 16,
        rope_start: 0,
        keys_back: 0,
    };
    [
        case,
        Case { heads: 3, dim: 17, n_units: 5, rotates: 8, rope_start: 9, ..case },
        Case { heads: 1, dim: 8, n_units: 1, n_last: 1, rotates: 8, ..case },
        Case { heads: 64, dim: 128, n_units: 200, rotates: 0, ..case },
        Case { score: IndexScore::PerHead, heads: 2, unit: 8, n_units: 4, n_last: 1, ..case },
        Case { score: IndexScore::PerHead, heads: 5, unit: 3, n_units: 7, n_last: 2, ..case },
        Case { unit: 48, n_units: 2, n_last: 1, ..case },
        Case { unit: 130, n_units: 1, n_last: 1, ..case },
        Case { unit: 4, unit_score: UnitScore::Last, n_units: 4, ..case },
        Case { unit: 130, unit_score: UnitScore::Last, n_units: 1, ..case },
        Case { unit_score: UnitScore::OfPool(4), n_units: 19, keys_back: 3, ..case },
        Case { unit_score: UnitScore::OfPool(32), n_units: 40, keys_back: 7, ..case },
    ]
};

impl Case {
    fn record(&self, r: &Recorder, x: ValueId) -> Result<(Selection, ValueId)> {
        let Case { score, heads, dim, unit, unit_score, n_units, n_last, .. } = *self;
        let Case { rotates, rope_start, keys_back, .. } = *self;
        let cols = r.shape(x).cols();
        let linear = |name: &str, rows: usize| {
            r.linear(name, x, weight(r, &format!("{name}.weight"), GgmlType::F32, rows, cols))
        };
        let q = r.view("index_q_heads", linear("index_q", heads * dim)?, heads)?;
        let k = linear("index_k", dim)?;
        let (pairs, scaling) = (RopePairs::HalfSplit, RopeScaling::None);
        let rope = Rope { pairs, dims: rotates, theta: 1e4, scaling, factors: None };
        let cache = r.cache(CacheSpec { layer: 0, kind: CacheKind::Keys { dim } });
        let rope = (rotates > 0).then_some(rope);
        let at = Indexer {
            cache,
            rope,
            rope_start,
            keys_back,
            score,
            unit,
            unit_score,
            n_units,
            n_last,
        };
        let select = at.selection();
        let chosen = match score {
            IndexScore::Weighted => {
                r.indexer("chosen", at, &[q, linear("index_weights", heads)?, k])
            }
            IndexScore::PerHead => r.indexer("chosen", at, &[q, k]),
        };
        Ok((select, chosen?))
    }
}

/// Against the interpreter, fed in pieces. Keys of one token are equal where they do not rotate, and which of equals are chosen
/// is told by their order alone: whoever may compute them otherwise in another step has them in one.
fn fed(
    executor: &dyn Executor,
    bound: f64,
    (what, case): (&str, &Case),
    record: impl FnOnce(&Recorder) -> Result<ValueId>,
) {
    let alike = executor.promises().cover(&[Variation::Again, Variation::Cuts]);
    if case.rotates > 0 || alike {
        return fed_in_pieces(executor, bound, what, record);
    }
    let made = Made::new(executor, &program(record), 11);
    let tokens = Random::new(5).tokens(300, super::ops::VOCAB);
    let run = |model: &dyn Model| all_logits(model, &EXACT, &tokens, tokens.len());
    assert_close(&run(&*made.tested), &run(&*made.oracle), bound, what);
}

/// The choices themselves, to the bit.
pub(super) fn indexer(executor: &dyn Executor) {
    for case in CASES {
        fed(executor, 0.0, (&format!("{case:?}"), &case), |r| Ok(case.record(r, input(r, 48)?)?.1));
    }
}

/// Latent attention over what an indexer chose, its own or one before it.
fn latent(r: &Recorder, x: ValueId, chosen: (Selection, ValueId), ty: GgmlType) -> Result<ValueId> {
    let [heads, dn, dr, dv, rank] = [3, 32, 16, 32, 32];
    let cols = r.shape(x).cols();
    let q = weight(r, "q.weight", ty, heads * (dn + dr), cols);
    let q = r.view("q_heads", r.linear("q", x, q)?, heads)?;
    let kv = r.linear("kv", x, weight(r, "kv.weight", ty, rank + dr, cols))?;
    let up = LatentUp::Split {
        k_b: weight(r, "k_b.weight", ty, heads * rank, dn),
        v_b: weight(r, "v_b.weight", ty, heads * dv, rank),
    };
    let cache = r.cache(CacheSpec { layer: 0, kind: CacheKind::Latent { rank, rope_dim: dr } });
    let (pairs, scaling) = (RopePairs::Interleaved, RopeScaling::None);
    let rope = Rope { pairs, dims: dr, theta: 1e4, scaling, factors: None };
    let mut at = LatentAttention::causal(cache, Some(rope), up, 0.2);
    at.select = Some(chosen.0);
    at.score.sinks = Some(weight(r, "sinks", GgmlType::F32, 1, heads));
    let inputs = [
        r.slice("q_nope", q, 0, dn)?,
        r.slice("q_pe", q, dn, dr)?,
        r.slice("c", kv, 0, rank)?,
        r.slice("k_pe", kv, rank, dr)?,
        chosen.1,
    ];
    r.latent_attention("attn", at, inputs)
}

fn latent_of(r: &Recorder, case: &Case) -> Result<ValueId> {
    let x = input(r, 48)?;
    latent(r, x, case.record(r, x)?, GgmlType::F32)
}

/// Attention over keys and values by what an indexer chose, for all key-value heads or for each.
fn of_heads(r: &Recorder, x: ValueId, (select, chosen): (Selection, ValueId)) -> Result<ValueId> {
    let groups = r.shape(chosen).groups;
    let (n_kv_heads, dim) = (if groups == 1 { 2 } else { groups }, 32);
    let cols = r.shape(x).cols();
    let heads = |name: &str, n: usize| {
        let w = weight(r, &format!("heads_{name}.weight"), GgmlType::F32, n * dim, cols);
        r.view(name, r.linear(&format!("{name}_all"), x, w)?, n)
    };
    let kind = CacheKind::Heads { n_kv_heads, key_dim: dim, value_dim: dim, window: None };
    let cache = r.cache(CacheSpec { layer: 0, kind });
    let (pairs, scaling) = (RopePairs::HalfSplit, RopeScaling::None);
    let rope = Rope { pairs, dims: 16, theta: 1e4, scaling, factors: None };
    let mut at = Attention::causal(cache, Some(rope), 0.2);
    at.select = Some(select);
    at.score.sinks = Some(weight(r, "heads_sinks", GgmlType::F32, 1, 3 * n_kv_heads));
    let inputs = [heads("q", 3 * n_kv_heads)?, heads("k", n_kv_heads)?, heads("v", n_kv_heads)?];
    r.attention("attn", at, &[inputs[0], inputs[1], inputs[2], chosen])
}

fn heads_of(r: &Recorder, case: &Case) -> Result<ValueId> {
    let x = input(r, 48)?;
    of_heads(r, x, case.record(r, x)?)
}

pub(super) fn attention(executor: &dyn Executor) {
    for case in CASES {
        let what = format!("attention by {case:?}");
        fed(executor, 1e-9, (&what, &case), |r| heads_of(r, &case));
    }
}

pub(super) fn latent_attention(executor: &dyn Executor) {
    for case in CASES.iter().filter(|case| case.score == IndexScore::Weighted) {
        let what = format!("latent attention by {case:?}");
        fed(executor, 1e-9, (&what, case), |r| latent_of(r, case));
    }
}

/// A prompt that is known to be one, whose first rows read all and may be computed in another way.
pub(super) fn prompts(executor: &dyn Executor) {
    let latent = [CASES[0], CASES[3], CASES[6], CASES[8]].map(|case| (case, true));
    let heads = [CASES[0], CASES[4], CASES[7]].map(|case| (case, false));
    for (case, is_latent) in latent.into_iter().chain(heads) {
        let record =
            |r: &Recorder| if is_latent { latent_of(r, &case) } else { heads_of(r, &case) };
        let made = Made::new(executor, &program(record), 11);
        let tokens = Random::new(3).tokens(400, super::ops::VOCAB);
        let found = prompt_logits(&*made.tested, &EXACT, &tokens, 400);
        let want = all_logits(&*made.oracle, &EXACT, &tokens, 400);
        assert_close(&found, &want, 1e-9, &format!("a prompt by {case:?}"));
        for chunk in [1, 64, 150] {
            let cut = prompt_logits(&*made.tested, &EXACT, &tokens, chunk);
            assert_same_bits(&cut, &found, &format!("chunks of {chunk} by {case:?}"));
        }
    }
}

/// Two layers that read by one choice, the second latents where the choice is one for all heads.
fn model(case: &Case, ty: GgmlType) -> Arc<Program> {
    program(|r| {
        let mut x = r.embed(weight(r, "token_embd.weight", GgmlType::F32, 97, 64))?;
        let chosen = case.record(r, x)?;
        for i in 0..2 {
            r.layer(Some(i));
            let y = if i == 1 && case.score == IndexScore::Weighted {
                latent(r, x, chosen, ty)?
            } else {
                of_heads(r, x, chosen)?
            };
            let (cols, width) = (r.shape(x).cols(), r.shape(y).cols());
            x = r.add(
                "sum",
                x,
                r.linear("out", y, weight(r, &format!("out{i}.weight"), ty, cols, width))?,
            )?;
        }
        r.layer(None);
        r.linear("logits", x, weight(r, "logits.weight", ty, 97, 64))
    })
}

/// Cuts, rollbacks, forks, prefixes and batches.
pub(super) fn in_sessions(executor: &dyn Executor) {
    for case in [CASES[0], CASES[4], CASES[8], CASES[10]] {
        let program = |ty| model(&case, ty);
        let name = format!("{case:?}");
        let subject = Subject { name: &name, types: &[GgmlType::Q8_0], program: &program };
        sessions::chunks_in(executor, &subject);
        sessions::rollback_in(executor, &subject);
        sessions::fork_in(executor, &subject);
        sessions::reuse_in(executor, &subject);
        sessions::together_in(executor, &subject);
    }
}
