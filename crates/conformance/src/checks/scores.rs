//! Attention with all that a score can ask: masks, softcap, sinks, temperature, ALiBi, caches read by several layers.

use std::sync::Arc;

use program::{
    Act, Attention, CacheId, CacheKind, CacheSpec, Error, Executor, LinearWeight, Mask, Model,
    Outputs, Program, Recorder, Result, Rope, RopePairs, RopeScaling, RotatedNorm, Score, Sequence,
    SessionId, Step, StepOut, Temperature, ValueId,
};
use quant::GgmlType;

use super::ops::{VOCAB, input, weight};
use super::sessions::{self, Subject};
use crate::made::{EXACT, Made, feed, program};
use crate::{Random, assert_close};

const HIDDEN: usize = 48;

/// Query heads, key-value heads, widths of keys and of values.
pub(super) type Heads = [usize; 4];

/// Groups of 1, 3, 5 and 7 query heads, widths that fill no vector.
const HEADS: [Heads; 5] =
    [[1, 1, 8, 8], [6, 2, 33, 17], [5, 1, 20, 20], [14, 2, 64, 64], [3, 3, 24, 40]];

pub(super) const MASKS: [Mask; 7] = [
    Mask::Window(1),
    Mask::Window(7),
    Mask::Window(100),
    Mask::Window(300),
    Mask::Chunk(7),
    Mask::Chunk(100),
    Mask::Chunk(300),
];

/// What a case changes of a causal score; it may name weights for so many heads.
pub(super) type Change<'a> = &'a dyn Fn(&Recorder, usize, &mut Score);

pub(super) fn sinks(r: &Recorder, n_heads: usize, score: &mut Score) {
    score.sinks = Some(weight(r, "attn_sinks.weight", GgmlType::F32, 1, n_heads));
}

const TEMPERATURE: Temperature = Temperature { beta: 0.7, floor: 50.0, offset: 1.0 };

/// Each field beside a mask, and all of them together.
pub(super) fn fields() -> Vec<(&'static str, Change<'static>)> {
    vec![
        ("softcap", &|_, _, score| score.softcap = Some(0.5)),
        ("loose softcap", &|_, _, score| score.softcap = Some(50.0)),
        ("sinks", &sinks),
        ("temperature", &|_, _, score| score.temperature = Some(TEMPERATURE)),
        ("alibi", &|_, _, score| score.alibi = Some(8.0)),
        ("all", &|r, n_heads, score| {
            sinks(r, n_heads, score);
            *score = Score {
                mask: Mask::Window(100),
                softcap: Some(2.0),
                temperature: Some(TEMPERATURE),
                alibi: Some(8.0),
                ..score.clone()
            };
        }),
    ]
}

fn rope(dims: usize) -> Rope {
    let (pairs, scaling) = (RopePairs::HalfSplit, RopeScaling::None);
    Rope { pairs, dims, theta: 1e4, scaling, factors: None }
}

fn heads(r: &Recorder, name: &str, x: ValueId, n: usize, dim: usize) -> Result<ValueId> {
    let cols = r.shape(x).cols();
    let w = weight(r, &format!("{name}.weight"), GgmlType::F32, n * dim, cols);
    r.view(&format!("{name}_heads"), r.linear(name, x, w)?, n)
}

fn score(r: &Recorder, [n_heads, _, key_dim, _]: Heads, change: Change<'_>) -> Score {
    let mut score = Score::causal((key_dim as f32).powf(-0.5));
    change(r, n_heads, &mut score);
    score
}

fn layer(r: &Recorder, shape: Heads, rotated: bool, change: Change<'_>) -> Result<ValueId> {
    let [n_heads, n_kv_heads, key_dim, value_dim] = shape;
    let x = input(r, HIDDEN)?;
    let qkv = [
        heads(r, "q", x, n_heads, key_dim)?,
        heads(r, "k", x, n_kv_heads, key_dim)?,
        heads(r, "v", x, n_kv_heads, value_dim)?,
    ];
    let score = score(r, shape, change);
    // a sliding window keeps no more than it sees
    let window = match score.mask {
        Mask::Window(n) => Some(n as usize),
        Mask::Causal | Mask::Chunk(_) | Mask::Full | Mask::Around(_) => None,
    };
    let kind = CacheKind::Heads { n_kv_heads, key_dim, value_dim, window };
    let cache = r.cache(CacheSpec { layer: 0, kind });
    let rope = rotated.then(|| rope(key_dim / 2 * 2));
    // where keys are not as wide as values, heads are normed too
    let norm = (rotated && key_dim > value_dim).then(|| {
        let [q, k] = ["q_norm.weight", "k_norm.weight"]
            .map(|name| weight(r, name, GgmlType::F32, 1, key_dim));
        // and where there are as many, one of them without factors
        RotatedNorm { q: Some(q), k: (n_kv_heads > 1).then_some(k), eps: 1e-6 }
    });
    let at = Attention { cache, appends: true, rope, norm, score, select: None };
    r.attention("attn", at, &qkv)
}

/// A prompt, a chunk, then single tokens, across several blocks of a cache.
fn fed(model: &dyn Model) -> Vec<f32> {
    let tokens = Random::new(5).tokens(432, VOCAB);
    let session = model.open(&EXACT).expect("a session opens");
    let (prompt, rest) = tokens.split_at(380);
    let mut out = feed(model, session, prompt, Outputs::ALL);
    let (chunk, singles) = rest.split_at(40);
    out.extend(feed(model, session, chunk, Outputs::ALL));
    out.extend(singles.iter().flat_map(|&token| feed(model, session, &[token], Outputs::ALL)));
    out
}

/// Against the interpreter, fed in pieces, then several sequences in one step.
pub(super) fn compare(executor: &dyn Executor, what: &str, program: &Arc<Program>) {
    let made = Made::new(executor, program, 11);
    assert_close(&fed(&*made.tested), &fed(&*made.oracle), 1e-9, what);
    let together = |model: &dyn Model| {
        let sessions: Vec<SessionId> =
            (0..3).map(|_| model.open(&EXACT).expect("a session opens")).collect();
        let mut out = Vec::new();
        for lens in [[3, 130, 260], [1, 1, 1], [5, 1, 2]] {
            let tokens = lens.map(|n| Random::new(n as u64).tokens(n, VOCAB));
            let sequence = |i: usize| Sequence {
                session: sessions[i],
                tokens: &tokens[i],
                outputs: Outputs::ALL,
                prompt: None,
                rows: &[],
            };
            let step = [0, 1, 2].map(sequence);
            let rows = model.step(&Step { sequences: &step }).and_then(StepOut::all);
            let rows = rows.expect("three sequences").into_iter();
            out.extend(rows.flat_map(|rows| rows.into_logits().logits));
        }
        out
    };
    let what = format!("{what}, three sequences");
    assert_close(&together(&*made.tested), &together(&*made.oracle), 1e-9, &what);
}

pub(super) fn masks(executor: &dyn Executor) {
    for (i, mask) in MASKS.into_iter().enumerate() {
        for shape in [HEADS[i % 5], HEADS[(i + 2) % 5]] {
            let program =
                program(|r| layer(r, shape, i % 2 == 0, &|_, _, score| score.mask = mask));
            compare(executor, &format!("attention {shape:?}, {mask:?}"), &program);
        }
    }
}

pub(super) fn each_field(executor: &dyn Executor) {
    for (i, (name, change)) in fields().into_iter().enumerate() {
        for shape in [HEADS[i % 5], HEADS[(i + 3) % 5]] {
            let program = program(|r| layer(r, shape, name != "alibi", change));
            compare(executor, &format!("attention {shape:?}, {name}"), &program);
        }
    }
}

/// A layer without keys and values reads the cache of the layer before, with a mask and rotation of its own.
pub(super) fn shared(executor: &dyn Executor) {
    for (shape, n_heads) in [([6, 2, 33, 17], 6), ([4, 1, 20, 20], 7), ([2, 2, 32, 32], 10)] {
        let [_, n_kv_heads, key_dim, value_dim] = shape;
        let program = program(|r| {
            let first = layer(r, shape, true, &|_, _, _| ())?;
            let q = heads(r, "q2", first, n_heads, key_dim)?;
            let at = Attention {
                cache: CacheId(0),
                appends: false,
                rope: (n_heads != 7).then(|| rope(key_dim / 4 * 2)),
                norm: None,
                select: None,
                score: score(r, [n_heads, n_kv_heads, key_dim, value_dim], &|r, n, score| {
                    score.mask = Mask::Window(70);
                    sinks(r, n, score);
                }),
            };
            r.attention("second", at, &[q])
        });
        compare(executor, &format!("a cache of {shape:?} read again by {n_heads} heads"), &program);
    }
}

/// Queries that see later rows of their sequence, too.
pub(super) fn full(executor: &dyn Executor) {
    let masks = [Mask::Full, Mask::Around(0), Mask::Around(3), Mask::Around(64), Mask::Around(190)];
    let cases = masks.into_iter().flat_map(|mask| {
        [
            ([6, 2, 33, 17], mask, None),
            ([2, 2, 64, 64], mask, None),
            ([6, 2, 33, 17], mask, Some(8.0)),
        ]
    });
    for (shape, mask, alibi) in cases {
        let program = program(|r| {
            layer(r, shape, alibi.is_none(), &|_, _, score| {
                (score.mask, score.alibi) = (mask, alibi)
            })
        });
        let made = Made::new(executor, &program, 11);
        for n in [1, 5, 300] {
            let tokens = Random::new(n as u64).tokens(n, VOCAB);
            let run = |model: &dyn Model| {
                let session = model.open(&EXACT).expect("a session opens");
                let out = feed(model, session, &tokens, Outputs::ALL);
                let sequence = Sequence {
                    session,
                    tokens: &[1],
                    outputs: Outputs::LAST,
                    prompt: None,
                    rows: &[],
                };
                let again = model.step(&Step { sequences: &[sequence] }).and_then(StepOut::single);
                assert!(
                    matches!(again, Err(Error::Operand { .. })),
                    "a second step where queries see all rows: {again:?}"
                );
                assert_eq!(model.len(session).expect("it is open"), n, "a refused step adds rows");
                out
            };
            let what = format!("attention {shape:?} to {mask:?} of {n} rows, ALiBi {alibi:?}");
            assert_close(&run(&*made.tested), &run(&*made.oracle), 1e-9, &what);
        }
    }
}

/// Three layers with different masks, sinks, softcaps and activations, and a bounded head, in weights of a type.
///
/// With `kept`, the cache of the sliding window holds no more than that.
fn model(ty: GgmlType, kept: Option<usize>) -> Arc<Program> {
    let r = Recorder::new();
    let (width, vocab) = (64, 97);
    let matrix =
        |name: String, rows, cols| -> LinearWeight { weight(&r, &name, ty, rows, cols).into() };
    let vector = |name: String| weight(&r, &name, GgmlType::F32, 1, width);
    let record = || -> Result<ValueId> {
        let mut x = r.embed(weight(&r, "token_embd.weight", GgmlType::F32, vocab, width))?;
        for (i, mask) in [Mask::Window(100), Mask::Causal, Mask::Chunk(90)].into_iter().enumerate()
        {
            r.layer(Some(i));
            let name = |part: &str| format!("blk.{i}.{part}.weight");
            let h = r.rms_norm("attn_norm", x, vector(name("attn_norm")), 1e-6)?;
            let [q, k, v] = [("q", 4), ("k", 2), ("v", 2)].map(|(part, n)| {
                r.view("heads", r.linear(part, h, matrix(name(part), n * 16, width))?, n)
            });
            let window = kept.filter(|_| i == 0);
            let kind = CacheKind::Heads { n_kv_heads: 2, key_dim: 16, value_dim: 16, window };
            let cache = r.cache(CacheSpec { layer: i, kind });
            let mut score = Score { mask, softcap: Some(20.0), ..Score::causal(0.25) };
            if i != 1 {
                score.sinks = Some(weight(&r, &name("attn_sinks"), GgmlType::F32, 1, 4));
            }
            let at = Attention {
                cache,
                appends: true,
                rope: Some(rope(16)),
                norm: None,
                score,
                select: None,
            };
            let a = r.attention("attn", at, &[q?, k?, v?])?;
            x = r.add("attn_residual", x, r.linear("o", a, matrix(name("o"), width, width))?)?;
            let h = r.rms_norm("ffn_norm", x, vector(name("ffn_norm")), 1e-6)?;
            let up = r.linear("up", h, matrix(name("up"), width, width))?;
            let act = if i == 1 {
                r.act("act", Act::Relu2, up)?
            } else {
                let gate = r.linear("gate", h, matrix(name("gate"), width, width))?;
                r.gated_act("act", Act::Gelu, gate, up)?
            };
            let down = r.linear("down", act, matrix(name("down"), width, width))?;
            x = r.add("ffn_residual", x, down)?;
        }
        r.layer(None);
        let x = r.select_rows("rows", x)?;
        let logits = r.linear("output", x, matrix("output.weight".into(), vocab, width))?;
        r.act("logits", Act::Softcap(3.0), logits)
    };
    let logits = record().expect("the check records a valid program");
    Arc::new(r.finish(&[(program::OutputKind::Logits, logits)]))
}

pub(super) fn sessions(executor: &dyn Executor) {
    let subject = Subject {
        name: "windows, sinks and softcaps",
        types: &[GgmlType::Q8_0],
        program: &|ty| model(ty, None),
    };
    sessions::chunks_in(executor, &subject);
    sessions::rollback_in(executor, &subject);
    sessions::fork_in(executor, &subject);
    sessions::reuse_in(executor, &subject);
    sessions::together_in(executor, &subject);
    let subject = Subject {
        name: "a window kept alone",
        types: &[GgmlType::F32],
        program: &|ty| model(ty, Some(100)),
    };
    sessions::chunks_in(executor, &subject);
    sessions::together_in(executor, &subject);
}
