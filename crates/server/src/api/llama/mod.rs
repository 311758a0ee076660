//! llama.cpp's server: whether it is there, what it is, tokens, templates.

mod completion;
mod slots;
mod texts;

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderName, Uri};
use engine::SAMPLER_SETTINGS;
use serde_json::{Map, Value, json};

use super::{Endpoints, OpenAiEndpoint};
use crate::error::Result;
use crate::{App, Ready};

pub(super) fn routes(endpoints: Endpoints) -> Endpoints {
    let text = completion::COMPLETION;
    endpoints
        .get("/health", "Whether the server is ready", health)
        .get("/v1/health", "The same as /health", health)
        .get("/metrics", "Counts and times for Prometheus", metrics)
        .post(
            "/completion",
            "A text that goes on, as llama.cpp has it",
            text,
            completion::completion,
        )
        .post("/completions", "The same as /completion", text, completion::completion)
        .post("/infill", "A hole that is filled", completion::INFILL, completion::infill)
        .get_of_model("/props", "How replies are made where nobody says", props)
        .get_of_model("/slots", "In which slots replies are being made", slots::slots)
        .post_with(
            "/slots/{id}",
            "What a slot has is saved, had back or forgotten",
            slots::QUERY,
            slots::SLOT,
            slots::act,
        )
        .post("/tokenize", "The tokens of a text", texts::TOKENIZED, texts::tokenize)
        .post("/detokenize", "The text of tokens", texts::DETOKENIZED, texts::detokenize)
        .post(
            "/apply-template",
            "The prompt of a chat, as the model reads it",
            OpenAiEndpoint::Chat.takes(),
            texts::apply_template,
        )
}

async fn health(Ready(_): Ready) -> Json<Value> {
    Json(json!({ "status": "ok" }))
}

/// Which model is asked about: `?model=NAME`.
fn model_of(uri: &Uri) -> Option<String> {
    asked_of(uri, "model")
}

/// What a query says of something.
fn asked_of(uri: &Uri, name: &str) -> Option<String> {
    let mut parts = uri.query()?.split('&').filter_map(|part| part.split_once('='));
    let (_, value) = parts.find(|(known, _)| *known == name)?;
    let mut bytes = Vec::new();
    let mut rest = value.as_bytes();
    while let Some((byte, after)) = rest.split_first() {
        let code = after.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        let code = code.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        rest = match (byte, code) {
            (b'%', Some(code)) => {
                bytes.push(code);
                &after[2..]
            }
            (b'+', _) => {
                bytes.push(b' ');
                after
            }
            _ => {
                bytes.push(*byte);
                after
            }
        };
    }
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// How replies are made where a request does not say.
async fn props(Ready(models): Ready, uri: Uri) -> Result<Json<Value>> {
    let app = models.there(model_of(&uri).as_deref())?;
    let mut params = Map::new();
    for setting in SAMPLER_SETTINGS {
        let shown = setting.show(&app.model.sampler);
        let value = serde_json::from_str(&shown).unwrap_or(Value::String(shown));
        params.insert(setting.name.replace('-', "_"), value);
    }
    Ok(Json(json!({
        "default_generation_settings": { "n_ctx": app.model.cache.capacity, "params": params },
        "total_slots": app.model.n_slots(),
        "model_alias": app.model.name,
        "build_info": concat!("rooflight ", env!("CARGO_PKG_VERSION")),
    })))
}

/// Counts and times for Prometheus.
async fn metrics(
    State(app): State<Arc<App>>,
    Ready(models): Ready,
) -> ([(HeaderName, &'static str); 1], String) {
    const MEMORY: &str = "rooflight:request_memory_bytes";
    let kind = [(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")];
    let help = "Bytes reserved for request bodies and for the data made from them.";
    let used = app.intake.budget.used();
    let memory = format!("# HELP {MEMORY} {help}\n# TYPE {MEMORY} gauge\n{MEMORY} {used}\n");
    (kind, models.metrics() + &memory)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_names_a_model() {
        let of = |uri: &'static str| model_of(&Uri::from_static(uri));
        assert_eq!(of("/slots"), None);
        assert_eq!(of("/slots?x=1&model=qwen2.5%3A7b").as_deref(), Some("qwen2.5:7b"));
        assert_eq!(of("/slots?model=a+b%").as_deref(), Some("a b%"));
    }
}
