//! [`NgramConfig`]: the hyper-parameters of rows that hashes of the last few tokens choose.

use gguf::Value;
use program::{GramHead, Grams};

use super::ModelConfig;
use crate::keys::Keys;
use crate::{Error, Result};

/// Rows of a table, chosen by hashes of the last few tokens, that one block adds to the residual streams.
#[derive(Clone, Debug, PartialEq)]
pub struct NgramConfig {
    /// Which block.
    pub layer: usize,
    /// How tokens come to rows.
    pub grams: Grams,
    /// Rows of the table.
    pub n_rows: usize,
    /// Width of a row.
    pub width: usize,
    /// Rows that the convolution sums over, as far apart as there are tokens in a hash.
    pub conv_width: usize,
}

const TABLE: &str = "per_layer_token_embd.weight";

impl NgramConfig {
    /// By the keys of Qwen3.8; `None` where the file names no layer.
    ///
    /// # Errors
    /// A key that is missing or out of range, several layers, rows that the table has not, no table.
    pub(crate) fn read(keys: &Keys<'_>, c: &ModelConfig) -> Result<Option<NgramConfig>> {
        const LAYERS: &str = "ple.layers";
        if keys.get(LAYERS).is_none() {
            return Ok(None);
        }
        let last = c.layers.len() as u64 - 1;
        let layer = match numbers(keys, LAYERS, 1)?[..] {
            [layer] if layer <= last => layer as usize,
            ref others => {
                let expected = format!("one layer, 0..={last}");
                return Err(Error::key(&keys.name(LAYERS), expected, format!("{others:?}")));
            }
        };
        let n = keys.required("ple.ngram_size", 2..=8)?;
        let n_heads = (n - 1) * keys.required("ple.heads_per_ngram", 1..=64)?;
        let dims = keys.dims(TABLE).ok_or_else(|| Error::MissingTensor { name: TABLE.into() })?;
        let n_rows = dims.get(1).and_then(|rows| usize::try_from(*rows).ok()).unwrap_or(1);
        let mut multipliers = numbers(keys, "ple.layer_multipliers", n)?;
        multipliers.truncate(n);
        const SIZES: &str = "ple.head_vocab_sizes";
        let starts = numbers(keys, "ple.head_offsets", n_heads)?;
        let sizes = numbers(keys, SIZES, n_heads)?;
        let head = |(start, size): (u64, u64)| {
            let end = start.checked_add(size).filter(|end| size > 0 && *end <= n_rows as u64);
            end.map(|_| GramHead { start: start as usize, n_rows: size as usize })
        };
        let heads = starts.into_iter().zip(sizes).take(n_heads).map(head).collect::<Option<_>>();
        let heads = heads.ok_or_else(|| {
            let expected = format!("1 or more of the {n_rows} rows of {TABLE} for each head");
            Error::key(&keys.name(SIZES), expected, "others")
        })?;
        let end = keys.required("ple.eos_token_id", 0..=u64::from(u32::MAX))? as u32;
        Ok(Some(NgramConfig {
            layer,
            grams: Grams { multipliers, heads, end },
            n_rows,
            width: keys.required("embedding_length_per_layer_input", 1..=1 << 20)?,
            conv_width: keys.required("ple.conv_kernel", 2..=64)?,
        }))
    }
}

/// So many numbers or more.
fn numbers(keys: &Keys<'_>, key: &str, least: usize) -> Result<Vec<u64>> {
    let expected = || format!("{least} or more whole numbers");
    let found = keys.require(key, keys.get(key))?;
    let Value::Array(array) = found else {
        return Err(Error::key(&keys.name(key), expected(), found));
    };
    let numbers: Option<Vec<u64>> = array.iter().map(|value| value.as_u64()).collect();
    numbers.filter(|numbers| numbers.len() >= least).ok_or_else(|| {
        Error::key(&keys.name(key), expected(), format!("an array of {}", array.len()))
    })
}
