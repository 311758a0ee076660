//! The clock: one test, warmed up once, timed several times, each from the same depth.

use std::sync::Arc;
use std::time::{Duration, Instant};

use program::{CacheOptions, Model, Outputs, Prompt, Result, Sequence, SessionId, Step};

/// What is timed: a prompt, steps of one token, or both after one another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Test {
    /// Tokens of the prompt.
    pub(super) n_prompt: usize,
    /// Tokens generated one by one.
    pub(super) n_gen: usize,
    /// Tokens in the context before.
    pub(super) depth: usize,
}

impl Test {
    /// `pp512`, `tg128 @ d4096`.
    pub(super) fn name(&self) -> String {
        let name = match (self.n_prompt, self.n_gen) {
            (prompt, 0) => format!("pp{prompt}"),
            (0, generate) => format!("tg{generate}"),
            (prompt, generate) => format!("pp{prompt}+tg{generate}"),
        };
        if self.depth == 0 { name } else { format!("{name} @ d{}", self.depth) }
    }

    /// Tokens within the time.
    pub(super) fn tokens(&self) -> usize {
        self.n_prompt + self.n_gen
    }
}

/// One session on which tests run one after another.
pub(super) struct Bench {
    model: Arc<dyn Model>,
    session: SessionId,
    chunk: usize,
    vocab_size: usize,
}

impl Bench {
    /// A session that holds what the tests need.
    pub(super) fn new(model: Arc<dyn Model>, cache: CacheOptions, chunk: usize) -> Result<Self> {
        let session = model.open(&cache)?;
        let vocab_size = model.program().vocab_size();
        Ok(Self { model, session, chunk, vocab_size })
    }

    /// Time `test`; `done` is called after the warm-up and after each sample.
    pub(super) fn measure(
        &self,
        test: Test,
        repetitions: u32,
        done: &mut dyn FnMut(),
    ) -> Result<Vec<Duration>> {
        self.model.truncate(self.session, 0)?;
        self.prefill(0, test.depth, Outputs::None)?;
        // As llama-bench warms up: the whole prompt, and one step.
        self.run(Test { n_gen: test.n_gen.min(1), ..test })?;
        done();
        let mut samples = Vec::new();
        for _ in 0..repetitions {
            self.model.truncate(self.session, test.depth)?;
            let start = Instant::now();
            self.run(test)?;
            samples.push(start.elapsed());
            done();
        }
        Ok(samples)
    }

    fn run(&self, test: Test) -> Result<()> {
        self.prefill(test.depth, test.n_prompt, Outputs::Last)?;
        let first = test.depth + test.n_prompt;
        (first..first + test.n_gen)
            .try_for_each(|position| self.step(&[self.token(position)], Outputs::Last, None))
    }

    /// `n` tokens from `position` on, in chunks; `outputs` of the last chunk.
    fn prefill(&self, position: usize, n: usize, outputs: Outputs) -> Result<()> {
        let tokens: Vec<u32> =
            (position..position + n).map(|position| self.token(position)).collect();
        let chunks = tokens.chunks(self.chunk);
        let last = chunks.len().saturating_sub(1);
        for (i, chunk) in chunks.enumerate() {
            let outputs = if i == last { outputs } else { Outputs::None };
            self.step(chunk, outputs, Some(Prompt { start: position, len: n }))?;
        }
        Ok(())
    }

    fn step(&self, tokens: &[u32], outputs: Outputs, prompt: Option<Prompt>) -> Result<()> {
        let sequence = Sequence { session: self.session, tokens, outputs, prompt };
        self.model.step(&Step { sequences: &[sequence] })?;
        Ok(())
    }

    /// Any token does: time does not depend on which. Neighbours differ, so that no cache line is reused for free.
    fn token(&self, position: usize) -> u32 {
        u32::try_from((7 * position + 11) % 1000 % self.vocab_size.max(1)).expect("below 1000")
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        self.model.close(self.session);
    }
}
