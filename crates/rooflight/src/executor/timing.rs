//! Times a short text on an executor, to choose among executors.

use std::sync::Arc;
use std::time::Instant;

use models::GgufWeights;
use program::{CacheOptions, Executor, Outputs, Program, RowsOut, Sequence, Step};

use super::to_run::ToRun;
use crate::notices::Task;

/// Tokens of the prompt, steps after it, and samples, of which the fastest counts.
const PROMPT: usize = 64;
const STEPS: usize = 16;
const SAMPLES: usize = 3;

/// Work that is timed for a model. It depends only on the model and the types of its cache.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Timed {
    prompt: usize,
    steps: usize,
    /// Options of the session that is timed.
    cache: CacheOptions,
}

impl Timed {
    /// Returns the work, limited to the positions that the model supports.
    fn of(program: &Program, cache: &CacheOptions) -> Timed {
        let capacity = program.n_positions().unwrap_or(usize::MAX).min(PROMPT + STEPS);
        let goes_on = program.check_start(1).is_ok();
        let steps = if goes_on { STEPS.min(capacity.saturating_sub(1)) } else { 0 };
        let prompt = PROMPT.min(capacity - steps).max(1);
        Timed { prompt, steps, cache: CacheOptions { capacity: prompt + steps, ..*cache } }
    }
}

/// Returns the seconds that an executor takes for a short text with this model, and the logits after the prompt.
pub(super) fn seconds(executor: &dyn Executor, it: &ToRun<'_>) -> program::Result<(f64, Vec<f32>)> {
    let loading = it.runtime.begin(Task::LoadToMeasure);
    let weights = GgufWeights(it.gguf);
    let model = executor.load(Arc::clone(it.program), &weights, &mut |progress| {
        loading.update(progress.done, progress.total);
    })?;
    drop(loading);
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
    // the first run is not timed: it creates buffers and pipelines
    let logits = once()?;
    let mut best = f64::INFINITY;
    for _ in 0..SAMPLES {
        let started = Instant::now();
        once()?;
        best = best.min(started.elapsed().as_secs_f64());
    }
    Ok((best, logits))
}

#[cfg(test)]
mod tests {
    use program::CacheType;

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
}
