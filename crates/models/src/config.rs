//! [`ModelConfig`] and [`LayerConfig`]: the hyper-parameters of a model, each within a range that executors can rely on.
//!
//! An architecture makes them of a file's keys ([`Architecture::config`](crate::Architecture::config)) with the readers
//! here: [`read`] for what nearly all say, [`experts`], [`latent`] and [`window`] for what some have.

pub(crate) mod experts;
pub(crate) mod hyper;
pub(crate) mod indexer;
pub(crate) mod latent;
mod ngrams;
pub(crate) mod read;
pub(crate) mod recurrent;
mod rope;
pub(crate) mod text;
pub(crate) mod window;

use gguf::{Gguf, Metadata, Value};
use program::{Act, Gate, Norm, NormKind, Rope, Score};

use crate::keys::Keys;
use crate::{Error, Result, arch};

pub use experts::Experts;
pub use hyper::HyperConnections;
pub use indexer::IndexerConfig;
pub use latent::Latent;
pub use ngrams::NgramConfig;
pub use recurrent::Recurrent;
pub use text::{Pooling, TextHead};

/// Hyper-parameters of a decoder. Names are the papers'; `docs/glossary.md` lists the GGUF key of each.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelConfig {
    /// `general.architecture`: a name of [`crate::ARCHITECTURES`].
    pub architecture: String,
    /// `general.name`, escaped and cut.
    pub name: Option<String>,
    /// Width of the residual stream.
    pub hidden_size: usize,
    /// Rows of the embedding table.
    pub vocab_size: usize,
    /// Context the model was made for, in tokens; at least 1.
    pub context_length: usize,
    /// Contexts up to so many tokens have factors of the rotation of their own (LongRoPE). `None`: one rotation for all.
    pub short_context: Option<usize>,
    /// The program is for such contexts: see [`LoadedModel::within`](crate::LoadedModel::within).
    pub rotates_short: bool,
    /// What its norms are.
    pub norm: NormKind,
    /// Norms add a vector where the file has one.
    pub norm_bias: bool,
    /// Added under the root of every norm.
    pub norm_eps: f32,
    /// Where an architecture has blocks of two forms, these are of the one whose halves stand side by side, or have a norm each.
    pub parallel: bool,
    /// The output head is the embedding table.
    pub tied_embeddings: bool,
    /// Norms have no vectors.
    pub plain_norms: bool,
    /// Blocks that run in rounds have no norm between these.
    pub plain_rounds: bool,
    /// A norm follows the embedding.
    pub norm_embedding: bool,
    /// Rows of the table of token types, where there is one.
    pub n_token_types: Option<usize>,
    /// q, k and v are rows of one tensor, where files of the architecture differ in that.
    pub joint_qkv: bool,
    /// Gate and up are rows of one tensor, likewise.
    pub joint_ffn: bool,
    /// Norms on queries and keys, likewise.
    pub normed_heads: bool,
    /// What the model says of a text as a whole: it yields no logits then.
    pub text: Option<TextHead>,
    /// Rows of the table of learned positions, where there is one: no text may be longer.
    pub n_positions: Option<usize>,
    /// Width of what each block reads of a table of its own for the token; 0 for none.
    pub per_layer_size: usize,
    /// Factor on the embedding.
    pub embedding_scale: Option<f32>,
    /// Bound on queries, keys and values before they rotate.
    pub clamp_qkv: Option<f32>,
    /// Factor on what each half of a block adds to the residual stream.
    pub residual_scale: Option<f32>,
    /// Factor on what heads attended to.
    pub attention_scale: Option<f32>,
    /// Factor on logits.
    pub logit_scale: Option<f32>,
    /// The residual stream is halved after every so many layers, where it is.
    pub rescale_every: Option<usize>,
    /// Bound on logits: `c * tanh(logit / c)`.
    pub logit_softcap: Option<f32>,
    /// The residual stream is kept and begun anew in every so many layers, where it is; halves of blocks read a mix of all.
    pub residual_blocks: Option<usize>,
    /// There are several residual streams side by side.
    pub hyper: Option<HyperConnections>,
    /// One block adds rows that hashes of the last few tokens choose.
    pub ngrams: Option<NgramConfig>,
    /// Blocks behind these in the file, which guess the tokens after the next one.
    pub n_guessing: usize,
    /// The program hands out what the head reads of every token, for blocks that guess: see
    /// [`LoadedModel::guesses`](crate::LoadedModel::guesses).
    pub hands_hidden: bool,
    /// The decoder blocks, in order; at least one.
    pub layers: Vec<LayerConfig>,
}

/// Hyper-parameters of one decoder block.
#[derive(Clone, Debug, PartialEq)]
pub struct LayerConfig {
    /// The block of the file whose tensors it uses: its own number but where blocks run more than once.
    pub block: usize,
    /// Query heads; 0 in a layer without attention.
    pub n_heads: usize,
    /// Key-value heads; divides `n_heads`. 1 with latent attention; 0 in a layer that has a matrix in place of attention.
    pub n_kv_heads: usize,
    /// Width of one query or key.
    pub head_dim: usize,
    /// Width of one value.
    pub value_dim: usize,
    /// Rotation of queries and keys, without the factors that a tensor holds; `None` for none.
    pub rope: Option<Rope>,
    /// Where the file has factors that divide the rotation's frequencies, they do in this layer.
    pub rope_factors: bool,
    /// The layer before whose keys and values it reads, having none of its own.
    pub reads_layer: Option<usize>,
    /// From queries and keys to weights, without the sinks that a tensor holds.
    pub score: Score,
    /// Keys and values are made of latents.
    pub latent: Option<Latent>,
    /// It attends to what an indexer chooses; `None`: to all it sees.
    pub indexer: Option<IndexerConfig>,
    /// The layer recurs, in place of attention or beside it.
    pub recurrent: Option<Recurrent>,
    /// Activation of a feed-forward layer that is not one of experts, where it is the layer's own.
    pub act: Act,
    /// That of such a layer with a gate.
    pub gate: Gate,
    /// Gates are by how much they exceed their mean and so many deviations; `None` for what they are.
    pub gate_deviations: Option<f32>,
    /// Width inside a feed-forward layer that is not one of experts; 0 where there is none.
    pub intermediate_size: usize,
    /// The feed-forward layer is a mixture of experts.
    pub experts: Option<Experts>,
}

impl LayerConfig {
    /// Whether both say the same, of whatever blocks of the file.
    pub fn is_like(&self, other: &LayerConfig) -> bool {
        *self == LayerConfig { block: self.block, ..other.clone() }
    }
}

impl ModelConfig {
    /// Read and check the hyper-parameters, and tell what was put right on the way, each a line for the user.
    ///
    /// # Errors
    /// Unknown architecture; a key that is missing, of a wrong type or out of range; a vocabulary larger than the
    /// embedding table.
    pub fn from_gguf(gguf: &Gguf) -> Result<(ModelConfig, Vec<String>)> {
        ModelConfig::read(gguf.metadata(), &|name| {
            gguf.tensor(name).map(|tensor| tensor.dims.clone())
        })
    }

    /// The same of a model that is to say something of texts, whose rows are pooled in this way.
    ///
    /// # Errors
    /// Likewise; a classifier that is not there.
    pub(crate) fn pooled(gguf: &Gguf, pooling: Pooling) -> Result<(ModelConfig, Vec<String>)> {
        let dims = |name: &str| gguf.tensor(name).map(|tensor| tensor.dims.clone());
        let architecture = architecture(gguf.metadata().get("general.architecture"))?;
        let keys = Keys::new(gguf.metadata(), architecture.name, &dims);
        let mut config = (architecture.config)(&keys)?;
        text::pool(&keys, &mut config, pooling)?;
        Ok((config, keys.into_notes()))
    }

    /// Whether blocks of the file guess tokens after the next one, in a way that is known.
    pub fn can_guess(&self) -> bool {
        self.n_guessing > 0 && arch::guess::is_known(&self.architecture)
    }

    /// The model's norm without vectors.
    pub(crate) fn plain_norm(&self) -> Norm {
        Norm { kind: self.norm, weight: None, bias: None, eps: self.norm_eps }
    }

    pub(crate) fn read(
        metadata: &Metadata,
        dims: &dyn Fn(&str) -> Option<Vec<u64>>,
    ) -> Result<(ModelConfig, Vec<String>)> {
        let architecture = architecture(metadata.get("general.architecture"))?;
        let keys = Keys::new(metadata, architecture.name, dims);
        let config = (architecture.config)(&keys)?;
        Ok((config, keys.into_notes()))
    }

    /// The first decoder block: what a line about the model says of its heads and widths.
    ///
    /// # Panics
    /// If there is none, which no reader of keys yields.
    pub fn first_layer(&self) -> &LayerConfig {
        self.layers.first().expect("a decoder has blocks")
    }
}

fn architecture(value: Option<Value<'_>>) -> Result<&'static arch::Architecture> {
    const KEY: &str = "general.architecture";
    match value {
        None => Err(Error::MissingKey { key: KEY.into() }),
        Some(Value::String(name)) => arch::by_bytes(name),
        Some(other) => Err(Error::key(KEY, "a string", other)),
    }
}
