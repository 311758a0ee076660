//! Which executor runs a model: the one asked for, refused in one line where it cannot; or, with `--executor auto`, of the
//! processor and a GPU the one that has room for it, or what was measured to be faster for this model, once, and kept.

use std::sync::Arc;
use std::time::Instant;

use executors::{ExecutorKind, ExecutorOptions, GpuFacts, MlaChoice, Started};
use gguf::Gguf;
use models::GgufWeights;
use program::{
    CacheKind, CacheOptions, CacheSpec, CacheStorage, CacheType, Error, Executor, MlaForm, Outputs,
    Program, RowsOut, Sequence, Step, Variation,
};
use serde::{Deserialize, Serialize};

use crate::args::{ExecutorArgs, GpuProducts};
use crate::ceilings::{self, BUILD};
use crate::exit::Failure;
use crate::load::Loaded;
use crate::placing::{self, AskedShare, PlacedStart};
use crate::predictions::ModelKey;
use crate::tuned::{self, TuneWhen};
use crate::{memory, runtime, ui, units};

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
    /// What is said of a GPU's share of it.
    pub(crate) asked: AskedShare,
    /// What it is to multiply.
    pub(crate) products: GpuProducts,
}

/// Start what `chosen` names; what that became.
///
/// # Errors
/// [`Failure::Usage`] for what a GPU does not run, where one was asked for; a GPU that is not there.
pub(crate) fn start(
    chosen: ExecutorOptions,
    it: &ToRun<'_>,
) -> anyhow::Result<(ExecutorOptions, Started)> {
    let as_kind = |kind| ExecutorOptions { kind, ..chosen.clone() };
    Ok(match chosen.kind {
        ExecutorKind::Cpu | ExecutorKind::Interpreter => {
            let started = chosen.start_with(it.storage)?;
            (chosen, started)
        }
        kind @ (ExecutorKind::Wgpu | ExecutorKind::Cuda) => {
            let PlacedStart { chosen, started, told } =
                placing::start(&chosen, it).map_err(|why| not_started(kind, why))?;
            for what in told.iter().chain(&started.refused) {
                ui::note(format_args!("--executor {}: {what}", kind.name()));
            }
            if started.gpu.is_none() {
                return Ok((as_kind(ExecutorKind::Cpu), started));
            }
            if let Some(what) = refused(&*started.executor, &chosen, it) {
                let problem = format!(
                    "{}: not supported: {what}; --executor cpu runs it",
                    started.executor.describe()
                );
                return Err(Failure::Usage(problem).into());
            }
            tune(&started, it);
            (chosen, started)
        }
        ExecutorKind::Auto => {
            match faster_gpu(&as_kind(ExecutorKind::of_a_gpu(chosen.adapter.as_deref())), it) {
                Ok(PlacedStart { chosen, started, told }) => {
                    for what in told.iter().chain(&started.refused) {
                        ui::note(format_args!("--executor auto: {what}"));
                    }
                    tune(&started, it);
                    (chosen, started)
                }
                Err(why) => {
                    ui::note(format_args!("--executor auto: the processor runs it: {why}"));
                    let cpu = as_kind(ExecutorKind::Cpu);
                    let started = cpu.start_with(it.storage)?;
                    (cpu, started)
                }
            }
        }
    })
}

/// Have a card multiply as is fastest by what the model has.
fn tune(started: &Started, it: &ToRun<'_>) {
    match it.products {
        GpuProducts::Auto => {
            tuned::apply(runtime(), started, &tuned::types(it.program), TuneWhen::OnCards);
        }
        GpuProducts::F32 => tuned::apply_exact(runtime(), started),
    }
}

/// Say which options had no effect, once it is known what runs the model.
pub(crate) fn warn(args: &ExecutorArgs, loaded: &Loaded, cache: &CacheOptions) {
    args.warnings(loaded.chosen.kind).iter().for_each(|warning| ui::warn(warning));
    if loaded.gpu.is_some() {
        let beside = loaded.gpu.as_ref().is_some_and(|gpu| gpu.beside.is_some());
        let program = loaded.model.program();
        let told = on_a_gpu(args.kind(), beside, &loaded.chosen, (program, cache));
        told.iter().for_each(|warning| ui::warn(warning));
    }
}

/// How a cache is kept where it is asked for so: a GPU has no q8_0, but the processor beside it has.
pub(crate) fn kept(cache: &CacheOptions, gpu: Option<&GpuFacts>) -> CacheOptions {
    match gpu {
        Some(gpu) if gpu.beside.is_none() => placing::on_a_gpu(cache),
        _ => *cache,
    }
}

/// A GPU that is not there, or not linked, is no fault of the model.
pub(crate) fn not_started(kind: ExecutorKind, error: Error) -> anyhow::Error {
    let why = match error {
        Error::Unsupported(why) | Error::Device { problem: why } => why,
        other => other.to_string(),
    };
    Failure::Usage(format!("--executor {}: {why}", kind.name())).into()
}

/// Options that mean nothing on a GPU; those of the processor mean something where it was compared with, or runs some
/// layers `beside` it.
fn on_a_gpu(
    asked: ExecutorKind,
    beside: bool,
    chosen: &ExecutorOptions,
    (program, cache): (&Program, &CacheOptions),
) -> Vec<&'static str> {
    let latent = |cache: &CacheSpec| matches!(cache.kind, CacheKind::Latent { .. });
    let own_form = [MlaChoice::Auto, MlaChoice::Always(MlaForm::Elided)].contains(&chosen.mla);
    let other_form = !own_form && program.caches.iter().any(latent);
    let q8_0 = [cache.k, cache.v].contains(&CacheType::Q8_0);
    let alone = asked.is_gpu() && !beside;
    [
        (alone && chosen.threads.is_some(), "-t has no effect: a GPU computes"),
        (alone && chosen.isa.is_some(), "--isa has no effect: a GPU computes"),
        (other_form && !beside, "--mla has no effect: a GPU computes latent attention elided"),
        (
            other_form && beside,
            "layers on the GPU compute latent attention elided, whatever --mla says",
        ),
        (q8_0 && !beside, "a GPU keeps f16 where a cache of q8_0 is asked for"),
        (q8_0 && beside, "layers on the GPU keep f16 where a cache of q8_0 is asked for"),
    ]
    .into_iter()
    .filter_map(|(given, warning)| given.then_some(warning))
    .collect()
}

/// Why this executor cannot run it, if it cannot.
fn refused(executor: &dyn Executor, chosen: &ExecutorOptions, it: &ToRun<'_>) -> Option<String> {
    if !chosen.kept.is_empty() {
        return Some("conversations on disk (--cache-disk, --slot-save-path)".into());
    }
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

/// Whether it has room for the model and a session, as far as that can be told.
fn has_room(started: &Started, it: &ToRun<'_>) -> bool {
    // what cannot be counted is told when it is loaded
    let Ok(needs) = memory::needs(&*started.executor, it.program, it.cache, it.chunk) else {
        return true;
    };
    let bound = it.storage.memory;
    memory::fits(&needs, memory::free(started.gpu.as_ref()))
        && bound.is_none_or(|bound| needs.bounded_cache <= bound)
}

/// The GPU, where it runs this model faster than the processor, or that does not run it; else why not.
fn faster_gpu(gpu: &ExecutorOptions, it: &ToRun<'_>) -> Result<PlacedStart, String> {
    let placed = placing::start(gpu, it).map_err(|why| why.to_string())?;
    let (gpu, started) = (&placed.chosen, &placed.started);
    if started.gpu.is_none() {
        return Err(started.refused.clone().unwrap_or_else(|| "-ngl 0".into()));
    }
    if let Some(what) = refused(&*started.executor, gpu, it) {
        return Err(format!("{} does not support {what}", started.executor.describe()));
    }
    let Some(facts) = &started.gpu else { return Err("there is no GPU".into()) };
    // who names it wants to know
    if facts.is_software && gpu.adapter.is_none() {
        return Err(format!("{} is the processor too", facts.adapter));
    }
    let processor = ExecutorOptions { kind: ExecutorKind::Cpu, ..gpu.clone() };
    let cpu = processor.start_with(it.storage).map_err(|why| why.to_string())?;
    // what has no room is not loaded, not even to be measured
    if !has_room(started, it) {
        return Err(format!("{} has no room for it", facts.adapter));
    }
    if !has_room(&cpu, it) {
        ui::note(format_args!("--executor auto: {}: the processor has no room", facts.adapter));
        return Ok(placed);
    }
    let key = ChoiceKey::new(&*cpu.executor, facts, gpu.share.apart, it);
    let (times, passes_by) = match Choices::read().find(&key) {
        Some(times) => (times, false),
        None => {
            tune(started, it);
            let crowded = || ceilings::crowded(processor.n_threads());
            let before = crowded();
            let (gpu_seconds, got) =
                seconds(&*started.executor, it).map_err(|why| why.to_string())?;
            let (cpu_seconds, want) = match seconds(&*cpu.executor, it) {
                Ok(timed) => timed,
                Err(why) => {
                    let adapter = &facts.adapter;
                    ui::note(format_args!("--executor auto: {adapter}: the processor: {why}"));
                    return Ok(placed);
                }
            };
            // what is no number is as wrong as can be
            let error = Some(conformance::nmse(&got, &want)).filter(|error| error.is_finite());
            let error = error.unwrap_or(1.0);
            let times = ChoiceTimes { cpu_seconds, gpu_seconds, error };
            let passes_by = before || crowded();
            if !passes_by {
                Choices::keep(key, times);
            }
            (times, passes_by)
        }
    };
    if times.error > MOST_ERROR {
        return Err(format!(
            "{} computes something else (logits are off by {:.0e}): rooflight selftest --executor {} says what",
            facts.adapter,
            times.error,
            gpu.kind.name()
        ));
    }
    let [cpu, gpu] = [times.cpu_seconds, times.gpu_seconds].map(units::short_seconds);
    let again = if passes_by { ", beside other programs: measured again next time" } else { "" };
    let told = format!("{} took {gpu} where the processor took {cpu}{again}", facts.adapter);
    if times.gpu_seconds >= times.cpu_seconds {
        return Err(told);
    }
    ui::note(format_args!("--executor auto: {told}"));
    Ok(placed)
}

/// What is timed: a prompt of so many tokens and so many steps after it, the best of so many times.
const PROMPT: usize = 64;
const STEPS: usize = 16;
const SAMPLES: usize = 3;

/// What is timed of a model, whatever it is wanted for.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Timed {
    prompt: usize,
    steps: usize,
    /// Of the session that it is timed in.
    cache: CacheOptions,
}

impl Timed {
    /// As much of it as the model can read.
    fn of(program: &Program, cache: &CacheOptions) -> Timed {
        let capacity = program.n_positions().unwrap_or(usize::MAX).min(PROMPT + STEPS);
        let goes_on = program.check_start(1).is_ok();
        let steps = if goes_on { STEPS.min(capacity.saturating_sub(1)) } else { 0 };
        let prompt = PROMPT.min(capacity - steps).max(1);
        Timed { prompt, steps, cache: CacheOptions { capacity: prompt + steps, ..*cache } }
    }
}

/// Most error of a GPU's logits beside the processor's, normalized and squared, that rounding explains, on either side: of
/// activations, and of what decides between two experts. What is wrong is off by about 1.
const MOST_ERROR: f64 = 5e-2;

/// Seconds that an executor takes for a short text of this model, and the logits behind its prompt.
fn seconds(executor: &dyn Executor, it: &ToRun<'_>) -> program::Result<(f64, Vec<f32>)> {
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
    let Timed { prompt, steps, cache } = Timed::of(it.program, it.cache);
    let vocab_size = it.program.n_tokens().unwrap_or(1) as u32;
    let tokens: Vec<u32> = (0..prompt as u32).map(|i| i * 7 % vocab_size).collect();
    let once = || -> program::Result<Vec<f32>> {
        let session = model.open(&cache)?;
        let step = |tokens: &[u32]| {
            let sequence = Sequence { session, tokens, outputs, prompt: None, rows: &[] };
            model.step(&Step { sequences: &[sequence] })?.single()
        };
        let done = step(&tokens).and_then(|first| {
            (0..steps).try_for_each(|_| step(&[0]).map(|_| ()))?;
            Ok(first)
        });
        model.close(session);
        Ok(match done? {
            RowsOut::Logits(rows) => rows.logits,
            _ => Vec::new(),
        })
    };
    // what is made when it is first used is not timed
    let logits = once()?;
    let mut best = f64::INFINITY;
    for _ in 0..SAMPLES {
        let started = Instant::now();
        once()?;
        best = best.min(started.elapsed().as_secs_f64());
    }
    Ok((best, logits))
}

/// Of the file; files of other versions are written anew.
const VERSION: u32 = 4;
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

/// A model and the types of its cache, a processor and a GPU.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct ChoiceKey {
    machine: String,
    adapter: String,
    driver: String,
    build: String,
    type_k: String,
    type_v: String,
    /// Layers on the GPU, where others are on the processor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    gpu_layers: Option<usize>,
    /// Layers whose experts are apart.
    #[serde(default)]
    apart: usize,
    /// Tensors that are named, in the words of the command line.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    tensors: String,
    /// Whether the GPU rounds nothing before it multiplies.
    #[serde(default)]
    exact: bool,
    #[serde(flatten)]
    model: ModelKey,
}

/// What a short text took.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct ChoiceTimes {
    cpu_seconds: f64,
    gpu_seconds: f64,
    /// Of the GPU's logits beside the processor's, normalized and squared.
    error: f64,
}

impl ChoiceKey {
    fn new(cpu: &dyn Executor, gpu: &GpuFacts, apart: usize, it: &ToRun<'_>) -> ChoiceKey {
        ChoiceKey {
            machine: ceilings::machine(cpu),
            adapter: gpu.adapter.clone(),
            driver: gpu.driver.clone(),
            build: BUILD.to_owned(),
            type_k: it.cache.k.name().to_owned(),
            type_v: it.cache.v.name().to_owned(),
            gpu_layers: gpu.beside,
            apart: if gpu.beside.is_some() { apart } else { 0 },
            tensors: it.asked.tensors.clone(),
            exact: it.products == GpuProducts::F32,
            model: ModelKey::of(it.program),
        }
    }
}

impl Choices {
    fn read() -> Choices {
        let choices: Option<Choices> = runtime().read(FILE);
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
        runtime().write(FILE, &all);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(architecture: &str) -> Arc<Program> {
        let config = conformance::tiny_config(architecture, 64, false);
        conformance::tiny_model(&config, quant::GgmlType::F32)
    }

    #[test]
    fn what_is_timed_depends_on_the_model_alone() {
        let timed = |capacity| {
            let cache = CacheOptions::new(CacheType::F16, CacheType::F16, capacity);
            Timed::of(&program("qwen2"), &cache)
        };
        assert_eq!((timed(4), timed(4).prompt, timed(4).steps), (timed(1 << 20), PROMPT, STEPS));
        assert_eq!(timed(4).cache.capacity, PROMPT + STEPS);
    }

    #[test]
    fn options_of_the_processor_mean_something_where_it_is_compared_with() {
        let chosen = ExecutorOptions { threads: Some(1), ..ExecutorOptions::default() };
        let cache = CacheOptions::new(CacheType::F16, CacheType::F16, 64);
        let program = program("qwen2");
        let told = |asked, beside| on_a_gpu(asked, beside, &chosen, (&program, &cache));
        assert_eq!(told(ExecutorKind::Auto, false), [""; 0]);
        assert_eq!(told(ExecutorKind::Wgpu, true), [""; 0], "they are the others'");
        assert_eq!(told(ExecutorKind::Wgpu, false), ["-t has no effect: a GPU computes"]);
    }

    #[test]
    fn a_gpu_has_one_form_of_latent_attention() {
        let cache = CacheOptions::new(CacheType::F16, CacheType::F16, 64);
        let told = |name, mla| {
            let chosen = ExecutorOptions { mla, ..ExecutorOptions::default() };
            let told = on_a_gpu(ExecutorKind::Wgpu, false, &chosen, (&program(name), &cache));
            told.concat().starts_with("--mla has no effect")
        };
        for form in MlaForm::ALL {
            let other = form != MlaForm::Elided;
            assert_eq!(told("deepseek2", MlaChoice::Always(form)), other, "{form:?}");
            assert!(!told("qwen2", MlaChoice::Always(form)), "that is said of no latents");
        }
        assert!(!told("deepseek2", MlaChoice::Auto));
    }

    #[test]
    fn what_a_gpu_keeps_is_told() {
        let cache = CacheOptions::new(CacheType::Q8_0, CacheType::F32, 64);
        let gpu = GpuFacts {
            executor: "wgpu",
            adapter: "a card".into(),
            driver: String::new(),
            is_software: false,
            shares_memory: false,
            bus: None,
            beside: None,
        };
        assert_eq!(kept(&cache, None), cache);
        assert_eq!(kept(&cache, Some(&gpu)), CacheOptions { k: CacheType::F16, ..cache });
        let some = GpuFacts { beside: Some(3), ..gpu };
        assert_eq!(kept(&cache, Some(&some)), cache, "the processor has its own");
    }
}
