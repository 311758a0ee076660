//! `/api/chat` and `/api/generate`.

use std::sync::Arc;

use axum::Json;
use axum::response::{IntoResponse, Response};
use engine::{Message, Reasoning};
use grammar::FormSource;
use serde_json::{Value, json};

use super::reply::{OllamaReply, OllamaShape};
use super::{OllamaError, check_model};
use crate::api::asked::{Asked, CancelOnDrop, WantedReplies, blocking, is_setting};
use crate::api::openai::messages;
use crate::api::stream::stream;
use crate::body::JsonBody;
use crate::error::{ApiError, Result};
use crate::fields::{Field, Fields, check};
use crate::{Ready, Serving};

/// Fields of chats and texts alike.
macro_rules! common_fields {
    ($($more:expr),* $(,)?) => {
        &[
            ("model", Field::Honoured),
            ("name", Field::Honoured),
            ("stream", Field::Honoured),
            ("format", Field::Honoured),
            ("options", Field::Honoured),
            ("think", Field::Honoured),
            ("keep_alive", Field::NoEffect("the model stays for as long as the server does")),
            $($more),*
        ]
    };
}

const CHAT: Fields = common_fields![("messages", Field::Honoured), ("tools", Field::Honoured)];

const GENERATE: Fields = common_fields![
    ("prompt", Field::Honoured),
    ("system", Field::Honoured),
    ("raw", Field::Honoured),
    ("suffix", Field::Only("\"\"")),
    ("images", Field::Only("[]")),
    ("template", Field::Only("\"\"")),
    ("context", Field::Only("[]")),
];

const LOADING: &str = "the model is loaded already";

const OPTIONS: Fields = &[
    ("num_predict", Field::Honoured),
    ("num_ctx", Field::Honoured),
    ("seed", Field::Honoured),
    ("stop", Field::Honoured),
    ("num_keep", Field::NoEffect("nothing is forgotten: a prompt that does not fit is refused")),
    ("num_batch", Field::NoEffect(LOADING)),
    ("num_gpu", Field::NoEffect(LOADING)),
    ("main_gpu", Field::NoEffect(LOADING)),
    ("num_thread", Field::NoEffect(LOADING)),
    ("use_mmap", Field::NoEffect(LOADING)),
    ("use_mlock", Field::NoEffect(LOADING)),
    ("low_vram", Field::NoEffect(LOADING)),
    ("numa", Field::NoEffect(LOADING)),
];

pub(super) async fn chat(
    Ready(app): Ready,
    body: Result<JsonBody, ApiError>,
) -> Result<Response, OllamaError> {
    let body = body?;
    check(body.fields(), CHAT, |_| false)?;
    check_model(&app, &body)?;
    let (asked, reasoning) = (asked(&app, &body)?, reasoning(&body)?);
    if body.list("messages")?.is_none_or(Vec::is_empty) {
        return Ok(
            Json(OllamaReply::new(&app.model.name, OllamaShape::Chat).loaded()).into_response()
        );
    }
    let messages = messages(&body)?;
    let cancel = CancelOnDrop::default();
    let calls = app.calls(&body, &messages).await?;
    let prompt = app.prompt(messages, calls.as_ref(), reasoning, &cancel).await?;
    let wanted = WantedReplies { prompts: vec![prompt], asked, split_thoughts: true, calls };
    reply(&app, &body, OllamaShape::Chat, wanted, cancel).await
}

pub(super) async fn generate(
    Ready(app): Ready,
    body: Result<JsonBody, ApiError>,
) -> Result<Response, OllamaError> {
    let body = body?;
    check(body.fields(), GENERATE, |_| false)?;
    check_model(&app, &body)?;
    let (asked, reasoning) = (asked(&app, &body)?, reasoning(&body)?);
    let text = body.text("prompt")?.unwrap_or_default().to_owned();
    if text.is_empty() {
        let reply = OllamaReply::new(&app.model.name, OllamaShape::Generate);
        return Ok(Json(reply.loaded()).into_response());
    }
    let cancel = CancelOnDrop::default();
    let raw = body.flag("raw")?.unwrap_or(false);
    let prompt = if raw {
        let format = Arc::clone(&app.model.format);
        let encode = move || {
            let encoded = format.tokenizer().encode_prompt(&text);
            Ok(encoded.map_err(engine::Error::from)?)
        };
        blocking(encode).await?
    } else {
        let system = body.text("system")?.filter(|system| !system.is_empty());
        let mut messages: Vec<Message> =
            system.into_iter().map(|system| Message::new("system", system)).collect();
        messages.push(Message::new("user", text));
        app.prompt(messages, None, reasoning, &cancel).await?
    };
    let wanted = WantedReplies { prompts: vec![prompt], asked, split_thoughts: !raw, calls: None };
    reply(&app, &body, OllamaShape::Generate, wanted, cancel).await
}

async fn reply(
    app: &Arc<Serving>,
    body: &JsonBody,
    shape: OllamaShape,
    wanted: WantedReplies,
    cancel: CancelOnDrop,
) -> Result<Response, OllamaError> {
    let streams = body.flag("stream")?.unwrap_or(true);
    let pending = app.reply(wanted, cancel).await?;
    let reply = OllamaReply::new(&app.model.name, shape);
    if streams {
        return Ok(stream(pending, reply));
    }
    let whole = pending.whole(1).await?;
    let one = whole.first().ok_or_else(|| ApiError::internal("there is no reply"))?;
    Ok(Json(reply.whole(one)).into_response())
}

/// How the reply is made: `options`, and `format`.
fn asked(app: &Serving, body: &JsonBody) -> Result<Asked> {
    let mut options = body.nested("options")?;
    check(options.fields(), OPTIONS, is_setting)?;
    let capacity = app.model.cache.capacity;
    if options.count("num_ctx", 0, usize::MAX)?.is_some_and(|wanted| wanted > capacity) {
        let problem = format!("the model was loaded for {capacity} tokens");
        return Err(ApiError::field("num_ctx", problem));
    }
    // below 0: as many as it likes
    if options.integer("num_predict")?.is_some_and(|n| n < 0) {
        options.remove("num_predict");
    }
    let asked = Asked::read(&options, &["num_predict"], &app.model.sampler)?;
    Ok(Asked { form: form(body)?, ..asked })
}

fn form(body: &JsonBody) -> Result<Option<FormSource>> {
    match body.get("format") {
        None => Ok(None),
        Some(Value::String(name)) if name.is_empty() => Ok(None),
        Some(Value::String(name)) if name == "json" => {
            Ok(Some(FormSource::JsonSchema(json!({ "type": "object" }).to_string())))
        }
        Some(schema @ Value::Object(_)) => Ok(Some(FormSource::JsonSchema(schema.to_string()))),
        Some(_) => Err(ApiError::field("format", "expected json or a schema")),
    }
}

fn reasoning(body: &JsonBody) -> Result<Reasoning> {
    match body.get("think") {
        None => Ok(Reasoning::Auto),
        Some(Value::Bool(true)) => Ok(Reasoning::On),
        Some(Value::Bool(false)) => Ok(Reasoning::Off),
        Some(Value::String(level)) if matches!(&**level, "low" | "medium" | "high") => {
            Ok(Reasoning::On)
        }
        Some(_) => Err(ApiError::field("think", "expected true, false, low, medium or high")),
    }
}
