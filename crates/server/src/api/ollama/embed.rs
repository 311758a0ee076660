//! `/api/embed`, and `/api/embeddings` before it.

use std::time::Instant;

use axum::Json;
use serde_json::{Value, json};

use super::{keep, model};
use crate::Ready;
use crate::api::texts::inputs;
use crate::body::JsonBody;
use crate::error::{ApiError, Result};
use crate::fields::{Field, Fields, check};
use crate::record::Asker;
use crate::request::PromptText;

pub(super) const EMBED: Fields = &[
    ("model", Field::Honoured),
    ("name", Field::Honoured),
    ("input", Field::Honoured),
    ("dimensions", Field::Honoured),
    ("truncate", Field::NoEffect("nothing is cut: a text that does not fit is refused")),
    ("options", Field::NoEffect("they are about replies")),
    ("keep_alive", Field::Honoured),
];

pub(super) async fn embed(
    Ready(models): Ready,
    asker: Asker,
    body: JsonBody,
) -> Result<Json<Value>> {
    check(body.fields(), EMBED, |_| false)?;
    let start = Instant::now();
    let dimensions = body.count("dimensions", 1, usize::MAX)?;
    let (app, texts) = model(&models, &body, |_, _| inputs(&body, "input")).await?;
    let loaded = start.elapsed();
    let said = app.embed(texts, dimensions, &asker.record).await?;
    keep(&models, &body)?;
    Ok(Json(json!({
        "model": app.model.name,
        "embeddings": said.vectors,
        "total_duration": u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX),
        "load_duration": u64::try_from(loaded.as_nanos()).unwrap_or(u64::MAX),
        "prompt_eval_count": said.tokens,
    })))
}

pub(super) const EMBEDDINGS: Fields = &[
    ("model", Field::Honoured),
    ("name", Field::Honoured),
    ("prompt", Field::Honoured),
    ("options", Field::NoEffect("they are about replies")),
    ("keep_alive", Field::Honoured),
];

pub(super) async fn embeddings(
    Ready(models): Ready,
    asker: Asker,
    body: JsonBody,
) -> Result<Json<Value>> {
    check(body.fields(), EMBEDDINGS, |_| false)?;
    let text = body.text("prompt")?.ok_or_else(|| ApiError::field("prompt", "expected a text"))?;
    let (app, ()) = model(&models, &body, |_, _| Ok(())).await?;
    let said = app.embed(vec![PromptText::Plain(text.to_owned())], None, &asker.record).await?;
    keep(&models, &body)?;
    Ok(Json(json!({ "embedding": said.vectors.first() })))
}
