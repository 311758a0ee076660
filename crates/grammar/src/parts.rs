//! Forms put together of parts: texts in which control tokens are named, JSON of schemas, text up to a mark, choices.
//! A grammar from outside can name no control token; these can.

use std::cell::Cell;
use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;
use std::sync::Arc;

use engine::Notes;
use tokenizer::Tokenizer;

use crate::adapt;
use crate::vocabulary::{TextPart, parts};
use crate::work::Work;
use crate::{Result, limits, schema};

pub(crate) const WHAT: &str = "form";
/// Parts of a form, shared ones counted once.
const PARTS: u64 = 100_000;
/// Bytes of the grammar that they become.
const BYTES: u64 = 4 << 20;
/// Parts within each other, but for chains of shared ones.
const DEPTH: u64 = 256;
/// Bytes of a schema from which on one that occurs several times is written once.
const SHARED: usize = 256;

/// Counts the parts of a form and the bytes of their texts while it is made, so that one that would be too large is given up before
/// it fills memory.
#[derive(Debug, Default)]
pub struct PartBudget {
    parts: Cell<u64>,
    bytes: Cell<u64>,
}

impl PartBudget {
    /// Adds parts, and bytes of texts.
    pub fn add(&self, parts: usize, bytes: usize) {
        self.parts.set(self.parts.get().saturating_add(parts as u64));
        self.bytes.set(self.bytes.get().saturating_add(bytes as u64));
    }

    /// Whether there is no use in making more.
    pub fn is_spent(&self) -> bool {
        self.parts.get() > PARTS || self.bytes.get() > BYTES
    }

    /// Refuses a form that has become too large.
    ///
    /// # Errors
    /// [`TooLarge`](crate::GrammarError::TooLarge).
    pub fn check(&self) -> Result<()> {
        limits::check(WHAT, "parts", self.parts.get(), PARTS)?;
        limits::check(WHAT, "bytes", self.bytes.get(), BYTES)
    }
}

/// A text of a form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FormText {
    /// Names of control tokens in it are those tokens.
    Named(String),
    /// It never becomes a control token, whatever it says: names and words from schemas, which strangers write.
    Plain(String),
}

/// A part of a form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FormPart {
    /// This text; names of control tokens are those tokens, and one that ends replies ends it.
    Text(String),
    /// This text, which never becomes a control token.
    Plain(String),
    /// JSON that satisfies a schema.
    Json(String),
    /// A text that an expression matches, the longest there is.
    Regex(String),
    /// Any text, up to the first of these ones together, and with them.
    Until(Vec<FormText>),
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

/// Writes a grammar in Lark. Without a tokenizer no text names a control token.
///
/// # Errors
/// A schema that cannot be read, or is too large.
pub(crate) fn lark(
    all: &[FormPart],
    tokenizer: Option<&Tokenizer>,
    work: &mut Work,
    notes: &mut Notes,
) -> Result<String> {
    let mut writer = Writer {
        tokenizer,
        work,
        notes,
        has_text: has_text(all),
        rules: String::new(),
        n_rules: 0,
        shared: HashMap::new(),
        schemas: HashMap::new(),
        budget: PartBudget::default(),
        depth: 0,
    };
    let start = writer.sequence(all)?;
    Ok(format!("start: {start}\n{}", writer.rules))
}

/// Returns whether a form contains free text up to a mark. Visits each shared part once, and without recursion, because chains of
/// shared parts are long.
pub(crate) fn has_text(all: &[FormPart]) -> bool {
    let mut seen = HashSet::new();
    let mut rest: Vec<&FormPart> = all.iter().collect();
    while let Some(part) = rest.pop() {
        match part {
            FormPart::Until(_) => return true,
            FormPart::All(all) | FormPart::OneOf(all) => rest.extend(all),
            FormPart::Maybe(part) | FormPart::Repeat(part) => rest.push(part),
            FormPart::Shared(part) => {
                if seen.insert(Arc::as_ptr(part)) {
                    rest.push(part);
                }
            }
            FormPart::Text(_) | FormPart::Plain(_) | FormPart::Json(_) | FormPart::Regex(_) => {}
        }
    }
    false
}

struct Writer<'t> {
    tokenizer: Option<&'t Tokenizer>,
    work: &'t mut Work,
    notes: &'t mut Notes,
    /// Whether the form contains text that is not JSON. Digits are not counted in such a form.
    has_text: bool,
    /// Rules that others name.
    rules: String,
    n_rules: usize,
    /// Names of the rules of shared parts, by address.
    shared: HashMap<*const FormPart, String>,
    /// Names of the rules for long schemas and for numbers, by their text.
    schemas: HashMap<&'t str, String>,
    budget: PartBudget,
    /// Parts around the one that is being written.
    depth: u64,
}

/// A piece of a text as a grammar has it.
#[derive(PartialEq, Eq)]
enum Piece {
    Text(String),
    Control(u32),
}

impl<'t> Writer<'t> {
    fn sequence(&mut self, all: &'t [FormPart]) -> Result<String> {
        let mut written = String::new();
        let mut pieces = Vec::new();
        for part in all {
            match part {
                FormPart::Text(text) => self.add(&mut pieces, text, false)?,
                FormPart::Plain(text) => self.add(&mut pieces, text, true)?,
                part => {
                    written += &self.pieces(&std::mem::take(&mut pieces));
                    written += &self.part(part)?;
                    written.push(' ');
                }
            }
        }
        written += &self.pieces(&pieces);
        Ok(if written.is_empty() { "\"\"".to_owned() } else { written })
    }

    fn part(&mut self, part: &'t FormPart) -> Result<String> {
        self.count(match part {
            FormPart::Json(text) | FormPart::Regex(text) => text.len(),
            _ => 0,
        })?;
        self.depth += 1;
        limits::check(WHAT, "parts within each other", self.depth, DEPTH)?;
        let written = self.written(part);
        self.depth -= 1;
        written
    }

    /// Counts a part; `bytes`: length of its text.
    fn count(&mut self, bytes: usize) -> Result<()> {
        self.budget.add(1, bytes);
        self.budget.check()
    }

    fn written(&mut self, part: &'t FormPart) -> Result<String> {
        Ok(match part {
            FormPart::Shared(part) => self.shared(part)?,
            FormPart::Text(_) | FormPart::Plain(_) => self.sequence(std::slice::from_ref(part))?,
            FormPart::Json(schema) => self.schema(schema)?,
            FormPart::Regex(regex) => format!("/{}/", regex.replace('/', "\\/")),
            FormPart::Until(mark) => self.until(mark)?,
            FormPart::All(all) => format!("( {})", self.sequence(all)?),
            FormPart::OneOf(all) => {
                let each: Result<Vec<_>> = all.iter().map(|part| self.part(part)).collect();
                format!("( {} )", each?.join(" | "))
            }
            FormPart::Maybe(part) => format!("( {} )?", self.part(part)?),
            FormPart::Repeat(part) => format!("( {} )*", self.part(part)?),
        })
    }

    /// Writes a rule and returns its name.
    fn rule(&mut self, body: &str) -> String {
        self.n_rules += 1;
        let name = format!("part_{}", self.n_rules);
        writeln!(self.rules, "{name}: {body}").expect("a string takes all");
        name
    }

    /// JSON of a schema; the name of a rule for a long one, which may come again.
    fn schema(&mut self, text: &'t str) -> Result<String> {
        if let Some(name) = self.schemas.get(text) {
            return Ok(name.clone());
        }
        let schema = schema::read(text, self.work, self.notes)?;
        if let Some(number) = adapt::number(&schema).filter(|_| self.has_text) {
            return Ok(self.number(number));
        }
        let written = format!("%json {schema}");
        if text.len() < SHARED {
            return Ok(written);
        }
        let name = self.rule(&written);
        self.schemas.insert(text, name.clone());
        Ok(name)
    }

    /// Returns the name of the rule for numbers that match an expression.
    fn number(&mut self, expression: &'static str) -> String {
        if let Some(name) = self.schemas.get(expression) {
            return name.clone();
        }
        let name = self.rule(&format!("/{expression}/"));
        self.schemas.insert(expression, name.clone());
        name
    }

    /// The name of the rule of a shared part, which is written if it is not there yet.
    ///
    /// A chain of shared parts, each of which ends with the next, is written from its end: recursion would go as deep as it is long.
    fn shared(&mut self, part: &'t Arc<FormPart>) -> Result<String> {
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
            let name = self.rule(&body);
            self.shared.insert(address, name);
        }
        Ok(self.shared[&Arc::as_ptr(part)].clone())
    }

    /// Adds a text to pieces, counted as a part. Texts that follow each other become one; a name of a control token that only comes of
    /// that is none.
    fn add(&mut self, pieces: &mut Vec<Piece>, text: &str, is_plain: bool) -> Result<()> {
        self.count(text.len())?;
        let all = match self.tokenizer.filter(|_| !is_plain) {
            Some(tokenizer) => parts(tokenizer, text),
            None => vec![TextPart::Text(text)],
        };
        for part in all {
            match (part, pieces.last_mut()) {
                (TextPart::Text(""), _) => {}
                (TextPart::Text(text), Some(Piece::Text(last))) => last.push_str(text),
                (TextPart::Text(text), _) => pieces.push(Piece::Text(text.to_owned())),
                (TextPart::Control(id), _) => pieces.push(Piece::Control(id)),
            }
        }
        Ok(())
    }

    fn pieces(&self, pieces: &[Piece]) -> String {
        let mut written = String::new();
        for piece in pieces {
            let result = match piece {
                Piece::Text(text) => write!(written, "{} ", quoted(text)),
                Piece::Control(id) if self.tokenizer.is_some_and(|all| all.is_eog(*id)) => Ok(()),
                Piece::Control(id) => write!(written, "<[{id}]> "),
            };
            result.expect("a string takes all");
        }
        written
    }

    /// Any text up to a mark. A rule of its own: text ends with the first mark there is.
    fn until(&mut self, mark: &[FormText]) -> Result<String> {
        let mut pieces = Vec::new();
        for text in mark {
            match text {
                FormText::Named(text) => self.add(&mut pieces, text, false)?,
                FormText::Plain(text) => self.add(&mut pieces, text, true)?,
            }
        }
        Ok(match pieces.split_first() {
            Some((Piece::Text(suffix), rest)) => {
                self.n_rules += 1;
                let name = format!("until_{}", self.n_rules);
                let rule = writeln!(self.rules, "{name}[suffix={}]: /(?s:.*)/", quoted(suffix));
                rule.expect("a string takes all");
                format!("{name} {}", self.pieces(rest))
            }
            _ => format!("/(?s:.*)/ {}", self.pieces(&pieces)),
        })
    }
}

/// A string of Lark.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
