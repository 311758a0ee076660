//! [`Entry`]: one message of a conversation, and its form as a line of the file.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// One message. Fields that are `None` or empty are omitted from the file, except `parent`, `content` and `time`.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Entry {
    /// Identifier of the message, unique within its file.
    pub id: String,
    /// Identifier of the previous message; `None` for the first message of a conversation.
    #[serde(default)]
    pub parent: Option<String>,
    /// `system`, `user`, `assistant` or `tool`.
    pub role: String,
    /// Text of the message.
    #[serde(default)]
    pub content: String,
    /// Time of writing: `2026-11-27T11:10:22Z`.
    #[serde(default)]
    pub time: String,
    /// Model that was loaded when the message was written, as the user named it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Tool calls in the format of OpenAI's API.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<Value>,
    /// Identifier of the tool call that this message is the result of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_call_id: Option<String>,
    /// Name of the tool whose result this message is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Reasoning text of an assistant before its tool calls.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thoughts: Option<String>,
    /// Raw text of an assistant's message as the model generated it, tool calls included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub written: Option<String>,
}

/// Valid roles of a message.
const ROLES: [&str; 4] = ["system", "user", "assistant", "tool"];

/// Contents of one line.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Line {
    /// A message, which becomes the last one of the conversation.
    Entry(Box<Entry>),
    /// The conversation continues after the message with this identifier; `None`: it continues before the first message.
    Head(Option<String>),
}

impl Line {
    /// Parses a line; returns `None` if the bytes are not a valid line of a conversation.
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

    /// Returns the line as text, line break included.
    pub(crate) fn text(&self, time: &str) -> String {
        let value = match self {
            Line::Entry(entry) => serde_json::to_value(entry).unwrap_or_default(),
            Line::Head(id) => serde_json::json!({ "head": id, "time": time }),
        };
        format!("{value}\n")
    }
}
