//! Forms put together of parts: texts in which control tokens are named, JSON of schemas, text up to a mark, choices.
//! A grammar from outside can name no control token; these can.

use std::fmt::Write as _;

use tokenizer::Tokenizer;

use crate::vocabulary::{TextPart, parts};
use crate::{Result, schema};

pub(crate) const WHAT: &str = "form";

/// A part of a form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FormPart {
    /// This text; names of control tokens are those tokens, and one that ends replies ends it.
    Text(String),
    /// JSON that satisfies a schema.
    Json(String),
    /// A text that an expression matches, the longest there is.
    Regex(String),
    /// Any text, up to this one and with it.
    Until(String),
    /// Parts one after the other.
    All(Vec<FormPart>),
    /// One of these.
    OneOf(Vec<FormPart>),
    /// This or nothing.
    Maybe(Box<FormPart>),
    /// This any number of times.
    Repeat(Box<FormPart>),
}

/// A grammar in Lark.
///
/// # Errors
/// A schema that cannot be read, or is too large.
pub(crate) fn lark(all: &[FormPart], tokenizer: &Tokenizer) -> Result<String> {
    let mut writer = Writer { tokenizer, rules: String::new(), n_rules: 0 };
    let start = writer.sequence(all)?;
    Ok(format!("start: {start}\n{}", writer.rules))
}

struct Writer<'t> {
    tokenizer: &'t Tokenizer,
    /// Rules that others name.
    rules: String,
    n_rules: usize,
}

impl Writer<'_> {
    fn sequence(&mut self, all: &[FormPart]) -> Result<String> {
        let mut text = String::new();
        for part in all {
            text += &self.part(part)?;
            text.push(' ');
        }
        Ok(if text.is_empty() { "\"\"".to_owned() } else { text })
    }

    fn part(&mut self, part: &FormPart) -> Result<String> {
        Ok(match part {
            FormPart::Text(text) => self.text(text),
            FormPart::Json(schema) => format!("%json {}", schema::read(schema)?),
            FormPart::Regex(regex) => format!("/{}/", regex.replace('/', "\\/")),
            FormPart::Until(mark) => self.until(mark),
            FormPart::All(all) => format!("( {})", self.sequence(all)?),
            FormPart::OneOf(all) => {
                let each: Result<Vec<_>> = all.iter().map(|part| self.part(part)).collect();
                format!("( {} )", each?.join(" | "))
            }
            FormPart::Maybe(part) => format!("( {} )?", self.part(part)?),
            FormPart::Repeat(part) => format!("( {} )*", self.part(part)?),
        })
    }

    fn text(&self, text: &str) -> String {
        let mut all = String::new();
        for part in parts(self.tokenizer, text) {
            let written = match part {
                TextPart::Text(text) => write!(all, "{} ", quoted(text)),
                TextPart::Control(id) if self.tokenizer.is_eog(id) => Ok(()),
                TextPart::Control(id) => write!(all, "<[{id}]> "),
            };
            written.expect("a string takes all");
        }
        if all.is_empty() { "\"\"".to_owned() } else { all }
    }

    /// Any text up to a mark. A rule of its own: text ends with the first mark there is.
    fn until(&mut self, mark: &str) -> String {
        let all = parts(self.tokenizer, mark);
        let (rest, suffix) = match all.first() {
            Some(TextPart::Text(first)) => (&mark[first.len()..], *first),
            _ => return format!("/(?s:.*)/ {}", self.text(mark)),
        };
        self.n_rules += 1;
        let name = format!("until_{}", self.n_rules);
        let rule = writeln!(self.rules, "{name}[suffix={}]: /(?s:.*)/", quoted(suffix));
        rule.expect("a string takes all");
        format!("{name} {}", self.text(rest))
    }
}

/// A string of Lark.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
