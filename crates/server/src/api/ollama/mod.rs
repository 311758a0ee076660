//! Ollama's API: chats, texts, what there is.

mod embed;
mod models;
mod options;
mod pull;
mod replies;
mod reply;

use std::time::Duration;

use super::Endpoints;
use crate::body::{Footprint, JsonBody};
use crate::error::{ApiError, Result};
use crate::keep::keep_alive;
use crate::models::{ModelField, Models};
use crate::record::Asker;

pub(super) fn routes(endpoints: Endpoints) -> Endpoints {
    let (chat, text) = (replies::CHATTED, replies::GENERATED);
    let (vectors, vector) = (embed::EMBED, embed::EMBEDDINGS);
    endpoints
        .get("/", "That the server is there, in the words of Ollama's", models::running)
        .post("/api/chat", "A reply to messages, as Ollama's API has it", chat, replies::chat)
        .post("/api/generate", "A reply to a text", text, replies::generate)
        .post("/api/embed", "Vectors of texts", vectors, embed::embed)
        .post("/api/embeddings", "The vector of a text", vector, embed::embeddings)
        .get("/api/tags", "The models that are served", models::tags)
        .get("/api/ps", "Those that are loaded, and until when", models::ps)
        .post("/api/show", "What is known of a model", models::SHOW, models::show)
        .post("/api/pull", "Brings a model here, and serves it", pull::PULL, pull::pull)
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

/// The field that names a model.
const MODEL: ModelField = |body| model_name(body).map(Some);

/// How long the model of a request stays.
#[derive(Clone, Debug)]
struct Kept {
    /// The model.
    name: String,
    /// As `keep_alive` says; `None`: as usual.
    time: Option<Option<Duration>>,
}

impl Footprint for Kept {
    fn footprint(&self) -> u64 {
        self.name.footprint()
    }
}

impl Kept {
    /// As a request says it.
    ///
    /// # Errors
    /// No name, or a time that is none.
    fn read(body: &JsonBody) -> Result<Kept> {
        Ok(Kept { name: model_name(body)?.to_owned(), time: keep_alive(body)? })
    }

    /// Whether the model is to be unloaded when nothing uses it any more.
    fn is_over(&self) -> bool {
        self.time == Some(Some(Duration::ZERO))
    }

    /// A request was taken: its model stays for as long as it says, else as usual.
    ///
    /// # Errors
    /// Another name.
    fn keep(&self, models: &Models, asker: &Asker) -> Result<bool> {
        models.keep(Some(&self.name), self.time.unwrap_or(models.usual_keep()), asker.client)
    }
}
