//! Embedding tables.

use kernels::linear::PANEL_ROWS;
use program::{Result, WeightId, WeightSpec};

use super::{PackedJob, Packing, unusable};
use crate::memory::Buffer;

/// Where the rows of an embedding table come from.
pub(crate) enum Table {
    /// The table is also a matrix: rows are read back from its panels.
    Packed(PackedJob),
    /// A copy of the file's bytes.
    Raw(RawTable),
}

/// A table as the file has it.
pub(crate) struct RawTable {
    weight: WeightId,
    spec: WeightSpec,
    /// Empty until the weights are loaded.
    bytes: Buffer,
}

impl Table {
    /// The table `weight`, as the file has it.
    ///
    /// # Errors
    /// [`program::Error::Weight`] if its type has no numbers.
    pub(crate) fn place(weight: WeightId, spec: &WeightSpec) -> Result<Table> {
        quant::format(spec.ty).ok_or_else(|| unusable(spec))?;
        Ok(Table::Raw(RawTable { weight, spec: spec.clone(), bytes: Buffer::empty() }))
    }

    /// Read it.
    ///
    /// # Errors
    /// [`program::Error::Weight`] if it is missing; memory.
    pub(crate) fn load(&mut self, packing: &mut Packing<'_>) -> Result<()> {
        if let Table::Raw(table) = self {
            table.bytes = packing.copy(&table.spec)?;
        }
        Ok(())
    }

    /// Memory it takes besides the arena, once loaded.
    pub(crate) fn bytes(&self) -> u64 {
        match self {
            Table::Packed(_) => 0,
            Table::Raw(table) => table.spec.bytes(),
        }
    }

    /// The weight it is made of.
    pub(crate) fn weight(&self) -> WeightId {
        match self {
            Table::Packed(job) => job.matrices[0].weight,
            Table::Raw(table) => table.weight,
        }
    }

    /// Row `row`; `arena` holds the panels.
    pub(crate) fn embed(&self, arena: &[u8], row: usize, out: &mut [f32]) {
        match self {
            Table::Raw(RawTable { spec, bytes, .. }) => {
                let len =
                    spec.ty.row_bytes(spec.cols).expect("the recorder accepted whole blocks only");
                let format = quant::format(spec.ty).expect("`place` checked the type");
                format.dequantize(&bytes.bytes()[row * len..(row + 1) * len], out);
            }
            Table::Packed(packed) => {
                let (panel, lane) = (row / PANEL_ROWS, row % PANEL_ROWS);
                let panel = &arena[packed.bytes(panel..panel + 1, 0)];
                packed.matrices[0].kernel.unpack_row(panel, lane, out);
            }
        }
    }
}
