//! `/api/embed`, and `/api/embeddings` before it.

use axum::response::Response;
use serde::Serialize;

use super::options::options;
use super::{Kept, MODEL};
use crate::Ready;
use crate::api::texts::{Wanted, inputs};
use crate::api::written;
use crate::body::{JsonBody, RequestBody};
use crate::error::Result;
use crate::fields::{Field, Fields, Takes, is_empty};
use crate::offers::ModelAbout;
use crate::record::Asker;
use crate::request::PromptText;

const EMBED_FIELDS: Fields = &[
    ("model", Field::Honoured),
    ("name", Field::Honoured),
    ("input", Field::Honoured),
    ("dimensions", Field::Honoured),
    ("truncate", Field::Honoured),
    ("options", Field::Honoured),
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
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    warnings: &'v [String],
}

/// The response of `/api/embeddings`.
#[derive(Serialize)]
struct Embedding<'v> {
    embedding: &'v [f32],
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    warnings: &'v [String],
}

pub(super) async fn embed(
    Ready(models): Ready,
    asker: Asker,
    body: RequestBody,
) -> Result<Response> {
    let read = |body: &JsonBody, about: &ModelAbout, _: &_| {
        options(body, about)?;
        let dimensions = body.count("dimensions", 1, usize::MAX)?;
        let cuts = body.flag("truncate")?.unwrap_or(true);
        let field = "input";
        // an empty input has no vectors, and is not an error
        let texts = match body.get(field) {
            Some(nothing) if is_empty(nothing) => Vec::new(),
            _ => inputs(body, field)?,
        };
        let packed = false;
        Ok((Wanted { texts, field, cuts, dimensions, packed }, Kept::read(body)?))
    };
    let (app, request) = models.serving_for(body, EMBED, MODEL, read).await?;
    let (start, loaded) = (asker.record.began, asker.record.load_time());
    let kept = request.value.1.clone();
    let said = app.embed(request.map(|(wanted, _)| wanted), &asker).await?;
    kept.keep(&models, &asker)?;
    let write = move |vectors: &[Vec<f32>], tokens: usize, warnings: &[String]| {
        written::json_text(&Embeddings {
            model: &app.model.name,
            embeddings: vectors,
            total_duration: u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX),
            load_duration: u64::try_from(loaded.as_nanos()).unwrap_or(u64::MAX),
            prompt_eval_count: tokens,
            warnings,
        })
    };
    said.written(write).await
}

const EMBEDDINGS_FIELDS: Fields = &[
    ("model", Field::Honoured),
    ("name", Field::Honoured),
    ("prompt", Field::Honoured),
    ("options", Field::Honoured),
    ("keep_alive", Field::Honoured),
];
pub(super) const EMBEDDINGS: Takes = Takes::Fields(EMBEDDINGS_FIELDS);

pub(super) async fn embeddings(
    Ready(models): Ready,
    asker: Asker,
    body: RequestBody,
) -> Result<Response> {
    let read = |body: &JsonBody, about: &ModelAbout, _: &_| {
        options(body, about)?;
        let field = "prompt";
        let text = body.text(field)?.filter(|text| !text.is_empty());
        let texts = text.map(|text| PromptText::Plain(text.to_owned())).into_iter().collect();
        let wanted = Wanted { texts, field, cuts: true, dimensions: None, packed: false };
        Ok((wanted, Kept::read(body)?))
    };
    let (app, request) = models.serving_for(body, EMBEDDINGS, MODEL, read).await?;
    let kept = request.value.1.clone();
    let said = app.embed(request.map(|(wanted, _)| wanted), &asker).await?;
    kept.keep(&models, &asker)?;
    let write = |vectors: &[Vec<f32>], _: usize, warnings: &[String]| {
        let embedding = vectors.first().map_or(&[][..], Vec::as_slice);
        written::json_text(&Embedding { embedding, warnings })
    };
    said.written(write).await
}
