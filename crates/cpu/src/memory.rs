//! Memory that threads share by agreement: huge-page buffers and slices with disjoint writers.

use std::num::NonZero;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use kv::HostMemory;
use program::{Error, Result};

const HUGE_PAGE: usize = 2 << 20;

/// The smallest unit of memory that systems give and take.
const PAGE: usize = 4096;

/// Returns freed memory that the allocator still holds to the operating system. glibc keeps small freed blocks until `malloc_trim` is
/// called. With any other allocator this function does nothing.
pub fn release_free_memory() {
    #[cfg(all(target_os = "linux", target_env = "gnu", not(miri)))]
    {
        unsafe extern "C" {
            fn malloc_trim(pad: usize) -> std::ffi::c_int;
        }
        // SAFETY: it may be called at any time, by any thread (glibc manual, 3.2.3.12); it locks each arena.
        unsafe { malloc_trim(0) };
    }
}

/// Zeroed anonymous memory, aligned to 2 MiB and advised as huge pages where that helps. Pages are taken as they are
/// touched.
pub(crate) struct Buffer {
    base: NonNull<u8>,
    mapped: usize,
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: plain memory; access rules are those of the references handed out.
unsafe impl Send for Buffer {}
// SAFETY: as above.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// `len` zeroed bytes for `what`.
    pub(crate) fn new(len: usize, what: &'static str) -> Result<Buffer> {
        if len == 0 {
            return Ok(Buffer::empty());
        }
        let out_of_memory = || Error::Memory { what, bytes: len as u64 };
        let mapped = len.checked_next_multiple_of(HUGE_PAGE).and_then(|l| l.checked_add(HUGE_PAGE));
        // a slice is no longer than that
        let mapped = mapped.filter(|mapped| isize::try_from(*mapped).is_ok());
        let mapped = mapped.ok_or_else(out_of_memory)?;
        let base = map(mapped).ok_or_else(out_of_memory)?;
        let offset = base.as_ptr().align_offset(HUGE_PAGE);
        // SAFETY: `mapped` leaves room for `offset < HUGE_PAGE` before `len` bytes.
        let start = unsafe { base.add(offset) };
        if len >= HUGE_PAGE {
            advise_huge(start, len);
        }
        Ok(Buffer { base, mapped, start, len })
    }

    /// The bytes.
    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: the mapping covers `len` initialised bytes; writers hold `&mut self` or a `Shared`.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }

    /// The memory as numbers of type `T`, for many writers.
    pub(crate) fn shared_as<T: Number>(&mut self) -> Shared<'_, T> {
        Shared {
            start: self.start.as_ptr().cast(),
            len: self.len / size_of::<T>(),
            owner: std::marker::PhantomData,
        }
    }

    /// No memory.
    pub(crate) fn empty() -> Buffer {
        let start =
            NonNull::without_provenance(NonZero::new(HUGE_PAGE).expect("a page has a size"));
        Buffer { base: start, mapped: 0, start, len: 0 }
    }

    /// Bytes asked for.
    pub(crate) fn len(&self) -> usize {
        self.len
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if self.mapped > 0 {
            unmap(self.base, self.mapped);
        }
    }
}

/// Miri has no huge pages: plain memory stands in for them. What no system has would end Miri, so it is refused here.
#[cfg(miri)]
fn layout(len: usize) -> Option<std::alloc::Layout> {
    let layout = std::alloc::Layout::from_size_align(len, HUGE_PAGE).ok();
    layout.filter(|layout| layout.size() < 1 << 32)
}

#[cfg(miri)]
fn map(len: usize) -> Option<NonNull<u8>> {
    // SAFETY: a `Buffer` is never empty here.
    NonNull::new(unsafe { std::alloc::alloc_zeroed(layout(len)?) })
}

#[cfg(miri)]
fn unmap(base: NonNull<u8>, len: usize) {
    if let Some(layout) = layout(len) {
        // SAFETY: `map` allocated it with this layout, and nothing refers to it any more.
        unsafe { std::alloc::dealloc(base.as_ptr(), layout) }
    }
}

#[cfg(all(unix, not(miri)))]
fn map(len: usize) -> Option<NonNull<u8>> {
    use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
    // SAFETY: a fresh private anonymous mapping aliases nothing.
    let base = unsafe {
        mmap_anonymous(
            std::ptr::null_mut(),
            len,
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::PRIVATE,
        )
    };
    base.ok().and_then(|base| NonNull::new(base.cast()))
}

#[cfg(all(unix, not(miri)))]
fn unmap(base: NonNull<u8>, len: usize) {
    // SAFETY: `Buffer` made this mapping and nothing refers to it any more. A failure leaks memory, no more.
    let _ = unsafe { rustix::mm::munmap(base.as_ptr().cast(), len) };
}

#[cfg(all(target_os = "linux", not(miri)))]
fn advise_huge(start: NonNull<u8>, len: usize) {
    // SAFETY: advice on our own mapping; it never changes contents. Refusal only costs speed.
    let _ = unsafe {
        rustix::mm::madvise(start.as_ptr().cast(), len, rustix::mm::Advice::LinuxHugepage)
    };
}

/// Have no huge pages where there are none yet: what is given back within one would come again with it.
#[cfg(all(target_os = "linux", not(miri)))]
fn refuse_huge(start: NonNull<u8>, len: usize) {
    // SAFETY: as above.
    let _ = unsafe {
        rustix::mm::madvise(start.as_ptr().cast(), len, rustix::mm::Advice::LinuxNoHugepage)
    };
}

/// Whether the pages of memory that is nobody's else take none any more; zeros are read of them.
#[cfg(all(target_os = "linux", not(miri)))]
fn release_pages(start: NonNull<u8>, len: usize) -> bool {
    let advice = rustix::mm::Advice::LinuxDontNeed;
    // SAFETY: the pages are within a private anonymous mapping of ours, and the caller has the only reference to them.
    unsafe { rustix::mm::madvise(start.as_ptr().cast(), len, advice) }.is_ok()
}

#[cfg(any(miri, all(unix, not(target_os = "linux"))))]
fn release_pages(_start: NonNull<u8>, _len: usize) -> bool {
    false
}

#[cfg(any(miri, all(unix, not(target_os = "linux"))))]
fn advise_huge(_start: NonNull<u8>, _len: usize) {}

#[cfg(any(miri, all(unix, not(target_os = "linux"))))]
fn refuse_huge(_start: NonNull<u8>, _len: usize) {}

/// Cache blocks in huge pages: a step reads a little of every layer's and head's part, and would miss the TLB at each. Few that
/// fill none lie in small ones, for with the first that is written all of a huge page is in memory.
pub(crate) struct HugePages;

/// Blocks that are allocated together: enough to lie in huge pages but for a sixteenth, if they can.
fn blocks_per_buffer(bytes: usize) -> usize {
    let few = (HUGE_PAGE / bytes.max(1)).max(1);
    let fills = |n: &usize| {
        let len = n.saturating_mul(bytes);
        len >= HUGE_PAGE && len % HUGE_PAGE <= len / 16
    };
    (few..few + 16).find(fills).unwrap_or(few)
}

impl kv::Store for HugePages {
    type Memory = CacheMemory;

    fn allocate(&self, kind: kv::BlockKind, most: usize) -> Option<Vec<CacheMemory>> {
        let bytes = kind.bytes;
        let n = blocks_per_buffer(bytes).min(most);
        let buffer = Buffer::new(n.checked_mul(bytes)?, "the cache").ok()?;
        let is_huge = AtomicBool::new(buffer.len() >= HUGE_PAGE);
        if buffer.len() < HUGE_PAGE {
            // where the system has huge pages unasked
            refuse_huge(buffer.start, buffer.len());
        }
        let batch = Arc::new(CacheBatch { buffer, is_huge });
        let block = |i: usize| {
            // SAFETY: the buffer is `n * bytes` long.
            let start = unsafe { batch.buffer.start.add(i * bytes) };
            CacheMemory { start, len: bytes, batch: Arc::clone(&batch) }
        };
        Some((0..n).map(block).collect())
    }

    fn copy(&self, from: &CacheMemory, to: &mut CacheMemory) {
        to.bytes_mut().copy_from_slice(from.bytes());
    }

    fn save(&self, from: &CacheMemory, take: &mut dyn FnMut(&[u8])) {
        take(from.bytes());
    }

    fn load(&self, bytes: &[u8], to: &mut CacheMemory) {
        to.bytes_mut().copy_from_slice(bytes);
    }

    fn is_apart(&self, memory: &CacheMemory) -> bool {
        !memory.batch.is_huge.load(Ordering::Relaxed)
    }

    fn release(&self, memory: &mut CacheMemory) -> bool {
        if memory.batch.is_huge.swap(false, Ordering::Relaxed) {
            refuse_huge(memory.batch.buffer.start, memory.batch.buffer.len());
        }
        // pages that it shares with its neighbours stay
        let before = memory.start.as_ptr().align_offset(PAGE);
        let pages = memory.len.saturating_sub(before) / PAGE * PAGE;
        // SAFETY: `before` is at most the length wherever there are pages.
        let start = unsafe { memory.start.add(before.min(memory.len)) };
        pages == 0 || release_pages(start, pages)
    }
}

/// A part of a buffer that nobody else has.
pub(crate) struct CacheMemory {
    start: NonNull<u8>,
    len: usize,
    /// Keeps the memory.
    batch: Arc<CacheBatch>,
}

/// Blocks that were allocated together.
struct CacheBatch {
    buffer: Buffer,
    /// Whether its memory may come as huge pages.
    is_huge: AtomicBool,
}

// SAFETY: plain memory; access rules are those of the references handed out.
unsafe impl Send for CacheMemory {}
// SAFETY: as above.
unsafe impl Sync for CacheMemory {}

impl HostMemory for CacheMemory {
    fn bytes(&self) -> &[u8] {
        // SAFETY: the buffer covers `len` initialised bytes; `allocate` gave them to this part alone.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and `&mut self` is the only way to them.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

/// Types for which any bytes are a value, and whose alignment a page has.
pub(crate) trait Number {}
impl Number for u8 {}
impl Number for i8 {}
impl Number for i32 {}
impl Number for u32 {}
impl Number for f32 {}

/// A slice that several threads write at once, each its own part.
#[derive(Clone, Copy)]
pub(crate) struct Shared<'a, T> {
    start: *mut T,
    len: usize,
    owner: std::marker::PhantomData<&'a mut [T]>,
}

// SAFETY: every access goes through the unsafe methods, whose callers promise disjoint writers.
unsafe impl<T: Send> Send for Shared<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Shared<'_, T> {}

impl<'a, T> Shared<'a, T> {
    /// Share an exclusive slice.
    pub(crate) fn new(slice: &'a mut [T]) -> Shared<'a, T> {
        Shared { start: slice.as_mut_ptr(), len: slice.len(), owner: std::marker::PhantomData }
    }

    /// Part of it, to write.
    ///
    /// # Safety
    /// Until the section ends, no other reference to any of these elements may be used.
    #[cfg_attr(debug_assertions, track_caller)]
    pub(crate) unsafe fn slice_mut(&self, range: Range<usize>) -> &'a mut [T] {
        self.record(&range, true);
        assert!(range.start <= range.end && range.end <= self.len, "part outside the shared slice");
        // SAFETY: in bounds by the assertion.
        let start = unsafe { self.start.add(range.start) };
        // SAFETY: in bounds, initialised, and exclusive by the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(start, range.len()) }
    }

    /// Write one element.
    ///
    /// # Safety
    /// As [`slice_mut`](Self::slice_mut).
    #[inline(always)]
    #[cfg_attr(debug_assertions, track_caller)]
    pub(crate) unsafe fn write(&self, index: usize, value: T) {
        self.record(&(index..index + 1), true);
        assert!(index < self.len, "element outside the shared slice");
        // SAFETY: in bounds by the assertion.
        let place = unsafe { self.start.add(index) };
        // SAFETY: in bounds, and exclusive by the caller's promise; numbers have nothing to drop.
        unsafe { place.write(value) }
    }

    /// Tell the pool what is used: workers that get in each other's way are found.
    #[inline(always)]
    #[cfg_attr(debug_assertions, track_caller)]
    fn record(&self, range: &Range<usize>, writes: bool) {
        if !cfg!(debug_assertions) {
            return;
        }
        let address = |index: usize| self.start as usize + index * size_of::<T>();
        let bytes = address(range.start)..address(range.end);
        crate::pool::record::used(bytes, writes, std::panic::Location::caller());
    }

    /// Elements.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// All of it, to write.
    ///
    /// # Safety
    /// As [`slice_mut`](Self::slice_mut).
    pub(crate) unsafe fn all_mut(&self) -> &'a mut [T] {
        // SAFETY: the caller's promise.
        unsafe { self.slice_mut(0..self.len) }
    }

    /// A slice that must only be read through the result.
    pub(crate) fn read_only(slice: &'a [T]) -> Shared<'a, T> {
        Shared {
            start: slice.as_ptr().cast_mut(),
            len: slice.len(),
            owner: std::marker::PhantomData,
        }
    }

    /// Part of it, to read.
    ///
    /// # Safety
    /// No thread may write any of these elements until the section ends.
    #[cfg_attr(debug_assertions, track_caller)]
    pub(crate) unsafe fn slice(&self, range: Range<usize>) -> &'a [T] {
        self.record(&range, false);
        assert!(range.start <= range.end && range.end <= self.len, "part outside the shared slice");
        // SAFETY: in bounds by the assertion.
        let start = unsafe { self.start.add(range.start) };
        // SAFETY: in bounds, initialised, and without writers by the caller's promise.
        unsafe { std::slice::from_raw_parts(start, range.len()) }
    }
}

impl<'a> Shared<'a, u8> {
    /// The same memory as whole floats.
    ///
    /// # Panics
    /// If it does not begin where a float may.
    pub(crate) fn floats(&self) -> Shared<'a, f32> {
        let start = self.start.cast::<f32>();
        assert!(start.is_aligned(), "memory of floats");
        Shared { start, len: self.len / size_of::<f32>(), owner: std::marker::PhantomData }
    }

    /// The same memory as numbers.
    ///
    /// # Panics
    /// If it does not begin where a number may.
    pub(crate) fn words(&self) -> Shared<'a, u32> {
        let start = self.start.cast::<u32>();
        assert!(start.is_aligned(), "memory of numbers");
        Shared { start, len: self.len / size_of::<u32>(), owner: std::marker::PhantomData }
    }
}

#[cfg(test)]
mod tests {
    use kv::Store;

    use super::*;

    #[test]
    fn buffers_are_zeroed_aligned_and_writable() {
        for len in [0, 1, 4096, if cfg!(miri) { 5 << 10 } else { 5 << 20 }] {
            let mut buffer = Buffer::new(len, "a test").expect("little memory");
            assert_eq!(buffer.bytes().as_ptr().align_offset(HUGE_PAGE), 0);
            assert!(buffer.bytes().iter().all(|b| *b == 0));
            if len > 0 {
                // SAFETY: the only reference.
                let last = unsafe { buffer.shared_as::<u8>().slice_mut(len - 1..len) };
                last[0] = 7;
                assert_eq!(buffer.bytes()[len - 1], 7);
            }
        }
    }

    #[test]
    fn cache_blocks_fill_huge_pages_and_do_not_overlap() {
        for bytes in [64, 96 << 10, 128 << 10, 1 << 20, 1_500_032, 5 << 20] {
            let n = blocks_per_buffer(bytes);
            let (len, small) = (n * bytes, n * bytes % HUGE_PAGE);
            assert!(len >= HUGE_PAGE && small <= len / 16, "{n} blocks of {bytes}");
        }
        let mut blocks = HugePages.allocate(kv::BlockKind::of(96 << 10), 3).expect("little memory");
        assert_eq!(blocks.len(), 3);
        for (i, block) in blocks.iter_mut().enumerate() {
            assert!(block.bytes().iter().all(|b| *b == 0), "fresh");
            block.bytes_mut().fill(i as u8 + 1);
        }
        let last = blocks.pop().expect("three");
        drop(blocks);
        assert!(last.bytes().iter().all(|b| *b == 3), "one block keeps the memory");
        assert!(HugePages.allocate(kv::BlockKind::of(usize::MAX), 1).is_none());
    }

    /// Within a budget any mixture of sizes that fits is had: what was allocated beside others counts when it is written.
    #[test]
    #[cfg_attr(any(miri, not(target_os = "linux")), ignore = "nothing is given back there")]
    fn a_budget_is_there_for_any_size() {
        let sizes = [24 << 10, 96 << 10, 160 << 10];
        let budget: usize = sizes.iter().sum::<usize>() * 4;
        let pool = kv::BlockPool::new(HugePages, Some(budget as u64));
        let table =
            |bytes| kv::Tables::new(&pool, [kv::TableSpec::all(1, bytes)].into(), 100, None);
        let mut all = sizes.map(table);
        for tables in &mut all {
            tables.prepare(4).expect("exactly what there is");
            tables.extend(&[0; 4]).expect("just prepared");
        }
        assert!(all[0].prepare(5).is_err(), "no more than that");
        // freed blocks of batches that others still use serve other sizes
        all[2].truncate(1).expect("it has more");
        let more = 3 * sizes[2] / sizes[0];
        all[0].prepare(4 + more).expect("the rest for smaller ones");
        assert!(pool.in_use() + pool.free() <= budget as u64);
    }

    /// What lies in a huge page beside a block that is written is in memory, too: it counts, until others need that.
    #[test]
    fn what_is_beside_a_block_in_a_huge_page_counts() {
        let (small, large) = (96 << 10, 160 << 10);
        let budget = 16 << 20;
        let pool = kv::BlockPool::new(HugePages, Some(budget));
        let table =
            |bytes| kv::Tables::new(&pool, [kv::TableSpec::all(1, bytes)].into(), 1000, None);
        let mut first = table(small);
        first.prepare(1).expect("there is room");
        first.extend(&[0]).expect("just prepared");
        let huge = cfg!(not(miri)) as u64 * (HUGE_PAGE as u64 / 8 * 7);
        assert!(pool.in_use() == small as u64 && pool.in_use() + pool.free() >= huge);
        let mut others = table(large);
        if cfg!(not(miri)) {
            others.prepare((budget as usize - small) / large).expect("all the rest");
        }
        assert!(pool.in_use() + pool.free() <= budget);
    }

    #[test]
    fn absurd_sizes_are_refused() {
        assert!(Buffer::new(usize::MAX, "a test").is_err());
        assert!(Buffer::new(1 << 60, "a test").is_err());
    }
}
