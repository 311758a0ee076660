//! Conversations on disk: one append-only file of JSON lines for each, a tree of messages.
//!
//! `docs/chats.md` describes the format. [`ChatStore`] finds and begins files, [`ChatFile`] appends to one that no other
//! process writes, [`Tree`] is what a file says. Any bytes can be read: what is no message is counted and left out. This
//! crate knows no model, terminal or variable: who uses it says where the files are.
#![forbid(unsafe_code)]

mod entry;
mod error;
mod store;
mod tree;

pub use entry::Entry;
pub use error::{Error, Result};
pub use store::{ChatFile, ChatStore};
pub use tree::{MAX_BYTES, Tree};
