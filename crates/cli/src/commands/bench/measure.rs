//! The clock: one test, warmed up once, timed several times, each from the same depth.

use std::sync::Arc;
use std::time::{Duration, Instant};

use engine::{DEFAULT_CHUNK, Sampler, SamplerOptions, Scores};
use program::{
    CacheKind, CacheOptions, Error, Model, Outputs, PhaseTime, Prompt, Result, RowsOut, Sequence,
    SessionId, SpillCounts, Step,
};

/// What is timed: a prompt, steps of one token, or both after one another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Test {
    /// Tokens of the prompt.
    pub(super) n_prompt: usize,
    /// Tokens generated one by one.
    pub(super) n_gen: usize,
    /// Tokens in the context before.
    pub(super) depth: usize,
    /// Whether the tokens are the model's likeliest; else they are made up.
    pub(super) greedy: bool,
}

impl Test {
    /// `pp512`, `tg128 @ d4096`.
    pub(super) fn name(&self) -> String {
        let name = match (self.n_prompt, self.n_gen) {
            (prompt, 0) => format!("pp{prompt}"),
            (0, generate) => format!("tg{generate}"),
            (prompt, generate) => format!("pp{prompt}+tg{generate}"),
        };
        let name = if self.greedy && self.n_gen > 0 { name + " greedy" } else { name };
        if self.depth == 0 { name } else { format!("{name} @ d{}", self.depth) }
    }

    /// Tokens within the time.
    pub(super) fn tokens(&self) -> usize {
        self.n_prompt + self.n_gen
    }
}

/// A test timed as a whole.
#[derive(Clone, Debug, Default)]
pub(super) struct Timed {
    /// How long it took each time.
    pub(super) samples: Vec<Duration>,
    /// What went between memory and disk meanwhile.
    pub(super) spilled: SpillCounts,
}

/// A test timed phase by phase.
#[derive(Clone, Debug, Default)]
pub(super) struct Timing {
    /// Time inside steps.
    pub(super) wall: Duration,
    /// Time choosing tokens as `run` does; a bench does not, so it comes on top.
    pub(super) sampling: Duration,
    /// The phases of all steps.
    pub(super) phases: Vec<PhaseTime>,
}

/// How a test gets its depth.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Fill {
    /// Made-up rows
    #[default]
    Made,
    /// A prompt that is computed
    Prompt,
}

/// One session on which tests run one after another.
pub(super) struct Bench {
    /// Most tokens per pass.
    pub(super) chunk: usize,
    fill: Fill,
    model: Arc<dyn Model>,
    session: SessionId,
    vocab_size: usize,
    /// Whether rows are committed as they come: a state takes them in then, as it does in a chat. Where nothing recurs they
    /// are not, so that windows have what the next sample starts from.
    commits: bool,
}

impl Bench {
    /// A session that holds what the tests need.
    pub(super) fn new(model: Arc<dyn Model>, cache: CacheOptions, fill: Fill) -> Result<Self> {
        let session = model.open(&cache)?;
        let vocab_size = model.program().vocab_size();
        let recurs = |kind: &CacheKind| matches!(kind, CacheKind::State { .. });
        let commits = model.program().caches.iter().any(|cache| recurs(&cache.kind));
        Ok(Self { chunk: DEFAULT_CHUNK, fill, model, session, vocab_size, commits })
    }

    /// Time `test`; `done` is called after the warm-up and after each sample.
    pub(super) fn measure(
        &self,
        test: Test,
        repetitions: u32,
        done: &mut dyn FnMut(),
    ) -> anyhow::Result<Timed> {
        self.fill(test.depth)?;
        // As llama-bench warms up: the whole prompt, and one step.
        self.run(Test { n_gen: test.n_gen.min(1), ..test })?;
        done();
        let mut samples = Vec::new();
        let mut spilled = SpillCounts::default();
        for _ in 0..repetitions {
            self.rewind(test.depth)?;
            let (before, start) = (self.model.stats().spilled, Instant::now());
            self.run(test)?;
            samples.push(start.elapsed());
            let now = self.model.stats().spilled;
            spilled = SpillCounts { memory: now.memory, ..spilled.and(now.since(before)) };
            done();
        }
        Ok(Timed { samples, spilled })
    }

    /// Run `test` once, warm, and keep where the time went.
    pub(super) fn explain(&self, test: Test) -> anyhow::Result<Timing> {
        self.fill(test.depth)?;
        self.run(Test { n_gen: test.n_gen.min(1), ..test })?;
        self.rewind(test.depth)?;
        self.model.time_phases(true);
        let mut timing = Timing::default();
        let mut timed = |tokens: &[u32], outputs, prompt| -> Result<RowsOut> {
            let start = Instant::now();
            let out = self.step(tokens, outputs, prompt)?;
            timing.wall += start.elapsed();
            timing.phases.extend(self.model.phases());
            Ok(out)
        };
        let prompt = Some(Prompt { start: test.depth, len: test.n_prompt });
        self.chunks(test.depth, test.n_prompt, Outputs::LAST, &mut |tokens, outputs| {
            timed(tokens, outputs, prompt).map(drop)
        })?;
        let options = match test.greedy {
            true => SamplerOptions::greedy(),
            false => SamplerOptions { seed: Some(1), ..SamplerOptions::default() },
        };
        let (mut sampler, mut sampling) = (Sampler::new(options)?, Duration::ZERO);
        let first = test.depth + test.n_prompt;
        let mut token = self.token(first);
        for position in first + 1..=first + test.n_gen {
            let out = timed(&[token], Outputs::LAST, None)?;
            let start = Instant::now();
            let chosen = sampler.sample_scores(&Scores::from(out.into_logits()), &[])?;
            sampling += start.elapsed();
            token = if test.greedy { chosen } else { self.token(position) };
        }
        self.model.time_phases(false);
        Ok(Timing { sampling, ..timing })
    }

    /// Have `depth` positions cached. Computed ones serve again: tokens depend on their position only.
    fn fill(&self, depth: usize) -> Result<()> {
        let mut held = self.model.len(self.session)?;
        if held >= depth {
            held = self.model.truncate(self.session, depth)?;
        }
        if held < depth && self.fill == Fill::Made {
            self.model.truncate(self.session, 0)?;
            match self.model.make_up(self.session, depth) {
                Err(Error::Unsupported(_)) => held = 0,
                made => return made,
            }
        }
        if held < depth { self.prefill(held, depth - held, Outputs::NONE) } else { Ok(()) }
    }

    /// Drop what a test added to its depth; what cannot be reached is filled again.
    fn rewind(&self, depth: usize) -> Result<()> {
        if self.model.truncate(self.session, depth)? < depth {
            self.fill(depth)?;
        }
        Ok(())
    }

    /// The prompt, then the steps; tokens are chosen within the time where the model's own are wanted.
    fn run(&self, test: Test) -> anyhow::Result<()> {
        self.prefill(test.depth, test.n_prompt, Outputs::LAST)?;
        let mut sampler = Sampler::new(SamplerOptions::greedy())?;
        let first = test.depth + test.n_prompt;
        let mut token = self.token(first);
        for position in first + 1..=first + test.n_gen {
            let out = self.step(&[token], Outputs::LAST, None)?;
            token = match test.greedy {
                true => sampler.sample_scores(&Scores::from(out.into_logits()), &[])?,
                false => self.token(position),
            };
        }
        Ok(())
    }

    /// `n` tokens from `position` on, in chunks; `outputs` of the last chunk.
    fn prefill(&self, position: usize, n: usize, outputs: Outputs) -> Result<()> {
        let prompt = Some(Prompt { start: position, len: n });
        self.chunks(position, n, outputs, &mut |tokens, outputs| {
            self.step(tokens, outputs, prompt).map(drop)
        })
    }

    fn chunks(
        &self,
        position: usize,
        n: usize,
        outputs: Outputs,
        step: &mut dyn FnMut(&[u32], Outputs) -> Result<()>,
    ) -> Result<()> {
        let tokens: Vec<u32> =
            (position..position + n).map(|position| self.token(position)).collect();
        let chunks = tokens.chunks(self.chunk);
        let last = chunks.len().saturating_sub(1);
        for (i, chunk) in chunks.enumerate() {
            step(chunk, if i == last { outputs } else { Outputs::NONE })?;
        }
        Ok(())
    }

    fn step(&self, tokens: &[u32], outputs: Outputs, prompt: Option<Prompt>) -> Result<RowsOut> {
        let sequence = Sequence { session: self.session, tokens, outputs, prompt, rows: &[] };
        let out = self.model.step(&Step { sequences: &[sequence] })?.single()?;
        if self.commits {
            self.model.commit(self.session, self.model.len(self.session)?)?;
        }
        Ok(out)
    }

    /// Any token does: time depends on which only by the experts it takes. Neighbours differ, so that no cache line is
    /// reused for free.
    fn token(&self, position: usize) -> u32 {
        u32::try_from((7 * position + 11) % 1000 % self.vocab_size.max(1)).expect("below 1000")
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        self.model.close(self.session);
    }
}

#[cfg(test)]
mod tests {
    use conformance::golden;
    use executors::ExecutorOptions;
    use gguf::Gguf;
    use models::GgufWeights;
    use program::CacheType;

    use super::*;

    /// What recurs is timed at a depth again and again, whatever was timed before: nothing has to be computed again for it,
    /// and where that is needed it is not timed.
    #[test]
    fn models_that_recur_are_timed_at_a_depth() {
        for name in ["mamba2", "qwen35", "lfm2"] {
            let gguf = Gguf::from_bytes(golden::model(name)).expect("a model that was made");
            let loaded = models::load(&gguf).expect("a model that is supported");
            let executor = ExecutorOptions { threads: Some(1), ..ExecutorOptions::default() };
            let executor = executor.start().expect("it starts");
            let model = executor.load(loaded.program, &GgufWeights(&gguf), &mut |_| ());
            let model: Arc<dyn Model> = Arc::from(model.expect("it loads"));
            let cache = CacheOptions::new(CacheType::F16, CacheType::F16, 2048);
            for fill in [Fill::Made, Fill::Prompt] {
                let bench = Bench::new(Arc::clone(&model), cache, fill).expect("it opens");
                for (n_prompt, n_gen, depth) in [
                    (0, 40, 200),
                    (600, 0, 200),
                    (0, 5, 200),
                    (40, 9, 200),
                    (0, 20, 100),
                    (70, 0, 0),
                ] {
                    let test = Test { n_prompt, n_gen, depth, greedy: false };
                    let timed = bench.measure(test, 3, &mut || ());
                    let timed = timed.unwrap_or_else(|e| panic!("{name} {fill:?}: {e:#}"));
                    assert_eq!(timed.samples.len(), 3);
                    assert_eq!(model.len(bench.session), Ok(depth + test.tokens()));
                    let again = model.stats().spilled.recomputed;
                    assert_eq!(again, 0, "{name} {fill:?} {}: computed again", test.name());
                    bench.explain(test).unwrap_or_else(|e| panic!("{name} {fill:?}: {e:#}"));
                }
            }
        }
    }
}
