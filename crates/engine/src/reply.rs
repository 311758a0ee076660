//! A reply from outside: what is asked for, what is told meanwhile, what came of it.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use tokenizer::ToolCall;

use crate::{
    DraftStats, FinishReason, Prefill, PromptLogprobs, TokenLogprobs, TokenUsage, ToolCallDelta,
};

/// What to generate.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The whole text so far, as tokens; what the session holds of it already is not computed again.
    pub prompt: &'a [u32],
    /// Most tokens to generate; `None`: until the model ends its reply or the context is full.
    pub max_tokens: Option<usize>,
    /// Texts that end the reply; they are not part of it.
    pub stop: &'a [String],
    /// Never choose an end-of-generation token.
    pub ignore_eog: bool,
    /// Report what stands in `<think> ... </think>` as [`Event::Thought`].
    pub split_thoughts: bool,
    /// Set from elsewhere to stop: read before every step and after every token.
    pub cancel: &'a Arc<AtomicBool>,
}

/// Where a reply that goes into a text of somebody else ends early.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EarlyEnd {
    /// At a line after the first that begins with fewer spaces and tabs than this, of which no more is part of the reply.
    pub indent: usize,
    /// With the first line that ends later than so long after its first token.
    pub time: Option<Duration>,
}

/// What happens, as it happens: one stream for a terminal, a batch and a server. A reply that fails has no end.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Event<'a> {
    /// The prompt has come so far.
    Prefill(Prefill),
    /// Log probabilities of the prompt's tokens, if they were requested. Sent once the prompt is read.
    PromptScored(&'a PromptLogprobs),
    /// More of the reply: whole characters, never the beginning of a stop string.
    Text(&'a str),
    /// More of the model's thoughts.
    Thought(&'a str),
    /// So many messages were forgotten to make room: see [`FullContext::DropOldest`](crate::FullContext).
    Dropped(usize),
    /// How likely the next token was that the reply is made of, where that is kept: before what it means.
    Chosen(&'a TokenLogprobs),
    /// More of a call of a tool.
    ToolCall(ToolCallDelta<&'a str>),
    /// What the reply took, before its end.
    Usage(TokenUsage),
    /// It has ended.
    End(FinishReason),
}

/// Why generation ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StopReason {
    /// The model ended its reply with this token.
    EndOfGeneration(u32),
    /// This stop string appeared.
    StopString(String),
    /// As many tokens as asked for.
    MaxTokens,
    /// A line begins too far left: [`EarlyEnd::indent`].
    Outdented,
    /// As long as it might take: [`EarlyEnd::time`].
    Time,
    /// The session holds as many tokens as it may.
    ContextFull,
    /// The cancel flag was set.
    Cancelled,
}

/// Counts and times of one reply.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stats {
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Of these, taken from the cache.
    pub cached_tokens: usize,
    /// Of these, computed: all others, but of a prompt that was cancelled.
    pub computed_tokens: usize,
    /// Time to compute them.
    pub prefill: Duration,
    /// From the call to the first token chosen; `None` if there was none.
    pub first_token: Option<Duration>,
    /// For each token after the first: its share of the step that it came of, its choice included.
    pub steps: Vec<Duration>,
    /// What was drafted, and what came of it.
    pub drafts: DraftStats,
    /// Number of reply tokens that are thoughts or their tags; `None` if thoughts are not separated from the reply.
    pub reasoning_tokens: Option<usize>,
    /// Log probabilities of the prompt's tokens, if they were requested.
    pub prompt_logprobs: Option<PromptLogprobs>,
}

impl Stats {
    /// Prompt tokens computed per second; 0 if none were.
    pub fn prefill_rate(&self) -> f64 {
        rate(self.computed_tokens, self.prefill)
    }

    /// Tokens per second after the first; 0 if there were none.
    pub fn step_rate(&self) -> f64 {
        rate(self.steps.len(), self.steps.iter().sum())
    }

    /// Returns the passes of the model that yielded the tokens after the first.
    pub fn passes(&self) -> StepPasses {
        let tokens = self.steps.len();
        let n = tokens.saturating_sub(self.drafts.kept);
        StepPasses { n, tokens, checking: self.drafts.passes.min(n), drafted: self.drafts.drafted }
    }
}

/// Passes of the model that yielded the tokens of a reply after its first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StepPasses {
    /// Number of passes.
    pub n: usize,
    /// Tokens that they yielded: one each, and the drafted tokens that were accepted.
    pub tokens: usize,
    /// Passes that checked a draft. The others computed one row.
    pub checking: usize,
    /// Drafted tokens that these passes checked, one row each.
    pub drafted: usize,
}

impl StepPasses {
    /// Creates passes of one row each.
    pub fn plain(n: usize) -> StepPasses {
        StepPasses { n, tokens: n, ..StepPasses::default() }
    }

    /// Returns numbers of rows, and how many passes computed that many: drafts count as equally long, to one token.
    pub fn rows(&self) -> [(usize, usize); 3] {
        let (each, longer) = match self.checking {
            0 => (0, 0),
            n => (self.drafted / n, self.drafted % n),
        };
        [(1, self.n - self.checking), (1 + each, self.checking - longer), (2 + each, longer)]
    }
}

/// Count per second, 0 for an empty time.
fn rate(count: usize, time: Duration) -> f64 {
    if count == 0 || time.is_zero() { 0.0 } else { count as f64 / time.as_secs_f64() }
}

/// A finished reply.
#[derive(Clone, Debug, PartialEq)]
pub struct Generated {
    /// The tokens chosen, without the one that ended the reply. The last one may not be in the session's cache: it
    /// enters with the next prompt.
    pub tokens: Vec<u32>,
    /// How likely each of them was, where that was to be kept.
    pub logprobs: Vec<TokenLogprobs>,
    /// The reply as shown: without thoughts and calls.
    pub text: String,
    /// What the model thought before it.
    pub thoughts: String,
    /// The tools it calls, in order.
    pub calls: Vec<ToolCall>,
    /// Call that was incomplete when the reply ended, with its arguments so far.
    pub cut_call: Option<ToolCall>,
    /// What it is as a message of a conversation, beside its calls.
    pub message: String,
    /// Everything generated, thoughts, calls and their tags included, up to a stop string.
    pub raw: String,
    /// How many of `tokens` stand for the start of `raw`, `kept_bytes` of it. All for all, but if a stop string began
    /// within a token, or after one that ended within a character.
    pub kept_tokens: usize,
    /// See `kept_tokens`.
    pub kept_bytes: usize,
    /// Why it ended.
    pub stop: StopReason,
    /// Counts and times.
    pub stats: Stats,
}

impl Generated {
    /// Why it ended, in the words of OpenAI's API: where it calls tools and ended by itself, that is why.
    pub fn reason(&self) -> FinishReason {
        FinishReason::new(&self.stop, !self.calls.is_empty())
    }

    /// What it took.
    pub fn usage(&self) -> TokenUsage {
        TokenUsage::new(&self.stats, self.tokens.len())
    }
}
