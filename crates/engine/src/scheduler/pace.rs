//! How much goes into a pass, by how long passes took.

use crate::drafts::PassCosts;
use crate::turn::Want;

/// How long a pass with a prompt's rows may keep those waiting who write: seconds, or so many of their plain steps if that
/// is more.
const PATIENCE: f64 = 0.2;
/// See [`PATIENCE`].
const STEPS: f64 = 4.0;
/// The least rows of prompts in a pass.
const LEAST: usize = 8;
/// How much a new measurement counts against what is known.
const WEIGHT: f64 = 0.3;

/// What is known of the time that passes take.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pace {
    costs: PassCosts,
    /// Seconds of one row of a prompt among many.
    row: Option<f64>,
}

impl Pace {
    pub(super) fn costs(&self) -> &PassCosts {
        &self.costs
    }

    /// Seconds of the pass that those who write would have run without drafts; `None` where prompts are read in it.
    pub(super) fn plain(&self, rows: &[usize], wants: &[Want]) -> Option<f64> {
        let (_, reads, writers) = counted(rows, wants);
        (reads == 0).then(|| self.costs.plain().map(|s| s * self.costs.times(writers)))?
    }

    /// A pass took so long.
    pub(super) fn ran(&mut self, rows: &[usize], wants: &[Want], seconds: f64) {
        let (writes, reads, _) = counted(rows, wants);
        if reads == 0 {
            self.costs.measured(writes, seconds);
        } else if reads >= LEAST {
            let beside = self.costs.plain().map_or(0.0, |s| s * self.costs.times(writes));
            let beside = if writes == 0 { 0.0 } else { beside };
            let row = (seconds - beside).max(seconds / 10.0) / reads as f64;
            self.row = Some(self.row.map_or(row, |known| known + WEIGHT * (row - known)));
        }
    }

    /// Rows of each turn in the next pass, `most` in all, but that all who write have theirs: `first` among the prompts gets
    /// the rows that do not divide.
    pub(super) fn deal(&self, wants: &[Want], most: usize, first: usize) -> Vec<usize> {
        let writes: usize = wants.iter().map(|want| want.written()).sum();
        let mut rows: Vec<usize> = wants.iter().map(|want| want.written()).collect();
        let mut left = self.room(writes, most);
        let read = |want: &Want| if let Want::Prompt(n) = want { *n } else { 0 };
        loop {
            let mut hungry: Vec<usize> =
                (0..wants.len()).filter(|&i| rows[i] < read(&wants[i])).collect();
            let n = hungry.len();
            if n == 0 || left == 0 {
                return rows;
            }
            // equal shares, and who wants less leaves the rest to the others; where there are fewer rows than prompts, one
            // each to the next of them
            hungry.rotate_left(first % n);
            let share = (left / n).max(1);
            for &i in &hungry {
                let given = share.min(left).min(read(&wants[i]) - rows[i]);
                rows[i] += given;
                left -= given;
            }
        }
    }

    /// Rows of prompts beside `writes` rows of those who write.
    fn room(&self, writes: usize, most: usize) -> usize {
        let room = most.saturating_sub(writes).max(1);
        if writes == 0 {
            return room;
        }
        let Some(plain) = self.costs.plain() else { return room.min(LEAST) };
        let step = plain * self.costs.times(writes);
        let Some(row) = self.row else { return room.min(LEAST) };
        let time = PATIENCE.max(STEPS * step) - step;
        room.min(((time / row) as usize).max(LEAST))
    }
}

/// Rows of those who write, rows of prompts, and how many write.
fn counted(rows: &[usize], wants: &[Want]) -> (usize, usize, usize) {
    let mut counted = (0, 0, 0);
    for (n, want) in rows.iter().zip(wants) {
        match want {
            Want::Steps(_) => {
                counted.0 += n;
                counted.2 += 1;
            }
            Want::Prompt(_) => counted.1 += n,
            Want::Nothing => (),
        }
    }
    counted
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_prompt_alone_takes_all() {
        let pace = Pace::default();
        assert_eq!(pace.deal(&[Want::Prompt(1000)], 512, 0), [512]);
        assert_eq!(pace.deal(&[Want::Prompt(100)], 512, 0), [100]);
        assert_eq!(pace.deal(&[Want::Nothing, Want::Steps(3)], 512, 7), [0, 3]);
        assert!(pace.deal(&[], 512, 7).is_empty());
    }

    /// Beside those who write, prompts get what fits into the time that these may wait.
    #[test]
    fn who_writes_does_not_wait_long() {
        let mut pace = Pace::default();
        let wants = [Want::Steps(1), Want::Prompt(1000)];
        assert_eq!(pace.deal(&wants, 512, 0), [1, 8], "before anything is known");
        pace.ran(&[1, 0], &wants, 0.01);
        pace.ran(&[0, 100], &wants, 0.2);
        assert_eq!(pace.deal(&wants, 512, 0), [1, 95], "190 ms at 2 ms a row");
        let mut pace = Pace::default();
        pace.ran(&[1, 0], &wants, 1.0);
        pace.ran(&[1, 100], &wants, 21.0);
        assert_eq!(pace.deal(&wants, 512, 0), [1, 15], "three steps more at 0.2 s a row");
    }

    proptest! {
        /// Everybody gets as much as the others, or all it wants; nothing is left while somebody wants more.
        #[test]
        fn shares_are_equal(wants in prop::collection::vec((0usize..3, 1usize..200), 1..8), most in 1usize..600, first in 0usize..9) {
            let want = |(kind, n): &(usize, usize)| match kind {
                0 => Want::Nothing,
                1 => Want::Steps(*n % 4 + 1),
                _ => Want::Prompt(*n),
            };
            let wants: Vec<Want> = wants.iter().map(want).collect();
            let pace = Pace::default();
            let rows = pace.deal(&wants, most, first);
            let writes: usize = wants.iter().map(|w| w.written()).sum();
            let (mut read, mut asked, mut least, mut greatest) = (0, 0, usize::MAX, 0);
            for (n, want) in rows.iter().zip(&wants) {
                match want {
                    Want::Nothing => prop_assert_eq!(*n, 0),
                    Want::Steps(all) => prop_assert_eq!(n, all),
                    Want::Prompt(all) => {
                        prop_assert!(n <= all);
                        (read, asked) = (read + n, asked + all);
                        greatest = greatest.max(*n);
                        if n < all {
                            least = least.min(*n);
                        }
                    }
                }
            }
            let room = pace.room(writes, most);
            prop_assert_eq!(read, room.min(asked));
            prop_assert!(least == usize::MAX || greatest <= least + 1, "{:?}", rows);
        }
    }
}
