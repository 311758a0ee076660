//! A call that is a JSON object: `{"name": "tool", "arguments": {…}}`, in any order, or `{"tool": {…}}`.

use engine::Event;

use super::Told;
use super::call::Progress;
use super::input::Input;
use crate::json::{self, JsonScan};

/// What the keys of an object are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Keys {
    /// Those below.
    Fixed,
    /// Names of tools.
    Tools,
}

const NAMES: [&str; 3] = ["name", "tool_name", "function"];
const ARGUMENTS: [&str; 2] = ["arguments", "parameters"];
const OTHERS: [&str; 3] = ["type", "id", "tool_call_id"];

/// An object of which some has come.
pub(super) struct Object {
    keys: Keys,
    /// Other keys make it no call.
    strict: bool,
    place: Place,
    key: String,
    /// What is collected of the value.
    value: String,
    name: Option<String>,
    id: Option<String>,
    /// Arguments that came before the name.
    early: Option<String>,
    /// Whether arguments were told.
    has_arguments: bool,
}

enum Place {
    Open,
    /// `first`: nothing came yet.
    Key {
        first: bool,
    },
    InKey(JsonScan),
    Colon,
    Value,
    /// `told`: it is told as it comes.
    InValue {
        scan: JsonScan,
        told: bool,
    },
    After,
}

impl Object {
    pub(super) fn new(keys: Keys, strict: bool) -> Object {
        Object {
            keys,
            strict,
            place: Place::Open,
            key: String::new(),
            value: String::new(),
            name: None,
            id: None,
            early: None,
            has_arguments: false,
        }
    }

    pub(super) fn advance(
        &mut self,
        input: &mut Input,
        told: &mut Told,
        emit: &mut dyn FnMut(Event<'_>),
    ) -> Progress {
        loop {
            if !matches!(self.place, Place::InKey(_) | Place::InValue { .. }) {
                told.take_space(input);
            }
            let Some(&byte) = input.rest().as_bytes().first() else { return Progress::Wait };
            match (&mut self.place, byte) {
                (Place::Open, b'{') => self.place = Place::Key { first: true },
                (Place::Key { .. }, b'"') => {
                    self.key.clear();
                    self.place = Place::InKey(JsonScan::default());
                    continue;
                }
                (Place::Key { first: true } | Place::After, b'}') => {
                    told.take(input, 1);
                    return self.end(told, emit);
                }
                (Place::InKey(scan), _) => {
                    let (bytes, end) = self::scan(scan, input.rest());
                    self.key.push_str(&input.rest()[..bytes]);
                    told.take(input, bytes);
                    match end {
                        json::JsonProgress::More => return Progress::Wait,
                        json::JsonProgress::Done => {}
                        _ => return Progress::Bad,
                    }
                    let Ok(key) = serde_json::from_str(&self.key) else { return Progress::Bad };
                    self.key = key;
                    if !self.may(told) {
                        return Progress::Bad;
                    }
                    self.place = Place::Colon;
                    continue;
                }
                (Place::Colon, b':') => self.place = Place::Value,
                (Place::Value, _) => {
                    self.value.clear();
                    let tells = byte == b'{' && self.is_arguments() && self.begins(told, emit);
                    self.has_arguments |= tells;
                    self.place = Place::InValue { scan: JsonScan::default(), told: tells };
                    continue;
                }
                (Place::InValue { scan, told: tells }, _) => {
                    let (bytes, end) = self::scan(scan, input.rest());
                    let piece = &input.rest()[..bytes];
                    match tells {
                        true => told.arguments(piece, emit),
                        false => self.value.push_str(piece),
                    }
                    let tells = *tells;
                    told.take(input, bytes);
                    match end {
                        json::JsonProgress::More => return Progress::Wait,
                        json::JsonProgress::Bad => return Progress::Bad,
                        json::JsonProgress::Done | json::JsonProgress::Before => {}
                    }
                    if tells && self.keys == Keys::Tools {
                        told.end(emit);
                        self.name = None;
                    } else if !tells && !self.keep(told) {
                        return Progress::Bad;
                    }
                    self.place = Place::After;
                    continue;
                }
                (Place::After, b',') => self.place = Place::Key { first: false },
                _ => return Progress::Bad,
            }
            told.take(input, 1);
        }
    }

    fn is_arguments(&self) -> bool {
        self.keys == Keys::Tools || ARGUMENTS.contains(&&*self.key)
    }

    /// Whether the key that came may be there.
    fn may(&self, told: &Told) -> bool {
        let known = [&NAMES[..], &ARGUMENTS, &OTHERS].concat();
        match self.keys {
            Keys::Fixed => !self.strict || known.contains(&&*self.key),
            Keys::Tools => told.tool(&self.key).is_some(),
        }
    }

    /// Whether a call begins with its arguments, which come now.
    fn begins(&mut self, told: &mut Told, emit: &mut dyn FnMut(Event<'_>)) -> bool {
        let name = match self.keys {
            Keys::Fixed => self.name.clone(),
            Keys::Tools => Some(self.key.clone()),
        };
        name.is_some_and(|name| {
            !self.has_arguments_twice() && told.begin(&name, self.id.as_deref(), emit)
        })
    }

    fn has_arguments_twice(&self) -> bool {
        self.keys == Keys::Fixed && (self.has_arguments || self.early.is_some())
    }

    /// A value has come and was not told. Whether it is what it must be.
    fn keep(&mut self, told: &Told) -> bool {
        let text = || serde_json::from_str::<String>(&self.value).ok();
        if self.is_arguments() {
            // some write the object as a text
            let object = match self.value.as_bytes().first() {
                Some(b'{') => Some(self.value.clone()),
                Some(b'n') => Some("{}".to_owned()),
                _ => text().filter(|inner| is_object(inner)),
            };
            let fits = object.is_some() && !self.has_arguments_twice();
            self.early = object;
            return fits && self.keys == Keys::Fixed;
        }
        if NAMES.contains(&&*self.key) && self.name.is_none() {
            self.name = text().filter(|name| told.tool(name).is_some());
            return self.name.is_some();
        }
        if self.key == "id" {
            self.id = text();
        }
        true
    }

    /// The object has ended.
    fn end(&mut self, told: &mut Told, emit: &mut dyn FnMut(Event<'_>)) -> Progress {
        if self.keys == Keys::Tools {
            // each key was a call
            told.good = told.source.len();
            return if told.here > 0 { Progress::Ended } else { Progress::Bad };
        }
        if !self.has_arguments {
            let Some(name) = self.name.clone() else { return Progress::Bad };
            if !told.begin(&name, self.id.as_deref(), emit) {
                return Progress::Bad;
            }
            told.arguments(self.early.as_deref().unwrap_or("{}"), emit);
        }
        told.end(emit);
        Progress::Ended
    }
}

fn is_object(text: &str) -> bool {
    serde_json::from_str::<serde_json::Map<String, serde_json::Value>>(text).is_ok()
}

/// How many bytes of a text belong to a value, and whether that ends it.
pub(super) fn scan(scan: &mut JsonScan, text: &str) -> (usize, json::JsonProgress) {
    for (at, byte) in text.bytes().enumerate() {
        match scan.push(byte) {
            json::JsonProgress::More => {}
            json::JsonProgress::Done => return (at + 1, json::JsonProgress::Done),
            // a character is not cut: what no value has begins one
            end => return (at, end),
        }
    }
    (text.len(), json::JsonProgress::More)
}
