//! Option groups that commands share. Spellings are llama.cpp's where it has one.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use gguf::Gguf;
use models::{LoadedModel, ModelConfig};
use program::{CacheOptions, CacheType};

use crate::executor_args::ExecutorArgs;
use crate::exit::Failure;
use crate::input::TextSource;
use crate::load::{self, LoadOptions, Loaded};
use crate::policy::PolicyArgs;
use crate::rope::RopeArgs;
use crate::storage::StorageArgs;
use crate::ui;
use console::args::cache_types;
pub(crate) use console::args::{IsaArgs, ThreadArgs, isa};
use console::counts;

/// Variable that names the model where a command gets none.
pub(crate) const MODEL_VARIABLE: &str = "ROOFLIGHT_MODEL";

/// A model by position or by flag.
#[derive(clap::Args, Clone, Debug, Default)]
pub(crate) struct ModelArgs {
    /// GGUF file; any part of a sharded model
    #[arg(value_name = "MODEL")]
    first: Option<PathBuf>,
    /// The model, instead of the argument [env: ROOFLIGHT_MODEL]
    #[arg(short, long, value_name = "FILE", conflicts_with = "first")]
    model: Option<PathBuf>,
}

impl ModelArgs {
    /// As given, or as the variable says.
    pub(crate) fn given(self) -> Option<PathBuf> {
        self.first.or(self.model).or_else(|| variable().map(PathBuf::from))
    }

    /// The model of a command that needs one.
    ///
    /// # Errors
    /// [`Failure::Usage`] if none is given.
    pub(crate) fn path(self, command: &str) -> Result<PathBuf, Failure> {
        self.given().ok_or_else(|| Failure::Usage(format!("no model: rooflight {command} MODEL")))
    }
}

/// The model that the environment names.
pub(crate) fn variable() -> Option<OsString> {
    std::env::var_os(MODEL_VARIABLE).filter(|name| !name.is_empty())
}

/// A model and a prompt, each by flag or by position.
#[derive(clap::Args, Clone, Debug, Default)]
pub(crate) struct PromptArgs {
    /// GGUF file; any part of a sharded model
    #[arg(value_name = "MODEL")]
    first: Option<OsString>,
    /// The text; - for stdin
    #[arg(value_name = "PROMPT")]
    second: Option<OsString>,
    /// The model, instead of the first argument [env: ROOFLIGHT_MODEL]
    #[arg(short, long, value_name = "FILE")]
    model: Option<PathBuf>,
    /// The text, instead of the last argument
    #[arg(short, long, value_name = "TEXT", allow_hyphen_values = true)]
    prompt: Option<OsString>,
    /// Read the text from a file; - for stdin
    #[arg(short, long, value_name = "FILE", conflicts_with = "prompt")]
    file: Option<PathBuf>,
}

/// What [`PromptArgs`] come to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ModelAndPrompt {
    /// The model's path, if one was given.
    pub(crate) model: Option<PathBuf>,
    /// Where the prompt is from, if one was given.
    pub(crate) prompt: Option<TextSource>,
}

impl PromptArgs {
    /// Tell the model from the prompt. With `-m` a lone argument is the prompt; with the variable it is the prompt
    /// unless it looks like a file.
    ///
    /// # Errors
    /// [`Failure::Usage`] if one of them was given twice.
    pub(crate) fn resolve(self, variable: Option<OsString>) -> Result<ModelAndPrompt, Failure> {
        let named = self.prompt.is_some() || self.file.is_some();
        let (model, positional) = match (self.model, self.first, self.second) {
            (Some(_), Some(_), Some(extra)) => {
                return Err(Failure::Usage(format!(
                    "unexpected argument `{}`: -m names the model already",
                    gguf::escape(extra.as_encoded_bytes(), 80)
                )));
            }
            (Some(model), prompt, None) => (Some(model), prompt),
            (None, Some(first), None)
                if variable.is_some() && !named && !looks_like_a_file(&first) =>
            {
                (variable.map(PathBuf::from), Some(first))
            }
            (_, Some(model), prompt) => (Some(model.into()), prompt),
            (_, None, prompt) => (variable.map(PathBuf::from), prompt),
        };
        if named && positional.is_some() {
            return Err(Failure::Usage(
                "the prompt is given twice: as an argument and by -p or -f".into(),
            ));
        }
        let argument = self.prompt.or(positional).map(TextSource::of_argument);
        Ok(ModelAndPrompt { model, prompt: self.file.map(TextSource::of_path).or(argument) })
    }
}

/// Whether an argument rather names a file than is a text.
pub(crate) fn looks_like_a_file(text: &OsStr) -> bool {
    let path = Path::new(text);
    path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("gguf")) || path.exists()
}

/// Element types of the cache, and how prompts are cut.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct CacheArgs {
    /// Type of cached keys (-ctk): f32, f16, q8_0 [default: f16]
    #[arg(long, value_name = "TYPE", value_parser = cache_types(), hide_possible_values = true)]
    pub(crate) cache_type_k: Option<CacheType>,
    /// Type of cached values (-ctv): f32, f16, q8_0 [default: f16]
    #[arg(long, value_name = "TYPE", value_parser = cache_types(), hide_possible_values = true)]
    pub(crate) cache_type_v: Option<CacheType>,
    /// Maximum prompt tokens per pass (-ub)
    ///
    /// By default what `rooflight machine` found best, or 512
    #[arg(long, value_name = "N", alias = "ubatch-size", value_parser = counts::chunk)]
    pub(crate) chunk: Option<usize>,
    #[command(flatten)]
    pub(crate) policy: PolicyArgs,
    #[command(flatten)]
    pub(crate) storage: StorageArgs,
}

impl CacheArgs {
    /// How a model is loaded whose sessions are kept so; settings without effect are told.
    pub(crate) fn load_options(&self, threads: &ThreadArgs, verbose: VerboseArgs) -> LoadOptions {
        self.policy.warnings().iter().for_each(|warning| ui::warn(warning));
        LoadOptions {
            threads: threads.count(),
            verbose: verbose.verbose,
            chunk: self.chunk,
            values: self.cache_type_v.is_some(),
            storage: self.storage.clone(),
            ..LoadOptions::default()
        }
    }

    /// Type of keys.
    pub(crate) fn k(&self) -> CacheType {
        self.cache_type_k.unwrap_or(CacheType::F16)
    }

    /// Type of values.
    pub(crate) fn v(&self) -> CacheType {
        self.cache_type_v.unwrap_or(CacheType::F16)
    }

    /// The cache of one session of `capacity` positions, of a model that was trained on so many.
    pub(crate) fn options(&self, capacity: usize, trained: usize) -> CacheOptions {
        let policy = self.policy.policy(trained);
        CacheOptions { policy, ..CacheOptions::new(self.k(), self.v(), capacity) }
    }
}

/// How models are run whose sessions hold conversations.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) context: ContextArgs,
    #[command(flatten)]
    pub(crate) cache: CacheArgs,
    #[command(flatten)]
    pub(crate) threads: ThreadArgs,
    #[command(flatten)]
    pub(crate) executor: ExecutorArgs,
    #[command(flatten)]
    pub(crate) verbose: VerboseArgs,
    #[command(flatten)]
    pub(crate) rope: RopeArgs,
}

impl RunArgs {
    /// How a model is loaded: with the machine's ceilings where somebody reads what comes of them.
    pub(crate) fn load_options(&self) -> LoadOptions {
        LoadOptions {
            ceilings: self.verbose.verbose || ui::is_interactive(),
            ..self.cache.load_options(&self.threads, self.verbose)
        }
    }

    /// The cache of one session of such a model.
    pub(crate) fn cache_of(&self, config: &ModelConfig) -> CacheOptions {
        let trained = config.context_length;
        self.cache.options(self.context.capacity(trained), trained)
    }

    /// Loads a model whose file has been read. Returns it with the cache options of one session.
    ///
    /// # Errors
    /// If the model does not fit in memory.
    pub(crate) fn load_known(
        &self,
        gguf: &Gguf,
        known: LoadedModel,
        options: &LoadOptions,
    ) -> anyhow::Result<(Loaded, CacheOptions)> {
        let cache = self.cache_of(&known.config);
        let loaded = load::ready(gguf, known, &self.executor, options, &cache)?;
        load::warn_about_context(&loaded.config, cache.capacity, &cache.policy);
        Ok((loaded, cache))
    }
}

/// The context a conversation may fill.
#[derive(clap::Args, Clone, Debug, Default)]
pub(crate) struct ContextArgs {
    /// Context in tokens: 4096 or 4k, 0 for the model's
    ///
    /// By default the model's own, at most 8192
    #[arg(short, long, value_name = "N", value_parser = counts::context)]
    pub(crate) ctx_size: Option<usize>,
}

impl ContextArgs {
    /// Positions to allow for a model trained on `trained`.
    pub(crate) fn capacity(&self, trained: usize) -> usize {
        match self.ctx_size {
            Some(0) => trained,
            Some(n) => n,
            None => trained.min(rooflight::DEFAULT_CONTEXT),
        }
        .max(1)
    }
}

/// How much of the run is told on stderr.
#[derive(clap::Args, Clone, Copy, Debug, Default)]
pub(crate) struct VerboseArgs {
    /// Print model details and times to stderr
    #[arg(short, long)]
    pub(crate) verbose: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prompt(
        first: Option<&str>,
        second: Option<&str>,
        model: Option<&str>,
        variable: Option<&str>,
    ) -> String {
        let args = PromptArgs {
            first: first.map(Into::into),
            second: second.map(Into::into),
            model: model.map(Into::into),
            ..PromptArgs::default()
        };
        match args.resolve(variable.map(OsString::from)) {
            Ok(p) => {
                let prompt = p.prompt.map(|prompt| match prompt {
                    TextSource::Argument(text) => text.into_string().unwrap(),
                    other => format!("{other:?}"),
                });
                format!("{:?} {prompt:?}", p.model.map(|m| m.display().to_string()))
            }
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn the_model_is_told_from_the_prompt() {
        assert_eq!(prompt(Some("a.gguf"), Some("hi"), None, None), r#"Some("a.gguf") Some("hi")"#);
        assert_eq!(prompt(Some("hi"), None, Some("a.gguf"), None), r#"Some("a.gguf") Some("hi")"#);
        assert_eq!(prompt(Some("hi"), None, None, Some("e.gguf")), r#"Some("e.gguf") Some("hi")"#);
        assert_eq!(prompt(Some("b.gguf"), None, None, Some("e.gguf")), r#"Some("b.gguf") None"#);
        assert_eq!(prompt(Some("hi"), None, None, None), r#"Some("hi") None"#);
        assert_eq!(prompt(None, None, None, None), "None None");
        assert_eq!(
            prompt(Some("a.gguf"), Some("-"), None, None),
            r#"Some("a.gguf") Some("Stdin")"#
        );
        assert!(prompt(Some("a"), Some("b"), Some("c"), None).contains("unexpected argument `b`"));
    }

    #[test]
    fn context_sizes() {
        let capacity = |ctx_size, trained| ContextArgs { ctx_size }.capacity(trained);
        assert_eq!(capacity(None, 32_768), 8192);
        assert_eq!(capacity(None, 2048), 2048);
        assert_eq!(capacity(Some(0), 32_768), 32_768);
        assert_eq!(capacity(Some(100), 2048), 100);
    }
}
