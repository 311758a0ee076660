//! Dispatches of single architectures.

use super::{Bound, Choice, Grid, Maker, NONE};
use crate::kernels::{BALANCE, Finish, GRAMS, ROWS, Shader, element};
use crate::plan::{BalanceWork, GramsWork, Place};

impl Maker<'_> {
    pub(super) fn ids(&mut self, out: Place) {
        let consts =
            [&[1, NONE, 0, NONE, 0][..], &self.at(out), &[0, 0, 0, 0], &Finish::Plain.words()]
                .concat();
        let bound = vec![Bound::Vectors, Bound::Nothing, Bound::Nothing, Bound::Buffer(out.buffer)];
        let grid = Grid::Elements { cols: 1, each: 64, rows: self.rows(out) };
        let choice = Choice::One(Shader::rows(element::ID));
        self.push((&ROWS, choice, grid), out.buffer, bound, consts);
    }

    pub(super) fn grams(&mut self, work: &GramsWork) {
        let GramsWork { table, numbers, n_ids, n_heads, end, cols, ids, out } = *work;
        let its = &self.weights.matrices[table];
        let shader = Shader::grams(its.format);
        let units = 2 * its.format.row_words(its.cols).chunks;
        // as many for each number of ids, from two on
        let each = (n_heads / n_ids.saturating_sub(1).max(1)).max(1);
        for part in 0..its.parts.len() {
            let (consts, planes) = self.part(table, part);
            let consts = [
                &consts[..],
                &[cols, n_ids, each].map(|n| n as u32),
                &[end, self.vector(Some(numbers))],
                &self.at(ids),
                &self.at(out),
            ]
            .concat();
            let more = [Bound::Vectors, Bound::Buffer(ids.buffer), Bound::Buffer(out.buffer)];
            let bound = [&planes[..], &more].concat();
            let tiles = units.div_ceil(64);
            let grid = Grid::Slots { tiles, slots: n_heads, rows: self.rows(out) };
            self.push((&GRAMS, Choice::One(shader.clone()), grid), out.buffer, bound, consts);
        }
    }

    pub(super) fn balance(&mut self, work: &BalanceWork) {
        let BalanceWork { n, rounds, eps, a, out } = *work;
        let consts = [&[n as u32, rounds, eps.to_bits()][..], &self.at(a), &self.at(out)].concat();
        let bound = vec![Bound::Buffer(a.buffer), Bound::Buffer(out.buffer)];
        let grid = Grid::Elements { cols: 1, each: 1, rows: self.rows(out) };
        self.push((&BALANCE, Choice::One(Shader::balance()), grid), out.buffer, bound, consts);
    }
}
