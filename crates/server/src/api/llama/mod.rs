//! llama.cpp's server: whether it is there, what it is, tokens, templates.

mod completion;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::http::HeaderName;
use axum::http::header::CONTENT_TYPE;
use axum::routing::{get, post};
use axum::{Json, Router};
use engine::{ChatFormat, Reasoning, SAMPLER_SETTINGS, Vocabulary};
use serde_json::{Map, Value, json};

use crate::api::pending::{CancelOnDrop, blocking};
use crate::body::JsonBody;
use crate::error::{ApiError, Result};
use crate::fields::{Field, Fields, check};
use crate::request::messages;
use crate::{App, Ready};

pub(super) fn routes(router: Router<Arc<App>>) -> Router<Arc<App>> {
    router
        .route("/health", get(health))
        .route("/v1/health", get(health))
        .route("/metrics", get(metrics))
        .route("/completion", post(completion::completion))
        .route("/completions", post(completion::completion))
        .route("/infill", post(completion::infill))
        .route("/props", get(props))
        .route("/slots", get(slots))
        .route("/tokenize", post(tokenize))
        .route("/detokenize", post(detokenize))
        .route("/apply-template", post(apply_template))
}

async fn health(Ready(_): Ready) -> Json<Value> {
    Json(json!({ "status": "ok" }))
}

/// How replies are made where a request does not say.
async fn props(Ready(app): Ready) -> Json<Value> {
    let mut params = Map::new();
    for setting in SAMPLER_SETTINGS {
        let shown = setting.show(&app.model.sampler);
        let value = serde_json::from_str(&shown).unwrap_or(Value::String(shown));
        params.insert(setting.name.replace('-', "_"), value);
    }
    Json(json!({
        "default_generation_settings": { "n_ctx": app.model.cache.capacity, "params": params },
        "total_slots": app.model.parallel,
        "model_alias": app.model.name,
        "build_info": concat!("rooflight ", env!("CARGO_PKG_VERSION")),
    }))
}

/// Counts and times for Prometheus.
async fn metrics(Ready(app): Ready) -> ([(HeaderName, &'static str); 1], String) {
    let room = app.model.parallel.max(1) * app.model.cache.capacity;
    let kind = [(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")];
    (kind, app.metrics.render(&app.model.name, room))
}

/// How many replies are being made. What they say is nobody else's.
async fn slots(Ready(app): Ready) -> Json<Value> {
    let running = app.metrics.running.load(Ordering::Relaxed);
    let n_ctx = app.model.cache.capacity;
    let slot = |id| json!({ "id": id, "n_ctx": n_ctx, "is_processing": id < running });
    Json((0..app.model.parallel).map(slot).collect())
}

const TOKENIZE: Fields = &[
    ("content", Field::Honoured),
    ("add_special", Field::Honoured),
    ("parse_special", Field::Honoured),
    ("with_pieces", Field::Honoured),
];

async fn tokenize(Ready(app): Ready, body: JsonBody) -> Result<Json<Value>> {
    check(body.fields(), TOKENIZE, |_| false)?;
    let text = body.text("content")?;
    let text = text.ok_or_else(|| ApiError::field("content", "expected a text"))?.to_owned();
    let flag = |name| body.flag(name).map(|flag| flag.unwrap_or(false));
    let (add, parse) = (flag("add_special")?, flag("parse_special")?);
    let pieces = flag("with_pieces")?;
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

const DETOKENIZE: Fields = &[("tokens", Field::Honoured)];

async fn detokenize(Ready(app): Ready, body: JsonBody) -> Result<Json<Value>> {
    check(body.fields(), DETOKENIZE, |_| false)?;
    let expected = || ApiError::field("tokens", "expected token ids");
    let tokens = body.list("tokens")?.ok_or_else(expected)?;
    let mut text = Vec::new();
    for token in tokens {
        let id = token.as_u64().and_then(|id| u32::try_from(id).ok()).ok_or_else(expected)?;
        text.extend_from_slice(&Vocabulary::bytes(&*app.model.format, id));
    }
    Ok(Json(json!({ "content": String::from_utf8_lossy(&text) })))
}

const APPLY_TEMPLATE: Fields = &[("messages", Field::Honoured)];

async fn apply_template(Ready(app): Ready, body: JsonBody) -> Result<Json<Value>> {
    check(body.fields(), APPLY_TEMPLATE, |_| false)?;
    let messages = messages(&body)?;
    let cancel = CancelOnDrop::default();
    let flag = Arc::clone(cancel.flag());
    let render = move || {
        let spans = app.model.format.render(&messages, None, Reasoning::Auto, &flag)?;
        let prompt: String = spans.iter().map(|span| &*span.text).collect();
        Ok(Json(json!({ "prompt": prompt })))
    };
    blocking(render).await
}
