//! `/v1/models`: what is served.

use std::collections::HashSet;

use axum::Json;
use axum::extract::Path;
use serde_json::{Value, json};

use crate::Ready;
use crate::error::Result;
use crate::models::Models;
use crate::offers::ModelAbout;

pub(super) async fn list(Ready(models): Ready) -> Json<Value> {
    let about = models.about();
    let names = about.iter().flat_map(|about| about.names().map(move |name| (name, about)));
    let loaded = loaded(&models);
    let data: Vec<Value> = names.map(|(name, about)| entry(&loaded, name, about)).collect();
    Json(json!({ "object": "list", "data": data }))
}

pub(super) async fn one(Ready(models): Ready, Path(id): Path<String>) -> Result<Json<Value>> {
    let about = models.named(Some(&id))?;
    let name = about.names().find(|name| name.eq_ignore_ascii_case(&id)).unwrap_or(&about.name);
    Ok(Json(entry(&loaded(&models), name, &about)))
}

/// Returns the names of all models that are loaded.
fn loaded(models: &Models) -> HashSet<String> {
    models.loaded().into_iter().map(|loaded| loaded.about.name.clone()).collect()
}

/// Returns the entry of a model under one of its names.
fn entry(loaded: &HashSet<String>, name: &str, about: &ModelAbout) -> Value {
    let loaded = loaded.contains(&about.name);
    json!({
        "id": name,
        "object": "model",
        "created": about.created,
        "owned_by": "rooflight",
        "status": { "value": if loaded { "loaded" } else { "unloaded" } },
        "aliases": about.aliases,
        "meta": {
            "n_ctx": about.context,
            "size": about.bytes,
            "n_params": about.details.parameters,
        },
    })
}
