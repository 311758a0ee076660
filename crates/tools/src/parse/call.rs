//! One call: its name and its arguments, as its family writes them.

use engine::Event;

use super::input::{Input, held_for};
use super::objects::Object;
use super::parameters::ParameterReader;
use super::whole::{Braces, Elements, Python};
use super::{Told, objects};
use crate::family::{CallSyntax, Calls, GivenId, Marked, MarkedArguments};
use crate::json::{self, JsonScan};
use crate::list::is_name_char;

/// Longest text before the arguments, in bytes.
const HEAD: usize = 256;

/// How far a call is.
pub(super) enum Call {
    Object(Object),
    /// Before the arguments of a marked call.
    Head(&'static Marked),
    Json(JsonScan),
    Parameters(ParameterReader),
    Braces(Braces),
    Elements(Elements),
    Python(Python),
}

/// What came of one look at the text.
pub(super) enum Progress {
    Wait,
    Ended,
    Bad,
}

impl Call {
    /// A JSON object. `keyed`: its key is the tool; `strict`: it holds nothing but a call.
    pub(super) fn object(keyed: bool, strict: bool) -> Call {
        Call::Object(Object::new(
            if keyed { objects::Keys::Tools } else { objects::Keys::Fixed },
            strict,
        ))
    }

    /// A marked call, behind what opens it.
    pub(super) fn named(syntax: &'static CallSyntax) -> Call {
        match &syntax.calls {
            Calls::Marked(marked) => Call::Head(marked),
            _ => Call::object(false, false),
        }
    }

    /// A call as Python writes it.
    pub(super) fn python() -> Call {
        Call::Python(Python::default())
    }

    pub(super) fn advance(
        &mut self,
        input: &mut Input,
        told: &mut Told,
        emit: &mut dyn FnMut(Event<'_>),
    ) -> Progress {
        loop {
            match self {
                Call::Object(object) => return object.advance(input, told, emit),
                Call::Json(scan) => return scan_arguments(scan, input, told, emit),
                Call::Parameters(reader) => return reader.advance(input, told, emit),
                Call::Braces(braces) => return braces.advance(input, told, emit),
                Call::Elements(elements) => return elements.advance(input, told, emit),
                Call::Python(python) => return python.advance(input, told, emit),
                Call::Head(marked) => {
                    let bytes = match head_length(marked, input.rest()) {
                        Some(bytes) if bytes <= HEAD => bytes,
                        Some(_) => return Progress::Bad,
                        None if input.rest().len() > HEAD => return Progress::Bad,
                        None => return Progress::Wait,
                    };
                    let marked = *marked;
                    let head = input.rest()[..bytes].to_owned();
                    told.take(input, bytes);
                    let Some((name, id)) = head_parts(marked, &head) else {
                        return Progress::Bad;
                    };
                    if !told.begin(name, id, emit) {
                        return Progress::Bad;
                    }
                    *self = match &marked.arguments {
                        MarkedArguments::Json => Call::Json(JsonScan::default()),
                        MarkedArguments::Parameters(parameters) => {
                            Call::Parameters(ParameterReader::new(parameters, marked, name))
                        }
                        MarkedArguments::Braces { quote } => Call::Braces(Braces::new(quote)),
                        MarkedArguments::Elements { mark } => {
                            Call::Elements(Elements::new(mark, marked.closes[0], name))
                        }
                    };
                }
            }
        }
    }
}

/// Length of what stands before the arguments, once that is certain.
fn head_length(marked: &Marked, rest: &str) -> Option<usize> {
    let end = |mark: &str| rest.find(mark).map(|at| at + mark.len());
    match &marked.arguments {
        MarkedArguments::Json | MarkedArguments::Braces { .. } => rest.find('{'),
        // the name ends where its characters do
        MarkedArguments::Parameters(_) if marked.named.trim().is_empty() => {
            let word = rest.trim_start();
            let end = word.find(|c| !is_name_char(c))?;
            Some(rest.len() - word.len() + end)
        }
        MarkedArguments::Parameters(_) | MarkedArguments::Elements { .. } => end(marked.named),
    }
}

/// The name in what stands before the arguments, and the id that the model gave.
fn head_parts<'h>(marked: &Marked, head: &'h str) -> Option<(&'h str, Option<&'h str>)> {
    let whole = head.trim();
    let rest = match marked.prefix {
        "" => whole,
        prefix => whole.strip_prefix(prefix).unwrap_or(whole),
    };
    let end = rest.find(|c| !is_name_char(c)).unwrap_or(rest.len());
    let name = &rest[..end];
    let until = |text: &'h str| text.find(['<', '[', ' ']).map_or(text, |end| &text[..end]).trim();
    let id = match marked.id {
        GivenId::None => None,
        GivenId::Head => Some(until(whole)),
        GivenId::Behind(mark) => whole.split_once(mark).map(|(_, after)| until(after)),
    };
    (!name.is_empty()).then_some((name, id))
}

/// Arguments as JSON, told as they come.
fn scan_arguments(
    scan: &mut JsonScan,
    input: &mut Input,
    told: &mut Told,
    emit: &mut dyn FnMut(Event<'_>),
) -> Progress {
    let (bytes, end) = objects::scan(scan, input.rest());
    told.arguments(&input.rest()[..bytes], emit);
    told.take(input, bytes);
    match end {
        json::JsonProgress::More => Progress::Wait,
        json::JsonProgress::Done => {
            told.end(emit);
            Progress::Ended
        }
        // they begin with a brace
        json::JsonProgress::Before | json::JsonProgress::Bad => Progress::Bad,
    }
}

/// Text up to a mark: what is certain moves from the input to `text`. Whether the mark has come; it is taken too.
pub(super) fn take_until(
    mark: &str,
    text: &mut String,
    input: &mut Input,
    told: &mut Told,
) -> bool {
    let rest = input.rest();
    match rest.find(mark) {
        Some(at) => {
            text.push_str(&rest[..at]);
            told.take(input, at + mark.len());
            true
        }
        None => {
            let certain = rest.len() - held_for(rest, mark);
            text.push_str(&rest[..certain]);
            told.take(input, certain);
            false
        }
    }
}
