//! The reader and the writer from outside: round trips, hostile files, shards, real files.

mod build;
mod corpus;
mod escape;
mod files;
mod hostile;
mod legal;
mod mutations;
mod naming;
mod roundtrip;
mod shards;
mod shared;
