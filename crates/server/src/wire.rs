//! Counts, times and scores of a reply as other programs read them: OpenAI's `usage` and `logprobs`, llama.cpp's `timings`,
//! and what nobody else tells: how far a reply is from the limit of its machine, and what became of its context.

mod scores;

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use engine::{
    Completion, FinishReason, ModelFormat, Prefill, PromptLogprobs, StepPasses, Timings,
    TokenLogprobs, TokenUsage, ToolCall, Vocabulary,
};
use serde_json::{Value, json};

use crate::body::{is_object, list_bytes, object_bytes};

pub(crate) use scores::{ScoreList, WithField, score_list_bytes};

/// The least time that a machine could take for work, and the time to be expected.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TimeLimit {
    /// Seconds.
    pub seconds: f64,
    /// What binds: `memory`, an arithmetic.
    pub binds: &'static str,
    /// Seconds to be expected of our kernels, where that is known.
    pub expected: Option<f64>,
}

/// What bounds replies of a model on its machine.
pub trait ReplyLimits: Send + Sync {
    /// A prompt of which `cached` positions are there and `n` are computed.
    fn prompt(&self, cached: usize, n: usize) -> TimeLimit;

    /// The passes of a reply, the first of which sees `depth` positions.
    fn steps(&self, depth: usize, passes: &StepPasses) -> TimeLimit;

    /// Returns the share of its limit that work reached, from 0 to 1: the least time divided by the measured time, both in seconds. `None`
    /// if it is unreliable: the work is too small, other programs disturbed the measurement of the machine, or work exceeded its limit.
    fn share(&self, least: f64, measured: f64) -> Option<f64>;
}

/// What all who write replies know of the model.
#[derive(Clone)]
pub struct ReplySource {
    /// Its name.
    pub model: String,
    /// Between texts and tokens.
    pub format: Arc<ModelFormat>,
    /// What bounds it, where that is known.
    pub limits: Option<Arc<dyn ReplyLimits>>,
    /// Tokens that a conversation may have.
    pub capacity: usize,
    /// Time that the request waited for the model to be loaded.
    pub load: Duration,
}

/// What is told of a reply that somebody else than its client ended.
const CUT: &str = "the server ended: the reply is not whole";

impl ReplySource {
    /// Returns llama.cpp's `timings`, with the time for loading the model if the request waited for it, and a comparison with the
    /// limit: its milliseconds, the share of it that was reached, the resource that binds, the expected time.
    pub fn timings(&self, timings: &Timings, usage: &TokenUsage) -> Value {
        let mut object = timings_json(timings);
        if !self.load.is_zero() {
            object["load_ms"] = json!(self.load.as_secs_f64() * 1e3);
        }
        if let Some(limits) = &self.limits {
            object["limit"] = limit_json(&**limits, timings, usage);
        }
        object
    }

    /// What is told of a finished reply whatever the API: `timings`, `context_ledger`, and `warnings` if there are any.
    pub(crate) fn account(&self, object: &mut Value, reply: &Completion, notes: &[String]) {
        object["timings"] = self.timings(&reply.timings, &reply.usage);
        object["context_ledger"] = context_json(reply, self.capacity);
        let cut = (reply.reason == FinishReason::Cancelled).then(|| CUT.to_owned());
        let cut_call =
            reply.cut_call.as_ref().map(|call| call_note(&call.name, is_cut(reply.reason)));
        let notes: Vec<String> = notes.iter().cloned().chain(cut).chain(cut_call).collect();
        if !notes.is_empty() {
            object["warnings"] = json!(notes);
        }
    }

    /// How likely the tokens of a reply were, in the shape of OpenAI's chats, with ids as llama.cpp has them.
    pub fn logprobs(&self, tokens: &[TokenLogprobs]) -> Value {
        logprobs_json(tokens, &*self.format)
    }

    /// Returns the same scores, which are serialized without building their values.
    pub(crate) fn scores<'a>(&'a self, tokens: &'a [TokenLogprobs]) -> ScoreList<'a> {
        ScoreList { tokens, vocabulary: &*self.format, ids: true }
    }
}

/// Returns a note about an incomplete call of this tool. `is_cut`: whether the reply was cut off; otherwise the model itself wrote an
/// invalid call.
fn call_note(tool: &str, is_cut: bool) -> String {
    match is_cut {
        true => format!("the reply ended within a call of `{tool}`, which is not whole"),
        false => format!("the model wrote a call of `{tool}` that cannot be read: do not make it"),
    }
}

/// Compares the times of the prompt and of the passes that wrote the reply with the least ones: `ms`, `share`, `binds`,
/// `expected_ms`.
pub fn limit_json(limits: &dyn ReplyLimits, timings: &Timings, usage: &TokenUsage) -> Value {
    let told = |limit: TimeLimit, measured: Duration| {
        json!({
            "ms": limit.seconds * 1e3,
            "share": limits.share(limit.seconds, measured.as_secs_f64()),
            "binds": limit.binds,
            "expected_ms": limit.expected.map(|seconds| seconds * 1e3),
        })
    };
    let prompt = limits.prompt(timings.cache_n, timings.prompt_n);
    let steps = limits.steps(usage.prompt_tokens, &timings.passes);
    // the limit is that of the model's passes, and a draft model's own are none of them
    let passes = timings.steps.saturating_sub(timings.drafts.drafting_time());
    json!({ "prompt": told(prompt, timings.prompt), "predicted": told(steps, passes) })
}

/// Returns the number of tokens of the prompt and the reply that are in the cache at the end of the reply.
pub(crate) fn cached_tokens(reply: &Completion) -> usize {
    // a token that nothing was chosen after is not computed: of all but what the model ended itself
    let by_itself = matches!(reply.reason, FinishReason::Stop | FinishReason::ToolCalls)
        && reply.stopped_at.is_none();
    let open = usize::from(!by_itself && reply.usage.completion_tokens > 0);
    reply.usage.total_tokens() - open
}

/// What became of each position of the context: ranges of them. Nothing of a prompt is ever dropped.
pub fn context_json(reply: &Completion, capacity: usize) -> Value {
    let usage = &reply.usage;
    let held = cached_tokens(reply);
    let range = |start: usize, end: usize| match start < end {
        true => json!([[start, end]]),
        false => json!([]),
    };
    json!({
        "size": capacity,
        "kept": range(0, held),
        "reused": range(0, usage.cached_tokens),
        "computed": range(usage.cached_tokens, held),
        "dropped": [],
    })
}

/// How likely tokens were, in the shape of OpenAI's chats: `{content: [{id, token, bytes, logprob, top_logprobs}]}`.
pub fn logprobs_json(tokens: &[TokenLogprobs], vocabulary: &dyn Vocabulary) -> Value {
    json!({ "content": ScoreList { tokens, vocabulary, ids: true }.value() })
}

/// A token as it is told: control tokens have a name and no text.
pub(crate) fn token_bytes(token: u32, vocabulary: &dyn Vocabulary) -> Vec<u8> {
    let bytes = vocabulary.bytes(token).into_owned();
    match bytes.is_empty() {
        true => vocabulary.spelling(token).map_or_else(Vec::new, |name| name.as_bytes().to_vec()),
        false => bytes,
    }
}

/// Formats scores as in OpenAI's text completions: of a prompt, whose first token has no score, and of tokens of its reply. `offset`:
/// position where the text of the first token begins; on return, where the text of the last one ends.
pub(crate) fn text_logprobs_json(
    prompt: Option<&PromptLogprobs>,
    tokens: &[TokenLogprobs],
    vocabulary: &dyn Vocabulary,
    offset: &mut TextOffset,
) -> Value {
    let text = |token: u32| String::from_utf8_lossy(&token_bytes(token, vocabulary)).into_owned();
    let n = prompt.map_or(0, |prompt| 1 + prompt.rest.len()) + tokens.len();
    // allocated at their final size and moved into the object, because a prompt may have a million tokens
    let [mut texts, mut own, mut likeliest, mut offsets] =
        std::array::from_fn(|_| Vec::<Value>::with_capacity(n));
    let mut add = |token: u32, scores: Option<&TokenLogprobs>| {
        texts.push(Value::from(text(token)));
        own.push(scores.map_or(Value::Null, |scores| json!(scores.chosen.logprob)));
        likeliest.push(scores.map_or(Value::Null, |scores| {
            let entries = scores.top.iter().map(|top| (text(top.token), json!(top.logprob)));
            Value::Object(entries.collect())
        }));
        offsets.push(Value::from(offset.chars));
        offset.add(&vocabulary.bytes(token));
    };
    if let Some(PromptLogprobs { first, rest }) = prompt {
        add(*first, None);
        rest.iter().for_each(|token| add(token.chosen.token, Some(token)));
    }
    tokens.iter().for_each(|token| add(token.chosen.token, Some(token)));
    let lists = [
        ("tokens", texts),
        ("token_logprobs", own),
        ("top_logprobs", likeliest),
        ("text_offset", offsets),
    ];
    Value::Object(
        lists.into_iter().map(|(name, list)| (name.to_owned(), Value::Array(list))).collect(),
    )
}

/// Assumed length of the text of a token in bytes; most are shorter.
const TOKEN_TEXT: usize = 16;
/// Length of a number in JSON in bytes, with its separator.
const NUMBER_TEXT: usize = 24;

/// Returns the memory in bytes that the scores of `tokens` tokens take in a response of `/v1/completions`, as values and as JSON. `top`:
/// number of alternatives that are scored for each token.
pub(crate) fn scored_text_bytes(tokens: usize, top: usize) -> u64 {
    let values = 4 * list_bytes(tokens)
        + tokens as u64 * (object_bytes(top, TOKEN_TEXT) + 2 * TOKEN_TEXT as u64);
    let json = (top + 1) * (TOKEN_TEXT + NUMBER_TEXT) + 2 * NUMBER_TEXT;
    values + (tokens * json) as u64
}

/// How many characters of a text came with the tokens so far. Several tokens may make one character: it counts when it is
/// whole, so that each of them is where the character is.
#[derive(Clone, Debug, Default)]
pub(crate) struct TextOffset {
    /// Whole characters.
    chars: usize,
    /// The beginning of one that is not.
    open: Vec<u8>,
}

impl TextOffset {
    /// More bytes come.
    fn add(&mut self, bytes: &[u8]) {
        self.open.extend_from_slice(bytes);
        loop {
            let error = match std::str::from_utf8(&self.open) {
                Ok(text) => {
                    self.chars += text.chars().count();
                    self.open.clear();
                    return;
                }
                Err(error) => error,
            };
            let whole = error.valid_up_to();
            let valid = std::str::from_utf8(&self.open[..whole]).unwrap_or_default();
            self.chars += valid.chars().count();
            let Some(wrong) = error.error_len() else {
                self.open.drain(..whole);
                return;
            };
            // what is no character stands in the text as one
            self.chars += 1;
            self.open.drain(..whole + wrong);
        }
    }
}

/// OpenAI's `usage`.
pub fn usage_json(usage: &TokenUsage) -> Value {
    let mut object = json!({
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.total_tokens(),
        "prompt_tokens_details": { "cached_tokens": usage.cached_tokens },
    });
    if let Some(tokens) = usage.reasoning_tokens {
        object["completion_tokens_details"] = json!({ "reasoning_tokens": tokens });
    }
    object
}

/// llama.cpp's `timings`, in milliseconds, and what drafts came to.
pub fn timings_json(timings: &Timings) -> Value {
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    let per_token = |rate: f64| if rate > 0.0 { 1e3 / rate } else { 0.0 };
    let per_second = predicted_per_second(timings);
    json!({
        "cache_n": timings.cache_n,
        "prompt_n": timings.prompt_n,
        "prompt_ms": ms(timings.prompt),
        "prompt_per_token_ms": per_token(timings.prompt_per_second),
        "prompt_per_second": timings.prompt_per_second,
        "predicted_n": timings.predicted_n,
        "predicted_ms": ms(timings.predicted),
        "predicted_per_token_ms": per_token(per_second),
        "predicted_per_second": per_second,
        "draft_n": timings.drafts.drafted,
        "draft_n_accepted": timings.drafts.kept,
        "draft_gained_ms": timings.drafts.gained * 1e3,
    })
}

/// Returns the tokens per second after the first one. Where there is only one, its own time counts, at least a microsecond, as in
/// llama.cpp's server.
fn predicted_per_second(timings: &Timings) -> f64 {
    const LEAST: Duration = Duration::from_micros(1);
    match timings.predicted_n {
        1 if timings.predicted_per_second == 0.0 => {
            timings.predicted.max(LEAST).as_secs_f64().recip()
        }
        _ => timings.predicted_per_second,
    }
}

/// How far a prompt has come, as llama.cpp tells it.
pub(crate) fn progress_json(prefill: &Prefill) -> Value {
    json!({
        "total": prefill.cached + prefill.total,
        "cache": prefill.cached,
        "processed": prefill.cached + prefill.done,
    })
}

/// A call of a tool as OpenAI's API has it.
pub fn call_json(call: &ToolCall) -> Value {
    let ToolCall { id, name, arguments } = call;
    json!({ "id": id, "type": "function", "function": { "name": name, "arguments": arguments } })
}

/// Calls of tools as OpenAI's API has them.
pub fn calls_json(calls: &[ToolCall]) -> Value {
    calls.iter().map(call_json).collect()
}

/// A call as OpenAI's API has it; some write its arguments as an object. `None` for what is none.
pub fn call_of_json(value: &Value) -> Option<ToolCall> {
    let text = |key: &str| value.pointer(key)?.as_str().map(str::to_owned);
    let arguments = match value.pointer("/function/arguments") {
        None | Some(Value::Null) => "{}".to_owned(),
        Some(Value::String(text)) => past_arguments(text),
        Some(object @ Value::Object(_)) => object.to_string(),
        Some(other) => past_arguments(&other.to_string()),
    };
    let name = text("/function/name")?;
    Some(ToolCall { id: text("/id").unwrap_or_default(), name, arguments })
}

/// Returns the arguments of an earlier call as the text of a JSON object, which templates expect. Empty arguments become an empty
/// object. Text that is not an object, such as the arguments of a cut call, is wrapped in one. The text is checked without building
/// values, so that it takes no further memory.
pub(crate) fn past_arguments(text: &str) -> String {
    let text = text.trim();
    match text {
        "" | "null" => "{}".to_owned(),
        object if is_object(object) => object.to_owned(),
        other => json!({ "arguments": other }).to_string(),
    }
}

/// Whether more of a reply would have come.
pub(crate) fn is_cut(reason: FinishReason) -> bool {
    matches!(reason, FinishReason::Length | FinishReason::Cancelled)
}

/// Seconds since 1970.
pub(crate) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
}

#[cfg(test)]
mod tests {
    use super::scores::tests::Letters;
    use super::*;

    #[test]
    fn arguments_of_the_past_are_always_an_object() {
        for (text, object) in [
            ("", "{}"),
            (" \n", "{}"),
            ("null", "{}"),
            ("{\"a\": 1}", "{\"a\": 1}"),
            ("{\"a\": ", "{\"arguments\":\"{\\\"a\\\":\"}"),
            ("[1]", "{\"arguments\":\"[1]\"}"),
            ("{} {}", "{\"arguments\":\"{} {}\"}"),
            ("{\"a\": 1e999}", "{\"arguments\":\"{\\\"a\\\": 1e999}\"}"),
        ] {
            assert_eq!(past_arguments(text), object);
            let call = json!({ "id": "a", "function": { "name": "f", "arguments": text } });
            assert_eq!(call_of_json(&call).unwrap().arguments, object);
        }
        assert_eq!(call_of_json(&json!({ "function": { "arguments": "" } })), None);
        // deeper arguments are wrapped, because later readers have the same depth limit
        let deep = |n: usize| format!("{{\"a\":{}{}}}", "[".repeat(n), "]".repeat(n));
        assert_eq!(past_arguments(&deep(100)), deep(100));
        assert!(past_arguments(&deep(100_000)).starts_with("{\"arguments\":"));
    }

    /// The rate of a reply is finite, and above 0 if it has a token.
    #[test]
    fn a_reply_of_one_token_has_a_rate() {
        let of = |n: usize, micros: u64, rate: f64| {
            let predicted = Duration::from_micros(micros);
            timings_json(&Timings {
                predicted_n: n,
                predicted,
                predicted_per_second: rate,
                ..Timings::default()
            })
        };
        for (n, micros, rate, told) in [
            (0, 0, 0.0, (0.0, 0.0)),
            (1, 2_000, 0.0, (500.0, 2.0)),
            (1, 0, 0.0, (1e6, 1e-3)),
            (3, 9_000, 250.0, (250.0, 4.0)),
        ] {
            let timings = of(n, micros, rate);
            let number = |name: &str| timings[name].as_f64().unwrap();
            let found = (number("predicted_per_second"), number("predicted_per_token_ms"));
            let near = |a: f64, b: f64| (a - b).abs() <= 1e-9 * b.abs();
            assert!(near(found.0, told.0) && near(found.1, told.1), "{n}: {found:?}");
        }
    }

    #[test]
    fn a_call_that_the_model_broke_is_not_told_as_cut() {
        assert!(call_note("look", true).contains("ended within a call of `look`"));
        let broken = call_note("look", false);
        assert!(broken.contains("call of `look` that cannot be read"), "{broken}");
    }

    /// The memory reserved for the scores of a prompt is what their values and their JSON take.
    #[test]
    fn scores_of_prompts_take_what_is_reserved() {
        let score = |token: u32| engine::Logprob { token, logprob: -1.234_567_8 };
        for top in [0, 1, 5, 20] {
            let token = |token: u32| TokenLogprobs {
                chosen: score(token),
                top: (0..top).map(|i| score(token + i)).collect(),
            };
            let prompt = PromptLogprobs { first: 7, rest: (0..1_999).map(token).collect() };
            let value =
                text_logprobs_json(Some(&prompt), &[], &Letters, &mut TextOffset::default());
            let taken = crate::body::value_bytes(&value) + value.to_string().len() as u64;
            let reserved = scored_text_bytes(2_000, top as usize);
            let share = taken as f64 / reserved as f64;
            assert!((0.6..=1.05).contains(&share), "{top}: {taken} of {reserved}");
        }
    }

    #[test]
    fn a_character_of_several_tokens_counts_once() {
        let text = "a\u{00e4}\u{1f600}b";
        let bytes = text.as_bytes();
        // a token a byte: where it stands is how many characters are whole before it
        let mut offset = TextOffset::default();
        let mut found = Vec::new();
        for byte in bytes {
            found.push(offset.chars);
            offset.add(&[*byte]);
        }
        assert_eq!(found, [0, 1, 1, 2, 2, 2, 2, 3]);
        assert_eq!(offset.chars, text.chars().count());
        // what is no character stands in the text as one
        let mut offset = TextOffset::default();
        for bytes in [&b"x\xff"[..], b"\xe2\x82", b"y"] {
            offset.add(bytes);
        }
        assert_eq!(offset.chars, String::from_utf8_lossy(b"x\xff\xe2\x82y").chars().count());
    }
}
