//! `/api/chat` and `/api/generate`.

use std::sync::Arc;

use axum::Json;
use axum::response::{IntoResponse, Response};
use engine::{Message, SamplerOptions};
use grammar::FormSource;
use serde_json::{Value, json};

use super::options::options;
use super::reply::{OllamaReply, OllamaShape};
use super::{Kept, MODEL};
use crate::Ready;
use crate::api::stream::stream;
use crate::api::{think, warned, written};
use crate::body::{Converted, Footprint, JsonBody, RequestBody};
use crate::error::{ApiError, Result};
use crate::fields::{Field, Fields, Takes, is_empty};
use crate::models::Models;
use crate::offers::ModelAbout;
use crate::record::Asker;
use crate::request::{
    Asked, ChatOptions, Hole, Length, OLLAMA_RANGES, PromptText, ReplyForm, ReplySettings, Said,
    any_object, messages, not_taken, tools_of_openai,
};
use crate::wire::score_list_bytes;

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
            ("keep_alive", Field::Honoured),
            ("logprobs", Field::Honoured),
            ("top_logprobs", Field::Honoured),
            ("truncate", Field::NoEffect(crate::api::FORGETS)),
            ("shift", Field::NoEffect("a reply ends where the context does")),
            $($more),*
        ]
    };
}

const CHAT: Fields = common_fields![("messages", Field::Honoured), ("tools", Field::Honoured)];
pub(super) const CHATTED: Takes = Takes::Fields(CHAT);

const GENERATE: Fields = common_fields![
    ("prompt", Field::Honoured),
    ("system", Field::Honoured),
    ("raw", Field::Honoured),
    ("suffix", Field::Honoured),
    ("images", Field::Honoured),
    ("template", Field::Ignored("the model's own template is used")),
    ("context", Field::Only(&["[]"])),
];
pub(super) const GENERATED: Takes = Takes::Fields(GENERATE);

/// Field that limits the length of a reply. 0 means no limit, as negative values do.
const LENGTHS: &[Length] = &[("num_predict", 0)];

pub(super) async fn chat(
    Ready(models): Ready,
    asker: Asker,
    body: RequestBody,
) -> Result<Response> {
    let said = |body: &JsonBody| {
        let is_empty = body.list("messages")?.is_none_or(Vec::is_empty);
        let reasoning = think(body)?;
        if is_empty {
            return Ok(None);
        }
        let messages = messages(body)?;
        // a last message of the assistant is continued, as in Ollama
        let options = ChatOptions::thinking(reasoning).going_on(&messages);
        Ok(Some(Said::Messages(messages, options)))
    };
    answer(&models, &asker, (OllamaShape::Chat, CHATTED), body, said).await
}

pub(super) async fn generate(
    Ready(models): Ready,
    asker: Asker,
    body: RequestBody,
) -> Result<Response> {
    answer(&models, &asker, (OllamaShape::Generate, GENERATED), body, text_said).await
}

/// The text that is to be continued or replied to, if there is one.
fn text_said(body: &JsonBody) -> Result<Option<Said>> {
    let text = body.text("prompt")?.unwrap_or_default().to_owned();
    let suffix = body.text("suffix")?.unwrap_or_default().to_owned();
    let raw = body.flag("raw")?.unwrap_or(false);
    if raw || !suffix.is_empty() {
        no_template(body, if raw { "raw" } else { "suffix" })?;
    }
    let reasoning = think(body)?;
    if body.get("images").is_some_and(|images| !is_empty(images)) {
        return Err(ApiError::field("images", not_taken("image", &Value::Null)));
    }
    if text.is_empty() && suffix.is_empty() {
        return Ok(None);
    }
    Ok(Some(if !suffix.is_empty() {
        Said::Texts(vec![Hole::between(text, suffix)])
    } else if raw {
        Said::Texts(vec![PromptText::Plain(text)])
    } else {
        let system = body.text("system")?.filter(|system| !system.is_empty());
        let mut messages: Vec<Message> =
            system.into_iter().map(|system| Message::new("system", system)).collect();
        messages.push(Message::new("user", text));
        Said::Messages(messages, ChatOptions::thinking(reasoning))
    }))
}

/// A request in Ollama's words.
struct OllamaRequest {
    /// The reply; `None`: a request to load or unload the model.
    asked: Option<Asked>,
    streams: bool,
    kept: Kept,
}

impl Footprint for OllamaRequest {
    fn footprint(&self) -> u64 {
        self.asked.footprint() + self.kept.footprint()
    }
}

impl OllamaRequest {
    /// Of a request that says this.
    fn read(
        body: &JsonBody,
        said: Option<Said>,
        about: &ModelAbout,
        sampler: &SamplerOptions,
    ) -> Result<OllamaRequest> {
        let settings = settings(about, sampler, body)?;
        let streams = body.flag("stream")?.unwrap_or(true);
        let (logprobs, tools) = (logprobs(body)?, tools_of_openai(body)?);
        let asked = said.map(|said| Asked { tools, logprobs, ..Asked::one(said, settings) });
        Ok(OllamaRequest { asked, streams, kept: Kept::read(body)? })
    }
}

/// To a request that only wants the model to be there, or to go.
async fn only_there(
    models: &Arc<Models>,
    asker: &Asker,
    kept: &Kept,
    shape: OllamaShape,
) -> Result<Value> {
    let about = models.named(Some(&kept.name))?;
    let goes = kept.is_over() && kept.keep(models, asker)?;
    if !goes {
        let _used = models.serving(Some(&kept.name), Some(&asker.record)).await?;
        kept.keep(models, asker)?;
    }
    let reason = if goes { "unload" } else { "load" };
    Ok(OllamaReply::empty(&about.name, shape, reason))
}

/// That nothing is asked for that only a template can say, where a text goes to the model as it is.
fn no_template(body: &JsonBody, why: &str) -> Result<()> {
    for name in ["system", "think"] {
        let asked =
            body.get(name).is_some_and(|value| *value != json!("") && *value != json!(false));
        if asked {
            let problem = format!("it needs the template, which is left out beside {why}");
            return Err(ApiError::field(name, problem));
        }
    }
    Ok(())
}

/// Reply to what `said` finds in a body.
async fn answer(
    models: &Arc<Models>,
    asker: &Asker,
    (shape, takes): (OllamaShape, Takes),
    body: RequestBody,
    said: fn(&JsonBody) -> Result<Option<Said>>,
) -> Result<Response> {
    let read = move |body: &JsonBody, about: &ModelAbout, sampler: &SamplerOptions| {
        OllamaRequest::read(body, said(body)?, about, sampler)
    };
    let first = models.read(body.clone(), takes, MODEL, read).await?;
    if first.request.value.asked.is_none() {
        let (kept, notes) = (first.request.value.kept.clone(), first.request.notes.clone());
        // what uses the model does not keep it
        drop((first, body));
        let mut reply = only_there(models, asker, &kept, shape).await?;
        warned(&mut reply, &notes);
        return Ok(Json(reply).into_response());
    }
    let (app, request) = models.load_for(first, body, takes, read).await?;
    let Converted { value: OllamaRequest { asked, streams, kept }, claim, notes } = request;
    let asked = asked.ok_or_else(|| ApiError::internal("there is no request"))?;
    let top = asked.logprobs;
    let intake = Arc::clone(&claim.intake);
    let mut pending = app.reply(Converted { value: asked, claim, notes }, asker).await?;
    kept.keep(models, asker)?;
    let times = (asker.record.began, asker.record.load_time());
    let reply = OllamaReply::new(app.model.source(&asker.record), shape, top.is_some(), times);
    let reply = reply.with_notes(pending.notes.clone());
    if streams {
        return Ok(stream(pending, reply));
    }
    let mut scores = std::mem::take(&mut pending.scores);
    let mut whole = pending.whole().await?;
    let one = whole.pop().ok_or_else(|| ApiError::internal("there is no reply"))?;
    let Some(top) = top.filter(|_| !one.logprobs.is_empty()) else {
        return Ok(Json(reply.whole(&one)).into_response());
    };
    let bytes = score_list_bytes(one.logprobs.len(), top);
    scores.grow(bytes)?;
    let json = intake.encoding(bytes, move || reply.text(&one, bytes)).await?;
    Ok(written::whole(json, scores))
}

/// How the reply is made: `options`, and `format`.
fn settings(
    about: &ModelAbout,
    sampler: &SamplerOptions,
    body: &JsonBody,
) -> Result<ReplySettings> {
    let options = options(body, about)?;
    let settings = ReplySettings::read(&options, LENGTHS, OLLAMA_RANGES, sampler)?;
    let max_tokens = settings.max_tokens.filter(|most| *most > 0);
    Ok(ReplySettings { form: form(body)?, max_tokens, ..settings })
}

/// How many of the likeliest tokens are told beside each, if they are asked for.
fn logprobs(body: &JsonBody) -> Result<Option<usize>> {
    /// As many as other APIs tell.
    const MOST: usize = 20;
    const TOP: &str = "top_logprobs";
    let asked = body.flag("logprobs")?.unwrap_or(false);
    let top = body.count(TOP, 0, MOST)?.unwrap_or(0);
    if top > 0 && !asked {
        body.ignored(TOP, "ignored: logprobs is not true", "only beside logprobs: true")?;
    }
    Ok(asked.then_some(top))
}

fn form(body: &JsonBody) -> Result<Option<ReplyForm>> {
    const NAME: &str = "format";
    let source = match body.get(NAME) {
        None => return Ok(None),
        Some(Value::String(name)) if name.is_empty() => return Ok(None),
        Some(Value::String(name)) if name == "json" => any_object(),
        Some(schema @ Value::Object(_)) => FormSource::JsonSchema(schema.to_string()),
        Some(_) => return Err(ApiError::field(NAME, "expected json or a schema")),
    };
    Ok(Some(ReplyForm::of(body, NAME, source)))
}
