//! What a template is given: a conversation, or the arguments of a rendering as JSON has them.

use minijinja::Value;
use serde_json::{Map, Value as Json};

use super::operators::RESERVED;
use super::{Message, RenderOptions};
use crate::{Error, Result};

/// The variables of one rendering, and all text in them.
pub(super) struct Arguments<'a> {
    /// Every text in them: what is not the template's own.
    pub(super) texts: Vec<&'a str>,
    /// How many messages there are.
    pub(super) messages: usize,
    pub(super) variables: Vec<(String, Value)>,
    /// Whether what fails in Python fails here, even where it is clear what was meant. Not so in a chat, where nobody
    /// could mend the template.
    pub(super) strict: bool,
}

impl<'a> Arguments<'a> {
    pub(super) fn of_messages(messages: &'a [Message], options: &RenderOptions) -> Arguments<'a> {
        let message = |m: &Message| {
            minijinja::context! { role => m.role.as_str(), content => m.content.as_str() }
        };
        let list = messages.iter().map(message).collect::<Vec<_>>();
        let mut variables = vec![
            ("messages".to_owned(), Value::from(list)),
            ("add_generation_prompt".to_owned(), Value::from(options.add_generation_prompt)),
        ];
        if let Some(on) = options.enable_thinking {
            let switches = thinking(on).into_iter();
            variables.extend(switches.map(|(name, value)| (name.to_owned(), value)));
        }
        let texts = messages.iter().flat_map(|m| [m.role.as_str(), m.content.as_str()]).collect();
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
            texts.push(name.as_str());
            all_texts(value, &mut texts);
        });
        let variables = json
            .iter()
            .map(|(name, value)| (name.clone(), Value::from(minijinja::value::Serde(value))));
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

/// Appends every text in a value, names included. As deep as the value, which its reader has bounded.
fn all_texts<'a>(value: &'a Json, out: &mut Vec<&'a str>) {
    match value {
        Json::String(text) => out.push(text),
        Json::Array(items) => items.iter().for_each(|item| all_texts(item, out)),
        Json::Object(map) => map.iter().for_each(|(name, value)| {
            out.push(name);
            all_texts(value, out);
        }),
        Json::Null | Json::Bool(_) | Json::Number(_) => {}
    }
}
