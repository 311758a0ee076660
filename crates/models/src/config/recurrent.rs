//! [`Recurrent`]: the hyper-parameters of layers whose memory is a state of fixed size.

use program::Act;

use super::ModelConfig;
use crate::keys::Keys;
use crate::{Error, Result};

/// A recurrence of some heads, each with a matrix as its memory, and the convolution before it.
#[derive(Clone, Debug, PartialEq)]
pub struct Recurrent {
    /// Rows that the convolution sums over, its own included.
    pub conv_width: usize,
    /// Heads.
    pub n_heads: usize,
    /// Heads of keys and queries, which several heads may share.
    pub n_key_heads: usize,
    /// Rows of a head's matrix.
    pub state_size: usize,
    /// Columns of all heads' matrices.
    pub inner_size: usize,
    /// Bound on the logarithm of what is kept from one row to the next, where there is one.
    pub least_decay: Option<f32>,
    /// Where there is such a bound, the file's rates are below 0.
    pub rates_below: bool,
    /// Added under the root of the lengths of keys and queries; `None`: as in norms.
    pub key_eps: Option<f32>,
    /// Activation of the gate on what heads yield.
    pub gate: Act,
    /// What layers before and after narrow ones are as wide as: of decays, of rates, of values, of gates.
    pub ranks: [usize; 4],
    /// Norms without vectors on times, keys and queries.
    pub plain_norms: bool,
}

/// Most of anything here.
const MOST: u64 = 1 << 20;
/// Widest convolution.
const WIDEST: u64 = 64;

impl Recurrent {
    /// Columns of one head's matrix.
    pub fn head_dim(&self) -> usize {
        self.inner_size / self.n_heads.max(1)
    }

    /// As `ssm.*` keys say; `groups`: where the file counts heads of keys.
    ///
    /// # Errors
    /// A key that is missing or out of range.
    pub(crate) fn read(keys: &Keys<'_>) -> Result<Recurrent> {
        let required = |key: &str| keys.required(key, 1..=MOST);
        let (n_heads, inner_size) = (required("ssm.time_step_rank")?, required("ssm.inner_size")?);
        let n_key_heads = keys.count("ssm.group_count", 0..=MOST)?.unwrap_or(1).max(1);
        if !n_heads.is_multiple_of(n_key_heads) {
            let expected = format!("a divisor of ssm.time_step_rank {n_heads}");
            return Err(Error::key(&keys.name("ssm.group_count"), expected, n_key_heads));
        }
        if !inner_size.is_multiple_of(n_heads) {
            let expected = format!("a multiple of ssm.time_step_rank {n_heads}");
            return Err(Error::key(&keys.name("ssm.inner_size"), expected, inner_size));
        }
        Ok(Recurrent {
            conv_width: keys.required("ssm.conv_kernel", 2..=WIDEST)?,
            n_heads,
            n_key_heads,
            state_size: required("ssm.state_size")?,
            inner_size,
            least_decay: None,
            rates_below: false,
            key_eps: None,
            gate: Act::Silu,
            ranks: [0; 4],
            plain_norms: keys.flag("ssm.dt_b_c_rms")?.unwrap_or(false),
        })
    }

    /// Of one head, all of whose columns go on their own; times come through a layer of this width.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub(crate) fn selective(keys: &Keys<'_>) -> Result<Recurrent> {
        let rank = keys.required("ssm.time_step_rank", 1..=MOST)?;
        Ok(Recurrent {
            conv_width: keys.required("ssm.conv_kernel", 2..=WIDEST)?,
            n_heads: 1,
            n_key_heads: 1,
            state_size: keys.required("ssm.state_size", 1..=MOST)?,
            inner_size: keys.required("ssm.inner_size", 1..=MOST)?,
            least_decay: None,
            rates_below: false,
            key_eps: None,
            gate: Act::Silu,
            ranks: [rank, 0, 0, 0],
            plain_norms: keys.flag("ssm.dt_b_c_rms")?.unwrap_or(false),
        })
    }

    /// A convolution alone, of the width that `key` says.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub(crate) fn convolution(keys: &Keys<'_>, key: &str) -> Result<Recurrent> {
        Ok(Recurrent { conv_width: keys.required(key, 2..=WIDEST)?, ..Recurrent::of_heads(1, 1) })
    }

    /// Heads of as many rows as columns, without a convolution.
    pub(crate) fn of_heads(n_heads: usize, head_dim: usize) -> Recurrent {
        Recurrent {
            conv_width: 2,
            n_heads,
            n_key_heads: n_heads,
            state_size: head_dim,
            inner_size: n_heads * head_dim,
            least_decay: None,
            rates_below: false,
            key_eps: None,
            gate: Act::Silu,
            ranks: [0; 4],
            plain_norms: false,
        }
    }
}

/// Make all layers recur.
pub(crate) fn everywhere(c: &mut ModelConfig, recurrent: &Recurrent) {
    c.layers.iter_mut().for_each(|layer| layer.recurrent = Some(recurrent.clone()));
}

/// Make those layers recur that have no key-value heads.
pub(crate) fn where_bare(c: &mut ModelConfig, recurrent: &Recurrent) {
    for layer in c.layers.iter_mut().filter(|layer| layer.n_kv_heads == 0) {
        layer.recurrent = Some(recurrent.clone());
    }
}

/// Make those layers recur that `attention.recurrent_layers` names, or else all but every so many.
///
/// # Errors
/// An array of another length, or of anything else; a count out of range.
pub(crate) fn where_named(
    keys: &Keys<'_>,
    c: &mut ModelConfig,
    recurrent: &Recurrent,
) -> Result<()> {
    const LAYERS: &str = "attention.recurrent_layers";
    let every = keys.count("full_attention_interval", 1..=MOST)?.unwrap_or(4);
    let named = keys.flags(LAYERS, c.layers.len())?;
    for (i, layer) in c.layers.iter_mut().enumerate() {
        let recurs = named.as_ref().map_or(!(i + 1).is_multiple_of(every), |named| named[i]);
        layer.recurrent = recurs.then(|| recurrent.clone());
    }
    Ok(())
}
