//! Works of what recurs.

use program::{ScanDims, ScanRule};

use super::{Place, ValueBuffer, VectorId};
use crate::kernels::Finish;

/// Sums over each row and those before it: see [`program::CausalConv`].
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ConvWork {
    pub(crate) cache: usize,
    pub(crate) channels: usize,
    /// `[channels, width]`; `None`: the row before.
    pub(crate) taps: Option<VectorId>,
    pub(crate) bias: Option<VectorId>,
    pub(crate) width: usize,
    /// From a row that is summed to the next.
    pub(crate) step: usize,
    pub(crate) finish: Finish,
    pub(crate) x: Place,
    pub(crate) out: Place,
}

/// A recurrence of all heads: see [`program::Scan`].
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ScanWork {
    pub(crate) cache: usize,
    pub(crate) rule: ScanRule,
    pub(crate) dims: ScanDims,
    /// Whether each row of a matrix has a decay of its own.
    pub(crate) by_row: bool,
    /// What is added under roots, or the factor on what is read.
    pub(crate) number: f32,
    /// The rule's own numbers.
    pub(crate) vectors: [Option<VectorId>; 2],
    /// The first one reads, the others are what a row gives; with their numbers in a row.
    pub(crate) inputs: Vec<(Place, usize)>,
    pub(crate) out: Place,
}

impl ScanWork {
    /// The buffers that its inputs lie in, each once.
    pub(crate) fn buffers(&self) -> Vec<ValueBuffer> {
        let mut buffers = Vec::new();
        for (place, _) in &self.inputs {
            if !buffers.contains(&place.buffer) {
                buffers.push(place.buffer);
            }
        }
        buffers
    }
}
