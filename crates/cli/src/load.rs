//! From a path to a model that steps: open, check, see whether it fits, load with a bar.

use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;
use engine::ModelFormat;
use executors::SessionFolders;
use gguf::Gguf;
use models::{LoadedModel, ModelConfig, Pooling};
use program::{CacheKind, CacheOptions, CacheSpec, KvPolicy, Op, Program};
pub(crate) use rooflight::load::{Loaded, best_chunk, check_positions};
use rooflight::load::{Skip, SkipMeasuring};
use tokenizer::{ChatTemplate, Tokenizer};

use crate::executor_args::ExecutorArgs;
use crate::exit::Failure;
use crate::interrupt::Interrupt;
use crate::storage::{self, StorageArgs};
use crate::{idle, names, naming, policy, runtime, ui, units};

/// What a command says about loading.
#[derive(Clone, Debug, Default)]
pub(crate) struct LoadOptions {
    /// `-t`.
    pub(crate) threads: Option<usize>,
    /// `-v`: print all details of the loaded model, even if stderr is not a terminal.
    pub(crate) verbose: bool,
    /// `-q`: print nothing about the loaded model.
    pub(crate) quiet: bool,
    /// Whether the machine's ceilings are wanted, and the rates of the model's types: the chunk of prompts depends on
    /// them. They are measured before the weights take their memory. Without, rates that are known are used.
    pub(crate) ceilings: bool,
    /// Most tokens of a prompt per pass, if that is asked for.
    pub(crate) chunk: Option<usize>,
    /// Whether a type of cached values is asked for.
    pub(crate) values: bool,
    /// What was asked for that needs the same bits for any cut of a text.
    pub(crate) same_bits: Option<&'static str>,
    /// Where the caches of its sessions lie.
    pub(crate) storage: StorageArgs,
    /// Whether blocks of its file are to guess tokens.
    pub(crate) guesses: bool,
    /// Where its sessions are kept over restarts.
    pub(crate) kept: SessionFolders,
    /// Interrupt that lets Ctrl-C skip measuring the machine; `None` if Ctrl-C ends the command.
    pub(crate) interrupt: Option<Interrupt>,
}

/// Open a model that is here, by path or by name, all its shards.
///
/// # Errors
/// [`rooflight::Error::NotFound`], or an error that says what is wrong with the file.
pub(crate) fn open(path: &Path) -> anyhow::Result<Gguf> {
    rooflight::file::open(&names::here(path)?)
}

/// Opens a model by path or by name; `None` opens the bundled demo model.
///
/// # Errors
/// If [`open`] fails.
pub(crate) fn open_or_bundled(path: Option<&Path>) -> anyhow::Result<Gguf> {
    match path {
        Some(path) => open(path),
        None => Ok(demo_model::open()?),
    }
}

/// The vocabulary of a model, its warnings told.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn tokenizer(gguf: &Gguf) -> anyhow::Result<Tokenizer> {
    let tokenizer = Tokenizer::from_gguf(gguf.metadata()).map_err(|error| {
        // of a file that is no model of texts at all, that is the news
        match models::load(gguf) {
            Err(model @ models::Error::Architecture { .. }) => {
                anyhow::Error::from(model).context("reading the model")
            }
            _ => anyhow::Error::from(error).context("reading the vocabulary"),
        }
    })?;
    tokenizer.warnings().iter().for_each(|warning| ui::warn(warning));
    Ok(tokenizer)
}

/// Warns about the bytes of a text that the vocabulary cannot encode, if there are any.
///
/// # Errors
/// The errors of [`Tokenizer::encode`].
pub(crate) fn warn_lost(tokenizer: &Tokenizer, text: &str) -> tokenizer::Result<()> {
    if let Some(lost) = tokenizer.lost_bytes(text)? {
        ui::warn(&lost.to_string());
    }
    Ok(())
}

/// The vocabulary and the chat template of a model; a file without a template gets ChatML, and a word about it.
///
/// # Errors
/// What is wrong with them.
pub(crate) fn chat_format(gguf: &Gguf) -> anyhow::Result<ModelFormat> {
    let tokenizer = tokenizer(gguf)?;
    let template = template(gguf, &tokenizer)?;
    Ok(ModelFormat::new(Arc::new(tokenizer), template))
}

/// The chat template of a model, as for [`chat_format`].
///
/// # Errors
/// What is wrong with it.
pub(crate) fn template(gguf: &Gguf, tokenizer: &Tokenizer) -> anyhow::Result<ChatTemplate> {
    let template =
        ChatTemplate::from_gguf(gguf.metadata(), tokenizer).context("reading the chat template")?;
    if template.is_fallback() {
        ui::warn(
            "no chat template in the file: using ChatML; this looks like a base model, which continues text and does \
             not chat. For plain completion: rooflight complete",
        );
    }
    Ok(template)
}

/// Load a model into the executor that `executor` names. `cache` tells how much cache a session will want.
///
/// # Errors
/// A malformed model, or one that does not fit in memory.
pub(crate) fn model(
    gguf: &Gguf,
    executor: &ExecutorArgs,
    options: &LoadOptions,
    cache: &dyn Fn(&ModelConfig) -> CacheOptions,
) -> anyhow::Result<Loaded> {
    let loaded = open_writer(gguf)?;
    let cache = cache(&loaded.config);
    ready(gguf, loaded, executor, options, &cache)
}

/// Reads a text-generating model from its file and checks it with [`writer`].
///
/// # Errors
/// If the model is malformed or generates no text.
pub(crate) fn open_writer(gguf: &Gguf) -> anyhow::Result<LoadedModel> {
    writer(known(gguf, None)?)
}

/// Reads a model from its file. `pooling` overrides the pooling that the file names.
///
/// # Errors
/// If the model is malformed.
pub(crate) fn known(gguf: &Gguf, pooling: Option<Pooling>) -> anyhow::Result<LoadedModel> {
    let known = match pooling {
        Some(pooling) => models::load_pooled(gguf, pooling),
        None => models::load(gguf),
    };
    known.context("reading the model")
}

/// Checks that a model generates text, and prints its notes.
///
/// # Errors
/// If the model generates no text.
pub(crate) fn writer(loaded: LoadedModel) -> anyhow::Result<LoadedModel> {
    check_writes(&loaded.config)?;
    loaded.notes.iter().for_each(|note| ui::warn(note));
    Ok(loaded)
}

/// Checks that a model embeds or ranks texts, and prints its notes.
///
/// # Errors
/// If neither the file nor `--pooling` says how the rows of a text are pooled.
pub(crate) fn reader(loaded: LoadedModel) -> anyhow::Result<LoadedModel> {
    if loaded.config.text.is_none() {
        let silent = "no pooling type in this file: give --pooling mean, cls or last";
        return Err(Failure::Usage(silent.into()).into());
    }
    loaded.notes.iter().for_each(|note| ui::warn(note));
    Ok(loaded)
}

/// Loads a model that was read from its file into the executor that `executor` selects, like [`model`].
///
/// # Errors
/// If the model does not fit in memory.
pub(crate) fn ready(
    gguf: &Gguf,
    loaded: LoadedModel,
    executor: &ExecutorArgs,
    options: &LoadOptions,
    cache: &CacheOptions,
) -> anyhow::Result<Loaded> {
    let warn = |warning: String| ui::warn(&warning);
    without_effect(&loaded.program, executor.mla.is_some(), options.values)
        .iter()
        .for_each(|warning| ui::warn(warning));
    let has_experts = loaded.program.nodes.iter().any(|node| matches!(node.op, Op::Experts { .. }));
    executor.without_experts().filter(|_| !has_experts).into_iter().for_each(warn);
    policy::idle(&cache.policy, &loaded.program).into_iter().for_each(warn);
    storage::idle(&options.storage, &loaded.program).into_iter().for_each(warn);
    let threads = console::args::threads_to_start(options.threads);
    let choice = executor.choice(threads);
    let done = rooflight::load::load(runtime(), gguf, loaded, &options.of(choice), cache)?;
    show(gguf, &done, options, cache);
    idle::warn(executor, &done, cache);
    Ok(done)
}

/// Loads a second model that runs alternately with `first`, on the same threads. The memory bound of caches does not apply to its own.
///
/// # Errors
/// As [`model`].
pub(crate) fn beside(
    first: &Loaded,
    gguf: &Gguf,
    options: &LoadOptions,
    cache: CacheOptions,
) -> anyhow::Result<Loaded> {
    let known = open_writer(gguf)?;
    let of = options.of(Default::default());
    let done = rooflight::load::load_beside(runtime(), first, gguf, known, &of, &cache)?;
    let options = LoadOptions { storage: StorageArgs::default(), ..options.clone() };
    show(gguf, &done, &options, &cache);
    Ok(done)
}

/// Prints a description of the loaded model, in verbose mode or if a user reads the terminal.
fn show(gguf: &Gguf, loaded: &Loaded, options: &LoadOptions, cache: &CacheOptions) {
    let (title, size) = (naming::title(gguf), units::bytes(gguf.file_bytes()));
    let device = loaded.executor.describe();
    if options.verbose {
        let kept = rooflight::executor::kept(cache, loaded.gpu.as_ref());
        ui::note(format_args!(
            "{title} - {} - {size} - context {} - batch {} - KV {}{} {}/{}{} - {device} - loaded in {}",
            naming::description(gguf, &loaded.config),
            cache.capacity,
            loaded.chunk,
            units::bytes(loaded.needs.cache),
            storage::told(&options.storage.options()),
            kept.k.name(),
            kept.v.name(),
            rooflight::policy::told(&cache.policy),
            units::seconds(loaded.time),
        ));
    } else if ui::is_interactive() && !options.quiet {
        let device = if loaded.gpu.is_none() { format!("CPU with {device}") } else { device };
        let ty = naming::file_type(gguf);
        ui::note(format_args!("{title}, {ty}, {size}, context {}, {device}", cache.capacity));
    }
}

impl LoadOptions {
    /// Converts these options to those of the library.
    fn of(&self, executor: rooflight::executor::ExecutorChoice) -> rooflight::load::LoadOptions {
        rooflight::load::LoadOptions {
            executor,
            ceilings: self.ceilings,
            chunk: self.chunk,
            same_bits: self.same_bits,
            storage: self.storage.options(),
            guesses: self.guesses,
            kept: self.kept.clone(),
            repeats_doubt: self.verbose,
            skip: self.interrupt.clone().map(|interrupt| Skip(Arc::new(interrupt))),
        }
    }
}

/// Ctrl-C skips measuring the machine.
impl SkipMeasuring for Interrupt {
    fn begin(&self) {
        Interrupt::begin(self);
    }

    fn is_skipped(&self) -> bool {
        self.is_raised()
    }

    fn end(&self) {
        // callers check whether Ctrl-C ends the program
        let _ = Interrupt::end(self);
    }
}

/// Say so where an option is about latent attention and the model has none, or has nothing else.
fn without_effect(program: &Program, mla: bool, values: bool) -> Vec<&'static str> {
    let latent = |cache: &CacheSpec| matches!(cache.kind, CacheKind::Latent { .. });
    let mut warnings = Vec::new();
    if mla && !program.caches.iter().any(latent) {
        warnings.push("--mla has no effect: the model has no latent attention");
    }
    if values && program.caches.iter().all(latent) {
        warnings.push("-ctv has no effect: latents are cached once, in the type that -ctk says");
    }
    warnings
}

/// Refuse a model that says something of texts and writes none.
///
/// # Errors
/// One of those.
fn check_writes(config: &ModelConfig) -> anyhow::Result<()> {
    let Some(text) = &config.text else { return Ok(()) };
    let does = if text.pooling == Pooling::Rank { "ranks" } else { "embeds" };
    let pooling = text.pooling.name();
    Err(Failure::Usage(format!(
        "this model {does} texts (pooling: {pooling}) and writes none: rooflight embed does it"
    ))
    .into())
}

/// Say so where more context is asked for than the model was made for.
pub(crate) fn warn_about_context(config: &ModelConfig, capacity: usize, policy: &KvPolicy) {
    // at a fixed distance nothing is farther than what a model was made for
    let stays_near = matches!(policy, KvPolicy::Memory(memory) if memory.keeps_far_keys() && memory.dense_layers == 0);
    if capacity > config.context_length && !stays_near {
        ui::warn(&format!(
            "-c {capacity} is beyond the {} tokens this model was made for",
            config.context_length
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_about_latents_are_told_where_they_mean_nothing() {
        let told = |architecture: &str, mla, values| {
            let config = conformance::tiny_config(architecture, 64, false);
            let program = conformance::tiny_model(&config, quant::GgmlType::F32);
            without_effect(&program, mla, values).concat()
        };
        assert!(told("qwen2", true, true).starts_with("--mla"));
        assert!(told("deepseek2", true, true).starts_with("-ctv"));
        assert_eq!(told("qwen2", false, true) + &told("deepseek2", true, false), "");
    }
}
