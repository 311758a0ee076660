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
use crate::api::written;
use crate::body::{JsonBody, RequestBody};
use crate::error::Result;
use crate::models::{ModelField, Models};
use crate::offers::ModelAbout;
use crate::record::Asker;
use crate::wire::{score_list_bytes, scored_text_bytes};

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
    let top = request.value.asked.logprobs;
    let ranks = request.value.timings || request.value.choices < request.value.asked.n;
    let asked = request.map(|request| with_scores(request.asked, ranks));
    let intake = Arc::clone(&asked.claim.intake);
    let mut pending = app.reply(asked, asker).await?;
    let reply = reply.with_notes(pending.notes.clone());
    if streams {
        return Ok(stream(pending, reply));
    }
    let mut scores = std::mem::take(&mut pending.scores);
    let replies = pending.whole().await?;
    let n: usize = replies.iter().map(|reply| reply.logprobs.len()).sum();
    let bytes = top.map_or(0, |top| match endpoint {
        OpenAiEndpoint::Chat => score_list_bytes(n, top),
        OpenAiEndpoint::Texts => scored_text_bytes(n, top),
    });
    scores.grow(bytes)?;
    match scores.bytes() {
        0 => Ok(Json(reply.whole(&replies)).into_response()),
        // serializing many scores takes seconds
        all => {
            let json = move || reply.text(&replies, bytes);
            Ok(written::whole(intake.encoding(all, json).await?, scores))
        }
    }
}
