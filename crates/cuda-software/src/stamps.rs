//! Which blocks of the running launch read and wrote each word of an allocation.
//!
//! Blocks of one launch run in any order. Where one reads what another writes, or both write
//! different values, a card may show either outcome. A load by `ld.global.nc` must not see a word
//! that is written in the same launch at all, not even by its own thread.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Several blocks.
const MANY: u32 = 0x7fff_ffff;
/// Flag of a read by `ld.global.nc`.
const CONSTANT: u32 = 1 << 31;

/// Launch and block that access memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stamp {
    /// Number of the launch, not 0.
    pub(crate) launch: u32,
    /// Number of the block, under 2^31 - 1.
    pub(crate) block: u32,
}

/// What an access conflicts with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Conflict {
    /// The other access wrote; else it read.
    pub(crate) wrote: bool,
    /// The other block; `None` for several.
    pub(crate) block: Option<u32>,
    /// One of the two is a load by `ld.global.nc`.
    pub(crate) constant: bool,
}

/// Last writer and readers of each word, each as `launch << 32 | flags | block`.
#[derive(Debug)]
pub(crate) struct Stamps {
    writers: Box<[AtomicU64]>,
    readers: Box<[AtomicU64]>,
}

fn zeroed(words: usize) -> Box<[AtomicU64]> {
    let words = Box::<[AtomicU64]>::new_zeroed_slice(words);
    // SAFETY: an `AtomicU64` of zero bytes is valid; `new_zeroed_slice` established the zeros.
    unsafe { words.assume_init() }
}

impl Stamps {
    /// Stamps of an allocation of this many words, of no launch.
    pub(crate) fn new(words: usize) -> Self {
        Self { writers: zeroed(words), readers: zeroed(words) }
    }

    /// Notes that a block reads a word. Two blocks may do so at once: a conflict may then be
    /// missed, and is found by another order.
    ///
    /// # Errors
    /// The write of this launch that the read conflicts with.
    #[inline(always)]
    pub(crate) fn read(&self, word: usize, by: Stamp, constant: bool) -> Result<(), Conflict> {
        let writer = self.writers[word].load(Relaxed);
        if (writer >> 32) as u32 == by.launch {
            let block = writer as u32;
            if constant || block != by.block {
                return Err(Conflict { wrote: true, block: Some(block), constant });
            }
        }
        let cell = &self.readers[word];
        let old = cell.load(Relaxed);
        let flag = if constant { CONSTANT } else { 0 };
        let mut low = by.block | flag;
        if (old >> 32) as u32 == by.launch {
            let before = old as u32;
            let block = if before & MANY == by.block { by.block } else { MANY };
            low = block | flag | before & CONSTANT;
        }
        let new = u64::from(by.launch) << 32 | u64::from(low);
        if new != old {
            cell.store(new, Relaxed);
        }
        Ok(())
    }

    /// Notes that a block writes a word; `changes` tells whether its value differs from the one
    /// there.
    ///
    /// # Errors
    /// The access of this launch that the write conflicts with.
    #[inline(always)]
    pub(crate) fn write(&self, word: usize, by: Stamp, changes: bool) -> Result<(), Conflict> {
        let reader = self.readers[word].load(Relaxed);
        if (reader >> 32) as u32 == by.launch {
            let low = reader as u32;
            let (block, constant) = (low & MANY, low & CONSTANT != 0);
            if constant || block != by.block {
                let block = (block != MANY).then_some(block);
                return Err(Conflict { wrote: false, block, constant });
            }
        }
        let cell = &self.writers[word];
        let old = cell.load(Relaxed);
        let new = u64::from(by.launch) << 32 | u64::from(by.block);
        if new != old {
            let other = old as u32;
            if (old >> 32) as u32 == by.launch && changes {
                return Err(Conflict { wrote: true, block: Some(other), constant: false });
            }
            cell.store(new, Relaxed);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_of_one_launch_conflict() {
        let stamps = Stamps::new(4);
        let by = |launch, block| Stamp { launch, block };
        // One block may do as it likes.
        assert_eq!(stamps.read(0, by(1, 5), false), Ok(()));
        assert_eq!(stamps.write(0, by(1, 5), true), Ok(()));
        assert_eq!(stamps.read(0, by(1, 5), false), Ok(()));
        // Another may not, but in the next launch.
        let wrote = Conflict { wrote: true, block: Some(5), constant: false };
        assert_eq!(stamps.read(0, by(1, 6), false), Err(wrote));
        assert_eq!(stamps.read(0, by(2, 6), false), Ok(()));
        let read = Conflict { wrote: false, block: Some(6), constant: false };
        assert_eq!(stamps.write(0, by(2, 5), true), Err(read));
        assert_eq!(stamps.read(0, by(2, 7), false), Ok(()));
        assert_eq!(stamps.write(0, by(2, 7), true), Err(Conflict { block: None, ..read }));
        // Writes of one value.
        assert_eq!(stamps.write(1, by(2, 1), true), Ok(()));
        assert_eq!(stamps.write(1, by(2, 2), false), Ok(()));
        assert_eq!(stamps.write(1, by(2, 3), true), Err(Conflict { block: Some(2), ..wrote }));
        // Constants do not change, even by the same block.
        assert_eq!(stamps.read(2, by(3, 1), true), Ok(()));
        assert_eq!(stamps.read(2, by(3, 1), false), Ok(()));
        let constant = Conflict { wrote: false, block: Some(1), constant: true };
        assert_eq!(stamps.write(2, by(3, 1), false), Err(constant));
        assert_eq!(stamps.write(3, by(3, 1), true), Ok(()));
        let constant = Conflict { wrote: true, block: Some(1), constant: true };
        assert_eq!(stamps.read(3, by(3, 1), true), Err(constant));
    }
}
