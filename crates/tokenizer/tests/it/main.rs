//! The crate as others use it: vocabularies and templates made by hand, and the real ones of the shared folder.
#![expect(clippy::unwrap_used, reason = "a test may fail")]

mod byte_level;
mod chat;
mod common;
mod corpus;
mod expected;
mod harness;
mod malformed;
mod prompts;
mod spm;
mod tools;
mod vectors;
mod wordpiece;
