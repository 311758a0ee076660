//! Buffers of whole pages, and a few of them kept for the next.

use std::sync::{Mutex, PoisonError};

/// What records are made of: what disks read and write at once, and what direct input and output asks buffers to start at.
pub(super) const PAGE: usize = 4096;

#[repr(C, align(4096))]
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
struct Page([u8; PAGE]);

/// Whole pages of memory; what a fresh one holds is anything.
pub struct PageBuffer {
    /// At least `n`.
    pages: Vec<Page>,
    n: usize,
}

impl PageBuffer {
    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        bytemuck::cast_slice(&self.pages[..self.n])
    }

    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        bytemuck::cast_slice_mut(&mut self.pages[..self.n])
    }
}

/// Buffers that nobody uses, at most so many bytes: fresh pages cost more than the bytes copied to them.
pub struct PageBuffers {
    free: Mutex<Vec<Vec<Page>>>,
    most: usize,
}

impl PageBuffers {
    /// None yet; at most `most` bytes are kept.
    pub fn new(most: usize) -> PageBuffers {
        PageBuffers { free: Mutex::new(Vec::new()), most }
    }

    /// A buffer of `n` pages; `None` if there is no memory.
    pub fn take(&self, n: usize) -> Option<PageBuffer> {
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
    pub fn give(&self, buffer: PageBuffer) {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        free.push(buffer.pages);
        while bytes(&free) > self.most {
            free.remove(0);
        }
    }

    /// Bytes of the buffers that are kept.
    pub fn kept(&self) -> usize {
        bytes(&self.free.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn bytes(buffers: &[Vec<Page>]) -> usize {
    buffers.iter().map(|pages| pages.len() * PAGE).sum()
}
