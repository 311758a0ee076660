//! Who touched what: in debug builds the workers of a section write down the parts of shared memory they use, and nobody
//! may use what another writes. Between sections nobody may use it at all: nobody waits for a worker there, others may be in any
//! later section. The rules are the same for all instruction sets and numbers of threads, so that tests with small models
//! show what would be a race in large ones.

use std::cell::RefCell;
use std::ops::Range;
use std::panic::Location;

use super::sync::{Mutex, PoisonError};

/// One use of shared memory.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Access {
    /// Addresses.
    bytes: Range<usize>,
    writes: bool,
    place: &'static Location<'static>,
}

impl Access {
    /// Take `next` in, if it goes on where this ends.
    fn extend(&mut self, next: &Access) -> bool {
        let on = self.bytes.end == next.bytes.start || self.bytes == next.bytes;
        let alike = on && self.writes == next.writes && self.place == next.place;
        if alike {
            self.bytes.end = next.bytes.end;
        }
        alike
    }
}

/// Where a thread is.
#[derive(Default)]
enum Stage {
    /// In no job, or in one before its first section: each worker takes its own parts.
    #[default]
    Before,
    /// Behind a section, and in no other yet.
    Between,
    /// What it used since it came into a section.
    Inside(Vec<Access>),
}

thread_local! {
    static STAGE: RefCell<Stage> = const { RefCell::new(Stage::Before) };
}

/// Write down that this thread uses these addresses, if it is in a section.
///
/// # Panics
/// Between sections.
pub(crate) fn used(bytes: Range<usize>, writes: bool, place: &'static Location<'static>) {
    STAGE.with_borrow_mut(|stage| {
        let used = match stage {
            Stage::Before => return,
            Stage::Between => {
                let does = if writes { "writes" } else { "reads" };
                panic!("a worker {does} shared memory at {place} between sections: nobody waits for it there")
            }
            Stage::Inside(used) => used,
        };
        let access = Access { bytes, writes, place };
        if access.bytes.is_empty() || used.last_mut().is_some_and(|last| last.extend(&access)) {
            return;
        }
        used.push(access);
    });
}

/// What the workers of a section used that have left it.
pub(super) struct Record(Mutex<OfSection>);

#[derive(Default)]
struct OfSection {
    number: u64,
    /// By worker.
    used: Vec<(usize, Vec<Access>)>,
}

impl Record {
    pub(super) fn new() -> Record {
        Record(Mutex::new(OfSection::default()))
    }

    /// This thread comes to a job, or has done its part of one.
    pub(super) fn begin() {
        STAGE.set(Stage::Before);
    }

    /// This thread comes into a section.
    pub(super) fn enter() {
        STAGE.set(Stage::Inside(Vec::new()));
    }

    /// This thread passes a section that others have ended.
    pub(super) fn pass() {
        STAGE.set(Stage::Between);
    }

    /// Worker `index` has done its part of section `number`.
    ///
    /// # Panics
    /// If it used what another worker of the section wrote, or wrote what another used.
    pub(super) fn leave(&self, number: u64, index: usize) {
        let Stage::Inside(mut mine) = STAGE.replace(Stage::Between) else { return };
        mine.sort_unstable_by_key(|access| access.bytes.start);
        let clash = {
            let mut record = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            if record.number != number {
                *record = OfSection { number, used: Vec::new() };
            }
            let others = record.used.iter().filter(|(other, _)| *other != index);
            let clash = others.clone().find_map(|(other, theirs)| {
                clash(&mine, theirs).map(|(a, b)| (*other, a.clone(), b.clone()))
            });
            record.used.push((index, mine));
            clash
        };
        if let Some((other, mine, theirs)) = clash {
            let does = |access: &Access| if access.writes { "writes" } else { "reads" };
            panic!(
                "worker {index} {} at {} what worker {other} {} at {} in the same section",
                does(&mine),
                mine.place,
                does(&theirs),
                theirs.place,
            );
        }
    }
}

/// Two uses of the same bytes of which one writes; both lists ascend by their first bytes.
fn clash<'a>(a: &'a [Access], b: &'a [Access]) -> Option<(&'a Access, &'a Access)> {
    // of each list, what reaches furthest so far, among all uses and among those that write
    let (mut reach, mut i, mut j) = ([[None; 2]; 2], 0, 0);
    while i < a.len() || j < b.len() {
        let from_a = j == b.len() || i < a.len() && a[i].bytes.start <= b[j].bytes.start;
        let (access, list) = if from_a { (&a[i], 0) } else { (&b[j], 1) };
        *(if from_a { &mut i } else { &mut j }) += 1;
        let others: [Option<&Access>; 2] = reach[1 - list];
        let other = others[usize::from(!access.writes)];
        if let Some(other) = other.filter(|other| other.bytes.end > access.bytes.start) {
            return Some(if from_a { (access, other) } else { (other, access) });
        }
        let further = |best: &Option<&Access>| best.is_none_or(|b| b.bytes.end < access.bytes.end);
        let [all, writing] = &mut reach[list];
        if further(all) {
            *all = Some(access);
        }
        if access.writes && further(writing) {
            *writing = Some(access);
        }
    }
    None
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn uses_clash_where_one_writes() {
        let place = Location::caller();
        let access = |start, end, writes| Access { bytes: start..end, writes, place };
        let clashes = |a: &[Access], b: &[Access]| clash(a, b).is_some();
        let reads = [access(0, 4, false), access(8, 20, false), access(9, 10, false)];
        assert!(!clashes(&reads, &reads));
        assert!(!clashes(&reads, &[access(4, 8, true), access(20, 30, true)]));
        assert!(clashes(&reads, &[access(3, 5, true)]));
        assert!(clashes(&[access(3, 5, true)], &reads));
        // a long use is not forgotten for a short one after it
        assert!(clashes(&reads, &[access(19, 20, true)]));
        assert!(clashes(&[access(0, 100, true), access(1, 2, true)], &[access(50, 51, false)]));
        assert!(!clashes(&[access(0, 100, false), access(1, 2, true)], &[access(50, 51, false)]));
        assert!(clashes(&[access(0, 100, false), access(1, 2, true)], &[access(50, 51, true)]));
    }
}
