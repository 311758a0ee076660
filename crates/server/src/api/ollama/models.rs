//! `/api/tags`, `/api/ps`, `/api/show`, `/api/version`: what there is.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::Json;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::model_name;
use crate::Ready;
use crate::body::RequestBody;
use crate::error::Result;
use crate::fields::{Field, Fields, Takes};
use crate::models::LoadedAbout;
use crate::offers::{ModelAbout, ModelUse};

/// What its clients ask before anything else.
pub(super) async fn running(Ready(_): Ready) -> &'static str {
    "Ollama is running"
}

pub(super) async fn version() -> Json<Value> {
    Json(json!({ "version": env!("CARGO_PKG_VERSION") }))
}

pub(super) async fn tags(Ready(models): Ready) -> Json<Value> {
    Json(json!({ "models": models.about().iter().map(entry).collect::<Vec<_>>() }))
}

/// Those that are loaded, and until when.
pub(super) async fn ps(Ready(models): Ready) -> Json<Value> {
    /// One that goes when another needs its memory.
    const STAYS: &str = "9999-12-31T23:59:59Z";
    let one = |loaded: LoadedAbout| {
        let mut entry = entry(&loaded.about);
        let until = loaded.left.and_then(|left| SystemTime::now().checked_add(left));
        let until = until.map(|until| humantime::format_rfc3339_seconds(until).to_string());
        entry["expires_at"] = json!(until.unwrap_or_else(|| STAYS.to_owned()));
        entry["context_length"] = json!(loaded.about.context);
        entry["size_vram"] = json!(0);
        entry
    };
    Json(json!({ "models": models.loaded().into_iter().map(one).collect::<Vec<_>>() }))
}

const SHOW_FIELDS: Fields = &[
    ("model", Field::Honoured),
    ("name", Field::Honoured),
    ("verbose", Field::NoEffect("there is no more to tell")),
    ("options", Field::NoEffect("they are about replies")),
    ("system", Field::Only("\"\"")),
    ("template", Field::Only("\"\"")),
];

pub(super) const SHOW: Takes = Takes::Fields(SHOW_FIELDS);

pub(super) async fn show(Ready(models): Ready, body: RequestBody) -> Result<Json<Value>> {
    let name = body.read(SHOW, |body| model_name(body).map(str::to_owned)).await?.value;
    let about = models.named(Some(&name))?;
    let family = &about.family;
    // Ollama has no word for models that rank
    let does: &[&str] = match about.does {
        ModelUse::Writes => &["completion", "tools"],
        ModelUse::Embeds => &["embedding"],
        ModelUse::Ranks => &[],
    };
    Ok(Json(json!({
        "details": details(&about),
        "capabilities": does,
        "model_info": {
            "general.architecture": family,
            format!("{family}.context_length"): about.context,
        },
    })))
}

fn entry(about: &ModelAbout) -> Value {
    let modified = UNIX_EPOCH + Duration::from_secs(about.created);
    json!({
        "name": about.name,
        "model": about.name,
        "modified_at": humantime::format_rfc3339_seconds(modified).to_string(),
        "size": about.bytes,
        "digest": digest(about),
        "details": details(about),
    })
}

/// Tells files apart: not of their bytes, which are many, but of what is known of them.
fn digest(about: &ModelAbout) -> String {
    let ModelAbout { name, created, bytes, .. } = about;
    let digest = Sha256::digest(format!("{name} {created} {bytes}"));
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn details(about: &ModelAbout) -> Value {
    json!({ "format": "gguf", "family": about.family, "families": [about.family] })
}
