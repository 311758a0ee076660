//! `--logprobs`: how likely each token of a reply was, in the shape of OpenAI's API, with ids as llama.cpp has them.

use engine::{Generated, Logprob, Sampler, Vocabulary};
use serde_json::{Value, json};

/// What a sampler kept of the tokens of a reply.
pub(crate) fn to_json(reply: &Generated, sampler: &Sampler, vocabulary: &dyn Vocabulary) -> Value {
    let start = reply.stats.prompt_tokens;
    let kept = sampler.logprobs(start..start + reply.tokens.len());
    let content = kept.map(|token| {
        let mut entry = one(&token.chosen, vocabulary);
        entry["top_logprobs"] = token.top.iter().map(|top| one(top, vocabulary)).collect();
        entry
    });
    json!({ "content": content.collect::<Vec<_>>() })
}

fn one(token: &Logprob, vocabulary: &dyn Vocabulary) -> Value {
    let mut bytes = vocabulary.bytes(token.token).into_owned();
    if bytes.is_empty() {
        // control tokens have a name and no text
        bytes =
            vocabulary.spelling(token.token).map_or_else(Vec::new, |name| name.as_bytes().to_vec());
    }
    json!({
        "id": token.token,
        "token": String::from_utf8_lossy(&bytes),
        "bytes": bytes,
        "logprob": token.logprob,
    })
}
