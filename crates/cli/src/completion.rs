//! `--json`: a finished reply as one object, `{text, tokens, reason, usage, timings}`.

use std::io::Write;
use std::time::Duration;

use engine::{Completion, Timings, TokenUsage};
use program::SpillCounts;
use serde_json::{Value, json};

use crate::storage;

/// The object; keys of `usage` are OpenAI's, keys of `timings` llama.cpp's, times are milliseconds.
pub(crate) fn to_json(completion: &Completion) -> Value {
    let Completion { text, tokens, reason, usage, timings } = completion;
    json!({
        "text": text,
        "tokens": tokens,
        "reason": reason.name(),
        "usage": usage_json(usage),
        "timings": timings_json(timings),
    })
}

/// OpenAI's `usage`.
pub(crate) fn usage_json(usage: &TokenUsage) -> Value {
    json!({
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.total_tokens(),
        "prompt_tokens_details": { "cached_tokens": usage.cached_tokens },
    })
}

fn timings_json(timings: &Timings) -> Value {
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

/// Print the object on a line of its own, with how likely its tokens were if that was asked for, and what blocks of caches
/// went to disk and back if some did.
///
/// # Errors
/// Those of `out`.
pub(crate) fn print(
    completion: &Completion,
    logprobs: Option<Value>,
    spilled: &SpillCounts,
    out: &mut dyn Write,
) -> std::io::Result<()> {
    let mut object = to_json(completion);
    if let Some(logprobs) = logprobs {
        object["logprobs"] = logprobs;
    }
    if let spilled @ Value::Object(_) = storage::to_json(spilled) {
        object["kv_disk"] = spilled;
    }
    writeln!(out, "{object}")
}
