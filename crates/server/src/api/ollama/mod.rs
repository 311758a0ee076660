//! Ollama's API: chats, texts, what there is.

mod embed;
mod models;
mod replies;
mod reply;

use std::sync::Arc;

use axum::Router;
use axum::routing::{get, post};

use crate::body::JsonBody;
use crate::error::{ApiError, Result};
use crate::{App, Serving};

pub(super) fn routes(router: Router<Arc<App>>) -> Router<Arc<App>> {
    router
        .route("/", get(models::running))
        .route("/api/chat", post(replies::chat))
        .route("/api/generate", post(replies::generate))
        .route("/api/embed", post(embed::embed))
        .route("/api/embeddings", post(embed::embeddings))
        .route("/api/tags", get(models::tags))
        .route("/api/ps", get(models::ps))
        .route("/api/show", post(models::show))
        .route("/api/version", get(models::version))
}

/// Whether the model that a request names, tag or none, is the one that is served.
///
/// # Errors
/// No name, or another.
fn check_model(app: &Serving, body: &JsonBody) -> Result<()> {
    let name = body.text("model")?.or(body.text("name")?);
    let name = name.ok_or_else(|| ApiError::field("model", "expected the name of one"))?;
    let served = &app.model.name;
    match name == served || name.strip_suffix(":latest") == Some(served) {
        true => Ok(()),
        false => {
            let name: String = name.chars().take(60).filter(|c| !c.is_control()).collect();
            let message = format!("model '{name}' not found: '{served}' is served");
            Err(ApiError::not_found(message))
        }
    }
}
