//! The loop that makes text: prefill the prompt, then choose a token and step, until something says stop.
//!
//! What a token means as text (characters split over tokens, stop strings, thoughts) is in `text/`; which token is
//! chosen is in `sampler/`; what is computed and what comes from the cache is in `session.rs`.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::text::{ReplyKind, ReplyText, opens_thought};
use crate::{Prefill, Result, Sampler, Session, Vocabulary};

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
    /// Set from elsewhere to stop: read before every chunk of the prompt and after every token.
    pub cancel: &'a AtomicBool,
}

/// What happens, as it happens.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Event<'a> {
    /// The prompt has come so far.
    Prefill(Prefill),
    /// More of the reply: whole characters, never the beginning of a stop string.
    Text(&'a str),
    /// More of the model's thoughts.
    Thought(&'a str),
    /// So many messages were forgotten to make room: see [`FullContext::DropOldest`](crate::FullContext).
    Dropped(usize),
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
    /// For each token after the first: stepping and choosing it.
    pub steps: Vec<Duration>,
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
    /// The reply as shown: without thoughts.
    pub text: String,
    /// Everything generated, thoughts and their tags included, up to a stop string.
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

/// Generate a reply to `request.prompt` in `session`, reporting to `on_event` as it goes.
///
/// # Errors
/// An empty prompt or one that does not fit, non-finite logits, or a failure of the model. The session then holds what
/// was computed before.
pub fn generate(
    session: &mut Session,
    sampler: &mut Sampler,
    vocabulary: &dyn Vocabulary,
    request: &Request<'_>,
    on_event: &mut dyn FnMut(Event<'_>),
) -> Result<Generated> {
    let start = Instant::now();
    let fed = session.feed(request.prompt, request.cancel, &mut |p| on_event(Event::Prefill(p)))?;
    let prompt_tokens = request.prompt.len();
    let mut stats = Stats {
        prompt_tokens,
        cached_tokens: fed.cached,
        computed_tokens: fed.computed,
        prefill: start.elapsed(),
        ..Stats::default()
    };

    let thoughts = request.split_thoughts.then(|| opens_thought(vocabulary, request.prompt));
    let mut reply = ReplyText::new(request.stop, thoughts);
    let mut emit = |kind, text: &str| match kind {
        ReplyKind::Text => on_event(Event::Text(text)),
        ReplyKind::Thought => on_event(Event::Thought(text)),
    };
    let mut tokens = Vec::new();
    let mut chosen = Duration::ZERO;
    let max_tokens = request.max_tokens.unwrap_or(usize::MAX);

    let vocab_size = fed.logits.as_ref().map_or(0, |scores| scores.len());
    let banned: Vec<usize> = if request.ignore_eog {
        (0..vocab_size).filter(|&token| vocabulary.is_eog(token as u32)).collect()
    } else {
        Vec::new()
    };

    let stop = match fed.logits {
        None => StopReason::Cancelled,
        Some(_) if max_tokens == 0 => StopReason::MaxTokens,
        Some(mut logits) => loop {
            logits.ban(&banned);
            let token = sampler.sample_scores(&logits, session.tokens())?;
            let now = start.elapsed();
            match stats.first_token {
                None => stats.first_token = Some(now),
                Some(_) => stats.steps.push(now - chosen),
            }
            chosen = now;
            if vocabulary.is_eog(token) && !request.ignore_eog {
                break StopReason::EndOfGeneration(token);
            }
            tokens.push(token);
            if let Some(stop) = reply.push(vocabulary, token, &mut emit) {
                break StopReason::StopString(stop);
            }
            if tokens.len() >= max_tokens {
                break StopReason::MaxTokens;
            }
            if request.cancel.load(Ordering::Relaxed) {
                break StopReason::Cancelled;
            }
            if session.len() >= session.capacity() {
                break StopReason::ContextFull;
            }
            logits = session.step(token)?;
        },
    };
    let reply = reply.finish(&mut emit);
    Ok(Generated {
        tokens,
        text: reply.text,
        raw: reply.raw,
        kept_tokens: reply.kept_tokens,
        kept_bytes: reply.kept_bytes,
        stop,
        stats,
    })
}
