//! Forms put together of parts: texts in which control tokens are named, JSON of schemas, text up to a mark, choices.
//! A grammar from outside can name no control token; these can.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::Arc;

use tokenizer::Tokenizer;

use crate::vocabulary::{TextPart, parts};
use crate::{Result, limits, schema};

pub(crate) const WHAT: &str = "form";
/// Parts of a form, shared ones counted once.
const PARTS: u64 = 100_000;
/// Bytes of the grammar that they become.
const BYTES: u64 = 4 << 20;
/// Parts within each other, but for chains of shared ones.
const DEPTH: u64 = 256;

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
    /// A part that stands in several places. It is written once, as a rule of its own: written out in each place, parts within parts
    /// would grow exponentially.
    Shared(Arc<FormPart>),
}

/// A grammar in Lark.
///
/// # Errors
/// A schema that cannot be read, or is too large.
pub(crate) fn lark(all: &[FormPart], tokenizer: &Tokenizer) -> Result<String> {
    let mut writer = Writer {
        tokenizer,
        rules: String::new(),
        n_rules: 0,
        shared: HashMap::new(),
        n_parts: 0,
        n_bytes: 0,
        depth: 0,
    };
    let start = writer.sequence(all)?;
    Ok(format!("start: {start}\n{}", writer.rules))
}

struct Writer<'t> {
    tokenizer: &'t Tokenizer,
    /// Rules that others name.
    rules: String,
    n_rules: usize,
    /// Names of the rules of shared parts, by address.
    shared: HashMap<*const FormPart, String>,
    n_parts: u64,
    /// Bytes of texts and schemas so far.
    n_bytes: u64,
    /// Parts around the one that is being written.
    depth: u64,
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
        self.n_parts += 1;
        self.n_bytes += match part {
            FormPart::Text(text)
            | FormPart::Json(text)
            | FormPart::Regex(text)
            | FormPart::Until(text) => text.len() as u64,
            _ => 0,
        };
        limits::check(WHAT, "parts", self.n_parts, PARTS)?;
        limits::check(WHAT, "bytes", self.n_bytes, BYTES)?;
        self.depth += 1;
        limits::check(WHAT, "parts within each other", self.depth, DEPTH)?;
        let written = self.written(part);
        self.depth -= 1;
        written
    }

    fn written(&mut self, part: &FormPart) -> Result<String> {
        Ok(match part {
            FormPart::Shared(part) => self.shared(part)?,
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

    /// The name of the rule of a shared part, which is written if it is not there yet.
    ///
    /// A chain of shared parts, each of which ends with the next, is written from its end: recursion would go as deep as it is long.
    fn shared(&mut self, part: &Arc<FormPart>) -> Result<String> {
        let mut chain = vec![part];
        while let Some(last) = chain.last()
            && let FormPart::All(all) = &***last
            && let Some(FormPart::Shared(next)) = all.last()
            && !self.shared.contains_key(&Arc::as_ptr(next))
        {
            chain.push(next);
        }
        for part in chain.into_iter().rev() {
            let address = Arc::as_ptr(part);
            if self.shared.contains_key(&address) {
                continue;
            }
            let body = self.part(part)?;
            self.n_rules += 1;
            let name = format!("part_{}", self.n_rules);
            writeln!(self.rules, "{name}: {body}").expect("a string takes all");
            self.shared.insert(address, name);
        }
        Ok(self.shared[&Arc::as_ptr(part)].clone())
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
