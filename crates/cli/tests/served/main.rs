//! `rooflight serve` as a process, and what it says under load and over restarts.

#![allow(clippy::unwrap_used, reason = "a test stops at its first surprise")]

#[path = "../common/asking.rs"]
mod asking;
#[path = "../common/mod.rs"]
mod common;
#[path = "../hostile/mod.rs"]
mod hostile;
#[path = "../common/serving.rs"]
mod serving;

#[cfg(unix)]
mod changed;
mod forms;
mod kept;
mod lines;
mod load;
mod serve;
