//! Works of indexers.

use program::{IndexScore, Indexer, Selection};

use super::{GpuPlan, GpuWork, Place};

/// See [`GpuWork::Index`].
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct IndexWork {
    pub(crate) at: Indexer,
    pub(crate) n_heads: usize,
    pub(crate) dim: usize,
    pub(crate) q: Place,
    pub(crate) k: Place,
    /// One for each head, where the score has such.
    pub(crate) weights: Option<Place>,
    /// Indexes in [`GpuPlan::rotations`]: of queries, of keys.
    pub(crate) rotations: Option<[usize; 2]>,
    pub(crate) interleaved: bool,
    pub(crate) rotated: usize,
    /// Numbers of units, by choice.
    pub(crate) out: Place,
}

impl IndexWork {
    /// Choices of a row.
    pub(crate) fn n_choices(&self) -> usize {
        match self.at.score {
            IndexScore::Weighted => 1,
            IndexScore::PerHead => self.n_heads,
        }
    }

    /// Numbers of the rotated queries of a row: whole quads for each head.
    pub(crate) fn query_stride(&self) -> usize {
        self.n_heads * self.dim.next_multiple_of(4)
    }
}

/// What attention reads of the positions that its mask lets it see.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ChosenUnits {
    /// Numbers of units, by choice.
    pub(crate) list: Place,
    /// One, or one for each key-value head.
    pub(crate) n_choices: usize,
    pub(crate) select: Selection,
}

/// Words of the scores of a row and of the marks of what it chose, for a past of so many positions: of the works that have
/// most.
pub(crate) fn index_words(plan: &GpuPlan, positions: usize) -> [usize; 2] {
    let scores = plan.works.iter().map(|work| match work {
        // of positions and of units; where all are chosen nobody has a score
        GpuWork::Index(work) if positions > work.at.selection().limit() => {
            2 * positions * work.n_choices()
        }
        _ => 0,
    });
    let marks = plan.works.iter().map(|work| match work {
        GpuWork::Attention(work) => {
            work.chosen.map_or(0, |chosen| chosen.n_choices * positions.div_ceil(32))
        }
        _ => 0,
    });
    [scores.max().unwrap_or(0), marks.max().unwrap_or(0)]
}
