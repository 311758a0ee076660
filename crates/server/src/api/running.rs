//! [`RunningTimings`]: times of a reply while it is generated, for clients that request them with each piece.

use std::time::{Duration, Instant};

use engine::{Prefill, Timings};
use serde_json::Value;

use crate::request::Asked;
use crate::updates::Update;
use crate::wire::timings_json;

/// Enables scores for each token if `timings` is true: only with scores are tokens reported one by one.
pub(super) fn with_scores(asked: Asked, timings: bool) -> Asked {
    let logprobs = asked.logprobs.or(timings.then_some(0));
    Asked { logprobs, ..asked }
}

/// Counts and times of a reply so far, measured when its updates arrive.
#[derive(Default)]
pub(super) struct RunningTimings {
    /// Time when the prompt began, its progress, and the time from its beginning to that progress.
    prompt: Option<(Instant, Prefill, Duration)>,
    /// Times when the first and the last token arrived.
    tokens: Option<(Instant, Instant)>,
    n_tokens: usize,
}

impl RunningTimings {
    /// Counts an update.
    pub(super) fn note(&mut self, update: &Update) {
        let now = Instant::now();
        match update {
            Update::Prefill(prefill) => {
                let began = self.prompt.map_or(now, |(began, ..)| began);
                self.prompt = Some((began, *prefill, now - began));
            }
            Update::Chosen(_) => {
                let first = self.tokens.map_or(now, |(first, _)| first);
                self.tokens = Some((first, now));
                self.n_tokens += 1;
            }
            _ => {}
        }
    }

    /// Returns llama.cpp's `timings`.
    pub(super) fn json(&self) -> Value {
        let rate = |n: usize, time: Duration| match time.is_zero() {
            true => 0.0,
            false => n as f64 / time.as_secs_f64(),
        };
        let (prefill, prompt) = match self.prompt {
            Some((_, prefill, time)) => (prefill, time),
            None => (Prefill { cached: 0, done: 0, total: 0 }, Duration::ZERO),
        };
        let after_first = self.tokens.map_or(Duration::ZERO, |(first, last)| last - first);
        let prompt_end = self.prompt.map(|(began, _, time)| began + time);
        let predicted = self.tokens.map_or(Duration::ZERO, |(first, last)| {
            last.saturating_duration_since(prompt_end.unwrap_or(first))
        });
        timings_json(&Timings {
            cache_n: prefill.cached,
            prompt_n: prefill.done,
            prompt,
            prompt_per_second: rate(prefill.done, prompt),
            predicted_n: self.n_tokens,
            predicted,
            predicted_per_second: rate(self.n_tokens.saturating_sub(1), after_first),
            ..Timings::default()
        })
    }
}
