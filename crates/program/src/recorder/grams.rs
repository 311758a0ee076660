//! Recording of rows by hashes of tokens.

use super::Recorder;
use crate::{Grams, Op, Result, Rows, Shape, ValueId, WeightId};

impl Recorder {
    /// The ids of tokens, counted from 1: `[Tokens, 1]`.
    ///
    /// # Errors
    /// None; as other ops.
    pub fn ids(&self, name: &str) -> Result<ValueId> {
        self.push(name, Op::Ids, &[], Shape { rows: Rows::Tokens, groups: 1, dim: 1 })
    }

    /// Rows of a table, one for each head by a hash of `ids`, the row's own first, then those before it, counted from 1:
    /// `[rows, heads, cols]`.
    ///
    /// # Errors
    /// [`Error::Operand`](crate::Error::Operand) if there are other ids than multipliers, heads are not as many for each
    /// number of tokens, or one has no rows or rows that the table has not.
    pub fn grams(
        &self,
        name: &str,
        ids: ValueId,
        table: WeightId,
        grams: Grams,
    ) -> Result<ValueId> {
        let (shape, spec) = (self.shape(ids), self.spec(table));
        let (n, heads) = (grams.multipliers.len(), grams.heads.len());
        if shape.cols() != n || n < 2 || heads == 0 || !heads.is_multiple_of(n - 1) {
            let expected = format!("{} ids, as many heads for each number of them", n.max(2));
            return Err(self.operand(name, expected, format!("{} and {heads}", shape.cols())));
        }
        let is_there = |start: usize, n_rows: usize| {
            n_rows > 0 && start.checked_add(n_rows).is_some_and(|end| end <= spec.rows)
        };
        if let Some(head) = grams.heads.iter().find(|head| !is_there(head.start, head.n_rows)) {
            let expected = format!("rows of a table of {}", spec.rows);
            return Err(self.operand(name, expected, format!("{head:?}")));
        }
        let shape = Shape { rows: shape.rows, groups: heads, dim: spec.cols };
        self.push(name, Op::Grams { table, grams }, &[ids], shape)
    }
}

#[cfg(test)]
mod tests {
    use quant::GgmlType;

    use super::*;
    use crate::{GramHead, WeightSpec};

    #[test]
    fn what_does_not_fit_is_refused() {
        let record = |n_ids: usize, heads: &[(usize, usize)]| {
            let r = Recorder::new();
            let name = "table".to_owned();
            let spec = WeightSpec { name, ty: GgmlType::F32, rows: 9, cols: 4, start: 0 };
            let table = r.weight(spec);
            let id = r.ids("ids").unwrap();
            let ids = r.concat("all", &vec![id; n_ids]).unwrap();
            let heads = heads.iter().map(|&(start, n_rows)| GramHead { start, n_rows }).collect();
            let grams = Grams { multipliers: vec![1, 2, 3], heads, end: 0 };
            r.grams("rows", ids, table, grams).map(|id| r.shape(id))
        };
        let shape = record(3, &[(0, 4), (5, 4)]).unwrap();
        assert_eq!(shape, Shape { rows: Rows::Tokens, groups: 2, dim: 4 });
        let refused = |result: Result<Shape>, needle: &str| {
            let message = result.unwrap_err().to_string();
            assert!(message.contains(needle), "{message}");
        };
        refused(record(2, &[(0, 4), (5, 4)]), "rows: expected 3 ids");
        refused(record(3, &[(0, 4)]), "as many heads");
        refused(record(3, &[]), "as many heads");
        refused(record(3, &[(0, 4), (6, 4)]), "rows of a table of 9");
        refused(record(3, &[(0, 0), (5, 4)]), "rows of a table of 9");
        refused(record(3, &[(usize::MAX, 2), (5, 4)]), "rows of a table of 9");
    }
}
