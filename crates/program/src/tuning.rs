//! What can be chosen of an executor's kernels by measuring, once for a device.

use quant::GgmlType;

use crate::{Reading, Result};

/// What two numbers are rounded to before they are multiplied. Sums are of f32, or of integers without rounding.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ProductType {
    /// As they are.
    #[default]
    F32,
    /// f16: of some activations the largest becomes 1. Codes of weights in blocks are exact, and a few products are added in f16;
    /// in matrices of subgroups weights are f16 with their scales.
    F16,
    /// Integers of 8 bits: codes of weights in blocks are exact, of some activations the largest becomes 127.
    Int8,
}

impl ProductType {
    /// All, the most exact first.
    pub const ALL: [ProductType; 3] = [ProductType::F32, ProductType::F16, ProductType::Int8];

    /// As people write it.
    pub fn name(self) -> &'static str {
        match self {
            ProductType::F32 => "f32",
            ProductType::F16 => "f16",
            ProductType::Int8 => "int8",
        }
    }

    /// By such a name.
    pub fn from_name(name: &str) -> Option<ProductType> {
        ProductType::ALL.into_iter().find(|product| product.name() == name)
    }
}

/// How a kernel multiplies by a matrix of one type, for so many rows of activations at once.
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
    /// What is multiplied.
    pub product: ProductType,
    /// Whether lanes put their sums together without memory, as far as a device's own groups of them go; for tiles of many rows,
    /// whether such a group has matrices together.
    pub subgroups: bool,
}

/// How kernels multiply, where that can be chosen. What models compute depends on [`KernelShape::product`], within what these
/// round, and in the order of sums on matrices of subgroups; no bit depends on the rest.
pub trait KernelTuning {
    /// What is fastest for matrices of these types, measured now; types without a choice are left out. `progress` is told
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
