//! What nearly every decoder says of itself, and says alike.

use gguf::{Value, escape};
use program::{Act, Gate, Mask, NormKind, RopePairs, Score};

use super::{LayerConfig, ModelConfig, experts, rope, text};
use crate::arch::guess;
use crate::keys::Keys;
use crate::{Error, Result};

/// Taken where a file does not say how much context a model was made for.
const UNKNOWN_CONTEXT: usize = 4096;
const MAX_CONTEXT: usize = 1 << 24;

/// Files of it may leave out what norms add under their roots: llama.cpp then adds nothing.
const SILENT_EPS: &str = "qwen2vl";

/// Most heads, and the widest.
pub(crate) const MAX_HEADS: u64 = 1 << 16;

/// A decoder without experts.
///
/// # Errors
/// A key that is missing or out of range; experts.
pub(crate) fn dense(keys: &Keys<'_>, pairs: RopePairs) -> Result<ModelConfig> {
    experts::none(keys)?;
    decoder(keys, pairs)
}

/// A decoder, its feed-forward layers taken for dense.
///
/// # Errors
/// A key that is missing or out of range.
pub(crate) fn decoder(keys: &Keys<'_>, pairs: RopePairs) -> Result<ModelConfig> {
    with_heads(keys, pairs, Heads::read(keys, 1)?, 1)
}

/// A dense decoder whose counts of heads and widths may be 0: of layers that lack a half.
///
/// # Errors
/// As [`dense`].
pub(crate) fn with_gaps(keys: &Keys<'_>, pairs: RopePairs) -> Result<ModelConfig> {
    experts::none(keys)?;
    with_heads(keys, pairs, Heads::read(keys, 0)?, 0)
}

/// A decoder of which some layers have no key-value heads: those that recur. Their feed-forward layers may have no width.
///
/// # Errors
/// A key that is missing or out of range.
pub(crate) fn with_recurrent(keys: &Keys<'_>, pairs: RopePairs) -> Result<ModelConfig> {
    with_heads(keys, pairs, Heads::read(keys, 0)?, 0)
}

/// A dense decoder whose norms are layer norms, whatever other norm's number the file has as well.
///
/// # Errors
/// As [`dense`].
pub(crate) fn layer_normed(keys: &Keys<'_>, pairs: RopePairs) -> Result<ModelConfig> {
    let mut c = dense(keys, pairs)?;
    set_layer_norm(keys, &mut c)?;
    Ok(c)
}

/// Make the norms layer norms.
///
/// # Errors
/// A number that is no norm's.
pub(crate) fn set_layer_norm(keys: &Keys<'_>, c: &mut ModelConfig) -> Result<()> {
    (c.norm, c.norm_bias) = (NormKind::Layer, true);
    c.norm_eps = keys.positive("attention.layer_norm_epsilon")?.unwrap_or(c.norm_eps);
    Ok(())
}

/// Learned positions in place of the rotation, as many as their table has rows.
///
/// # Errors
/// No such table, or one of another width.
pub(crate) fn learned_positions(keys: &Keys<'_>, c: &mut ModelConfig) -> Result<()> {
    const NAME: &str = "position_embd.weight";
    let found = keys.dims(NAME).ok_or_else(|| Error::MissingTensor { name: NAME.into() })?;
    let rows = match found[..] {
        [cols, rows] if cols == c.hidden_size as u64 => usize::try_from(rows).ok(),
        _ => None,
    };
    let Some(rows) = rows.filter(|rows| (1..=MAX_CONTEXT).contains(rows)) else {
        let expected = vec![c.hidden_size as u64, c.context_length as u64];
        return Err(Error::Shape { name: NAME.into(), expected, found });
    };
    if rows < c.context_length {
        let key = keys.name("context_length");
        keys.note(format!("key `{key}` is {}: the model has {rows} positions", c.context_length));
        c.context_length = rows;
    }
    c.n_positions = Some(rows);
    c.layers.iter_mut().for_each(|layer| layer.rope = None);
    Ok(())
}

/// The heads of one layer.
pub(super) struct Heads {
    pub(super) n_heads: usize,
    pub(super) n_kv_heads: usize,
    pub(super) head_dim: usize,
    pub(super) value_dim: usize,
    /// A file may say that nothing of a key rotates.
    pub(super) may_not_rotate: bool,
}

impl Heads {
    /// Those of every layer, `least` or more. A head's width is one for all: where no key gives it, that of the first
    /// layer that has some.
    fn read(keys: &Keys<'_>, least: u64) -> Result<Vec<Heads>> {
        let (count, count_kv) = ("attention.head_count", "attention.head_count_kv");
        let n_heads = keys.require(count, keys.per_layer(count, least..=MAX_HEADS)?)?;
        let some = n_heads.iter().copied().find(|n| *n > 0).unwrap_or(1);
        let n_kv_heads =
            keys.per_layer(count_kv, least..=MAX_HEADS)?.unwrap_or_else(|| n_heads.clone());
        let hidden_size = hidden_size(keys)?;
        let head_dim = match keys.count("attention.key_length", 1..=MAX_HEADS)? {
            Some(head_dim) => head_dim,
            None if hidden_size.is_multiple_of(some) => hidden_size / some,
            None => {
                return Err(Error::key(
                    &keys.name(count),
                    format!("a divisor of embedding_length {hidden_size}"),
                    some,
                ));
            }
        };
        let value_dim = keys.count("attention.value_length", 1..=MAX_HEADS)?.unwrap_or(head_dim);
        let layer = |(n_heads, n_kv_heads): (usize, usize)| {
            if n_heads.is_multiple_of(n_kv_heads.max(1)) {
                let may_not_rotate = false;
                return Ok(Heads { n_heads, n_kv_heads, head_dim, value_dim, may_not_rotate });
            }
            let expected = format!("a divisor of head_count {n_heads}");
            Err(Error::key(&keys.name(count_kv), expected, n_kv_heads))
        };
        n_heads.into_iter().zip(n_kv_heads).map(layer).collect()
    }
}

/// A decoder of these heads, one entry for each layer, its feed-forward layers `least_width` wide or more.
pub(super) fn with_heads(
    keys: &Keys<'_>,
    pairs: RopePairs,
    heads: Vec<Heads>,
    least_width: u64,
) -> Result<ModelConfig> {
    const WIDTH: &str = "feed_forward_length";
    const EPS: &str = "attention.layer_norm_rms_epsilon";
    const LAYER_EPS: &str = "attention.layer_norm_epsilon";
    let hidden_size = hidden_size(keys)?;
    let widths = keys.require(WIDTH, keys.per_layer(WIDTH, least_width..=1 << 24)?)?;
    keys.count("vocab_size", 1..=1 << 24)?;
    let context_length = context_length(keys)?;
    let layer =
        |(block, (heads, intermediate_size)): (usize, (Heads, usize))| -> Result<LayerConfig> {
            let Heads { n_heads, n_kv_heads, head_dim, value_dim, may_not_rotate } = heads;
            let rotates = keys.count("rope.dimension_count", 0..=u64::MAX)? != Some(0);
            let rope = || rope::read(keys, pairs, head_dim, context_length);
            Ok(LayerConfig {
                block,
                n_heads,
                n_kv_heads,
                head_dim,
                value_dim,
                rope: (rotates || !may_not_rotate).then(rope).transpose()?,
                rope_factors: true,
                reads_layer: None,
                score: Score::causal((1.0 / (head_dim as f64).sqrt()) as f32),
                latent: None,
                indexer: None,
                recurrent: None,
                act: Act::Silu,
                gate: Gate::Act(Act::Silu),
                gate_deviations: None,
                intermediate_size,
                experts: None,
            })
        };
    let mut layers: Vec<_> =
        heads.into_iter().zip(widths).enumerate().map(layer).collect::<Result<_>>()?;
    let n_guessing = guessing(keys, layers.len())?;
    layers.truncate(layers.len() - n_guessing);
    if keys.flag("attention.causal")? == Some(false) {
        layers.iter_mut().for_each(|layer| layer.score.mask = Mask::Full);
    }
    let name = keys.metadata().get("general.name");
    // which of the two keys a file has tells which norm it means
    let (norm, eps) = match keys.positive(EPS)? {
        None if keys.get(LAYER_EPS).is_some() => (NormKind::Layer, keys.positive(LAYER_EPS)?),
        eps => (NormKind::Rms, eps),
    };
    Ok(ModelConfig {
        architecture: keys.architecture().to_owned(),
        name: name.and_then(|value| value.as_str()).map(|name| escape(name, 200)),
        hidden_size,
        vocab_size: vocab_size(keys, hidden_size)?,
        context_length,
        short_context: rope::short_context(keys)?,
        rotates_short: false,
        norm,
        norm_bias: norm == NormKind::Layer,
        norm_eps: match eps {
            None if keys.architecture() == SILENT_EPS => {
                keys.note(format!("key `{}` is missing: taken as 0", keys.name(EPS)));
                f32::MIN_POSITIVE
            }
            eps => keys.require(EPS, eps)?,
        },
        tied_embeddings: !keys.has("output.weight"),
        parallel: false,
        plain_norms: false,
        plain_rounds: false,
        norm_embedding: false,
        n_token_types: None,
        joint_qkv: false,
        joint_ffn: false,
        normed_heads: false,
        text: text::read(keys)?,
        n_positions: None,
        per_layer_size: 0,
        embedding_scale: None,
        clamp_qkv: keys.positive_or_zero("attention.clamp_kqv")?,
        residual_scale: None,
        attention_scale: None,
        logit_scale: None,
        rescale_every: None,
        logit_softcap: None,
        residual_blocks: None,
        n_guessing,
        hands_hidden: false,
        hyper: None,
        ngrams: None,
        layers,
    })
}

/// How many of the blocks, those at the end, guess tokens after the next one.
fn guessing(keys: &Keys<'_>, n_layers: usize) -> Result<usize> {
    let guessing = keys.count("nextn_predict_layers", 0..=n_layers as u64 - 1)?.unwrap_or(0);
    if guessing > 0 && !guess::is_known(keys.architecture()) {
        keys.note(format!(
            "the last {guessing} of {n_layers} blocks guess tokens after the next one: they are left out"
        ));
    }
    Ok(guessing)
}

fn hidden_size(keys: &Keys<'_>) -> Result<usize> {
    keys.required("embedding_length", 1..=1 << 20)
}

/// Any number is accepted: users choose their context themselves, this one is a default and a warning sign.
fn context_length(keys: &Keys<'_>) -> Result<usize> {
    let found = keys.count("context_length", 0..=u64::MAX)?;
    let taken = match found {
        None | Some(0) => UNKNOWN_CONTEXT,
        Some(n) => n.min(MAX_CONTEXT),
    };
    if found != Some(taken) {
        let found = found.map_or("missing".to_owned(), |n| n.to_string());
        keys.note(format!("key `{}` is {found}: taken as {taken}", keys.name("context_length")));
    }
    Ok(taken)
}

/// Rows of the embedding table, which the vocabulary must not exceed (tables may be padded).
fn vocab_size(keys: &Keys<'_>, hidden_size: usize) -> Result<usize> {
    const NAME: &str = "token_embd.weight";
    let found = keys.dims(NAME).ok_or_else(|| Error::MissingTensor { name: NAME.into() })?;
    let tokens = match keys.metadata().get("tokenizer.ggml.tokens") {
        Some(Value::Array(tokens)) => Some(tokens.len() as u64),
        _ => None,
    };
    let rows = found.get(1).copied().unwrap_or(1);
    if found.first() != Some(&(hidden_size as u64)) || found.len() > 2 {
        let expected = vec![hidden_size as u64, tokens.unwrap_or(rows)];
        return Err(Error::Shape { name: NAME.into(), expected, found });
    }
    if let Some(tokens) = tokens.filter(|&tokens| tokens > rows) {
        return Err(Error::Vocabulary { tokens, rows });
    }
    usize::try_from(rows).map_err(|_| Error::Shape {
        name: NAME.into(),
        expected: vec![hidden_size as u64, 1 << 24],
        found,
    })
}
