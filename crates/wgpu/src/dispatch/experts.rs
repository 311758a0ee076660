//! Dispatches of experts: the choice, products with pieces of a matrix, weighted sums.

use program::{Gating, GroupScore, LEAST_WEIGHT_SUM};

use super::{Bound, Choice, Grid, Maker, NONE, When, counted, team_shapes};
use crate::kernels::{GROUPED, MATMAT_TILE, MIXED, MIXED_TILE, PIECES, ROUTE, SORTED, Shader};
use crate::plan::{ChosenPieces, Many, MixedWork, PiecesWork, Place, RouteWork, SortedWork};

impl Maker<'_> {
    pub(super) fn route(&mut self, work: &RouteWork) {
        let RouteWork { router, n_experts, bias, factors, scores, out } = work;
        let (n_groups, groups_used, score) =
            router.groups.map_or((0, 0, GroupScore::Max), |groups| {
                (groups.n_groups, groups.n_used, groups.score)
            });
        let consts = [
            &[*n_experts as u32, router.n_used as u32][..],
            &self.at(*scores),
            &self.at(*out),
            &[u32::from(router.gating == Gating::Sigmoid)],
            &[self.vector(*bias), self.vector(*factors)],
            &[n_groups as u32, groups_used as u32, u32::from(score == GroupScore::TopTwoSum)],
            &[router.per_chunk as u32, u32::from(router.normalize)],
            &[LEAST_WEIGHT_SUM.to_bits(), router.scale.to_bits()],
        ]
        .concat();
        let bound = vec![Bound::Vectors, Bound::Buffer(scores.buffer), Bound::Buffer(out.buffer)];
        let grid = Grid::Elements { cols: 1, each: 1, rows: self.rows(*out) };
        self.push((&ROUTE, Choice::One(Shader::route(work)), grid), out.buffer, bound, consts);
    }

    /// Where a row's routes begin, from a row's to the next one's, and where factors begin, if they are some.
    fn routes(&self, routes: Option<ChosenPieces>) -> [u32; 3] {
        let Some(ChosenPieces { place, n_used, weigh }) = routes else { return [NONE, 0, NONE] };
        let [offset, stride] = self.at(place);
        [offset, stride, if weigh { offset + n_used as u32 } else { NONE }]
    }

    pub(super) fn pieces(&mut self, work: &PiecesWork) {
        let PiecesWork { matrix, x, out, many, .. } = *work;
        let rows = self.rows(x);
        let [routes_offset, routes_stride, weights] = self.routes(work.routes);
        let finish = work.finish.words();
        let by = if finish[1] > 0 { 2 } else { 1 };
        let most = work.taken.max(by * work.out_pitch);
        let format = self.weights.matrices[matrix].format;
        for part in 0..self.weights.matrices[matrix].parts.len() {
            let (consts, planes) = self.part(matrix, part);
            let consts = [
                &consts[..],
                &[counted(rows)],
                &[work.each, work.skipped, work.taken, work.slots].map(|n| n as u32),
                &[routes_offset, routes_stride, weights, self.vector(work.bias)],
                &self.at(x),
                &[work.x_pitch as u32],
                &self.at(out),
                &[work.out_pitch as u32],
                &finish,
            ]
            .concat();
            let bound = |chosen: Option<Place>| {
                let chosen = chosen.map_or(Bound::Nothing, |place| Bound::Buffer(place.buffer));
                let more =
                    [Bound::Vectors, Bound::Buffer(x.buffer), chosen, Bound::Buffer(out.buffer)];
                [&planes[..], &more].concat()
            };
            if many.is_none_or(|many| !many.only) {
                let (slots, alone) = (work.slots, work.routes.is_some());
                let grid = Grid::Pieces { weight_rows: most, slots, rows, alone };
                let bound = bound(work.routes.map(|routes| routes.place));
                let chunks = format.row_words(self.weights.matrices[matrix].cols).chunks;
                let shapes = team_shapes(self.shapes, format, chunks);
                let choice = Choice::Pieces(format, shapes, chunks);
                self.push((&PIECES, choice, grid), out.buffer, bound, consts.clone());
                if let Some(many) = many {
                    self.only(When::Few(many.crowd, rows));
                }
            }
            if let Some(Many { crowd, list, .. }) = many {
                let grid = Grid::Grouped { tiles: most.div_ceil(MATMAT_TILE), crowd, rows };
                let choice = Choice::Grouped(format, team_shapes(self.shapes, format, 0));
                self.push((&GROUPED, choice, grid), out.buffer, bound(Some(list)), consts);
                self.only(When::Many(crowd, rows));
            }
        }
    }

    pub(super) fn sorted(&mut self, work: &SortedWork) {
        let SortedWork { crowd, routes, out } = *work;
        let rows = self.rows(out);
        let [routes_offset, routes_stride, _] = self.routes(Some(routes));
        let sizes = [crowd.n_experts, crowd.n_used].map(|n| n as u32);
        let consts = [&[counted(rows)], &sizes[..], &[routes_offset, routes_stride]].concat();
        let bound = vec![Bound::Buffer(routes.place.buffer), Bound::Buffer(out.buffer)];
        let choice = Choice::One(Shader::sorted(crowd.n_experts));
        self.push((&SORTED, choice, Grid::Once), out.buffer, bound, consts);
        self.only(When::Many(crowd, rows));
    }

    pub(super) fn mixed(&mut self, work: &MixedWork) {
        let MixedWork { crowd, matrix, each, routes, bias, x, x_pitch, residual, out } = *work;
        let [routes_offset, routes_stride, weights] = self.routes(Some(routes));
        let shader = Shader::mixed(self.weights.matrices[matrix].format);
        for part in 0..self.weights.matrices[matrix].parts.len() {
            let (consts, planes) = self.part(matrix, part);
            let consts = [
                &consts[..],
                &[each as u32, routes.n_used as u32, routes_offset, routes_stride, weights],
                &[self.vector(bias)],
                &self.maybe_at(residual),
                &self.at(x),
                &[x_pitch as u32],
                &self.at(out),
            ]
            .concat();
            let more = [
                residual.map_or(Bound::Vectors, |place| Bound::Buffer(place.buffer)),
                Bound::Buffer(x.buffer),
                Bound::Buffer(routes.place.buffer),
                Bound::Buffer(out.buffer),
            ];
            let bound = [&planes[..], &more].concat();
            let grid = Grid::Elements { cols: each, each: MIXED_TILE, rows: self.rows(out) };
            self.push((&MIXED, Choice::One(shader.clone()), grid), out.buffer, bound, consts);
            self.only(When::Few(crowd, self.rows(out)));
        }
    }
}
