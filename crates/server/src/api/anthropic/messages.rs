//! `/v1/messages` and `/v1/messages/count_tokens`.

use axum::Json;
use axum::response::{IntoResponse, Response};
use engine::{Reasoning, SamplerOptions};
use grammar::FormSource;
use serde_json::{Value, json};

use super::conversation::{conversation, tools};
use super::reply::AnthropicReply;
use crate::Ready;
use crate::api::stream::stream;
use crate::api::warned;
use crate::body::{Footprint, JsonBody, RequestBody};
use crate::error::{ApiError, Result};
use crate::fields::{Field, Fields, Takes, brief};
use crate::models::ModelField;
use crate::record::Asker;
use crate::request::{
    ANTHROPIC_RANGES, Asked, ChatOptions, Length, ReplyForm, ReplySettings, Said, effort, stops,
    thinking,
};

const MESSAGES: Fields = &[
    ("model", Field::Honoured),
    ("messages", Field::Honoured),
    ("system", Field::Honoured),
    ("max_tokens", Field::Honoured),
    ("stop_sequences", Field::Honoured),
    ("stream", Field::Honoured),
    ("thinking", Field::Honoured),
    ("output_config", Field::Honoured),
    ("context_management", Field::Honoured),
    ("seed", Field::Honoured),
    ("stop_token_ids", Field::Honoured),
    ("logit_bias", Field::Honoured),
    ("dry_sequence_breakers", Field::Honoured),
    ("tools", Field::Honoured),
    ("tool_choice", Field::Honoured),
    ("metadata", Field::NoEffect("nothing is kept here")),
    ("service_tier", Field::NoEffect("nothing is billed here")),
    ("inference_geo", Field::NoEffect("it is computed on this machine")),
    ("speed", Field::Fixed(&["\"standard\""])),
    ("mcp_servers", Field::Ignored("this server calls no other servers")),
    ("container", Field::Ignored("this server runs no code")),
    ("cache_control", Field::NoEffect(crate::api::FOUND_AGAIN)),
];

const COUNT: Fields = &[
    ("model", Field::Honoured),
    ("messages", Field::Honoured),
    ("system", Field::Honoured),
    ("thinking", Field::Honoured),
    ("output_config", Field::Honoured),
    ("context_management", Field::Honoured),
    ("tools", Field::Honoured),
    ("tool_choice", Field::Honoured),
    ("cache_control", Field::NoEffect("nothing is computed")),
];

pub(super) const MESSAGED: Takes = Takes::Settings(MESSAGES);
pub(super) const COUNTED: Takes = Takes::Fields(COUNT);

/// The field that names a model.
const MODEL: ModelField = |body| body.text("model");

/// The field that limits the length of a reply.
const LENGTHS: &[Length] = &[("max_tokens", 1)];

/// A request for a reply, and whether the reply is streamed.
struct MessagesRequest {
    asked: Asked,
    streams: bool,
}

impl Footprint for MessagesRequest {
    fn footprint(&self) -> u64 {
        self.asked.footprint()
    }
}

impl MessagesRequest {
    fn read(body: &JsonBody, sampler: &SamplerOptions) -> Result<MessagesRequest> {
        let streams = body.flag("stream")?.unwrap_or(false);
        let settings = ReplySettings::read(body, LENGTHS, ANTHROPIC_RANGES, sampler)?;
        if settings.max_tokens.is_none() {
            return Err(ApiError::field("max_tokens", "expected a number, 1 or more"));
        }
        let (stop, form) = (stops(body, "stop_sequences")?, output_form(body)?);
        let settings = ReplySettings { stop, form, ..settings };
        Ok(MessagesRequest { asked: asked(body, settings)?, streams })
    }
}

/// The conversation and its tools.
fn asked(body: &JsonBody, settings: ReplySettings) -> Result<Asked> {
    edits(body)?;
    let messages = conversation(body)?;
    let options = ChatOptions::thinking(reasoning(body)?).going_on(&messages);
    let said = Said::Messages(messages, options);
    Ok(Asked { tools: tools(body)?, ..Asked::one(said, settings) })
}

pub(super) async fn messages(
    Ready(models): Ready,
    asker: Asker,
    body: RequestBody,
) -> Result<Response> {
    let read = |body: &JsonBody, _: &_, sampler: &_| MessagesRequest::read(body, sampler);
    let (app, request) = models.serving_for(body, MESSAGED, MODEL, read).await?;
    let streams = request.value.streams;
    let pending = app.reply(request.map(|request| request.asked), &asker).await?;
    let notes = pending.notes.clone();
    let reply = AnthropicReply::new(app.model.source(&asker.record), pending.prompt_tokens, notes);
    if streams {
        return Ok(stream(pending, reply));
    }
    let whole = pending.whole().await?;
    let one = whole.first().ok_or_else(|| ApiError::internal("there is no reply"))?;
    Ok(Json(reply.whole(one)).into_response())
}

pub(super) async fn count_tokens(
    Ready(models): Ready,
    asker: Asker,
    body: RequestBody,
) -> Result<Json<Value>> {
    let read = |body: &JsonBody, _: &_, sampler: &SamplerOptions| {
        output_form(body)?;
        asked(body, ReplySettings::of(sampler))
    };
    let (app, asked) = models.serving_for(body, COUNTED, MODEL, read).await?;
    let (n, notes) = app.count_tokens(asked, &asker).await?;
    let mut counted = json!({ "input_tokens": n });
    warned(&mut counted, &notes);
    Ok(Json(counted))
}

/// Reads whether and how much the model should think, from `thinking` or from the effort in `output_config`.
fn reasoning(body: &JsonBody) -> Result<Reasoning> {
    const EFFORT: &str = "output_config.effort";
    let level = effort(body.nested("output_config")?.text("effort")?)
        .map_err(|problem| ApiError::field(EFFORT, problem))?;
    let thinking = thinking(body)?;
    if thinking == Reasoning::Off && matches!(level, Reasoning::Effort(_)) {
        let note = "ignored: thinking turns thinking off";
        body.ignored(EFFORT, note, "it contradicts thinking")?;
    }
    Ok(match (thinking, level) {
        (thinking @ (Reasoning::Off | Reasoning::Budget(_)), _) | (thinking, Reasoning::Auto) => {
            thinking
        }
        (_, level) => level,
    })
}

const OUTPUT: Takes = Takes::Fields(&[("effort", Field::Honoured), ("format", Field::Honoured)]);
const FORMAT: Takes =
    Takes::Fields(&[("type", Field::Only(&["\"json_schema\""])), ("schema", Field::Honoured)]);
const MANAGEMENT: Takes = Takes::Fields(&[("edits", Field::Honoured)]);

/// What the reply must be.
fn output_form(body: &JsonBody) -> Result<Option<ReplyForm>> {
    const NAME: &str = "output_config";
    let config = body.nested(NAME)?.checked(OUTPUT)?;
    if config.get("format").is_none() {
        return Ok(None);
    }
    let format = config.nested("format")?.checked(FORMAT)?;
    match format.get("schema") {
        Some(schema) => {
            let source = FormSource::JsonSchema(schema.to_string());
            Ok(Some(ReplyForm::of(&format, "schema", source)))
        }
        None => Err(ApiError::field(NAME, "expected format.schema")),
    }
}

/// That nothing of a conversation is to be left out but earlier thoughts, which templates leave out anyway.
fn edits(body: &JsonBody) -> Result<()> {
    const NAME: &str = "context_management";
    let management = body.nested(NAME)?.checked(MANAGEMENT)?;
    for edit in management.list("edits")?.into_iter().flatten() {
        let kind = edit["type"].as_str().unwrap_or_default();
        if !kind.starts_with("clear_thinking") {
            let kind = brief(&edit["type"]);
            let note = format!("{kind} is ignored: nothing of a conversation is left out");
            body.ignored(NAME, &note, &format!("{kind} is not supported"))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use engine::Effort;

    use super::*;

    #[test]
    fn thinking_is_read_as_in_the_other_apis() {
        let read = |body: Value| reasoning(&body.into()).map_err(|error| error.message);
        let budget = Ok(Reasoning::Budget(900));
        let low = Ok(Reasoning::Effort(Effort::Low));
        let effort = json!({ "effort": "low" });
        for (thinking, alone, with_effort) in [
            (json!(null), Ok(Reasoning::Auto), low.clone()),
            (
                json!({ "type": "adaptive", "display": "summarized" }),
                Ok(Reasoning::On),
                low.clone(),
            ),
            (json!({ "type": "enabled" }), Ok(Reasoning::On), low.clone()),
            (json!({ "type": "enabled", "budget_tokens": 900 }), budget.clone(), budget),
            (json!({ "type": "disabled" }), Ok(Reasoning::Off), Ok(Reasoning::Off)),
            (json!(true), Ok(Reasoning::On), low),
        ] {
            assert_eq!(read(json!({ "thinking": thinking })), alone, "{thinking}");
            let both = json!({ "thinking": thinking, "output_config": effort });
            assert_eq!(read(both), with_effort, "{thinking}");
        }
        let off =
            JsonBody::from(json!({ "thinking": { "type": "disabled" }, "output_config": effort }));
        assert!(reasoning(&off).is_ok());
        assert_eq!(off.notes(), ["output_config.effort: ignored: thinking turns thinking off"]);
        assert!(reasoning(&off.strict()).is_err());
        let wrong = read(json!({ "thinking": { "type": "often" } })).unwrap_err();
        assert_eq!(wrong, "thinking: expected type enabled, adaptive, auto or disabled");
        let body = JsonBody::from(json!({ "thinking": { "type": "enabled", "mood": 1 } }));
        assert!(reasoning(&body).is_ok());
        assert_eq!(body.notes(), ["unknown field \"thinking.mood\": ignored"]);
    }

    #[test]
    fn forms_and_edits_are_read_or_refused() {
        let form = |config: Value| output_form(&json!({ "output_config": config }).into());
        let schema = json!({ "type": "integer" });
        let asked =
            json!({ "effort": "high", "format": { "type": "json_schema", "schema": schema } });
        let read = form(asked).unwrap().unwrap();
        assert_eq!(read.source, FormSource::JsonSchema(schema.to_string()));
        assert_eq!(read.field, "output_config.format.schema");
        assert_eq!(form(json!({ "effort": "low" })).unwrap(), None);
        assert!(form(json!({ "format": { "type": "json_schema" } })).is_err());
        assert!(form(json!({ "format": { "type": "yaml", "schema": {} } })).is_err());
        assert_eq!(form(json!({ "style": 1 })).unwrap(), None);
        let told = |list: Value| {
            let body = JsonBody::from(json!({ "context_management": { "edits": list } }));
            edits(&body).map(|()| body.notes())
        };
        let kept = json!([{ "type": "clear_thinking_20251015", "keep": "all" }]);
        assert_eq!(told(kept).unwrap(), [""; 0]);
        let notes = told(json!([{ "type": "clear_tool_uses_20250919" }])).unwrap();
        assert!(notes[0].contains("\"clear_tool_uses_20250919\" is ignored"), "{notes:?}");
    }
}
