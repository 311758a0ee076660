//! Where the input of a linear phase lies once it is rearranged for the kernels that want it so.

use std::ops::Range;

use kernels::linear::Tiling;

use crate::geometry::ROW_BLOCK;
use crate::tune::TunedKernel;
use crate::weights::PackedMatrix;

/// One block of rows, arranged for one kernel.
pub(crate) struct Arranged {
    pub(crate) kernel: TunedKernel,
    pub(crate) rows: Range<usize>,
    pub(crate) tiling: Tiling,
    /// First word in the buffer of arranged rows.
    pub(crate) start: usize,
}

impl Arranged {
    /// Words of tile `tile`.
    pub(crate) fn tile(&self, tile: usize) -> Range<usize> {
        let start = self.start + tile * self.tiling.tile_words;
        start..start + self.tiling.tile_words
    }

    /// Words of all tiles.
    pub(crate) fn words(&self) -> Range<usize> {
        self.start..self.start + self.tiling.words()
    }
}

/// All rearrangements of a phase.
#[derive(Default)]
pub(crate) struct Arrangements {
    parts: Vec<Arranged>,
}

impl Arrangements {
    /// For `n` rows: each kernel of the phase that does not read them as they are, each block of rows.
    pub(crate) fn of<'m>(
        matrices: impl Iterator<Item = &'m PackedMatrix>,
        n: usize,
    ) -> Arrangements {
        let mut parts: Vec<Arranged> = Vec::new();
        let mut start = 0;
        for matrix in matrices {
            if parts.iter().any(|part| part.kernel == matrix.kernel) {
                continue;
            }
            for first in (0..n).step_by(ROW_BLOCK) {
                let rows = first..(first + ROW_BLOCK).min(n);
                if let Some(tiling) = matrix.kernel.tiling(rows.len(), matrix.cols) {
                    parts.push(Arranged { kernel: matrix.kernel, rows, tiling, start });
                    start += tiling.words();
                }
            }
        }
        Arrangements { parts }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// Words of the buffer.
    pub(crate) fn words(&self) -> usize {
        self.parts.last().map_or(0, |part| part.words().end)
    }

    /// Tiles in all.
    pub(crate) fn n_tiles(&self) -> usize {
        self.parts.iter().map(|part| part.tiling.n_tiles).sum()
    }

    /// Tile `item` of all: its part, and its number there.
    pub(crate) fn tile(&self, mut item: usize) -> Option<(&Arranged, usize)> {
        for part in &self.parts {
            if item < part.tiling.n_tiles {
                return Some((part, item));
            }
            item -= part.tiling.n_tiles;
        }
        None
    }

    /// The block that starts at row `first`, for `kernel`; `None` if it reads rows as they are.
    pub(crate) fn find(&self, kernel: TunedKernel, first: usize) -> Option<&Arranged> {
        self.parts.iter().find(|part| part.rows.start == first && part.kernel == kernel)
    }
}
