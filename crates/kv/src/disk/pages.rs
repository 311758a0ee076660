//! Buffers of whole pages, and a few of them kept for the next.

use std::sync::{Mutex, PoisonError};

/// What records are made of: what disks read and write at once, and what direct input and output asks buffers to start at.
pub(super) const PAGE: usize = 4096;

#[repr(C, align(4096))]
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
struct Page([u8; PAGE]);

/// Whole pages of memory; what a fresh one holds is anything.
pub(super) struct PageBuffer {
    /// At least `n`.
    pages: Vec<Page>,
    n: usize,
}

impl PageBuffer {
    pub(super) fn bytes(&self) -> &[u8] {
        bytemuck::cast_slice(&self.pages[..self.n])
    }

    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        bytemuck::cast_slice_mut(&mut self.pages[..self.n])
    }
}

/// Buffers that nobody uses, at most so many bytes: fresh pages cost more than the bytes copied to them.
pub(super) struct Buffers {
    free: Mutex<Vec<Vec<Page>>>,
    most: usize,
}

impl Buffers {
    pub(super) fn new(most: usize) -> Buffers {
        Buffers { free: Mutex::new(Vec::new()), most }
    }

    /// A buffer of `n` pages; `None` if there is no memory.
    pub(super) fn take(&self, n: usize) -> Option<PageBuffer> {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        // those that were given back last are likely still in the processor's cache
        let at = free.iter().rposition(|pages| pages.len() >= n && pages.len() <= 2 * n);
        let found = at.map(|at| free.remove(at));
        drop(free);
        let pages = match found {
            Some(pages) => pages,
            None => {
                let mut pages = Vec::new();
                pages.try_reserve_exact(n).ok()?;
                pages.resize(n, Page([0; PAGE]));
                pages
            }
        };
        Some(PageBuffer { pages, n })
    }

    /// Keep a buffer for the next; the oldest go where there are too many.
    pub(super) fn give(&self, buffer: PageBuffer) {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        free.push(buffer.pages);
        let bytes = |free: &[Vec<Page>]| free.iter().map(|pages| pages.len() * PAGE).sum::<usize>();
        while bytes(&free) > self.most {
            free.remove(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_aligned_and_used_again_within_the_bound() {
        let buffers = Buffers::new(5 * PAGE);
        let start = |buffer: &PageBuffer| buffer.bytes().as_ptr();
        let (one, four) = (buffers.take(3).unwrap(), buffers.take(4).unwrap());
        assert_eq!((one.bytes().len(), start(&one).align_offset(PAGE)), (3 * PAGE, 0));
        let at = start(&four);
        buffers.give(one);
        buffers.give(four);
        assert_eq!(buffers.free.lock().unwrap().len(), 1, "seven pages are too many");
        assert_ne!(start(&buffers.take(1).unwrap()), at, "a small one would waste it");
        let again = buffers.take(2).unwrap();
        assert_eq!((start(&again), again.bytes().len()), (at, 2 * PAGE));
    }
}
