//! Forms of replies: what they let through, and what is refused before anything is compiled.

mod adapt;
#[path = "../common/mod.rs"]
mod common;
mod forms;
mod gbnf;
mod limits;
mod runs;
mod schema;
