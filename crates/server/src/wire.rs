//! Counts and times of a reply as other programs read them: OpenAI's `usage`, llama.cpp's `timings`.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use engine::{Timings, TokenUsage};
use serde_json::{Value, json};

/// OpenAI's `usage`.
pub fn usage_json(usage: &TokenUsage) -> Value {
    json!({
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.total_tokens(),
        "prompt_tokens_details": { "cached_tokens": usage.cached_tokens },
    })
}

/// llama.cpp's `timings`, in milliseconds, and what drafts came to.
pub fn timings_json(timings: &Timings) -> Value {
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    let per_token = |rate: f64| if rate > 0.0 { 1e3 / rate } else { 0.0 };
    json!({
        "cache_n": timings.cache_n,
        "prompt_n": timings.prompt_n,
        "prompt_ms": ms(timings.prompt),
        "prompt_per_token_ms": per_token(timings.prompt_per_second),
        "prompt_per_second": timings.prompt_per_second,
        "predicted_n": timings.predicted_n,
        "predicted_ms": ms(timings.predicted),
        "predicted_per_token_ms": per_token(timings.predicted_per_second),
        "predicted_per_second": timings.predicted_per_second,
        "draft_n": timings.drafts.drafted,
        "draft_n_accepted": timings.drafts.kept,
        "draft_gained_ms": timings.drafts.gained * 1e3,
    })
}

/// Seconds since 1970.
pub(crate) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
}
