//! How workgroups of products are cut up: an adapter has its own best shape. Lanes of a team are always as many, and each
//! sum is made in the same order, so no bit depends on it.

use program::KernelShape;
use quant::GgmlType;

/// Of [`MATVEC`](super::MATVEC) and [`PIECES`](super::PIECES).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct TeamShape {
    /// Rows of a matrix that a team of lanes has: as many products share a load of activations.
    pub(crate) rows: usize,
    /// Teams of a workgroup.
    pub(crate) teams: usize,
}

/// Lanes of a team.
const TEAM: usize = 32;
/// What every device has: lanes of a workgroup, and bytes of its memory.
const MOST_LANES: usize = 256;
const MOST_BYTES: usize = 16 << 10;

impl TeamShape {
    /// Of an adapter that was not tuned.
    pub(crate) const USUAL: TeamShape = TeamShape { rows: 2, teams: 2 };

    /// Rows of a matrix that a workgroup has.
    pub(crate) fn tile(self) -> usize {
        self.rows * self.teams
    }

    /// Whether there can be such workgroups for so many rows of activations at once: a row and its gate are neighbours in
    /// a team, each lane has one output at most, and there is room for all sums.
    pub(crate) fn is_possible(self, at_once: usize) -> bool {
        let TeamShape { rows, teams } = self;
        let is_known = [2, 4, 8].contains(&rows) && [1, 2, 4, 8].contains(&teams);
        is_known
            && [1, 4].contains(&at_once)
            && rows * at_once <= TEAM
            && TEAM * teams <= MOST_LANES
            && 4 * rows * at_once * TEAM * teams <= MOST_BYTES
    }
}

/// Shapes that were chosen for an adapter.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shapes(Vec<KernelShape>);

impl Shapes {
    /// Those of these that can be; others stay as usual.
    pub(crate) fn of(chosen: &[KernelShape]) -> Shapes {
        let possible = chosen
            .iter()
            .filter(|its| TeamShape { rows: its.rows, teams: its.teams }.is_possible(its.at_once));
        Shapes(possible.copied().collect())
    }

    /// The shape for a type and so many rows at once.
    pub(crate) fn get(&self, ty: GgmlType, at_once: usize) -> TeamShape {
        let found = self.0.iter().find(|its| its.ty == ty && its.at_once == at_once);
        found.map_or(TeamShape::USUAL, |its| TeamShape { rows: its.rows, teams: its.teams })
    }
}
