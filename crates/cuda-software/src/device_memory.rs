//! Device memory: allocations at made-up addresses, each watched for what was written.
//!
//! An address is `id << 36 | offset`, where the allocation begins 16 GiB after the start of its
//! range: what is before and beyond it belongs to nothing. Ids are never used again, so an
//! address of freed memory is known as such.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use crate::stamps::Stamps;

/// Address bits of one allocation's range.
const RANGE_SHIFT: u32 = 36;
/// Bytes of a range before its allocation.
const GUARD: u64 = 1 << 34;
/// Largest allocation, in bytes.
const LARGEST: u64 = 1 << 35;

/// One allocation. All cells are atomic: blocks on several threads may touch the same word, as on
/// a card, and see either value.
#[derive(Debug)]
pub(crate) struct Allocation {
    base: u64,
    size: u64,
    /// Contents in words of 4 bytes, little endian.
    words: Box<[AtomicU32]>,
    /// One bit for each byte that was written.
    written: Box<[AtomicU32]>,
    /// Bytes that were never written.
    unwritten: AtomicU64,
    /// Accesses by blocks, once a launch watches them.
    stamps: OnceLock<Stamps>,
    /// Last launch whose accesses are watched.
    watched: AtomicU32,
}

/// Words that are zero; pages are mapped when they are first touched.
fn zeroed(words: usize) -> Box<[AtomicU32]> {
    let words = Box::<[AtomicU32]>::new_zeroed_slice(words);
    // SAFETY: an `AtomicU32` of zero bytes is valid; `new_zeroed_slice` established the zeros.
    unsafe { words.assume_init() }
}

impl Allocation {
    fn new(id: u64, size: u64) -> Self {
        Self {
            base: (id << RANGE_SHIFT) + GUARD,
            size,
            words: zeroed((size.div_ceil(4)) as usize),
            written: zeroed((size.div_ceil(32)) as usize),
            unwritten: AtomicU64::new(size),
            stamps: OnceLock::new(),
            watched: AtomicU32::new(0),
        }
    }

    /// Address of the first byte.
    pub(crate) fn base(&self) -> u64 {
        self.base
    }

    /// Size in bytes.
    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// The launch of this number may store here: its accesses are watched.
    pub(crate) fn watch(&self, launch: u32) {
        self.stamps.get_or_init(|| Stamps::new(self.words.len()));
        self.watched.store(launch, Relaxed);
    }

    /// Accesses by blocks of a launch, where they are watched.
    #[inline(always)]
    pub(crate) fn stamps(&self, launch: u32) -> Option<&Stamps> {
        if self.watched.load(Relaxed) == launch { self.stamps.get() } else { None }
    }

    /// Every byte was written.
    #[inline(always)]
    pub(crate) fn is_complete(&self) -> bool {
        self.unwritten.load(Relaxed) == 0
    }

    /// All of up to 16 bytes, which do not cross a multiple of 16, were written.
    #[inline(always)]
    pub(crate) fn is_written(&self, at: u64, bytes: u32) -> bool {
        let mask = ((1_u32 << bytes) - 1) << (at % 32);
        self.written[(at / 32) as usize].load(Relaxed) & mask == mask
    }

    /// Notes that up to 16 bytes, which do not cross a multiple of 16, are written.
    #[inline(always)]
    pub(crate) fn mark(&self, at: u64, bytes: u32) {
        self.mark_bits((at / 32) as usize, ((1_u32 << bytes) - 1) << (at % 32));
    }

    #[inline(always)]
    fn mark_bits(&self, word: usize, mask: u32) {
        let cell = &self.written[word];
        if cell.load(Relaxed) & mask != mask {
            let before = cell.fetch_or(mask, Relaxed);
            let new = (mask & !before).count_ones();
            self.unwritten.fetch_sub(u64::from(new), Relaxed);
        }
    }

    /// Word at a multiple of 4.
    #[inline(always)]
    pub(crate) fn word(&self, at: u64) -> u32 {
        self.words[(at / 4) as usize].load(Relaxed)
    }

    /// Stores a word at a multiple of 4.
    #[inline(always)]
    pub(crate) fn set_word(&self, at: u64, value: u32) {
        self.words[(at / 4) as usize].store(value, Relaxed);
    }

    /// Stores the low 1 or 2 bytes of a value.
    pub(crate) fn set_part(&self, at: u64, bytes: u32, value: u32) {
        let shift = (at % 4) as u32 * 8;
        let mask = ((1_u32 << (bytes * 8)) - 1) << shift;
        let cell = &self.words[(at / 4) as usize];
        let mut old = cell.load(Relaxed);
        loop {
            let new = old & !mask | value << shift & mask;
            match cell.compare_exchange_weak(old, new, Relaxed, Relaxed) {
                Ok(_) => return,
                Err(now) => old = now,
            }
        }
    }

    /// 1 or 2 bytes.
    #[inline(always)]
    pub(crate) fn part(&self, at: u64, bytes: u32) -> u32 {
        let word = self.word(at) >> ((at % 4) as u32 * 8);
        word & ((1_u32 << (bytes * 8)) - 1)
    }

    /// Byte ranges of `[at, at + len)` as words of the bitmap and their bits.
    fn bitmap(at: u64, len: u64) -> impl Iterator<Item = (usize, u32)> {
        let end = at + len;
        let mut next = at;
        std::iter::from_fn(move || {
            if next >= end {
                return None;
            }
            let word = next / 32;
            let stop = end.min((word + 1) * 32);
            let ones = u32::MAX >> (32 - (stop - next) as u32);
            let mask = ones << (next % 32);
            next = stop;
            Some((word as usize, mask))
        })
    }

    /// First byte of a range that was never written.
    pub(crate) fn first_unwritten(&self, at: u64, len: u64) -> Option<u64> {
        if self.is_complete() {
            return None;
        }
        Self::bitmap(at, len).find_map(|(word, mask)| {
            let missing = mask & !self.written[word].load(Relaxed);
            (missing != 0).then(|| word as u64 * 32 + u64::from(missing.trailing_zeros()))
        })
    }

    /// Writes bytes.
    pub(crate) fn write(&self, at: u64, bytes: &[u8]) {
        let mut next = at;
        let mut rest = bytes;
        while !(rest.is_empty() || next.is_multiple_of(4) && rest.len() >= 4) {
            self.set_part(next, 1, u32::from(rest[0]));
            next += 1;
            rest = &rest[1..];
        }
        let (words, tail) = rest.as_chunks::<4>();
        let first = (next / 4) as usize;
        for (cell, word) in self.words[first..].iter().zip(words) {
            cell.store(u32::from_le_bytes(*word), Relaxed);
        }
        next += words.len() as u64 * 4;
        for (&byte, at) in tail.iter().zip(next..) {
            self.set_part(at, 1, u32::from(byte));
        }
        self.mark_range(at, bytes.len() as u64);
    }

    /// Reads bytes.
    pub(crate) fn read(&self, at: u64, bytes: &mut [u8]) {
        let mut next = at;
        let mut rest = bytes;
        while !(rest.is_empty() || next.is_multiple_of(4) && rest.len() >= 4) {
            let (first, others) = rest.split_at_mut(1);
            first[0] = self.part(next, 1) as u8;
            next += 1;
            rest = others;
        }
        let (words, tail) = rest.as_chunks_mut::<4>();
        let first = (next / 4) as usize;
        for (cell, word) in self.words[first..].iter().zip(words.iter_mut()) {
            *word = cell.load(Relaxed).to_le_bytes();
        }
        next += words.len() as u64 * 4;
        for (byte, at) in tail.iter_mut().zip(next..) {
            *byte = self.part(at, 1) as u8;
        }
    }

    /// Fills with a pattern of 1 or 4 bytes (then at a multiple of 4).
    pub(crate) fn fill(&self, at: u64, len: u64, pattern: [u8; 4]) {
        let end = at + len;
        let mut next = at;
        while next < end {
            if next.is_multiple_of(4) && end - next >= 4 {
                self.set_word(next, u32::from_le_bytes(pattern));
                next += 4;
            } else {
                self.set_part(next, 1, u32::from(pattern[(next % 4) as usize]));
                next += 1;
            }
        }
        self.mark_range(at, len);
    }

    fn mark_range(&self, at: u64, len: u64) {
        if !self.is_complete() {
            Self::bitmap(at, len).for_each(|(word, mask)| self.mark_bits(word, mask));
        }
    }

    /// Copies a range from another allocation, and what is known of each byte.
    pub(crate) fn copy_from(&self, at: u64, from: &Self, from_at: u64, len: u64) {
        let mut buffer = [0; 4096];
        let mut done = 0;
        while done < len {
            let step = (len - done).min(4096);
            let bytes = &mut buffer[..step as usize];
            from.read(from_at + done, bytes);
            self.write_unmarked(at + done, bytes);
            done += step;
        }
        if from.first_unwritten(from_at, len).is_none() {
            self.mark_range(at, len);
            return;
        }
        for i in 0..len {
            if from.is_written(from_at + i, 1) {
                self.mark(at + i, 1);
            } else {
                self.unmark(at + i);
            }
        }
    }

    fn write_unmarked(&self, at: u64, bytes: &[u8]) {
        if at.is_multiple_of(4) && bytes.len().is_multiple_of(4) {
            let first = (at / 4) as usize;
            for (cell, word) in self.words[first..].iter().zip(bytes.as_chunks::<4>().0) {
                cell.store(u32::from_le_bytes(*word), Relaxed);
            }
        } else {
            for (&byte, at) in bytes.iter().zip(at..) {
                self.set_part(at, 1, u32::from(byte));
            }
        }
    }

    fn unmark(&self, at: u64) {
        let mask = 1_u32 << (at % 32);
        let before = self.written[(at / 32) as usize].fetch_and(!mask, Relaxed);
        if before & mask != 0 {
            self.unwritten.fetch_add(1, Relaxed);
        }
    }
}

/// State of an allocation id.
#[derive(Debug)]
enum Slot {
    Live(Box<Allocation>),
    /// Its size in bytes.
    Freed(u64),
}

/// All device memory.
#[derive(Debug)]
pub(crate) struct DeviceMemory {
    /// Index `i` is id `i + 1`.
    slots: Vec<Slot>,
    used: u64,
    live: usize,
    capacity: u64,
}

impl DeviceMemory {
    /// Memory of a capacity in bytes.
    pub(crate) fn new(capacity: u64) -> Self {
        Self { slots: Vec::new(), used: 0, live: 0, capacity }
    }

    /// Changes the capacity, where nothing is allocated.
    pub(crate) fn set_capacity(&mut self, capacity: u64) {
        if self.used == 0 {
            self.capacity = capacity;
        }
    }

    /// Capacity in bytes.
    pub(crate) fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Bytes of live allocations, each rounded up to 512 as a card does.
    pub(crate) fn used(&self) -> u64 {
        self.used
    }

    /// Number of live allocations.
    pub(crate) fn live(&self) -> usize {
        self.live
    }

    /// Allocates; `None` where the capacity does not suffice.
    pub(crate) fn allocate(&mut self, size: u64) -> Option<u64> {
        let rounded = size.checked_next_multiple_of(512)?;
        if rounded > self.capacity - self.used || size > LARGEST {
            return None;
        }
        let allocation = Box::new(Allocation::new(self.slots.len() as u64 + 1, size));
        let base = allocation.base;
        self.slots.push(Slot::Live(allocation));
        self.used += rounded;
        self.live += 1;
        Some(base)
    }

    /// Frees the allocation that begins at an address; false where there is none.
    pub(crate) fn free(&mut self, address: u64) -> bool {
        match self.find(address) {
            Some(allocation) if allocation.base == address => {}
            _ => return false,
        }
        let slot = &mut self.slots[(address >> RANGE_SHIFT) as usize - 1];
        if let Slot::Live(allocation) = slot {
            let size = allocation.size;
            self.used -= size.next_multiple_of(512);
            self.live -= 1;
            *slot = Slot::Freed(size);
        }
        true
    }

    /// Frees everything; addresses of it stay unused.
    pub(crate) fn clear(&mut self) {
        for slot in &mut self.slots {
            if let Slot::Live(allocation) = slot {
                *slot = Slot::Freed(allocation.size);
            }
        }
        self.used = 0;
        self.live = 0;
    }

    /// Live allocation in whose range an address is; the address may be outside its bytes.
    #[inline]
    pub(crate) fn find(&self, address: u64) -> Option<&Allocation> {
        let id = (address >> RANGE_SHIFT) as usize;
        match self.slots.get(id.wrapping_sub(1)) {
            Some(Slot::Live(allocation)) => Some(allocation),
            _ => None,
        }
    }

    /// Allocation and offset of a range that is within one.
    pub(crate) fn range(&self, address: u64, len: u64) -> Option<(&Allocation, u64)> {
        let allocation = self.find(address)?;
        let at = address.checked_sub(allocation.base)?;
        (at <= allocation.size && len <= allocation.size - at).then_some((allocation, at))
    }

    /// Where an address is, in words.
    pub(crate) fn describe(&self, address: u64) -> String {
        let id = address >> RANGE_SHIFT;
        let Some(slot) = self.slots.get((id as usize).wrapping_sub(1)) else {
            return "no allocation was ever there".to_owned();
        };
        let (size, state) = match slot {
            Slot::Live(allocation) => (allocation.size, ""),
            Slot::Freed(size) => (*size, "freed "),
        };
        let base = (id << RANGE_SHIFT) + GUARD;
        let at = address.cast_signed().wrapping_sub(base.cast_signed());
        let place = if at < 0 {
            format!("{} bytes before", -at)
        } else if at.cast_unsigned() >= size {
            format!("{} bytes beyond", at.cast_unsigned() - size)
        } else {
            format!("byte {at} of")
        };
        format!("{place} {state}allocation {id} ({size} bytes at {base:#x})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_marked_byte_by_byte() {
        let mut memory = DeviceMemory::new(1 << 20);
        let base = memory.allocate(101).expect("fits");
        let (a, _) = memory.range(base, 101).expect("is live");
        assert_eq!(a.first_unwritten(0, 101), Some(0));
        a.write(3, &[7; 95]);
        assert_eq!(a.first_unwritten(3, 95), None);
        assert_eq!(a.first_unwritten(3, 96), Some(98));
        let mut out = [0; 10];
        a.read(1, &mut out);
        assert_eq!(out, [0, 0, 7, 7, 7, 7, 7, 7, 7, 7]);
        a.fill(0, 3, [9; 4]);
        a.fill(98, 3, [9; 4]);
        assert!(a.is_complete());
        assert!(memory.range(base, 102).is_none());
        assert!(memory.range(base + 101, 0).is_some());
    }

    #[test]
    fn copies_keep_what_was_unwritten() {
        let mut memory = DeviceMemory::new(1 << 20);
        let a = memory.allocate(64).expect("fits");
        let b = memory.allocate(64).expect("fits");
        let (a, _) = memory.range(a, 64).expect("is live");
        let (b, _) = memory.range(b, 64).expect("is live");
        a.write(0, &[1; 30]);
        b.fill(0, 64, [2; 4]);
        b.copy_from(8, a, 0, 40);
        assert_eq!(b.first_unwritten(0, 64), Some(38));
        assert_eq!(b.part(37, 1), 1);
        assert!(b.is_written(48, 1));
    }

    #[test]
    fn freed_and_foreign_addresses_are_described() {
        let mut memory = DeviceMemory::new(4096);
        assert!(memory.allocate(5000).is_none());
        let base = memory.allocate(100).expect("fits");
        assert!(memory.describe(base + 104).starts_with("4 bytes beyond allocation 1"));
        assert!(memory.describe(base - 4).starts_with("4 bytes before allocation 1"));
        assert!(!memory.free(base + 4));
        assert!(memory.free(base));
        assert!(!memory.free(base));
        assert!(memory.describe(base).starts_with("byte 0 of freed allocation 1"));
        assert!(memory.describe(12).starts_with("no allocation"));
        assert_eq!((memory.used(), memory.live()), (0, 0));
    }
}
