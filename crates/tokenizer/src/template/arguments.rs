//! What a template is given: a conversation, or the arguments of a rendering as JSON has them.

use std::borrow::Cow;

use minijinja::{Value, context};
use serde_json::{Map, Value as Json};

use super::operators::RESERVED;
use super::{Message, RenderOptions, ToolCall, ToolDeclarations, ToolStyle};
use crate::{Error, Result};

/// The variables of one rendering, and all text in them.
pub(super) struct Arguments<'a> {
    /// Every text in them: what is not the template's own.
    pub(super) texts: Vec<Cow<'a, str>>,
    /// How many messages there are.
    pub(super) messages: usize,
    pub(super) variables: Vec<(String, Value)>,
    /// Whether what fails in Python fails here, even where it is clear what was meant. Not so in a chat, where nobody
    /// could mend the template.
    pub(super) strict: bool,
}

impl<'a> Arguments<'a> {
    /// `style`: what the template does with tools, where messages have to do with them.
    pub(super) fn of_messages(
        messages: &'a [Message],
        options: &RenderOptions<'a>,
        style: Option<&ToolStyle>,
    ) -> Arguments<'a> {
        let mut texts = Vec::new();
        let list: Vec<_> =
            messages.iter().map(|message| of_message(message, style, &mut texts)).collect();
        let mut variables = vec![
            ("messages".to_owned(), Value::from(list)),
            ("add_generation_prompt".to_owned(), Value::from(options.add_generation_prompt)),
        ];
        if let Some(ToolDeclarations(tools)) = options.tools {
            tools.iter().for_each(|tool| all_texts(tool, &mut texts));
            let tools: Vec<_> = tools.iter().map(of_json).collect();
            variables.push(("tools".to_owned(), Value::from(tools)));
        }
        if let Some(on) = options.enable_thinking {
            let switches = thinking(on).into_iter();
            variables.extend(switches.map(|(name, value)| (name.to_owned(), value)));
        }
        if let Some(given) = options.variables {
            variables.retain(|(known, _)| !given.0.contains_key(known));
            for (name, value) in &given.0 {
                texts.push(Cow::Borrowed(name.as_str()));
                all_texts(value, &mut texts);
                variables.push((name.clone(), of_json(value)));
            }
        }
        Arguments { texts, messages: messages.len(), variables, strict: false }
    }

    /// # Errors
    /// [`Error::Template`]: there are no messages, or a name is the engine's own.
    pub(super) fn of_json(json: &'a Map<String, Json>) -> Result<Arguments<'a>> {
        let messages = json.get("messages").and_then(Json::as_array).ok_or_else(|| {
            Error::template(None, "the arguments have no `messages`: expected a list of them")
        })?;
        if let Some(at) = messages.iter().position(|message| !message.is_object()) {
            let problem = format!("message {at} is no map: expected a role and a content");
            return Err(Error::template(None, problem));
        }
        if let Some(name) = json.keys().find(|name| name.starts_with(RESERVED)) {
            let problem = format!("the argument `{name}` has a name that no template may use");
            return Err(Error::template(None, problem));
        }
        let mut texts = Vec::new();
        json.iter().for_each(|(name, value)| {
            texts.push(Cow::Borrowed(name.as_str()));
            all_texts(value, &mut texts);
        });
        let variables = json.iter().map(|(name, value)| (name.clone(), of_json(value)));
        let variables = variables.collect();
        Ok(Arguments { texts, messages: messages.len(), variables, strict: true })
    }

    /// Bytes of text.
    pub(super) fn bytes(&self) -> u64 {
        self.texts.iter().map(|text| text.len() as u64).sum()
    }
}

/// Whether to think, in the words of every family: a template reads its own.
fn thinking(on: bool) -> Vec<(&'static str, Value)> {
    let mut switches = vec![
        ("enable_thinking", Value::from(on)),
        // DeepSeek, Granite
        ("thinking", Value::from(on)),
        // MiniMax M3
        ("thinking_mode", Value::from(if on { "enabled" } else { "disabled" })),
        // Ling
        ("thinking_option", Value::from(if on { "on" } else { "off" })),
        // Command
        ("reasoning", Value::from(on)),
    ];
    if !on {
        // Seed-OSS; and gpt-oss, which always thinks: as little as it can.
        switches.push(("thinking_budget", Value::from(0)));
        switches.push(("reasoning_effort", Value::from("low")));
    }
    switches
}

fn of_json(value: &Json) -> Value {
    Value::from(minijinja::value::Serde(value))
}

/// A message as templates know it. What it has not is not there at all.
fn of_message<'a>(
    message: &'a Message,
    style: Option<&ToolStyle>,
    texts: &mut Vec<Cow<'a, str>>,
) -> Value {
    let calls = &message.tool_calls;
    let (mut role, mut content) = (message.role.as_str(), Cow::Borrowed(&*message.content));
    let mut fields: Vec<(&str, Value)> = Vec::new();
    let mut text = |name: &'static str, value: &'a Option<String>, texts: &mut Vec<_>| {
        if let Some(value) = value {
            texts.push(Cow::Borrowed(value.as_str()));
            fields.push((name, Value::from(value.as_str())));
        }
    };
    match style {
        Some(style) if !calls.is_empty() && !style.writes_calls => {
            content = Cow::Borrowed(message.written.as_deref().unwrap_or(&message.content));
        }
        Some(style) if message.tool_call_id.is_some() && !style.writes_results => {
            role = "user";
            content = Cow::Owned(format!("<tool_response>\n{}\n</tool_response>", message.content));
        }
        Some(style) => {
            text("tool_call_id", &message.tool_call_id, texts);
            text("name", &message.name, texts);
            // families have their own names for it, and take it in place of a content
            for name in ["reasoning_content", "thinking"] {
                if content.is_empty() {
                    text(name, &message.thoughts, texts);
                }
            }
            if !calls.is_empty() {
                let calls: Vec<_> = calls.iter().map(|call| of_call(call, style, texts)).collect();
                fields.push(("tool_calls", Value::from(calls)));
            }
        }
        None => {}
    }
    let nothing = style.is_some_and(|style| style.fits.nothing);
    let has_calls = fields.iter().any(|(name, _)| *name == "tool_calls");
    fields.push(("role", Value::from(role)));
    fields.push((
        "content",
        match nothing && has_calls && content.is_empty() {
            true => Value::from(()),
            false => Value::from(&*content),
        },
    ));
    texts.extend([Cow::Borrowed(role), content]);
    Value::from_pairs(fields)
}

/// A call as OpenAI's API has it, but for the form of its arguments.
fn of_call<'a>(call: &'a ToolCall, style: &ToolStyle, texts: &mut Vec<Cow<'a, str>>) -> Value {
    let parsed = serde_json::from_str::<Json>(&call.arguments).ok();
    let map = parsed.filter(|value| style.fits.map && value.is_object());
    texts.extend([&call.id, &call.name, &call.arguments].map(|text| Cow::Borrowed(text.as_str())));
    let arguments = match &map {
        Some(map) => {
            let mut inner = Vec::new();
            all_texts(map, &mut inner);
            // what is escaped in their text is not in what the template sees
            texts.extend(inner.into_iter().map(|text| Cow::Owned(text.into_owned())));
            of_json(map)
        }
        None => Value::from(call.arguments.as_str()),
    };
    context! {
        id => call.id.as_str(),
        type => "function",
        function => context! { name => call.name.as_str(), arguments => arguments },
    }
}

/// Appends every text in a value, names included. As deep as the value, which its reader has bounded.
fn all_texts<'a>(value: &'a Json, out: &mut Vec<Cow<'a, str>>) {
    match value {
        Json::String(text) => out.push(Cow::Borrowed(text)),
        Json::Array(items) => items.iter().for_each(|item| all_texts(item, out)),
        Json::Object(map) => map.iter().for_each(|(name, value)| {
            out.push(Cow::Borrowed(name));
            all_texts(value, out);
        }),
        Json::Null | Json::Bool(_) | Json::Number(_) => {}
    }
}
