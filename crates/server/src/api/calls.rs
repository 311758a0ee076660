//! Tools that a request offers, and the calls of a reply as they come.

use std::sync::Arc;

use engine::{Message, ToolCall};
use serde_json::Value;
use tools::{ToolChoice, ToolList, ToolOptions, ToolUse};

use super::asked::{WantedCalls, blocking};
use crate::Serving;
use crate::body::JsonBody;
use crate::error::{ApiError, Result};
use crate::fields::brief;
use crate::worker::CallPiece;

impl Serving {
    /// The tools of a request, ready for the model: `tools`, `tool_choice` and `parallel_tool_calls` of OpenAI's API.
    ///
    /// # Errors
    /// A field that cannot be obeyed.
    pub(crate) async fn calls(
        self: &Arc<Serving>,
        body: &JsonBody,
        messages: &[Message],
    ) -> Result<Option<WantedCalls>> {
        let parallel = body.flag("parallel_tool_calls")?.unwrap_or(true);
        let choice = choice(body)?;
        let list = body.list("tools")?.filter(|list| !list.is_empty()).cloned();
        let Some(list) = list else {
            return match choice {
                ToolChoice::Auto | ToolChoice::None => Ok(None),
                _ => Err(ApiError::field("tool_choice", "there are no tools")),
            };
        };
        let wrong = |problem: tools::ToolError| ApiError::field("tools", problem);
        let list = Arc::new(ToolList::from_json(Value::Array(list)).map_err(wrong)?);
        let options = ToolOptions { choice, parallel };
        let app = Arc::clone(self);
        let make = move || {
            let template = app.model.format.template();
            let with = |trie: &_| ToolUse::new(&list, options, template, Some(trie));
            app.with_trie(with)?.map_err(|problem| ApiError::field("tools", problem))
        };
        let before = messages.iter().map(|message| message.tool_calls.len()).sum();
        Ok(Some(WantedCalls { tools: Arc::new(blocking(make).await?), before }))
    }
}

fn choice(body: &JsonBody) -> Result<ToolChoice> {
    const NAME: &str = "tool_choice";
    match body.get(NAME) {
        None => Ok(ToolChoice::Auto),
        Some(Value::String(word)) if word == "auto" => Ok(ToolChoice::Auto),
        Some(Value::String(word)) if word == "none" => Ok(ToolChoice::None),
        Some(Value::String(word)) if word == "required" => Ok(ToolChoice::Required),
        Some(object) => match object.pointer("/function/name").and_then(Value::as_str) {
            Some(name) => Ok(ToolChoice::Named(name.to_owned())),
            None => {
                let expected = "expected auto, none, required or a function";
                Err(ApiError::field(NAME, format!("{expected}, found {}", brief(object))))
            }
        },
    }
}

/// The call that is being written: told when it is whole, for until then it may turn out to be text.
#[derive(Debug, Default)]
pub(crate) struct OpenCall(ToolCall);

impl OpenCall {
    /// More of it; the call, if it is whole.
    pub(crate) fn add(&mut self, piece: CallPiece) -> Option<ToolCall> {
        match piece {
            CallPiece::Begins { id, name } => {
                self.0 = ToolCall { id, name, arguments: String::new() };
                None
            }
            CallPiece::Arguments(text) => {
                self.0.arguments.push_str(&text);
                None
            }
            CallPiece::Ends => Some(std::mem::take(&mut self.0)),
            CallPiece::Fails => {
                self.0 = ToolCall::default();
                None
            }
        }
    }
}
