//! Multi-token prediction blocks in a model's own file: reads, counts and loads them with the model (`--spec mtp`).

use std::sync::Arc;

use anyhow::Context as _;
use gguf::Gguf;
use models::{GgufWeights, LoadedModel};
use program::{CacheOptions, Executor, KvPolicy, MemoryNeeds, Model, Program, WeightSpec};

use crate::Error;
use crate::fit;

/// Adds the multi-token prediction blocks of the file to a model.
///
/// # Errors
/// [`Error::Options`] if the file has no such blocks; an error of the model if they are malformed.
pub fn guessing(loaded: LoadedModel, gguf: &Gguf) -> anyhow::Result<LoadedModel> {
    loaded.with_guesses(gguf).map_err(|error| match error {
        models::Error::NoGuesses => Error::Options(format!("--spec mtp: {error}")).into(),
        error => anyhow::Error::from(error).context("reading the blocks that guess"),
    })
}

/// Returns whether the file has complete multi-token prediction blocks.
pub fn can_guess(loaded: &LoadedModel, gguf: &Gguf) -> bool {
    loaded.config.can_guess() && loaded.clone().with_guesses(gguf).is_ok()
}

/// Loads the prediction blocks. They share weights with the model if the executor supports that.
///
/// # Errors
/// Those of [`Executor::load`].
pub fn load(
    executor: &dyn Executor,
    model: &dyn Model,
    guesses: Arc<Program>,
    gguf: &Gguf,
) -> anyhow::Result<Arc<dyn Model>> {
    let weights = GgufWeights(gguf);
    let loaded = match executor.shares_weights() {
        true => model.load_beside(guesses, &weights, &mut |_| ()),
        false => executor.load(guesses, &weights, &mut |_| ()),
    };
    Ok(loaded.context("loading the blocks that guess")?.into())
}

/// Returns the cache options of the prediction blocks, given those of the model. The blocks attend to all positions.
pub fn cache(cache: CacheOptions) -> CacheOptions {
    CacheOptions { policy: KvPolicy::Full, ..cache }
}

/// Adds the memory of the prediction blocks to that of their model, with one session of theirs per session of the model. Shared
/// weights count once if the executor stores them once.
///
/// # Errors
/// If the executor does not support the blocks.
pub fn with_needs(
    needs: MemoryNeeds,
    executor: &dyn Executor,
    (guesses, program): (&Program, &Program),
    options: &CacheOptions,
    chunk: usize,
) -> program::Result<MemoryNeeds> {
    let own = fit::needs(executor, guesses, &cache(*options), chunk)?;
    let is_shared = |spec: &&WeightSpec| program.weights.contains(spec);
    let shared = match executor.shares_weights() {
        true => guesses.weights.iter().filter(is_shared).map(WeightSpec::bytes).sum(),
        false => 0,
    };
    Ok(MemoryNeeds {
        weights: needs.weights.saturating_add(own.weights.saturating_sub(shared)),
        cache: needs.cache.saturating_add(own.cache),
        work: needs.work.saturating_add(own.work),
        ..needs
    })
}
