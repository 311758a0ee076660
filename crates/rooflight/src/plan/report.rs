//! [`Plan`]: what a model takes on a machine and how fast it can be there.

use std::path::Path;
use std::sync::Arc;

use engine::DEFAULT_CHUNK;
use planner::formula::Units;
use planner::goal::{Answer, Goals};
use planner::{Estimate, Forecast, Lengths, ModelVariant, WhatIf, what_if};
use program::{
    CacheOptions, CacheStorage, CacheType, DeviceShare, Division, Executor, KvPolicy, MemoryNeeds,
    Program,
};

use super::PlannedPlacement;
use super::choice::Choice;
use super::fit::{self, Bound};
use super::subject::Subject;
use super::target::{Target, TargetRequest};
use super::weights::{self, Cache, Weights, compared_caches};
use crate::fit::LongestContexts;
use crate::notices::Topic;
use crate::predictions::ErrorBar;
use crate::units::{counted, figures, scaled, thousands};
use crate::{Error, Runtime, fit as memory, load, policy, storage};

/// Default context, in tokens, unless the model was trained for less.
const DEFAULT_CONTEXT: u64 = 8192;
/// Default prompt whose first token a goal is about, in tokens.
const DEFAULT_PROMPT: u64 = 512;

/// What to plan. The default plans a file's own weights, or those that the model is published with, and a cache of f16.
#[derive(Clone, Debug)]
pub struct PlanRequest {
    /// Type of the weights, such as `Q4_K_M`.
    pub weights: Option<String>,
    /// Size of the context, in tokens; 0 for the one that the model was trained for.
    pub context: Option<u64>,
    /// Types of keys and values in the cache.
    pub cache: [CacheType; 2],
    /// Whether other types of the cache may meet the goals.
    pub other_caches: bool,
    /// What of the context queries read.
    pub policy: KvPolicy,
    /// Where the caches are stored and how much memory they may take.
    pub storage: CacheStorage,
    /// Tokens of a prompt per pass.
    pub chunk: Option<u64>,
    /// Goals that the types of weights and cache are chosen by.
    pub goals: PlanGoals,
    /// Whether to place the model on a card and a processor.
    pub placement: bool,
}

/// Goals of replies. With one of the first two, the best types of weights and cache that meet them are chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PlanGoals {
    /// Maximum time to the first token, in seconds.
    pub first_token: Option<f64>,
    /// Minimum number of tokens per second when the context is full.
    pub tokens_per_second: Option<f64>,
    /// Length of the prompt whose first token is meant; by default 512 tokens.
    pub prompt: Option<u64>,
}

impl Default for PlanRequest {
    fn default() -> PlanRequest {
        PlanRequest {
            weights: None,
            context: None,
            cache: [CacheType::F16; 2],
            other_caches: true,
            policy: KvPolicy::Full,
            storage: CacheStorage::default(),
            chunk: None,
            goals: PlanGoals::default(),
            placement: false,
        }
    }
}

impl PlanRequest {
    /// Returns the size of the context that is planned for a model, in tokens.
    pub fn context_for(&self, subject: &Subject) -> u64 {
        let trained = subject.config.context_length as u64;
        let context = match self.context {
            Some(0) => trained,
            asked => asked.unwrap_or(trained.min(DEFAULT_CONTEXT)),
        };
        context.max(1)
    }
}

/// What a model takes on a machine and how fast it can be there.
pub struct Plan<'a> {
    /// The model.
    pub subject: &'a Subject,
    /// The machine.
    pub target: &'a Target,
    /// The figures of the machine for this model.
    pub machine: planner::Machine,
    /// Type of the weights.
    pub weights: String,
    /// Types of the cache.
    pub cache: String,
    /// What of the context queries read.
    pub policy: KvPolicy,
    /// Tokens of a prompt per pass; `None` if all go through at once.
    pub chunk: Option<u64>,
    /// Whether this chunk was measured to be the fastest.
    pub chunk_measured: bool,
    /// Whether this chunk was asked for.
    pub chunk_given: bool,
    /// Size of the context, in tokens.
    pub context: u64,
    /// Memory and times by length.
    pub forecast: Forecast,
    /// The same weights with each cache that is compared.
    pub candidates: Vec<ModelVariant>,
    /// The caches of these candidates.
    pub caches: Vec<CacheRow>,
    /// What the executor of this machine would take; `None` if another machine is planned for.
    pub needs: Option<MemoryNeeds>,
    /// Other types of weights and cache.
    pub what_if: Vec<WhatIf>,
    /// The goals, and how the chosen types meet them.
    pub goals: Option<(Goals, Answer)>,
    /// How far off expected times of prompts and of steps were when this model ran here.
    pub error_bars: [Option<ErrorBar>; 2],
    /// What is too large, and what would fit; `None` if the model fits.
    pub misfit: Option<String>,
    /// The limit on the caches, if there is one.
    pub bound: Option<Bound>,
    /// The placement on a card and a processor, if it was asked for, or if the card alone has no room for the model.
    pub placing: Option<PlannedPlacement>,
}

/// A cache of some types.
#[derive(Clone, Debug, PartialEq)]
pub struct CacheRow {
    /// Its types, such as `f16`.
    pub cache: String,
    /// Size of a token in it.
    pub bytes_per_token: f64,
    /// The longest context that fits into memory, in tokens; `None` if the memory is unknown.
    pub longest_context: Option<u64>,
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
    fn of(
        runtime: &Runtime,
        target: &'a Target,
        program: Option<Arc<Program>>,
        context: u64,
    ) -> Option<Here<'a>> {
        let (executor, program) = target.executor.as_deref().zip(program)?;
        let here = Here { executor, program, context };
        here.refused().iter().for_each(|why| runtime.warn(Topic::Plan, why));
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

    /// Returns the longest context that `memory` holds with a cache of these types, in steps of 256 positions. Sets it for the
    /// rows of the same types, too: their weights differ in size from those of `candidate`.
    fn longest(
        &self,
        (candidate, types): (&ModelVariant, Cache),
        (memory, units): (f64, Units),
        rows: &mut [WhatIf],
    ) -> u64 {
        let (cache, chunk) = (Here::cache(types, LONGEST), Here::chunk(candidate));
        let bytes = |capacity: usize| {
            let cache = CacheOptions { capacity, ..cache };
            let needs = memory::needs(self.executor, &self.program, &cache, chunk);
            needs.map_or(u64::MAX, |needs| needs.here())
        };
        let mut contexts = LongestContexts::new(cache.capacity, &bytes);
        let mut within =
            |memory: f64| contexts.within((memory as u64).saturating_sub(memory::OVERHEAD)) as u64;
        let name = weights::cache_name(types, units);
        for row in rows.iter_mut().filter(|row| row.cache == name) {
            let more = row.resident_bytes - candidate.estimate.resident_bytes();
            row.longest_context = Some(within(memory - more));
        }
        within(memory)
    }
}

/// No context is looked at beyond this.
const LONGEST: u64 = 1 << 24;

impl<'a> Plan<'a> {
    /// Plans a model on a machine.
    ///
    /// # Errors
    /// [`Error::Options`] for what the model does not have or the planner does not know; a machine that was not measured.
    pub fn of(
        runtime: &Runtime,
        subject: &'a Subject,
        target: &'a Target,
        request: &PlanRequest,
    ) -> anyhow::Result<Plan<'a>> {
        let context = request.context_for(subject);
        request.check(subject, target, context)?;
        let Choice { chosen, weights, variants: caches, types, answer, compared } =
            Choice::of(subject, target, request)?;
        let room = target.room();
        let here = Here::of(runtime, target, weights.program(subject)?, context);
        // what the executor does not run is planned in theory
        let here = here.filter(|here| here.needs(&chosen, types[0]).is_ok());
        let mut what_if = what_if(&compared, room, context);
        let mut rows = Vec::new();
        for (candidate, types) in caches.iter().zip(&types) {
            let longest = match (&here, target.memory) {
                (Some(here), Some(memory)) => {
                    Some(here.longest((candidate, *types), (memory, target.units), &mut what_if))
                }
                _ => room.map(|room| candidate.estimate.longest_context(room)),
            };
            rows.push(CacheRow {
                cache: candidate.cache.clone(),
                bytes_per_token: candidate.estimate.cache_bytes_per_token(),
                longest_context: longest,
            });
        }
        if let (Some(here), Some(memory)) = (&here, target.memory) {
            let others = compared_caches(request.policy).into_iter();
            for other in others.filter(|other| !types.contains(other)) {
                here.longest((&chosen, other), (memory, target.units), &mut what_if);
            }
        }
        if let Some(most) = subject.config.n_positions {
            let in_rows = rows.iter_mut().map(|row| &mut row.longest_context);
            let in_table = what_if.iter_mut().map(|row| &mut row.longest_context);
            for longest in in_rows.chain(in_table).flatten() {
                *longest = (*longest).min(most as u64);
            }
        }
        let at = caches.iter().position(|candidate| candidate.cache == chosen.cache);
        let needs = here.as_ref().zip(at).map(|(here, at)| here.needs(&chosen, types[at]));
        let needs = needs.transpose()?;
        let bound = request.bound(&chosen, here.as_ref().zip(at.map(|at| types[at])), context);
        let memory = at.zip(target.memory);
        let placing = request.placing(
            runtime,
            subject,
            target,
            weights,
            at.map(|at| (&chosen, types[at], context)),
        )?;
        let misfit = || match &placing {
            // what the card has no room for is the processor's
            Some(placing) => placing.misfit.clone(),
            None => {
                let (at, memory) = memory.filter(|its| !fit::on_disk(&bound, needs, its.1))?;
                fit::problem(&fit::Wanted::of(&chosen, context, memory), &rows[at], &what_if)
            }
        };
        let beyond = bound.as_ref().and_then(Bound::problem);
        let (mut misfit, mut placing) = (beyond.clone().or_else(misfit), placing);
        if beyond.is_none() && misfit.is_some() && placing.is_none() {
            let placed = at.map(|at| (&chosen, types[at], context));
            placing = beside_processor(runtime, subject, target, weights, placed);
            misfit = misfit.filter(|_| placing.is_none());
        }
        Ok(Plan {
            placing,
            subject,
            target,
            machine: target.machine(chosen.estimate.step_bytes() as u64)?,
            error_bars: target.error_bars(runtime, &chosen.estimate),
            forecast: Forecast::of(&chosen.estimate, room, &Lengths::up_to(context)),
            weights: chosen.weights,
            cache: chosen.cache,
            policy: request.policy,
            chunk: chosen.estimate.chunk(),
            chunk_measured: request.chunk.is_none() && target.has_chunk(&chosen.estimate),
            chunk_given: request.chunk.is_some(),
            context,
            caches: rows,
            needs,
            candidates: caches,
            what_if,
            goals: answer,
            misfit,
            bound,
        })
    }

    /// Whether the machine alone runs the model, at the speeds of the forecast: it fits, and nothing of it is left to a
    /// processor beside a card.
    pub fn runs(&self) -> bool {
        let is_whole = |placing: &PlannedPlacement| placing.placed.is_whole();
        self.misfit.is_none() && self.placing.as_ref().is_none_or(is_whole)
    }

    /// Returns the answer in one line: that the model fits, that it fits with a part on the processor, or why it does not fit.
    pub fn verdict(&self) -> String {
        if let Some(misfit) = &self.misfit {
            return misfit.clone();
        }
        let at = format!("at {} tokens", thousands(self.context));
        let writes = self.subject.config.text.is_none();
        if let Some(placing) = self.placing.as_ref().filter(|placing| !placing.placed.is_whole()) {
            let best = &placing.placed.best;
            let [layers, experts] = placing.placed.on_processor();
            let left = match (layers, experts) {
                _ if best.layers == 0 => "all of it".to_owned(),
                (0, experts) => format!("the experts of {}", counted(experts, "layer")),
                (layers, 0) => counted(layers, "layer"),
                (layers, experts) => {
                    format!("{} and the experts of {experts} more", counted(layers, "layer"))
                }
            };
            let rate = match writes {
                true => format!(": at most {} tok/s {at}", figures(1.0 / best.seconds)),
                false => String::new(),
            };
            return format!("fits with {left} on the processor{rate}");
        }
        // what lies on disk takes no memory
        let resident = self.bound.as_ref().zip(self.needs);
        let resident = resident.and_then(|(bound, needs)| bound.resident(&needs));
        let total = match (resident, self.needs) {
            (Some(resident), _) => resident as f64,
            (None, Some(needs)) => needs.total() as f64,
            (None, None) => self.estimate().map_or(f64::NAN, |chosen| chosen.memory(self.context)),
        };
        let Some(memory) = self.target.memory else {
            let total = self.size(total);
            return format!("needs {total} {at}; give --memory SIZE to see whether it fits");
        };
        let longest = self.caches.iter().find(|row| row.cache == self.cache);
        let longest = longest.and_then(|row| row.longest_context).filter(|_| self.bound.is_none());
        let longest =
            longest.map_or_else(String::new, |n| format!(", up to {} tokens", thousands(n)));
        let rate = self.forecast.steps.first().filter(|_| writes);
        let rate = rate.map(|point| match point.expected {
            Some(_) => format!(", about {} tok/s", figures(point.step_rate())),
            None => format!(", at most {} tok/s", figures(point.step_rate())),
        });
        let (total, memory) = (self.size(total), self.size(memory));
        format!("fits: {total} of {memory} {at}{longest}{}", rate.unwrap_or_default())
    }

    /// The estimate of the chosen types.
    fn estimate(&self) -> Option<&Estimate> {
        let same = |c: &&ModelVariant| c.weights == self.weights && c.cache == self.cache;
        self.candidates.iter().find(same).map(|c| &c.estimate)
    }

    /// Whether its units are those of the article.
    pub fn article(&self) -> bool {
        self.target.units == Units::Article
    }

    /// Returns a size for people, in the units of the plan.
    pub fn size(&self, bytes: f64) -> String {
        if self.article() {
            scaled(bytes, 1024.0, ["B", "KiB", "MiB", "GiB", "TiB"])
        } else {
            crate::units::decimal_bytes(bytes)
        }
    }

    /// Returns a number of parameters for people, in the units of the plan.
    pub fn parameters(&self, n: u64) -> String {
        let base = if self.article() { 1024.0 } else { 1000.0 };
        scaled(n as f64, base, ["", "K", "M", "B", "T"])
    }

    /// Returns the plan in one line: `qwen2, 7.62 B in 4.68 GB: 5.3 GB of memory at 8,192 tokens, expected 11.2 tok/s (at most
    /// 13.1)`.
    pub fn summary(&self) -> String {
        let forecast = &self.forecast;
        let needs = self.needs.map(|needs| {
            let total = self.size(needs.total() as f64);
            format!(": {total} of memory at {} tokens", thousands(self.context))
        });
        let rate = forecast.steps.first().map(|point| {
            let limit = figures(1.0 / point.limit.limit());
            match point.expected {
                Some(_) => {
                    format!(", expected {} tok/s (at most {limit})", figures(point.step_rate()))
                }
                None => format!(", at most {limit} tok/s"),
            }
        });
        format!(
            "{}, {} in {}{}{}",
            gguf::escape(&self.subject.config.architecture, 40),
            self.parameters(forecast.parameters.resident()),
            self.size(forecast.resident_bytes),
            needs.unwrap_or_default(),
            rate.unwrap_or_default(),
        )
    }
}

impl PlanRequest {
    /// What a card should have, if that is asked.
    fn placing(
        &self,
        runtime: &Runtime,
        subject: &Subject,
        card: &Target,
        weights: Weights,
        placed: Option<(&ModelVariant, Cache, u64)>,
    ) -> anyhow::Result<Option<PlannedPlacement>> {
        let Some((chosen, types, context)) = placed.filter(|_| self.placement) else {
            return Ok(None);
        };
        let Some(program) = weights.program(subject)? else {
            let problem = "--placement has no meaning in the article's units";
            return Err(Error::Options(problem.into()).into());
        };
        let bytes = chosen.estimate.step_bytes() as u64;
        let cache = Here::cache(types, context);
        PlannedPlacement::of(runtime, &program, &cache, card, bytes).map(Some)
    }

    /// What `chosen` takes of the memory that caches may have, if that is bounded.
    fn bound(
        &self,
        chosen: &ModelVariant,
        here: Option<(&Here<'_>, Cache)>,
        context: u64,
    ) -> Option<Bound> {
        let storage = &self.storage;
        let theory = |tokens| chosen.estimate.memory(tokens) - chosen.estimate.resident_bytes();
        let bytes = |tokens| match here {
            Some((here, types)) => {
                let needs = here.needs_of(chosen, types, tokens);
                needs.map_or(f64::NAN, |needs| storage::least_bound(storage, needs) as f64)
            }
            // elsewhere nobody tells how little does beside a disk
            None if storage.disk.is_some() => 0.0,
            None => theory(tokens),
        };
        // states have no types
        let shrinks = chosen.estimate.cache_bytes_per_token() > 0.0;
        Bound::new(storage, context, &bytes, shrinks)
    }

    /// Checks that the model and the planner have what is asked for.
    fn check(&self, subject: &Subject, target: &Target, context: u64) -> Result<(), Error> {
        let PlanGoals { first_token, tokens_per_second, .. } = self.goals;
        if subject.config.text.is_some() && (first_token.is_some() || tokens_per_second.is_some()) {
            let problem = "goals are about replies: this model reads texts and writes none";
            return Err(Error::Options(problem.into()));
        }
        load::check_positions(subject.config.n_positions, context)?;
        policy::check(&self.policy)?;
        if self.policy != KvPolicy::Full && target.units == Units::Article {
            let problem = "--kv-policy: in the article all of the context is read";
            return Err(Error::Options(problem.into()));
        }
        Ok(())
    }

    pub(super) fn goals(&self, context: u64, memory: Option<f64>) -> Option<Goals> {
        let PlanGoals { first_token, tokens_per_second, prompt } = self.goals;
        (first_token.is_some() || tokens_per_second.is_some()).then(|| Goals {
            first_token,
            tokens_per_second,
            context,
            prompt: prompt.unwrap_or(DEFAULT_PROMPT).min(context),
            memory,
        })
    }
}

/// The placement of a model that a card alone has no room for, beside this machine's processor. `None` if the machine is no
/// card, the processor was not measured, or both together have no room.
fn beside_processor(
    runtime: &Runtime,
    subject: &Subject,
    card: &Target,
    weights: Weights,
    placed: Option<(&ModelVariant, Cache, u64)>,
) -> Option<PlannedPlacement> {
    let (chosen, types, context) = placed?;
    let memory = card.room().filter(|_| card.has_own_memory && types.policy == KvPolicy::Full)?;
    let program = weights.program(subject).ok()??;
    let processor = Target::known_processor(runtime)?;
    let (cache, bytes) = (Here::cache(types, context), chosen.estimate.step_bytes() as u64);
    let sides = (card, &processor);
    let placed = PlannedPlacement::beside(&program, &cache, sides, memory, bytes).ok()?;
    let is_divided = placed.placed.best.layers > 0 && !placed.placed.is_whole();
    (placed.misfit.is_none() && is_divided).then_some(placed)
}

/// A model file on this machine's processor, in short.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilePlan {
    /// One line: what it is, what it takes and how fast it can be.
    pub summary: String,
    /// What is too large, and what would fit; `None` if the model fits.
    pub misfit: Option<String>,
}

impl FilePlan {
    /// Plans the file at `path`, with so many `more` bytes of memory than are free.
    ///
    /// # Errors
    /// What is wrong with the file; a machine that cannot be measured.
    pub fn of(runtime: &Runtime, path: &Path, more: u64) -> anyhow::Result<FilePlan> {
        let subject = Subject::of_gguf(runtime, path)?;
        let mut target = Target::find(runtime, &TargetRequest::default())?;
        target.memory = target.memory.map(|free| free + more as f64);
        let plan = Plan::of(runtime, &subject, &target, &PlanRequest::default())?;
        Ok(FilePlan { summary: plan.summary(), misfit: plan.misfit })
    }
}
