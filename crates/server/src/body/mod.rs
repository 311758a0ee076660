//! Bodies of requests: JSON of bounded size and depth, in which each name stands once; and what is read of them.

mod coding;
mod incoming;
mod parse;
mod surrogates;
mod weight;

use engine::Notes;
use serde_json::{Map, Value};

use crate::error::{ApiError, Result};
use crate::fields::{FieldNotes, Takes, brief};
use crate::intake::ByteReservation;

pub(crate) use incoming::{AnyBody, Claim, Converted, Footprint, RequestBody};
pub(crate) use parse::{is_object, list_bytes, map_bytes, object_bytes, value_bytes};
pub(crate) use weight::parsed_bytes;

/// The fields of a body.
#[derive(Debug, Default)]
pub struct JsonBody {
    fields: Map<String, Value>,
    /// The field that is a long list of token ids, and all of them: `fields` has the first ones.
    ids: Option<(&'static str, Vec<u32>)>,
    /// Memory that the fields take.
    reservation: ByteReservation,
    /// Path of the object that has the fields: empty, or the name of the field that holds it and a dot.
    path: String,
    /// Warnings about the fields.
    notes: FieldNotes,
}

impl JsonBody {
    /// Read the text of an object.
    ///
    /// # Errors
    /// What is none, or has a name twice.
    pub fn parse(bytes: &[u8]) -> Result<JsonBody> {
        JsonBody::parse_known(bytes, None, ByteReservation::default(), FieldNotes::default())
    }

    /// Parses a body as [`parse`](Self::parse) does, but stores only the fields that an endpoint reads, and reserves their memory.
    /// `notes` collects warnings, and says whether the server is strict.
    ///
    /// # Errors
    /// As [`parse`](Self::parse); 413 or 503 where there is not enough memory.
    fn parse_known(
        bytes: &[u8],
        takes: Option<Takes>,
        mut reservation: ByteReservation,
        notes: FieldNotes,
    ) -> Result<JsonBody> {
        let mended = surrogates::mended(bytes, &mut reservation)?;
        let parsed = parse::parse(mended.as_deref().unwrap_or(bytes), takes, reservation)?;
        let parse::Parsed { fields, ids, reservation } = parsed;
        let body = JsonBody { fields, ids, reservation, path: String::new(), notes };
        if mended.is_some() {
            const TOLD: &str =
                "half a surrogate pair in a text (an emoji that was cut) is read as U+FFFD";
            body.ignored("", TOLD, "half a surrogate pair in a text")?;
        }
        Ok(body)
    }

    /// Returns the body with strict checks: fields without effect are refused.
    #[cfg(test)]
    pub(crate) fn strict(self) -> JsonBody {
        JsonBody { notes: FieldNotes::new(true), ..self }
    }

    /// Returns the warnings, one line each: about fields without effect, and about values that were not read as they were sent.
    pub fn notes(&self) -> Vec<String> {
        self.notes.all().lines()
    }

    /// Returns the same warnings, to which others can be added.
    pub(crate) fn collected(&self) -> Notes {
        self.notes.all()
    }

    /// Whether the server refuses fields without effect.
    pub(crate) fn is_strict(&self) -> bool {
        self.notes.strict
    }

    /// Returns the name of a field of this object, with the names of the enclosing objects in front.
    pub(crate) fn path_of(&self, name: &str) -> String {
        format!("{}{name}", self.path)
    }

    /// Returns the error about the value of a field of this object.
    pub(crate) fn wrong(&self, name: &str, problem: impl std::fmt::Display) -> ApiError {
        ApiError::field(&self.path_of(name), problem)
    }

    /// Reports a field that is not obeyed. `note`: what happens instead. `problem`: the reason for which a strict server refuses the
    /// field.
    ///
    /// # Errors
    /// `problem`, if the server is strict.
    pub(crate) fn ignored(&self, name: &str, note: &str, problem: &str) -> Result<()> {
        match (self.notes.strict, name) {
            (true, "") => return Err(ApiError::invalid(problem)),
            (true, name) => return Err(self.wrong(name, problem)),
            (false, "") => self.notes.add(|| note.to_owned()),
            (false, name) => self.notes.add(|| format!("{}: {note}", self.path_of(name))),
        }
        Ok(())
    }

    /// Adds a warning about a valid value that was not read as it was sent.
    pub(crate) fn note(&self, note: &str) {
        self.notes.add(|| note.to_owned());
    }

    /// Reports an unknown field, and the known field that may have been meant.
    ///
    /// # Errors
    /// The unknown field, if the server is strict.
    pub(crate) fn unknown(
        &self,
        name: &str,
        suggestion: impl FnOnce() -> Option<String>,
    ) -> Result<()> {
        let path = self.path_of(name);
        let meant = |suggestion: Option<String>| {
            suggestion.map_or_else(String::new, |name| format!("; did you mean \"{name}\"?"))
        };
        if self.notes.strict {
            let problem = format!("unknown field \"{path}\"{}", meant(suggestion()));
            return Err(ApiError::invalid(problem).with_param(path));
        }
        self.notes.add(|| format!("unknown field \"{path}\": ignored{}", meant(suggestion())));
        Ok(())
    }

    /// The fields of an object among these, none if it is not there.
    ///
    /// # Errors
    /// Something else that is there.
    pub fn nested(&self, name: &str) -> Result<JsonBody> {
        let map = self.typed(name, "an object", Value::as_object)?;
        Ok(JsonBody {
            fields: map.cloned().unwrap_or_default(),
            path: format!("{}{name}.", self.path),
            notes: self.notes.clone(),
            ..JsonBody::default()
        })
    }

    /// All ids of the field of this name, if it is a long list of them: its value has the first ones.
    pub(crate) fn ids(&self, name: &str) -> Option<&[u32]> {
        self.ids.as_ref().filter(|(known, _)| *known == name).map(|(_, ids)| ids.as_slice())
    }

    /// Checks the fields, and returns the body with only those that something reads: see [`Takes::check`].
    ///
    /// # Errors
    /// Those of [`Takes::check`].
    pub(crate) fn checked(mut self, takes: Takes) -> Result<JsonBody> {
        takes.check(&mut self).map(|()| self)
    }

    /// Removes the fields for which `keeps` returns false.
    pub(crate) fn retain(&mut self, keeps: impl Fn(&str) -> bool) {
        self.ids.take_if(|(name, _)| !keeps(name));
        self.fields.retain(|name, _| keeps(name));
    }

    /// All fields.
    pub fn fields(&self) -> &Map<String, Value> {
        &self.fields
    }

    /// Take a field out, as if it were not there.
    pub fn remove(&mut self, name: &str) -> Option<Value> {
        self.forget_ids(name);
        self.fields.shift_remove(name)
    }

    /// Put a field in place of what it was.
    pub fn set(&mut self, name: &str, value: Value) {
        self.forget_ids(name);
        self.fields.insert(name.to_owned(), value);
    }

    fn forget_ids(&mut self, name: &str) {
        self.ids.take_if(|(known, _)| *known == name);
    }

    /// A field's value; null is as good as nothing.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.fields.get(name).filter(|value| !value.is_null())
    }

    /// A text, if it is there.
    ///
    /// # Errors
    /// Something else that is there.
    pub fn text(&self, name: &str) -> Result<Option<&str>> {
        self.typed(name, "a text", Value::as_str)
    }

    /// True or false, if it is there.
    ///
    /// # Errors
    /// Something else that is there.
    pub fn flag(&self, name: &str) -> Result<Option<bool>> {
        self.typed(name, "true or false", Value::as_bool)
    }

    /// A number, if it is there.
    ///
    /// # Errors
    /// Something else that is there.
    pub(crate) fn number(&self, name: &str) -> Result<Option<f64>> {
        self.typed(name, "a number", Value::as_f64)
    }

    /// Returns the integer of a field, if it is there. A number without a fraction is an integer, as in JSON Schema.
    ///
    /// # Errors
    /// Something else that is there.
    pub fn integer(&self, name: &str) -> Result<Option<i64>> {
        self.typed(name, "an integer", integer_of)
    }

    /// A count of at least `least` and at most `most`, if it is there.
    ///
    /// # Errors
    /// Something else that is there.
    pub(crate) fn count(&self, name: &str, least: usize, most: usize) -> Result<Option<usize>> {
        let expected = match most {
            usize::MAX => format!("a number, {least} or more"),
            _ => format!("a number from {least} to {most}"),
        };
        let read = |value: &Value| {
            let n = usize::try_from(integer_of(value)?).ok()?;
            (least..=most).contains(&n).then_some(n)
        };
        self.typed(name, &expected, read)
    }

    /// A list, if it is there.
    ///
    /// # Errors
    /// Something else that is there.
    pub fn list(&self, name: &str) -> Result<Option<&Vec<Value>>> {
        self.typed(name, "a list", Value::as_array)
    }

    fn typed<'a, T>(
        &'a self,
        name: &str,
        expected: &str,
        read: impl FnOnce(&'a Value) -> Option<T>,
    ) -> Result<Option<T>> {
        let Some(value) = self.get(name) else { return Ok(None) };
        let found = || self.wrong(name, format!("expected {expected}, found {}", brief(value)));
        read(value).ok_or_else(found).map(Some)
    }
}

/// Returns the id of a token: a 32-bit integer.
pub(crate) fn token_id_of(value: &Value) -> Option<u32> {
    u32::try_from(integer_of(value)?).ok()
}

/// Returns an integer: `5`, or `5.0`, which clients send whose language has a single number type.
pub(crate) fn integer_of(value: &Value) -> Option<i64> {
    const EXACT: f64 = (1_u64 << 53) as f64;
    let whole = |x: &f64| x.fract() == 0.0 && x.abs() <= EXACT;
    value.as_i64().or_else(|| value.as_f64().filter(whole).map(|x| x as i64))
}

#[cfg(test)]
impl From<Value> for JsonBody {
    fn from(value: Value) -> JsonBody {
        JsonBody::parse(value.to_string().as_bytes()).unwrap()
    }
}
