//! Sessions between a store and its disk: held to be read, and on their way there.

use super::{SessionKept, SessionStore};
use crate::image::{SessionImage, TableKinds, WantedRecord};
use crate::{ContentKey, DiskError, RecordId, Result};

/// What is kept under a name, as one manifest says it; its records are held until this is dropped.
pub(super) struct HeldSession<'a> {
    pub(super) store: &'a SessionStore,
    pub(super) name: &'a str,
    pub(super) key: ContentKey,
    pub(super) image: SessionImage,
    /// Of all records of the image.
    pub(super) ids: Vec<RecordId>,
}

/// A session whose blocks are on their way to disk: its tables are not needed any more. Dropped before its
/// [end](Self::finish) it leaves what there was.
#[derive(Debug)]
pub struct SessionPut<'a> {
    pub(super) store: &'a SessionStore,
    pub(super) name: String,
    pub(super) key: ContentKey,
    pub(super) image: SessionImage,
    pub(super) ids: Vec<RecordId>,
    pub(super) kept: SessionKept,
}

impl HeldSession<'_> {
    /// Whether it is one of such tables, and of the tokens it was kept for.
    ///
    /// # Errors
    /// [`DiskError::Key`], [`DiskError::Manifest`].
    pub(super) fn check(&self, kinds: TableKinds<'_>) -> Result<(), DiskError> {
        let (expected, found) = (digest(&self.image.tokens), &self.key.tokens);
        if expected != *found {
            let path = self.store.blocks.manifest(self.name)?;
            return Err(DiskError::Key { path, field: "tokens", expected, found: found.clone() });
        }
        let fits = self.image.fits(kinds, self.ids.len());
        if fits { Ok(()) } else { Err(self.store.strange(self.name)) }
    }

    /// The records of an image that fits, which have the lengths that are wanted; nothing is read for that.
    ///
    /// # Errors
    /// [`DiskError::Length`].
    pub(super) fn ids_of(&self, wanted: &[WantedRecord]) -> Result<Vec<RecordId>, DiskError> {
        let id = |one: &WantedRecord| {
            let id = self.ids[one.record];
            let (expected, found) = (one.bytes, self.store.blocks.block_len(id)?);
            if expected == found { Ok(id) } else { Err(DiskError::Length { expected, found }) }
        };
        wanted.iter().map(id).collect()
    }
}

impl Drop for HeldSession<'_> {
    fn drop(&mut self) {
        self.ids.iter().for_each(|id| self.store.let_go(*id));
    }
}

impl SessionPut<'_> {
    /// Have the disk have it under its name; this waits for that.
    ///
    /// # Errors
    /// As [`SessionStore::keep`].
    pub fn finish(mut self) -> Result<SessionKept> {
        if self.kept.positions == 0 {
            return Ok(SessionKept::default());
        }
        let store = self.store;
        let (name, key, ids) = (&*self.name, &self.key, &*self.ids);
        let done = store.write(name, key, ids, &self.image, &mut self.kept);
        let kept = self.kept;
        drop(self);
        if done.is_err() {
            store.forget_failure();
        }
        Ok(done.map(|()| kept)?)
    }
}

impl Drop for SessionPut<'_> {
    fn drop(&mut self) {
        self.ids.iter().for_each(|id| self.store.let_go(*id));
    }
}

/// What tokens a session is of.
pub(super) fn digest(tokens: &[u32]) -> String {
    let bytes: Vec<u8> = tokens.iter().flat_map(|token| token.to_le_bytes()).collect();
    format!("{} {:032x}", tokens.len(), twox_hash::XxHash3_128::oneshot(&bytes))
}
