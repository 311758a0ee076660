//! Dispatches of indexers: rotation and append, scores, the choice; and marks of what was chosen, before attention.

use program::{Rows, UnitScore};

use super::{Bound, Choice, Grid, Maker, NONE};
use crate::batch::HEADER;
use crate::kernels::{INDEX_CHOOSE, INDEX_KEYS, INDEX_SCORES, MARKS, Shader};
use crate::plan::{ChosenUnits, IndexWork, ValueBuffer};

impl Maker<'_> {
    pub(super) fn index(&mut self, work: &IndexWork) {
        let IndexWork { at, n_heads, dim, q, k, weights, out, .. } = work;
        let q_stride = work.query_stride() as u32;
        let angles = work.rotations.map_or([NONE; 2], |both| both.map(|i| (HEADER + i) as u32));
        let consts = [
            &[*n_heads, *dim, at.rope_start, work.rotated].map(|n| n as u32)[..],
            &[u32::from(work.interleaved), angles[0], angles[1], at.cache.0],
            &self.at(*q),
            &self.at(*k),
            &[q_stride],
        ]
        .concat();
        let blocks = Bound::Blocks(at.cache.0 as usize);
        let bound = vec![Bound::Buffer(q.buffer), Bound::Buffer(k.buffer), Bound::Queries, blocks];
        let grid = Grid::Elements { cols: n_heads + 1, each: 1, rows: Rows::Tokens };
        self.push((&INDEX_KEYS, Choice::IndexKeys, grid), out.buffer, bound, consts);

        let limit = at.selection().limit();
        let consts = [
            &[*n_heads as u32, *dim as u32, at.cache.0, limit as u32][..],
            &[u32::from(weights.is_some())],
            &self.maybe_at(*weights),
            &[q_stride],
        ]
        .concat();
        let weights = weights.map_or(Bound::Nothing, |place| Bound::Buffer(place.buffer));
        let bound = vec![Bound::Queries, weights, blocks, Bound::Scores];
        let grid = Grid::Scores { limit };
        self.push((&INDEX_SCORES, Choice::IndexScores, grid), out.buffer, bound, consts);

        let (kind, pool) = match at.unit_score {
            UnitScore::Greatest => (0, 1),
            UnitScore::Last => (1, 1),
            UnitScore::OfPool(n) => (2, n),
        };
        let n_choices = work.n_choices();
        let consts = [
            &[at.unit, at.selection().n_units, at.n_units, at.n_last, kind, pool][..],
            &[n_choices as u32],
            &self.at(*out),
        ]
        .concat();
        let bound = vec![Bound::Scores, Bound::Buffer(out.buffer)];
        let grid = Grid::Elements { cols: n_choices, each: 1, rows: Rows::Tokens };
        let choice = Choice::One(Shader::index_choose());
        self.push((&INDEX_CHOOSE, choice, grid), out.buffer, bound, consts);
    }

    /// What attention asks, position by position; `out` is what that writes.
    pub(super) fn marks(&mut self, chosen: &ChosenUnits, out: ValueBuffer) {
        let ChosenUnits { list, n_choices, select } = *chosen;
        let consts =
            [&[select.unit, select.n_units, n_choices as u32][..], &self.at(list)].concat();
        let bound = vec![Bound::Buffer(list.buffer), Bound::Marks];
        let grid = Grid::Elements { cols: n_choices, each: 1, rows: Rows::Tokens };
        self.push((&MARKS, Choice::One(Shader::marks()), grid), out, bound, consts);
    }
}
