//! [`Slab`]: the cache blocks of a model, as stretches of one buffer on the device.
//!
//! The pool of `kv` decides which blocks there are; here they get their places. Nothing is done on the device before a step
//! does it: the buffer grows, and blocks are copied, at the beginning of the step's own submission.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kv::Store;

/// Places of blocks begin at multiples of so many bytes, which a step's tables count in.
pub(crate) const PLACE: u64 = 16;

/// Where blocks lie in a buffer that does not have to exist yet.
#[derive(Debug)]
pub(crate) struct Slab {
    /// Most bytes of it.
    limit: u64,
    places: Mutex<Places>,
}

#[derive(Debug, Default)]
struct Places {
    /// Free stretches: where they begin, and their bytes. No two touch.
    free: BTreeMap<u64, u64>,
    /// Bytes that the buffer must have.
    end: u64,
    /// Blocks to be made equal: from, to, bytes. In this order, before anything else is written.
    copies: Vec<[u64; 3]>,
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
        if let Some((&before, &len)) = self.free.range(..at).next_back()
            && before + len == at
        {
            self.free.remove(&before);
            (at, bytes) = (before, bytes + len);
        }
        if let Some(len) = self.free.remove(&(at + bytes)) {
            bytes += len;
        }
        self.free.insert(at, bytes);
    }
}

impl Slab {
    /// An empty one of at most `limit` bytes.
    pub(crate) fn new(limit: u64) -> Arc<Slab> {
        Arc::new(Slab { limit, places: Mutex::default() })
    }

    fn places(&self) -> MutexGuard<'_, Places> {
        // every change is whole
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes that the buffer must have, and most that it may have.
    pub(crate) fn bytes(&self) -> [u64; 2] {
        [self.places().end, self.limit]
    }

    /// Copies that were asked for since the last call.
    pub(crate) fn take_copies(&self) -> Vec<[u64; 3]> {
        std::mem::take(&mut self.places().copies)
    }
}

/// A block's place. It is free again when this is dropped.
#[derive(Debug)]
pub(crate) struct BlockPlace {
    at: u64,
    bytes: u64,
    slab: Arc<Slab>,
}

impl BlockPlace {
    /// Where it begins, in units of [`PLACE`].
    pub(crate) fn number(&self) -> u32 {
        u32::try_from(self.at / PLACE).expect("a slab has less than 64 GiB")
    }
}

impl Drop for BlockPlace {
    fn drop(&mut self) {
        self.slab.places().give(self.at, self.bytes);
    }
}

/// Hands out places of a slab.
#[derive(Clone, Debug)]
pub(crate) struct SlabStore(pub(crate) Arc<Slab>);

impl Store for SlabStore {
    type Memory = BlockPlace;

    fn allocate(&self, bytes: usize, _most: usize) -> Option<Vec<BlockPlace>> {
        let bytes = (bytes as u64).next_multiple_of(PLACE);
        let at = self.0.places().take(bytes, self.0.limit)?;
        Some(vec![BlockPlace { at, bytes, slab: Arc::clone(&self.0) }])
    }

    fn copy(&self, from: &BlockPlace, to: &mut BlockPlace) {
        self.0.places().copies.push([from.at, to.at, from.bytes]);
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

    #[test]
    fn places_are_used_again_and_never_twice() {
        let slab = Slab::new(1000);
        let store = SlabStore(Arc::clone(&slab));
        let one = |bytes| store.allocate(bytes, 1).map(|mut made| made.remove(0));
        let [a, b, c] = [96, 32, 160].map(|bytes| one(bytes).expect("there is room"));
        assert_eq!([a.at, b.at, c.at], [0, 96, 128]);
        drop(b);
        assert_eq!(one(48).map(|d| d.at), Some(288), "a hole that is too small");
        drop(a);
        // the first two are one stretch now
        let d = one(128).expect("there is room");
        assert_eq!((d.at, slab.bytes()), (0, [336, 1000]));
        assert!(one(800).is_none(), "beyond the limit");
        drop((c, d));
        let all = one(336).expect("all of it is free");
        let mut copy = one(336).expect("there is room");
        store.copy(&all, &mut copy);
        assert_eq!((all.at, slab.take_copies()), (0, vec![[0, 336, 336]]));
        assert!(slab.take_copies().is_empty());
    }
}
