//! `/v1/models`: what is served.

use axum::Json;
use axum::extract::Path;
use serde_json::{Value, json};

use crate::Ready;
use crate::error::Result;
use crate::models::Models;
use crate::offers::ModelAbout;

pub(super) async fn list(Ready(models): Ready) -> Json<Value> {
    let data: Vec<Value> = models.about().iter().map(|about| entry(&models, about)).collect();
    Json(json!({ "object": "list", "data": data }))
}

pub(super) async fn one(Ready(models): Ready, Path(id): Path<String>) -> Result<Json<Value>> {
    let about = models.named(Some(&id))?;
    Ok(Json(entry(&models, &about)))
}

fn entry(models: &Models, about: &ModelAbout) -> Value {
    let loaded = models.loaded().iter().any(|loaded| loaded.about.name == about.name);
    json!({
        "id": about.name,
        "object": "model",
        "created": about.created,
        "owned_by": "rooflight",
        "status": { "value": if loaded { "loaded" } else { "unloaded" } },
        "meta": { "n_ctx": about.context, "size": about.bytes },
    })
}
