//! What attention keeps of the positions before, in blocks: storage apart from tables.
//!
//! A [`BlockPool`] has the blocks of one model, whoever owns their memory ([`Store`]): the heap, huge pages, a device. A
//! [`BlockTable`] says which blocks one session holds of one cache, [`Tables`] are those of all caches of a session. Forks and
//! equal prefixes share blocks; who writes into a shared one gets a copy. What stands in a block is the executor's
//! business; [`Layout`] helps those whose blocks are bytes with a region for each head.
//! A [`BlockStore`] keeps blocks on disk, byte for byte; a [`SessionStore`] whole sessions, over restarts.
//! No kernel, no program is known here. Read next: `tables.rs`, then `pool.rs`.
#![forbid(unsafe_code)]

mod block;
mod disk;
mod error;
mod image;
mod kept;
mod layout;
mod pool;
mod prefixes;
mod spill;
mod states;
mod store;
mod table;
mod tables;

pub use block::{BlockMemory, CacheBlock, Looked};
pub use disk::{
    BlockBytes, BlockStore, ContentKey, DiskError, DiskLayer, DiskOptions, DiskStats, KeptAbout,
    KeptRecords, ManifestFiles, ManifestMedium, RecordId, RecordMedium, is_name,
};
pub use error::{Error, Result};
pub use kept::{
    SessionAbout, SessionKept, SessionPart, SessionPut, SessionStore, SessionStoreOptions,
};
pub use layout::Layout;
pub use pool::{BlockPool, Limit};
pub use spill::SpillStats;
pub use states::{StateRows, StateSpec, StateStep, StepPlace};
pub use store::{BlockKind, Heap, HostMemory, Store};
pub use table::{BlockAccess, BlockTable, CachedRows, ChosenBlocks, TableSpec};
pub use tables::Tables;

/// Items that only this crate's tests use.
#[doc(hidden)]
pub mod internals {
    pub use crate::disk::manifest::Manifest;
    pub use crate::disk::pages::PageBuffers;
    pub use crate::disk::record::Entry;
    pub use crate::disk::space::Space;
    pub use crate::image::{SessionImage, StatesImage, TableImage, TableKinds};
}
