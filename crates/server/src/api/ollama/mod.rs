//! Ollama's API: chats, texts, what there is.

mod embed;
mod models;
mod replies;
mod reply;

use std::sync::Arc;

use super::{Endpoints, Takes};
use crate::Serving;
use crate::body::JsonBody;
use crate::error::{ApiError, Result};
use crate::keep::keep_alive;
use crate::models::Models;

pub(super) fn routes(endpoints: Endpoints) -> Endpoints {
    let (chat, text) = (Takes::Fields(replies::CHAT), Takes::Fields(replies::GENERATE));
    let (vectors, vector) = (Takes::Fields(embed::EMBED), Takes::Fields(embed::EMBEDDINGS));
    endpoints
        .get("/", "That the server is there, in the words of Ollama's", models::running)
        .post("/api/chat", "A reply to messages, as Ollama's API has it", chat, replies::chat)
        .post("/api/generate", "A reply to a text", text, replies::generate)
        .post("/api/embed", "Vectors of texts", vectors, embed::embed)
        .post("/api/embeddings", "The vector of a text", vector, embed::embeddings)
        .get("/api/tags", "The models that are served", models::tags)
        .get("/api/ps", "Those that are loaded, and until when", models::ps)
        .post("/api/show", "What is known of a model", Takes::Fields(models::SHOW), models::show)
        .get("/api/version", "The version of the server", models::version)
}

/// The model that a request names, tag or none.
///
/// # Errors
/// No name.
fn model_name(body: &JsonBody) -> Result<&str> {
    let name = body.text("model")?.or(body.text("name")?);
    name.ok_or_else(|| ApiError::field("model", "expected the name of one"))
}

/// The same, loaded; it stays for as long as `keep_alive` says, else as usual.
///
/// # Errors
/// No name, another, or one that cannot be loaded.
async fn model(models: &Arc<Models>, body: &JsonBody) -> Result<Arc<Serving>> {
    let (name, keep) = (model_name(body)?, keep_alive(body)?);
    let serving = models.serving(Some(name)).await?;
    models.keep(Some(name), keep.unwrap_or(models.usual_keep()))?;
    Ok(serving)
}
