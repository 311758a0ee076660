//! Tools that a model may call: the list of them ([`ToolList`]), how each family of models writes its calls
//! ([`FAMILIES`]), what finds these calls in a reply while it grows, and the form that holds a reply to them.
//!
//! A family is a description ([`CallSyntax`]), one file in `families/`; parser and form are made of it. What does not parse
//! as a call stays text. Nothing here knows models, terminals or files. Read first: `family.rs`, then `parse/mod.rs`.

#![forbid(unsafe_code)]

mod error;
mod families;
mod family;
mod form;
mod json;
mod list;
mod parse;
mod usage;
mod values;
mod written;

pub use error::{Result, ToolError};
pub use families::FAMILIES;
pub use family::{
    CallFamily, CallParameters, CallSyntax, Calls, GivenId, Marked, MarkedArguments, MoreKeys,
    ValueMark,
};
pub use list::{Tool, ToolList};
pub use parse::CallReader;
pub use usage::{ReplyForms, ToolChoice, ToolOptions, ToolUse, with_calls_written};

/// Items that only this crate's tests use.
#[doc(hidden)]
pub mod internals {
    pub use crate::json::{JsonProgress, JsonScan};
    pub use crate::values::{of_braces, of_elements, of_python, of_text};
}
