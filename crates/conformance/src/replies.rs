//! Greedy replies of two executors side by side.

use gguf::Gguf;
use models::GgufWeights;
use program::{
    CacheOptions, CacheType, Executor, Model, Outputs, Result, Sequence, SessionId, Step, StepOut,
};

use crate::{Random, nmse};

/// How the replies of two executors to the same prompts compare.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Replies {
    /// Prompts.
    pub prompts: usize,
    /// Replies that part where the two likeliest tokens are nearer to each other than the executors are.
    pub near_ties: usize,
    /// Replies that part elsewhere: what was chosen, and what by the reference.
    pub wrong: Vec<String>,
    /// The largest error of a row of logits, normalized and squared.
    pub nmse: f64,
}

const CACHE: CacheOptions = CacheOptions::new(CacheType::F16, CacheType::F16, 256);

/// Let `executor` and a `reference` make greedy replies of `reply` tokens to `prompts` prompts of random tokens, until they part.
/// `progress` is told after each.
///
/// # Errors
/// A model that does not load or run.
///
/// # Panics
/// If the file holds no sound model.
pub fn replies(
    gguf: &Gguf,
    executor: &dyn Executor,
    reference: &dyn Executor,
    (prompts, reply): (usize, usize),
    progress: &mut dyn FnMut(),
) -> Result<Replies> {
    let load = |executor: &dyn Executor| {
        let program = models::load(gguf).expect("a sound model").program;
        executor.load(program, &GgufWeights(gguf), &mut |_| ())
    };
    let (model, oracle) = (load(executor)?, load(reference)?);
    let mut replies = Replies { prompts, ..Replies::default() };
    for seed in 0..prompts as u64 {
        let random = &mut Random::new(seed);
        let n = 2 + random.below(10);
        let prompt = random.tokens(n, oracle.program().vocab_size());
        replies.compare([&*model, &*oracle], prompt, reply)?;
        progress();
    }
    Ok(replies)
}

impl Replies {
    fn compare(
        &mut self,
        models: [&dyn Model; 2],
        mut tokens: Vec<u32>,
        reply: usize,
    ) -> Result<()> {
        let sessions = [models[0].open(&CACHE)?, models[1].open(&CACHE)?];
        for _ in 0..reply {
            let found = last_logits(models[0], sessions[0], &tokens)?;
            let want = last_logits(models[1], sessions[1], &tokens)?;
            self.nmse = self.nmse.max(nmse(&found, &want));
            let (chosen, token) = (best(&found), best(&want));
            if chosen != token {
                let off = |token: usize| (found[token] - want[token]).abs();
                if want[token] - want[chosen] <= off(token) + off(chosen) {
                    self.near_ties += 1;
                } else {
                    self.wrong.push(format!("token {chosen} after {tokens:?}, not {token}"));
                }
                break;
            }
            tokens = vec![token as u32];
        }
        models.iter().zip(sessions).for_each(|(model, session)| model.close(session));
        Ok(())
    }
}

fn last_logits(model: &dyn Model, session: SessionId, tokens: &[u32]) -> Result<Vec<f32>> {
    let sequence = Sequence { session, tokens, outputs: Outputs::LAST, prompt: None, rows: &[] };
    let out = model.step(&Step { sequences: &[sequence] }).and_then(StepOut::single)?;
    Ok(out.into_logits().logits)
}

/// The token with the greatest logit, of equals the first.
fn best(logits: &[f32]) -> usize {
    (0..logits.len()).fold(0, |best, i| if logits[i] > logits[best] { i } else { best })
}
