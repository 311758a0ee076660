//! A finished reply as other programs read it. What prints it, a command line, a batch or a server, names its fields as
//! they are named here.

use std::time::Duration;

use tokenizer::ToolCall;

use crate::{DraftStats, Generated, PromptLogprobs, Stats, StepPasses, StopReason, TokenLogprobs};

/// A reply with why it ended, what it cost and how long it took.
#[derive(Clone, Debug, PartialEq)]
pub struct Completion {
    /// The reply as shown: without thoughts and calls.
    pub text: String,
    /// What the model thought before it.
    pub thoughts: String,
    /// The tools it calls, in order.
    pub calls: Vec<ToolCall>,
    /// Call that was incomplete when the reply ended, with its arguments so far.
    pub cut_call: Option<ToolCall>,
    /// The tokens chosen, thoughts included, without the one that ended the reply.
    pub tokens: Vec<u32>,
    /// How likely each of them was, where that was to be kept.
    pub logprobs: Vec<TokenLogprobs>,
    /// Log probabilities of the prompt's tokens, if they were requested.
    pub prompt_logprobs: Option<PromptLogprobs>,
    /// Why it ended.
    pub reason: FinishReason,
    /// The text it ended at, if it is one of those that were to end it.
    pub stopped_at: Option<String>,
    /// Tokens read and written.
    pub usage: TokenUsage,
    /// Counts and times of its parts.
    pub timings: Timings,
}

/// Why a reply ended, in the words of OpenAI's API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FinishReason {
    /// By itself, or at a stop text.
    Stop,
    /// By itself, to have tools called.
    ToolCalls,
    /// At the length or the time asked for, at a line too far left, or at the end of the context.
    Length,
    /// Somebody asked to stop.
    Cancelled,
}

impl FinishReason {
    /// `stop`, `tool_calls`, `length` or `cancelled`.
    pub fn name(self) -> &'static str {
        match self {
            FinishReason::Stop => "stop",
            FinishReason::ToolCalls => "tool_calls",
            FinishReason::Length => "length",
            FinishReason::Cancelled => "cancelled",
        }
    }

    /// That of a reply that ended so. `calls`: whether it calls tools.
    pub fn new(stop: &StopReason, calls: bool) -> FinishReason {
        match stop {
            StopReason::EndOfGeneration(_) | StopReason::StopString(_) if calls => {
                FinishReason::ToolCalls
            }
            StopReason::EndOfGeneration(_) | StopReason::StopString(_) => FinishReason::Stop,
            StopReason::MaxTokens
            | StopReason::Outdented
            | StopReason::Time
            | StopReason::ContextFull => FinishReason::Length,
            StopReason::Cancelled => FinishReason::Cancelled,
        }
    }
}

/// Tokens of one reply, as OpenAI's API counts them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenUsage {
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Of these, taken from the cache.
    pub cached_tokens: usize,
    /// Tokens of the reply.
    pub completion_tokens: usize,
    /// Number of these tokens that are thoughts or their tags; `None` if thoughts are not separated from the reply.
    pub reasoning_tokens: Option<usize>,
}

impl TokenUsage {
    /// Of a reply of so many tokens.
    pub(crate) fn new(stats: &Stats, completion_tokens: usize) -> TokenUsage {
        let Stats { prompt_tokens, cached_tokens, reasoning_tokens, .. } = *stats;
        TokenUsage { prompt_tokens, cached_tokens, completion_tokens, reasoning_tokens }
    }

    /// Prompt and reply.
    pub fn total_tokens(&self) -> usize {
        self.prompt_tokens + self.completion_tokens
    }
}

/// Counts and times of one reply, named as llama.cpp's server names them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Timings {
    /// Prompt tokens taken from the cache.
    pub cache_n: usize,
    /// Prompt tokens computed.
    pub prompt_n: usize,
    /// Time to compute them.
    pub prompt: Duration,
    /// Prompt tokens computed per second; 0 if none were.
    pub prompt_per_second: f64,
    /// Tokens of the reply.
    pub predicted_n: usize,
    /// From the end of the prompt to the last token.
    pub predicted: Duration,
    /// Tokens per second after the first; 0 if there were none.
    pub predicted_per_second: f64,
    /// Passes that yielded the tokens after the first: one yields several where drafts held.
    pub passes: StepPasses,
    /// Time of the tokens after the first.
    pub steps: Duration,
    /// What was drafted, and what came of it.
    pub drafts: DraftStats,
}

impl From<Generated> for Completion {
    fn from(reply: Generated) -> Completion {
        let (reason, usage) = (reply.reason(), reply.usage());
        let Generated {
            tokens, logprobs, text, thoughts, calls, cut_call, mut stats, stop, ..
        } = reply;
        let prompt_logprobs = stats.prompt_logprobs.take();
        let stopped_at = match stop {
            StopReason::StopString(text) => Some(text),
            _ => None,
        };
        let first = stats.first_token.map_or(Duration::ZERO, |at| at.saturating_sub(stats.prefill));
        let timings = Timings {
            cache_n: stats.cached_tokens,
            prompt_n: stats.computed_tokens,
            prompt: stats.prefill,
            prompt_per_second: stats.prefill_rate(),
            predicted_n: tokens.len(),
            predicted: first + stats.steps.iter().sum::<Duration>(),
            predicted_per_second: stats.step_rate(),
            passes: stats.passes(),
            steps: stats.steps.iter().sum(),
            drafts: stats.drafts,
        };
        Completion {
            text,
            thoughts,
            calls,
            cut_call,
            tokens,
            logprobs,
            prompt_logprobs,
            reason,
            stopped_at,
            usage,
            timings,
        }
    }
}
