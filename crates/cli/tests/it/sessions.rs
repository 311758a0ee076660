//! Sessions on the CPU executor: what a person's second turn costs, and that it changes no bit.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use conformance::{MemoryWeights, Random, golden, tiny_config, tiny_model};
use engine::{Fed, Sampler, SamplerOptions, Session};
use executors::ExecutorOptions;
use gguf::Gguf;
use models::GgufWeights;
use program::{CacheOptions, CacheType, Model};
use quant::GgmlType;

fn model(threads: usize) -> Arc<dyn Model> {
    let program = tiny_model(&tiny_config("qwen2", 64, true), GgmlType::Q8_0);
    let weights = MemoryWeights::random(&program, 5);
    let cpu = ExecutorOptions { threads: Some(threads), ..Default::default() }
        .start()
        .expect("it starts");
    Arc::from(cpu.load(program, &weights, &mut |_| ()).expect("it loads"))
}

fn session(model: &Arc<dyn Model>, chunk: usize) -> Session {
    let cache = CacheOptions::new(CacheType::F16, CacheType::Q8_0, 4096);
    Session::new(Arc::clone(model), cache, chunk).expect("it opens")
}

fn feed(session: &mut Session, tokens: &[u32]) -> Fed {
    session.feed(tokens, &AtomicBool::new(false), &mut |_| ()).expect("it fits")
}

fn same_bits(a: &[f32], b: &[f32]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.to_bits() == b.to_bits())
}

/// A first turn of 2,000 tokens, a sampled reply, a second turn: only the new tokens are computed, and the logits are
/// those of a session that sees all of it for the first time.
#[test]
fn the_second_turn_computes_only_what_is_new() {
    let mut chat = session(&model(2), 512);
    let mut text = Random::new(1).tokens(2000, 97);
    let mut logits = feed(&mut chat, &text).logits.expect("not cancelled");
    let mut sampler = Sampler::new(SamplerOptions { seed: Some(3), ..SamplerOptions::default() })
        .expect("defaults");
    for _ in 0..40 {
        let token = sampler.sample_scores(&logits, &text).expect("finite logits");
        text.push(token);
        logits = chat.step(token).expect("it fits");
    }
    text.extend(Random::new(2).tokens(60, 97));
    let second = feed(&mut chat, &text);
    assert!(second.computed < 100, "{} tokens computed", second.computed);
    assert_eq!(second.cached + second.computed, text.len());
    // a model that has seen nothing: another session of this one would find the prefix
    let cold = feed(&mut session(&model(2), 512), &text);
    assert_eq!(cold.computed, text.len());
    assert!(same_bits(
        &second.logits.expect("not cancelled"),
        &cold.logits.expect("not cancelled")
    ));
}

/// Two chats that begin with the same system prompt: the second computes what it does not share, to the same bits.
#[test]
fn chats_share_a_system_prompt() {
    let shared = model(2);
    let system = Random::new(4).tokens(900, 97);
    let texts = [5, 6].map(|seed| [system.clone(), Random::new(seed).tokens(50, 97)].concat());
    let mut first = session(&shared, 512);
    feed(&mut first, &texts[0]);
    let second = feed(&mut session(&shared, 512), &texts[1]);
    assert_eq!((second.cached, second.computed), (896, 54), "whole blocks are shared");
    let cold = feed(&mut session(&model(2), 512), &texts[1]);
    assert_eq!((cold.cached, cold.computed), (0, 950));
    assert!(same_bits(
        &second.logits.expect("not cancelled"),
        &cold.logits.expect("not cancelled")
    ));
}

/// One seed gives one text for any number of threads and any cut of the prompt.
#[test]
fn threads_and_chunks_change_no_token() {
    let prompt = Random::new(7).tokens(300, 97);
    let reply = |threads, chunk| {
        let mut session = session(&model(threads), chunk);
        let mut text = prompt.clone();
        let mut logits = feed(&mut session, &text).logits.expect("not cancelled");
        let mut sampler =
            Sampler::new(SamplerOptions { seed: Some(11), ..SamplerOptions::default() })
                .expect("defaults");
        for _ in 0..30 {
            let token = sampler.sample_scores(&logits, &text).expect("finite logits");
            text.push(token);
            logits = session.step(token).expect("it fits");
        }
        (text, logits)
    };
    let (text, logits) = reply(1, 512);
    for (threads, chunk) in [(2, 512), (1, 1), (2, 7), (2, 64), (3, 100)] {
        let (other, other_logits) = reply(threads, chunk);
        assert_eq!(other, text, "{threads} threads, chunks of {chunk}");
        assert!(same_bits(&other_logits, &logits), "{threads} threads, chunks of {chunk}");
    }
}

/// Models that recur: states alone, and beside attention; large states, and large rows.
const RECURRENT: [&str; 4] = ["mamba2", "qwen35", "rwkv7", "lfm2"];

fn recurrent(name: &str) -> Arc<dyn Model> {
    let gguf = Gguf::from_bytes(golden::model(name)).expect("a model that was made");
    let program = models::load(&gguf).expect("a model that is supported").program;
    let cpu = ExecutorOptions { threads: Some(2), ..Default::default() };
    let cpu = cpu.start().expect("it starts");
    Arc::from(cpu.load(program, &GgufWeights(&gguf), &mut |_| ()).expect("it loads"))
}

/// A chat of 2,000 tokens with a model that recurs: its second turn, a reply begun anew, a question asked otherwise and a
/// reply that is forgotten compute little again, and every one has the bits of a session that starts there.
#[test]
fn turns_of_models_that_recur_compute_little_again() {
    for name in RECURRENT {
        let model = recurrent(name);
        let mut chat = session(&model, 512);
        let first = Random::new(1).tokens(2000, 500);
        let mut text = first.clone();
        let mut go_on = |what: &str, text: &[u32], most: usize| {
            let fed = feed(&mut chat, text);
            assert!(fed.computed <= most, "{name}, {what}: {} tokens computed", fed.computed);
            // sessions with states share nothing but with forks
            let cold = feed(&mut session(&model, 512), text);
            assert_eq!((cold.cached, cold.computed), (0, text.len()));
            let [found, want] = [fed, cold].map(|fed| fed.logits.expect("not cancelled"));
            assert!(same_bits(&found, &want), "{name}, {what}");
            // a reply of made-up tokens: what matters is where they stand
            let reply = Random::new(text.len() as u64).tokens(150, 500);
            reply.iter().for_each(|token| drop(chat.step(*token).expect("it fits")));
            [text, &reply].concat()
        };
        text = go_on("the first turn", &text, 2000);
        let begun = [&text[..], &Random::new(2).tokens(60, 500)].concat();
        go_on("the second turn", &begun, 60);
        go_on("its reply anew", &begun, 17);
        let edited = [&text[..], &Random::new(3).tokens(50, 500)].concat();
        text = go_on("another question", &edited, 50 + 32);
        text.extend(Random::new(4).tokens(7, 500));
        text = go_on("a third turn, of few tokens", &text, 7);
        let forgotten = [&first[..], &Random::new(5).tokens(40, 500)].concat();
        go_on("the first reply forgotten", &forgotten, 40 + 300);
    }
}
