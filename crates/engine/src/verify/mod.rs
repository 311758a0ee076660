//! Whether a model says the same here, to the bit, however it is run: any threads, cuts of the prompt, texts beside it, and
//! whether its tokens are computed cold, after a part of the prompt was cached or came back from a disk, or checked as a draft.

mod listened;
mod restored;

use std::sync::Arc;
use std::time::{Duration, Instant};

use program::{CacheOptions, Model};

use crate::{
    Draft, Drafter, Drafters, Request, Result, Sampler, SamplerOptions, Scheduler,
    SchedulerOptions, Session, TokenIds, Turn, Watched,
};
use listened::Listened;

/// How the tokens of a run come about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VerifyState {
    /// Everything is computed.
    Cold,
    /// A part of the prompt is in the cache, which went on differently.
    Cached,
    /// Tokens are guessed, right and wrong, and checked several at a time.
    Drafted,
    /// Everything is computed, and what has no room in memory lies on disk.
    Spilled,
    /// A part of the prompt was kept on disk by a model that is gone.
    Restored,
}

impl VerifyState {
    /// All but what needs a disk.
    pub const ALL: [VerifyState; 3] =
        [VerifyState::Cold, VerifyState::Cached, VerifyState::Drafted];

    /// `cold`, `cached`, `drafted`, `spilled`, `restored`.
    pub fn name(self) -> &'static str {
        match self {
            VerifyState::Cold => "cold",
            VerifyState::Cached => "cached",
            VerifyState::Drafted => "drafted",
            VerifyState::Spilled => "spilled",
            VerifyState::Restored => "restored",
        }
    }

    /// What a model has to be loaded with for it.
    fn storage(self) -> VerifyStorage {
        match self {
            VerifyState::Cold | VerifyState::Cached | VerifyState::Drafted => VerifyStorage::Memory,
            VerifyState::Spilled => VerifyStorage::Spills,
            VerifyState::Restored => VerifyStorage::Keeps,
        }
    }
}

/// Where the caches of a model lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VerifyStorage {
    /// In memory.
    Memory,
    /// What has no room in memory lies on disk.
    Spills,
    /// In memory, and conversations are kept on disk over restarts.
    Keeps,
}

/// One way to run the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VerifyRun {
    /// Threads that compute.
    pub threads: usize,
    /// Most tokens of a prompt per pass.
    pub chunk: usize,
    /// Texts in each pass, this one included.
    pub together: usize,
    /// How its tokens come about.
    pub state: VerifyState,
}

/// Everything that is tried, each with each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifyMatrix {
    /// Numbers of threads.
    pub threads: Vec<usize>,
    /// Cuts of the prompt.
    pub chunks: Vec<usize>,
    /// Texts in each pass.
    pub together: Vec<usize>,
    /// How tokens come about.
    pub states: Vec<VerifyState>,
    /// Tokens of the prompt.
    pub prompt: usize,
    /// Tokens after it, whose logits are compared.
    pub tokens: usize,
}

impl VerifyMatrix {
    /// 6 numbers of threads x 5 cuts x 4 numbers of texts x 3 states, 128 tokens each.
    pub fn whole() -> VerifyMatrix {
        VerifyMatrix {
            threads: vec![1, 2, 3, 5, 8, 16],
            chunks: vec![1, 7, 64, 128, 512],
            together: vec![1, 2, 5, 16],
            states: VerifyState::ALL.to_vec(),
            prompt: 150,
            tokens: 128,
        }
    }

    /// What differs most, and few tokens; `threads`: those that would be used.
    pub fn quick(threads: usize) -> VerifyMatrix {
        let threads = if threads > 1 { vec![1, threads] } else { vec![1, 2] };
        VerifyMatrix {
            threads,
            chunks: vec![7, 512],
            together: vec![1, 3],
            states: VerifyState::ALL.to_vec(),
            prompt: 40,
            tokens: 12,
        }
    }

    /// How many runs that are.
    pub fn runs(&self) -> usize {
        self.threads.len() * self.chunks.len() * self.together.len() * self.states.len()
    }

    /// Positions that a session needs.
    pub fn capacity(&self) -> usize {
        self.prompt + self.tokens + 16
    }
}

/// What a run yielded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verified {
    /// How it was run.
    pub run: VerifyRun,
    /// Digest of the logits of all its tokens, and of these.
    pub digest: u64,
    /// How long it took.
    pub elapsed: Duration,
    /// Blocks of caches that went to disk meanwhile.
    pub spilled: u64,
    /// Tokens of all its texts that came from disk.
    pub restored: usize,
}

/// Run the matrix, with one model after another, as `load` makes them for a number of threads and with what their states need;
/// sessions have `cache`. `done` is told each result.
///
/// # Errors
/// A model that cannot be loaded or fails, and `E` of `load`.
pub fn verify<E: From<crate::Error>>(
    matrix: &VerifyMatrix,
    cache: CacheOptions,
    load: &mut dyn FnMut(usize, VerifyStorage) -> std::result::Result<Arc<dyn Model>, E>,
    done: &mut dyn FnMut(Verified) -> std::result::Result<(), E>,
) -> std::result::Result<(), E> {
    let mut reference = None;
    let of = |storage: VerifyStorage| {
        let states = matrix.states.iter().copied();
        (storage, states.filter(move |state| state.storage() == storage).collect::<Vec<_>>())
    };
    let kinds = [VerifyStorage::Memory, VerifyStorage::Spills, VerifyStorage::Keeps].map(of);
    for (&threads, (storage, states)) in
        matrix.threads.iter().flat_map(|threads| kinds.iter().map(move |kind| (threads, kind)))
    {
        if states.is_empty() {
            continue;
        }
        let mut subject = Subject { model: load(threads, *storage)?, cache, matrix };
        if *storage == VerifyStorage::Keeps {
            subject.keep()?;
            // all of it goes before another one begins
            let Subject { model, .. } = subject;
            drop(model);
            subject = Subject { model: load(threads, *storage)?, cache, matrix };
        }
        // what drafts guess: the text itself, as one way of running it had it
        if reference.is_none() {
            let chunk = matrix.prompt;
            let first = VerifyRun { threads, chunk, together: 1, state: VerifyState::Cold };
            reference = Some(subject.run(first, &[])?.tokens);
        }
        let text = reference.as_deref().unwrap_or_default();
        for &chunk in &matrix.chunks {
            for &together in &matrix.together {
                for &state in states {
                    let run = VerifyRun { threads, chunk, together, state };
                    let written = || subject.model.stats().spilled.written;
                    let (start, before) = (Instant::now(), written());
                    let Said { digest, restored, .. } = subject.run(run, text)?;
                    let spilled = written() - before;
                    let elapsed = start.elapsed();
                    done(Verified { run, digest, elapsed, spilled, restored })?;
                }
            }
        }
        if *storage == VerifyStorage::Keeps {
            subject.discard()?;
        }
    }
    Ok(())
}

/// What one run yielded.
struct Said {
    digest: u64,
    tokens: Vec<u32>,
    /// Tokens of all texts that came from disk.
    restored: usize,
}

/// A model, and what is run on it.
struct Subject<'a> {
    model: Arc<dyn Model>,
    cache: CacheOptions,
    matrix: &'a VerifyMatrix,
}

impl Subject<'_> {
    /// One run; `text`: what drafts may guess.
    fn run(&self, run: VerifyRun, text: &[u32]) -> Result<Said> {
        let listened = Arc::new(Watched::new(Arc::clone(&self.model), Listened::default()));
        let model: Arc<dyn Model> = listened.clone();
        let options = SchedulerOptions { running: run.together, waiting: 0, rows: run.chunk };
        let mut scheduler = Scheduler::new(Arc::clone(&model), options);
        let (mut own, mut own_session) = (None, None);
        let mut restored = 0;
        for mate in 0..run.together {
            let prompt = self.prompt(mate as u64);
            let mut session = match run.state {
                VerifyState::Restored => self.restored(&model, run, mate, &prompt)?,
                _ => Session::new(Arc::clone(&model), self.cache, run.chunk)?,
            };
            restored += session.len();
            if run.state == VerifyState::Cached {
                // two thirds of it, and then something else
                let shared = prompt.len() * 2 / 3;
                let other = [&prompt[..shared], &self.prompt(1000)[..8.min(shared)]].concat();
                session.feed(&other, &Arc::default(), &mut |_| ())?;
            }
            // others end before it, and after it
            let tokens = if mate == 0 { self.matrix.tokens } else { self.matrix.tokens + mate - 2 };
            let request = Request {
                prompt: &prompt,
                max_tokens: Some(tokens),
                stop: &[],
                ignore_eog: true,
                split_thoughts: false,
                cancel: &Arc::default(),
            };
            let id = session.id();
            let sampler = Sampler::new(SamplerOptions::greedy())?;
            let mut turn = Turn::new(session, sampler, &TokenIds, &request);
            if run.state == VerifyState::Drafted {
                let text = [&prompt[..], text].concat();
                let guesses = Guesses { text, at: 0 };
                turn = turn.drafted(Drafters::of(vec![Box::new(guesses)]).whatever_it_costs());
            }
            let joined = scheduler.join(turn)?;
            if mate == 0 {
                (own, own_session) = (Some(joined), Some(id));
            }
        }
        let mut tokens = Vec::new();
        let mut digest = 0;
        while !scheduler.is_empty() {
            for (id, turn) in scheduler.step(&mut |_, _| ()) {
                if Some(id) == own {
                    let session = own_session.expect("it has one");
                    digest = listened.watch().digest(session, self.matrix.prompt - 1);
                    tokens = turn.finish()?.tokens;
                } else {
                    turn.finish()?;
                }
            }
        }
        Ok(Said { digest, tokens, restored })
    }

    /// Any tokens do; those of the first text are the same in every run.
    fn prompt(&self, seed: u64) -> Vec<u32> {
        let n = self.model.program().vocab_size().max(1) as u64;
        let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0x5DEE_CE66_D1CE_4E5B;
        let next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            ((state >> 11) % n) as u32
        };
        std::iter::repeat_with(next).take(self.matrix.prompt).collect()
    }
}

/// Guesses a text, every fifth token wrongly.
struct Guesses {
    text: Vec<u32>,
    at: usize,
}

impl Drafter for Guesses {
    fn name(&self) -> &'static str {
        "guesses"
    }

    fn begin(&mut self, tokens: &[u32], _: &Sampler) {
        self.at = tokens.len();
    }

    fn push(&mut self, tokens: &[u32]) {
        self.at += tokens.len();
    }

    fn draft(&mut self, max: usize) -> Result<Draft> {
        // one to seven at a time
        let end = self.text.len().min(self.at + max.min(1 + self.at % 7));
        let guess = |i: usize| if i.is_multiple_of(5) { 0 } else { self.text[i] };
        Ok(Draft { tokens: (self.at.min(end)..end).map(guess).collect(), class: 0 })
    }
}
