//! Where the panels of a job's matrices stand.

use std::ops::Range;

use kernels::linear::{ActFormat, PANEL_ROWS};
use program::{Program, Result, WeightId};

use super::unusable;
use crate::geometry::{LOCAL_ROWS, UNIT_PANELS};
use crate::tune::{TunedKernel, Tuning};

/// One matrix inside a job's stream.
#[derive(Clone, Copy)]
pub(crate) struct PackedMatrix {
    /// What it is packed from.
    pub(crate) weight: WeightId,
    pub(crate) kernel: TunedKernel,
    /// Rows of one copy.
    pub(crate) rows: usize,
    /// Its first row in the weight.
    pub(crate) first: usize,
    /// From a copy's first row to that of the next.
    pub(crate) apart: usize,
    pub(crate) cols: usize,
    pub(crate) panel_bytes: usize,
}

/// Matrices of one shape that stand one after another in a weight.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Copies {
    /// Experts, or one.
    pub(crate) n: usize,
    /// How many of them one row reads.
    pub(crate) n_used: usize,
    /// A weight that is named twice holds, copy by copy, the rows of each that names it.
    pub(crate) joint: bool,
}

impl Copies {
    /// No experts: the weight is the matrix.
    pub(crate) const ONE: Copies = Copies { n: 1, n_used: 1, joint: false };
}

/// A job's weights: units of [`UNIT_PANELS`] panels; in a gated job, a unit of the gate, then one of the up matrix.
/// Experts are copies of a job: each has its own units.
#[derive(Clone)]
pub(crate) struct PackedJob {
    pub(crate) matrices: Vec<PackedMatrix>,
    start: usize,
    n_panels: usize,
    /// Matrices of the same shape that stand one after another in each weight: experts, or just one.
    pub(super) n_copies: usize,
    /// Copies that one row reads.
    n_used: usize,
    /// Whether it stands in the arena of the model that lends it.
    lent: bool,
}

impl PackedJob {
    /// Choose kernels for matrices that are read side by side, and their place: from `end` of the arena on, which moves
    /// behind them. Each weight has `n_copies` matrices, of which a row reads `n_used`.
    ///
    /// # Errors
    /// [`program::Error::Weight`] if no kernel takes the type of one.
    pub(crate) fn place(
        program: &Program,
        weights: &[WeightId],
        copies: Copies,
        tuning: &Tuning,
        end: &mut usize,
    ) -> Result<PackedJob> {
        let times = |weight| match copies.joint {
            true => weights.iter().filter(|other| **other == weight).count(),
            false => 1,
        };
        let matrices = weights.iter().enumerate().map(|(m, &weight)| {
            let spec = program.weight(weight);
            let kernel = tuning.linear(spec.ty).ok_or_else(|| unusable(spec))?;
            let panel_bytes = kernel.panel_bytes(spec.cols);
            let few = kernel.tiling(LOCAL_ROWS, spec.cols);
            assert!(
                few.is_none(),
                "{} arranges rows that workers keep to themselves",
                kernel.name()
            );
            let apart = spec.rows / copies.n;
            let rows = apart / times(weight);
            let before = weights[..m].iter().filter(|other| **other == weight).count();
            let first = if copies.joint { before * rows } else { 0 };
            let cols = spec.cols;
            Ok(PackedMatrix { weight, kernel, rows, first, apart, cols, panel_bytes })
        });
        let matrices = matrices.collect::<Result<Vec<_>>>()?;
        let n_panels = matrices[0].rows.div_ceil(PANEL_ROWS);
        let Copies { n: n_copies, n_used, .. } = copies;
        let job = PackedJob { matrices, start: *end, n_panels, n_copies, n_used, lent: false };
        // streams start on cache lines; panels need no more
        *end = (*end + job.len()).next_multiple_of(64);
        Ok(job)
    }

    /// The weight that it is, if it is one and nothing else.
    pub(crate) fn only(&self) -> Option<WeightId> {
        match self.matrices.as_slice() {
            [only] if self.n_copies == 1 => Some(only.weight),
            _ => None,
        }
    }

    /// Whether it stands in the arena of the model that lends it.
    pub(crate) fn is_lent(&self) -> bool {
        self.lent
    }

    /// The same panels for the program of another model, where they are those of `weight`.
    pub(super) fn lend(&self, weight: WeightId) -> PackedJob {
        let matrices = self.matrices.iter().map(|matrix| PackedMatrix { weight, ..*matrix });
        PackedJob { matrices: matrices.collect(), lent: true, ..self.clone() }
    }

    /// Panels of each matrix.
    pub(crate) fn n_panels(&self) -> usize {
        self.n_panels
    }

    /// Bytes of panels `panels` of matrix `m` of a copy within the arena. The panels belong to one unit.
    pub(super) fn bytes_of(&self, copy: usize, panels: Range<usize>, m: usize) -> Range<usize> {
        let unit = panels.start / UNIT_PANELS * UNIT_PANELS;
        debug_assert!(panels.end <= unit + UNIT_PANELS, "panels of one unit");
        let in_unit = (self.n_panels - unit).min(UNIT_PANELS);
        let before: usize = self.matrices.iter().map(|x| x.panel_bytes * unit).sum();
        let beside: usize = self.matrices[..m].iter().map(|x| x.panel_bytes * in_unit).sum();
        let size = self.matrices[m].panel_bytes;
        let start = self.start + copy * self.copy_len();
        let start = start + before + beside + (panels.start - unit) * size;
        start..start + size * panels.len()
    }

    /// Bytes a step of one row reads.
    pub(crate) fn bytes_per_step(&self) -> u64 {
        (self.n_used * self.copy_len()) as u64
    }

    fn len(&self) -> usize {
        self.n_copies * self.copy_len()
    }

    fn copy_len(&self) -> usize {
        self.matrices.iter().map(|x| x.panel_bytes * self.n_panels).sum()
    }

    /// Which activations its kernels read.
    pub(crate) fn reads(&self, format: ActFormat) -> bool {
        self.matrices.iter().any(|m| m.kernel.act_format() == format)
    }
}
