//! Products of rows with matrices.

use program::ProductType;

use super::{Bound, Choice, Grid, Maker, counted, team_shapes};
use crate::kernels::{Finish, MATVEC, Matrices, ROUNDED, WIDE};
use crate::plan::{Place, VectorId};

impl Maker<'_> {
    pub(super) fn linear(
        &mut self,
        (matrix, bias, finish): (usize, Option<VectorId>, Finish),
        x: Place,
        residual: Option<Place>,
        out: Place,
    ) {
        let its = &self.weights.matrices[matrix];
        let chunks = its.format.row_words(its.cols).chunks;
        let choice =
            Choice::Linear(its.format, team_shapes(self.shapes, its.format, chunks), chunks);
        // products of selected rows find these among all rows
        let rows = self.rows(out);
        let chosen = |place| u32::from(self.rows(place) != rows);
        let (x_chosen, r_chosen) = (chosen(x), residual.map_or(0, chosen));
        // what f16 rounds too much has no larger tiles
        let has_wide = self.able.has_wide() && Matrices::suit(its.format, ProductType::F16);
        if has_wide {
            let shapes = team_shapes(self.shapes, its.format, 0);
            let choice = Choice::Rounded(its.format, shapes, chunks);
            let consts = [&[chunks as u32][..], &self.at(x), &[x_chosen]].concat();
            let bound = vec![Bound::Buffer(x.buffer), Bound::Rounded];
            self.push((&ROUNDED, choice, Grid::Rounded { rows }), out.buffer, bound, consts);
        }
        for part in 0..its.parts.len() {
            let (consts, planes) = self.part(matrix, part);
            let consts = [
                &consts[..],
                &[counted(rows)],
                &self.at(x),
                &[x_chosen],
                &[self.vector(bias)],
                &self.maybe_at(residual),
                &[r_chosen],
                &self.at(out),
                &finish.words(),
            ]
            .concat();
            let residual = residual.map_or(Bound::Nothing, |place| Bound::Buffer(place.buffer));
            let bound = |x: Bound| {
                let more = [Bound::Vectors, x, residual, Bound::Buffer(out.buffer)];
                [&planes[..], &more].concat()
            };
            let weight_rows = self.weights.matrices[matrix].parts[part].rows;
            if has_wide {
                let shapes = team_shapes(self.shapes, its.format, 0);
                let wide =
                    (&WIDE, Choice::Wide(its.format, shapes), Grid::Wide { weight_rows, rows });
                self.push(wide, out.buffer, bound(Bound::Rounded), consts.clone());
            }
            let grid = Grid::Linear { weight_rows, rows };
            let bound = bound(Bound::Buffer(x.buffer));
            self.push((&MATVEC, choice.clone(), grid), out.buffer, bound, consts);
        }
    }
}
