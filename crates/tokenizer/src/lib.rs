//! GGUF vocabularies and chat templates: text to token ids and back, conversations to prompts.
//!
//! A [`Tokenizer`] is built from the metadata of a GGUF file alone. Two promises shape the crate: text that a person
//! (or a document) supplies never becomes a control token, and a vocabulary or template from a stranger never panics,
//! hangs or over-allocates. Reading order: `tokenizer.rs`, `vocab.rs`, then one of the models (`byte_level.rs`,
//! `spm.rs`, `unigram.rs`, `wordpiece.rs`), then `template/mod.rs`. Nothing here knows models, sampling or terminals.
#![forbid(unsafe_code)]

mod byte_level;
mod error;
mod infill;
mod loss;
mod merge;
mod pre;
mod recognize;
mod special;
mod split;
mod spm;
mod template;
mod tokenizer;
mod unigram;
mod vocab;
mod wordpiece;

pub use error::{Error, Result};
pub use infill::InfillMarks;
pub use loss::LostBytes;
pub use template::{
    ChatTemplate, Effort, EffortStyle, FittedMessages, Message, Offered, RenderOptions,
    TemplateVariables, ToolCall, ToolDeclarations, ToolStyle, TrialCall, Usage, python_json,
    short_id,
};
pub use tokenizer::{Span, Tokenizer};

/// Items that only this crate's tests use.
#[doc(hidden)]
pub mod internals {
    pub use crate::byte_level::pair;
    pub use crate::pre::{PreTokenizer, all as pre_tokenizers, find as find_pre_tokenizer};
    pub use crate::split::Splitter;
    pub use crate::unigram::nodes;
}
