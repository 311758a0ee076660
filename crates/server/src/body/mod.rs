//! Bodies of requests: JSON of bounded size and depth, in which each name stands once; and what is read of them.

mod coding;
mod incoming;
mod parse;

use serde_json::{Map, Value};

use crate::error::{ApiError, Result};
use crate::fields::{Takes, brief};
use crate::intake::ByteReservation;

pub(crate) use incoming::{AnyBody, Claim, Converted, Footprint, RequestBody};
pub(crate) use parse::{map_bytes, value_bytes};

/// The fields of a body.
#[derive(Debug, Default)]
pub struct JsonBody {
    fields: Map<String, Value>,
    /// The field that is a long list of token ids, and all of them: `fields` has the first ones.
    ids: Option<(&'static str, Vec<u32>)>,
    /// Memory that the fields take.
    reservation: ByteReservation,
}

impl JsonBody {
    /// Read the text of an object.
    ///
    /// # Errors
    /// What is none, or has a name twice.
    pub fn parse(bytes: &[u8]) -> Result<JsonBody> {
        JsonBody::parse_known(bytes, None, ByteReservation::default())
    }

    /// The same, of which nothing but the fields that an endpoint reads takes memory, and that is reserved.
    ///
    /// # Errors
    /// As [`parse`](Self::parse); 413 or 503 where there is not enough memory.
    fn parse_known(
        bytes: &[u8],
        takes: Option<Takes>,
        reservation: ByteReservation,
    ) -> Result<JsonBody> {
        let parse::Parsed { fields, ids, reservation } = parse::parse(bytes, takes, reservation)?;
        Ok(JsonBody { fields, ids, reservation })
    }

    /// The fields of an object among these, none if it is not there.
    ///
    /// # Errors
    /// Something else that is there.
    pub fn nested(&self, name: &str) -> Result<JsonBody> {
        let map = self.typed(name, "an object", Value::as_object)?;
        Ok(JsonBody { fields: map.cloned().unwrap_or_default(), ..JsonBody::default() })
    }

    /// All ids of the field of this name, if it is a long list of them: its value has the first ones.
    pub(crate) fn ids(&self, name: &str) -> Option<&[u32]> {
        self.ids.as_ref().filter(|(known, _)| *known == name).map(|(_, ids)| ids.as_slice())
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

    /// An integer, if it is there.
    ///
    /// # Errors
    /// Something else that is there.
    pub fn integer(&self, name: &str) -> Result<Option<i64>> {
        self.typed(name, "an integer", Value::as_i64)
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
            let n = usize::try_from(value.as_u64()?).ok()?;
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
        let found =
            || ApiError::field(name, format!("expected {expected}, found {}", brief(value)));
        read(value).ok_or_else(found).map(Some)
    }
}

#[cfg(test)]
impl From<Value> for JsonBody {
    fn from(value: Value) -> JsonBody {
        JsonBody::parse(value.to_string().as_bytes()).unwrap()
    }
}
