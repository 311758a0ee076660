//! Ollama's API: chats, texts, what there is.

mod embed;
mod models;
mod pull;
mod replies;
mod reply;

use std::sync::Arc;

use engine::SamplerOptions;

use super::{Endpoints, Takes};
use crate::Serving;
use crate::body::JsonBody;
use crate::error::{ApiError, Result};
use crate::keep::keep_alive;
use crate::models::Models;
use crate::offers::ModelAbout;

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
        .post(
            "/api/pull",
            "Brings a model here, and serves it",
            Takes::Fields(pull::PULL),
            pull::pull,
        )
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

/// The same, loaded, and what `read` makes of the request.
///
/// # Errors
/// No name, another, one that cannot be loaded; those of `read`, before it is.
async fn model<T>(
    models: &Arc<Models>,
    body: &JsonBody,
    read: impl Fn(&ModelAbout, &SamplerOptions) -> Result<T>,
) -> Result<(Arc<Serving>, T)> {
    keep_alive(body)?;
    models.serving_for(Some(model_name(body)?), read).await
}

/// A request was taken: its model stays for as long as `keep_alive` says, else as usual.
///
/// # Errors
/// No name, or another.
fn keep(models: &Models, body: &JsonBody) -> Result<()> {
    let time = keep_alive(body)?.unwrap_or(models.usual_keep());
    models.keep(Some(model_name(body)?), time).map(drop)
}
