//! Certificates of a context memory: what heads truly leave out, beside what was promised.

use std::sync::Arc;

use program::{
    Attention, BlockSharing, CacheKind, CacheOptions, CacheSpec, CacheType, Certificate,
    ContextMemory, Executor, FarPositions, KvPolicy, Model, Program, Score,
};
use quant::GgmlType;

use super::context::SMALL;
use super::ops::{VOCAB, weight};
use crate::made::{all_logits, program};
use crate::{Made, MemoryWeights, Random, assert_close, assert_same_bits};

const HEADS: usize = 4;
const KV_HEADS: usize = 2;
const KEY_DIM: usize = 8;
const VALUE_DIM: usize = 3;
const EPS: f32 = 0.01;
const POSITIONS: usize = 900;

/// Attention alone: queries, keys and values are looked up by token, and all values are ones.
///
/// With a sink, which has no value, a head's output is then the share of what it reads beside the sink's: from those with
/// and without a policy follows what the policy left out.
fn shares(change: fn(&mut Score)) -> Arc<Program> {
    program(|r| {
        let table = |name: &str, heads: usize, dim: usize| {
            let name = format!("token_embd.{name}.weight");
            let rows = r.embed(weight(r, &name, GgmlType::F32, VOCAB, heads * dim))?;
            r.view(&format!("{name}_heads"), rows, heads)
        };
        let qkv = [
            table("q", HEADS, KEY_DIM)?,
            table("k", KV_HEADS, KEY_DIM)?,
            table("v", KV_HEADS, VALUE_DIM)?,
        ];
        let mut score = Score::causal((KEY_DIM as f32).powf(-0.5));
        score.sinks = Some(weight(r, "attn_sinks.weight", GgmlType::F32, 1, HEADS));
        change(&mut score);
        let kind = CacheKind::Heads {
            n_kv_heads: KV_HEADS,
            key_dim: KEY_DIM,
            value_dim: VALUE_DIM,
            window: None,
        };
        let cache = r.cache(CacheSpec { layer: 0, kind });
        let at = Attention { cache, appends: true, rope: None, norm: None, score, select: None };
        r.attention("attn", at, &qkv)
    })
}

fn weights(program: &Program, random: &mut Random) -> MemoryWeights {
    let mut weights = MemoryWeights::random(program, 1);
    for spec in &program.weights {
        let mut value = || match spec.name.as_str() {
            "token_embd.v.weight" => 1.0,
            "attn_sinks.weight" => 9.0 + 2.0 * random.normal(),
            _ => 2.0 * random.normal(),
        };
        let values: Vec<f32> = (0..spec.rows * spec.cols).map(|_| value() as f32).collect();
        weights.set(spec, &values);
    }
    weights
}

/// Stretches of some length have a few tokens each, as texts have topics.
fn topics(random: &mut Random) -> Vec<u32> {
    let mut tokens = Vec::new();
    while tokens.len() < POSITIONS {
        let few: Vec<u32> = (0..2).map(|_| random.below(VOCAB) as u32).collect();
        let n = 40 + random.below(120);
        tokens.extend((0..n).map(|_| few[random.below(few.len())]));
    }
    tokens.truncate(POSITIONS);
    tokens
}

/// What heads left out.
#[derive(Default)]
struct Sample {
    heads: usize,
    /// Heads that left something out that can be told.
    some: usize,
    sum: f64,
    most: f64,
}

impl Sample {
    /// A head's shares with a policy and with all.
    fn add(&mut self, few: f32, all: f32, bound: f64, what: &str) {
        let [few, all] = [few, all].map(|share| 1.0 - f64::from(share));
        // where the sink has nearly nothing its share is all rounding
        if few < 0.01 {
            return;
        }
        let left = 1.0 - all / few;
        assert!(left <= bound + 3e-5, "{what}: {left} left out, promised {bound}");
        self.heads += 1;
        self.some += usize::from(left > 1e-4);
        self.sum += left;
        self.most = self.most.max(left);
    }
}

/// A program of peaked attention, its weights, a text for it, and a policy.
fn case(executor: &dyn Executor, seed: usize) -> (Made, Vec<u32>, ContextMemory) {
    let changes: [fn(&mut Score); 3] =
        [|_| (), |score| score.softcap = Some(9.0), |score| score.alibi = Some(8.0)];
    let random = &mut Random::new(seed as u64 + 1);
    let program = shares(changes[seed % 3]);
    let made = Made::with(executor, &program, &weights(&program, random));
    let leans = seed % 3 == 2;
    let memory = ContextMemory {
        n_init: 0,
        n_local: 64,
        n_blocks: seed as u32 % 2,
        positions: FarPositions::ALL[usize::from(leans || seed.is_multiple_of(2))],
        sharing: BlockSharing::ALL[seed / 2 % 2],
        certificate: Certificate::new(EPS),
        ..SMALL
    };
    (made, topics(random), memory)
}

fn outputs(model: &dyn Model, policy: KvPolicy, tokens: &[u32], chunk: usize) -> Vec<f32> {
    let exact = CacheOptions::new(CacheType::F32, CacheType::F32, 1024);
    all_logits(model, &CacheOptions { policy, ..exact }, tokens, chunk)
}

/// Where something is left out, it is what the interpreter leaves out, and the same however a text is cut.
pub(super) fn cuts(executor: &dyn Executor) {
    let mut leaving = 0;
    for seed in 0..6 {
        let (made, tokens, memory) = case(executor, seed);
        let few = |model: &dyn Model, chunk| {
            outputs(model, KvPolicy::Memory(memory), &tokens[..600], chunk)
        };
        let want = few(&*made.tested, 600);
        assert_close(&want, &few(&*made.oracle, 600), 1e-9, &format!("{memory}, seed {seed}"));
        let all = outputs(&*made.tested, KvPolicy::Full, &tokens[..600], 600);
        leaving += usize::from(want != all);
        for chunk in [1, 7, 64, 129] {
            let what = format!("chunks of {chunk}, seed {seed}");
            assert_same_bits(&few(&*made.tested, chunk), &want, &what);
        }
    }
    assert!(leaving > 3, "something is left out in {leaving} of 6");
}

/// Of many heads, none leaves out more than its certificate says, and many leave something out. `ROOFLIGHT_HEADS` says of
/// how many.
pub(super) fn left_out(executor: &dyn Executor) {
    let wanted = std::env::var("ROOFLIGHT_HEADS").ok().and_then(|n| n.parse().ok());
    let wanted: usize = wanted.unwrap_or(4_000);
    let bound = f64::from(EPS / (1.0 + EPS));
    let mut sample = Sample::default();
    let mut seed = 0;
    while sample.heads < wanted {
        let (made, tokens, memory) = case(executor, seed);
        let all = outputs(&*made.tested, KvPolicy::Full, &tokens, 200);
        let few = outputs(&*made.tested, KvPolicy::Memory(memory), &tokens, 200);
        for (row, (few, all)) in
            few.chunks_exact(VALUE_DIM).zip(all.chunks_exact(VALUE_DIM)).enumerate()
        {
            if memory.chooses(row / HEADS) {
                let what = format!("head {} of row {}, seed {seed}", row % HEADS, row / HEADS);
                sample.add(few[0], all[0], bound, &what);
            }
        }
        seed += 1;
    }
    let Sample { heads, some, sum, most } = sample;
    let mean = sum / heads as f64;
    eprintln!(
        "{heads} heads with eps {EPS}: at most {most:.5} left out (promised {bound:.5}), {mean:.6} on average, something in {some}"
    );
    assert!(some * 40 > heads, "only {some} of {heads} heads leave something out");
}
