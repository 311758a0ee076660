//! [`Indexer`]: queries that choose what of the past others read, by keys of their own.

use crate::{CacheId, Rope};

/// Choice of what attention reads: [`Op::Indexer`](crate::Op::Indexer).
///
/// Positions are taken in units of equal length, the last of which may be incomplete. What a query chooses follows from its
/// position and the rows up to it.
#[derive(Clone, Debug, PartialEq)]
pub struct Indexer {
    /// The cache of its keys, of the kind [`Keys`](crate::CacheKind::Keys).
    pub cache: CacheId,
    /// Rotation of queries and keys; `None` for none.
    pub rope: Option<Rope>,
    /// Elements of a head before those that rotate.
    pub rope_start: usize,
    /// Keys rotate as if they stood so many positions before their own.
    pub keys_back: u32,
    /// From queries and a key to its score.
    pub score: IndexScore,
    /// Positions of a unit, at least 1.
    pub unit: u32,
    /// What the score of a unit is.
    pub unit_score: UnitScore,
    /// Units that are chosen, or all where there are no more; at least 1.
    pub n_units: u32,
    /// How many of them are the last there are, whatever their scores.
    pub n_last: u32,
}

/// From the scores of positions to that of their unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum UnitScore {
    /// The greatest of them.
    Greatest,
    /// That of its last position. A unit without that is chosen whatever there is, and beside the others.
    Last,
    /// Units are single positions, and pools so many neighbouring ones: that of its pool's last position. Those of a pool
    /// without that come before all others.
    OfPool(u32),
}

/// From the queries of a row and a key to its score. Factors above 0 on all of them would change nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IndexScore {
    /// `sum_h w_h * max(q_h . k, 0)`, over heads: one choice for a row.
    ///
    /// Source: DeepSeek-V3.2-Exp, section 2.1.
    Weighted,
    /// `q_h . k`: a choice for each head.
    PerHead,
}

/// What of the positions that a mask lets it see a query reads: those of units that an [`Indexer`] chose for its row, by one
/// choice for all key-value heads or by one for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Selection {
    /// Positions of a unit.
    pub unit: u32,
    /// Units that are chosen at most.
    pub n_units: u32,
    /// One of them is there only where it is not complete.
    pub has_tail: bool,
}

impl Selection {
    /// Queries before this position read all that they see.
    pub fn limit(&self) -> usize {
        self.unit as usize * self.n_units as usize - usize::from(self.has_tail)
    }
}

/// What stands for a unit in a choice of fewer than there is room for.
pub const NO_UNIT: f32 = -1.0;

impl Indexer {
    /// What its choices come to.
    pub fn selection(&self) -> Selection {
        let has_tail = self.unit_score == UnitScore::Last;
        let n_units = self.n_units + u32::from(has_tail);
        Selection { unit: self.unit, n_units, has_tail }
    }

    /// Units up to a position's own.
    pub fn units(&self, position: usize) -> usize {
        position / self.unit as usize + 1
    }

    /// Whether scores matter at a position: else all units are chosen.
    pub fn chooses(&self, position: usize) -> bool {
        position >= self.selection().limit()
    }

    /// Write the numbers of the units chosen for a row at `position`, in ascending order, and [`NO_UNIT`] behind them.
    /// `scores` are those of all units up to the row's own; of equal ones the earlier is chosen. `spare` is memory for this,
    /// whatever it holds.
    ///
    /// # Panics
    /// If `spare` is shorter than the scores.
    pub fn choose(&self, position: usize, scores: &[f32], spare: &mut [u32], chosen: &mut [f32]) {
        let is_whole = (position + 1).is_multiple_of(self.unit as usize);
        let (n_last, wanted) = match self.unit_score {
            UnitScore::Greatest | UnitScore::OfPool(_) => {
                (self.n_last, self.n_units.saturating_sub(self.n_last))
            }
            UnitScore::Last => (u32::from(!is_whole), self.n_units),
        };
        let n_last = scores.len().min(n_last as usize);
        let (others, wanted) = (&scores[..scores.len() - n_last], wanted as usize);
        let mut places = chosen.iter_mut();
        let mut take = |unit: usize| places.next().into_iter().for_each(|p| *p = unit as f32);
        if others.len() <= wanted {
            (0..others.len()).for_each(&mut take);
        } else if wanted > 0 {
            let best = &mut spare[..wanted];
            keep_best(others, best);
            best.sort_unstable();
            best.iter().for_each(|unit| take(*unit as usize));
        }
        (others.len()..scores.len()).for_each(&mut take);
        places.for_each(|place| *place = NO_UNIT);
    }
}

/// The numbers of the greatest scores, as many as `best` has room for.
///
/// Which of equal scores these are decides what a query reads: scores of 0 are common where weights are few. They are those
/// that llama.cpp's CPU keeps, which has the numbers in a heap with the least score on top: each later score that is greater
/// takes the place of the top, which sinks to a leaf along the lesser of two children, the second where they are equal, and
/// rises from there.
fn keep_best(scores: &[f32], best: &mut [u32]) {
    let score = |unit: u32| scores[unit as usize];
    let sink = |heap: &mut [u32], top: usize, unit: u32| {
        let mut hole = top;
        while 2 * hole + 1 < heap.len() {
            let first = 2 * hole + 1;
            let is_greater = |unit: &u32| score(*unit) > score(heap[first]);
            let second = heap.get(first + 1).is_some_and(|unit| !is_greater(unit));
            let child = first + usize::from(second);
            heap[hole] = heap[child];
            hole = child;
        }
        while hole > top && score(heap[(hole - 1) / 2]) > score(unit) {
            heap[hole] = heap[(hole - 1) / 2];
            hole = (hole - 1) / 2;
        }
        heap[hole] = unit;
    };
    best.iter_mut().zip(0..).for_each(|(place, unit)| *place = unit);
    for top in (0..best.len() / 2).rev() {
        sink(best, top, best[top]);
    }
    for (unit, greater) in (0..).zip(scores).skip(best.len()) {
        if *greater > score(best[0]) {
            sink(best, 0, unit);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::CacheId;

    fn chosen(n_units: usize, n_last: u32, scores: &[f32]) -> Vec<f32> {
        let indexer = Indexer {
            cache: CacheId(0),
            rope: None,
            rope_start: 0,
            keys_back: 0,
            score: IndexScore::Weighted,
            unit: 1,
            unit_score: UnitScore::Greatest,
            n_units: n_units as u32,
            n_last,
        };
        let mut chosen = vec![9.0; n_units];
        indexer.choose(scores.len() - 1, scores, &mut vec![7; scores.len()], &mut chosen);
        chosen
    }

    #[test]
    fn the_best_are_chosen_and_the_last_ones() {
        let scores = [1.0, -3.0, 2.0, 2.0, -0.0, 2.0, 0.0];
        assert_eq!(chosen(2, 0, &scores), [2.0, 3.0]);
        assert_eq!(chosen(4, 0, &scores), [0.0, 2.0, 3.0, 5.0]);
        assert_eq!(chosen(5, 0, &scores), [0.0, 2.0, 3.0, 4.0, 5.0], "zeros are equal");
        assert_eq!(chosen(3, 1, &scores), [2.0, 3.0, 6.0]);
        assert_eq!(chosen(2, 2, &scores), [5.0, 6.0]);
        assert_eq!(chosen(1, 0, &[-2.0, -1.0, -4.0]), [1.0]);
        assert_eq!(chosen(4, 1, &[5.0, 6.0]), [0.0, 1.0, NO_UNIT, NO_UNIT]);
        assert_eq!(chosen(3, 3, &[5.0]), [0.0, NO_UNIT, NO_UNIT]);
    }

    /// Beside a sort of all: which of equal ones are chosen is another matter.
    #[test]
    fn choices_are_those_of_a_sort() {
        for n in [1usize, 2, 17, 100] {
            let scores: Vec<f32> = (0..n).map(|i| ((i * 7919 + 13) % 11) as f32 - 5.0).collect();
            for k in 1..=n {
                let units = chosen(k, 0, &scores);
                assert!(units.is_sorted_by(|a, b| a < b), "{k} of {n}: {units:?}");
                let best_first = |mut scores: Vec<f32>| {
                    scores.sort_by(|a, b| b.total_cmp(a));
                    scores
                };
                let found = units.iter().map(|unit| scores[*unit as usize]).collect();
                let want = &best_first(scores.clone())[..k];
                assert_eq!(best_first(found), want, "{k} of {n}");
            }
        }
    }

    /// The heap of the first three has the last of them on top, which the fourth drives out; then the first one is, as its
    /// second child is the fourth, and the fifth drives that out.
    #[test]
    fn of_equal_scores_those_are_chosen_that_a_heap_keeps() {
        assert_eq!(chosen(2, 0, &[0.0, 0.0, 0.0]), [0.0, 1.0]);
        assert_eq!(chosen(2, 0, &[0.0, 0.0, 1.0]), [0.0, 2.0]);
        assert_eq!(chosen(3, 0, &[0.0, 0.0, 0.0, 1.0]), [0.0, 1.0, 3.0]);
        assert_eq!(chosen(3, 0, &[0.0, 0.0, 0.0, 1.0, 1.0]), [1.0, 3.0, 4.0]);
    }

    #[test]
    fn positions_have_units() {
        let mut indexer = Indexer {
            cache: CacheId(0),
            rope: None,
            rope_start: 0,
            keys_back: 0,
            score: IndexScore::PerHead,
            unit: 8,
            unit_score: UnitScore::Greatest,
            n_units: 3,
            n_last: 1,
        };
        assert_eq!([0, 7, 8, 23, 24].map(|p| indexer.units(p)), [1, 1, 2, 3, 4]);
        assert_eq!([0, 23, 24].map(|p| indexer.chooses(p)), [false, false, true]);
        assert_eq!(indexer.selection().limit(), 24);
        indexer.unit = 1;
        assert_eq!([2, 3].map(|p| indexer.chooses(p)), [false, true]);
    }

    /// Of units of two: the best one that is complete, and the one that is not.
    #[test]
    fn a_unit_that_is_not_complete_comes_beside_the_others() {
        let indexer = Indexer {
            cache: CacheId(0),
            rope: None,
            rope_start: 0,
            keys_back: 0,
            score: IndexScore::Weighted,
            unit: 2,
            unit_score: UnitScore::Last,
            n_units: 1,
            n_last: 0,
        };
        let select = indexer.selection();
        assert_eq!((select.n_units, select.limit()), (2, 3));
        let chosen = |position: usize, scores: &[f32]| {
            let mut chosen = [9.0; 2];
            indexer.choose(position, scores, &mut [7; 3], &mut chosen);
            chosen
        };
        assert_eq!(chosen(0, &[1.0]), [0.0, NO_UNIT]);
        assert_eq!(chosen(1, &[1.0]), [0.0, NO_UNIT]);
        assert_eq!(chosen(2, &[1.0, 5.0]), [0.0, 1.0]);
        assert_eq!(chosen(3, &[1.0, 5.0]), [1.0, NO_UNIT]);
        assert_eq!(chosen(4, &[1.0, 0.5, 5.0]), [0.0, 2.0]);
        assert_eq!([2, 3].map(|p| indexer.chooses(p)), [false, true]);
    }
}
