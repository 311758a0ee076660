//! Phases of what recurs.

use kernels::rows::Unary;
use kernels::scan::STRIP;
use program::{CacheId, Scan, ScanDims, ScanKind, WeightId};

use super::Operand;

// states are as large as plans count
const _: () = assert!(STRIP == ScanDims::STRIP);

/// Neighbouring columns of an operand.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Columns {
    pub(crate) operand: Operand,
    pub(crate) start: usize,
    pub(crate) n: usize,
}

/// Sums over each row and those before it, channel by channel.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ConvPhase {
    pub(crate) cache: CacheId,
    pub(crate) x: Columns,
    /// `[channels, width]`; `None`: the row before.
    pub(crate) taps: Option<WeightId>,
    pub(crate) bias: Option<WeightId>,
    pub(crate) width: usize,
    /// From a row that is summed to the next.
    pub(crate) step: usize,
    pub(crate) act: Option<Unary>,
    pub(crate) out: Operand,
}

/// A recurrence of all heads.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ScanPhase {
    pub(crate) scan: Scan,
    /// The first one reads, the others are what a row gives.
    pub(crate) inputs: Vec<Columns>,
    pub(crate) out: Operand,
}

impl ConvPhase {
    /// Rows before its own that a sum reaches.
    pub(crate) fn reach(&self) -> usize {
        self.step * (self.width - 1)
    }

    /// Floats of what is kept at a position.
    pub(crate) fn state_floats(&self) -> usize {
        self.reach() * self.x.n
    }
}

impl ScanPhase {
    /// Floats of a head's matrix: whole strips of columns.
    pub(crate) fn head_floats(&self) -> usize {
        self.scan.dims.key_dim * self.width()
    }

    /// Columns of a head's matrix, those that fill its last strip included.
    pub(crate) fn width(&self) -> usize {
        self.scan.dims.kept_columns()
    }

    /// Floats of all matrices.
    pub(crate) fn state_floats(&self) -> usize {
        self.scan.dims.kept_elements()
    }

    /// Floats that a row gives.
    pub(crate) fn row_floats(&self) -> usize {
        self.inputs[1..].iter().map(|input| input.n).sum()
    }

    /// Where a row's part of input `i`, not the first, lies in what it gives.
    pub(crate) fn offset(&self, i: usize) -> usize {
        self.inputs[1..i].iter().map(|input| input.n).sum()
    }

    /// Whether columns of the only head go on their own.
    pub(crate) fn is_selective(&self) -> bool {
        matches!(self.scan.kind, ScanKind::Selective { .. })
    }
}
