//! A hub on this machine that does what hubs do, and what they must not.

#![allow(clippy::unwrap_used, reason = "a test stops at its first surprise")]

mod addresses;
#[cfg(unix)]
mod ask;
mod backoff;
mod cache;
mod fake;
mod files;
mod journal;
mod lies;
mod names;
mod pulls;
