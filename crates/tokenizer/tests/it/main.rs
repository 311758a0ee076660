//! The crate as others use it: vocabularies and templates made by hand, and the real ones of the shared folder.
#![expect(clippy::unwrap_used, reason = "a test may fail")]

mod byte_level;
mod chat;
mod common;
mod corpus;
mod expected;
mod fitted;
mod harness;
mod malformed;
mod pre;
mod prompts;
mod published;
mod split;
mod spm;
mod templates;
mod tools;
mod unigram;
mod vectors;
mod wordpiece;
