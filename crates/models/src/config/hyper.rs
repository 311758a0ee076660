//! [`HyperConnections`]: the hyper-parameters of several residual streams side by side (arXiv:2409.19606).

use crate::Result;
use crate::keys::Keys;

/// Halves of blocks read a mix of all streams, and add what they make to each of them.
#[derive(Clone, Debug, PartialEq)]
pub struct HyperConnections {
    /// Streams.
    pub n_streams: usize,
    /// Added to the shares by which halves read, and to those of the streams among each other.
    pub eps: f32,
    /// The most of what a half makes that goes to a stream.
    pub magnitude: f32,
    /// The same is added to these shares.
    pub adds_eps: bool,
    /// Rounds in which the shares of streams in each other are balanced; `None`: they stay apart.
    pub rounds: Option<u32>,
    /// Width of the layer that gates of all elements come through, where halves read by such.
    pub rank: Option<usize>,
}

impl HyperConnections {
    /// Of streams that stay apart.
    ///
    /// # Errors
    /// A key that is missing or out of range.
    pub(crate) fn read(keys: &Keys<'_>) -> Result<HyperConnections> {
        const EPS: &str = "hyper_connection.epsilon";
        const MAGNITUDE: &str = "hyper_connection.magnitude";
        Ok(HyperConnections {
            n_streams: keys.required("hyper_connection.count", 2..=16)?,
            eps: keys.require(EPS, keys.positive(EPS)?)?,
            magnitude: keys.positive(MAGNITUDE)?.unwrap_or(2.0),
            adds_eps: false,
            rounds: None,
            rank: None,
        })
    }

    /// Of streams whose elements have gates.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub(crate) fn gated(keys: &Keys<'_>) -> Result<HyperConnections> {
        Ok(HyperConnections {
            n_streams: keys.required("hyper_connection.count", 2..=16)?,
            eps: 0.0,
            magnitude: 2.0,
            adds_eps: false,
            rounds: None,
            rank: Some(keys.required("hyper_connection.low_rank", 1..=1 << 16)?),
        })
    }

    /// Of streams that mix.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub(crate) fn balanced(keys: &Keys<'_>) -> Result<HyperConnections> {
        let rounds = keys.required("hyper_connection.sinkhorn_iterations", 1..=1000)?;
        Ok(HyperConnections { rounds: Some(rounds as u32), ..HyperConnections::read(keys)? })
    }
}
