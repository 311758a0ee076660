//! `--tools`: functions that a model may call, and that are called by whoever reads what it calls.

use std::ffi::OsString;
use std::sync::Arc;

use engine::ModelFormat;
use grammar::{CompileBudget, TokenTrie};
use tools::{ToolChoice, ToolList, ToolOptions, ToolUse};

use crate::{forms, ui};

/// Tools, and how they are to be called.
#[derive(clap::Args, Clone, Debug, Default)]
pub(crate) struct ToolArgs {
    /// Tools that the model may call: a file, or JSON
    ///
    /// OpenAI's list of functions. A conversation asks for their results, a single answer prints the calls as JSON. With
    /// --json-schema, --regex or --grammar a reply calls a tool or has that form
    #[arg(long, value_name = "FILE|TEXT", conflicts_with = "ignore_eos")]
    tools: Option<OsString>,
    /// Whether it calls them: auto, none, required, or the name of the one it must call
    #[arg(long, value_name = "CHOICE", requires = "tools")]
    tool_choice: Option<String>,
    /// Have at most one call in a reply
    #[arg(long, requires = "tools")]
    no_parallel_tool_calls: bool,
}

impl ToolArgs {
    /// The tools that were asked for, ready for a model.
    ///
    /// # Errors
    /// A file that cannot be read; [`tools::ToolError`].
    pub(crate) fn tools(&self, format: &ModelFormat) -> anyhow::Result<Option<Arc<ToolUse>>> {
        let Some(given) = &self.tools else { return Ok(None) };
        let list = ToolList::read(&forms::text(given, |text| text.starts_with('['))?)?;
        let choice = self.tool_choice.as_deref().map_or(ToolChoice::Auto, choice);
        let options = ToolOptions { choice, parallel: !self.no_parallel_tool_calls, strict: false };
        let trie = TokenTrie::new(Arc::clone(format.tokenizer())).ok();
        let (template, budget) = (format.template(), CompileBudget::default());
        let tools = ToolUse::new(&Arc::new(list), options, template, trie.as_ref(), &budget)?;
        tools.notes().lines().iter().for_each(|note| ui::warn(note));
        Ok(Some(Arc::new(tools)))
    }
}

/// OpenAI's words for whether tools are called; anything else is the name of one.
pub(crate) fn choice(text: &str) -> ToolChoice {
    match text {
        "auto" => ToolChoice::Auto,
        "none" => ToolChoice::None,
        "required" => ToolChoice::Required,
        name => ToolChoice::Named(name.to_owned()),
    }
}
