//! The exact cache of one session: every position, in order, in blocks that forks share.

use std::ops::Range;
use std::sync::Arc;

use crate::{Allocator, BLOCK, Error, Layout, Memory, Result};

/// A run of cached positions whose keys and values lie in one block.
#[derive(Clone, Copy, Debug)]
pub struct Segment<'a> {
    /// The block, for [`Layout::heads`].
    pub block: &'a [u8],
    /// Position of the block's first row.
    pub first: usize,
    /// How many of its rows, from the first on, are filled; at most [`BLOCK`].
    pub n: usize,
}

/// A block in a step.
#[derive(Debug)]
pub enum View<'a> {
    /// Complete before the step; forks may share it.
    Shared(&'a [u8]),
    /// Rows of the step go here.
    Exclusive(&'a mut [u8]),
}

/// Keys and values of one session, for all caches of a program.
///
/// A step goes `prepare(new_len)`, write rows `len..new_len` through [`views`](Self::views), read
/// [`segments`](Self::segments), `extend(new_len)`. A step that fails before the last leaves `len` as it was.
/// Memory grows with the positions held; what truncation frees is kept for those to come, since fresh pages cost more
/// than the numbers written to them. Forks share blocks and copy the one they extend.
pub struct Contiguous {
    layouts: Arc<[Layout]>,
    allocator: Arc<dyn Allocator>,
    /// Each holds 256 positions of all caches, one cache after another.
    blocks: Vec<Arc<Box<dyn Memory>>>,
    /// Freed blocks, their content as it was.
    spare: Vec<Arc<Box<dyn Memory>>>,
    len: usize,
    committed: usize,
    capacity: usize,
}

impl Contiguous {
    /// An empty cache; `layouts` has one entry per cache, `capacity` is the most positions it may hold.
    pub fn new(
        layouts: Arc<[Layout]>,
        capacity: usize,
        allocator: Arc<dyn Allocator>,
    ) -> Contiguous {
        let (blocks, spare) = (Vec::new(), Vec::new());
        Contiguous { layouts, allocator, blocks, spare, len: 0, committed: 0, capacity }
    }

    /// Positions held, tentative ones included.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether no position is held.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Positions that are permanent; at most [`len`](Self::len).
    pub fn committed(&self) -> usize {
        self.committed
    }

    /// Most positions it may hold.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Layout of each cache.
    pub fn layouts(&self) -> &[Layout] {
        &self.layouts
    }

    /// Bytes of memory the blocks take, freed ones included. Blocks shared with forks count in each.
    pub fn bytes(&self) -> u64 {
        ((self.blocks.len() + self.spare.len()) * self.block_bytes()) as u64
    }

    /// Bytes of 256 positions of all caches.
    fn block_bytes(&self) -> usize {
        self.layouts.iter().map(Layout::block_bytes).sum()
    }

    /// Where a cache lies within a block.
    fn place(&self, cache: usize) -> Range<usize> {
        let start = self.layouts[..cache].iter().map(Layout::block_bytes).sum();
        start..start + self.layouts[cache].block_bytes()
    }

    /// Make the blocks that positions `len..new_len` fall into exist and belong to this cache alone. `len` stays.
    ///
    /// # Errors
    /// [`Error::Capacity`], or [`Error::Memory`]; then the blocks are as before.
    pub fn prepare(&mut self, new_len: usize) -> Result<()> {
        if new_len > self.capacity {
            return Err(Error::Capacity { capacity: self.capacity, wanted: new_len });
        }
        let spare = self.spare.len();
        let made = self.make_exclusive(new_len);
        if made.is_err() {
            self.drop_blocks();
            // memory is short: what was new goes back
            self.spare.truncate(spare);
        }
        made
    }

    fn make_exclusive(&mut self, new_len: usize) -> Result<()> {
        for i in touched(self.len, new_len) {
            match self.blocks.get_mut(i).map(|block| Arc::get_mut(block).is_some()) {
                Some(true) => {}
                Some(false) => {
                    let mut copy = self.block()?;
                    let own = Arc::get_mut(&mut copy).expect("nobody shares a new block");
                    own.bytes_mut().copy_from_slice(self.blocks[i].bytes());
                    self.blocks[i] = copy;
                }
                None => {
                    let block = self.block()?;
                    self.blocks.push(block);
                }
            }
        }
        Ok(())
    }

    /// A block that nobody shares.
    fn block(&mut self) -> Result<Arc<Box<dyn Memory>>> {
        let bytes = self.block_bytes();
        let memory = || Error::Memory { bytes };
        self.blocks.try_reserve(1).map_err(|_| memory())?;
        let fresh = || self.allocator.zeroed(bytes).map(Arc::new);
        self.spare.pop().or_else(fresh).ok_or_else(memory)
    }

    /// Positions `len..new_len` were written: hold them, tentatively.
    ///
    /// # Errors
    /// [`Error::Length`] if `new_len` is not between `len` and what was prepared.
    pub fn extend(&mut self, new_len: usize) -> Result<()> {
        let prepared = (self.blocks.len() * BLOCK).min(self.capacity);
        if new_len < self.len || new_len > prepared {
            return Err(Error::Length { len: prepared, wanted: new_len });
        }
        self.len = new_len;
        Ok(())
    }

    /// Make the first `len` positions permanent.
    ///
    /// # Errors
    /// [`Error::Length`] if it holds fewer.
    pub fn commit(&mut self, len: usize) -> Result<()> {
        self.check(len)?;
        self.committed = self.committed.max(len);
        Ok(())
    }

    /// Keep the first `len` positions only.
    ///
    /// # Errors
    /// [`Error::Length`] if it holds fewer.
    pub fn truncate(&mut self, len: usize) -> Result<()> {
        self.check(len)?;
        self.len = len;
        self.committed = self.committed.min(len);
        self.drop_blocks();
        Ok(())
    }

    /// Another cache with the first `len` positions, which it shares until one of the two writes there.
    ///
    /// # Errors
    /// [`Error::Length`] if it holds fewer.
    pub fn fork(&self, len: usize) -> Result<Contiguous> {
        self.check(len)?;
        let kept = len.div_ceil(BLOCK);
        Ok(Contiguous {
            layouts: Arc::clone(&self.layouts),
            allocator: Arc::clone(&self.allocator),
            blocks: self.blocks[..kept].to_vec(),
            spare: Vec::new(),
            len,
            committed: self.committed.min(len),
            capacity: self.capacity,
        })
    }

    /// All blocks of every cache, for a step that writes `positions`: `[cache][block]`.
    ///
    /// # Panics
    /// If the blocks of `positions` were not [prepared](Self::prepare).
    pub fn views(&mut self, positions: Range<usize>) -> Vec<Vec<View<'_>>> {
        let written = touched(positions.start, positions.end);
        let mut views: Vec<Vec<View<'_>>> = self.layouts.iter().map(|_| Vec::new()).collect();
        for (i, block) in self.blocks.iter_mut().enumerate() {
            let caches = views.iter_mut().zip(self.layouts.iter().map(Layout::block_bytes));
            if written.contains(&i) {
                let memory =
                    Arc::get_mut(block).expect("`prepare` made the block this cache's own");
                let mut rest = memory.bytes_mut();
                for (views, bytes) in caches {
                    let (cache, after) = rest.split_at_mut(bytes);
                    views.push(View::Exclusive(cache));
                    rest = after;
                }
            } else {
                let mut rest = block.bytes();
                for (views, bytes) in caches {
                    let (cache, after) = rest.split_at(bytes);
                    views.push(View::Shared(cache));
                    rest = after;
                }
            }
        }
        views
    }

    /// The first `len` positions of a cache, written ones beyond [`len`](Self::len) included.
    ///
    /// # Panics
    /// If they were not [prepared](Self::prepare).
    pub fn segments(&self, cache: usize, len: usize) -> impl ExactSizeIterator<Item = Segment<'_>> {
        let place = self.place(cache);
        self.blocks[..len.div_ceil(BLOCK)].iter().enumerate().map(move |(i, block)| Segment {
            block: &block.bytes()[place.clone()],
            first: i * BLOCK,
            n: (len - i * BLOCK).min(BLOCK),
        })
    }

    fn check(&self, len: usize) -> Result<()> {
        if len > self.len {
            return Err(Error::Length { len: self.len, wanted: len });
        }
        Ok(())
    }

    /// Blocks beyond `len` are spare from here on, unless a fork still needs them.
    fn drop_blocks(&mut self) {
        let freed = self.blocks.drain(self.len.div_ceil(BLOCK)..);
        self.spare.extend(
            freed.filter_map(|mut block| Arc::get_mut(&mut block).is_some().then_some(block)),
        );
    }
}

impl std::fmt::Debug for Contiguous {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Contiguous")
            .field("len", &self.len)
            .field("committed", &self.committed)
            .field("capacity", &self.capacity)
            .field("bytes", &self.bytes())
            .finish_non_exhaustive()
    }
}

/// Blocks that positions `from..to` fall into.
fn touched(from: usize, to: usize) -> Range<usize> {
    let end = to.div_ceil(BLOCK);
    (from / BLOCK).min(end)..end
}
