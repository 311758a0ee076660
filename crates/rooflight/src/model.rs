//! [`Model`]: a loaded model with its tokenizer and chat template.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use engine::{ModelFormat, SamplerOptions, Session};
use executors::ExecutorKind;
use gguf::Gguf;
use program::{CacheOptions, CacheType};
use tokenizer::{ChatTemplate, Tokenizer};

use crate::executor::ExecutorChoice;
use crate::load::{self, LoadOptions, Loaded};
use crate::{Chat, Error, Result, Runtime, Settings, file};

/// Maximum context of a session if none is set, in tokens. The default context is this or the model's own, whichever is
/// smaller.
pub const DEFAULT_CONTEXT: usize = 8192;

/// Source of a model.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Source {
    /// Path of a GGUF file. For a sharded model, the path of any shard.
    Path(PathBuf),
    /// Content of a GGUF file.
    Bytes(Vec<u8>),
}

impl From<&str> for Source {
    fn from(path: &str) -> Source {
        Source::Path(path.into())
    }
}

impl From<&Path> for Source {
    fn from(path: &Path) -> Source {
        Source::Path(path.into())
    }
}

impl From<PathBuf> for Source {
    fn from(path: PathBuf) -> Source {
        Source::Path(path)
    }
}

impl From<Vec<u8>> for Source {
    fn from(bytes: Vec<u8>) -> Source {
        Source::Bytes(bytes)
    }
}

/// A loaded model with its tokenizer and chat template. Clones share the model.
#[derive(Clone)]
pub struct Model(Arc<Inner>);

struct Inner {
    model: Arc<dyn program::Model>,
    /// Maximum number of prompt tokens per pass.
    chunk: usize,
    /// Description of the executor.
    executor: String,
    format: Arc<ModelFormat>,
    cache: CacheOptions,
    sampler: SamplerOptions,
}

/// Options for loading a model.
#[derive(Clone, Debug)]
pub struct ModelBuilder {
    source: Source,
    runtime: Runtime,
    context: Option<usize>,
    cache_types: (CacheType, CacheType),
    options: LoadOptions,
}

impl Model {
    /// Creates a builder for a model from a path or from bytes.
    pub fn builder(source: impl Into<Source>) -> ModelBuilder {
        ModelBuilder {
            source: source.into(),
            runtime: Runtime::silent(Settings::default()),
            context: None,
            cache_types: (CacheType::F16, CacheType::F16),
            options: LoadOptions::default(),
        }
    }

    /// Starts a chat. All chats of one model share its weights; each has its own cache.
    ///
    /// # Errors
    /// If there is not enough memory for the cache.
    pub fn chat(&self) -> Result<Chat> {
        let Inner { model, chunk, format, cache, sampler, .. } = &*self.0;
        let session = Session::new(Arc::clone(model), *cache, *chunk)?;
        Chat::new(session, Arc::clone(format), sampler.clone())
    }

    /// Returns the tokenizer.
    pub fn tokenizer(&self) -> &Tokenizer {
        self.0.format.tokenizer()
    }

    /// Returns the context of a session, in tokens.
    pub fn context(&self) -> usize {
        self.0.cache.capacity
    }

    /// Returns a description of the executor, in one line.
    pub fn executor(&self) -> &str {
        &self.0.executor
    }
}

impl ModelBuilder {
    /// Sets the context of sessions, in tokens. The default is the context of the model, at most [`DEFAULT_CONTEXT`].
    pub fn context(mut self, tokens: usize) -> ModelBuilder {
        self.context = Some(tokens);
        self
    }

    /// Sets the number of threads. The default is the number of physical cores.
    pub fn threads(mut self, threads: usize) -> ModelBuilder {
        self.options.executor.threads = Some(threads);
        self
    }

    /// Sets the kind of executor. The default is the fastest one on this machine that supports the model.
    pub fn executor(mut self, kind: ExecutorKind) -> ModelBuilder {
        self.options.executor.kind = Some(kind);
        self
    }

    /// Sets all options of the executor.
    pub fn executor_choice(mut self, choice: ExecutorChoice) -> ModelBuilder {
        self.options.executor = choice;
        self
    }

    /// Sets the types of cached keys and values. The default is F16.
    pub fn cache_types(mut self, k: CacheType, v: CacheType) -> ModelBuilder {
        self.cache_types = (k, v);
        self
    }

    /// Sets the runtime, which stores measurements of the machine and receives notices. By default, nothing is stored or
    /// reported.
    pub fn runtime(mut self, runtime: &Runtime) -> ModelBuilder {
        self.runtime = runtime.clone();
        self
    }

    /// Loads the model.
    ///
    /// # Errors
    /// If the file does not exist or is malformed, the executor does not support the model, or the model does not fit in
    /// memory.
    pub fn load(self) -> Result<Model> {
        self.try_load().map_err(Error::of_anyhow)
    }

    fn try_load(self) -> anyhow::Result<Model> {
        let gguf = match self.source {
            Source::Path(path) => file::open(&path)?,
            Source::Bytes(bytes) => Gguf::from_bytes(bytes)?,
        };
        let known = models::load(&gguf)?;
        let tokenizer = Tokenizer::from_gguf(gguf.metadata())?;
        let template = ChatTemplate::from_gguf(gguf.metadata(), &tokenizer)?;
        let format = Arc::new(ModelFormat::new(Arc::new(tokenizer), template));
        let trained = known.config.context_length;
        let capacity = self.context.unwrap_or(trained.min(DEFAULT_CONTEXT));
        let (k, v) = self.cache_types;
        let cache = CacheOptions::new(k, v, capacity);
        let (sampler, _) = file::recommended_sampler(gguf.metadata());
        let loaded = load::load(&self.runtime, &gguf, known, &self.options, &cache)?;
        let Loaded { model, chunk, executor, .. } = loaded;
        let executor = executor.describe();
        Ok(Model(Arc::new(Inner { model, chunk, executor, format, cache, sampler })))
    }
}
