//! `/v1/chat/completions`.

use axum::Json;
use axum::response::{IntoResponse, Response};
use engine::Reasoning;

use super::reply::{OpenAiReply, ReplyShape};
use super::{MOST_CHOICES, check_model, common_fields, messages};
use crate::Ready;
use crate::api::asked::{Asked, CancelOnDrop, WantedReplies, is_setting};
use crate::api::stream::stream;
use crate::body::JsonBody;
use crate::error::{ApiError, Result};
use crate::fields::{Field, Fields, check};

const FIELDS: Fields = common_fields![
    ("messages", Field::Honoured),
    ("max_completion_tokens", Field::Honoured),
    ("reasoning_effort", Field::Honoured),
    ("modalities", Field::Only("[\"text\"]")),
    ("logprobs", Field::Only("false")),
    ("top_logprobs", Field::Only("0")),
    ("tools", Field::Honoured),
    ("tool_choice", Field::Honoured),
    ("parallel_tool_calls", Field::Honoured),
    ("functions", Field::Only("[]")),
];

pub(super) async fn chat(Ready(app): Ready, body: JsonBody) -> Result<Response> {
    check(body.fields(), FIELDS, is_setting)?;
    check_model(&app, &body)?;
    let asked = Asked::read(&body, &["max_tokens", "max_completion_tokens"], &app.model.sampler)?;
    let n = body.count("n", 1, MOST_CHOICES)?.unwrap_or(1);
    let reply = OpenAiReply::new(&app, ReplyShape::Chat, &body, n, n)?;
    let streams = body.flag("stream")?.unwrap_or(false);
    let (messages, reasoning) = (messages(&body)?, reasoning(&body)?);
    let cancel = CancelOnDrop::default();
    let calls = app.calls(&body, &messages).await?;
    let prompt = app.prompt(messages, calls.as_ref(), reasoning, &cancel).await?;
    let wanted = WantedReplies { prompts: vec![prompt; n], asked, split_thoughts: true, calls };
    let pending = app.reply(wanted, cancel).await?;
    match streams {
        true => Ok(stream(pending, reply)),
        false => Ok(Json(reply.whole(&pending.whole(n).await?)).into_response()),
    }
}

fn reasoning(body: &JsonBody) -> Result<Reasoning> {
    const NAME: &str = "reasoning_effort";
    match body.text(NAME)? {
        None => Ok(Reasoning::Auto),
        Some("none" | "minimal") => Ok(Reasoning::Off),
        Some("low" | "medium" | "high" | "xhigh") => Ok(Reasoning::On),
        Some(_) => Err(ApiError::field(NAME, "expected none, minimal, low, medium, high or xhigh")),
    }
}
