//! Memory that threads share by agreement: huge-page buffers and slices with disjoint writers.

use std::num::NonZero;
use std::ops::Range;
use std::ptr::NonNull;

use program::{Error, Result};

const HUGE_PAGE: usize = 2 << 20;

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

#[cfg(unix)]
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

#[cfg(unix)]
fn unmap(base: NonNull<u8>, len: usize) {
    // SAFETY: `Buffer` made this mapping and nothing refers to it any more. A failure leaks memory, no more.
    let _ = unsafe { rustix::mm::munmap(base.as_ptr().cast(), len) };
}

#[cfg(target_os = "linux")]
fn advise_huge(start: NonNull<u8>, len: usize) {
    // SAFETY: advice on our own mapping; it never changes contents. Refusal only costs speed.
    let _ = unsafe {
        rustix::mm::madvise(start.as_ptr().cast(), len, rustix::mm::Advice::LinuxHugepage)
    };
}

#[cfg(all(unix, not(target_os = "linux")))]
fn advise_huge(_start: NonNull<u8>, _len: usize) {}

/// Cache blocks in huge pages: a step reads a little of every layer's and head's part, and would miss the TLB at each.
pub(crate) struct HugePages;

impl kv::Allocator for HugePages {
    fn zeroed(&self, bytes: usize) -> Option<Box<dyn kv::Memory>> {
        Some(Box::new(Buffer::new(bytes, "the cache").ok()?))
    }
}

impl kv::Memory for Buffer {
    fn bytes(&self) -> &[u8] {
        Buffer::bytes(self)
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: the mapping covers `len` initialised bytes, and `&mut self` is the only way to them.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

/// Types for which any bytes are a value, and whose alignment a page has.
pub(crate) trait Number {}
impl Number for u8 {}
impl Number for i8 {}
impl Number for i32 {}
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
    /// Until the workers next meet at a barrier, no other reference to any of these elements may be used.
    pub(crate) unsafe fn slice_mut(&self, range: Range<usize>) -> &'a mut [T] {
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
    pub(crate) unsafe fn write(&self, index: usize, value: T) {
        assert!(index < self.len, "element outside the shared slice");
        // SAFETY: in bounds by the assertion.
        let place = unsafe { self.start.add(index) };
        // SAFETY: in bounds, and exclusive by the caller's promise; numbers have nothing to drop.
        unsafe { place.write(value) }
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
    /// No thread may write any of these elements until the workers next meet at a barrier.
    pub(crate) unsafe fn slice(&self, range: Range<usize>) -> &'a [T] {
        assert!(range.start <= range.end && range.end <= self.len, "part outside the shared slice");
        // SAFETY: in bounds by the assertion.
        let start = unsafe { self.start.add(range.start) };
        // SAFETY: in bounds, initialised, and without writers by the caller's promise.
        unsafe { std::slice::from_raw_parts(start, range.len()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_zeroed_aligned_and_writable() {
        for len in [0, 1, 4096, 5 << 20] {
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
    fn absurd_sizes_are_refused() {
        assert!(Buffer::new(usize::MAX, "a test").is_err());
        assert!(Buffer::new(1 << 60, "a test").is_err());
    }
}
