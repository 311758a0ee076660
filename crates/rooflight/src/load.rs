//! Loads models: chooses the executor, checks the memory, measures the machine at first use and loads the weights.

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

/// A loaded model, ready for steps.
pub struct Loaded {
    /// Dimensions of the model.
    pub config: ModelConfig,
    /// The model, loaded by its executor.
    pub model: Arc<dyn Model>,
    /// Multi-token prediction blocks from the file of the model, if they were requested. They draft tokens.
    pub guesses: Option<Arc<dyn Model>>,
    /// Executor that runs the model.
    pub executor: Box<dyn Executor>,
    /// Options of the executor.
    pub chosen: ExecutorOptions,
    /// GPU that runs the model or a part of it.
    pub gpu: Option<GpuFacts>,
    /// Ceilings of the machine, if they were requested or are stored.
    pub ceilings: Option<KnownCeilings>,
    /// Measured rates of the kernels on this machine, as far as they are known.
    pub rates: Option<Rates>,
    /// Maximum number of prompt tokens per pass: the requested number, else the best by measured rates, else the default.
    pub chunk: usize,
    /// Memory that the model needs with one session.
    pub needs: MemoryNeeds,
    /// Time to load the weights.
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

/// Options for loading a model.
#[derive(Clone, Debug, Default)]
pub struct LoadOptions {
    /// Choice of the executor.
    pub executor: ExecutorChoice,
    /// Whether to measure unknown ceilings of the machine and rates of the model's types, before the weights are loaded. If
    /// false, only stored measurements are used.
    pub ceilings: bool,
    /// Maximum number of prompt tokens per pass.
    pub chunk: Option<usize>,
    /// Name of a feature that needs bit-identical results however a text is divided into steps, if there is one.
    pub same_bits: Option<&'static str>,
    /// Where the caches of sessions are stored, and the limit on their memory.
    pub storage: CacheStorage,
    /// Whether to load the multi-token prediction blocks of the file.
    pub guesses: bool,
    /// Folders that store sessions across restarts.
    pub kept: SessionFolders,
    /// Whether to report unreliable limits of the machine every time, instead of once.
    pub repeats_doubt: bool,
    /// Lets the user skip the measurement of the machine. Optional.
    pub skip: Option<Skip>,
}

/// Lets the user skip the measurement of the machine at first use.
#[derive(Clone)]
pub struct Skip(pub Arc<dyn SkipMeasuring>);

/// Callbacks of [`Skip`].
pub trait SkipMeasuring: Send + Sync {
    /// Called before the measurement.
    fn begin(&self);
    /// Returns whether the user wants to skip the rest of the measurement.
    fn is_skipped(&self) -> bool;
    /// Called after the measurement.
    fn end(&self);
}

impl fmt::Debug for Skip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Skip")
    }
}

/// Loads a model whose file has been read. `cache` contains the options of one session.
///
/// # Errors
/// [`Error::Options`] if the model or executor does not support the options; [`Error::DoesNotFit`] or [`Error::Bound`] if there
/// is not enough memory; errors of the file and of the executor.
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
    // if `auto` chose a GPU and it fails, the processor takes over
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

/// Loads a second model that takes turns with `first` on the same threads. The limit on the memory of caches does not apply to
/// the second model.
///
/// # Errors
/// Those of [`load`].
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

/// Loads a model into an executor that has been started with the options in `chosen`.
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
            // GPU kernels are measured only on request
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
    // a GPU always uses the same chunk: its results depend on how a prompt is divided
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

/// Returns the stored ceilings and rates, and measures the missing ones unless the user skips the measurement.
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

/// Returns the best number of prompt tokens per pass on this machine, or `None` if the rates are unknown. Results of the
/// processor do not depend on it. See [`Executed::chunk`].
pub fn best_chunk(program: &Program, cache: &CacheOptions, rates: Option<&Rates>) -> Option<usize> {
    let chunk = Executed::of(program, cache.k, cache.v).chunk(rates?)?;
    usize::try_from(chunk).ok()
}

/// Checks that a context fits the position embeddings of a model, if its positions are learned.
///
/// # Errors
/// [`Error::Options`] if the context has more positions than the model has learned.
pub fn check_positions(learned: Option<usize>, capacity: u64) -> Result<()> {
    match learned {
        Some(n) if capacity > n as u64 => Err(Error::Options(format!(
            "a context of {capacity} tokens: this model has learned {n} positions, and can read no more"
        ))),
        _ => Ok(()),
    }
}
