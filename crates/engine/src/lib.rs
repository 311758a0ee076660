//! From a lowered model to text: sessions, samplers, the generate loop, conversations, perplexity, readers of texts.
//!
//! A [`Session`] is one conversation's tokens and cache on any [`program::Model`]; [`generate()`] is the loop that
//! turns a prompt into a reply; a [`Conversation`] keeps messages and cache in step. No executor, file, terminal or
//! JSON is known here. Read first: `generate.rs`, then `session.rs`.

#![forbid(unsafe_code)]

mod chat;
mod completion;
mod error;
mod format;
mod generate;
mod history;
mod perplexity;
mod recall;
mod sampler;
mod session;
mod text;
mod texts;

pub use chat::{Conversation, FullContext, ReplyOptions};
pub use completion::{Completion, FinishReason, Timings, TokenUsage};
pub use error::{Error, Result};
pub use format::{ChatFormat, ModelFormat, Reasoning, Vocabulary};
pub use generate::{Event, Generated, Request, Stats, StopReason, generate};
pub use perplexity::{Perplexity, PerplexityOptions, Window, perplexity, windows};
pub use recall::{
    Language, PromptLength, Recall, RecallAnswer, RecallCell, RecallKind, RecallPlace,
    RecallQuestion, RecallTexts, Tally, answers,
};
pub use sampler::{
    Logprob, Recommended, SAMPLER_SETTINGS, Sampler, SamplerOptions, SamplerOrder, SamplerSetting,
    TokenLogprobs,
};
pub use session::{DEFAULT_CHUNK, Fed, Prefill, Scores, Session};
pub use texts::{Normalization, TextReader, relevance};
pub use tokenizer::{Message, Span};
