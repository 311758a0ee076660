//! Sections: stretches of a job that all workers go through in the same order, each a list of items to take.
//!
//! A section ends when its items are done, not when every worker has come: who is not there when it ends skips it. So a
//! worker whose core went to another program delays the others by the item it holds, if any, and by no more. What a
//! section writes is seen by all that come after it; what a worker prepares for itself must be prepared within the
//! section that uses it.

use super::sync::{AtomicU64, Ordering};

/// Bits of [`Sections::state`] that count workers. The other 48 count sections, which lasts for 29 years of 300,000 a second.
const INSIDE_BITS: u32 = 16;
/// One worker among them.
const ONE: u64 = 1;
/// These bits.
const INSIDE: u64 = (1 << INSIDE_BITS) - 1;

/// Bits of [`Cursor`] that count items.
const TAKEN_BITS: u32 = 24;
/// These bits.
const TAKEN: u64 = (1 << TAKEN_BITS) - 1;

/// The open section and its list.
pub(super) struct Sections {
    /// Number of the open section, and in the low bits how many workers are inside.
    state: AtomicU64,
    /// `[worker]`.
    cursors: Vec<Cursor>,
}

/// How far a worker's share of a list is taken: number of the section, without the bits that have no room, and in the low bits
/// items taken of it.
#[repr(align(128))]
struct Cursor(AtomicU64);

impl Sections {
    /// For a team of `n`.
    pub(super) fn new(n: usize) -> Sections {
        // no cursor has been used in section 1
        Sections::starting_at(1, n)
    }

    /// For a team of `n` whose next section has this number, and whose shares were last taken in section 0.
    pub(super) fn starting_at(number: u64, n: usize) -> Sections {
        assert!((n as u64) < INSIDE, "workers are counted in {INSIDE_BITS} bits");
        let state = AtomicU64::new(number << INSIDE_BITS);
        Sections { state, cursors: (0..n).map(|_| Cursor(AtomicU64::new(0))).collect() }
    }

    /// Number of the open section.
    pub(super) fn open(&self) -> u64 {
        self.state.load(Ordering::Acquire) >> INSIDE_BITS
    }

    /// Go into section `number`; false if it has ended.
    pub(super) fn enter(&self, number: u64) -> bool {
        let mut state = self.state.load(Ordering::Relaxed);
        while state >> INSIDE_BITS == number {
            let more = state + ONE;
            match self.state.compare_exchange_weak(
                state,
                more,
                Ordering::Acquire,
                Ordering::Relaxed,
            ) {
                Ok(_) => return true,
                Err(now) => state = now,
            }
        }
        debug_assert!(state >> INSIDE_BITS > number, "a section is entered after the one before");
        false
    }

    /// Leave section `number`, whose list is exhausted. The last to leave opens the next.
    pub(super) fn leave(&self, number: u64) {
        let before = self.state.fetch_sub(ONE, Ordering::AcqRel);
        debug_assert!(before >> INSIDE_BITS == number && before & INSIDE > 0);
        if before & INSIDE == ONE {
            let (empty, next) = (number << INSIDE_BITS, (number + 1) << INSIDE_BITS);
            // it fails where another came in meanwhile, who finds nothing to do and leaves after us
            let _ = self.state.compare_exchange(empty, next, Ordering::AcqRel, Ordering::Relaxed);
        }
    }

    /// Leave section `number` for a while, if somebody else is inside, who ends it if need be.
    pub(super) fn step_out(&self, number: u64) -> bool {
        let mut state = self.state.load(Ordering::Relaxed);
        loop {
            debug_assert_eq!(state >> INSIDE_BITS, number, "nobody ends a section with us inside");
            if state & INSIDE <= ONE {
                return false;
            }
            let less = state - ONE;
            match self.state.compare_exchange_weak(
                state,
                less,
                Ordering::Release,
                Ordering::Relaxed,
            ) {
                Ok(_) => return true,
                Err(now) => state = now,
            }
        }
    }

    /// Whatever happened in it, end the open section. Call while no worker is in a job.
    pub(super) fn reset(&self) {
        self.state.store((self.open() + 1) << INSIDE_BITS, Ordering::Release);
    }

    /// The next item of `owner`'s share of the list of section `number`, counted from the share's first.
    fn next(&self, owner: usize, number: u64) -> usize {
        let cursor = &self.cursors[owner].0;
        let started = number << TAKEN_BITS;
        loop {
            let taken = cursor.load(Ordering::Relaxed);
            if taken & !TAKEN == started {
                return (cursor.fetch_add(1, Ordering::Relaxed) & TAKEN) as usize;
            }
            // the first to take starts the count: nobody is left in the section it was last used in
            let first = started | 1;
            let swapped =
                cursor.compare_exchange(taken, first, Ordering::Relaxed, Ordering::Relaxed);
            if swapped.is_ok() {
                return 0;
            }
        }
    }
}

/// The items of a list that a worker takes.
pub(super) struct Items<'a> {
    pub(super) sections: &'a Sections,
    pub(super) number: u64,
    /// The worker.
    pub(super) index: usize,
    /// Workers in the team.
    pub(super) n: usize,
    /// Items in the list.
    pub(super) len: usize,
    /// Shares that are exhausted: its own comes first, then those after it.
    pub(super) done: usize,
}

impl Iterator for Items<'_> {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        let Items { sections, number, index, n, len, .. } = *self;
        while self.done < n {
            let owner = (index + self.done) % n;
            let share = owner * len / n..(owner + 1) * len / n;
            if !share.is_empty() {
                let item = share.start + sections.next(owner, number);
                if item < share.end {
                    return Some(item);
                }
            }
            self.done += 1;
        }
        None
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Numbers that have more bits than the counts of items leave.
    #[test]
    fn lists_are_taken_once_where_numbers_grow_long() {
        let first = (1 << (u64::BITS - TAKEN_BITS)) - 2;
        let sections = Sections::starting_at(first, 2);
        for number in first..first + 5 {
            assert_eq!(sections.open(), number);
            assert!(sections.enter(number));
            let items = |index| Items { sections: &sections, number, index, n: 2, len: 9, done: 0 };
            let mut taken: Vec<usize> = items(0).take(3).chain(items(1)).collect();
            taken.sort_unstable();
            assert_eq!(taken, Vec::from_iter(0..9), "section {number}");
            sections.leave(number);
            assert!(!sections.enter(number));
        }
    }
}
