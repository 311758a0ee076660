//! OpenAI's API: chats, texts, models.

mod chat;
mod embeddings;
mod models;
mod reply;
mod request;
mod responses;

use std::sync::Arc;

use axum::Router;
use axum::routing::{get, post};

use crate::error::{ApiError, Result};
use crate::{App, Serving};

pub use reply::OpenAiReply;
pub(super) use request::texts;
pub use request::{OpenAiEndpoint, OpenAiRequest};

/// Replies to one request.
const MOST_CHOICES: usize = 8;

pub(super) fn routes(router: Router<Arc<App>>) -> Router<Arc<App>> {
    router
        .route("/v1/chat/completions", post(chat::chat))
        .route("/v1/completions", post(chat::completions))
        .route("/v1/responses", post(responses::responses))
        .route("/v1/embeddings", post(embeddings::embeddings))
        .route("/v1/rerank", post(embeddings::rerank))
        .route("/rerank", post(embeddings::rerank))
        .route("/v1/models", get(models::list))
        .route("/v1/models/{*id}", get(models::one))
}

const KEPT_ELSEWHERE: &str = "nothing is kept or billed here";
const ALWAYS: &str = "it is so anyway";

/// Fields of chats and texts alike.
macro_rules! common_fields {
    ($($more:expr),* $(,)?) => {
        &[
            ("model", Field::Honoured),
            ("stream", Field::Honoured),
            ("stream_options", Field::Honoured),
            ("return_progress", Field::Honoured),
            ("max_tokens", Field::Honoured),
            ("n", Field::Honoured),
            ("seed", Field::Honoured),
            ("stop", Field::Honoured),
            ("logit_bias", Field::Honoured),
            ("response_format", Field::Honoured),
            ("json_schema", Field::Honoured),
            ("grammar", Field::Honoured),
            ("ignore_eos", Field::Honoured),
            ("user", Field::NoEffect(super::KEPT_ELSEWHERE)),
            ("store", Field::NoEffect(super::KEPT_ELSEWHERE)),
            ("metadata", Field::NoEffect(super::KEPT_ELSEWHERE)),
            ("service_tier", Field::NoEffect(super::KEPT_ELSEWHERE)),
            ("safety_identifier", Field::NoEffect(super::KEPT_ELSEWHERE)),
            ("prompt_cache_key", Field::NoEffect(super::ALWAYS)),
            ("prompt_cache_retention", Field::NoEffect(super::ALWAYS)),
            ("cache_prompt", Field::NoEffect(super::ALWAYS)),
            $($more),*
        ]
    };
}
use common_fields;

/// Whether the model that a request names is the one that is served; a request that names none means it.
///
/// # Errors
/// Another name.
pub(super) fn check_model(app: &Serving, name: Option<&str>) -> Result<()> {
    match name {
        Some(name) if name != app.model.name && !name.is_empty() => Err(no_model(app, name)),
        _ => Ok(()),
    }
}

fn no_model(app: &Serving, name: &str) -> ApiError {
    let name: String = name.chars().take(60).filter(|c| !c.is_control()).collect();
    ApiError::not_found(format!("there is no model `{name}` here, but `{}`", app.model.name))
}
