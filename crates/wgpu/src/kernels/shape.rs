//! How workgroups of products are cut up, and what they multiply: an adapter has its own best shape. Lanes of a team are
//! always as many, and each sum is made in the same order, so no bit depends on anything but the type of the products
//! and, in tiles, on whether these are matrices.

use program::{KernelShape, ProductType};
use quant::GgmlType;

use super::{MATMAT_TILE, Matrices};
use crate::formats::{DeviceFormat, device_format};

/// Of [`MATVEC`](super::MATVEC) and [`PIECES`](super::PIECES).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct TeamShape {
    /// Rows of a matrix that a team of lanes has: as many products share a load of activations.
    pub(crate) rows: usize,
    /// Teams of a workgroup.
    pub(crate) teams: usize,
    /// Lanes of a team: what its sums are made of. They follow from the matrix alone.
    pub(crate) lanes: usize,
    /// What is multiplied. Tiles ([`MATMAT`](super::MATMAT), [`GROUPED`](super::GROUPED)) have no rows and teams of their own.
    pub(crate) product: ProductType,
    /// Whether lanes add their sums up in subgroups; in tiles, whether subgroups have matrices together.
    pub(crate) subgroups: bool,
}

/// What a device has beside what every one has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Abilities {
    /// Arithmetic of f16.
    pub(crate) f16: bool,
    /// Lanes that read of each other.
    pub(crate) subgroups: bool,
    /// Matrices of f32, and of f16.
    pub(crate) matrices: [Option<Matrices>; 2],
    /// Memory of a workgroup for larger tiles: 32 KiB.
    pub(crate) roomy: bool,
}

impl Abilities {
    /// Whether products may be in larger tiles.
    pub(crate) fn has_wide(self) -> bool {
        let f16 = TeamShape { product: ProductType::F16, subgroups: true, ..TeamShape::USUAL };
        f16.is_wide(self)
    }

    /// Matrices of such numbers.
    pub(crate) fn matrices(&self, product: ProductType) -> Option<Matrices> {
        match product {
            ProductType::F32 => self.matrices[0],
            ProductType::F16 => self.matrices[1].filter(|_| self.f16),
            ProductType::Int8 => None,
        }
    }
}

impl TeamShape {
    /// Whether tiles of such products may be larger ([`WIDE`](super::WIDE)).
    pub(crate) fn is_wide(self, able: Abilities) -> bool {
        let matrices = able.matrices(self.product).filter(|_| self.subgroups && able.roomy);
        matrices.is_some_and(|matrices| matrices.suit_wide(self.product))
    }
}

/// Lanes of a team.
const TEAM: usize = 32;
/// The same for rows of so many chunks or more.
const LONG_TEAM: usize = 128;
const LONG_ROW: usize = 64;
/// What every device has: lanes of a workgroup, and bytes of its memory.
const MOST_LANES: usize = 256;
const MOST_BYTES: usize = 16 << 10;

impl TeamShape {
    /// Of an adapter that was not tuned.
    pub(crate) const USUAL: TeamShape =
        TeamShape { rows: 2, teams: 2, lanes: TEAM, product: ProductType::F32, subgroups: false };

    /// The same for a matrix of so many chunks in a row: long rows are shared by more lanes, so that none goes through many
    /// chunks one after another, and what is asked of memory is asked at once.
    pub(crate) fn over(self, chunks: usize) -> TeamShape {
        if chunks < LONG_ROW {
            return self;
        }
        TeamShape { lanes: LONG_TEAM, teams: (self.teams * TEAM / LONG_TEAM).max(1), ..self }
    }

    /// Rows of a matrix that a workgroup has.
    pub(crate) fn tile(self) -> usize {
        self.rows * self.teams
    }

    /// Whether there can be such workgroups for so many rows of activations at once: a row and its gate are neighbours in
    /// a team, each lane has one output at most, and there is room for all sums. Tiles of many rows have no teams.
    pub(crate) fn is_possible(self, at_once: usize) -> bool {
        let TeamShape { rows, teams, lanes, product, subgroups } = self;
        if at_once == MATMAT_TILE {
            return self == TeamShape { product, subgroups, ..TeamShape::USUAL };
        }
        let is_known = [2, 4, 8].contains(&rows) && [1, 2, 4, 8].contains(&teams);
        is_known
            && [1, 4].contains(&at_once)
            && rows * at_once <= lanes
            && lanes * teams <= MOST_LANES
            && 4 * rows * at_once * lanes * teams <= MOST_BYTES
    }

    /// Whether a device can have it for weights of this type.
    pub(crate) fn is_able(self, format: &DeviceFormat, at_once: usize, able: Abilities) -> bool {
        if self.subgroups && at_once == MATMAT_TILE {
            let has = able.subgroups && able.matrices(self.product).is_some();
            return has && Matrices::suit(format, self.product);
        }
        format.multiplies(self.product)
            && (able.f16 || self.product != ProductType::F16)
            && (able.subgroups || !self.subgroups)
    }
}

/// Shapes that were chosen for an adapter.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shapes(Vec<KernelShape>);

impl From<&KernelShape> for TeamShape {
    fn from(shape: &KernelShape) -> TeamShape {
        let KernelShape { rows, teams, product, subgroups, .. } = *shape;
        TeamShape { rows, teams, lanes: TEAM, product, subgroups }
    }
}

impl TeamShape {
    /// As it is told.
    pub(crate) fn told(self, ty: GgmlType, at_once: usize) -> KernelShape {
        let TeamShape { rows, teams, product, subgroups, .. } = self;
        KernelShape { ty, at_once, rows, teams, product, subgroups }
    }
}

impl Shapes {
    /// Those of these that can be on such a device; others stay as usual.
    pub(crate) fn of(chosen: &[KernelShape], able: Abilities) -> Shapes {
        let can_be = |its: &&KernelShape| {
            let shape = TeamShape::from(*its);
            let format = device_format(its.ty);
            let is_able = |format| shape.is_able(format, its.at_once, able);
            shape.is_possible(its.at_once) && format.is_some_and(is_able)
        };
        Shapes(chosen.iter().filter(can_be).copied().collect())
    }

    /// This one alone.
    pub(crate) fn only(shape: KernelShape) -> Shapes {
        Shapes(vec![shape])
    }

    /// The shape for a type and so many rows at once.
    pub(crate) fn get(&self, ty: GgmlType, at_once: usize) -> TeamShape {
        let found = self.0.iter().find(|its| its.ty == ty && its.at_once == at_once);
        found.map_or(TeamShape::USUAL, TeamShape::from)
    }
}
