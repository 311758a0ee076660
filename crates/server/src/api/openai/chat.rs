//! `/v1/chat/completions` and `/v1/completions`.

use std::sync::Arc;

use axum::Json;
use axum::response::{IntoResponse, Response};

use super::check_model;
use super::reply::OpenAiReply;
use super::request::{OpenAiEndpoint, OpenAiRequest};
use crate::api::stream::stream;
use crate::body::JsonBody;
use crate::error::Result;
use crate::guard::KeyId;
use crate::{Ready, Serving};

pub(super) async fn chat(Ready(app): Ready, key: KeyId, body: JsonBody) -> Result<Response> {
    answer(OpenAiEndpoint::Chat, app, key, &body).await
}

pub(super) async fn completions(Ready(app): Ready, key: KeyId, body: JsonBody) -> Result<Response> {
    answer(OpenAiEndpoint::Texts, app, key, &body).await
}

async fn answer(
    endpoint: OpenAiEndpoint,
    app: Arc<Serving>,
    key: KeyId,
    body: &JsonBody,
) -> Result<Response> {
    let request = OpenAiRequest::read(endpoint, body, &app.model.sampler)?;
    check_model(&app, request.model.as_deref())?;
    let reply = OpenAiReply::new(app.model.source(), endpoint, &request);
    let pending = app.reply(request.asked, key).await?;
    let reply = reply.with_notes(pending.notes.clone());
    match request.stream {
        true => Ok(stream(pending, reply)),
        false => Ok(Json(reply.whole(&pending.whole().await?)).into_response()),
    }
}
