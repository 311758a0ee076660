//! [`Entry`]: a message of a conversation, and how it is a line.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// One message. `None` and empty fields are not written.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Entry {
    /// Names the message within its file.
    pub id: String,
    /// The message before it; `None` for the first of a conversation.
    #[serde(default)]
    pub parent: Option<String>,
    /// `system`, `user`, `assistant` or `tool`.
    pub role: String,
    /// The text.
    #[serde(default)]
    pub content: String,
    /// When it was written: `2026-11-27T11:10:22Z`.
    #[serde(default)]
    pub time: String,
    /// The model that the conversation was with, as the user named it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Calls of tools, as OpenAI's API has them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<Value>,
    /// The call that this is the result of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_call_id: Option<String>,
    /// The tool whose result this is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// What an assistant thought before it called tools.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thoughts: Option<String>,
    /// An assistant's message as the model wrote it, calls included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub written: Option<String>,
}

/// Roles of messages.
const ROLES: [&str; 4] = ["system", "user", "assistant", "tool"];

/// What a line says.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Line {
    /// A message, which is the latest one then.
    Entry(Box<Entry>),
    /// The conversation goes on after this message; `None`: before the first one.
    Head(Option<String>),
}

impl Line {
    /// What these bytes say; `None` if they are no line of a conversation.
    pub(crate) fn parse(line: &[u8]) -> Option<Line> {
        let value: Value = serde_json::from_slice(line).ok()?;
        let object = value.as_object()?;
        match object.get("head") {
            Some(Value::Null) => return Some(Line::Head(None)),
            Some(Value::String(id)) => return Some(Line::Head(Some(id.clone()))),
            Some(_) => return None,
            None => {}
        }
        let entry: Entry = serde_json::from_value(value).ok()?;
        let valid = !entry.id.is_empty() && ROLES.contains(&&*entry.role);
        valid.then(|| Line::Entry(Box::new(entry)))
    }

    /// It as a line, break included.
    pub(crate) fn text(&self, time: &str) -> String {
        let value = match self {
            Line::Entry(entry) => serde_json::to_value(entry).unwrap_or_default(),
            Line::Head(id) => serde_json::json!({ "head": id, "time": time }),
        };
        format!("{value}\n")
    }
}
