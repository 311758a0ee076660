//! `/api/tags`, `/api/ps`, `/api/show`, `/api/version`: what there is.

use std::time::{Duration, UNIX_EPOCH};

use axum::Json;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::check_model;
use crate::body::JsonBody;
use crate::error::Result;
use crate::fields::{Field, Fields, check};
use crate::{Ready, ServedModel, Serving};

/// What its clients ask before anything else.
pub(super) async fn running(Ready(_): Ready) -> &'static str {
    "Ollama is running"
}

pub(super) async fn version() -> Json<Value> {
    Json(json!({ "version": env!("CARGO_PKG_VERSION") }))
}

pub(super) async fn tags(Ready(app): Ready) -> Json<Value> {
    Json(json!({ "models": [entry(&app)] }))
}

/// It stays for as long as the server does.
pub(super) async fn ps(Ready(app): Ready) -> Json<Value> {
    let mut entry = entry(&app);
    entry["context_length"] = json!(app.model.cache.capacity);
    entry["size_vram"] = json!(0);
    Json(json!({ "models": [entry] }))
}

const SHOW: Fields = &[
    ("model", Field::Honoured),
    ("name", Field::Honoured),
    ("verbose", Field::NoEffect("there is no more to tell")),
];

pub(super) async fn show(Ready(app): Ready, body: JsonBody) -> Result<Json<Value>> {
    check(body.fields(), SHOW, |_| false)?;
    check_model(&app, &body)?;
    let family = &app.model.family;
    Ok(Json(json!({
        "details": details(&app),
        "capabilities": ["completion", "tools"],
        "model_info": {
            "general.architecture": family,
            format!("{family}.context_length"): app.model.cache.capacity,
        },
    })))
}

fn entry(app: &Serving) -> Value {
    let modified = UNIX_EPOCH + Duration::from_secs(app.model.created);
    json!({
        "name": app.model.name,
        "model": app.model.name,
        "modified_at": humantime::format_rfc3339_seconds(modified).to_string(),
        "size": app.model.bytes,
        "digest": digest(app),
        "details": details(app),
    })
}

/// Tells files apart: not of their bytes, which are many, but of what is known of them.
fn digest(app: &Serving) -> String {
    let ServedModel { name, created, bytes, .. } = &*app.model;
    let digest = Sha256::digest(format!("{name} {created} {bytes}"));
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn details(app: &Serving) -> Value {
    json!({ "format": "gguf", "family": app.model.family, "families": [app.model.family] })
}
