//! Sizes that several rooms of this crate agree on, and the checks that kernels and caches agree with them.
//!
//! They say how work is cut. None of them changes a bit.

use kernels::linear::PANEL_ROWS;
use program::PEAK;

/// Panels of one matrix that stand together in memory before those of its partner in a gated job.
pub(crate) const UNIT_PANELS: usize = 16;
/// Panels that workers take at a time with many rows.
pub(crate) const MANY_ROWS_PANELS: usize = 4;
/// Up to this many rows every worker prepares the activations for itself: cheaper than a barrier.
pub(crate) const LOCAL_ROWS: usize = 4;
/// Rows of activations a kernel sees at a time, so that a unit's outputs stay in the second-level cache.
pub(crate) const ROW_BLOCK: usize = 512;
/// Query rows (tokens times heads of a group) that attend together.
pub(crate) const TILE_ROWS: usize = 64;

/// Floats of partial results of attention that a step may keep: bounds the memory of splitting a long cache.
pub(crate) const MAX_PARTIAL_FLOATS: usize = 16 << 20;

/// Workers take whole parts of a unit.
const _: () = assert!(UNIT_PANELS.is_multiple_of(MANY_ROWS_PANELS));
/// Items of logits begin where a peak does.
const _: () = assert!(PEAK == kernels::rows::PEAK && MANY_ROWS_PANELS * PANEL_ROWS == PEAK);
