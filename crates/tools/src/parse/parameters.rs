//! Arguments as parameters between marks. Each is told when it is whole; what is JSON of them the mark or the tool's
//! schema says.

use engine::Event;

use super::Told;
use super::call::{Progress, take_until};
use super::input::{Input, Match, matches};
use crate::family::{CallParameters, Marked};
use crate::values;

/// Longest key, in bytes.
const KEY: usize = 256;

/// Parameters of which some have come.
pub(super) struct ParameterReader {
    parameters: &'static CallParameters,
    marked: &'static Marked,
    tool: String,
    place: Place,
    /// Keys that were told.
    keys: Vec<String>,
}

enum Place {
    /// Before a parameter or the end.
    Between,
    Key,
    /// Before what stands before a value.
    Named(String),
    Value {
        key: String,
        is_text: Option<bool>,
        value: String,
    },
}

impl ParameterReader {
    pub(super) fn new(
        parameters: &'static CallParameters,
        marked: &'static Marked,
        tool: &str,
    ) -> Self {
        let tool = tool.to_owned();
        ParameterReader { parameters, marked, tool, place: Place::Between, keys: Vec::new() }
    }

    pub(super) fn advance(
        &mut self,
        input: &mut Input,
        told: &mut Told,
        emit: &mut dyn FnMut(Event<'_>),
    ) -> Progress {
        let parameters = self.parameters;
        loop {
            match &mut self.place {
                Place::Between => {
                    told.take_space(input);
                    let rest = input.rest();
                    if rest.is_empty() {
                        return Progress::Wait;
                    }
                    match matches(rest, parameters.open) {
                        Match::Yes => {
                            told.take(input, parameters.open.len());
                            self.place = Place::Key;
                            continue;
                        }
                        Match::Maybe => return Progress::Wait,
                        Match::No => {}
                    }
                    // without a mark of its own a call ends where the calls do
                    let ends = self.marked.closes.first().map(|close| matches(rest, close));
                    match ends {
                        Some(Match::Maybe) => return Progress::Wait,
                        Some(Match::No) => return Progress::Bad,
                        Some(Match::Yes) | None => {}
                    }
                    if self.marked.closes.is_empty() && !rest.starts_with('<') {
                        return Progress::Bad;
                    }
                    told.arguments(if self.keys.is_empty() { "{}" } else { "}" }, emit);
                    told.end(emit);
                    return Progress::Ended;
                }
                Place::Key => {
                    let rest = input.rest();
                    let end = match rest.find(parameters.named) {
                        Some(end) if end <= KEY => end,
                        None if rest.len() <= KEY + parameters.named.len() => {
                            return Progress::Wait;
                        }
                        _ => return Progress::Bad,
                    };
                    let key = rest[..end].trim().to_owned();
                    if key.is_empty() || self.keys.contains(&key) {
                        return Progress::Bad;
                    }
                    told.take(input, end + parameters.named.len());
                    self.place = Place::Named(key);
                }
                Place::Named(key) => {
                    // white space is the value's own where nothing stands before it
                    if parameters.values.iter().all(|mark| !mark.text.is_empty()) {
                        told.take_space(input);
                    }
                    let rest = input.rest();
                    let found =
                        parameters.values.iter().map(|mark| (matches(rest, mark.text), mark));
                    let found: Vec<_> = found.collect();
                    if let Some((_, mark)) = found.iter().find(|(found, _)| *found == Match::Yes) {
                        let (key, value) = (std::mem::take(key), String::new());
                        told.take(input, mark.text.len());
                        self.place = Place::Value { key, is_text: mark.is_text, value };
                    } else if found.iter().any(|(found, _)| *found == Match::Maybe) {
                        return Progress::Wait;
                    } else {
                        return Progress::Bad;
                    }
                }
                Place::Value { key, is_text, value } => {
                    if !take_until(parameters.close, value, input, told) {
                        return Progress::Wait;
                    }
                    let value = if parameters.lines { without_lines(value) } else { value };
                    let types = match is_text {
                        Some(true) => Some(vec!["string".to_owned()]),
                        Some(false) => None,
                        None => told.tool(&self.tool).and_then(|tool| tool.types(key)),
                    };
                    let value = values::of_text(value, types.as_deref());
                    let start = if self.keys.is_empty() { "{" } else { ", " };
                    let piece = format!("{start}{}: {value}", values::quoted(key));
                    told.arguments(&piece, emit);
                    self.keys.push(std::mem::take(key));
                    self.place = Place::Between;
                }
            }
        }
    }
}

/// Without a line break at the start and at the end.
fn without_lines(value: &str) -> &str {
    let value = value.strip_prefix('\n').unwrap_or(value);
    value.strip_suffix('\n').unwrap_or(value)
}
