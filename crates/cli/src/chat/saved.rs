//! `/save` and `/load`: messages as a JSON array of `{"role", "content"}`.

use std::path::Path;

use anyhow::Context as _;
use engine::Message;
use serde::{Deserialize, Serialize};

use crate::exit::Failure;
use crate::input::TextSource;
use crate::output::{OutputArgs, shown};

/// A message in a file.
#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Saved {
    role: String,
    content: String,
}

/// Roles that a conversation has.
const ROLES: [&str; 3] = ["system", "user", "assistant"];

/// Write the messages to a file.
///
/// # Errors
/// A file that exists and is not to be replaced, or the file system.
pub(super) fn save(path: &Path, messages: &[Message], replace: bool) -> anyhow::Result<()> {
    let saved = messages.iter().map(|m| Saved { role: m.role.clone(), content: m.content.clone() });
    let text = serde_json::to_string_pretty(&saved.collect::<Vec<_>>())? + "\n";
    OutputArgs { force: replace }.write(path, text.as_bytes())
}

/// Read messages from a file.
///
/// # Errors
/// What is wrong with it.
pub(super) fn load(path: &Path) -> anyhow::Result<Vec<Message>> {
    let text = TextSource::File(path.to_owned()).read()?;
    let saved: Vec<Saved> = serde_json::from_str(&text)
        .context("expected messages as JSON: [{\"role\": \"user\", \"content\": \"...\"}]")
        .with_context(|| format!("reading {}", shown(path)))?;
    for (i, message) in saved.iter().enumerate() {
        let misplaced = message.role == ROLES[0] && i > 0;
        if misplaced || !ROLES.contains(&&*message.role) {
            let role = gguf::escape(&message.role, 40);
            return Err(Failure::Malformed(format!(
                "{}: message {}: expected a role user or assistant, or system in the first, found `{role}`",
                shown(path),
                i + 1
            ))
            .into());
        }
    }
    Ok(saved.into_iter().map(|m| Message::new(m.role, m.content)).collect())
}
