//! Forms of replies: what they let through, and what is refused before anything is compiled.

mod forms;
mod gbnf;
mod limits;
mod schema;
