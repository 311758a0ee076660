//! [`Seen`]: what a step yielded, row by row.

use program::{AmongRow, Candidate, RowsOut};

use crate::Scores;

/// What a row shows of the token after it.
pub(super) enum Seen {
    /// The scores of all tokens.
    All(Scores),
    /// As many as were asked for, likeliest first.
    Likeliest(Vec<Candidate>),
    /// What was asked for.
    Asked(AmongRow),
}

impl Seen {
    /// Of each row in order, and the rows beside them.
    pub(super) fn each(out: RowsOut) -> (Vec<Seen>, Vec<Vec<f32>>) {
        let out = match out {
            RowsOut::Candidates(rows) => {
                let rows = rows.rows().map(|row| Seen::Likeliest(row.to_vec()));
                return (rows.collect(), Vec::new());
            }
            RowsOut::Among(rows) => {
                return (rows.into_iter().map(Seen::Asked).collect(), Vec::new());
            }
            out => out,
        };
        let (logits, handed) = out.into_logits_and_rows();
        (Scores::each(logits).map(Seen::All).collect(), handed)
    }

    /// Of the only row.
    ///
    /// # Panics
    /// If there is not one row.
    pub(super) fn single(rows: Vec<Seen>) -> Seen {
        let [row] =
            <[Seen; 1]>::try_from(rows).unwrap_or_else(|rows| panic!("{} rows", rows.len()));
        row
    }
}
