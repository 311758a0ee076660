//! `rooflight plan`: what a model takes and how fast it can be at most, before it is there.
//!
//! `subject` finds the model, `target` the machine, `candidates` joins them in types of weights and cache; the planner
//! answers, and `text`, `json` and `charts` show what it said.

mod candidates;
mod charts;
mod fit;
mod json;
mod list;
mod placement;
#[cfg(any(test, fuzzing))]
mod strangers;
mod subject;
mod target;
mod text;
mod values;

use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use engine::DEFAULT_CHUNK;
use planner::formula::Units;
use planner::goal::{Answer, Goals, Miss, solve};
use planner::{Lengths, ModelVariant, WhatIf, what_if};
use program::{CacheOptions, DeviceShare, Division, Executor, KvPolicy, MemoryNeeds, Program};

use self::candidates::{Cache, Weights, compared_caches};
#[cfg(fuzzing)]
pub(crate) use self::strangers::plan_config;
use self::subject::Subject;
use self::target::{Target, TargetArgs};
use crate::args::{self, CacheArgs};
use crate::exit::Failure;
use crate::output::OutputArgs;
use crate::predictions::ErrorBar;
use crate::{load, memory, names, picture, ui, units};

/// Estimate memory and speed of a model before you download it
///
/// Memory, longest context, time to the first token, tokens per second, and what other types of weights and cache would change: on this machine as measured, or on another. Limits are times that no program beats, everything read once; expected times are those of this program, in chunks. `rooflight bench` says how close it comes.
/// Units: GB is 10^9 bytes and GiB 2^30, k tokens are 1024. Exit code 1: it does not fit, or goals cannot be met.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Examples:\n  rooflight plan qwen2.5-7b\n  rooflight plan model.gguf -c 32k\n  \
                  rooflight plan llama3.1:70b --type Q4_K_M --device 4090 --memory 48GB\n  \
                  rooflight plan config.json --memory 16GB --bandwidth 67GB/s --flops 2.7T\n  \
                  rooflight plan qwen2.5-7b --ttft 500ms --tps 20 --context 32k\n  \
                  rooflight plan qwen2.5-7b --plot plan.svg\n  rooflight plan qwen3-30b-a3b --device 4090 --memory 12GB --placement\n  \
                  rooflight plan --list"
)]
pub(super) struct Plan {
    /// GGUF file, config.json, or a published name: qwen2.5-7b
    #[arg(value_name = "MODEL")]
    name: Option<OsString>,
    /// The model, instead of the argument [env: ROOFLIGHT_MODEL]
    #[arg(short, long, value_name = "MODEL", conflicts_with = "name")]
    model: Option<OsString>,
    /// List known models, weight types and devices
    #[arg(long)]
    list: bool,
    /// Type of the weights: F16, Q8_0, Q4_K_M
    ///
    /// With the mixture of llama.cpp's quantizer; by default the file's, or Q4_K_M
    #[arg(long = "type", value_name = "TYPE", value_parser = candidates::weight_names(), hide_possible_values = true)]
    weights: Option<String>,
    /// Context in tokens: 32k, 0 for the model's
    ///
    /// By default the model's own, at most 8192
    #[arg(short, long, value_name = "N", alias = "ctx-size", value_parser = values::context)]
    context: Option<u64>,
    #[command(flatten)]
    cache: CacheArgs,
    #[command(flatten)]
    target: TargetArgs,
    #[command(flatten)]
    goals: GoalArgs,
    /// Layers and experts for a card that cannot hold all
    ///
    /// And the options of --executor wgpu for that (cuda takes the same): with --device NAME, --executor wgpu or cuda, beside this machine's processor
    #[arg(long)]
    placement: bool,
    /// Print JSON: bytes, seconds, tokens
    #[arg(long)]
    json: bool,
    /// Draw it: time to the first token, time of a step, memory
    #[arg(long, value_name = "FILE", value_parser = picture::path)]
    plot: Option<PathBuf>,
    #[command(flatten)]
    output: OutputArgs,
    /// Every table in full
    ///
    /// What steps read and compute, activations that leave the processor's caches
    #[arg(short, long)]
    verbose: bool,
}

/// What is asked for: with one of the first two, the best types of weights and cache that meet it are looked for.
#[derive(clap::Args, Clone, Debug)]
struct GoalArgs {
    /// Goal: most time to the first token: 500ms, 2s
    #[arg(long, value_name = "TIME", value_parser = values::seconds, allow_hyphen_values = true)]
    ttft: Option<f64>,
    /// Goal: least tokens per second with the context full
    #[arg(long, value_name = "N", value_parser = values::positive)]
    tps: Option<f64>,
    /// Tokens of the prompt whose first token --ttft is about; by default 512
    #[arg(long, value_name = "N", visible_alias = "prompt", value_parser = values::tokens, requires = "ttft")]
    prompt_tokens: Option<u64>,
}

/// All that was found out.
struct Report<'a> {
    subject: &'a Subject,
    target: &'a Target,
    /// Its figures for this model.
    machine: planner::Machine,
    weights: String,
    cache: String,
    policy: KvPolicy,
    /// Tokens of a prompt per pass; `None` for all at once.
    chunk: Option<u64>,
    /// It was measured to be best.
    chunk_measured: bool,
    /// It was asked for.
    chunk_given: bool,
    context: u64,
    plan: planner::Forecast,
    /// The same weights with each cache that is compared.
    candidates: Vec<ModelVariant>,
    /// What they come to.
    caches: Vec<CacheRow>,
    /// What this machine's executor would take, if it is this machine that is planned for.
    needs: Option<MemoryNeeds>,
    what_if: Vec<WhatIf>,
    goals: Option<(Goals, Answer)>,
    /// How far off expected times of prompts and of steps were when this model ran here.
    error_bars: [Option<ErrorBar>; 2],
    /// What is too large, and what would fit.
    misfit: Option<String>,
    /// What caches may take, if that is bounded.
    bound: Option<fit::Bound>,
    /// What a card should have, if that was asked.
    placing: Option<placement::Placing>,
    /// Width in columns of the terminal that the report is printed to; `None` if it is not a terminal.
    columns: Option<usize>,
}

struct CacheRow {
    cache: String,
    bytes_per_token: f64,
    longest_context: Option<u64>,
}

/// A model on this machine, whose executor tells how much memory it takes. For others it is theory: weights as the file
/// has them, caches without what blocks add.
struct Here<'a> {
    executor: &'a dyn Executor,
    program: Arc<Program>,
    context: u64,
}

impl<'a> Here<'a> {
    /// A model with its types, if it is this machine that is planned for.
    fn of(target: &'a Target, program: Option<Arc<Program>>, context: u64) -> Option<Here<'a>> {
        let (executor, program) = target.executor.as_deref().zip(program)?;
        let here = Here { executor, program, context };
        here.refused().iter().for_each(|why| ui::warn(why));
        Some(here)
    }

    fn cache(Cache { k, v, policy }: Cache, capacity: u64) -> CacheOptions {
        let capacity = usize::try_from(capacity).unwrap_or(usize::MAX);
        CacheOptions { policy, ..CacheOptions::new(k, v, capacity) }
    }

    fn chunk(candidate: &ModelVariant) -> usize {
        let chunk = candidate.estimate.chunk().and_then(|chunk| usize::try_from(chunk).ok());
        chunk.unwrap_or(DEFAULT_CHUNK)
    }

    /// What of the model the executor leaves to the processor, if it is a GPU's: nothing else is planned for.
    fn refused(&self) -> Option<String> {
        let division = Division::of(&self.program, self.executor, DeviceShare::default()).ok()?;
        let (rest, why) = (division.on_processor(), division.refused()?);
        Some(format!(
            "planned as if the GPU ran {rest} too, which it leaves to the processor: {why}"
        ))
    }

    /// At the context that is planned for.
    fn needs(&self, candidate: &ModelVariant, types: Cache) -> program::Result<MemoryNeeds> {
        self.needs_of(candidate, types, self.context)
    }

    /// At a context of so many tokens.
    fn needs_of(
        &self,
        candidate: &ModelVariant,
        types: Cache,
        tokens: u64,
    ) -> program::Result<MemoryNeeds> {
        let (cache, chunk) = (Here::cache(types, tokens), Here::chunk(candidate));
        memory::needs(self.executor, &self.program, &cache, chunk)
    }

    /// The most positions in steps of 256 that `memory` holds.
    fn longest(&self, candidate: &ModelVariant, types: Cache, memory: f64) -> u64 {
        let room = (memory as u64).saturating_sub(memory::OVERHEAD);
        let (cache, chunk) = (Here::cache(types, LONGEST), Here::chunk(candidate));
        let count =
            |cache: &CacheOptions| memory::needs(self.executor, &self.program, cache, chunk);
        memory::longest_context(&count, &cache, room) as u64
    }
}

/// No context is looked at beyond this.
const LONGEST: u64 = 1 << 24;

impl Plan {
    pub(crate) fn run(self, out: &mut dyn Write) -> anyhow::Result<()> {
        if self.list {
            if !self.json {
                return list::print(out);
            }
            serde_json::to_writer_pretty(&mut *out, &list::json())?;
            return Ok(writeln!(out)?);
        }
        let name = self.name.clone().or_else(|| self.model.clone());
        let name = name.or_else(args::variable).filter(|name| !name.is_empty());
        let name = name.ok_or_else(|| Failure::Usage("no model: rooflight plan MODEL".into()))?;
        // what is on a hub is planned for by its header
        let outline = match Subject::is_known(&name) {
            true => None,
            false => names::outline(Path::new(&name))?,
        };
        let subject = match &outline {
            Some(outline) => Subject::of_outline(outline.path(), outline.name())?,
            None => Subject::find(&name)?,
        };
        self.plot.iter().try_for_each(|file| self.output.check(file))?;
        let target = self.target.target()?;
        let report = self.report(&subject, &target)?;
        if let Some(file) = &self.plot {
            picture::write(file, &charts::picture(&report), self.output)?;
        }
        if self.json {
            serde_json::to_writer_pretty(&mut *out, &json::report(&report))?;
            writeln!(out)?;
        } else {
            text::report(&report, self.verbose, out)?;
        }
        match report.goals {
            Some((_, answer)) if !answer.met() => {
                let misses: Vec<_> = answer.misses.iter().map(miss).collect();
                Err(Failure::Goals(misses.join("; ")).into())
            }
            _ => {
                report.misfit.map_or(Ok(()), |misfit| Err(rooflight::Error::NoRoom(misfit).into()))
            }
        }
    }

    /// What of a context queries read.
    fn policy(&self, subject: &Subject, units: Units) -> anyhow::Result<KvPolicy> {
        self.cache.policy.warnings().iter().for_each(|warning| ui::warn(warning));
        let asked = self.cache.policy.policy(subject.config.context_length);
        rooflight::policy::check(&asked)?;
        if asked != KvPolicy::Full && units == Units::Article {
            let wrong = "--kv-policy: in the article all of the context is read";
            return Err(Failure::Usage(wrong.into()).into());
        }
        Ok(asked)
    }

    fn report<'a>(&self, subject: &'a Subject, target: &'a Target) -> anyhow::Result<Report<'a>> {
        let units = target.units;
        let made_for = subject.config.context_length as u64;
        let context = match self.context {
            Some(0) => made_for,
            asked => asked.unwrap_or(made_for.min(8192)),
        };
        let context = context.max(1);
        self.check(subject, context)?;
        let policy = self.policy(subject, units)?;
        load::warn_about_context(&subject.config, context as usize, &policy);
        let room = target.room();
        let at_once = subject.config.reads_at_once().then_some(context);
        let chunk = at_once.or(self.cache.chunk.map(|chunk| chunk as u64));
        if chunk.is_some() && units == Units::Article {
            ui::warn("--chunk has no effect: in the article prompts go through at once");
        }
        let with = |weights: Weights, caches: &[Cache]| {
            candidates::candidates(subject, weights, caches, target, chunk)
        };
        let all = |caches: &[Cache]| -> anyhow::Result<Vec<ModelVariant>> {
            let each = Weights::compared(subject, units).into_iter().map(|w| with(w, caches));
            Ok(each.collect::<anyhow::Result<Vec<_>>>()?.concat())
        };
        let own = Cache { k: self.cache.k(), v: self.cache.v(), policy };
        let compared = compared_caches(policy);
        let asked = self.cache.cache_type_k.is_some() || self.cache.cache_type_v.is_some();
        let goals = self.goals(context, room);
        // what is asked for is not up for choice
        let caches = if asked { std::slice::from_ref(&own) } else { &compared[..] };
        let choice = match (goals, self.weights.as_deref()) {
            (None, _) => Vec::new(),
            (Some(_), Some(name)) => with(Weights::choose(Some(name), subject, units)?, caches)?,
            (Some(_), None) => all(caches)?,
        };
        let answer = goals.and_then(|goals| Some((goals, solve(&choice, &goals)?)));
        let (chosen, caches, types) = match &answer {
            Some((_, answer)) => {
                let chosen = &choice[answer.index];
                let same = choice.iter().filter(|c| c.weights == chosen.weights).cloned();
                (chosen.clone(), same.collect::<Vec<_>>(), caches.to_vec())
            }
            None => {
                let weights = Weights::choose(self.weights.as_deref(), subject, units)?;
                let mut caches = vec![own];
                caches.extend(compared.into_iter().filter(|cache| *cache != own));
                let all = with(weights, &caches)?;
                (all[0].clone(), all, caches)
            }
        };
        let weights = Weights::named(&chosen.weights, self.weights.as_deref(), subject, units)?;
        let here = Here::of(target, weights.program(subject)?, context);
        // what the executor does not run is planned in theory
        let here = here.filter(|here| here.needs(&chosen, types[0]).is_ok());
        let cache_row = |(candidate, types): (&ModelVariant, &Cache)| CacheRow {
            cache: candidate.cache.clone(),
            bytes_per_token: candidate.estimate.cache_bytes_per_token(),
            longest_context: match (&here, target.memory) {
                (Some(here), Some(memory)) => Some(here.longest(candidate, *types, memory)),
                _ => room.map(|room| candidate.estimate.longest_context(room)),
            }
            .map(|longest| longest.min(subject.config.n_positions.map_or(u64::MAX, |n| n as u64))),
        };
        let rows: Vec<CacheRow> = caches.iter().zip(&types).map(cache_row).collect();
        let at = caches.iter().position(|candidate| candidate.cache == chosen.cache);
        let needs = here.as_ref().zip(at).map(|(here, at)| here.needs(&chosen, types[at]));
        let needs = needs.transpose()?;
        let what_if = what_if(&all(&compared)?, room, context);
        let bound = self.bound(&chosen, here.as_ref().zip(at.map(|at| types[at])), context);
        let memory = at.zip(target.memory);
        let placing =
            self.placing(subject, target, weights, at.map(|at| (&chosen, types[at], context)))?;
        let misfit = || match &placing {
            // what the card has no room for is the processor's
            Some(placing) => placing.misfit.clone(),
            None => {
                let (at, memory) = memory.filter(|its| !fit::on_disk(&bound, needs, its.1))?;
                fit::problem(&fit::Wanted::of(&chosen, context, memory), &rows[at], &what_if)
            }
        };
        let misfit = bound.as_ref().and_then(fit::Bound::problem).or_else(misfit);
        Ok(Report {
            placing,
            subject,
            target,
            machine: target.machine(chosen.estimate.step_bytes() as u64)?,
            error_bars: target.error_bars(&chosen.estimate),
            plan: planner::Forecast::of(&chosen.estimate, room, &Lengths::up_to(context)),
            weights: chosen.weights,
            cache: chosen.cache,
            policy,
            chunk: chosen.estimate.chunk(),
            chunk_measured: self.cache.chunk.is_none() && target.has_chunk(&chosen.estimate),
            chunk_given: self.cache.chunk.is_some(),
            context,
            caches: rows,
            needs,
            candidates: caches,
            what_if,
            goals: answer,
            misfit,
            bound,
            columns: ui::stdout_columns(),
        })
    }

    /// What a card should have, if that is asked.
    fn placing(
        &self,
        subject: &Subject,
        card: &Target,
        weights: Weights,
        placed: Option<(&ModelVariant, Cache, u64)>,
    ) -> anyhow::Result<Option<placement::Placing>> {
        let Some((chosen, types, context)) = placed.filter(|_| self.placement) else {
            return Ok(None);
        };
        let Some(program) = weights.program(subject)? else {
            let problem = "--placement has no meaning in the article's units";
            return Err(Failure::Usage(problem.into()).into());
        };
        let bytes = chosen.estimate.step_bytes() as u64;
        let cache = Here::cache(types, context);
        placement::Placing::of(&program, &cache, card, bytes).map(Some)
    }

    /// What `chosen` takes of the memory that caches may have, if that is bounded.
    fn bound(
        &self,
        chosen: &ModelVariant,
        here: Option<(&Here<'_>, Cache)>,
        context: u64,
    ) -> Option<fit::Bound> {
        let storage = self.cache.storage.options();
        let theory = |tokens| chosen.estimate.memory(tokens) - chosen.estimate.resident_bytes();
        let bytes = |tokens| match here {
            Some((here, types)) => {
                let needs = here.needs_of(chosen, types, tokens);
                needs.map_or(f64::NAN, |needs| {
                    rooflight::storage::least_bound(&storage, needs) as f64
                })
            }
            // elsewhere nobody tells how little does beside a disk
            None if storage.disk.is_some() => 0.0,
            None => theory(tokens),
        };
        // states have no types
        let shrinks = chosen.estimate.cache_bytes_per_token() > 0.0;
        fit::Bound::new(&storage, context, &bytes, shrinks)
    }

    /// Refuse what the model cannot have: goals of replies, more positions than it has learned.
    fn check(&self, subject: &Subject, context: u64) -> anyhow::Result<()> {
        let of_replies = [
            ("--ttft", self.goals.ttft.is_some()),
            ("--tps", self.goals.tps.is_some()),
            ("--plot", self.plot.is_some()),
        ];
        if subject.config.text.is_some()
            && let Some((option, _)) = of_replies.iter().find(|(_, given)| *given)
        {
            let wrong =
                format!("{option} is about replies: this model reads texts and writes none");
            return Err(Failure::Usage(wrong).into());
        }
        Ok(load::check_positions(subject.config.n_positions, context)?)
    }

    fn goals(&self, context: u64, memory: Option<f64>) -> Option<Goals> {
        let GoalArgs { ttft, tps, prompt_tokens } = self.goals.clone();
        (ttft.is_some() || tps.is_some()).then(|| Goals {
            first_token: ttft,
            tokens_per_second: tps,
            context,
            prompt: prompt_tokens.unwrap_or(512).min(context),
            memory,
        })
    }
}

/// What a file comes to on this machine.
pub(crate) struct FilePlan {
    /// One line: what it is, what it takes, how fast it can be.
    pub(crate) summary: String,
    /// What is too large, and what would fit.
    pub(crate) misfit: Option<String>,
}

/// What `rooflight plan FILE` says, in short, with so many bytes of memory beside those that are free.
///
/// # Errors
/// What is wrong with the file; a machine that cannot be measured.
#[cfg_attr(not(test), allow(dead_code, reason = "who brings models here asks it"))]
pub(crate) fn plan_of_file(path: &Path, more: u64) -> anyhow::Result<FilePlan> {
    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        plan: Plan,
    }
    let line = [OsStr::new("plan"), path.as_os_str()];
    let line = <Line as clap::Parser>::try_parse_from(line)?;
    let subject = Subject::find(path.as_os_str())?;
    let mut target = line.plan.target.target()?;
    target.memory = target.memory.map(|free| free + more as f64);
    let report = line.plan.report(&subject, &target)?;
    Ok(FilePlan { summary: text::summary(&report), misfit: report.misfit })
}

/// `first token after 1.62 s, 500 ms wanted: 3.24 times as long`.
fn miss(miss: &Miss) -> String {
    use planner::goal::Goal;
    let factor = units::three_figures(miss.factor());
    let seconds = units::short_seconds;
    match miss.goal {
        Goal::FirstToken => {
            let (possible, wanted) = (seconds(miss.possible), seconds(miss.wanted));
            format!(
                "first token after {possible}, {wanted} wanted: that takes {factor} times as long"
            )
        }
        Goal::TokensPerSecond => {
            let (possible, wanted) =
                (units::three_figures(miss.possible), units::three_figures(miss.wanted));
            format!("{possible} tok/s, {wanted} wanted: that is {factor} times as fast")
        }
        Goal::Memory => {
            let need = units::decimal_bytes(miss.possible);
            let room = units::decimal_bytes(miss.wanted.max(0.0));
            format!("{need} of memory, {room} are there")
        }
    }
}

impl Report<'_> {
    fn article(&self) -> bool {
        self.target.units == Units::Article
    }
}
