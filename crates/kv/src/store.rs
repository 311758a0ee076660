//! Who owns the memory of blocks.

/// What tells the blocks of one pool apart: those of one kind take each other's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BlockKind {
    /// Bytes of a block.
    pub bytes: usize,
    /// Which memory it lies in, of a store that has several; else 0.
    pub area: usize,
}

impl BlockKind {
    /// So many bytes in a store that has one memory.
    pub fn of(bytes: usize) -> BlockKind {
        BlockKind { bytes, area: 0 }
    }

    /// Bytes of a block.
    pub(crate) fn size(self) -> u64 {
        self.bytes as u64
    }
}

/// Makes and copies the memory of blocks. Tables need no more: a block may lie where only a device can read it.
pub trait Store: Send + Sync {
    /// The memory of one block; it goes back when this is dropped.
    type Memory: Send + Sync;

    /// New memory for one block of this kind or several, at most `most`, which is at least 1: blocks that are made together
    /// may share pages and are given back together. `None` if there is no memory.
    fn allocate(&self, kind: BlockKind, most: usize) -> Option<Vec<Self::Memory>>;

    /// Make `to` equal `from`; both are of one kind.
    fn copy(&self, from: &Self::Memory, to: &mut Self::Memory);

    /// Hand out the bytes of a block, once.
    fn save(&self, from: &Self::Memory, take: &mut dyn FnMut(&[u8]));

    /// Make a block's bytes these, which are as many.
    fn load(&self, bytes: &[u8], to: &mut Self::Memory);

    /// Whether a new block takes no memory until it is written itself, whatever is written beside it. Only asked of a store that
    /// [releases](Self::release).
    fn is_apart(&self, memory: &Self::Memory) -> bool {
        let _ = memory;
        true
    }

    /// Give back the memory that a free block takes beside others it was made with, until it is written again; what it
    /// holds is anything then. Whether that can be done; by default it cannot.
    fn release(&self, memory: &mut Self::Memory) -> bool {
        let _ = memory;
        false
    }
}

/// Memory that the host can read and write. What a fresh block holds is zeros or what an earlier one held.
pub trait HostMemory: Send + Sync {
    /// The bytes, the first at a cache line.
    fn bytes(&self) -> &[u8];

    /// The bytes, for writing.
    fn bytes_mut(&mut self) -> &mut [u8];
}

/// The heap; every block is an allocation of its own.
#[derive(Clone, Copy, Debug, Default)]
pub struct Heap;

impl Store for Heap {
    type Memory = HeapMemory;

    fn allocate(&self, kind: BlockKind, _most: usize) -> Option<Vec<HeapMemory>> {
        let bytes = kind.bytes;
        let mut lines = Vec::new();
        lines.try_reserve_exact(bytes.div_ceil(LINE)).ok()?;
        lines.resize(bytes.div_ceil(LINE), Line([0; LINE]));
        Some(vec![HeapMemory { lines, bytes }])
    }

    fn copy(&self, from: &HeapMemory, to: &mut HeapMemory) {
        to.bytes_mut().copy_from_slice(from.bytes());
    }

    fn save(&self, from: &HeapMemory, take: &mut dyn FnMut(&[u8])) {
        take(from.bytes());
    }

    fn load(&self, bytes: &[u8], to: &mut HeapMemory) {
        to.bytes_mut().copy_from_slice(bytes);
    }
}

pub(crate) const LINE: usize = 64;

/// Bytes that start at a cache line.
#[repr(C, align(64))]
#[derive(Clone, Copy, Debug, bytemuck::Pod, bytemuck::Zeroable)]
struct Line([u8; LINE]);

/// A block on the heap.
#[derive(Debug)]
pub struct HeapMemory {
    lines: Vec<Line>,
    bytes: usize,
}

impl HostMemory for HeapMemory {
    fn bytes(&self) -> &[u8] {
        &bytemuck::cast_slice(&self.lines)[..self.bytes]
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut bytemuck::cast_slice_mut(&mut self.lines)[..self.bytes]
    }
}
