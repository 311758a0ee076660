//! Conversations on disk: each is one append-only file of JSON lines that holds a tree of messages.
//!
//! `docs/chats.md` describes the format. [`ChatStore`] finds and creates files, [`ChatFile`] appends to a file that no other
//! process writes, and [`Tree`] holds the contents of a file. Any bytes can be read: invalid lines are counted and skipped.
//! This crate does not use models, the terminal or environment variables: its caller chooses the folder.
#![forbid(unsafe_code)]

mod entry;
mod error;
mod store;
mod tree;

pub use entry::Entry;
pub use error::{Error, Result};
pub use store::{ChatFile, ChatStore};
pub use tree::{MAX_BYTES, Tree};
