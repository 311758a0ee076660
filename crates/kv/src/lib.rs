//! What attention reads: host storage of keys and values, in blocks of [`BLOCK`] positions.
//!
//! This crate knows blocks, heads and positions. How the elements of a head lie inside its region is the business of
//! whoever writes and reads them; it tells a [`Layout`] how many bytes a head's keys and values take per block.

#![forbid(unsafe_code)]

mod block;
mod contiguous;
mod error;

pub use block::{Allocator, BLOCK, Heap, Layout, Memory};
pub use contiguous::{Contiguous, Segment, View};
pub use error::{Error, Result};
