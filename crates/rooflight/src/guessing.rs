//! Blocks of a model's own file that guess tokens: read, counted and loaded beside the model (`--spec mtp`).

use std::sync::Arc;

use anyhow::Context as _;
use gguf::Gguf;
use models::{GgufWeights, LoadedModel};
use program::{CacheOptions, Executor, KvPolicy, MemoryNeeds, Model, Program, WeightSpec};

use crate::Error;
use crate::fit;

/// The same model with blocks of its file that guess.
///
/// # Errors
/// If there are none; a malformed model.
pub fn guessing(loaded: LoadedModel, gguf: &Gguf) -> anyhow::Result<LoadedModel> {
    loaded.with_guesses(gguf).map_err(|error| match error {
        models::Error::NoGuesses => Error::Options(format!("--spec mtp: {error}")).into(),
        error => anyhow::Error::from(error).context("reading the blocks that guess"),
    })
}

/// Whether the file has blocks that guess, and all that they need.
pub fn can_guess(loaded: &LoadedModel, gguf: &Gguf) -> bool {
    loaded.config.can_guess() && loaded.clone().with_guesses(gguf).is_ok()
}

/// Load what guesses beside its model, whose weights it shares where the executor can do that.
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

/// The cache of what guesses, beside a session with this one: it reads all, and no bound is for it.
pub fn cache(cache: CacheOptions) -> CacheOptions {
    CacheOptions { policy: KvPolicy::Full, ..cache }
}

/// What a model needs, with what guesses for it, a session of its own beside each of the model's: weights that both read count
/// once where the executor keeps them once.
///
/// # Errors
/// What the executor does not support.
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
