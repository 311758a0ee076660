//! `/v1/chat/completions` and `/v1/completions`.

use std::sync::Arc;

use axum::Json;
use axum::response::{IntoResponse, Response};
use engine::SamplerOptions;

use super::reply::OpenAiReply;
use super::request::{OpenAiEndpoint, OpenAiRequest};
use crate::Ready;
use crate::api::running::with_scores;
use crate::api::stream::stream;
use crate::body::{JsonBody, RequestBody};
use crate::error::Result;
use crate::models::{ModelField, Models};
use crate::offers::ModelAbout;
use crate::record::Asker;

pub(super) async fn chat(
    Ready(models): Ready,
    asker: Asker,
    body: RequestBody,
) -> Result<Response> {
    answer(OpenAiEndpoint::Chat, &models, &asker, body).await
}

pub(super) async fn completions(
    Ready(models): Ready,
    asker: Asker,
    body: RequestBody,
) -> Result<Response> {
    answer(OpenAiEndpoint::Texts, &models, &asker, body).await
}

async fn answer(
    endpoint: OpenAiEndpoint,
    models: &Arc<Models>,
    asker: &Asker,
    body: RequestBody,
) -> Result<Response> {
    let read = move |body: &JsonBody, about: &ModelAbout, sampler: &SamplerOptions| {
        let request = OpenAiRequest::read(endpoint, body, sampler)?;
        request.check_echo(about.context)?;
        Ok(request)
    };
    let name: ModelField = |body| body.text("model");
    let (app, request) = models.serving_for(body, endpoint.takes(), name, read).await?;
    let reply = OpenAiReply::new(app.model.source(&asker.record), endpoint, &request.value);
    let streams = request.value.stream;
    let scores = request.value.timings || request.value.choices < request.value.asked.n;
    let asked = request.map(|request| with_scores(request.asked, scores));
    let pending = app.reply(asked, asker).await?;
    let reply = reply.with_notes(pending.notes.clone());
    match streams {
        true => Ok(stream(pending, reply)),
        false => Ok(Json(reply.whole(&pending.whole().await?)).into_response()),
    }
}
