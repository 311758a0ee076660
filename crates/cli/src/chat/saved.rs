//! `/save` and `/load`: messages as a JSON array of `{"role", "content"}`, and of what OpenAI's API has for calls.

use std::path::Path;

use anyhow::Context as _;
use engine::Message;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::input::TextSource;
use crate::output::{OutputArgs, shown};

/// A message in a file.
#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Saved {
    role: String,
    content: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tool_call_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    name: Option<String>,
}

/// Roles that a conversation has.
const ROLES: [&str; 4] = ["system", "user", "assistant", "tool"];

/// Write the messages to a file.
///
/// # Errors
/// A file that exists and is not to be replaced, or the file system.
pub(super) fn save(path: &Path, messages: &[Message], replace: bool) -> anyhow::Result<()> {
    let saved = messages.iter().map(|m| Saved {
        role: m.role.clone(),
        content: m.content.clone(),
        tool_calls: m.tool_calls.iter().map(server::call_json).collect(),
        tool_call_id: m.tool_call_id.clone(),
        name: m.name.clone(),
    });
    let text = serde_json::to_string_pretty(&saved.collect::<Vec<_>>())? + "\n";
    OutputArgs { force: replace }.write(path, text.as_bytes())
}

/// Extracts the list of messages: the whole text, or the field `messages` of an object, as in API requests.
fn list_of(text: &str) -> serde_json::Result<Value> {
    Ok(match serde_json::from_str(text)? {
        Value::Object(mut object) if object.contains_key("messages") => object["messages"].take(),
        other => other,
    })
}

/// Read messages from a file.
///
/// # Errors
/// What is wrong with it.
pub(super) fn load(path: &Path) -> anyhow::Result<Vec<Message>> {
    let text = TextSource::File(path.to_owned()).read()?;
    let saved: Vec<Saved> = list_of(&text)
        .and_then(serde_json::from_value)
        .context("expected messages as JSON: [{\"role\": \"user\", \"content\": \"...\"}]")
        .with_context(|| format!("reading {}", shown(path)))?;
    for (i, message) in saved.iter().enumerate() {
        let misplaced = message.role == ROLES[0] && i > 0;
        if misplaced || !ROLES.contains(&&*message.role) {
            let role = gguf::escape(&message.role, 40);
            return Err(rooflight::Error::Malformed(format!(
                "{}: message {}: expected a role user, assistant or tool, or system in the first, found `{role}`",
                shown(path),
                i + 1
            ))
            .into());
        }
    }
    let message = |(i, m): (usize, Saved)| {
        let calls: Option<Vec<_>> = m.tool_calls.iter().map(server::call_of_json).collect();
        let Some(tool_calls) = calls else {
            return Err(rooflight::Error::Malformed(format!(
                "{}: message {}: expected tool_calls with a function, its name and its arguments",
                shown(path),
                i + 1
            ))
            .into());
        };
        let (tool_call_id, name) = (m.tool_call_id, m.name);
        Ok(Message { tool_calls, tool_call_id, name, ..Message::new(m.role, m.content) })
    };
    saved.into_iter().enumerate().map(message).collect()
}
