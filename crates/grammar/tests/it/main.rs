//! Forms of replies: what they let through, and what is refused before anything is compiled.

mod adapt;
#[path = "../common/mod.rs"]
mod common;
mod endless;
mod forms;
mod gbnf;
mod limits;
mod schema;
