//! Texts with drafts beside the same texts without, and several turns beside the passes that they are made of: two ways
//! of doing one thing, timed in turn.

use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use comfy_table::{Cell, CellAlignment, Table, presets};
use engine::{
    DraftMode, DraftStats, Drafters, Generated, Request, Sampler, SamplerOptions, Scheduler,
    SchedulerOptions, Session, Suffixes, TokenIds, Turn, Watched,
};
use program::{CacheOptions, Model, Outputs, Prompt, Sequence, SessionId, Step};
use serde::Serialize;
use tokenizer::Tokenizer;

use super::forced::Forced;
use super::report::{self, Format, Setting};

/// Tokens of the text that is repeated, and of one that is not.
const TEXT: usize = 300;
/// Steps of each turn.
const STEPS: usize = 64;
/// Rows of a prompt that turns are compared with.
const PROMPT: usize = 512;

/// One way beside another.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Compared {
    /// `lookup, repeated text`, `8 turns`.
    pub(super) test: String,
    /// Tokens of a run.
    pub(super) tokens: usize,
    /// Tokens per second, the median of the runs.
    pub(super) rate: f64,
    /// What it is compared with.
    pub(super) against: &'static str,
    /// Tokens per second of that.
    pub(super) against_rate: f64,
    /// The median of the ratios, run by run.
    pub(super) ratio: f64,
    /// Tokens guessed in all runs.
    pub(super) drafted: usize,
    /// Of these, kept.
    pub(super) kept: usize,
}

impl Compared {
    fn new(
        test: String,
        against: &'static str,
        tokens: usize,
        pairs: &[(Duration, Duration)],
    ) -> Compared {
        let rate = |time: Duration| tokens as f64 / time.as_secs_f64();
        let of = |f: &dyn Fn(&(Duration, Duration)) -> f64| median(pairs.iter().map(f).collect());
        Compared {
            test,
            tokens,
            rate: of(&|pair| rate(pair.0)),
            against,
            against_rate: of(&|pair| rate(pair.1)),
            ratio: of(&|pair| pair.1.as_secs_f64() / pair.0.as_secs_f64()),
            drafted: 0,
            kept: 0,
        }
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    let n = values.len();
    if n == 0 { 0.0 } else { (values[n / 2] + values[(n - 1) / 2]) / 2.0 }
}

/// A comparison, and on what it was made.
#[derive(Clone, Debug, Serialize)]
pub(super) struct ComparedRow {
    #[serde(flatten)]
    pub(super) setting: Setting,
    #[serde(flatten)]
    pub(super) compared: Compared,
}

/// Write rows in one of the formats.
///
/// # Errors
/// Those of `out`.
pub(super) fn write(
    rows: &[ComparedRow],
    format: Format,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    match format {
        Format::Jsonl => {
            for row in rows {
                writeln!(out, "{}", serde_json::to_string(row)?)?;
            }
        }
        Format::Json => writeln!(out, "{}", serde_json::to_string_pretty(rows)?)?,
        Format::Csv => report::csv(rows, out)?,
        Format::Md => {
            writeln!(out, "{}", table(rows))?;
            writeln!(out, "{LEGEND}")?;
        }
    }
    Ok(())
}

/// Columns that do not say of what they are.
const LEGEND: &str = "t/s are tokens a second, medians of runs in turn; ratio is the median of the runs' own; kept are the guessed \
     tokens that the model chose too";

fn table(rows: &[ComparedRow]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN);
    table.set_header([
        "model", "threads", "test", "t/s", "against", "t/s", "ratio", "guessed", "kept",
    ]);
    for ComparedRow { setting, compared: row } in rows {
        let right = |text: String| Cell::new(text).set_alignment(CellAlignment::Right);
        table.add_row([
            Cell::new(&setting.model_type),
            right(setting.n_threads.to_string()),
            Cell::new(&row.test),
            right(format!("{:.2}", row.rate)),
            Cell::new(row.against),
            right(format!("{:.2}", row.against_rate)),
            right(format!("{:.3}", row.ratio)),
            right(row.drafted.to_string()),
            right(row.kept.to_string()),
        ]);
    }
    table
}

/// A second model, and what the first is to go on with.
pub(super) struct Second {
    /// Of its model other sessions are opened.
    pub(super) session: Session,
    /// At least one.
    pub(super) prompts: Vec<Vec<u32>>,
}

/// Openings of texts that a model is likely to go on with in its own words.
///
/// # Errors
/// A vocabulary that cannot write them.
pub(super) fn prompts(tokenizer: &Tokenizer) -> anyhow::Result<Vec<Vec<u32>>> {
    let opening = |subject: &str| {
        let text = format!("There was once a {subject} who wanted to see the world. One day,");
        Ok(tokenizer.encode(&text)?)
    };
    ["clever horse", "young king", "little girl", "dragon", "baker"]
        .map(opening)
        .into_iter()
        .collect()
}

/// What is compared on one model.
pub(super) struct Comparison {
    /// The model.
    pub(super) model: Arc<dyn Model>,
    /// The cache of a session.
    pub(super) cache: CacheOptions,
    /// Most tokens of a prompt per pass.
    pub(super) chunk: usize,
    /// How often each is timed.
    pub(super) repetitions: u32,
}

/// Tokens without repetition: all of a small vocabulary come before one comes again.
fn tokens(n: usize, vocab_size: usize, seed: u64) -> Vec<u32> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let mut all: Vec<u32> = (0..vocab_size as u32).collect();
    let mut out = Vec::new();
    while out.len() < n {
        for i in (1..all.len()).rev() {
            all.swap(i, (next() % (i as u64 + 1)) as usize);
        }
        out.extend(all.iter().take(n - out.len()));
    }
    out
}

impl Comparison {
    /// Positions of a session.
    pub(super) const CAPACITY: usize = 2 * TEXT + 16;

    /// Texts with drafts by each of `modes` beside the same texts without: one that says again what it said, and one that
    /// does not.
    ///
    /// # Errors
    /// A model that fails; a draft that changed a text.
    pub(super) fn drafts(
        &self,
        modes: &[DraftMode],
        done: &mut dyn FnMut(),
    ) -> anyhow::Result<Vec<Compared>> {
        let mut rows = Vec::new();
        for &mode in modes {
            for (name, repeats) in [("repeated text", true), ("no repetition", false)] {
                let (mut pairs, mut stats) = (Vec::new(), DraftStats::default());
                for round in 0..self.repetitions {
                    let text = self.text(u64::from(round), repeats);
                    let run = |mode| self.forced(&text, mode);
                    let both = in_turn(round, || run(mode), || run(DraftMode::Off));
                    pairs.push(pair(both, &mut stats)?);
                    done();
                }
                let test = format!("{}, {name}", mode.name());
                let row = Compared::new(test, "plain steps", TEXT - 1, &pairs);
                rows.push(Compared { drafted: stats.drafted, kept: stats.kept, ..row });
            }
        }
        Ok(rows)
    }

    /// The model's own texts with drafts by another model beside the same texts without.
    ///
    /// # Errors
    /// A model that fails; a draft that changed a text.
    pub(super) fn by_model(
        &self,
        second: &Second,
        done: &mut dyn FnMut(),
    ) -> anyhow::Result<Compared> {
        let drafters = |cache| {
            let model = Arc::clone(second.session.model());
            Ok(Drafters::by_model(Session::new(model, cache, second.session.chunk())?))
        };
        self.own_texts("draft", &second.prompts, &drafters, done)
    }

    /// The same with drafts by blocks of the model's own file.
    ///
    /// # Errors
    /// As [`by_model`](Self::by_model).
    pub(super) fn by_own_guesses(
        &self,
        guesses: &Arc<dyn Model>,
        prompts: &[Vec<u32>],
        done: &mut dyn FnMut(),
    ) -> anyhow::Result<Compared> {
        let drafters = |cache| {
            Ok(Drafters::by_own_guesses(Session::new(Arc::clone(guesses), cache, self.chunk)?))
        };
        self.own_texts("mtp", prompts, &drafters, done)
    }

    /// The model's own texts after `prompts` with drafters that have a model, beside the same texts without.
    fn own_texts(
        &self,
        name: &str,
        prompts: &[Vec<u32>],
        drafters: &dyn Fn(CacheOptions) -> anyhow::Result<Drafters>,
        done: &mut dyn FnMut(),
    ) -> anyhow::Result<Compared> {
        let cache = CacheOptions { policy: program::KvPolicy::Full, ..self.cache };
        let (mut pairs, mut stats) = (Vec::new(), DraftStats::default());
        for round in 0..self.repetitions {
            let prompt = &prompts[round as usize % prompts.len()];
            let run = |drafters| self.written(Arc::clone(&self.model), prompt, drafters);
            let plain = || run(Drafters::of(Vec::new()));
            let both = in_turn(round, || run(drafters(cache)?), plain);
            pairs.push(pair(both, &mut stats)?);
            done();
        }
        let test = format!("{name}, its own text");
        let row = Compared::new(test, "plain steps", TEXT - 1, &pairs);
        Ok(Compared { drafted: stats.drafted, kept: stats.kept, ..row })
    }

    /// [`TEXT`] tokens, and as many again: the same, or others.
    fn text(&self, seed: u64, repeats: bool) -> Vec<u32> {
        let n = self.model.program().vocab_size();
        let once = tokens(TEXT, n, seed + 1);
        let again = if repeats { once.clone() } else { tokens(TEXT, n, seed + 1_000_001) };
        [once, again].concat()
    }

    /// The second half of `text`, generated after the first.
    fn forced(&self, text: &[u32], mode: DraftMode) -> anyhow::Result<Generated> {
        let forced = Forced { text: text.to_vec() };
        let model = Arc::new(Watched::new(Arc::clone(&self.model), forced));
        let drafters = Drafters::new(mode, &Arc::<Mutex<Suffixes>>::default());
        self.written(model, &text[..TEXT], drafters)
    }

    /// [`TEXT`] tokens after `prompt`.
    fn written(
        &self,
        model: Arc<dyn Model>,
        prompt: &[u32],
        drafters: Drafters,
    ) -> anyhow::Result<Generated> {
        let session = Session::new(model, self.cache, self.chunk)?;
        let request = Request {
            prompt,
            max_tokens: Some(TEXT),
            stop: &[],
            ignore_eog: false,
            split_thoughts: false,
            cancel: &Arc::default(),
        };
        let sampler = Sampler::new(SamplerOptions::greedy())?;
        let turn = Turn::new(session, sampler, &TokenIds, &request).drafted(drafters);
        Ok(turn.alone(&mut |_| ())?)
    }

    /// `n` turns side by side beside the bare passes over their rows: what the scheduler, sampling and uneven ends cost. And,
    /// if there are several, beside a prompt of which all logits are wanted: what could be had of as many rows at once.
    ///
    /// # Errors
    /// A model that fails, memory.
    pub(super) fn turns(&self, n: usize, done: &mut dyn FnMut()) -> anyhow::Result<Vec<Compared>> {
        let (mut beside_passes, mut beside_prompt) = (Vec::new(), Vec::new());
        for round in 0..self.repetitions {
            let (turns, passes) = in_turn(round, || self.side_by_side(n), || self.passes(n));
            let turns = turns?;
            beside_passes.push((turns, passes?));
            if n > 1 {
                let each = self.prompt_with_logits()? / PROMPT as u32;
                beside_prompt.push((turns, each * (n * STEPS) as u32));
            }
            done();
        }
        let name = if n == 1 { "1 turn".to_owned() } else { format!("{n} turns") };
        let compared = |against, pairs| Compared::new(name.clone(), against, n * STEPS, pairs);
        let mut rows = vec![compared("passes over as many rows", &beside_passes)];
        if n > 1 {
            rows.push(compared("a prompt with all logits", &beside_prompt));
        }
        Ok(rows)
    }

    /// [`PROMPT`] rows of one sequence, with the logits of each.
    fn prompt_with_logits(&self) -> anyhow::Result<Duration> {
        let session = self.model.open(&self.cache)?;
        let text = tokens(PROMPT, self.model.program().vocab_size(), 3);
        let prompt = Some(Prompt { start: 0, len: PROMPT });
        let start = Instant::now();
        for tokens in text.chunks(self.chunk) {
            let outputs = Outputs::ALL;
            let sequences = [Sequence { session, tokens, outputs, prompt, rows: &[] }];
            self.model.step(&Step { sequences: &sequences })?.all()?;
        }
        let taken = start.elapsed();
        self.model.close(session);
        Ok(taken)
    }

    /// From the moment all write to the end of the first: `n` turns of equal length.
    fn side_by_side(&self, n: usize) -> anyhow::Result<Duration> {
        let options = SchedulerOptions { running: n, waiting: 0, rows: self.chunk };
        let mut scheduler = Scheduler::new(Arc::clone(&self.model), options);
        for turn in 0..n {
            let prompt = self.prompt(turn);
            let request = Request {
                prompt: &prompt,
                max_tokens: Some(STEPS + 1),
                stop: &[],
                ignore_eog: true,
                split_thoughts: false,
                cancel: &Arc::default(),
            };
            let session = Session::new(Arc::clone(&self.model), self.cache, self.chunk)?;
            let sampler = Sampler::new(SamplerOptions::greedy())?;
            scheduler.join(Turn::new(session, sampler, &TokenIds, &request))?;
        }
        // all prompts in one pass, which yields the first token of each
        let mut ended = scheduler.step(&mut |_, _| ());
        let start = Instant::now();
        while !scheduler.is_empty() {
            ended.extend(scheduler.step(&mut |_, _| ()));
        }
        let taken = start.elapsed();
        for (_, turn) in ended {
            turn.finish()?;
        }
        Ok(taken)
    }

    /// As many steps of `n` rows, with all their logits.
    fn passes(&self, n: usize) -> anyhow::Result<Duration> {
        let opened: Result<Vec<SessionId>, _> =
            (0..n).map(|_| self.model.open(&self.cache)).collect();
        let sessions = opened?;
        let step = |tokens: &[Vec<u32>], prompt: bool| -> anyhow::Result<()> {
            let mut sequences = Vec::new();
            for (&session, tokens) in sessions.iter().zip(tokens) {
                let prompt = prompt.then_some(Prompt { start: 0, len: tokens.len() });
                sequences.push(Sequence {
                    session,
                    tokens,
                    outputs: Outputs::LAST,
                    prompt,
                    rows: &[],
                });
            }
            self.model.step(&Step { sequences: &sequences })?.all()?;
            // as turns do
            let commit = |id: &SessionId| self.model.commit(*id, self.model.len(*id)?);
            Ok(sessions.iter().try_for_each(commit)?)
        };
        let prompts: Vec<Vec<u32>> = (0..n).map(|turn| self.prompt(turn)).collect();
        step(&prompts, true)?;
        let vocab_size = self.model.program().vocab_size();
        let texts: Vec<Vec<u32>> =
            (0..n as u64).map(|i| tokens(STEPS, vocab_size, i + 7)).collect();
        let start = Instant::now();
        for i in 0..STEPS {
            let rows: Vec<Vec<u32>> = texts.iter().map(|text| vec![text[i]]).collect();
            step(&rows, false)?;
        }
        let taken = start.elapsed();
        sessions.into_iter().for_each(|session| self.model.close(session));
        Ok(taken)
    }

    /// A short prompt: those of all turns go into one pass.
    fn prompt(&self, turn: usize) -> Vec<u32> {
        tokens(8, self.model.program().vocab_size(), turn as u64 + 99)
    }
}

/// Times of a drafted text and of the same one without drafts, which are counted.
fn pair(
    (drafted, plain): (anyhow::Result<Generated>, anyhow::Result<Generated>),
    stats: &mut DraftStats,
) -> anyhow::Result<(Duration, Duration)> {
    let (drafted, plain) = (drafted?, plain?);
    anyhow::ensure!(drafted.tokens == plain.tokens, "a draft changed the text");
    stats.drafted += drafted.stats.drafts.drafted;
    stats.kept += drafted.stats.drafts.kept;
    Ok((steps(&drafted), steps(&plain)))
}

/// Time of the steps of a reply.
fn steps(reply: &Generated) -> Duration {
    reply.stats.steps.iter().sum()
}

/// Both, and which goes first changes from round to round: a machine that slows down favours none.
fn in_turn<T>(round: u32, one: impl FnOnce() -> T, other: impl FnOnce() -> T) -> (T, T) {
    if round.is_multiple_of(2) {
        let one = one();
        (one, other())
    } else {
        let other = other();
        (one(), other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_do_not_repeat_before_they_must() {
        let text = tokens(25, 10, 3);
        for part in text.chunks(10) {
            let mut sorted = part.to_vec();
            sorted.sort_unstable();
            sorted.dedup();
            assert_eq!(sorted.len(), part.len());
        }
        assert_ne!(tokens(25, 10, 3), tokens(25, 10, 4));
    }

    #[test]
    fn medians_are_of_runs() {
        let ms = Duration::from_millis;
        let row =
            Compared::new("t".into(), "p", 10, &[(ms(10), ms(20)), (ms(5), ms(5)), (ms(1), ms(3))]);
        assert!((row.ratio - 2.0).abs() < 1e-9, "{row:?}");
        assert!((row.rate - 2000.0).abs() < 1e-6, "{row:?}");
        assert_eq!(median(Vec::new()), 0.0);
        assert!((median(vec![1.0, 4.0]) - 2.5).abs() < 1e-9);
    }
}
