//! llama.cpp's server: whether it is there, what it is, tokens, templates.

mod completion;
mod slots;

use std::sync::Arc;

use axum::Json;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderName, Uri};
use engine::{ChatFormat, Reasoning, SAMPLER_SETTINGS, Vocabulary};
use serde_json::{Map, Value, json};

use super::{Endpoints, Takes};
use crate::Ready;
use crate::api::pending::{CancelOnDrop, blocking};
use crate::body::JsonBody;
use crate::error::{ApiError, Result};
use crate::fields::{Field, Fields, check};
use crate::request::messages;

pub(super) fn routes(endpoints: Endpoints) -> Endpoints {
    let text = Takes::Settings(completion::COMPLETION);
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
        .post(
            "/infill",
            "A hole that is filled",
            Takes::Settings(completion::INFILL),
            completion::infill,
        )
        .get_of_model("/props", "How replies are made where nobody says", props)
        .get_of_model("/slots", "In which slots replies are being made", slots::slots)
        .post_with(
            "/slots/{id}",
            "What a slot has is saved, had back or forgotten",
            slots::QUERY,
            Takes::Fields(slots::SLOT),
            slots::act,
        )
        .post("/tokenize", "The tokens of a text", Takes::Fields(TOKENIZE), tokenize)
        .post("/detokenize", "The text of tokens", Takes::Fields(DETOKENIZE), detokenize)
        .post(
            "/apply-template",
            "Messages as the model is told them",
            Takes::Fields(APPLY_TEMPLATE),
            apply_template,
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
async fn metrics(Ready(models): Ready) -> ([(HeaderName, &'static str); 1], String) {
    let kind = [(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")];
    (kind, models.metrics())
}

const TOKENIZE: Fields = &[
    ("model", Field::Honoured),
    ("content", Field::Honoured),
    ("add_special", Field::Honoured),
    ("parse_special", Field::Honoured),
    ("with_pieces", Field::Honoured),
];

async fn tokenize(Ready(models): Ready, body: JsonBody) -> Result<Json<Value>> {
    check(body.fields(), TOKENIZE, |_| false)?;
    let text = body.text("content")?;
    let text = text.ok_or_else(|| ApiError::field("content", "expected a text"))?.to_owned();
    let flag = |name| body.flag(name).map(|flag| flag.unwrap_or(false));
    let (add, parse) = (flag("add_special")?, flag("parse_special")?);
    let pieces = flag("with_pieces")?;
    let app = models.serving(body.text("model")?).await?;
    let work = move || {
        let tokenizer = app.model.format.tokenizer();
        let encoded = if parse { tokenizer.encode_special(&text) } else { tokenizer.encode(&text) };
        let mut tokens = encoded.map_err(engine::Error::from)?;
        if let Some(bos) = tokenizer.bos().filter(|_| add && tokenizer.adds_bos()) {
            tokens.insert(0, bos);
        }
        let piece = |&id: &u32| {
            let bytes = Vocabulary::bytes(&**tokenizer, id).into_owned();
            let piece =
                String::from_utf8(bytes).map_or_else(|e| json!(e.into_bytes()), Value::from);
            json!({ "id": id, "piece": piece })
        };
        Ok(Json(match pieces {
            true => json!({ "tokens": tokens.iter().map(piece).collect::<Vec<_>>() }),
            false => json!({ "tokens": tokens }),
        }))
    };
    blocking(work).await
}

const DETOKENIZE: Fields = &[("model", Field::Honoured), ("tokens", Field::Honoured)];

async fn detokenize(Ready(models): Ready, body: JsonBody) -> Result<Json<Value>> {
    check(body.fields(), DETOKENIZE, |_| false)?;
    let expected = || ApiError::field("tokens", "expected token ids");
    let id = |token: &Value| u32::try_from(token.as_u64()?).ok();
    let tokens = body.list("tokens")?.ok_or_else(expected)?;
    let tokens: Vec<u32> = tokens.iter().map(id).collect::<Option<_>>().ok_or_else(expected)?;
    let app = models.serving(body.text("model")?).await?;
    let mut text = Vec::new();
    for id in tokens {
        text.extend_from_slice(&Vocabulary::bytes(&*app.model.format, id));
    }
    Ok(Json(json!({ "content": String::from_utf8_lossy(&text) })))
}

const APPLY_TEMPLATE: Fields = &[("model", Field::Honoured), ("messages", Field::Honoured)];

async fn apply_template(Ready(models): Ready, body: JsonBody) -> Result<Json<Value>> {
    check(body.fields(), APPLY_TEMPLATE, |_| false)?;
    let messages = messages(&body)?;
    let app = models.serving(body.text("model")?).await?;
    let cancel = CancelOnDrop::default();
    let flag = Arc::clone(cancel.flag());
    let render = move || {
        let spans = app.model.format.render(&messages, None, Reasoning::Auto, &flag)?;
        let prompt: String = spans.iter().map(|span| &*span.text).collect();
        Ok(Json(json!({ "prompt": prompt })))
    };
    blocking(render).await
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
