//! `/v1/messages` and `/v1/messages/count_tokens`.

use axum::Json;
use axum::response::{IntoResponse, Response};
use engine::{Message, Reasoning};
use serde_json::{Value, json};

use super::AnthropicError;
use super::reply::AnthropicReply;
use crate::Ready;
use crate::api::asked::{Asked, CancelOnDrop, WantedReplies, is_setting, stops};
use crate::api::openai;
use crate::api::stream::stream;
use crate::body::JsonBody;
use crate::error::{ApiError, Result};
use crate::fields::{Field, Fields, brief, check};

const MESSAGES: Fields = &[
    ("model", Field::Honoured),
    ("messages", Field::Honoured),
    ("system", Field::Honoured),
    ("max_tokens", Field::Honoured),
    ("stop_sequences", Field::Honoured),
    ("stream", Field::Honoured),
    ("thinking", Field::Honoured),
    ("seed", Field::Honoured),
    ("tools", Field::Only("[]")),
    ("metadata", Field::NoEffect("nothing is kept here")),
    ("service_tier", Field::NoEffect("nothing is billed here")),
    ("cache_control", Field::NoEffect("equal beginnings are always found again")),
];

const COUNT: Fields = &[
    ("model", Field::Honoured),
    ("messages", Field::Honoured),
    ("system", Field::Honoured),
    ("thinking", Field::Honoured),
    ("tools", Field::Only("[]")),
    ("cache_control", Field::NoEffect("nothing is computed")),
];

pub(super) async fn messages(
    Ready(app): Ready,
    body: Result<JsonBody, ApiError>,
) -> Result<Response, AnthropicError> {
    let body = body?;
    check(body.fields(), MESSAGES, is_setting)?;
    openai::check_model(&app, &body)?;
    let asked = Asked::read(&body, &["max_tokens"], &app.model.sampler)?;
    if asked.max_tokens.is_none() {
        return Err(ApiError::field("max_tokens", "expected a number, 1 or more").into());
    }
    let asked = Asked { stop: stops(&body, "stop_sequences")?, ..asked };
    let streams = body.flag("stream")?.unwrap_or(false);
    let cancel = CancelOnDrop::default();
    let prompt = app.prompt(conversation(&body)?, None, thinking(&body)?, &cancel).await?;
    let reply = AnthropicReply::new(&app.model.name, prompt.len());
    let wanted = WantedReplies { prompts: vec![prompt], asked, split_thoughts: true, calls: None };
    let pending = app.reply(wanted, cancel).await?;
    if streams {
        return Ok(stream(pending, reply));
    }
    let whole = pending.whole(1).await?;
    let one = whole.first().ok_or_else(|| ApiError::internal("there is no reply"))?;
    Ok(Json(reply.whole(one)).into_response())
}

pub(super) async fn count_tokens(
    Ready(app): Ready,
    body: Result<JsonBody, ApiError>,
) -> Result<Json<Value>, AnthropicError> {
    let body = body?;
    check(body.fields(), COUNT, |_| false)?;
    openai::check_model(&app, &body)?;
    let (messages, reasoning) = (conversation(&body)?, thinking(&body)?);
    let prompt = app.prompt(messages, None, reasoning, &CancelOnDrop::default()).await?;
    Ok(Json(json!({ "input_tokens": prompt.len() })))
}

/// The system's message first, then those of the conversation.
fn conversation(body: &JsonBody) -> Result<Vec<Message>> {
    const NAME: &str = "system";
    let system = match body.get(NAME) {
        None => None,
        Some(Value::String(text)) => Some(text.clone()),
        Some(Value::Array(blocks)) => {
            let text = |block: &Value| match block["type"].as_str() {
                Some("text") => block["text"].as_str().map(str::to_owned),
                _ => None,
            };
            let text: Option<String> = blocks.iter().map(text).collect();
            Some(text.ok_or_else(|| ApiError::field(NAME, "expected blocks of text"))?)
        }
        Some(other) => {
            let problem = format!("expected a text, found {}", brief(other));
            return Err(ApiError::field(NAME, problem));
        }
    };
    let system = system.filter(|text| !text.is_empty());
    let mut messages: Vec<Message> =
        system.into_iter().map(|text| Message::new(NAME, text)).collect();
    messages.extend(openai::messages(body)?);
    Ok(messages)
}

/// Whether the model is asked to think.
fn thinking(body: &JsonBody) -> Result<Reasoning> {
    match body.nested("thinking")?.text("type")? {
        None => Ok(Reasoning::Auto),
        Some("enabled" | "adaptive") => Ok(Reasoning::On),
        Some("disabled") => Ok(Reasoning::Off),
        Some(_) => Err(ApiError::field("thinking", "expected type enabled, adaptive or disabled")),
    }
}
