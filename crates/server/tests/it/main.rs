//! The server as clients see it: requests over a socket, on a tiny model that the reference executor runs.

#![allow(clippy::unwrap_used, reason = "a test stops at its first surprise")]

mod accepted;
mod anthropic;
mod anything;
mod apart;
mod bodies;
mod calls;
mod chats;
mod client;
mod conversations;
mod infill;
mod leaving;
mod ollama;
mod openapi;
mod pages;
mod panics;
mod paths;
mod pulls;
mod reads;
mod refusals;
mod responses;
mod safety;
mod schemas;
mod scores;
mod several;
mod tokens;
