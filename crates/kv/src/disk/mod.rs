//! Blocks outside fast memory: records in one file.
//!
//! A [`BlockStore`] keeps blocks byte for byte. Each is a record of whole pages, written once behind the caller's back and
//! checked by its checksum whenever it is read, by those who want it or ahead: what comes back is what was put, or a [`DiskError`]. The file belongs to one
//! process and goes with it; what a killed process left goes when the next one starts. What shall stay is named by a
//! manifest over the same records, for whoever computes the same by the same means.
//! Read next: `store.rs`, then `record.rs`.

mod ahead;
mod error;
mod folder;
mod keep;
mod key;
pub(crate) mod manifest;
mod medium;
pub(crate) mod pages;
pub(crate) mod record;
pub(crate) mod space;
mod stats;
mod store;
mod writes;

pub use error::DiskError;
pub(crate) use keep::HeldRecords;
pub use keep::{KeptAbout, KeptRecords, is_name};
pub use key::ContentKey;
pub use medium::{DiskLayer, ManifestFiles, ManifestMedium, RecordMedium};
pub(crate) use record::RecordMark;
pub use stats::DiskStats;
pub use store::{BlockBytes, BlockStore, DiskOptions, RecordId};

type Result<T> = std::result::Result<T, DiskError>;
