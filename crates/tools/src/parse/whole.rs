//! Arguments that are read when they are whole: as Python writes them, between braces, as elements of XML.

use engine::Event;

use super::Told;
use super::call::{Progress, take_until};
use super::input::{Input, held_for};
use crate::list::is_name_char;
use crate::values;

/// Longest name, in bytes.
const NAME: usize = 64;

/// `name(key='text', other=2)`.
#[derive(Default)]
pub(super) struct Python {
    name: String,
    arguments: Option<Nested>,
}

impl Python {
    pub(super) fn advance(
        &mut self,
        input: &mut Input,
        told: &mut Told,
        emit: &mut dyn FnMut(Event<'_>),
    ) -> Progress {
        let Some(arguments) = &mut self.arguments else {
            if self.name.is_empty() {
                told.take_space(input);
            }
            let rest = input.rest();
            let end = rest.find(|c| !is_name_char(c));
            self.name.push_str(&rest[..end.unwrap_or(rest.len())]);
            if self.name.len() > NAME {
                return Progress::Bad;
            }
            let next = end.and_then(|end| rest[end..].chars().next());
            told.take(input, end.unwrap_or(rest.len()));
            return match next {
                None => Progress::Wait,
                Some('(') if told.begin(&self.name, None, emit) => {
                    self.arguments = Some(Nested::new(Quotes::Python));
                    self.advance(input, told, emit)
                }
                Some(_) => Progress::Bad,
            };
        };
        end_of(arguments, input, told, emit, values::of_python)
    }
}

/// `{key:<|"|>text<|"|>,other:2}`.
pub(super) struct Braces {
    nested: Nested,
    quote: &'static str,
}

impl Braces {
    pub(super) fn new(quote: &'static str) -> Braces {
        Braces { nested: Nested::new(Quotes::Mark(quote)), quote }
    }

    pub(super) fn advance(
        &mut self,
        input: &mut Input,
        told: &mut Told,
        emit: &mut dyn FnMut(Event<'_>),
    ) -> Progress {
        let quote = self.quote;
        end_of(&mut self.nested, input, told, emit, |text| values::of_braces(text, quote))
    }
}

/// Tell what stands between brackets once they are closed.
fn end_of(
    nested: &mut Nested,
    input: &mut Input,
    told: &mut Told,
    emit: &mut dyn FnMut(Event<'_>),
    read: impl FnOnce(&str) -> Option<String>,
) -> Progress {
    match nested.advance(input, told) {
        None => Progress::Bad,
        Some(false) => Progress::Wait,
        Some(true) => match read(&nested.text) {
            Some(arguments) => {
                told.arguments(&arguments, emit);
                told.end(emit);
                Progress::Ended
            }
            None => Progress::Bad,
        },
    }
}

/// Text from an opening bracket to the one that closes it.
struct Nested {
    quotes: Quotes,
    text: String,
    /// Brackets that are open.
    open: usize,
    /// The quote of the text that is open.
    within: Option<char>,
    escaped: bool,
}

#[derive(Clone, Copy)]
enum Quotes {
    /// `'` and `"`, with escapes.
    Python,
    /// The same text before and behind, without escapes.
    Mark(&'static str),
}

impl Nested {
    fn new(quotes: Quotes) -> Nested {
        Nested { quotes, text: String::new(), open: 0, within: None, escaped: false }
    }

    /// Whether the last bracket was closed; `None` for one that closes nothing.
    fn advance(&mut self, input: &mut Input, told: &mut Told) -> Option<bool> {
        loop {
            let rest = input.rest();
            let Some(c) = rest.chars().next() else { return Some(false) };
            let mut bytes = c.len_utf8();
            if let Quotes::Mark(mark) = self.quotes {
                if rest.starts_with(mark) {
                    bytes = mark.len();
                    self.within = if self.within.is_some() { None } else { Some('"') };
                } else if mark.starts_with(rest) && held_for(rest, mark) == rest.len() {
                    return Some(false);
                } else if self.within.is_none() {
                    self.bracket(c)?;
                }
            } else {
                self.python(c)?;
            }
            self.text.push_str(&rest[..bytes]);
            told.take(input, bytes);
            if self.open == 0 && self.within.is_none() {
                return Some(true);
            }
        }
    }

    fn python(&mut self, c: char) -> Option<()> {
        match (self.within, c) {
            (Some(_), _) if self.escaped => self.escaped = false,
            (Some(_), '\\') => self.escaped = true,
            (Some(quote), _) if quote == c => self.within = None,
            (Some(_), _) => {}
            (None, '\'' | '"') => self.within = Some(c),
            (None, _) => self.bracket(c)?,
        }
        Some(())
    }

    fn bracket(&mut self, c: char) -> Option<()> {
        match c {
            '(' | '[' | '{' => self.open += 1,
            ')' | ']' | '}' => self.open = self.open.checked_sub(1)?,
            _ => {}
        }
        Some(())
    }
}

/// `<key>text</key>`, tags behind a mark.
pub(super) struct Elements {
    mark: &'static str,
    close: &'static str,
    tool: String,
    text: String,
}

impl Elements {
    pub(super) fn new(mark: &'static str, close: &'static str, tool: &str) -> Elements {
        Elements { mark, close, tool: tool.to_owned(), text: String::new() }
    }

    pub(super) fn advance(
        &mut self,
        input: &mut Input,
        told: &mut Told,
        emit: &mut dyn FnMut(Event<'_>),
    ) -> Progress {
        if !take_until(self.close, &mut self.text, input, told) {
            return Progress::Wait;
        }
        let tool = told.tool(&self.tool);
        let types = |key: &str| tool.and_then(|tool| tool.types(key));
        match values::of_elements(&self.text, self.mark, &types) {
            Some(arguments) => {
                told.arguments(&arguments, emit);
                told.end(emit);
                Progress::Ended
            }
            None => Progress::Bad,
        }
    }
}
