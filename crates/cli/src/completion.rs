//! `--json`: a finished reply as one object, `{text, tokens, reason, usage, timings}`, and `tool_calls` where there are any.

use std::io::Write;

use engine::{Completion, Session};
use serde_json::{Value, json};
use server::{calls_json, context_json, limit_json, timings_json, usage_json};

use crate::limits::Limits;
use crate::{missed, storage};

/// The object; keys of `usage` are OpenAI's, keys of `timings` llama.cpp's, times are milliseconds.
pub(crate) fn to_json(completion: &Completion) -> Value {
    let Completion { text, tokens, reason, usage, timings, calls, .. } = completion;
    let mut object = json!({
        "text": text,
        "tokens": tokens,
        "reason": reason.name(),
        "usage": usage_json(usage),
        "timings": timings_json(timings),
    });
    if !calls.is_empty() {
        object["tool_calls"] = calls_json(calls);
    }
    object
}

/// Prints the completion as one JSON object on a line of its own. The object also contains the executor, the context ledger,
/// the time limits if they are known, the log probabilities if they were requested, and, if there were any, transfers of cache
/// blocks to and from disk and attention that the cache policy missed.
///
/// # Errors
/// Those of `out`.
pub(crate) fn print(
    completion: &Completion,
    logprobs: Option<Value>,
    (session, executor, limits): (&Session, &str, Option<&Limits>),
    out: &mut dyn Write,
) -> std::io::Result<()> {
    let mut object = to_json(completion);
    object["executor"] = executor.into();
    object["context_ledger"] = context_json(completion, session.capacity());
    if let Some(limits) = limits {
        let Completion { timings, usage, .. } = completion;
        object["timings"]["limit"] = limit_json(limits, timings, usage);
    }
    if let Some(logprobs) = logprobs {
        object["logprobs"] = logprobs;
    }
    let readings = session.readings().unwrap_or_default();
    for (key, told) in [
        ("kv_disk", storage::to_json(&session.model().stats().spilled)),
        ("kv_missed", missed::to_json(&readings)),
    ] {
        if !told.is_null() {
            object[key] = told;
        }
    }
    writeln!(out, "{object}")
}
