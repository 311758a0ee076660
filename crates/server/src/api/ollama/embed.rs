//! `/api/embed`, and `/api/embeddings` before it.

use axum::response::Response;
use serde::Serialize;

use super::{Kept, MODEL};
use crate::Ready;
use crate::api::texts::{Wanted, inputs};
use crate::api::written;
use crate::body::{JsonBody, RequestBody};
use crate::error::{ApiError, Result};
use crate::fields::{Field, Fields, Takes};
use crate::record::Asker;
use crate::request::PromptText;

const EMBED_FIELDS: Fields = &[
    ("model", Field::Honoured),
    ("name", Field::Honoured),
    ("input", Field::Honoured),
    ("dimensions", Field::Honoured),
    ("truncate", Field::NoEffect("nothing is cut: a text that does not fit is refused")),
    ("options", Field::NoEffect("they are about replies")),
    ("keep_alive", Field::Honoured),
];
pub(super) const EMBED: Takes = Takes::Fields(EMBED_FIELDS);

/// The response of `/api/embed`.
#[derive(Serialize)]
struct Embeddings<'v> {
    model: &'v str,
    embeddings: &'v [Vec<f32>],
    total_duration: u64,
    load_duration: u64,
    prompt_eval_count: usize,
}

/// The response of `/api/embeddings`.
#[derive(Serialize)]
struct Embedding<'v> {
    embedding: Option<&'v Vec<f32>>,
}

pub(super) async fn embed(
    Ready(models): Ready,
    asker: Asker,
    body: RequestBody,
) -> Result<Response> {
    let read = |body: &JsonBody, _: &_, _: &_| {
        let dimensions = body.count("dimensions", 1, usize::MAX)?;
        let texts = inputs(body, "input")?;
        Ok((Wanted { texts, dimensions, packed: false }, Kept::read(body)?))
    };
    let (app, request) = models.serving_for(body, EMBED, MODEL, read).await?;
    let (start, loaded) = (asker.record.began, asker.record.load_time());
    let kept = request.value.1.clone();
    let said = app.embed(request.map(|(wanted, _)| wanted), &asker).await?;
    kept.keep(&models, &asker)?;
    let write = move |vectors: &[Vec<f32>], tokens: usize| {
        written::json_text(&Embeddings {
            model: &app.model.name,
            embeddings: vectors,
            total_duration: u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX),
            load_duration: u64::try_from(loaded.as_nanos()).unwrap_or(u64::MAX),
            prompt_eval_count: tokens,
        })
    };
    said.written(write).await
}

const EMBEDDINGS_FIELDS: Fields = &[
    ("model", Field::Honoured),
    ("name", Field::Honoured),
    ("prompt", Field::Honoured),
    ("options", Field::NoEffect("they are about replies")),
    ("keep_alive", Field::Honoured),
];
pub(super) const EMBEDDINGS: Takes = Takes::Fields(EMBEDDINGS_FIELDS);

pub(super) async fn embeddings(
    Ready(models): Ready,
    asker: Asker,
    body: RequestBody,
) -> Result<Response> {
    let read = |body: &JsonBody, _: &_, _: &_| {
        let text = body.text("prompt")?;
        let text = text.ok_or_else(|| ApiError::field("prompt", "expected a text"))?;
        let texts = vec![PromptText::Plain(text.to_owned())];
        Ok((Wanted { texts, dimensions: None, packed: false }, Kept::read(body)?))
    };
    let (app, request) = models.serving_for(body, EMBEDDINGS, MODEL, read).await?;
    let kept = request.value.1.clone();
    let said = app.embed(request.map(|(wanted, _)| wanted), &asker).await?;
    kept.keep(&models, &asker)?;
    said.written(|vectors, _| written::json_text(&Embedding { embedding: vectors.first() })).await
}
