//! Embedding tables.

use std::sync::Arc;

use kernels::linear::PANEL_ROWS;
use program::{Result, WeightId, WeightSpec};

use super::{Lender, PackedJob, Packing, WeightMemory, unusable};
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
    bytes: Arc<Buffer>,
    /// Whether another model has it as well.
    lent: bool,
}

impl RawTable {
    /// Its bytes, if it is what `spec` says.
    pub(super) fn copy_of(&self, spec: &WeightSpec) -> Option<Arc<Buffer>> {
        (self.spec == *spec).then(|| Arc::clone(&self.bytes))
    }
}

impl Table {
    /// The table `weight`, as the file has it; that of the lender, where it has one.
    ///
    /// # Errors
    /// [`program::Error::Weight`] if its type has no numbers.
    pub(crate) fn place(
        weight: WeightId,
        spec: &WeightSpec,
        lender: Option<Lender<'_>>,
    ) -> Result<Table> {
        quant::format(spec.ty).ok_or_else(|| unusable(spec))?;
        let lent = lender.and_then(|lender| lender.table(spec));
        let (is_lent, bytes) = (lent.is_some(), lent.unwrap_or_else(|| Buffer::empty().into()));
        Ok(Table::Raw(RawTable { weight, spec: spec.clone(), bytes, lent: is_lent }))
    }

    /// Read it.
    ///
    /// # Errors
    /// [`program::Error::Weight`] if it is missing; memory.
    pub(crate) fn load(&mut self, packing: &mut Packing<'_>) -> Result<()> {
        if let Table::Raw(table) = self
            && !table.lent
        {
            table.bytes = packing.copy(&table.spec)?.into();
        }
        Ok(())
    }

    /// Memory it takes besides the arena and what is lent, once loaded.
    pub(crate) fn bytes(&self) -> u64 {
        match self {
            Table::Packed(_) => 0,
            Table::Raw(table) if table.lent => 0,
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

    /// Row `row`; `weights` hold the panels.
    pub(crate) fn embed(&self, weights: &WeightMemory, row: usize, out: &mut [f32]) {
        match self {
            Table::Raw(RawTable { spec, bytes, .. }) => {
                let len =
                    spec.ty.row_bytes(spec.cols).expect("the recorder accepted whole blocks only");
                let format = quant::format(spec.ty).expect("`place` checked the type");
                format.dequantize(&bytes.bytes()[row * len..(row + 1) * len], out);
            }
            Table::Packed(packed) => {
                let (panel, lane) = (row / PANEL_ROWS, row % PANEL_ROWS);
                let panel = weights.panels(packed, 0, panel..panel + 1, 0);
                packed.matrices[0].kernel.unpack_row(panel, lane, out);
            }
        }
    }
}
