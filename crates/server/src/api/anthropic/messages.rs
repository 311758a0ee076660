//! `/v1/messages` and `/v1/messages/count_tokens`.

use axum::Json;
use axum::response::{IntoResponse, Response};
use engine::{Reasoning, SamplerOptions};
use serde_json::{Value, json};

use super::conversation::{conversation, tools};
use super::reply::AnthropicReply;
use crate::Ready;
use crate::api::stream::stream;
use crate::body::JsonBody;
use crate::error::{ApiError, Result};
use crate::fields::{Field, Fields, check};
use crate::guard::KeyId;
use crate::models::ModelAbout;
use crate::request::{Asked, ReplySettings, Said, is_setting, stops};

pub(super) const MESSAGES: Fields = &[
    ("model", Field::Honoured),
    ("messages", Field::Honoured),
    ("system", Field::Honoured),
    ("max_tokens", Field::Honoured),
    ("stop_sequences", Field::Honoured),
    ("stream", Field::Honoured),
    ("thinking", Field::Honoured),
    ("seed", Field::Honoured),
    ("tools", Field::Honoured),
    ("tool_choice", Field::Honoured),
    ("metadata", Field::NoEffect("nothing is kept here")),
    ("service_tier", Field::NoEffect("nothing is billed here")),
    ("cache_control", Field::NoEffect("equal beginnings are always found again")),
];

pub(super) const COUNT: Fields = &[
    ("model", Field::Honoured),
    ("messages", Field::Honoured),
    ("system", Field::Honoured),
    ("thinking", Field::Honoured),
    ("tools", Field::Honoured),
    ("tool_choice", Field::Honoured),
    ("cache_control", Field::NoEffect("nothing is computed")),
];

pub(super) async fn messages(Ready(models): Ready, key: KeyId, body: JsonBody) -> Result<Response> {
    check(body.fields(), MESSAGES, is_setting)?;
    let streams = body.flag("stream")?.unwrap_or(false);
    let read = |_: &ModelAbout, sampler: &SamplerOptions| {
        let settings = ReplySettings::read(&body, &["max_tokens"], sampler)?;
        if settings.max_tokens.is_none() {
            return Err(ApiError::field("max_tokens", "expected a number, 1 or more"));
        }
        let settings = ReplySettings { stop: stops(&body, "stop_sequences")?, ..settings };
        let said = Said::Messages(conversation(&body)?, thinking(&body)?);
        Ok(Asked { tools: tools(&body)?, ..Asked::one(said, settings) })
    };
    let (app, asked) = models.serving_for(body.text("model")?, read).await?;
    let pending = app.reply(asked, key).await?;
    let notes = pending.notes.clone();
    let reply = AnthropicReply::new(app.model.source(), pending.prompt_tokens, notes);
    if streams {
        return Ok(stream(pending, reply));
    }
    let whole = pending.whole().await?;
    let one = whole.first().ok_or_else(|| ApiError::internal("there is no reply"))?;
    Ok(Json(reply.whole(one)).into_response())
}

pub(super) async fn count_tokens(
    Ready(models): Ready,
    key: KeyId,
    body: JsonBody,
) -> Result<Json<Value>> {
    check(body.fields(), COUNT, |_| false)?;
    let read = |_: &ModelAbout, sampler: &SamplerOptions| {
        let said = Said::Messages(conversation(&body)?, thinking(&body)?);
        Ok(Asked { tools: tools(&body)?, ..Asked::one(said, ReplySettings::of(sampler)) })
    };
    let (app, asked) = models.serving_for(body.text("model")?, read).await?;
    Ok(Json(json!({ "input_tokens": app.prompt(asked, key).await?.len() })))
}

const THINKING: Fields = &[
    ("type", Field::Honoured),
    ("budget_tokens", Field::NoEffect("max_tokens bounds thoughts and reply together")),
    ("display", Field::NoEffect("thoughts are told as they are")),
];

/// Whether the model is asked to think.
fn thinking(body: &JsonBody) -> Result<Reasoning> {
    let thinking = body.nested("thinking")?;
    check(thinking.fields(), THINKING, |_| false)?;
    match thinking.text("type")? {
        None => Ok(Reasoning::Auto),
        Some("enabled" | "adaptive") => Ok(Reasoning::On),
        Some("disabled") => Ok(Reasoning::Off),
        Some(_) => Err(ApiError::field("thinking", "expected type enabled, adaptive or disabled")),
    }
}
