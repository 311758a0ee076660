//! Chooses the executor of a model.
//!
//! A requested executor is checked: options that it does not support are an error. `--executor auto` compares the processor and
//! a GPU. It takes the one with enough memory for the model, or else the one that ran the model faster. The timings are
//! measured once and stored.

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

/// Starts an executor of the kind in `chosen`. Returns it with the options that it was started with.
///
/// # Errors
/// [`Error::Options`] if the requested GPU does not exist or does not support the model or its options.
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

/// Sets the kernel shapes of a GPU to the fastest for the weight types of the model, or to exact f32 products if they are
/// requested.
fn tune(started: &Started, it: &ToRun<'_>) {
    match it.products {
        GpuProducts::Auto => {
            tuned::apply(it.runtime, started, &tuned::types(it.program), TuneWhen::OnCards);
        }
        GpuProducts::F32 => tuned::apply_exact(it.runtime, started),
    }
}

/// Returns the cache options that the executor uses. A GPU replaces q8_0 by f16, unless the processor runs some of the layers.
pub fn kept(cache: &CacheOptions, gpu: Option<&GpuFacts>) -> CacheOptions {
    match gpu {
        Some(gpu) if gpu.beside.is_none() => placing::on_a_gpu(cache),
        _ => *cache,
    }
}

/// Converts the error of an executor that could not start, such as a missing GPU or one whose support is not linked, to
/// [`Error::Options`].
pub fn not_started(kind: ExecutorKind, error: ProgramError) -> anyhow::Error {
    let why = match error {
        ProgramError::Unsupported(why) | ProgramError::Device { problem: why } => why,
        other => other.to_string(),
    };
    Error::Options(format!("--executor {}: {why}", kind.name())).into()
}

/// Returns why this executor cannot run the model, or `None` if it can.
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

/// Returns whether results are bit-identical however a text is divided into steps. Speculative decoding requires this.
pub fn promises_cuts(executor: &dyn Executor) -> bool {
    executor.promises().cover(&[Variation::Again, Variation::Cuts])
}

/// Returns whether there is enough free memory for the model and a session. Unknown sizes count as fitting.
fn has_room(started: &Started, it: &ToRun<'_>) -> bool {
    // an error of counting is reported when the model is loaded
    let Ok(needs) = fit::needs(&*started.executor, it.program, it.cache, it.chunk) else {
        return true;
    };
    let bound = it.storage.memory;
    fit::fits(&needs, fit::free(started.gpu.as_ref()))
        && bound.is_none_or(|bound| needs.bounded_cache <= bound)
}

/// Returns the GPU if it runs this model faster than the processor, or if the processor cannot run it. Otherwise, returns the
/// reason why not.
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
    // a user who names the adapter wants to use it
    if facts.is_software && gpu.adapter.is_none() {
        return Err(format!("{} is the processor too", facts.adapter));
    }
    let processor = ExecutorOptions { kind: ExecutorKind::Cpu, ..gpu.clone() };
    let cpu = processor.start_with(it.storage).map_err(|why| why.to_string())?;
    // a model that does not fit is not loaded, not even to time it
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
            // a NaN or infinite error counts as entirely wrong
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

/// Maximum normalized mean squared error of the GPU's logits, relative to the processor's. Below it, differences come from
/// rounding: of activations on either side, and of scores that decide between two experts. Wrong results have an error of about
/// 1.
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
