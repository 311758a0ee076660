//! Model configurations, weight binding by GGUF names, and one file per architecture.
//!
//! [`load`] turns an open GGUF into a [`ModelConfig`] and a recorded [`Program`]: every hyper-parameter and the shape of
//! every tensor that is used are checked here, before an executor sees them. No executor is known here, and no tokenizer
//! but for the number of its tokens. Read next: `arch/qwen2.rs`, then `config.rs`.
#![forbid(unsafe_code)]

mod arch;
mod config;
mod error;
mod keys;
mod mixture;
mod outline;
mod published;
mod source;
mod weights;

use std::collections::HashSet;
use std::sync::Arc;

use gguf::{Gguf, escape};
use program::{Program, Recorder};
use quant::GgmlType;

pub use arch::{ARCHITECTURES, Architecture, ProgramOutputs, architecture};
pub use config::{
    Experts, HyperConnections, IndexerConfig, Latent, LayerConfig, ModelConfig, NgramConfig,
    Pooling, Recurrent, TextHead,
};
pub use error::{Error, Result};
pub use keys::Keys;
pub use mixture::{MIXTURES, Mixture};
pub use outline::Outline;
pub use published::{
    find_outline, find_published, published, published_names, published_type, similar_published,
};
pub use source::GgufWeights;
pub use weights::{Bias, Found, Weights};

/// A model ready to be given to an executor, together with a [`GgufWeights`] of the same file.
#[derive(Clone, Debug)]
pub struct LoadedModel {
    /// Its hyper-parameters.
    pub config: ModelConfig,
    /// Its forward pass.
    pub program: Arc<Program>,
    /// What blocks at the end of the file guess after the next token (multi-token prediction), where that was asked for. A
    /// row of this program reads what the forward pass hands out of a token, and the token after that one; it yields logits,
    /// and the row that the guess after a guess reads.
    pub guesses: Option<Arc<Program>>,
    /// What was put right on the way, each a line for the user.
    pub notes: Vec<String>,
}

/// Check a model's hyper-parameters and tensors and record its forward pass.
///
/// # Errors
/// Names the key or tensor that is missing, out of range, of a wrong shape or of an unsupported type.
pub fn load(gguf: &Gguf) -> Result<LoadedModel> {
    load_as(gguf, ModelConfig::from_gguf(gguf)?)
}

/// The same of a model that is to embed or rank texts, whose rows are pooled in this way whatever the file says.
///
/// # Errors
/// As [`load`]; a classifier that is not there.
pub fn load_pooled(gguf: &Gguf, pooling: Pooling) -> Result<LoadedModel> {
    load_as(gguf, ModelConfig::pooled(gguf, pooling)?)
}

impl LoadedModel {
    /// The same for contexts of at most `context` tokens: where the file has factors of the rotation for contexts as short
    /// as that, these are used (LongRoPE, arXiv:2402.13753). Before [`with_guesses`](Self::with_guesses), if that is wanted.
    ///
    /// # Errors
    /// As [`load`].
    pub fn within(mut self, gguf: &Gguf, context: usize) -> Result<LoadedModel> {
        match self.config.short_context {
            Some(most) if context <= most => {
                self.config.rotates_short = true;
                self.program = Arc::new(record_own(&self.config, &of_file(gguf))?);
                Ok(self)
            }
            _ => Ok(self),
        }
    }

    /// The same with [`guesses`](LoadedModel::guesses), which read what the program hands out then.
    ///
    /// # Errors
    /// [`Error::NoGuesses`], and as [`load`].
    pub fn with_guesses(self, gguf: &Gguf) -> Result<LoadedModel> {
        self.guessing(&of_file(gguf))
    }

    /// The same of a model that has no file, as [`from_config`] made it.
    ///
    /// # Errors
    /// Likewise.
    pub fn with_guesses_of(
        self,
        ty: &dyn Fn(&str, &[u64]) -> Option<GgmlType>,
    ) -> Result<LoadedModel> {
        self.guessing(&of_types(ty))
    }

    fn guessing(mut self, find: &weights::Find<'_>) -> Result<LoadedModel> {
        self.guesses = Some(Arc::new(record(&self.config, find, &arch::guess::record)?));
        self.config.hands_hidden = true;
        self.program = Arc::new(record_own(&self.config, find)?);
        Ok(self)
    }
}

fn load_as(gguf: &Gguf, (config, notes): (ModelConfig, Vec<String>)) -> Result<LoadedModel> {
    let program = record_own(&config, &of_file(gguf))?;
    let mut notes = notes;
    notes.extend(short_factors(gguf, &config));
    notes.extend(unread(gguf, &config, &program));
    Ok(LoadedModel { config, program: Arc::new(program), guesses: None, notes })
}

/// The tensors of a file.
fn of_file(gguf: &Gguf) -> impl Fn(&str, &[u64]) -> Result<Option<Found>> {
    |name, _| {
        let found = |t: &gguf::TensorInfo| Ok(Found { ty: t.ty()?, dims: t.dims.clone() });
        gguf.tensor(name).map(found).transpose()
    }
}

/// A word on factors of two lengths.
fn short_factors(gguf: &Gguf, config: &ModelConfig) -> Option<String> {
    gguf.tensor("rope_factors_short.weight")?;
    let factors = "the rotation has factors for short contexts and for long ones";
    match config.short_context {
        None => Some(format!("{factors}, and nothing says which: those for long ones are used")),
        Some(most) => (most < config.context_length).then(|| {
            format!(
                "{factors}, longer than {most} tokens: the context that is asked for (-c) decides"
            )
        }),
    }
}

/// A word on tensors of the decoder blocks that the program does not read.
fn unread(gguf: &Gguf, config: &ModelConfig, program: &Program) -> Option<String> {
    let read: HashSet<&str> = program.weights.iter().map(|spec| spec.name.as_str()).collect();
    let of_a_block = |name: &str| {
        let number = name.strip_prefix("blk.").and_then(|rest| rest.split('.').next());
        number.and_then(|n| n.parse().ok()).is_some_and(|n: usize| n < config.layers.len())
    };
    let names = gguf.tensors().iter().map(|tensor| tensor.name.as_str());
    let mut unread = names.filter(|name| of_a_block(name) && !read.contains(name));
    let first = unread.next()?;
    let more = match unread.count() {
        0 => String::new(),
        n => format!(" and {n} more"),
    };
    let first = escape(first.as_bytes(), 100);
    Some(format!("tensor `{first}`{more} of the decoder blocks: not read"))
}

/// Record the forward pass of a model that has no file. `ty` gives each tensor's type from its name and dimensions (row
/// length first; none where it is only asked whether there is such a tensor); `None` leaves an optional tensor out.
///
/// # Errors
/// As [`load`].
pub fn from_config(
    config: &ModelConfig,
    ty: &dyn Fn(&str, &[u64]) -> Option<GgmlType>,
) -> Result<LoadedModel> {
    let program = Arc::new(record_own(config, &of_types(ty))?);
    Ok(LoadedModel { config: config.clone(), program, guesses: None, notes: Vec::new() })
}

/// Tensors that are as they are asked for.
fn of_types(
    ty: &dyn Fn(&str, &[u64]) -> Option<GgmlType>,
) -> impl Fn(&str, &[u64]) -> Result<Option<Found>> {
    move |name, wanted| Ok(ty(name, wanted).map(|ty| Found { ty, dims: wanted.to_vec() }))
}

/// A model's forward pass.
fn record_own(config: &ModelConfig, find: &weights::Find<'_>) -> Result<Program> {
    record(config, find, &architecture(&config.architecture)?.record)
}

/// Records a pass over the tensors of a model.
type Pass = dyn Fn(&Recorder, &Weights<'_>, &ModelConfig) -> Result<ProgramOutputs>;

fn record(config: &ModelConfig, find: &weights::Find<'_>, pass: &Pass) -> Result<Program> {
    let recorder = Recorder::new();
    let weights = Weights::new(&recorder, find);
    let outputs = pass(&recorder, &weights, config)?;
    Ok(recorder.finish(&outputs))
}
