//! The bundled model says on a device what the interpreter says, but where its two likeliest tokens are closer than what
//! rounding decides.

use std::path::Path;

use conformance::{Random, nmse};
use gguf::Gguf;
use models::GgufWeights;
use program::interpreter::Interpreter;
use program::{
    CacheOptions, CacheType, Executor, Model, Outputs, Sequence, SessionId, Step, StepOut,
};

use crate::device;

const CACHE: CacheOptions = CacheOptions::new(CacheType::F16, CacheType::F16, 256);
const PROMPTS: u64 = 50;
const REPLY: usize = 6;

fn load(gguf: &Gguf, executor: &dyn Executor) -> Box<dyn Model> {
    let program = models::load(gguf).expect("the bundled model is sound").program;
    let model = executor.load(program, &GgufWeights(gguf), &mut |_| ());
    model.unwrap_or_else(|e| panic!("{}: {e}", executor.describe()))
}

fn last_logits(model: &dyn Model, session: SessionId, tokens: &[u32]) -> Vec<f32> {
    let sequence = Sequence { session, tokens, outputs: Outputs::LAST, prompt: None, rows: &[] };
    let out = model.step(&Step { sequences: &[sequence] }).and_then(StepOut::single);
    out.expect("a step").into_logits().logits
}

/// The token with the greatest logit, of equals the first.
fn best(logits: &[f32]) -> usize {
    (0..logits.len()).fold(0, |best, i| if logits[i] > logits[best] { i } else { best })
}

#[test]
fn the_bundled_model_says_the_same() {
    let Some(device) = device() else { return };
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../assets/rooflight-demo-5m-q8_0.gguf");
    let gguf = Gguf::open(&path).expect("the bundled model is in the checkout");
    let (gpu, oracle) = (load(&gguf, device), load(&gguf, &Interpreter));
    let vocab_size = oracle.program().vocab_size();
    let mut parted = 0;
    for seed in 0..PROMPTS {
        let random = &mut Random::new(seed);
        let n = 2 + random.below(10);
        let mut tokens = random.tokens(n, vocab_size);
        let sessions = [&gpu, &oracle].map(|model| model.open(&CACHE).expect("a session opens"));
        for _ in 0..REPLY {
            let found = last_logits(&*gpu, sessions[0], &tokens);
            let want = last_logits(&*oracle, sessions[1], &tokens);
            // keys and values of the device are half floats
            let error = nmse(&found, &want);
            assert!(error <= 1e-5, "prompt {seed}: NMSE {error:e}");
            let (chosen, token) = (best(&found), best(&want));
            if chosen != token {
                let off = |token: usize| (found[token] - want[token]).abs();
                let lost = want[token] - want[chosen];
                assert!(lost <= off(token) + off(chosen), "prompt {seed}: {chosen}, not {token}");
                parted += 1;
                break;
            }
            tokens = vec![token as u32];
        }
        gpu.close(sessions[0]);
        oracle.close(sessions[1]);
    }
    assert!(parted <= 2, "{parted} of {PROMPTS} replies part");
}
