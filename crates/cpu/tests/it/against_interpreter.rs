//! A small decoder on the CPU and in the interpreter: same logits, and the same bits however it is cut.

use std::sync::Arc;

use conformance::{MemoryWeights, nmse};
use cpu::{Cpu, Options};
use program::interpreter::Interpreter;
use program::{
    Act, Attention, CacheKind, CacheOptions, CacheSpec, CacheType, Executor, LinearWeight, Model,
    OutputKind, Outputs, Program, Recorder, Result, Rope, RopePairs, RopeScaling, Sequence, Step,
    StepOut, WeightSpec,
};
use quant::GgmlType;

const HIDDEN: usize = 64;
const VOCAB: usize = 101;

fn decoder(ty: GgmlType, n_heads: usize, n_kv_heads: usize, tied: bool) -> Program {
    let r = Recorder::new();
    let head_dim = 16;
    let weight = |name: &str, ty, rows, cols| {
        r.weight(WeightSpec { name: name.into(), ty, rows, cols, start: 0 })
    };
    let vector = |name: &str, cols| weight(name, GgmlType::F32, 1, cols);
    let table = weight("token_embd", ty, VOCAB, HIDDEN);
    let rope = Rope {
        pairs: RopePairs::HalfSplit,
        dims: head_dim,
        theta: 1e4,
        scaling: RopeScaling::None,
        factors: None,
    };
    let record = || -> Result<_> {
        let mut x = r.embed(table)?;
        for layer in 0..2 {
            r.layer(Some(layer));
            let name = |n: &str| format!("{layer}.{n}");
            let cache = r.cache(CacheSpec {
                layer,
                kind: CacheKind::Heads {
                    n_kv_heads,
                    key_dim: head_dim,
                    value_dim: head_dim,
                    window: None,
                },
            });
            let h = r.rms_norm("attn_norm", x, vector(&name("an"), HIDDEN), 1e-6)?;
            let linear = |n: &str, rows| LinearWeight {
                weight: weight(&name(n), ty, rows, HIDDEN),
                bias: Some(vector(&name(&format!("{n}.bias")), rows)),
            };
            let q = r.linear("q", h, linear("q", n_heads * head_dim))?;
            let k = r.linear("k", h, linear("k", n_kv_heads * head_dim))?;
            let v = r.linear("v", h, linear("v", n_kv_heads * head_dim))?;
            let q = r.view("qh", q, n_heads)?;
            let q =
                if tied { r.rms_norm("qn", q, vector(&name("qn"), head_dim), 1e-6)? } else { q };
            let (k, v) = (r.view("kh", k, n_kv_heads)?, r.view("vh", v, n_kv_heads)?);
            let at = Attention::causal(cache, Some(rope.clone()), 0.25);
            let a = r.attention("attn", at, &[q, k, v])?;
            let o = r.linear("o", a, weight(&name("o"), ty, HIDDEN, n_heads * head_dim))?;
            x = r.add("attn_residual", x, o)?;
            let h = r.rms_norm("ffn_norm", x, vector(&name("fn"), HIDDEN), 1e-6)?;
            let gate = r.linear("gate", h, weight(&name("gate"), ty, 96, HIDDEN))?;
            let up = r.linear("up", h, weight(&name("up"), ty, 96, HIDDEN))?;
            let g = r.gated_act("act", Act::Silu, gate, up)?;
            x = r.add(
                "ffn_residual",
                x,
                r.linear("down", g, weight(&name("down"), ty, HIDDEN, 96))?,
            )?;
        }
        r.layer(None);
        let x = r.select_rows("select", x)?;
        let x = r.rms_norm("output_norm", x, vector("on", HIDDEN), 1e-6)?;
        r.linear("logits", x, if tied { table } else { weight("output", ty, VOCAB, HIDDEN) })
    };
    let logits = record().expect("shapes fit");
    r.finish(&[(OutputKind::Logits, logits)])
}

fn load(executor: &dyn Executor, program: &Program) -> Box<dyn Model> {
    let weights = MemoryWeights::random(program, 1);
    executor.load(Arc::new(program.clone()), &weights, &mut |_| {}).expect("weights fit")
}

/// Logits of all rows, fed `chunk` at a time.
fn logits(model: &dyn Model, tokens: &[u32], chunk: usize, cache: CacheType) -> Vec<f32> {
    let session = model.open(&CacheOptions::new(cache, cache, 4096)).expect("opens");
    let mut all = Vec::new();
    for tokens in tokens.chunks(chunk) {
        let sequence = Sequence { session, tokens, outputs: Outputs::ALL, prompt: None, rows: &[] };
        let out = model.step(&Step { sequences: &[sequence] }).and_then(StepOut::single);
        all.extend(out.expect("steps").into_logits().logits);
    }
    model.close(session);
    all
}

fn tokens(n: usize) -> Vec<u32> {
    (0..n).map(|i| ((i * 37 + 11) % VOCAB) as u32).collect()
}

#[test]
fn equals_the_interpreter() {
    for (ty, bound) in [
        (GgmlType::F32, 1e-10),
        (GgmlType::F16, 1e-10),
        (GgmlType::Q8_0, 1e-3),
        (GgmlType::Q4_0, 1e-3),
    ] {
        for (heads, kv_heads, tied) in [(4, 2, false), (4, 4, true), (6, 1, false)] {
            let program = decoder(ty, heads, kv_heads, tied);
            let want = logits(&*load(&Interpreter, &program), &tokens(300), 300, CacheType::F32);
            let cpu = Cpu::new(&Options { threads: Some(2), isa: None, ..Options::default() });
            let got = logits(&*load(&cpu, &program), &tokens(300), 300, CacheType::F32);
            let error = nmse(&got, &want);
            assert!(error <= bound, "{ty} {heads}/{kv_heads}: NMSE {error:e}");
        }
    }
}

#[test]
fn threads_and_chunks_change_no_bit() {
    for cache in CacheType::ALL {
        let program = decoder(GgmlType::Q8_0, 6, 2, true);
        let tokens = tokens(600);
        let cut = |threads, chunk| {
            let cpu =
                Cpu::new(&Options { threads: Some(threads), isa: None, ..Options::default() });
            logits(&*load(&cpu, &program), &tokens, chunk, cache)
        };
        let whole = cut(1, 600);
        for (threads, chunk) in [(2, 600), (1, 1), (2, 7), (3, 64), (2, 1)] {
            let other = cut(threads, chunk);
            let same = whole.iter().zip(&other).all(|(a, b)| a.to_bits() == b.to_bits());
            assert!(same && whole.len() == other.len(), "{threads} threads, chunks of {chunk}");
        }
    }
}
