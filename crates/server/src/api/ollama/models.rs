//! `/api/tags`, `/api/ps`, `/api/show`, `/api/version`: models and version, with every field that Ollama always sends. Some clients
//! cannot decode a response without them.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::Json;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use super::model_name;
use crate::Ready;
use crate::api::warned;
use crate::body::RequestBody;
use crate::error::Result;
use crate::fields::{Field, Fields, Takes};
use crate::models::LoadedAbout;
use crate::offers::{ModelAbout, ModelDetails, ModelUse};

/// What its clients ask before anything else.
pub(super) async fn running(Ready(_): Ready) -> &'static str {
    "Ollama is running"
}

/// Version of Ollama whose API this server implements. Clients compare it with the oldest version that they support.
const OLLAMA_VERSION: &str = "0.12.11";

pub(super) async fn version() -> Json<Value> {
    Json(json!({ "version": OLLAMA_VERSION, "rooflight": env!("CARGO_PKG_VERSION") }))
}

pub(super) async fn tags(Ready(models): Ready) -> Json<Value> {
    let about = models.about();
    let names = about.iter().flat_map(|about| about.names().map(move |name| entry(name, about)));
    Json(json!({ "models": names.collect::<Vec<_>>() }))
}

/// Those that are loaded, and until when.
pub(super) async fn ps(Ready(models): Ready) -> Json<Value> {
    /// One that goes when another needs its memory.
    const STAYS: &str = "9999-12-31T23:59:59Z";
    let one = |loaded: LoadedAbout| {
        let mut entry = entry(&loaded.about.name, &loaded.about);
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
    ("system", Field::Ignored("a model is shown as its file has it")),
    ("template", Field::Ignored("a model is shown as its file has it")),
];

pub(super) const SHOW: Takes = Takes::Fields(SHOW_FIELDS);

pub(super) async fn show(Ready(models): Ready, body: RequestBody) -> Result<Json<Value>> {
    let asked = body.read(SHOW, |body| model_name(body).map(str::to_owned)).await?;
    let about = models.named(Some(&asked.value))?;
    let details = &about.details;
    let parameters: Vec<String> =
        details.settings.iter().map(|(name, value)| format!("{name:30} {value}")).collect();
    let mut shown = json!({
        "license": details.license,
        "modelfile": format!("# Modelfile of a model that rooflight serves\nFROM {}\n", about.name),
        "parameters": parameters.join("\n"),
        "template": details.template,
        "details": details_json(&about),
        "model_info": model_info(&about),
        "capabilities": capabilities(&about),
        "modified_at": modified(&about),
    });
    warned(&mut shown, &asked.notes);
    Ok(Json(shown))
}

/// Returns the capabilities of a model, as Ollama names them; none for rerankers, for which Ollama has no name.
fn capabilities(about: &ModelAbout) -> Vec<&'static str> {
    let ModelDetails { thinks, fills_holes, .. } = *about.details;
    match about.does {
        ModelUse::Writes => {
            let more = [(fills_holes, "insert"), (thinks, "thinking")];
            let more = more.into_iter().filter_map(|(can, name)| can.then_some(name));
            ["completion", "tools"].into_iter().chain(more).collect()
        }
        ModelUse::Embeds => vec!["embedding"],
        ModelUse::Ranks => Vec::new(),
    }
}

/// Returns the metadata of the model's file, with the context length that conversations have on this server.
fn model_info(about: &ModelAbout) -> Map<String, Value> {
    let family = &about.family;
    let mut info = about.details.metadata.clone();
    info.insert("general.architecture".to_owned(), json!(family));
    info.insert("general.parameter_count".to_owned(), json!(about.details.parameters));
    info.insert(format!("{family}.context_length"), json!(about.context));
    info
}

fn modified(about: &ModelAbout) -> String {
    let modified = UNIX_EPOCH + Duration::from_secs(about.created);
    humantime::format_rfc3339_seconds(modified).to_string()
}

/// Returns the entry of a model under one of its names.
fn entry(name: &str, about: &ModelAbout) -> Value {
    json!({
        "name": name,
        "model": name,
        "modified_at": modified(about),
        "size": about.bytes,
        "digest": digest(about),
        "details": details_json(about),
    })
}

/// Tells files apart: not of their bytes, which are many, but of what is known of them.
fn digest(about: &ModelAbout) -> String {
    let ModelAbout { name, created, bytes, .. } = about;
    let digest = Sha256::digest(format!("{name} {created} {bytes}"));
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn details_json(about: &ModelAbout) -> Value {
    let details = &about.details;
    json!({
        "parent_model": "",
        "format": "gguf",
        "family": about.family,
        "families": [about.family],
        "parameter_size": parameter_size(details.parameters),
        "quantization_level": details.quantization,
    })
}

/// Formats a number of weights as Ollama does: `134.52M`, `7.6B`; empty if the number is unknown.
fn parameter_size(n: u64) -> String {
    let scaled = |unit: u64| n as f64 / unit as f64;
    match n {
        0 => String::new(),
        1..1_000 => n.to_string(),
        1_000..1_000_000 => format!("{:.0}K", scaled(1_000)),
        1_000_000..1_000_000_000 => format!("{:.2}M", scaled(1_000_000)),
        _ => format!("{:.1}B", scaled(1_000_000_000)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_written_as_ollama_does() {
        let sizes = [0, 999, 4_600, 134_515_008, 7_615_616_512, 70_000_000_000];
        let written = sizes.map(parameter_size);
        assert_eq!(written, ["", "999", "5K", "134.52M", "7.6B", "70.0B"]);
    }
}
