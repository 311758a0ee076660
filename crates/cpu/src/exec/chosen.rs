//! What an indexer chose for a row, as positions in ascending order.

use std::ops::Range;

use kernels::attention::BLOCK;
use program::NO_UNIT;

use super::SequenceRows;

/// The positions of the units that were chosen for a row.
#[derive(Clone, Copy, Debug)]
pub(super) struct ChosenRow<'a> {
    /// In ascending order, then [`NO_UNIT`].
    units: &'a [f32],
    unit: usize,
    /// Positions of all of them.
    pub(super) n: usize,
}

impl<'a> ChosenRow<'a> {
    /// For a row at `position`, which sees no position behind it: of its own unit it reads those up to it.
    pub(super) fn new(units: &'a [f32], unit: usize, position: usize) -> ChosenRow<'a> {
        let n_units = units.partition_point(|id| *id != NO_UNIT);
        let last = n_units.checked_sub(1).map_or(0, |last| (units[last] as usize + 1) * unit);
        // units before the row's own are whole
        let unseen = last.saturating_sub(position + 1);
        ChosenRow { units, unit, n: (n_units * unit).saturating_sub(unseen) }
    }

    /// Position `i` of all.
    pub(super) fn position(&self, i: usize) -> usize {
        self.units[i / self.unit] as usize * self.unit + i % self.unit
    }

    /// All of them, in ascending order: neighbours of one block of the cache at a time.
    pub(super) fn runs(&self) -> impl Iterator<Item = Range<usize>> {
        let mut i = 0;
        std::iter::from_fn(move || {
            let start = (i < self.n).then(|| self.position(i))?;
            let limit = (start / BLOCK + 1) * BLOCK;
            let mut end = start;
            while end < limit && i < self.n && self.position(i) == end {
                (i, end) = (i + 1, end + 1);
            }
            Some(start..end)
        })
    }
}

/// Rows of a sequence that read all positions they see, where `chosen` are chosen for the others.
pub(super) fn reading_all(rows: &SequenceRows, chosen: Option<usize>) -> usize {
    chosen.map_or(rows.n, |chosen| chosen.saturating_sub(rows.start).min(rows.n))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_of_units() {
        let positions = |units: &[f32], unit, position| -> Vec<usize> {
            let row = ChosenRow::new(units, unit, position);
            (0..row.n).map(|i| row.position(i)).collect()
        };
        assert_eq!(positions(&[0.0, 3.0, 7.0], 1, 7), [0, 3, 7]);
        assert_eq!(positions(&[1.0, 4.0, NO_UNIT], 2, 20), [2, 3, 8, 9]);
        assert_eq!(positions(&[0.0, 2.0], 4, 9), [0, 1, 2, 3, 8, 9]);
        assert!(positions(&[NO_UNIT; 2], 4, 9).is_empty());
    }

    #[test]
    fn neighbours_come_together_within_a_block() {
        let runs = |units: &[f32], unit, position| -> Vec<Range<usize>> {
            ChosenRow::new(units, unit, position).runs().collect()
        };
        assert_eq!(runs(&[0.0, 1.0, 3.0, 9.0], 2, 18), [0..4, 6..8, 18..19]);
        let long = runs(&[1.0, 2.0], 100, 1000);
        assert_eq!(long, [100..BLOCK, BLOCK..2 * BLOCK, 2 * BLOCK..300]);
        assert!(runs(&[NO_UNIT], 2, 1).is_empty());
    }
}
