//! The form of a reply: `--json-schema`, `--regex`, `--grammar`.

use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;

use grammar::{CompileBudget, Form, FormSource, TokenTrie};
use tokenizer::Tokenizer;

use crate::input::TextSource;
use crate::ui;

/// What a reply must be. Only tokens that can lead there are chosen.
#[derive(clap::Args, Clone, Debug, Default)]
pub(crate) struct FormArgs {
    /// Replies are JSON of this schema: file or text
    #[arg(short, long, value_name = "FILE|TEXT", alias = "json-schema-file", conflicts_with_all = ["regex", "grammar", "ignore_eos"])]
    json_schema: Option<OsString>,
    /// Replies match this regular expression as a whole
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true, conflicts_with_all = ["grammar", "ignore_eos"])]
    regex: Option<String>,
    /// Replies follow this grammar, Lark or GBNF: a file, or the grammar itself. Words of recursive rules take the
    /// longest text they can
    #[arg(long, value_name = "FILE|TEXT", alias = "grammar-file", conflicts_with = "ignore_eos")]
    grammar: Option<OsString>,
}

impl FormArgs {
    /// The form that was asked for, compiled for a model's tokens.
    ///
    /// # Errors
    /// A file that cannot be read; [`grammar::GrammarError`].
    pub(crate) fn form(&self, tokenizer: &Arc<Tokenizer>) -> anyhow::Result<Option<Arc<Form>>> {
        let source = if let Some(schema) = &self.json_schema {
            // a schema is an object, true or false
            let inline = |text: &str| text.starts_with('{') || ["true", "false"].contains(&text);
            FormSource::JsonSchema(text(schema, inline)?)
        } else if let Some(regex) = &self.regex {
            FormSource::Regex(regex.clone())
        } else if let Some(grammar) = &self.grammar {
            FormSource::Grammar(text(grammar, |text| text.contains(':'))?)
        } else {
            return Ok(None);
        };
        let trie = TokenTrie::new(Arc::clone(tokenizer))?;
        let form = Form::compile(&source, &trie, &CompileBudget::default())?;
        form.notes().lines().iter().for_each(|note| ui::warn(note));
        Ok(Some(Arc::new(form)))
    }
}

/// The text itself, or that of the file it names.
pub(crate) fn text(given: &OsString, inline: impl Fn(&str) -> bool) -> anyhow::Result<String> {
    match given.to_str() {
        Some(text) if inline(text.trim()) && !Path::new(given).exists() => Ok(text.to_owned()),
        _ => TextSource::of_path(given.into()).read(),
    }
}
