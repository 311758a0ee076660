//! Counts and times of a reply as other programs read them: OpenAI's `usage`, llama.cpp's `timings`.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use engine::{Timings, TokenUsage, ToolCall};
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

/// A call of a tool as OpenAI's API has it.
pub fn call_json(call: &ToolCall) -> Value {
    let ToolCall { id, name, arguments } = call;
    json!({ "id": id, "type": "function", "function": { "name": name, "arguments": arguments } })
}

/// A call as OpenAI's API has it; some write its arguments as an object. `None` for what is none.
pub fn call_of_json(value: &Value) -> Option<ToolCall> {
    let text = |key: &str| value.pointer(key)?.as_str().map(str::to_owned);
    let arguments = match value.pointer("/function/arguments") {
        None | Some(Value::Null) => "{}".to_owned(),
        Some(Value::String(text)) => text.clone(),
        Some(object) => object.to_string(),
    };
    let object: Value = serde_json::from_str(&arguments).ok()?;
    let name = text("/function/name").filter(|_| object.is_object())?;
    Some(ToolCall { id: text("/id").unwrap_or_default(), name, arguments })
}

/// Seconds since 1970.
pub(crate) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
}
