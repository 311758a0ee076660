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
            Some(_) => Shader::embed_normed(its.format, cols),
            None => Shader::embed(its.format),
        };
        let units = 2 * its.format.row_words(cols).chunks;
        let list = lookup_word(by);
        for part in 0..n_parts {
            let (of_part, planes) = self.part(table, part);
            let mut consts = [&of_part[..], &[list.unwrap_or(NONE)], &self.at(out)].concat();
            let to_out = Bound::Buffer(out.buffer);
            let (kernel, cols, rest) = match normed {
                Some(NormedRows { norm, out: to }) => {
                    let of_norm = [cols as u32, self.vector(norm.weight), norm.eps.to_bits()];
                    consts.extend(self.at(to).into_iter().chain(of_norm));
                    (&EMBED_NORMED, 1, vec![Bound::Vectors, to_out, Bound::Buffer(to.buffer)])
                }
                None => (&EMBED, units.div_ceil(64), vec![to_out]),
            };
            let bound = [&planes[..], &rest].concat();
            let grid = Grid::Elements { cols, each: 1, rows: self.rows(out) };
            self.push((kernel, Choice::One(shader.clone()), grid), out.buffer, bound, consts);
            if let (Some(list), true) = (list, n_parts > 1) {
                let [rows, _, first, ..] = of_part;
                self.only(When::Looked { list, first, end: first + rows });
            }
        }
    }
}
