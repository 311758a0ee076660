//! Which executor runs a model: the one asked for, refused in one line where it cannot; or, with `--executor auto`, of the
//! processor and a GPU what was measured to be faster for this model, once, and kept.

use std::sync::Arc;
use std::time::Instant;

use executors::{ExecutorKind, ExecutorOptions, GpuFacts, Started};
use gguf::Gguf;
use models::GgufWeights;
use program::{
    CacheOptions, CacheStorage, CacheType, Error, Executor, Outputs, Program, Sequence, Step,
    Variation,
};
use serde::{Deserialize, Serialize};

use crate::args::ExecutorArgs;
use crate::ceilings::{self, BUILD};
use crate::exit::Failure;
use crate::predictions::ModelKey;
use crate::{memory, ui, units};

/// A model that is to run, as far as it decides what can run it.
pub(crate) struct ToRun<'a> {
    /// The file.
    pub(crate) gguf: &'a Gguf,
    /// What it computes.
    pub(crate) program: &'a Arc<Program>,
    /// The cache of a session.
    pub(crate) cache: &'a CacheOptions,
    /// Most tokens of a step.
    pub(crate) chunk: usize,
    /// Where caches lie.
    pub(crate) storage: &'a CacheStorage,
    /// What was asked for that needs the same bits for any cut of a text.
    pub(crate) same_bits: Option<&'static str>,
}

/// Start what `chosen` names; what that became.
///
/// # Errors
/// [`Failure::Usage`] for what a GPU does not run, where one was asked for; a GPU that is not there.
pub(crate) fn start(
    args: &ExecutorArgs,
    chosen: ExecutorOptions,
    it: &ToRun<'_>,
) -> anyhow::Result<(ExecutorOptions, Started)> {
    let as_kind = |kind| ExecutorOptions { kind, ..chosen.clone() };
    let (chosen, started) = match chosen.kind {
        ExecutorKind::Cpu | ExecutorKind::Interpreter => {
            let started = chosen.start_with(it.storage)?;
            (chosen, started)
        }
        ExecutorKind::Wgpu => {
            let started = chosen.start_with(it.storage).map_err(not_started)?;
            if let Some(what) = refused(&*started.executor, it) {
                let problem = format!(
                    "{}: not supported: {what}; --executor cpu runs it",
                    started.executor.describe()
                );
                return Err(Failure::Usage(problem).into());
            }
            (chosen, started)
        }
        ExecutorKind::Auto => match faster_gpu(&as_kind(ExecutorKind::Wgpu), it) {
            Ok(started) => (as_kind(ExecutorKind::Wgpu), started),
            Err(why) => {
                ui::note(format_args!("--executor auto: the processor runs it: {why}"));
                let cpu = as_kind(ExecutorKind::Cpu);
                let started = cpu.start_with(it.storage)?;
                (cpu, started)
            }
        },
    };
    args.warnings(chosen.kind).iter().for_each(|warning| ui::warn(warning));
    if started.gpu.is_some() {
        on_a_gpu(&chosen, it.cache).iter().for_each(|warning| ui::warn(warning));
    }
    Ok((chosen, started))
}

/// A GPU that is not there, or not linked, is no fault of the model.
fn not_started(error: Error) -> anyhow::Error {
    let why = match error {
        Error::Unsupported(why) | Error::Device { problem: why } => why,
        other => other.to_string(),
    };
    Failure::Usage(format!("--executor wgpu: {why}")).into()
}

/// Options that mean nothing on a GPU.
fn on_a_gpu(chosen: &ExecutorOptions, cache: &CacheOptions) -> Vec<&'static str> {
    let q8_0 = [cache.k, cache.v].contains(&CacheType::Q8_0);
    [
        (chosen.threads.is_some(), "-t has no effect: a GPU computes"),
        (chosen.isa.is_some(), "--isa has no effect: a GPU computes"),
        (q8_0, "a GPU keeps f16 where a cache of q8_0 is asked for"),
    ]
    .into_iter()
    .filter_map(|(given, warning)| given.then_some(warning))
    .collect()
}

/// Why this executor cannot run it, if it cannot.
fn refused(executor: &dyn Executor, it: &ToRun<'_>) -> Option<String> {
    if it.storage.disk.is_some() {
        return Some("caches on disk (--kv-disk)".into());
    }
    if let Some(what) = it.same_bits
        && !promises_cuts(executor)
    {
        return Some(format!("{what}: other cuts of a text may have other bits"));
    }
    match memory::needs(executor, it.program, it.cache, it.chunk) {
        Err(Error::Unsupported(what)) => Some(what),
        _ => None,
    }
}

/// Whether texts keep their bits however they are cut into steps, as what drafts must.
pub(crate) fn promises_cuts(executor: &dyn Executor) -> bool {
    executor.promises().cover(&[Variation::Again, Variation::Cuts])
}

/// The GPU, where it runs this model faster than the processor; else why it does not.
fn faster_gpu(gpu: &ExecutorOptions, it: &ToRun<'_>) -> Result<Started, String> {
    let started = gpu.start_with(it.storage).map_err(|why| why.to_string())?;
    if let Some(what) = refused(&*started.executor, it) {
        return Err(format!("{} does not support {what}", started.executor.describe()));
    }
    let Some(facts) = &started.gpu else { return Err("there is no GPU".into()) };
    // who names it wants to know
    if facts.is_software && gpu.adapter.is_none() {
        return Err(format!("{} is the processor too", facts.adapter));
    }
    let cpu = ExecutorOptions { kind: ExecutorKind::Cpu, ..gpu.clone() };
    let cpu = cpu.start_with(it.storage).map_err(|why| why.to_string())?;
    let key = ChoiceKey::new(&*cpu.executor, facts, it);
    let times = match Choices::read().find(&key) {
        Some(times) => times,
        None => {
            let times = ChoiceTimes {
                gpu_seconds: seconds(&*started.executor, it).map_err(|why| why.to_string())?,
                cpu_seconds: seconds(&*cpu.executor, it).map_err(|why| why.to_string())?,
            };
            Choices::keep(key, times);
            times
        }
    };
    let [cpu, gpu] = [times.cpu_seconds, times.gpu_seconds].map(units::short_seconds);
    let told = format!("{} took {gpu} where the processor took {cpu}", facts.adapter);
    if times.gpu_seconds >= times.cpu_seconds {
        return Err(told);
    }
    ui::note(format_args!("--executor auto: {told}"));
    Ok(started)
}

/// What is timed: a prompt of so many tokens and so many steps after it.
const PROMPT: usize = 64;
const STEPS: usize = 16;

/// Seconds that an executor takes for a short text of this model.
fn seconds(executor: &dyn Executor, it: &ToRun<'_>) -> program::Result<f64> {
    let bar = ui::bytes_bar("loading to measure", 0);
    let weights = GgufWeights(it.gguf);
    let model = executor.load(Arc::clone(it.program), &weights, &mut |progress| {
        bar.set_length(progress.total);
        bar.set_position(progress.done);
    })?;
    bar.finish_and_clear();
    let outputs = match Outputs::LAST.check(it.program) {
        Ok(()) => Outputs::LAST,
        Err(_) => Outputs::NONE,
    };
    let steps = if it.program.check_start(1).is_ok() { STEPS } else { 0 };
    let prompt = PROMPT.min(it.chunk).min(it.cache.capacity.saturating_sub(steps)).max(1);
    let vocab_size = it.program.n_tokens().unwrap_or(1) as u32;
    let tokens: Vec<u32> = (0..prompt as u32).map(|i| i * 7 % vocab_size).collect();
    let once = || -> program::Result<()> {
        let session = model.open(it.cache)?;
        let step = |tokens: &[u32]| {
            let sequence = Sequence { session, tokens, outputs, prompt: None, rows: &[] };
            model.step(&Step { sequences: &[sequence] })?.single()
        };
        let room = it.cache.capacity.saturating_sub(prompt).min(steps);
        let done = step(&tokens).and_then(|_| (0..room).try_for_each(|_| step(&[0]).map(|_| ())));
        model.close(session);
        done
    };
    // what is made when it is first used is not timed
    once()?;
    let started = Instant::now();
    once()?;
    Ok(started.elapsed().as_secs_f64())
}

/// Of the file; files of other versions are written anew.
const VERSION: u32 = 1;
const FILE: &str = "executors.json";
/// Models that are remembered, the latest.
const MODELS: usize = 64;

/// What was measured, by what it depends on.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Choices {
    version: u32,
    /// The latest last.
    choices: Vec<Choice>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Choice {
    #[serde(flatten)]
    key: ChoiceKey,
    #[serde(flatten)]
    times: ChoiceTimes,
}

/// A model, a processor and a GPU.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct ChoiceKey {
    machine: String,
    adapter: String,
    driver: String,
    build: String,
    #[serde(flatten)]
    model: ModelKey,
}

/// What a short text took.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct ChoiceTimes {
    cpu_seconds: f64,
    gpu_seconds: f64,
}

impl ChoiceKey {
    fn new(cpu: &dyn Executor, gpu: &GpuFacts, it: &ToRun<'_>) -> ChoiceKey {
        ChoiceKey {
            machine: ceilings::machine(cpu),
            adapter: gpu.adapter.clone(),
            driver: gpu.driver.clone(),
            build: BUILD.to_owned(),
            model: ModelKey::of(it.program),
        }
    }
}

impl Choices {
    fn read() -> Choices {
        let text = ceilings::cache_file(FILE).and_then(|file| std::fs::read_to_string(file).ok());
        let choices: Option<Choices> = text.and_then(|text| serde_json::from_str(&text).ok());
        choices.filter(|choices| choices.version == VERSION).unwrap_or_default()
    }

    fn find(&self, key: &ChoiceKey) -> Option<ChoiceTimes> {
        let found = self.choices.iter().find(|choice| choice.key == *key)?;
        Some(found.times)
    }

    fn keep(key: ChoiceKey, times: ChoiceTimes) {
        let mut all = Choices { version: VERSION, ..Choices::read() };
        all.choices.retain(|choice| choice.key != key);
        all.choices.push(Choice { key, times });
        let old = all.choices.len().saturating_sub(MODELS);
        all.choices.drain(..old);
        if let Ok(text) = serde_json::to_string_pretty(&all) {
            ceilings::replace(FILE, &text);
        }
    }
}
