//! Where the heads of one cache are in a block of bytes.

use std::ops::Range;

use crate::store::LINE;

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
}
