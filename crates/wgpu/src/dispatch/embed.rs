//! Rows of a table, and their norms.

use program::Lookup;

use super::{Bound, Choice, Grid, Maker, NONE, When};
use crate::kernels::{EMBED, EMBED_NORMED, Shader};
use crate::plan::{NormedRows, Place};

/// Which word of a step says where the rows begin that are looked up; `None` for the only one.
fn lookup_word(by: Lookup) -> Option<u32> {
    match by {
        Lookup::Token => Some(2),
        Lookup::Position => Some(3),
        Lookup::Only => None,
    }
}

impl Maker<'_> {
    /// A table in parts is looked up in those that have a row which a step wants.
    pub(super) fn embed(
        &mut self,
        table: usize,
        by: Lookup,
        out: Place,
        normed: Option<NormedRows>,
    ) {
        let its = &self.weights.matrices[table];
        let (cols, n_parts) = (its.cols, its.parts.len());
        let shader = match normed {
            Some(_) => Shader::embed_normed(its.format),
            None => Shader::embed(its.format),
        };
        let units = 2 * its.format.row_words(cols).chunks;
        let list = lookup_word(by);
        for part in 0..n_parts {
            let (mut consts, mut bound) = (Vec::new(), Vec::new());
            let (of_part, planes) = self.part(table, part);
            consts.extend([&of_part[..], &[list.unwrap_or(NONE)], &self.at(out)].concat());
            bound.extend(planes);
            let (kernel, units) = match normed {
                Some(NormedRows { norm, out: to }) => {
                    let of_norm = [cols as u32, self.vector(norm.weight), norm.eps.to_bits()];
                    consts.extend(self.at(to).into_iter().chain(of_norm));
                    bound.extend([out, to].map(|place| Bound::Buffer(place.buffer)));
                    bound.insert(planes.len(), Bound::Vectors);
                    (&EMBED_NORMED, 1)
                }
                None => {
                    bound.push(Bound::Buffer(out.buffer));
                    (&EMBED, units.div_ceil(64))
                }
            };
            let grid = Grid::Elements { cols: units, each: 1, rows: self.rows(out) };
            self.push((kernel, Choice::One(shader.clone()), grid), out.buffer, bound, consts);
            if let (Some(list), true) = (list, n_parts > 1) {
                let [rows, _, first, ..] = of_part;
                self.only(When::Looked { list, first, end: first + rows });
            }
        }
    }
}
