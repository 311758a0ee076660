//! The form of a reply: a JSON schema, a regular expression or a grammar, compiled for a model's own tokens into what
//! the engine asks for masks ([`engine::Constraint`]).
//!
//! Forms come from strangers. A form is measured before it is compiled (`limits`, `paths`, `schema`), compiled within bounds of
//! work, and must allow at least one token before it is used (`form`). `llguidance` compiles the automata; no other crate
//! depends on it.

#![forbid(unsafe_code)]

mod error;
mod form;
mod gbnf;
mod limits;
mod parts;
mod paths;
mod schema;
mod state;
mod vocabulary;

pub use error::{GrammarError, Result};
pub use form::{Form, FormSource};
pub use parts::FormPart;
pub use vocabulary::TokenTrie;

/// Items that only this crate's tests use.
#[doc(hidden)]
pub mod internals {
    pub use crate::gbnf::to_lark;
    pub use crate::limits::check_text;
    pub use crate::schema::read as read_schema;
}
