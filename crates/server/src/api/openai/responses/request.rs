//! Requests of OpenAI's newer API: `input` in place of messages, each call and each result an item of its own.

use engine::{Message, PromptEnd, SamplerOptions, ToolCall};
use grammar::FormSource;
use serde_json::{Map, Value, json};

use crate::body::{Footprint, JsonBody, map_bytes};
use crate::error::{ApiError, Result};
use crate::fields::{Field, Fields, Takes, brief};
use crate::request::{
    Asked, ChatOptions, Length, NO_PLACE, OPENAI_RANGES, ReplyForm, ReplySettings, Said,
    any_object, check_format, check_parts, content_of, effort, not_too_many, numbered,
    tools_of_openai,
};
use crate::wire::past_arguments;

const FIELDS: Fields = &[
    ("model", Field::Honoured),
    ("input", Field::Honoured),
    ("instructions", Field::Honoured),
    ("max_output_tokens", Field::Honoured),
    ("stream", Field::Honoured),
    ("tools", Field::Honoured),
    ("tool_choice", Field::Honoured),
    ("parallel_tool_calls", Field::Honoured),
    ("text", Field::Honoured),
    ("reasoning", Field::Honoured),
    ("seed", Field::Honoured),
    ("stop", Field::Honoured),
    ("stop_token_ids", Field::Honoured),
    ("dry_sequence_breakers", Field::Honoured),
    ("logit_bias", Field::Honoured),
    ("store", Field::Ignored(super::NOT_STORED)),
    ("metadata", Field::Honoured),
    ("user", Field::NoEffect("nothing is kept or billed here")),
    ("safety_identifier", Field::NoEffect("nothing is kept or billed here")),
    ("service_tier", Field::NoEffect("nothing is billed here")),
    ("prompt_cache_key", Field::NoEffect(crate::api::FOUND_AGAIN)),
    ("prompt_cache_retention", Field::NoEffect(crate::api::FOUND_AGAIN)),
    ("prompt_cache_options", Field::NoEffect(crate::api::FOUND_AGAIN)),
    ("cache_control", Field::NoEffect(crate::api::FOUND_AGAIN)),
    ("provider", Field::NoEffect("this server is the only provider")),
    ("include", Field::NoEffect("what it may name is told anyway, or is not there")),
    ("truncation", Field::Fixed(&["\"disabled\""])),
    ("background", Field::Only(&["false"])),
    ("previous_response_id", Field::Refused(super::NOT_STORED)),
    ("conversation", Field::Refused(super::NOT_STORED)),
    (
        "prompt",
        Field::Refused("no prompts are stored: send its text in `instructions` and `input`"),
    ),
    ("top_logprobs", Field::Fixed(&["0"])),
    ("max_tool_calls", Field::Ignored("tools are called by whoever asks")),
    ("stream_options", Field::Honoured),
];

pub(in crate::api::openai) const TAKES: Takes = Takes::Settings(FIELDS);

const TEXT: Takes =
    Takes::Fields(&[("format", Field::Honoured), ("verbosity", Field::Fixed(&["\"medium\""]))]);
const REASONING: Takes = Takes::Fields(&[
    ("effort", Field::Honoured),
    ("summary", Field::NoEffect("thoughts are told as they are")),
    ("generate_summary", Field::NoEffect("thoughts are told as they are")),
]);
const STREAM: Takes = Takes::Fields(&[("include_obfuscation", Field::Fixed(&["false"]))]);

/// The field that limits the length of a reply.
const LENGTHS: &[Length] = &[("max_output_tokens", 1)];

/// A request, and what its response repeats of it.
pub(super) struct ResponsesRequest {
    pub(super) asked: Asked,
    pub(super) stream: bool,
    pub(super) echo: Map<String, Value>,
}

impl Footprint for ResponsesRequest {
    fn footprint(&self) -> u64 {
        self.asked.footprint() + map_bytes(&self.echo)
    }
}

impl ResponsesRequest {
    pub(super) fn read(body: &JsonBody, defaults: &SamplerOptions) -> Result<ResponsesRequest> {
        body.nested("stream_options")?.checked(STREAM)?;
        let mut settings = ReplySettings::read(body, LENGTHS, OPENAI_RANGES, defaults)?;
        let text = body.nested("text")?.checked(TEXT)?;
        settings.form = form(&text)?;
        let reasoning = body.nested("reasoning")?.checked(REASONING)?;
        let thinks = effort(reasoning.text("effort")?)
            .map_err(|problem| ApiError::field("reasoning.effort", problem))?;
        let mut messages = Vec::new();
        if let Some(text) = body.text("instructions")?.filter(|text| !text.is_empty()) {
            messages.push(Message::new("system", text));
        }
        messages.extend(input(body)?);
        let messages = numbered(messages);
        let options = ChatOptions::thinking(thinks).going_on(&messages);
        if options.end == PromptEnd::LastMessage {
            body.note("input: the last message is the assistant's: the reply goes on with it");
        }
        let said = Said::Messages(messages, options);
        let asked = Asked { tools: tools_of_openai(body)?, ..Asked::one(said, settings) };
        Ok(ResponsesRequest {
            asked,
            stream: body.flag("stream")?.unwrap_or(false),
            echo: echo(body),
        })
    }
}

/// What a response says of its request, as the API has it where the request says nothing.
fn echo(body: &JsonBody) -> Map<String, Value> {
    let defaults = [
        ("instructions", Value::Null),
        ("max_output_tokens", Value::Null),
        ("metadata", json!({})),
        ("parallel_tool_calls", json!(true)),
        ("reasoning", json!({ "effort": null, "summary": null })),
        ("temperature", Value::Null),
        ("text", json!({ "format": { "type": "text" } })),
        ("tool_choice", json!("auto")),
        ("tools", json!([])),
        ("top_p", Value::Null),
    ];
    let value = |(name, default): (&str, Value)| {
        (name.to_owned(), body.get(name).cloned().unwrap_or(default))
    };
    defaults.into_iter().map(value).collect()
}

fn form(text: &JsonBody) -> Result<Option<ReplyForm>> {
    const NAME: &str = "text.format";
    let Some(format) = text.get("format") else { return Ok(None) };
    check_format(text, "format")?;
    let (name, source) = match (format["type"].as_str(), &format["schema"]) {
        (Some("text"), _) => return Ok(None),
        (Some("json_object"), _) => ("format", any_object()),
        (Some("json_schema"), schema @ Value::Object(_)) => {
            ("format.schema", FormSource::JsonSchema(schema.to_string()))
        }
        _ => {
            let expected = "expected type text, json_object, or json_schema with a schema";
            return Err(ApiError::field(NAME, expected));
        }
    };
    ReplyForm::of(text, name, source).with_strictness(NAME, format).map(Some)
}

/// Type of an item, its fields, and its field with content parts.
const ITEMS: [(&str, Takes, Option<&str>); 3] = [
    (
        "message",
        Takes::Fields(&[
            ("type", Field::Honoured),
            ("role", Field::Honoured),
            ("content", Field::Honoured),
            ("id", Field::NoEffect(NO_PLACE)),
            ("status", Field::NoEffect(NO_PLACE)),
            ("phase", Field::NoEffect(NO_PLACE)),
        ]),
        Some("content"),
    ),
    (
        "function_call",
        Takes::Fields(&[
            ("type", Field::Honoured),
            ("call_id", Field::Honoured),
            ("name", Field::Honoured),
            ("arguments", Field::Honoured),
            ("id", Field::NoEffect(NO_PLACE)),
            ("status", Field::NoEffect(NO_PLACE)),
        ]),
        None,
    ),
    (
        "function_call_output",
        Takes::Fields(&[
            ("type", Field::Honoured),
            ("call_id", Field::Honoured),
            ("output", Field::Honoured),
            ("id", Field::NoEffect(NO_PLACE)),
            ("status", Field::NoEffect(NO_PLACE)),
        ]),
        Some("output"),
    ),
];

/// Checks the fields of an item and of its content parts, like the fields of the body.
fn check(body: &JsonBody, path: &str, kind: &str, item: &Value) -> Result<()> {
    let known = ITEMS.iter().find(|(name, ..)| *name == kind);
    let (Some((_, takes, content)), Some(fields)) = (known, item.as_object()) else {
        return Ok(());
    };
    takes.check_member(body, &format!("{path}."), fields)?;
    content.map_or(Ok(()), |name| check_parts(body, &format!("{path}.{name}"), fields.get(name)))
}

/// The conversation.
fn input(body: &JsonBody) -> Result<Vec<Message>> {
    const NAME: &str = "input";
    let items = match body.get(NAME) {
        Some(Value::String(text)) => return Ok(vec![Message::new("user", &**text)]),
        Some(Value::Array(items)) if !items.is_empty() => items,
        _ => return Err(ApiError::field(NAME, "expected a text or a list of items")),
    };
    not_too_many(NAME, items)?;
    let mut messages: Vec<Message> = Vec::new();
    for (i, item) in items.iter().enumerate() {
        let wrong = |problem: String| ApiError::field(&format!("{NAME}[{i}]"), problem);
        let text = |key: &str| {
            let text = item.get(key).and_then(Value::as_str).map(str::to_owned);
            text.ok_or_else(|| wrong(format!("expected {key}: a text")))
        };
        let kind = item.get("type").and_then(Value::as_str).unwrap_or("message");
        check(body, &format!("{NAME}[{i}]"), kind, item)?;
        match kind {
            "message" => {
                let role = match item.get("role").and_then(Value::as_str) {
                    Some("developer") => "system",
                    Some(role @ ("system" | "user" | "assistant")) => role,
                    _ => {
                        return Err(wrong(
                            "expected role system, developer, user or assistant".into(),
                        ));
                    }
                };
                let content = content_of(item.get("content").unwrap_or(&Value::Null));
                messages.push(Message::new(role, content.map_err(wrong)?));
            }
            "function_call" => {
                let arguments = past_arguments(&text("arguments")?);
                let call = ToolCall { id: text("call_id")?, name: text("name")?, arguments };
                // calls that follow each other, or what was said, are of one message
                match messages.last_mut().filter(|last| last.role == "assistant") {
                    Some(last) => last.tool_calls.push(call),
                    None => messages
                        .push(Message { tool_calls: vec![call], ..Message::new("assistant", "") }),
                }
            }
            "function_call_output" => {
                let id = text("call_id")?;
                let output = content_of(item.get("output").unwrap_or(&Value::Null));
                let output = output.map_err(wrong)?;
                messages.push(Message { tool_call_id: Some(id), ..Message::new("tool", output) });
            }
            // templates leave the thoughts of earlier replies out
            "reasoning" => {}
            _ => return Err(wrong(format!("{} cannot be had here", brief(&json!(kind))))),
        }
    }
    match messages.is_empty() {
        true => Err(ApiError::field(NAME, "expected at least one message")),
        false => Ok(messages),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(body: Value) -> Result<Vec<Message>> {
        let body = JsonBody::from(body).checked(TAKES)?;
        let read = ResponsesRequest::read(&body, &SamplerOptions::greedy())?;
        match read.asked.said {
            Said::Messages(messages, _) => Ok(messages),
            Said::Texts(_) => unreachable!("it is a conversation"),
        }
    }

    #[test]
    fn items_become_messages() {
        let call = |id: &str| json!({ "type": "function_call", "call_id": id, "name": "f", "arguments": "{}" });
        let messages = read(json!({ "instructions": "Be brief.", "input": [
            { "role": "user", "content": "Hello" },
            { "type": "reasoning", "summary": [] },
            { "type": "message", "role": "assistant", "content": [{ "type": "output_text", "text": "So:" }] },
            call("a"), call("b"),
            { "type": "function_call_output", "call_id": "b", "output": "2" },
            { "type": "function_call_output", "call_id": "a", "output": [{ "type": "input_text", "text": "1" }] },
        ] }))
        .unwrap();
        let roles: Vec<&str> = messages.iter().map(|message| &*message.role).collect();
        assert_eq!(roles, ["system", "user", "assistant", "tool", "tool"]);
        assert_eq!((messages[2].tool_calls.len(), &*messages[2].content), (2, "So:"));
        assert_eq!((messages[3].tool_call_id.as_deref(), &*messages[3].content), (Some("b"), "2"));
        assert_eq!(read(json!({ "input": "hi" })).unwrap(), [Message::new("user", "hi")]);
        for (body, problem) in [
            (json!({}), "input: expected"),
            (json!({ "input": [{ "type": "image", "x": 1 }] }), "input[0]"),
            (json!({ "input": [{ "type": "function_call", "call_id": "a" }] }), "arguments"),
            (
                json!({ "input": "x", "previous_response_id": "r" }),
                "previous_response_id: responses are not stored: send the whole conversation in `input`",
            ),
            (
                json!({ "input": "x", "conversation": { "id": "c" } }),
                "conversation: responses are not",
            ),
            (json!({ "input": "x", "prompt": { "id": "p" } }), "prompt: no prompts are stored"),
            (json!({ "input": "x", "text": { "format": { "type": "yaml" } } }), "text.format"),
            (json!({ "input": "x", "reasoning": { "effort": "some" } }), "reasoning.effort"),
            (json!({ "input": "x", "temperature": "hot" }), "temperature"),
            (
                json!({ "input": [{ "role": "user", "content": [{ "type": "input_image" }] }] }),
                "input[0]: this model takes no images",
            ),
        ] {
            let error = read(body).unwrap_err();
            assert!(error.message.contains(problem), "{error}");
        }
    }
}
