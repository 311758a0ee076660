//! Treatment of each field that an API documents. The response names fields that have no effect in `warnings`, so that nothing is
//! ignored silently; a strict server refuses these fields.

mod notes;
mod suggest;

use engine::SAMPLER_SETTINGS;
use serde_json::{Map, Value};

use crate::body::JsonBody;
use crate::error::Result;
use crate::request::is_setting;

pub(crate) use notes::FieldNotes;
use suggest::nearest;

/// What becomes of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Field {
    /// It is obeyed.
    Honoured,
    /// Accepted without a warning: the reply is the same with it. Holds the reason.
    NoEffect(&'static str),
    /// Ignored with a warning, unless its value is empty. Holds the reason.
    Ignored(&'static str),
    /// Supported for these values only, as JSON: the server always behaves like this. Other values are ignored with a warning.
    Fixed(&'static [&'static str]),
    /// Supported for these values only, as JSON. Other values are refused.
    Only(&'static [&'static str]),
    /// Refused unless its value is empty: the request cannot be answered without it. Holds the reason and what to do instead.
    Refused(&'static str),
}

/// Fields of one object.
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
    /// Returns the listed fields.
    pub(crate) fn fields(self) -> Fields {
        let (Takes::Fields(fields) | Takes::Settings(fields)) = self;
        fields
    }

    /// Whether a field is a setting of samplers that is accepted here.
    fn has_setting(self, name: &str) -> bool {
        matches!(self, Takes::Settings(_)) && is_setting(name)
    }

    /// Whether something reads the value of a field: others are skipped while a body is parsed.
    pub(crate) fn reads(self, name: &str) -> bool {
        match self.fields().iter().find(|(known, _)| *known == name) {
            Some((_, field)) => {
                !matches!(field, Field::NoEffect(_) | Field::Ignored(_) | Field::Refused(_))
            }
            None => self.has_setting(name),
        }
    }

    /// Refuses values that are not supported, adds warnings about fields without effect, and leaves only fields that something reads.
    /// An empty value (null, false, `""`, `[]`, `{}`) requests nothing, and is accepted for any field.
    ///
    /// # Errors
    /// A value that is not supported; a field without effect, if the server is strict.
    pub(crate) fn check(self, body: &mut JsonBody) -> Result<()> {
        self.check_member(body, "", body.fields())?;
        body.retain(|name| self.reads(name));
        Ok(())
    }

    /// Checks an object within a body in the same way. `path`: path of the object, which ends with a dot.
    ///
    /// # Errors
    /// As [`check`](Self::check).
    pub(crate) fn check_member(
        self,
        body: &JsonBody,
        path: &str,
        object: &Map<String, Value>,
    ) -> Result<()> {
        let mut told = object.iter().filter(|(_, value)| !value.is_null());
        told.try_for_each(|(name, value)| self.check_field(body, (path, name), value))
    }

    fn check_field(self, body: &JsonBody, (path, name): (&str, &str), value: &Value) -> Result<()> {
        let at = || format!("{path}{}", brief_text(name));
        let listed = self.fields().iter().find(|(known, _)| *known == name);
        match listed.map(|(_, field)| *field) {
            Some(Field::Honoured | Field::NoEffect(_)) => Ok(()),
            Some(Field::Fixed(values) | Field::Only(values)) if accepts(values, value) => Ok(()),
            Some(Field::Fixed(values)) => {
                let (values, found) = (values.join(" or "), brief(value));
                let supported = format!("only {values} is supported");
                let note = format!("{supported}: {found} is ignored");
                body.ignored(&at(), &note, &format!("{supported}, found {found}"))
            }
            Some(Field::Only(values)) => {
                let (values, found) = (values.join(" or "), brief(value));
                let problem = format!("only {values} is supported, found {found}");
                Err(body.wrong(&at(), problem))
            }
            None if self.has_setting(name) => Ok(()),
            Some(Field::Ignored(_) | Field::Refused(_)) | None if is_empty(value) => Ok(()),
            Some(Field::Refused(why)) => Err(body.wrong(&at(), why)),
            Some(Field::Ignored(why)) => {
                body.ignored(&at(), &format!("ignored: {why}"), &format!("not supported: {why}"))
            }
            None => body.unknown(&at(), || self.nearest(name)),
        }
    }

    /// Returns the field that was probably meant by an unknown name.
    fn nearest(self, name: &str) -> Option<String> {
        let listed = self.fields().iter().map(|(known, _)| (*known).to_owned());
        let settings: &[_] =
            if matches!(self, Takes::Settings(_)) { SAMPLER_SETTINGS } else { &[] };
        let settings = settings.iter().map(|setting| setting.name.replace('-', "_"));
        nearest(name, listed.chain(settings))
    }
}

/// Whether a value is one of `values`, or empty. False is not empty where `true` is supported: it requests something.
fn accepts(values: &[&str], value: &Value) -> bool {
    match value {
        Value::Bool(false) if values.contains(&"true") => false,
        value => is_empty(value) || values.contains(&&*value.to_string()),
    }
}

/// Whether a value is empty, so that it requests nothing.
pub(crate) fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Bool(true) | Value::Number(_) => false,
        Value::String(text) => text.is_empty(),
        Value::Array(values) => values.is_empty(),
        Value::Object(fields) => fields.is_empty(),
    }
}

/// Formats a value for a message: short, on one line.
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

    const FIELDS: Fields = &[
        ("a", Field::Honoured),
        ("b", Field::NoEffect("nothing is billed")),
        ("c", Field::Only(&["false"])),
        ("d", Field::Only(&["1", "1.0"])),
        ("e", Field::Ignored("slots are chosen by content")),
        ("f", Field::Fixed(&["\"medium\""])),
        ("g", Field::Fixed(&["true"])),
        ("h", Field::Refused("nothing is stored: send all of it")),
        ("long_name", Field::Honoured),
    ];

    /// Returns the warnings about a body, or the reason for which it is refused.
    fn told(body: Value, strict: bool) -> Result<Vec<String>, String> {
        let mut body = JsonBody::from(body);
        if strict {
            body = body.strict();
        }
        let body = body.checked(Takes::Settings(FIELDS)).map_err(|error| error.message)?;
        assert!(body.fields().keys().all(|name| Takes::Settings(FIELDS).reads(name)));
        Ok(body.notes())
    }

    #[test]
    fn what_has_no_effect_is_told_and_refused_where_strict() {
        for (body, note, refusal) in [
            (json!({ "y": 1 }), "unknown field \"y\": ignored", "unknown field \"y\""),
            (
                json!({ "lnog_name": 1 }),
                "unknown field \"lnog_name\": ignored; did you mean \"long_name\"?",
                "unknown field \"lnog_name\"; did you mean \"long_name\"?",
            ),
            (
                json!({ "temprature": 1 }),
                "unknown field \"temprature\": ignored; did you mean \"temperature\"?",
                "unknown field \"temprature\"; did you mean \"temperature\"?",
            ),
            (
                json!({ "e": 3 }),
                "e: ignored: slots are chosen by content",
                "e: not supported: slots are chosen by content",
            ),
            (
                json!({ "f": "low" }),
                "f: only \"medium\" is supported: \"low\" is ignored",
                "f: only \"medium\" is supported, found \"low\"",
            ),
            (
                json!({ "g": false }),
                "g: only true is supported: false is ignored",
                "g: only true is supported, found false",
            ),
        ] {
            assert_eq!(told(body.clone(), false).unwrap(), [note]);
            assert_eq!(told(body, true).unwrap_err(), refusal);
        }
    }

    #[test]
    fn what_asks_for_nothing_is_accepted_anywhere() {
        let fine = json!({ "a": 1, "b": [2], "c": false, "d": 1.0, "f": "medium", "g": true,
                           "top_k": 1, "y": null });
        assert_eq!(told(fine, true), Ok(Vec::new()));
        for empty in [json!(null), json!(false), json!(""), json!([]), json!({})] {
            for name in ["b", "c", "d", "e", "f", "h", "unknown"] {
                assert_eq!(told(json!({ name: empty }), true), Ok(Vec::new()), "{name} {empty}");
            }
        }
    }

    #[test]
    fn values_that_are_not_supported_are_refused() {
        assert_eq!(
            told(json!({ "d": 2 }), false).unwrap_err(),
            "d: only 1 or 1.0 is supported, found 2"
        );
        assert_eq!(
            told(json!({ "c": true }), false).unwrap_err(),
            "c: only false is supported, found true"
        );
        assert_eq!(
            told(json!({ "h": "id" }), false).unwrap_err(),
            "h: nothing is stored: send all of it"
        );
    }

    /// Warnings stay short for any number of unknown fields, and for any length of their names.
    #[test]
    fn what_is_told_is_bounded() {
        let many = (0..10_000).map(|i| (format!("{i}{}", "n\n".repeat(90)), json!(1)));
        let notes = told(many.collect(), false).unwrap();
        assert_eq!((notes.len(), &*notes[16]), (17, "9984 more warnings"));
        assert!(notes.iter().all(|note| note.len() < 120 && !note.contains('\n')), "{notes:?}");
    }
}
