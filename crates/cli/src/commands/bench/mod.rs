//! `bench`: which runs (`plan.rs`), the clock (`measure.rs`), the tables (`report.rs`), the gap (`explain.rs`).

mod compared;
mod explain;
mod forced;
mod measure;
mod plan;
mod report;

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use engine::{DEFAULT_CHUNK, DraftMode};
use gguf::Gguf;
use planner::Executed;
use program::{CacheOptions, CacheType, Executor};

use crate::args::{self, CacheArgs, VerboseArgs};
use crate::ceilings::{self, KnownCeilings};
use crate::counts;
use crate::drafting::SecondModel;
use crate::executor_args::ExecutorArgs;
use crate::exit::Failure;
use crate::guessing;
use crate::limits::Limits;
use crate::load::{self, LoadOptions, Loaded};
use crate::output::OutputArgs;
use crate::policy::PolicyArgs;
use crate::predictions::{RunPhase, RunTime};
use crate::storage::StorageArgs;
use crate::{picture, runtime, ui};
use compared::{ComparedRow, Comparison, Second};
use explain::Explanation;
use measure::{Bench as Runner, Fill, Test};
use plan::Numbers;
use report::{Format, Row};

/// A machine's figures do not drift in less than this.
const STEADY: Duration = Duration::from_secs(3);

/// Measure tokens per second
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  rooflight bench model.gguf\n  \
                        rooflight bench a.gguf b.gguf -p 128,512 -d 0-4096+2048 -t 1,2 -r 3 -o json\n  \
                        rooflight bench model.gguf -d 4k --explain\n  \
                        rooflight bench model.gguf -n 0 --chunk 16-512*2\n\n\
                        Flags and JSON keys are llama-bench's. Lists: 1,2,4 and 1-8+1 and 1-8*2.")]
pub(super) struct Bench {
    /// GGUF files; any part of a sharded model
    #[arg(value_name = "MODEL")]
    files: Vec<PathBuf>,
    /// A model, instead of an argument; may be given several times [env: ROOFLIGHT_MODEL]
    #[arg(short, long, value_name = "FILE")]
    model: Vec<PathBuf>,
    /// Tokens of a prompt, 0 for no such test
    #[arg(short = 'p', long, value_name = "LIST", default_value = "512")]
    n_prompt: Vec<Numbers>,
    /// Tokens to generate, 0 for no such test
    #[arg(short = 'n', long, value_name = "LIST", default_value = "128")]
    n_gen: Vec<Numbers>,
    /// A prompt and tokens after it, together (-pg)
    #[arg(long, value_name = "P,N", value_parser = plan::pair)]
    pg: Vec<(usize, usize)>,
    /// Tokens in the context before the test
    #[arg(short = 'd', long, value_name = "LIST", default_value = "0")]
    n_depth: Vec<Numbers>,
    /// How they get there: made (made-up rows, in seconds), prompt (computed)
    #[arg(long, value_name = "HOW", value_enum, default_value_t, hide_possible_values = true)]
    fill: Fill,
    /// Threads [default: one per physical core]
    #[arg(short, long, value_name = "LIST")]
    threads: Vec<Numbers>,
    /// Most tokens of a prompt per pass (-ub); by default what is measured to be best
    #[arg(long, value_name = "LIST", alias = "ubatch-size")]
    chunk: Vec<Numbers>,
    /// Type of cached keys (-ctk): f32, f16, q8_0 [default: f16]
    #[arg(long, value_name = "TYPE", value_parser = console::args::cache_types(), hide_possible_values = true)]
    cache_type_k: Option<CacheType>,
    /// Type of cached values (-ctv): f32, f16, q8_0 [default: f16]
    #[arg(long, value_name = "TYPE", value_parser = console::args::cache_types(), hide_possible_values = true)]
    cache_type_v: Option<CacheType>,
    #[command(flatten)]
    policy: PolicyArgs,
    #[command(flatten)]
    storage: StorageArgs,
    /// Generate the model's likeliest tokens, as `run --temp 0` does, choosing included; without, tokens are made up
    #[arg(long)]
    greedy: bool,
    /// How often each test is timed
    #[arg(short, long, value_name = "N", default_value_t = 5, value_parser = repetitions)]
    repetitions: u32,
    /// Break down the time beyond the limit
    #[arg(long)]
    explain: bool,
    /// Draw that as waterfalls into a file, .svg
    #[arg(long, value_name = "FILE", value_parser = picture::path, requires = "explain")]
    plot: Option<PathBuf>,
    /// Speculative decoding: lookup, suffix, draft, mtp, all
    ///
    /// Instead of prompts and steps: texts with drafts beside the same texts without, by off, lookup, suffix, auto, draft (by -md), mtp (by blocks of the file that guess) or all
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = drafts, hide_possible_values = true,
          conflicts_with_all = ["explain", "pg", "n_prompt", "n_gen", "n_depth", "greedy"])]
    spec: Vec<Spec>,
    /// For --spec draft: a smaller model with the same vocabulary, which guesses (-md)
    #[arg(long, value_name = "FILE", alias = "draft-model", requires = "spec")]
    model_draft: Option<PathBuf>,
    /// Instead of prompts and steps: so many turns side by side beside the passes that they are made of
    #[arg(long, value_name = "LIST",
          conflicts_with_all = ["explain", "pg", "n_prompt", "n_gen", "n_depth", "greedy"])]
    turns: Vec<Numbers>,
    #[command(flatten)]
    replace: OutputArgs,
    /// Format of the result
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
    #[command(flatten)]
    executor: ExecutorArgs,
    #[command(flatten)]
    verbose: VerboseArgs,
}

/// The machine's ceilings, measured again before and after tests: the best ever seen, since other programs, or other
/// guests of a shared machine, only lower them.
struct Roof<'a> {
    executor: &'a dyn Executor,
    measured: Instant,
    ceilings: Option<KnownCeilings>,
}

impl<'a> Roof<'a> {
    fn new(executor: &'a dyn Executor) -> Roof<'a> {
        let ceilings = ceilings::measure_again(runtime(), executor).ok();
        Roof { executor, measured: Instant::now(), ceilings }
    }

    /// With what a test has shown since.
    fn around(&mut self) -> Option<KnownCeilings> {
        if self.measured.elapsed() >= STEADY {
            *self = Roof::new(self.executor);
        }
        self.ceilings.clone()
    }
}

/// Keep how far off the expected time was.
fn remember(limits: &Limits, test: Test, samples: &[Duration]) {
    let phase = match (test.n_prompt, test.n_gen) {
        (_, 0) => RunPhase::Prompts,
        (0, _) => RunPhase::Steps,
        (_, _) => return,
    };
    let measured = samples.iter().sum::<Duration>().as_secs_f64() / samples.len().max(1) as f64;
    if let Some(expected) = limits.expected(test.depth, test.n_prompt, test.n_gen) {
        limits.remember(&[RunTime { phase, expected, measured }]);
    }
}

/// Who drafts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Spec {
    Texts(DraftMode),
    Model,
    /// Blocks of the model's own file.
    Own,
    /// Every way that there is.
    All,
}

fn drafts(text: &str) -> Result<Spec, String> {
    let known = DraftMode::ALL.into_iter().find(|mode| mode.name() == text);
    match text {
        "all" => Ok(Spec::All),
        "draft" => Ok(Spec::Model),
        "mtp" => Ok(Spec::Own),
        _ => known.map(Spec::Texts).ok_or_else(|| {
            format!(
                "expected one of {}, draft, mtp, all",
                DraftMode::ALL.map(DraftMode::name).join(", ")
            )
        }),
    }
}

/// How often a test is timed.
fn repetitions(text: &str) -> Result<u32, String> {
    Ok(counts::within(text, 1, 1_000_000)? as u32)
}

impl Bench {
    pub(crate) fn run(self, out: &mut dyn Write) -> anyhow::Result<()> {
        self.policy.warnings().iter().for_each(|warning| ui::warn(warning));
        for (flag, numbers, most) in [
            ("-t", &self.threads, counts::MAX_THREADS),
            ("--chunk", &self.chunk, counts::MAX_CHUNK),
        ] {
            if let Some(n) = plan::all(numbers).find(|n| !(1..=most).contains(n)) {
                let problem = format!("{flag} {n}: expected numbers from 1 to {most}");
                return Err(Failure::Usage(problem).into());
            }
        }
        if self.explain && self.plot.is_none() && matches!(self.output, Format::Csv) {
            ui::warn("--explain has no effect: a row of CSV has no place for it, but --plot has");
        }
        self.plot.iter().try_for_each(|path| self.replace.check(path))?;
        let compares = !self.spec.is_empty() || !self.turns.is_empty();
        let tests = if compares { Vec::new() } else { self.tests() };
        if tests.is_empty() && !compares {
            let problem = "nothing to measure: -p 0 and -n 0 leave no test";
            return Err(Failure::Usage(problem.into()).into());
        }
        if self.greedy && tests.iter().all(|test| test.n_gen == 0) {
            ui::warn("--greedy has no effect: no test generates");
        }
        // all of them are there before the first is measured
        let models = self.models()?;
        let models = models.iter().map(|path| load::open(path));
        let models = models.collect::<anyhow::Result<Vec<_>>>()?;
        if compares {
            let mut rows = Vec::new();
            models.iter().try_for_each(|gguf| self.compare(gguf, &mut rows))?;
            return compared::write(&rows, self.output, out);
        }
        let mut report = report::Report::new(self.output, out);
        for gguf in models {
            self.measure(&gguf, &tests, &mut report)?;
        }
        if let Some(path) = &self.plot {
            picture::write(path, &report.picture(), self.replace)?;
        }
        report.finish()
    }

    fn models(&self) -> Result<Vec<PathBuf>, Failure> {
        let given: Vec<PathBuf> = self.files.iter().chain(&self.model).cloned().collect();
        if !given.is_empty() {
            return Ok(given);
        }
        let variable = args::variable().map(PathBuf::from);
        variable
            .map(|path| vec![path])
            .ok_or_else(|| Failure::Usage("no model: rooflight bench MODEL".into()))
    }

    /// Every test of one model, with every number of threads.
    fn measure(
        &self,
        gguf: &Gguf,
        tests: &[Test],
        report: &mut report::Report<'_>,
    ) -> anyhow::Result<()> {
        let capacity = tests.iter().map(|test| test.depth + test.tokens()).max().unwrap_or(0);
        for threads in self.thread_counts() {
            let (loaded, cache) = self.load(gguf, threads, capacity.max(1))?;
            let program = loaded.model.program();
            let wanted = Executed::of(program, cache.k, cache.v).wanted();
            let rates = match loaded.gpu {
                // whoever wants them asks `machine`; chunks are always the same, for bits depend on them
                Some(_) => ceilings::kept_rates(runtime(), &*loaded.executor),
                None => ceilings::rates(runtime(), &*loaded.executor, &wanted),
            };
            let of_cpu = rates.as_ref().filter(|_| loaded.gpu.is_none());
            let best = load::best_chunk(program, &cache, of_cpu).unwrap_or(DEFAULT_CHUNK);
            let mut roof = Roof::new(&*loaded.executor);
            if self.explain && roof.ceilings.is_none() {
                ui::warn("--explain has no effect: this executor has no limits to compare with");
            }
            let mut runner = Runner::new(Arc::clone(&loaded.model), cache, self.fill)?;
            let chunks = self.chunks(best);
            for (test, chunk) in
                tests.iter().flat_map(|test| chunks.iter().map(move |chunk| (test, *chunk)))
            {
                let setting = report::Setting::new(gguf, &loaded, cache, chunk, self.fill);
                runner.chunk = chunk;
                let bar = ui::count_bar("bench", u64::from(self.repetitions) + 1)
                    .with_message(test.name());
                let started = report::now();
                let timed = runner.measure(*test, self.repetitions, &mut || bar.inc(1))?;
                let timing = if self.explain { Some(runner.explain(*test)?) } else { None };
                bar.finish_and_clear();
                let untimed = timing.as_ref().is_some_and(|timing| timing.phases.is_empty());
                if untimed && roof.ceilings.is_some() {
                    ui::warn(
                        "--explain: no part's time is known: this adapter writes no timestamps, or too few for this model",
                    );
                }
                let best = roof.around();
                let limits = best.and_then(|best| setting.limits(&loaded, cache, &best));
                let limits =
                    limits.map(|limits| limits.with_rates(&loaded, &cache, rates.as_ref()));
                let explained = limits.as_ref().zip(timing);
                let explained = explained
                    .map(|(limits, timing)| Explanation::new(program, *test, &timing, limits));
                if let Some(limits) = &limits {
                    remember(limits, *test, &timed.samples);
                }
                let row = Row::new(&setting, *test, started, &timed, limits.as_ref());
                report.row(&row.explained(explained))?;
            }
        }
        Ok(())
    }

    /// The model, for sessions of `capacity` positions.
    fn load(
        &self,
        gguf: &Gguf,
        threads: Option<usize>,
        capacity: usize,
    ) -> anyhow::Result<(Loaded, CacheOptions)> {
        let args = self.cache_args();
        let cache = |config: &models::ModelConfig| args.options(capacity, config.context_length);
        let mut options = self.load_options(threads);
        if self.spec.contains(&Spec::All) {
            options.guesses |=
                models::load(gguf).is_ok_and(|model| guessing::can_guess(&model, gguf));
        }
        let loaded = load::model(gguf, &self.executor, &options, &cache)?;
        let cache = cache(&loaded.config);
        Ok((loaded, cache))
    }

    fn cache_args(&self) -> CacheArgs {
        let Bench { cache_type_k, cache_type_v, .. } = *self;
        let chunk = plan::all(&self.chunk).max();
        let (policy, storage) = (self.policy.clone(), self.storage.clone());
        CacheArgs { cache_type_k, cache_type_v, chunk, policy, storage }
    }

    fn load_options(&self, threads: Option<usize>) -> LoadOptions {
        LoadOptions {
            threads,
            verbose: self.verbose.verbose,
            chunk: plan::all(&self.chunk).max(),
            values: self.cache_type_v.is_some(),
            same_bits: (!self.spec.is_empty()).then_some("drafts (--spec)"),
            storage: self.storage.clone(),
            guesses: self.spec.contains(&Spec::Own),
            ..LoadOptions::default()
        }
    }

    /// How texts are looked up for drafts.
    fn text_modes(&self) -> Vec<DraftMode> {
        let modes = |spec: &Spec| match spec {
            Spec::Texts(mode) => vec![*mode],
            Spec::Model | Spec::Own => Vec::new(),
            Spec::All => DraftMode::ALL.to_vec(),
        };
        self.spec.iter().flat_map(modes).collect()
    }

    /// The model that drafts, if one is to.
    fn second(
        &self,
        gguf: &Gguf,
        loaded: &Loaded,
        threads: Option<usize>,
        cache: CacheOptions,
    ) -> anyhow::Result<Option<Second>> {
        let refuse = |problem: &str| Err(Failure::Usage(problem.into()).into());
        let path = match &self.model_draft {
            Some(path) if self.spec.iter().any(|spec| matches!(spec, Spec::Model | Spec::All)) => {
                path
            }
            Some(_) => return refuse("-md goes with --spec draft or --spec all"),
            None if self.spec.contains(&Spec::Model) => {
                return refuse("--spec draft: give the model that drafts by -md FILE");
            }
            None => return Ok(None),
        };
        let tokenizer = load::tokenizer(gguf)?;
        let second = SecondModel::open(path, &tokenizer)?;
        let session = second.session(loaded, &self.load_options(threads), cache)?;
        Ok(Some(Second { session, prompts: compared::prompts(&tokenizer)? }))
    }

    /// Texts with drafts and without, turns and passes, of one model.
    fn compare(&self, gguf: &Gguf, out: &mut Vec<ComparedRow>) -> anyhow::Result<()> {
        for threads in self.thread_counts() {
            let (loaded, cache) = self.load(gguf, threads, Comparison::CAPACITY)?;
            let comparison = Comparison {
                cache,
                chunk: loaded.chunk,
                repetitions: self.repetitions,
                model: Arc::clone(&loaded.model),
            };
            let second = self.second(gguf, &loaded, threads, cache)?;
            let setting = report::Setting::new(gguf, &loaded, cache, loaded.chunk, self.fill);
            let modes = self.text_modes();
            let turns: Vec<usize> = plan::all(&self.turns).filter(|n| *n > 0).collect();
            let runs = 2 * modes.len()
                + turns.len()
                + usize::from(second.is_some())
                + usize::from(loaded.guesses.is_some());
            let bar = ui::count_bar("bench", runs as u64 * u64::from(self.repetitions));
            let mut rows = comparison.drafts(&modes, &mut || bar.inc(1))?;
            if let Some(second) = &second {
                rows.push(comparison.by_model(second, &mut || bar.inc(1))?);
            }
            if let Some(guesses) = &loaded.guesses {
                let prompts = compared::prompts(&load::tokenizer(gguf)?)?;
                rows.push(comparison.by_own_guesses(guesses, &prompts, &mut || bar.inc(1))?);
            }
            for n in turns {
                rows.extend(comparison.turns(n, &mut || bar.inc(1))?);
            }
            bar.finish_and_clear();
            let row = |compared| ComparedRow { setting: setting.clone(), compared };
            out.extend(rows.into_iter().map(row));
        }
        Ok(())
    }

    /// Every combination, in llama-bench's order.
    fn tests(&self) -> Vec<Test> {
        let mut tests = Vec::new();
        for depth in plan::all(&self.n_depth) {
            let prompts = plan::all(&self.n_prompt).map(|n_prompt| (n_prompt, 0));
            let steps = plan::all(&self.n_gen).map(|n_gen| (0, n_gen));
            for (n_prompt, n_gen) in prompts.chain(steps).chain(self.pg.iter().copied()) {
                if n_prompt + n_gen > 0 {
                    tests.push(Test { n_prompt, n_gen, depth, greedy: self.greedy });
                }
            }
        }
        tests
    }

    /// Those asked for, or `best`.
    fn chunks(&self, best: usize) -> Vec<usize> {
        let given: Vec<_> = plan::all(&self.chunk).collect();
        if given.is_empty() { vec![best] } else { given }
    }

    fn thread_counts(&self) -> Vec<Option<usize>> {
        let given: Vec<_> = plan::all(&self.threads).map(Some).collect();
        if given.is_empty() { vec![None] } else { given }
    }
}
