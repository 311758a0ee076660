//! `/v1/models`: what is served.

use axum::Json;
use axum::extract::Path;
use serde_json::{Value, json};

use super::no_model;
use crate::error::Result;
use crate::{Ready, Serving};

pub(super) async fn list(Ready(app): Ready) -> Json<Value> {
    Json(json!({ "object": "list", "data": [entry(&app)] }))
}

pub(super) async fn one(Ready(app): Ready, Path(id): Path<String>) -> Result<Json<Value>> {
    if id == app.model.name { Ok(Json(entry(&app))) } else { Err(no_model(&app, &id)) }
}

fn entry(app: &Serving) -> Value {
    json!({
        "id": app.model.name,
        "object": "model",
        "created": app.model.created,
        "owned_by": "rooflight",
        "meta": {
            "n_vocab": app.model.format.tokenizer().vocab_size(),
            "n_ctx": app.model.cache.capacity,
        },
    })
}
