//! What rows ask of blocks together with the rows before them: see [`program::Smoothing`].
//!
//! Sums are kept by position, and begin anew with each block of positions: a step finds that of the row before its first.

use super::Exec;
use super::context::HeadOf;
use crate::cache::MemoryTables;

impl Exec<'_> {
    /// Add to what a key-value head of a row asks for what the rows before did, and keep it for those after. Rows of a block
    /// come in ascending order.
    pub(super) fn smooth(
        &self,
        memory: &MemoryTables,
        of: &HeadOf,
        position: usize,
        asked: &mut [f32],
    ) {
        let (Some(table), Some(smoothing)) = (memory.smoothed, memory.settings.smooths()) else {
            return;
        };
        let (size, width) = (memory.settings.block as usize, memory.anchor_width);
        let block = self.blocks.get(table, of.sequence, position / size).floats();
        let at = (of.head * size + position % size) * width;
        if !position.is_multiple_of(size) {
            let share = smoothing.share();
            // SAFETY: this head of this block belongs to one item of the section.
            let before = unsafe { block.slice(at - width..at) };
            for (asked, before) in asked.iter_mut().zip(before) {
                *asked = share * *asked + (1.0 - share) * before;
            }
        }
        // SAFETY: as above; the row before is another one of the same block.
        unsafe { block.slice_mut(at..at + width) }.copy_from_slice(asked);
    }
}
