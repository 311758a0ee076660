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
    /// Replies that part where the reference has two tokens nearer to each other than executors may be that differ by the
    /// error that is allowed.
    pub near_ties: usize,
    /// Replies that part elsewhere: what was chosen, and what by the reference.
    pub wrong: Vec<String>,
    /// The largest error of a row of logits, normalized and squared; without end where one is no number.
    pub nmse: f64,
}

/// How many replies, and how far they may be apart.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ReplyRules {
    /// Prompts.
    pub prompts: usize,
    /// Tokens of a reply.
    pub reply: usize,
    /// The error of a row of logits, normalized and squared, that rounding explains.
    pub most_nmse: f64,
}

impl Replies {
    /// Whether nothing differs but what rounding explains: no more than a fourth of them parts at near ties.
    pub fn agree(&self, rules: &ReplyRules) -> bool {
        self.wrong.is_empty() && self.nmse <= rules.most_nmse && 4 * self.near_ties <= self.prompts
    }
}

const CACHE: CacheOptions = CacheOptions::new(CacheType::F16, CacheType::F16, 256);

/// Let `executor` and a `reference` make greedy replies to prompts of random tokens, until they part. `progress` is told after
/// each.
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
    rules: &ReplyRules,
    progress: &mut dyn FnMut(),
) -> Result<Replies> {
    let load = |executor: &dyn Executor| {
        let program = models::load(gguf).expect("a sound model").program;
        executor.load(program, &GgufWeights(gguf), &mut |_| ())
    };
    let (model, oracle) = (load(executor)?, load(reference)?);
    let mut replies = Replies { prompts: rules.prompts, ..Replies::default() };
    for seed in 0..rules.prompts as u64 {
        let random = &mut Random::new(seed);
        let n = 2 + random.below(10);
        let prompt = random.tokens(n, oracle.program().vocab_size());
        replies.compare([&*model, &*oracle], prompt, rules)?;
        progress();
    }
    Ok(replies)
}

impl Replies {
    /// Adds one greedy reply of two models to the prompt `tokens`: of the one that is compared, and of the reference.
    ///
    /// # Errors
    /// A model that does not run.
    pub fn compare(
        &mut self,
        models: [&dyn Model; 2],
        mut tokens: Vec<u32>,
        rules: &ReplyRules,
    ) -> Result<()> {
        let sessions = [models[0].open(&CACHE)?, models[1].open(&CACHE)?];
        for _ in 0..rules.reply {
            let found = last_logits(models[0], sessions[0], &tokens)?;
            let want = last_logits(models[1], sessions[1], &tokens)?;
            let error = nmse(&found, &want);
            self.nmse = if error.is_nan() { f64::INFINITY } else { self.nmse.max(error) };
            let (chosen, token) = (best(&found), best(&want));
            if chosen != token {
                let square = want.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>();
                let off = (rules.most_nmse * square / want.len() as f64).sqrt();
                // either may be off by as much
                if f64::from(want[token] - want[chosen]) <= 2.0 * off {
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
