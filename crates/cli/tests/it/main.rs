//! The binary as its users run it, in a folder of its own.

#![allow(clippy::unwrap_used, reason = "a test stops at its first surprise")]

#[path = "../common/mod.rs"]
mod common;
#[path = "../common/forms.rs"]
mod formed;
#[path = "../common/machine.rs"]
mod machine;
#[cfg(target_os = "linux")]
#[path = "../common/pty.rs"]
mod pty;
#[path = "../common/serving.rs"]
mod serving;

mod batch;
mod calls;
mod chat;
mod clients;
mod drafted;
mod edits;
mod embed;
mod errors;
mod files;
mod first_minute;
mod first_prompts;
mod forms;
mod generation;
mod gpu;
mod hub;
mod input;
mod licenses;
mod mtp;
mod options;
mod plan;
mod plots;
mod recall;
mod schemas;
mod sessions;
mod template;
mod tools;
