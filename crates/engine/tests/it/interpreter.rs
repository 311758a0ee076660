//! The engine on a real, if tiny, transformer: what comes from the cache equals what is computed anew, to the bit.

#![allow(clippy::unwrap_used, reason = "a test stops at its first surprise")]

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, LazyLock};

use engine::{
    Conversation, PerplexityOptions, Reasoning, ReplyOptions, Request, Sampler, SamplerOptions,
    Session, generate, perplexity,
};
use program::interpreter::Interpreter;
use program::{
    Attention, CacheKind, CacheSpec, Executor, Model, OutputKind, Program, Recorder, Rope,
    RopePairs, RopeScaling, WeightSource, WeightSpec, read_memory,
};
use quant::GgmlType;

use crate::common::{ToyFormat, VOCAB, cache};

const HIDDEN: usize = 16;
static GO: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);

/// One layer of attention between an embedding and its transpose.
fn record() -> program::Result<Program> {
    let r = Recorder::new();
    let weight = |name: &str, rows, cols| {
        r.weight(WeightSpec { name: name.into(), ty: GgmlType::F32, rows, cols, start: 0 })
    };
    let embed = weight("token_embd", VOCAB, HIDDEN);
    let norm = weight("attn_norm", 1, HIDDEN);
    let qkv =
        [weight("q", HIDDEN, HIDDEN), weight("k", HIDDEN, HIDDEN), weight("v", HIDDEN, HIDDEN)];
    let kv = r.cache(CacheSpec {
        layer: 0,
        kind: CacheKind::Heads { n_kv_heads: 2, key_dim: 8, value_dim: 8, window: None },
    });
    let rope = Rope {
        pairs: RopePairs::HalfSplit,
        dims: 8,
        theta: 1e4,
        scaling: RopeScaling::None,
        factors: None,
    };
    let x = r.embed(embed)?;
    let h = r.rms_norm("attn_norm", x, norm, 1e-6)?;
    let mut heads = Vec::new();
    for (name, weight) in ["q", "k", "v"].into_iter().zip(qkv) {
        heads.push(r.view(name, r.linear(name, h, weight)?, 2)?);
    }
    let at = Attention::causal(kv, Some(rope), 8f32.sqrt().recip());
    let a = r.attention("attn", at, &heads)?;
    let x = r.select_rows("rows", r.add("residual", x, a)?)?;
    let logits = r.linear("output", x, embed)?;
    Ok(r.finish(&[(OutputKind::Logits, logits)]))
}

/// Weights that depend on the tensor's name only.
struct Random(Vec<(String, Vec<u8>)>);

impl Random {
    fn new(program: &Program) -> Random {
        let fill = |spec: &WeightSpec| {
            let mut state = spec.name.bytes().fold(99u32, |s, b| s.wrapping_mul(31) + u32::from(b));
            let numbers = (0..spec.rows * spec.cols).flat_map(|_| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                ((state >> 8) as f32 / (1 << 23) as f32 - 1.0).to_le_bytes()
            });
            (spec.name.clone(), numbers.collect())
        };
        Random(program.weights.iter().map(fill).collect())
    }
}

impl WeightSource for Random {
    fn read(&self, spec: &WeightSpec, first: usize, out: &mut [u8]) -> program::Result<()> {
        let found = self.0.iter().find(|(name, _)| *name == spec.name);
        read_memory(&found.expect("made from the same program").1, spec, first, out)
    }
}

fn model() -> Arc<dyn Model> {
    let program = Arc::new(record().unwrap());
    let weights = Random::new(&program);
    Interpreter.load(program, &weights, &mut |_| ()).unwrap().into()
}

fn bits(logits: &[f32]) -> Vec<u32> {
    logits.iter().map(|x| x.to_bits()).collect()
}

#[test]
fn the_second_turn_of_a_long_chat_is_bit_equal_to_a_cold_run() {
    let model = model();
    let session = Session::new(Arc::clone(&model), cache(2600), 512).unwrap();
    let mut conversation = Conversation::new(session, Arc::new(ToyFormat::default()));
    let mut sampler =
        Sampler::new(SamplerOptions { seed: Some(1), ..SamplerOptions::default() }).unwrap();
    let options = ReplyOptions {
        full: engine::FullContext::Stop,
        max_tokens: Some(40),
        stop: &[],
        ignore_eog: false,
        reasoning: Reasoning::Auto,
        cancel: &GO,
    };
    let long = "the whole story, told at length. ".repeat(65);
    let first = conversation.say(long, &mut sampler, &options, &mut |_| ()).unwrap();
    assert!(first.stats.prompt_tokens > 1900 && first.stats.cached_tokens == 0);
    let second = conversation.say("and then?", &mut sampler, &options, &mut |_| ()).unwrap();
    let computed = second.stats.prompt_tokens - second.stats.cached_tokens;
    assert!(computed < 100, "{computed} tokens computed in the second turn");

    let tokens = conversation.session().tokens();
    let warm =
        conversation.session().fork(tokens.len()).unwrap().feed(tokens, &GO, &mut |_| ()).unwrap();
    let mut cold = Session::new(model, cache(2600), 64).unwrap();
    let cold = cold.feed(tokens, &GO, &mut |_| ()).unwrap();
    assert_eq!((warm.computed, cold.computed), (1, tokens.len()));
    assert_eq!(bits(&warm.logits.unwrap()), bits(&cold.logits.unwrap()));
}

#[test]
fn a_seed_gives_one_text_for_every_chunk() {
    let model = model();
    let prompt: Vec<u32> = (40..90).collect();
    let request = Request {
        prompt: &prompt,
        max_tokens: Some(20),
        stop: &[],
        ignore_eog: true,
        split_thoughts: false,
        cancel: &GO,
    };
    let texts = [1, 7, 64].map(|chunk| {
        let mut session = Session::new(Arc::clone(&model), cache(100), chunk).unwrap();
        let options = SamplerOptions { seed: Some(5), ..SamplerOptions::default() };
        let mut sampler = Sampler::new(options).unwrap();
        let format = ToyFormat::default();
        generate(&mut session, &mut sampler, &format, &request, &mut |_| ()).unwrap().tokens
    });
    assert_eq!(texts[0].len(), 20);
    assert!(texts.iter().all(|text| *text == texts[0]));
}

#[test]
fn noise_is_as_surprising_as_noise() {
    let tokens: Vec<u32> = (0..300u32).map(|i| i.wrapping_mul(2_654_435_761) >> 24).collect();
    let options = PerplexityOptions { cache: cache(50), bos: None, chunk: 0 };
    let got = perplexity(&model(), options, &tokens, &GO, &mut |_| ()).unwrap().unwrap();
    assert_eq!((got.windows, got.tokens), (6, 6 * 24));
    assert!(got.value > VOCAB as f64 / 2.0, "{got:?}");
}
