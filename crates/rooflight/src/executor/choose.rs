//! Which executor runs a model: the one asked for, refused in one line where it cannot; or, with `--executor auto`, of the
//! processor and a GPU the one that has room for it, or what was measured to be faster for this model, once, and kept.

use executors::{ExecutorKind, ExecutorOptions, GpuFacts, Started};
use program::{CacheOptions, Error as ProgramError, Executor, Variation};

use super::choices::{ChoiceKey, ChoiceTimes, Choices};
use super::placing::{self, PlacedStart};
use super::timing::seconds;
use super::to_run::{GpuProducts, ToRun};
use crate::machine::ceilings;
use crate::notices::Topic;
use crate::tuned::{self, TuneWhen};
use crate::{Error, Runtime, fit, units};

/// Start what `chosen` names; what that became.
///
/// # Errors
/// [`Error::Options`] for what a GPU does not run, where one was asked for; a GPU that is not there.
pub fn start(
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
                note(it.runtime, kind, what);
            }
            if started.gpu.is_none() {
                return Ok((as_kind(ExecutorKind::Cpu), started));
            }
            if let Some(what) = refused(&*started.executor, &chosen, it) {
                let problem = format!(
                    "{}: not supported: {what}; --executor cpu runs it",
                    started.executor.describe()
                );
                return Err(Error::Options(problem).into());
            }
            tune(&started, it);
            (chosen, started)
        }
        ExecutorKind::Auto => {
            match faster_gpu(&as_kind(ExecutorKind::of_a_gpu(chosen.adapter.as_deref())), it) {
                Ok(PlacedStart { chosen, started, told }) => {
                    for what in told.iter().chain(&started.refused) {
                        note(it.runtime, ExecutorKind::Auto, what);
                    }
                    tune(&started, it);
                    (chosen, started)
                }
                Err(why) => {
                    note(it.runtime, ExecutorKind::Auto, &format!("the processor runs it: {why}"));
                    let cpu = as_kind(ExecutorKind::Cpu);
                    let started = cpu.start_with(it.storage)?;
                    (cpu, started)
                }
            }
        }
    })
}

/// Reports a remark about the choice of an executor.
fn note(runtime: &Runtime, asked: ExecutorKind, what: &str) {
    runtime.note(Topic::Executor, &format!("--executor {}: {what}", asked.name()));
}

/// Have a card multiply as is fastest by what the model has.
fn tune(started: &Started, it: &ToRun<'_>) {
    match it.products {
        GpuProducts::Auto => {
            tuned::apply(it.runtime, started, &tuned::types(it.program), TuneWhen::OnCards);
        }
        GpuProducts::F32 => tuned::apply_exact(it.runtime, started),
    }
}

/// How a cache is kept where it is asked for so: a GPU has no q8_0, but the processor beside it has.
pub fn kept(cache: &CacheOptions, gpu: Option<&GpuFacts>) -> CacheOptions {
    match gpu {
        Some(gpu) if gpu.beside.is_none() => placing::on_a_gpu(cache),
        _ => *cache,
    }
}

/// A GPU that is not there, or not linked, is no fault of the model.
pub fn not_started(kind: ExecutorKind, error: ProgramError) -> anyhow::Error {
    let why = match error {
        ProgramError::Unsupported(why) | ProgramError::Device { problem: why } => why,
        other => other.to_string(),
    };
    Error::Options(format!("--executor {}: {why}", kind.name())).into()
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
    match fit::needs(executor, it.program, it.cache, it.chunk) {
        Err(ProgramError::Unsupported(what)) => Some(what),
        _ => None,
    }
}

/// Whether texts keep their bits however they are cut into steps, as what drafts must.
pub fn promises_cuts(executor: &dyn Executor) -> bool {
    executor.promises().cover(&[Variation::Again, Variation::Cuts])
}

/// Whether it has room for the model and a session, as far as that can be told.
fn has_room(started: &Started, it: &ToRun<'_>) -> bool {
    // what cannot be counted is told when it is loaded
    let Ok(needs) = fit::needs(&*started.executor, it.program, it.cache, it.chunk) else {
        return true;
    };
    let bound = it.storage.memory;
    fit::fits(&needs, fit::free(started.gpu.as_ref()))
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
        let what = format!("{}: the processor has no room", facts.adapter);
        note(it.runtime, ExecutorKind::Auto, &what);
        return Ok(placed);
    }
    let key = ChoiceKey::new(&*cpu.executor, facts, gpu.share.apart, it);
    let (times, passes_by) = match Choices::read(it.runtime).find(&key) {
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
                    let what = format!("{adapter}: the processor: {why}");
                    note(it.runtime, ExecutorKind::Auto, &what);
                    return Ok(placed);
                }
            };
            // what is no number is as wrong as can be
            let error = Some(program::nmse(&got, &want)).filter(|error| error.is_finite());
            let error = error.unwrap_or(1.0);
            let times = ChoiceTimes { cpu_seconds, gpu_seconds, error };
            let passes_by = before || crowded();
            if !passes_by {
                Choices::keep(it.runtime, key, times);
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
    note(it.runtime, ExecutorKind::Auto, &told);
    Ok(placed)
}

/// Most error of a GPU's logits beside the processor's, normalized and squared, that rounding explains, on either side: of
/// activations, and of what decides between two experts. What is wrong is off by about 1.
const MOST_ERROR: f64 = 5e-2;

#[cfg(test)]
mod tests {
    use program::CacheType;

    use super::*;

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
