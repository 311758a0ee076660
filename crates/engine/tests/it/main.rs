//! Sessions, turns and replies, on models of a few layers.

#[path = "../common/mod.rs"]
mod common;

mod calls;
mod chat;
mod format;
mod forms;
mod generate;
mod interpreter;
mod perplexity;
mod recall;
mod scheduler;
mod scores;
mod session;
mod texts;
mod verify;
