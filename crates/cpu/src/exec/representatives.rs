//! Which keys of a block stand for it: those that later queries multiply to most.
//!
//! Sums of queries are kept by position, each from the start of its block of positions on, so that what follows from the
//! first positions is there however a session came to its length.

use kernels::attention::BLOCK;
use program::BlockAnchor;

use super::Exec;
use super::attention::Cut;
use super::context::HeadOf;
use crate::cache::MemoryTables;

impl Exec<'_> {
    /// The sum of the queries of a key-value head from the start of the block of a position, its own still to be added;
    /// empty where nobody asks for it.
    #[expect(clippy::mut_from_ref, reason = "a head of a block belongs to one item of a section")]
    pub(super) fn heard_row(&self, cut: &Cut<'_>, of: &HeadOf, position: usize) -> &mut [f32] {
        let Some((memory, table)) = cut.shape.memory.and_then(|m| Some((m, m.heard?))) else {
            return &mut [];
        };
        if cut.phase.new.is_none() || memory.settings.anchor != BlockAnchor::Products {
            return &mut [];
        }
        let dim = cut.shape.head.key_dim;
        let block = self.blocks.get(table, of.sequence, position / BLOCK).floats();
        let at = (of.head * BLOCK + position % BLOCK) * dim;
        // SAFETY: this head of this block belongs to one item of the section.
        let row = unsafe { block.slice_mut(at..at + dim) };
        if position.is_multiple_of(memory.settings.block as usize) {
            row.fill(0.0);
        } else {
            // SAFETY: as above; the row before is another one of the same block.
            row.copy_from_slice(unsafe { block.slice(at - dim..at) });
        }
        row
    }

    /// For each key of a block: its product with the sum of the queries after the block, until it is finished.
    pub(super) fn products(
        &self,
        cut: &Cut<'_>,
        memory: &MemoryTables,
        of: &HeadOf,
        block: usize,
    ) -> Vec<f32> {
        let (shape, size) = (&cut.shape.head, memory.settings.block as usize);
        let (dim, heard) = (shape.key_dim, memory.heard.unwrap_or(memory.index));
        let mut asked = vec![0.0; dim];
        for later in block + 1..=block + memory.settings.anchor_lag() {
            let last = (later + 1) * size - 1;
            let rows = self.blocks.get(heard, of.sequence, last / BLOCK).floats();
            let at = (of.head * BLOCK + last % BLOCK) * dim;
            // SAFETY: written in a section before.
            let said = unsafe { rows.slice(at..at + dim) };
            asked.iter_mut().zip(said).for_each(|(sum, q)| *sum += q);
        }
        let keys = self.blocks.get(cut.table(false), of.sequence, block * size / BLOCK);
        // SAFETY: keys are not written from here to the end of the phase.
        let keys = unsafe { keys.slice(cut.shape.layout.keys(of.head)) };
        let first = block * size % BLOCK;
        let product = |position: usize| {
            let elements = asked.iter().enumerate();
            elements.fold(0.0, |sum, (d, q)| q.mul_add(shape.key_at(keys, position, d), sum))
        };
        (first..first + size).map(product).collect()
    }
}
