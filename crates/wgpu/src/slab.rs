//! [`Slab`]: the blocks of one cache of a model, of all its sessions, as stretches of one buffer on the device.
//!
//! The pool of `kv` decides which blocks there are; here they get their places. Nothing is done on the device before a step
//! wants it: the buffer grows, and blocks are copied and cleared, before the step's own submission.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kv::{BlockKind, Store};

/// Places of blocks begin at multiples of so many bytes, which a step's tables count in.
pub(crate) const PLACE: u64 = 16;

/// Where blocks lie in a buffer that does not have to exist yet.
#[derive(Debug)]
pub(crate) struct Slab {
    /// Most bytes of it.
    limit: u64,
    places: Mutex<Places>,
}

/// What is to be done to blocks before anything else is written, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SlabWork {
    /// One becomes what another is.
    Copy { from: u64, to: u64, bytes: u64 },
    /// One becomes zeros.
    Clear { at: u64, bytes: u64 },
}

impl SlabWork {
    /// Where it writes.
    fn target(&self) -> u64 {
        match *self {
            SlabWork::Copy { to, .. } => to,
            SlabWork::Clear { at, .. } => at,
        }
    }

    /// Bytes that the buffer must have for it.
    fn end(&self) -> u64 {
        match *self {
            SlabWork::Copy { from, to, bytes } => from.max(to) + bytes,
            SlabWork::Clear { at, bytes } => at + bytes,
        }
    }
}

#[derive(Debug, Default)]
struct Places {
    /// Free stretches: where they begin, and their bytes. No two touch, and none touches the end.
    free: BTreeMap<u64, u64>,
    /// Bytes that the buffer must have.
    end: u64,
    works: Vec<SlabWork>,
    /// What open sessions may take at most.
    claimed: u64,
}

/// Bytes of a slab's buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlabRoom {
    /// It must have so many.
    pub(crate) least: u64,
    /// More than so many, open sessions will not want.
    claimed: u64,
    limit: u64,
}

impl SlabRoom {
    /// What one that `has` so many grows to: half as much again, so that it does not grow with every block.
    pub(crate) fn suited(&self, has: u64) -> u64 {
        self.least.max((has + has / 2).min(self.claimed)).min(self.limit.max(self.least))
    }
}

/// What one session may take of each slab, for as long as it is open.
#[derive(Debug)]
pub(crate) struct SlabClaim {
    slabs: Arc<[Slab]>,
    bytes: Vec<u64>,
}

impl SlabClaim {
    /// So many bytes, by slab.
    pub(crate) fn new(slabs: &Arc<[Slab]>, bytes: Vec<u64>) -> SlabClaim {
        slabs.iter().zip(&bytes).for_each(|(slab, bytes)| slab.places().claimed += bytes);
        SlabClaim { slabs: Arc::clone(slabs), bytes }
    }
}

impl Clone for SlabClaim {
    fn clone(&self) -> SlabClaim {
        SlabClaim::new(&self.slabs, self.bytes.clone())
    }
}

impl Drop for SlabClaim {
    fn drop(&mut self) {
        self.slabs.iter().zip(&self.bytes).for_each(|(slab, bytes)| slab.places().claimed -= bytes);
    }
}

impl Places {
    fn take(&mut self, bytes: u64, limit: u64) -> Option<u64> {
        let fits = self.free.iter().find(|(_, len)| **len >= bytes);
        if let Some((&at, &len)) = fits {
            self.free.remove(&at);
            if len > bytes {
                self.free.insert(at + bytes, len - bytes);
            }
            return Some(at);
        }
        let end = self.end.checked_add(bytes).filter(|end| *end <= limit)?;
        let at = self.end;
        self.end = end;
        Some(at)
    }

    fn give(&mut self, mut at: u64, mut bytes: u64) {
        // what becomes of it concerns nobody, unless another is to become the same
        let inside = |place: u64| (at..at + bytes).contains(&place);
        let is_read =
            |work: &SlabWork| matches!(work, SlabWork::Copy { from, .. } if inside(*from));
        if !self.works.iter().any(is_read) {
            self.works.retain(|work| !inside(work.target()));
        }
        if let Some((&before, &len)) = self.free.range(..at).next_back()
            && before + len == at
        {
            self.free.remove(&before);
            (at, bytes) = (before, bytes + len);
        }
        if let Some(len) = self.free.remove(&(at + bytes)) {
            bytes += len;
        }
        // what nobody holds at the end need not be there: it may be why memory ran out
        if at + bytes == self.end {
            self.end = at;
        } else {
            self.free.insert(at, bytes);
        }
    }
}

impl Slab {
    /// An empty one of at most `limit` bytes.
    pub(crate) fn new(limit: u64) -> Slab {
        Slab { limit, places: Mutex::default() }
    }

    fn places(&self) -> MutexGuard<'_, Places> {
        // every change is whole
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What room the buffer is to have.
    pub(crate) fn room(&self) -> SlabRoom {
        let places = self.places();
        let worked_on = places.works.iter().map(SlabWork::end).max().unwrap_or(PLACE);
        let least = places.end.max(worked_on).max(PLACE);
        SlabRoom { least, claimed: places.claimed, limit: self.limit }
    }

    /// What was asked for since the last call.
    pub(crate) fn take_works(&self) -> Vec<SlabWork> {
        std::mem::take(&mut self.places().works)
    }

    /// What could not be done, to be done before what was asked for since.
    pub(crate) fn put_back(&self, mut works: Vec<SlabWork>) {
        let mut places = self.places();
        works.append(&mut places.works);
        places.works = works;
    }
}

/// A block's place. It is free again when this is dropped.
#[derive(Debug)]
pub(crate) struct BlockPlace {
    at: u64,
    bytes: u64,
    area: usize,
    slabs: Arc<[Slab]>,
}

impl BlockPlace {
    /// Where it begins, in units of [`PLACE`].
    pub(crate) fn number(&self) -> u32 {
        u32::try_from(self.at / PLACE).expect("a slab has less than 64 GiB")
    }

    /// Make it zeros before the next step.
    pub(crate) fn clear(&self) {
        let work = SlabWork::Clear { at: self.at, bytes: self.bytes };
        self.slabs[self.area].places().works.push(work);
    }
}

impl Drop for BlockPlace {
    fn drop(&mut self) {
        self.slabs[self.area].places().give(self.at, self.bytes);
    }
}

/// Hands out places of slabs, one for each cache.
#[derive(Clone, Debug)]
pub(crate) struct SlabStore(pub(crate) Arc<[Slab]>);

impl Store for SlabStore {
    type Memory = BlockPlace;

    fn allocate(&self, kind: BlockKind, _most: usize) -> Option<Vec<BlockPlace>> {
        let bytes = (kind.bytes as u64).next_multiple_of(PLACE);
        let slab = &self.0[kind.area];
        let at = slab.places().take(bytes, slab.limit)?;
        Some(vec![BlockPlace { at, bytes, area: kind.area, slabs: Arc::clone(&self.0) }])
    }

    fn copy(&self, from: &BlockPlace, to: &mut BlockPlace) {
        let work = SlabWork::Copy { from: from.at, to: to.at, bytes: from.bytes };
        self.0[from.area].places().works.push(work);
    }

    fn save(&self, _from: &BlockPlace, _take: &mut dyn FnMut(&[u8])) {
        unreachable!("pools on a device have no disk")
    }

    fn load(&self, _bytes: &[u8], _to: &mut BlockPlace) {
        unreachable!("pools on a device have no disk")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stores() -> SlabStore {
        SlabStore([Slab::new(1000), Slab::new(1000)].into())
    }

    fn one(store: &SlabStore, bytes: usize, area: usize) -> Option<BlockPlace> {
        store.allocate(BlockKind { bytes, area }, 1).map(|mut made| made.remove(0))
    }

    #[test]
    fn places_are_used_again_and_never_twice() {
        let store = stores();
        let slab = &store.0[0];
        let one = |bytes| one(&store, bytes, 0);
        let [a, b, c] = [96, 32, 160].map(|bytes| one(bytes).expect("there is room"));
        assert_eq!([a.at, b.at, c.at], [0, 96, 128]);
        drop(b);
        let e = one(48).expect("there is room");
        assert_eq!(e.at, 288, "a hole that is too small");
        drop(a);
        // the first two are one stretch now
        let d = one(128).expect("there is room");
        assert_eq!((d.at, slab.room().least), (0, 336));
        assert!(one(800).is_none(), "beyond the limit");
        let mut copy = one(160).expect("there is room");
        store.copy(&c, &mut copy);
        copy.clear();
        let works = [
            SlabWork::Copy { from: 128, to: 336, bytes: 160 },
            SlabWork::Clear { at: 336, bytes: 160 },
        ];
        let taken = slab.take_works();
        assert_eq!(taken, works);
        d.clear();
        slab.put_back(taken);
        assert_eq!(slab.take_works()[..2], works, "in their order");
    }

    /// What a step took and gave back must not be asked of the device again.
    #[test]
    fn the_end_comes_back() {
        let store = stores();
        let [a, b, c] = [96, 32, 160].map(|bytes| one(&store, bytes, 0).expect("there is room"));
        drop(b);
        assert_eq!(store.0[0].room().least, 288, "something lies behind it");
        drop(c);
        assert_eq!(store.0[0].room().least, 96);
        drop(a);
        assert_eq!(store.0[0].room().least, PLACE);
    }

    /// Nothing is done to places that nobody holds, where no buffer need be, unless another's content comes of it.
    #[test]
    fn works_of_places_that_are_given_back() {
        let store = stores();
        let [a, b] = [96, 32].map(|bytes| one(&store, bytes, 0).expect("there is room"));
        let mut copy = one(&store, 96, 0).expect("there is room");
        b.clear();
        drop(b);
        assert!(store.0[0].take_works().is_empty());
        a.clear();
        store.copy(&a, &mut copy);
        drop(a);
        assert_eq!(store.0[0].take_works().len(), 2, "the copy becomes what the first was");
        copy.clear();
        drop(copy);
        assert_eq!((store.0[0].room().least, store.0[0].take_works().len()), (PLACE, 0));
    }

    /// Buffers grow by half, but not beyond what anybody may want or what the device has.
    #[test]
    fn buffers_grow_to_what_suits() {
        let store = stores();
        let claims = [500, 300].map(|bytes| SlabClaim::new(&store.0, vec![bytes, 0]));
        let _place = one(&store, 420, 0).expect("there is room");
        assert_eq!(store.0[0].room().suited(400), 600);
        let more = claims[1].clone();
        assert_eq!(store.0[0].room().suited(800), 1000, "no more than the limit");
        drop((claims, more));
        assert_eq!(store.0[0].room().suited(400), 432, "whole places");
    }

    /// What one cache takes leaves the others' room.
    #[test]
    fn each_cache_has_room_of_its_own() {
        let store = stores();
        let a = one(&store, 900, 0).expect("there is room");
        assert!(one(&store, 900, 0).is_none());
        let b = one(&store, 900, 1).expect("there is room");
        assert_eq!((a.at, b.at), (0, 0));
    }
}
