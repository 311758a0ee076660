//! Sessions of one model share what they have computed of equal prompts.

#![allow(clippy::unwrap_used, reason = "a test stops at its first surprise")]

use conformance::{Made, Random, tiny_config, tiny_model};
use cpu::{Cpu, MlaChoice, MlaForm, Options};
use program::{CacheOptions, CacheType, Model, Outputs, Sequence, Step, StepOut};
use quant::GgmlType;

const CACHE: CacheOptions = CacheOptions::new(CacheType::F16, CacheType::Q8_0, 1024);

/// Open a session, take over what is known of `tokens`, compute the rest; returns what was gained, and the last logits.
fn feed(model: &dyn Model, tokens: &[u32], close: bool) -> (usize, Vec<f32>) {
    let session = model.open(&CACHE).unwrap();
    let gained = model.reuse(session, &tokens[..tokens.len() - 1]).unwrap();
    let sequence = Sequence {
        session,
        tokens: &tokens[gained..],
        outputs: Outputs::LAST,
        prompt: None,
        rows: &[],
    };
    let out = model.step(&Step { sequences: &[sequence] }).and_then(StepOut::single).unwrap();
    model.commit(session, tokens.len()).unwrap();
    if close {
        model.close(session);
    }
    (gained, out.into_logits().logits)
}

/// What a second session computes of 600 tokens, of which the first 590 are those of another one.
fn second(architecture: &str, mla: MlaChoice) -> usize {
    let cpu = Cpu::new(&Options { threads: Some(2), mla, ..Options::default() });
    let program = tiny_model(&tiny_config(architecture, 64, false), GgmlType::Q8_0);
    let model = Made::new(&cpu, &program, 3).tested;
    let mut tokens = Random::new(1).tokens(600, 97);
    let other = [&tokens[..590], &[1, 2, 3]].concat();
    let (gained, cold) = feed(&*model, &tokens, true);
    assert_eq!(gained, 0, "nobody has computed anything");
    feed(&*model, &other, false);
    let rows = model.stats().rows;
    let (gained, warm) = feed(&*model, &tokens, true);
    assert_eq!(model.stats().rows - rows, 600 - gained as u64);
    assert!(cold == warm, "{architecture}: the bits of a cold session");
    tokens[0] ^= 1;
    assert_eq!(feed(&*model, &tokens, true).0, 0, "another first token");
    gained
}

#[test]
fn equal_prompts_are_computed_once() {
    assert_eq!(second("qwen2", MlaChoice::Auto), 512);
    assert_eq!(second("qwen3moe", MlaChoice::Auto), 512);
}

/// Who must not learn what another said does not learn it by what is there already.
#[test]
fn scopes_share_nothing() {
    let cpu = Cpu::new(&Options { threads: Some(1), ..Options::default() });
    let program = tiny_model(&tiny_config("qwen2", 64, false), GgmlType::Q8_0);
    let model = Made::new(&cpu, &program, 3).tested;
    let tokens = Random::new(1).tokens(600, 97);
    feed(&*model, &tokens, false);
    let gained = |scope| {
        let session = model.open(&CacheOptions { scope, ..CACHE }).unwrap();
        model.reuse(session, &tokens[..599]).unwrap()
    };
    assert_eq!((gained(1), gained(0), gained(2)), (0, 512, 0));
}

/// The form of latent attention decides bits, and follows from the prompt unless it is chosen.
#[test]
fn latents_are_shared_only_where_their_form_is_chosen() {
    assert_eq!(second("deepseek2", MlaChoice::Auto), 0);
    assert_eq!(second("deepseek2", MlaChoice::Always(MlaForm::Elided)), 512);
    assert_eq!(second("deepseek2", MlaChoice::Always(MlaForm::Expanded)), 512);
}
