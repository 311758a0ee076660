//! Which layers see a window only.

use gguf::Value;
use program::{Mask, RopeScaling, Score};

use super::{LayerConfig, ModelConfig, read};
use crate::keys::{Keys, MAX_LAYERS};
use crate::{Error, Result};

/// The window of each layer, `None` for one that sees all: `attention.sliding_window`, on the layers that
/// `attention.sliding_window_pattern` names. Where that is silent, every `period`-th layer sees all.
///
/// # Errors
/// A key out of range, or a list that is not one entry for each layer.
pub(crate) fn read(keys: &Keys<'_>, period: usize) -> Result<Vec<Option<u32>>> {
    const WINDOW: &str = "attention.sliding_window";
    const PATTERN: &str = "attention.sliding_window_pattern";
    let n_layers = keys.n_layers()?;
    let window = keys.count(WINDOW, 0..=1 << 24)?.filter(|window| *window > 0);
    let window = window.map(|window| u32::try_from(window).expect("within the range above"));
    let every =
        |period: usize| (0..n_layers).map(|i| period == 0 || i % period < period - 1).collect();
    let slides: Vec<bool> = match keys.get(PATTERN) {
        None => every(period),
        Some(Value::Array(array)) => {
            // some converters write 0 and 1
            let flag = |value: &Value<'_>| match value {
                Value::Bool(flag) => Some(*flag),
                number => number.as_u64().filter(|n| *n <= 1).map(|n| n == 1),
            };
            let flags = array.iter().map(|value| flag(&value) == Some(true));
            let sound = array.len() == n_layers && array.iter().all(|v| flag(&v).is_some());
            if !sound {
                let expected = format!("a number or true or false for each of {n_layers} layers");
                let found = format_args!("{} entries", array.len());
                return Err(Error::key(&keys.name(PATTERN), expected, found));
            }
            flags.collect()
        }
        Some(_) => every(keys.required(PATTERN, 0..=MAX_LAYERS)?),
    };
    Ok(slides.into_iter().map(|slides| window.filter(|_| slides)).collect())
}

/// Give layers with a window their mask, and the base of the rotation that is theirs: `rope.freq_base_swa`, else `theta`,
/// else that of all. Returns which layers have one.
///
/// # Errors
/// As [`mask`].
pub(crate) fn apply(
    keys: &Keys<'_>,
    c: &mut ModelConfig,
    period: usize,
    theta: Option<f32>,
) -> Result<Vec<bool>> {
    let theta = keys.positive("rope.freq_base_swa")?.or(theta);
    let windows = mask(keys, c, period)?;
    for layer in of(c, &windows, true) {
        if let Some(rope) = &mut layer.rope {
            rope.theta = theta.unwrap_or(rope.theta);
        }
    }
    Ok(windows)
}

/// Give layers with a window their mask alone. Returns which layers have one.
///
/// # Errors
/// As [`read`] and [`set`].
pub(crate) fn mask(keys: &Keys<'_>, c: &mut ModelConfig, period: usize) -> Result<Vec<bool>> {
    let windows = read(keys, period)?;
    for (layer, window) in c.layers.iter_mut().zip(&windows) {
        if let Some(window) = window {
            set(keys, &mut layer.score, Mask::Window(*window))?;
        }
    }
    Ok(windows.iter().map(Option::is_some).collect())
}

/// Let a layer see part of what comes before alone.
///
/// # Errors
/// [`Error::Key`] if the file's queries see later positions as well: no file says which of these are in a window.
pub(crate) fn set(keys: &Keys<'_>, score: &mut Score, mask: Mask) -> Result<()> {
    if score.mask == Mask::Full {
        let key = keys.name("attention.causal");
        return Err(Error::key(&key, "true in a model with windows", false));
    }
    score.mask = mask;
    Ok(())
}

/// Give layers with a window heads of another size: `attention.key_length_swa`, `attention.value_length_swa` and
/// `rope.dimension_count_swa`, where the file has them.
///
/// # Errors
/// A key out of range.
pub(crate) fn heads(keys: &Keys<'_>, c: &mut ModelConfig, windows: &[bool]) -> Result<()> {
    const DIMS: &str = "rope.dimension_count_swa";
    let [key, value] = ["attention.key_length_swa", "attention.value_length_swa"]
        .map(|key| keys.count(key, 1..=read::MAX_HEADS));
    let (key, value, dims) = (key?, value?, keys.count(DIMS, 2..=read::MAX_HEADS)?);
    for layer in of(c, windows, true) {
        layer.head_dim = key.unwrap_or(layer.head_dim);
        layer.value_dim = value.unwrap_or(layer.value_dim);
        let Some(rope) = &mut layer.rope else { continue };
        rope.dims = dims.unwrap_or(rope.dims.min(layer.head_dim));
        if rope.dims > layer.head_dim || !rope.dims.is_multiple_of(2) {
            let expected = format!("an even number <= head size {}", layer.head_dim);
            return Err(Error::key(&keys.name(DIMS), expected, rope.dims));
        }
    }
    Ok(())
}

/// Let the last `attention.shared_kv_layers`, or as many as `silent` says, read what the last layer of their kind before
/// them, with a window or without, has cached.
///
/// # Errors
/// A key out of range, or so many that no layer of a kind keeps a cache.
pub(crate) fn share(keys: &Keys<'_>, c: &mut ModelConfig, silent: usize) -> Result<()> {
    const SHARED: &str = "attention.shared_kv_layers";
    let n_layers = c.layers.len();
    let n_own = n_layers - keys.whole(SHARED, 0..=n_layers as u64 - 1)?.unwrap_or(silent);
    for i in n_own..n_layers {
        let like = |j: &usize| c.layers[*j].score.mask == c.layers[i].score.mask;
        let Some(source) = (0..n_own).rfind(like) else {
            let expected = "layers of each kind before those that share";
            return Err(Error::key(&keys.name(SHARED), expected, n_layers - n_own));
        };
        c.layers[i].reads_layer = Some(source);
    }
    Ok(())
}

/// Leave the rotation as trained on layers with a window: contexts longer than that reach the others alone.
pub(crate) fn scale_others(c: &mut ModelConfig, windows: &[bool]) {
    for layer in of(c, windows, true) {
        if let Some(rope) = &mut layer.rope {
            rope.scaling = RopeScaling::None;
        }
    }
}

/// Rotate on layers with a window alone.
///
/// # Errors
/// [`Error::MissingKey`] if no layer has one: nothing would tell positions apart.
pub(crate) fn rotate_within(keys: &Keys<'_>, c: &mut ModelConfig, windows: &[bool]) -> Result<()> {
    if !windows.contains(&true) {
        return Err(Error::MissingKey { key: keys.name("attention.sliding_window") });
    }
    of(c, windows, false).for_each(|layer| layer.rope = None);
    Ok(())
}

/// Layers with a window, or without one.
pub(crate) fn of<'a>(
    c: &'a mut ModelConfig,
    windows: &'a [bool],
    window: bool,
) -> impl Iterator<Item = &'a mut LayerConfig> {
    c.layers.iter_mut().zip(windows).filter(move |(_, of)| **of == window).map(|(layer, _)| layer)
}
