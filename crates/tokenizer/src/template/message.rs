//! What a conversation consists of: messages, calls of tools among them, and what a template is told of tools.

use std::io::{self, Write};

use serde_json::{Map, Value as Json};

use crate::{Error, Result};

/// One message of a conversation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Message {
    /// Who speaks: `system`, `user`, `assistant`, `tool`.
    pub role: String,
    /// What is said. It never becomes control tokens.
    pub content: String,
    /// The tools that an assistant calls.
    pub tool_calls: Vec<ToolCall>,
    /// Of which call a tool's message is the result.
    pub tool_call_id: Option<String>,
    /// Of which tool.
    pub name: Option<String>,
    /// What an assistant thought before it called tools, where that is no part of the content.
    pub thoughts: Option<String>,
    /// All of it as the model wrote it, calls included: what a template is given that knows no calls.
    pub written: Option<String>,
}

/// A call of a tool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToolCall {
    /// What the result names.
    pub id: String,
    /// The tool.
    pub name: String,
    /// Its arguments: the text of a JSON object.
    pub arguments: String,
}

impl Message {
    /// A message.
    pub fn new(role: impl Into<String>, content: impl Into<String>) -> Message {
        Message { role: role.into(), content: content.into(), ..Message::default() }
    }

    /// The result of a call.
    pub fn result(call: &ToolCall, content: impl Into<String>) -> Message {
        Message {
            tool_call_id: Some(call.id.clone()),
            name: Some(call.name.clone()),
            ..Message::new("tool", content)
        }
    }
}

/// What a template is told of tools: a list as JSON has it.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolDeclarations(pub(super) Vec<Json>);

impl ToolDeclarations {
    /// Read a JSON list. What its items are is the template's business.
    ///
    /// # Errors
    /// [`Error::Template`]: no JSON, or no list.
    pub fn from_json(text: &str) -> Result<ToolDeclarations> {
        match serde_json::from_str(text) {
            Ok(Json::Array(tools)) => Ok(ToolDeclarations(tools)),
            Ok(_) => Err(Error::template(None, "tools: expected a list")),
            Err(error) => Err(Error::template(None, format!("tools: {error}"))),
        }
    }
}

/// Variables for a template in addition to the conversation, by name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TemplateVariables(pub(super) Map<String, Json>);

impl TemplateVariables {
    /// Reads the variables from a JSON object.
    ///
    /// # Errors
    /// [`Error::Template`] if the text is not JSON or not an object.
    pub fn from_json(text: &str) -> Result<TemplateVariables> {
        match serde_json::from_str(text) {
            Ok(Json::Object(variables)) => Ok(TemplateVariables(variables)),
            Ok(_) => Err(Error::template(None, "variables: expected an object")),
            Err(error) => Err(Error::template(None, format!("variables: {error}"))),
        }
    }

    /// Creates the variables from a map of their names to their values.
    pub fn from_map(variables: Map<String, Json>) -> TemplateVariables {
        TemplateVariables(variables)
    }

    /// Returns the names of the variables.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// Returns whether there are no variables.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Sets a variable to a text.
    pub fn set_text(&mut self, name: &str, text: &str) {
        self.0.insert(name.to_owned(), text.into());
    }

    /// Sets a variable to a number.
    pub fn set_number(&mut self, name: &str, number: u32) {
        self.0.insert(name.to_owned(), number.into());
    }

    /// Sets all variables of `others`, and overwrites those of the same name.
    pub fn extend(&mut self, others: &TemplateVariables) {
        self.0.extend(others.0.iter().map(|(name, value)| (name.clone(), value.clone())));
    }

    /// Returns the approximate size of the variables in bytes, as JSON text.
    pub fn bytes(&self) -> usize {
        let mut count = ByteCount(0);
        serde_json::to_writer(&mut count, &self.0).map_or(0, |()| count.0)
    }
}

/// Counts written bytes without storing them.
struct ByteCount(usize);

impl Write for ByteCount {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
