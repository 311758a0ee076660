//! `--json`: a finished reply as one object, `{text, tokens, reason, usage, timings}`.

use std::io::Write;

use engine::Completion;
use program::SpillCounts;
use serde_json::{Value, json};
use server::{timings_json, usage_json};

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
