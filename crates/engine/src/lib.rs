//! From a lowered model to text: sessions, samplers, the generate loop, conversations, perplexity, readers of texts.
//!
//! A [`Session`] is one conversation's tokens and cache on any [`program::Model`]; a [`Turn`] makes a reply of a prompt, a
//! [`Scheduler`] runs several side by side; a [`Conversation`] keeps messages and cache in step. No executor, file, terminal or
//! JSON is known here. Read first: `turn/mod.rs`, then `session.rs`.

#![forbid(unsafe_code)]

mod alike;
mod calls;
mod chat;
mod completion;
mod constraint;
mod drafts;
mod error;
mod format;
mod generate;
mod history;
mod kept;
mod notes;
mod perplexity;
mod recall;
mod reply;
mod rerank;
mod sampler;
mod scheduler;
mod session;
mod text;
mod texts;
mod turn;
mod verify;
mod watched;

pub use calls::{CallIds, CallParser, CollectedCalls, ReplyEnd, ToolCallDelta, Toolbox};
pub use chat::{Conversation, FullContext, ReplyOptions, prompt_of, spans_of, with_instructions};
pub use completion::{Completion, FinishReason, Timings, TokenUsage};
pub use constraint::{Constraint, EitherForm, ThoughtMarks, TokenMask};
pub use drafts::{CLASSES, Draft, DraftMode, DraftStats, DraftStep, Drafter, Drafters, Suffixes};
pub use error::{Error, Result};
pub use format::{
    ChatFormat, ModelFormat, PromptEnd, PromptOptions, Reasoning, TokenIds, Vocabulary,
};
pub use generate::generate;
pub use kept::{
    KeptAs, KeptConversations, LEAST_KEPT, Owner, REWRITTEN, Saved, TellKept, find_saved,
    restore_saved, save,
};
pub use notes::Notes;
pub use perplexity::{Perplexity, PerplexityOptions, Window, perplexity, windows};
pub use recall::{
    Language, PromptLength, Recall, RecallAnswer, RecallCell, RecallKind, RecallPlace,
    RecallQuestion, RecallTexts, Tally, answers,
};
pub use reply::{EarlyEnd, Event, Generated, Request, Stats, StepPasses, StopReason};
pub use rerank::{RERANK_TEMPLATE, RerankPrompt};
pub use sampler::{
    Logprob, PromptLogprobs, Recommended, SAMPLER_SETTINGS, Sampler, SamplerOptions, SamplerOrder,
    SamplerSetting, Spellings, TokenLogprobs,
};
pub use scheduler::{Scheduler, SchedulerOptions, TurnId};
pub use session::{DEFAULT_CHUNK, Fed, Prefill, Scores, Session};
pub use text::template_thinks;
pub use texts::{Normalization, TextReader, relevance};
pub use tokenizer::{
    Effort, FittedMessages, Message, Span, TemplateVariables, ToolCall, ToolDeclarations,
};
pub use turn::{Lent, PausedTurn, Turn};
pub use verify::{Verified, VerifyMatrix, VerifyRun, VerifyState, VerifyStorage, verify};
pub use watched::{Watch, Watched};
