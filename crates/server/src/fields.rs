//! What becomes of each field that an API documents. A field that is not listed is refused by its name, so that nothing a
//! client asks for is lost in silence.

use serde_json::{Map, Value};

use crate::error::{ApiError, Result};
use crate::request::is_setting;

/// What becomes of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Field {
    /// It is obeyed.
    Honoured,
    /// It cannot change a reply here: the reason.
    NoEffect(&'static str),
    /// Only this value, as JSON, can be obeyed.
    Only(&'static str),
    /// Only these values can.
    Among(&'static [&'static str]),
}

/// The fields of one endpoint.
pub(crate) type Fields = &'static [(&'static str, Field)];

/// What the body of a request may have.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Takes {
    /// These fields.
    Fields(Fields),
    /// These, and all settings of samplers.
    Settings(Fields),
}

impl Takes {
    /// Whether something reads the value of a field: others are skipped while a body is parsed.
    pub(crate) fn reads(self, name: &str) -> bool {
        let (Takes::Fields(fields) | Takes::Settings(fields)) = self;
        match fields.iter().find(|(known, _)| *known == name) {
            Some((_, field)) => !matches!(field, Field::NoEffect(_)),
            None => matches!(self, Takes::Settings(_)) && is_setting(name),
        }
    }

    /// Refuse what cannot be obeyed.
    ///
    /// # Errors
    /// An unknown field, or a value that is not supported.
    pub(crate) fn check(self, body: &Map<String, Value>) -> Result<()> {
        match self {
            Takes::Fields(fields) => check(body, fields, |_| false),
            Takes::Settings(fields) => check(body, fields, is_setting),
        }
    }
}

/// Refuse what cannot be obeyed; `extra`: whether a field that `fields` does not list is one all the same. Null is as
/// good as nothing.
pub(crate) fn check(
    body: &Map<String, Value>,
    fields: Fields,
    extra: impl Fn(&str) -> bool,
) -> Result<()> {
    for (name, value) in body.iter().filter(|(_, value)| !value.is_null()) {
        match fields.iter().find(|(known, _)| known == name) {
            Some((_, Field::Honoured | Field::NoEffect(_))) => {}
            Some((_, Field::Only(only))) => only_among(name, value, &[*only])?,
            Some((_, Field::Among(values))) => only_among(name, value, values)?,
            None if extra(name) => {}
            None => return Err(ApiError::field(&brief_text(name), "there is no such field")),
        }
    }
    Ok(())
}

fn only_among(name: &str, value: &Value, values: &[&str]) -> Result<()> {
    if values.contains(&&*value.to_string()) {
        return Ok(());
    }
    let (values, found) = (values.join(" or "), brief(value));
    Err(ApiError::field(name, format!("only {values} can be had here, found {found}")))
}

/// A value for an error: short, on one line.
pub(crate) fn brief(value: &Value) -> String {
    brief_text(&value.to_string())
}

/// The same of a text.
pub(crate) fn brief_text(text: &str) -> String {
    const MOST: usize = 60;
    let shown = text.chars().take(MOST + 1);
    let line: String = shown.map(|c| if c.is_control() { ' ' } else { c }).collect();
    match line.char_indices().nth(MOST) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_cannot_be_obeyed_is_refused_by_name() {
        const FIELDS: Fields = &[
            ("a", Field::Honoured),
            ("b", Field::NoEffect("nobody is billed")),
            ("c", Field::Only("false")),
            ("d", Field::Among(&["1", "1.0"])),
        ];
        let told = |body: Value| {
            check(body.as_object().unwrap(), FIELDS, |name| name == "x").map_err(|e| e.message)
        };
        assert_eq!(told(json!({ "a": 1, "b": [2], "c": false, "x": 1, "y": null })), Ok(()));
        assert_eq!((told(json!({ "d": 1 })), told(json!({ "d": 1.0 }))), (Ok(()), Ok(())));
        assert_eq!(
            told(json!({ "d": 2 })).unwrap_err(),
            "d: only 1 or 1.0 can be had here, found 2"
        );
        assert_eq!(
            told(json!({ "c": true })).unwrap_err(),
            "c: only false can be had here, found true"
        );
        assert_eq!(told(json!({ "y": 1 })).unwrap_err(), "y: there is no such field");
        let long = told(json!({ "e\n".repeat(90): 1 })).unwrap_err();
        assert!(long.len() < 120 && !long.contains('\n'), "{long}");
    }
}
