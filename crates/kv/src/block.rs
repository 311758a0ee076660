//! One block of positions: where each head's regions are in it, and the memory it is made of.

use std::ops::Range;

/// Positions in a block.
pub const BLOCK: usize = 256;

/// Bytes that start at a cache line.
#[repr(C, align(64))]
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
struct Line([u8; LINE]);

const LINE: usize = 64;

/// Where the heads of one layer are in a block: `[head][keys | values]`, every region at a cache line.
///
/// Heads are contiguous, so threads can write different heads of one block through disjoint slices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Layout {
    n_kv_heads: usize,
    key_bytes: usize,
    value_bytes: usize,
}

impl Layout {
    /// `key_bytes` and `value_bytes` are what one head's keys and values take in one block.
    pub fn new(n_kv_heads: usize, key_bytes: usize, value_bytes: usize) -> Layout {
        Layout { n_kv_heads, key_bytes, value_bytes }
    }

    /// Key-value heads.
    pub fn n_kv_heads(&self) -> usize {
        self.n_kv_heads
    }

    /// Bytes of one head: what lies between the starts of neighbours.
    pub fn head_bytes(&self) -> usize {
        self.key_bytes.next_multiple_of(LINE) + self.value_bytes.next_multiple_of(LINE)
    }

    /// Bytes of one block.
    pub fn block_bytes(&self) -> usize {
        self.n_kv_heads * self.head_bytes()
    }

    /// Where a head's keys are in a block.
    pub fn keys(&self, head: usize) -> Range<usize> {
        let start = head * self.head_bytes();
        start..start + self.key_bytes
    }

    /// Where a head's values are in a block.
    pub fn values(&self, head: usize) -> Range<usize> {
        let start = head * self.head_bytes() + self.key_bytes.next_multiple_of(LINE);
        start..start + self.value_bytes
    }

    /// The regions of each head of a block: keys and values.
    pub fn heads<'a>(
        &self,
        block: &'a [u8],
    ) -> impl ExactSizeIterator<Item = (&'a [u8], &'a [u8])> + use<'a> {
        let layout = *self;
        block
            .chunks_exact(layout.head_bytes().max(1))
            .map(move |head| (&head[layout.keys(0)], &head[layout.values(0)]))
    }
}

/// Memory of a block, at a cache line: zeros, or what an earlier block held.
pub trait Memory: Send + Sync {
    /// The bytes.
    fn bytes(&self) -> &[u8];

    /// The bytes, for writing.
    fn bytes_mut(&mut self) -> &mut [u8];
}

/// Where the memory of blocks comes from: an executor may know better pages than the heap's.
pub trait Allocator: Send + Sync {
    /// `bytes` zeros; `None` if there is no such memory.
    fn zeroed(&self, bytes: usize) -> Option<Box<dyn Memory>>;
}

/// The heap.
#[derive(Clone, Copy, Debug, Default)]
pub struct Heap;

impl Allocator for Heap {
    fn zeroed(&self, bytes: usize) -> Option<Box<dyn Memory>> {
        let mut lines = Vec::new();
        lines.try_reserve_exact(bytes.div_ceil(LINE)).ok()?;
        lines.resize(bytes.div_ceil(LINE), Line([0; LINE]));
        Some(Box::new(Lines { lines, bytes }))
    }
}

struct Lines {
    lines: Vec<Line>,
    bytes: usize,
}

impl Memory for Lines {
    fn bytes(&self) -> &[u8] {
        &bytemuck::cast_slice(&self.lines)[..self.bytes]
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut bytemuck::cast_slice_mut(&mut self.lines)[..self.bytes]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regions_are_disjoint_and_aligned() {
        let layout = Layout::new(3, 100, 130);
        assert_eq!((layout.head_bytes(), layout.block_bytes()), (128 + 192, 3 * 320));
        let mut block = Heap.zeroed(layout.block_bytes()).unwrap();
        assert_eq!(block.bytes().len(), layout.block_bytes());
        assert_eq!(block.bytes().as_ptr().align_offset(64), 0);
        for head in 0..3 {
            block.bytes_mut()[layout.keys(head)].fill(1 + 2 * head as u8);
            block.bytes_mut()[layout.values(head)].fill(2 + 2 * head as u8);
        }
        for head in 0..3 {
            assert!(
                layout.keys(head).start.is_multiple_of(64)
                    && layout.values(head).start.is_multiple_of(64)
            );
            assert!(block.bytes()[layout.keys(head)].iter().all(|b| *b == 1 + 2 * head as u8));
            assert!(block.bytes()[layout.values(head)].iter().all(|b| *b == 2 + 2 * head as u8));
        }
        assert_eq!(layout.heads(block.bytes()).len(), 3);
    }
}
