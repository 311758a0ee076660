//! What can be chosen of an executor's kernels by measuring, once for a device.

use quant::GgmlType;

use crate::{Reading, Result};

/// The shape of a workgroup that multiplies by a matrix of one type, for so many rows of activations at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelShape {
    /// The type.
    pub ty: GgmlType,
    /// Rows of activations at once.
    pub at_once: usize,
    /// Rows of the matrix that a team of lanes has.
    pub rows: usize,
    /// Teams of the workgroup.
    pub teams: usize,
}

/// Shapes of kernels that can be chosen. No bit of what models compute depends on them.
pub trait KernelTuning {
    /// The fastest shapes for matrices of these types, measured now; types without a choice are left out. `progress` is told
    /// what part is done, from 0 to 1.
    ///
    /// # Errors
    /// [`crate::Error::Memory`], [`crate::Error::Device`].
    fn tune(&self, types: &[GgmlType], progress: &mut dyn FnMut(f64)) -> Result<Vec<KernelShape>>;

    /// Have models that are loaded from now on use these.
    fn set_shapes(&self, shapes: &[KernelShape]);
}

impl Reading {
    /// Whether rows are multiplied by all of it, or by some of its copies.
    pub fn is_matrix(self) -> bool {
        matches!(self, Reading::Matrix | Reading::Copies { .. })
    }
}
