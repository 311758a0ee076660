//! [`ModelConfig`]: the hyper-parameters of a model, each within a range that executors can rely on.

mod experts;
mod latent;

use gguf::{Gguf, Value, escape};
use program::{Rope, RopePairs, RopeScaling, WeightId};

use crate::keys::Keys;
use crate::{Error, Result, arch};

pub use experts::Experts;
pub use latent::Latent;

/// Hyper-parameters of a decoder. Names are the papers'; `docs/glossary.md` lists the GGUF key of each.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelConfig {
    /// `general.architecture`: a name of [`crate::ARCHITECTURES`].
    pub architecture: String,
    /// `general.name`, escaped and cut.
    pub name: Option<String>,
    /// Width of the residual stream.
    pub hidden_size: usize,
    /// Width inside the feed-forward layer.
    pub intermediate_size: usize,
    /// Decoder blocks.
    pub n_layers: usize,
    /// Query heads.
    pub n_heads: usize,
    /// Key-value heads; divides `n_heads`. 1 with latent attention.
    pub n_kv_heads: usize,
    /// Width of one query or key.
    pub head_dim: usize,
    /// Width of one value.
    pub value_dim: usize,
    /// Rows of the embedding table.
    pub vocab_size: usize,
    /// Context the model was made for, in tokens; at least 1.
    pub context_length: usize,
    /// Added under the root of every norm.
    pub rms_norm_eps: f32,
    /// Base of the rotation frequencies.
    pub rope_theta: f32,
    /// Leading elements of a head that rotate; even.
    pub rope_dims: usize,
    /// Long-context scaling of the rotation.
    pub rope_scaling: RopeScaling,
    /// The output head is the embedding table.
    pub tied_embeddings: bool,
    /// Latent attention, in the architectures that have it.
    pub latent: Option<Latent>,
    /// Mixtures of experts, in the architectures that have them.
    pub experts: Option<Experts>,
}

/// Taken where a file does not say how much context a model was made for.
const UNKNOWN_CONTEXT: usize = 4096;
const MAX_CONTEXT: usize = 1 << 24;

impl ModelConfig {
    /// Read and check the hyper-parameters. What is put right on the way is told in `notes`.
    ///
    /// # Errors
    /// Unknown architecture; a key that is missing, of a wrong type or out of range; a vocabulary larger than the
    /// embedding table.
    pub fn from_gguf(gguf: &Gguf, notes: &mut Vec<String>) -> Result<ModelConfig> {
        let metadata = gguf.metadata();
        let architecture = architecture(metadata.get("general.architecture"))?;
        let keys = Keys::new(metadata, architecture.name());

        let n_layers = keys.require("block_count", keys.count("block_count", 1..=512)?)?;
        let hidden_size =
            keys.require("embedding_length", keys.count("embedding_length", 1..=1 << 20)?)?;
        let intermediate_size = keys.per_layer("feed_forward_length", n_layers, 1..=1 << 24)?;
        let latent = architecture.latent();
        let heads = if latent {
            Heads::latent(&keys, n_layers)?
        } else {
            Heads::read(&keys, n_layers, hidden_size)?
        };
        let intermediate_size = keys.require("feed_forward_length", intermediate_size)?;
        let experts = if architecture.experts() {
            Some(Experts::read(gguf, &keys, n_layers, intermediate_size)?)
        } else {
            experts::none(&keys)?;
            None
        };
        keys.count("vocab_size", 1..=1 << 24)?;
        let context_length = context_length(&keys, notes)?;
        let rope_dims = keys.count("rope.dimension_count", 0..=u64::MAX)?.unwrap_or(heads.head_dim);
        if !(2..=heads.head_dim).contains(&rope_dims) || !rope_dims.is_multiple_of(2) {
            let expected = format!("an even number <= head size {}", heads.head_dim);
            return Err(Error::key(&keys.name("rope.dimension_count"), expected, rope_dims));
        }
        let mut rope_scaling = rope_scaling(&keys, context_length)?;
        let latent = latent
            .then(|| Latent::read(gguf, &keys, &heads, rope_dims, &mut rope_scaling, notes))
            .transpose()?;
        Ok(ModelConfig {
            architecture: architecture.name().to_owned(),
            name: metadata
                .get("general.name")
                .and_then(|v| v.as_str())
                .map(|name| escape(name, 200)),
            hidden_size,
            intermediate_size,
            n_layers,
            n_heads: heads.n_heads,
            n_kv_heads: heads.n_kv_heads,
            head_dim: heads.head_dim,
            value_dim: heads.value_dim,
            vocab_size: vocab_size(gguf, hidden_size)?,
            context_length,
            rms_norm_eps: keys.require(
                "attention.layer_norm_rms_epsilon",
                keys.positive("attention.layer_norm_rms_epsilon")?,
            )?,
            rope_theta: keys.positive("rope.freq_base")?.unwrap_or(10_000.0),
            rope_dims,
            rope_scaling,
            tied_embeddings: gguf.tensor("output.weight").is_none(),
            latent,
            experts,
        })
    }

    /// The rotation of the model's queries and keys.
    pub fn rope(&self, pairs: RopePairs, factors: Option<WeightId>) -> Rope {
        Rope {
            pairs,
            dims: self.rope_dims,
            theta: self.rope_theta,
            scaling: self.rope_scaling,
            factors,
        }
    }

    /// Factor on the scores of attention: `1 / sqrt(head_dim)`, times [`Latent::mscale`] squared.
    pub fn attention_scale(&self) -> f32 {
        let mscale = self.latent.as_ref().map_or(1.0, |latent| f64::from(latent.mscale));
        (mscale * mscale / (self.head_dim as f64).sqrt()) as f32
    }
}

fn architecture(value: Option<Value<'_>>) -> Result<&'static dyn arch::Architecture> {
    const KEY: &str = "general.architecture";
    match value {
        None => Err(Error::MissingKey { key: KEY.into() }),
        Some(Value::String(name)) => arch::by_bytes(name),
        Some(other) => Err(Error::key(KEY, "a string", other)),
    }
}

struct Heads {
    n_heads: usize,
    n_kv_heads: usize,
    head_dim: usize,
    value_dim: usize,
}

/// Most heads, and the widest.
const MAX_HEADS: u64 = 1 << 16;

impl Heads {
    fn read(keys: &Keys<'_>, n_layers: usize, hidden_size: usize) -> Result<Heads> {
        let (count, count_kv) = ("attention.head_count", "attention.head_count_kv");
        let n_heads = keys.require(count, keys.per_layer(count, n_layers, 1..=MAX_HEADS)?)?;
        let n_kv_heads = keys.per_layer(count_kv, n_layers, 1..=MAX_HEADS)?.unwrap_or(n_heads);
        if !n_heads.is_multiple_of(n_kv_heads) {
            return Err(Error::key(
                &keys.name(count_kv),
                format!("a divisor of head_count {n_heads}"),
                n_kv_heads,
            ));
        }
        let head_dim = match keys.count("attention.key_length", 1..=MAX_HEADS)? {
            Some(head_dim) => head_dim,
            None if hidden_size.is_multiple_of(n_heads) => hidden_size / n_heads,
            None => {
                return Err(Error::key(
                    &keys.name(count),
                    format!("a divisor of embedding_length {hidden_size}"),
                    n_heads,
                ));
            }
        };
        let value_dim = keys.count("attention.value_length", 1..=MAX_HEADS)?.unwrap_or(head_dim);
        Ok(Heads { n_heads, n_kv_heads, head_dim, value_dim })
    }
}

/// Any number is accepted: users choose their context themselves, this one is a default and a warning sign.
fn context_length(keys: &Keys<'_>, notes: &mut Vec<String>) -> Result<usize> {
    let found = keys.count("context_length", 0..=u64::MAX)?;
    let taken = match found {
        None | Some(0) => UNKNOWN_CONTEXT,
        Some(n) => n.min(MAX_CONTEXT),
    };
    if found != Some(taken) {
        let found = found.map_or("missing".to_owned(), |n| n.to_string());
        notes.push(format!("key `{}` is {found}: taken as {taken}", keys.name("context_length")));
    }
    Ok(taken)
}

/// Rows of the embedding table, which the vocabulary must not exceed (tables may be padded).
fn vocab_size(gguf: &Gguf, hidden_size: usize) -> Result<usize> {
    const NAME: &str = "token_embd.weight";
    let table = gguf.tensor(NAME).ok_or_else(|| Error::MissingTensor { name: NAME.into() })?;
    let tokens = match gguf.metadata().get("tokenizer.ggml.tokens") {
        Some(Value::Array(tokens)) => Some(tokens.len() as u64),
        _ => None,
    };
    let rows = table.dims.get(1).copied().unwrap_or(1);
    if table.dims.first() != Some(&(hidden_size as u64)) || table.dims.len() > 2 {
        let expected = vec![hidden_size as u64, tokens.unwrap_or(rows)];
        return Err(Error::Shape { name: NAME.into(), expected, found: table.dims.clone() });
    }
    if let Some(tokens) = tokens.filter(|&tokens| tokens > rows) {
        return Err(Error::Vocabulary { tokens, rows });
    }
    usize::try_from(rows).map_err(|_| Error::Shape {
        name: NAME.into(),
        expected: vec![hidden_size as u64, 1 << 24],
        found: table.dims.clone(),
    })
}

/// `rope.scaling.*`. For YaRN, cos and sin are scaled by `attn_factor * (1 + 0.1 ln(factor))`, as published models were
/// trained (arXiv:2309.00071, section 3.4).
fn rope_scaling(keys: &Keys<'_>, context_length: usize) -> Result<RopeScaling> {
    let how = match keys.get("rope.scaling.type") {
        None => "linear",
        Some(value) => match value.as_str() {
            Some(how @ ("none" | "linear" | "yarn")) => how,
            _ => {
                return Err(Error::key(
                    &keys.name("rope.scaling.type"),
                    "none, linear or yarn",
                    value,
                ));
            }
        },
    };
    // Files of 2023 say `rope.scale_linear`; a factor of 0 means none.
    let factor = ["rope.scaling.factor", "rope.scale_linear"]
        .into_iter()
        .find(|key| keys.get(key).is_some());
    let zero = |key: &&str| keys.get(key).and_then(|value| value.as_f32()) == Some(0.0);
    let factor =
        factor.filter(|key| !zero(key)).map_or(Ok(None), |key| keys.positive(key))?.unwrap_or(1.0);
    let attn_factor = keys.positive("rope.scaling.attn_factor")?.unwrap_or(1.0);
    if how == "yarn" {
        let original =
            keys.count("rope.scaling.original_context_length", 1..=u64::from(u32::MAX))?;
        let original = original.unwrap_or(context_length);
        return Ok(RopeScaling::Yarn {
            factor,
            original_context: u32::try_from(original)
                .expect("both are within u32 by the ranges above"),
            beta_fast: keys.positive("rope.scaling.yarn_beta_fast")?.unwrap_or(32.0),
            beta_slow: keys.positive("rope.scaling.yarn_beta_slow")?.unwrap_or(1.0),
            attention_factor: attn_factor * (1.0 + 0.1 * factor.max(1.0).ln()),
        });
    }
    if attn_factor != 1.0 {
        return Err(Error::key(
            &keys.name("rope.scaling.attn_factor"),
            format!("1 with scaling {how}"),
            attn_factor,
        ));
    }
    Ok(if how == "linear" && factor != 1.0 {
        RopeScaling::Linear { factor }
    } else {
        RopeScaling::None
    })
}
