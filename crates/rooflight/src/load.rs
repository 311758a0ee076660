//! From a model's file to a model that runs: the executor is chosen, memory is checked, the machine is measured at first use, and the
//! weights are loaded.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use engine::DEFAULT_CHUNK;
use executors::{ExecutorKind, ExecutorOptions, GpuFacts, SessionFolders, Started};
use gguf::Gguf;
use models::{GgufWeights, LoadedModel, ModelConfig};
use planner::{Executed, Rates, WantedRates};
use program::{CacheOptions, CacheStorage, Executor, MemoryNeeds, Model, Program};

use crate::executor::{self, ExecutorChoice, ToRun};
use crate::fit::{self, Room};
use crate::machine::ceilings::{self, KeptCeilings, KnownCeilings};
use crate::notices::{Task, Topic};
use crate::storage::{self, WaysOut};
use crate::{Error, Result, Runtime, guessing, policy};

/// A model that is ready to step.
pub struct Loaded {
    /// Its dimensions.
    pub config: ModelConfig,
    /// The model as its executor runs it.
    pub model: Arc<dyn Model>,
    /// Blocks of its own file that guess tokens, if they were asked for.
    pub guesses: Option<Arc<dyn Model>>,
    /// The executor.
    pub executor: Box<dyn Executor>,
    /// Options of the executor.
    pub chosen: ExecutorOptions,
    /// The GPU that runs it, or a part of it.
    pub gpu: Option<GpuFacts>,
    /// What the machine can do at most, if that was asked for or is stored.
    pub ceilings: Option<KnownCeilings>,
    /// What our kernels reach on the machine, as far as that is known.
    pub rates: Option<Rates>,
    /// Tokens of a prompt per pass: as asked for, else the best by measurements, else the default.
    pub chunk: usize,
    /// Memory that it needs, with one session.
    pub needs: MemoryNeeds,
    /// Time that loading the weights took.
    pub time: Duration,
}

impl Loaded {
    /// Returns the number of threads that compute.
    pub fn n_threads(&self) -> usize {
        let beside = self.gpu.as_ref().is_some_and(|gpu| gpu.beside.is_some());
        let kind = if beside { ExecutorKind::Cpu } else { self.chosen.kind };
        ExecutorOptions { kind, ..self.chosen.clone() }.n_threads()
    }
}

/// How a model is loaded.
#[derive(Clone, Debug, Default)]
pub struct LoadOptions {
    /// How the executor is chosen.
    pub executor: ExecutorChoice,
    /// Whether the ceilings of the machine, and the rates of the model's types, are measured if they are unknown. That happens before
    /// the weights take their memory. Without, stored figures are used.
    pub ceilings: bool,
    /// Maximum tokens of a prompt per pass.
    pub chunk: Option<usize>,
    /// The feature that needs the same bits for any division of a text into steps, if one does.
    pub same_bits: Option<&'static str>,
    /// Where the caches of sessions are.
    pub storage: CacheStorage,
    /// Whether blocks of the file that guess tokens are loaded.
    pub guesses: bool,
    /// Where sessions are stored over restarts.
    pub kept: SessionFolders,
    /// Whether doubts about the limits of the machine are reported every time, and not only once.
    pub repeats_doubt: bool,
    /// Lets the user skip the measurement of the machine.
    pub skip: Option<Skip>,
}

/// Lets the user skip the measurement of the machine at first use.
#[derive(Clone)]
pub struct Skip(pub Arc<dyn SkipMeasuring>);

/// See [`Skip`].
pub trait SkipMeasuring: Send + Sync {
    /// Called before the measurement.
    fn begin(&self);
    /// Returns whether the user has asked to skip the rest.
    fn is_skipped(&self) -> bool;
    /// Called after the measurement.
    fn end(&self);
}

impl fmt::Debug for Skip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Skip")
    }
}

/// Loads a model whose file was read. `cache` are the options of one session.
///
/// # Errors
/// Options that this model or executor does not support; a model that does not fit in memory.
pub fn load(
    runtime: &Runtime,
    gguf: &Gguf,
    loaded: LoadedModel,
    options: &LoadOptions,
    cache: &CacheOptions,
) -> anyhow::Result<Loaded> {
    check_positions(loaded.program.n_positions(), cache.capacity as u64)?;
    let loaded = loaded.within(gguf, cache.capacity).context("reading the model")?;
    let loaded = if options.guesses { guessing::guessing(loaded, gguf)? } else { loaded };
    policy::check(&cache.policy)?;
    let chosen = options.executor.options_for(&loaded.program)?;
    let chosen = ExecutorOptions { kept: options.kept.clone(), ..chosen };
    storage::check_kind(&options.storage, chosen.kind)?;
    let it = ToRun {
        runtime,
        gguf,
        program: &loaded.program,
        cache,
        chunk: options.chunk.unwrap_or(DEFAULT_CHUNK),
        storage: &options.storage,
        same_bits: options.same_bits,
        asked: options.executor.share.asked(),
        products: options.executor.products,
    };
    let (chosen, started) = executor::start(chosen, &it)?;
    // a GPU that was chosen for the user and fails is replaced for the user
    let spare = (options.executor.kind() == ExecutorKind::Auto && started.gpu.is_some())
        .then(|| (loaded.clone(), ExecutorOptions { kind: ExecutorKind::Cpu, ..chosen.clone() }));
    match (load_on(runtime, (chosen, started), gguf, loaded, options, cache), spare) {
        (Err(why), Some((loaded, chosen))) => {
            let text = format!("--executor auto: the processor runs it: {why:#}");
            runtime.warn(Topic::Executor, &text);
            let started = chosen.start_with(&options.storage)?;
            load_on(runtime, (chosen, started), gguf, loaded, options, cache)
        }
        (done, _) => done,
    }
}

/// Loads a second model that runs in turn with `first`, on the same threads. The bound on caches does not apply to its own.
///
/// # Errors
/// As [`load`].
pub fn load_beside(
    runtime: &Runtime,
    first: &Loaded,
    gguf: &Gguf,
    loaded: LoadedModel,
    options: &LoadOptions,
    cache: &CacheOptions,
) -> anyhow::Result<Loaded> {
    let loaded = loaded.within(gguf, cache.capacity).context("reading the model")?;
    check_positions(loaded.program.n_positions(), cache.capacity as u64)?;
    let storage = CacheStorage::default();
    let options = LoadOptions { ceilings: false, storage, guesses: false, ..options.clone() };
    let started = match first.executor.beside(&options.storage) {
        Some(executor) => Started { executor, gpu: first.gpu.clone(), tuning: None, refused: None },
        None => first.chosen.start_with(&options.storage)?,
    };
    load_on(runtime, (first.chosen.clone(), started), gguf, loaded, &options, cache)
}

/// Loads a model into the executor that was `started` as `chosen`.
fn load_on(
    runtime: &Runtime,
    (chosen, started): (ExecutorOptions, Started),
    gguf: &Gguf,
    loaded: LoadedModel,
    options: &LoadOptions,
    cache: &CacheOptions,
) -> anyhow::Result<Loaded> {
    let LoadedModel { config, program, guesses, notes: _ } = loaded;
    let chunk = options.chunk.unwrap_or(DEFAULT_CHUNK);
    let Started { executor, gpu, .. } = started;
    let room = Room { available: fit::free(gpu.as_ref()), trained: config.context_length };
    let own = |cache: &CacheOptions| fit::needs(&*executor, &program, cache, chunk);
    let all = |cache: &CacheOptions| match &guesses {
        Some(guesses) => {
            guessing::with_needs(own(cache)?, &*executor, (guesses, &program), cache, chunk)
        }
        None => own(cache),
    };
    let needs = fit::check_fit(&all, cache, room)?;
    let ways = |bound| WaysOut {
        longest: storage::longest(&options.storage, &*executor, &program, cache, (chunk, bound)),
        shrinks: fit::shrinks(&own, cache),
    };
    storage::check(&options.storage, needs, cache, ways)?;
    let known = match options.ceilings {
        true => {
            let WantedRates { types, scans, .. } =
                Executed::of(&program, cache.k, cache.v).wanted();
            let wanted = WantedRates { types, scans, ..WantedRates::default() };
            // kernels of a GPU are measured only on request
            let wanted = gpu.is_none().then_some(&wanted);
            let known = first_use(runtime, &*executor, wanted, options.skip.as_ref());
            known.iter().for_each(|kept| {
                ceilings::tell_doubt(runtime, kept, options.repeats_doubt);
            });
            known
        }
        // use earlier measurements, if there are any
        false => ceilings::kept(runtime, &*executor),
    };
    let ceilings = known.as_ref().and_then(KnownCeilings::of);
    let rates = known.and_then(|kept| kept.rates());
    // a GPU has the same chunk always: its bits depend on how a prompt is divided
    let best = || best_chunk(&program, cache, rates.as_ref().filter(|_| gpu.is_none()));
    let chunk = options.chunk.or_else(best).unwrap_or(DEFAULT_CHUNK);
    let start = Instant::now();
    let loading = runtime.begin(Task::Load);
    let model = executor
        .load(Arc::clone(&program), &GgufWeights(gguf), &mut |progress| {
            loading.update(progress.done, progress.total);
        })
        .context("loading the model");
    drop(loading);
    let model: Arc<dyn Model> = Arc::from(model?);
    let guesses = guesses.map(|guesses| guessing::load(&*executor, &*model, guesses, gguf));
    let guesses = guesses.transpose()?;
    gguf.check_unchanged().context("loading the model")?;
    let time = start.elapsed();
    Ok(Loaded {
        config,
        model,
        guesses,
        executor,
        chosen,
        gpu,
        ceilings,
        rates,
        chunk,
        needs,
        time,
    })
}

/// Returns what is known of the machine, and measures what is missing, unless the user skips it.
fn first_use(
    runtime: &Runtime,
    executor: &dyn Executor,
    wanted: Option<&WantedRates>,
    skip: Option<&Skip>,
) -> Option<KeptCeilings> {
    let Some(Skip(skip)) = skip else {
        return ceilings::first_use(runtime, executor, wanted, None);
    };
    skip.begin();
    let known = ceilings::first_use(runtime, executor, wanted, Some(&|| skip.is_skipped()));
    skip.end();
    known
}

/// Returns the best number of prompt tokens per pass on this machine, if its rates are known: see [`Executed::chunk`]. Bits do not
/// depend on it.
pub fn best_chunk(program: &Program, cache: &CacheOptions, rates: Option<&Rates>) -> Option<usize> {
    let chunk = Executed::of(program, cache.k, cache.v).chunk(rates?)?;
    usize::try_from(chunk).ok()
}

/// Checks that a context has no more positions than the model has learned, if it has learned each.
///
/// # Errors
/// [`Error::Options`] for a longer context.
pub fn check_positions(learned: Option<usize>, capacity: u64) -> Result<()> {
    match learned {
        Some(n) if capacity > n as u64 => Err(Error::Options(format!(
            "a context of {capacity} tokens: this model has learned {n} positions, and can read no more"
        ))),
        _ => Ok(()),
    }
}
