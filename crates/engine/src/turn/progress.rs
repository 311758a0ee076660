//! [`Progress`]: the part of a turn that outlives its session, and the result that is made from it.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use super::{Lent, PromptScores};
use crate::text::{ReplyText, opens_thought};
use crate::{Drafters, Generated, Request, Result, Sampler, Stats, StopReason, Vocabulary};

/// Part of a turn that does not depend on its session: the request, and the reply so far.
pub(super) struct Progress<'a> {
    pub(super) sampler: Lent<'a, Sampler>,
    pub(super) drafters: Option<Lent<'a, Drafters>>,
    pub(super) vocabulary: &'a dyn Vocabulary,
    pub(super) prompt: Vec<u32>,
    pub(super) max_tokens: usize,
    pub(super) ignore_eog: bool,
    /// Tokens that end the reply, in addition to the model's own end-of-generation tokens.
    pub(super) stop_tokens: Vec<u32>,
    /// Scores of the prompt while it is read, if they were requested.
    pub(super) prompt_scores: Option<PromptScores>,
    /// Stops the reply at the first line break after this time, counted from the first token.
    pub(super) most_time: Option<Duration>,
    pub(super) cancel: Arc<AtomicBool>,
    pub(super) state: State,
    pub(super) reply: ReplyText,
    pub(super) tokens: Vec<u32>,
    pub(super) stats: Stats,
    pub(super) start: Instant,
    /// Time from `start` to the choice of the last token.
    pub(super) chosen: Duration,
}

/// Phase of a turn.
pub(super) enum State {
    /// The turn has not started.
    New,
    /// The prompt is being read; `cached` of its tokens were in the cache.
    Reading { cached: usize },
    /// The reply is being generated. `rows`: the token chosen last, and a draft of the tokens after it.
    Writing { rows: Vec<u32> },
    /// Resumed in a session that may hold less than before. `text`: prompt and reply so far.
    Resumed { text: Vec<u32> },
    /// Computes `text` again, except its last token, from `start`: the first position that was not in the cache.
    Rereading { text: Vec<u32>, start: usize },
    /// The turn is over.
    Ended(Result<StopReason>),
}

impl<'a> Progress<'a> {
    /// Creates the progress of a turn that has not started.
    pub(super) fn new(
        sampler: Lent<'a, Sampler>,
        vocabulary: &'a dyn Vocabulary,
        request: &Request<'_>,
    ) -> Progress<'a> {
        let thoughts = request.split_thoughts.then(|| opens_thought(vocabulary, request.prompt));
        Progress {
            sampler,
            drafters: None,
            vocabulary,
            prompt: request.prompt.to_vec(),
            max_tokens: request.max_tokens.unwrap_or(usize::MAX),
            ignore_eog: request.ignore_eog,
            stop_tokens: Vec::new(),
            prompt_scores: None,
            most_time: None,
            cancel: Arc::clone(request.cancel),
            state: State::New,
            reply: ReplyText::new(request.stop, thoughts),
            tokens: Vec::new(),
            stats: Stats {
                prompt_tokens: request.prompt.len(),
                reasoning_tokens: request.split_thoughts.then_some(0),
                ..Stats::default()
            },
            start: Instant::now(),
            chosen: Duration::ZERO,
        }
    }

    /// Returns the tokens of the prompt and of the reply so far.
    pub(super) fn text(&self) -> Vec<u32> {
        [&self.prompt[..], &self.tokens].concat()
    }

    /// Returns the result of the turn. A turn that has not ended counts as cancelled.
    pub(super) fn finish(self) -> Result<Generated> {
        let Progress { sampler, drafters, tokens, mut stats, .. } = self;
        if let Some(drafters) = &drafters {
            stats.drafts = drafters.stats();
        }
        let start = stats.prompt_tokens;
        let logprobs = sampler.logprobs(start..start + tokens.len()).cloned().collect();
        let reply = self.reply.finish();
        let stop = match self.state {
            State::Ended(stop) => stop?,
            _ => StopReason::Cancelled,
        };
        Ok(Generated {
            tokens,
            logprobs,
            text: reply.text,
            thoughts: reply.thoughts,
            calls: reply.calls,
            cut_call: reply.cut_call,
            message: reply.message,
            raw: reply.raw,
            kept_tokens: reply.kept_tokens,
            kept_bytes: reply.kept_bytes,
            stop,
            stats,
        })
    }
}
