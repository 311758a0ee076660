//! Adapts a JSON schema for compilation: removes and reports constraints that cannot be enforced, and bounds unbounded values.
//!
//! A `format` that is not known here is removed, because it only annotates a value. An upper bound is removed if it is larger than
//! any that can be counted. The digits of times and durations are bounded.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use crate::limits::REPEATS;

/// String formats that are enforced.
const FORMATS: [&str; 10] =
    ["date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid", "uri"];

/// Keywords for upper bounds, which may be larger than any that can be counted.
const MOST: [&str; 3] = ["maxLength", "maxItems", "maxProperties"];

/// Integer formats, each with its minimum and maximum.
const INTEGERS: [(&str, i64, i64); 7] = [
    ("int8", -128, 127),
    ("uint8", 0, 255),
    ("int16", -32_768, 32_767),
    ("uint16", 0, 65_535),
    ("int32", -2_147_483_648, 2_147_483_647),
    ("uint32", 0, 4_294_967_295),
    ("uint64", 0, LARGEST),
];

/// Maximum that is used for `uint64`: the largest number of 18 digits, which fits into an `i64`.
const LARGEST: i64 = 999_999_999_999_999_999;

/// Keys whose values are schemas by name (`BY_NAME`), single schemas (`ONE`) and lists of schemas (`LISTS`).
const BY_NAME: [&str; 4] = ["properties", "patternProperties", "$defs", "definitions"];
const ONE: [&str; 3] = ["additionalProperties", "items", "additionalItems"];
const LISTS: [&str; 5] = ["items", "prefixItems", "allOf", "anyOf", "oneOf"];

/// Constraints that are removed from a schema, one short line each. Their number is bounded, because each part of a schema may have some.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    lines: BTreeSet<String>,
    /// Number of removed constraints that are not among `lines`.
    more: usize,
}

/// Maximum number of constraints that are named.
const MOST_NOTES: usize = 16;

impl Notes {
    fn insert(&mut self, note: String) {
        if self.lines.len() < MOST_NOTES {
            self.lines.insert(note);
        } else if !self.lines.contains(&note) {
            self.more += 1;
        }
    }

    /// Returns all lines, and a last one that says how many constraints they do not name.
    pub(crate) fn into_lines(self) -> Vec<String> {
        let more = (self.more > 0).then(|| format!("and {} more are not held to", self.more));
        self.lines.into_iter().chain(more).collect()
    }
}

/// Changes a schema so that it can be compiled and its values are bounded. The caller has checked the nesting depth.
pub(crate) fn adapt(schema: &mut Value, notes: &mut Notes) {
    let Value::Object(object) = schema else { return };
    format(object, notes);
    for key in MOST {
        let Some(Value::Number(most)) = object.get(key) else { continue };
        if most.as_f64().is_some_and(|most| most > REPEATS as f64) {
            notes.insert(format!("{key} {most} is not held to: it is above {REPEATS}"));
            object.shift_remove(key);
        }
    }
    for key in BY_NAME {
        if let Some(Value::Object(schemas)) = object.get_mut(key) {
            schemas.values_mut().for_each(|schema| adapt(schema, notes));
        }
    }
    for key in ONE {
        if let Some(schema @ Value::Object(_)) = object.get_mut(key) {
            adapt(schema, notes);
        }
    }
    for key in LISTS {
        if let Some(Value::Array(schemas)) = object.get_mut(key) {
            schemas.iter_mut().for_each(|schema| adapt(schema, notes));
        }
    }
}

/// Returns an expression for a schema that only requires a number. It is used in forms where digits are not counted during generation.
pub(crate) fn number(schema: &Value) -> Option<&'static str> {
    let object = schema.as_object()?;
    let says_more = |key: &String| MORE.contains(&key.as_str());
    match object.get("type")?.as_str()? {
        _ if object.keys().any(says_more) => None,
        "integer" => Some("-?(0|[1-9][0-9]{0,18})"),
        "number" => Some("-?(0|[1-9][0-9]{0,18})(\\.[0-9]{1,19})?([eE][+-]?[0-9]{1,2})?"),
        _ => None,
    }
}

/// Keywords that constrain a number further.
const MORE: [&str; 11] = [
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "enum",
    "const",
    "allOf",
    "anyOf",
    "oneOf",
    "$ref",
];

fn bound(object: &mut Map<String, Value>, least: i64, most: i64) {
    for (key, other, value) in
        [("minimum", "exclusiveMinimum", least), ("maximum", "exclusiveMaximum", most)]
    {
        if !object.contains_key(key) && !object.contains_key(other) {
            object.insert(key.to_owned(), value.into());
        }
    }
}

/// Applies the `format` of a schema: keeps a known string format or replaces it by a bounded pattern, turns an integer format into
/// bounds, and removes any other.
fn format(object: &mut Map<String, Value>, notes: &mut Notes) {
    let Some(Value::String(name)) = object.get("format").cloned() else { return };
    let is = |wanted: &str| match object.get("type") {
        Some(Value::String(kind)) => kind == wanted,
        Some(Value::Array(kinds)) => kinds.iter().any(|kind| kind == wanted),
        _ => wanted == "string",
    };
    if is("integer") {
        if let Some((_, least, most)) = INTEGERS.iter().find(|(format, ..)| *format == name) {
            bound(object, *least, *most);
        }
    } else if !FORMATS.contains(&name.as_str()) && is("string") {
        let shown: String = name.chars().filter(|c| !c.is_control()).take(60).collect();
        notes.insert(format!("format \"{shown}\" is not held to"));
    }
    if !FORMATS.contains(&name.as_str()) {
        object.shift_remove("format");
    } else if let (Some(pattern), false) = (bounded(&name), object.contains_key("pattern")) {
        object.shift_remove("format");
        object.insert("pattern".to_owned(), format!("^({pattern})$").into());
    }
}

/// Returns a bounded pattern for a format whose values have no maximum length.
fn bounded(format: &str) -> Option<String> {
    const DATE: &str = "[0-9]{4}-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)|02-(0[1-9]|1[0-9]|2[0-8]))\
                        |([0-9]{2}(0[48]|[2468][048]|[13579][26])|([02468][048]|[13579][26])00)-02-29";
    const TIME: &str = "([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\\.[0-9]{1,9})?([Zz]|[+-]([01][0-9]|2[0-3]):[0-5][0-9])";
    match format {
        "date-time" => Some(format!("({DATE})[Tt]{TIME}")),
        "time" => Some(TIME.to_owned()),
        "duration" => {
            // each unit may be followed by the next smaller one
            let chain = |[a, b, c]: [&str; 3]| {
                let n = "[0-9]{1,9}";
                format!("{n}{a}({n}{b}({n}{c})?)?|{n}{b}({n}{c})?|{n}{c}")
            };
            let (date, time) = (chain(["Y", "M", "D"]), chain(["H", "M", "S"]));
            Some(format!("P(({date})(T({time}))?|T({time})|[0-9]{{1,9}}W)"))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn adapted(mut schema: Value) -> (Value, Vec<String>) {
        let mut notes = Notes::default();
        adapt(&mut schema, &mut notes);
        (schema, notes.into_lines())
    }

    #[test]
    fn formats_that_are_not_known_are_left_out_and_said_wherever_they_are() {
        let text = |format: &str| json!({ "type": "string", "format": format, "maxLength": 5 });
        let without = json!({ "type": "string", "maxLength": 5 });
        for format in ["password", "binary", "file-path", "byte", "color", "iri"] {
            let (schema, notes) = adapted(text(format));
            assert_eq!(
                (schema, notes),
                (without.clone(), vec![format!("format \"{format}\" is not held to")])
            );
        }
        for (outer, inner) in [
            (json!({ "properties": { "format": text("x") } }), "/properties/format"),
            (json!({ "$defs": { "a": text("x") } }), "/$defs/a"),
            (json!({ "items": text("x") }), "/items"),
            (json!({ "prefixItems": [text("x")] }), "/prefixItems/0"),
            (json!({ "anyOf": [true, { "allOf": [text("x")] }] }), "/anyOf/1/allOf/0"),
            (json!({ "additionalProperties": text("x") }), "/additionalProperties"),
        ] {
            let (schema, notes) = adapted(outer);
            assert_eq!((schema.pointer(inner), notes.len()), (Some(&without), 1), "{schema}");
        }
        // property names and values are not keywords
        for plain in [
            json!({ "properties": { "maxLength": { "type": "integer" } } }),
            json!({ "const": { "format": "x", "maxLength": 99_999 } }),
            json!({ "enum": [{ "format": "x" }] }),
            json!({ "type": "string", "format": "email" }),
        ] {
            assert_eq!(adapted(plain.clone()), (plain, vec![]));
        }
    }

    #[test]
    fn bounds_above_what_is_counted_are_left_out_and_said() {
        for key in MOST {
            let (schema, notes) = adapted(json!({ key: 100_000 }));
            assert_eq!(
                (schema, notes),
                (json!({}), vec![format!("{key} 100000 is not held to: it is above 10000")])
            );
            assert_eq!(adapted(json!({ key: 10_000 })).0, json!({ key: 10_000 }));
        }
    }

    #[test]
    fn plain_numbers_have_an_expression() {
        assert!(number(&json!({ "type": "integer", "title": "n" })).is_some());
        assert!(number(&json!({ "type": "number" })).is_some());
        for more in MORE {
            assert_eq!(number(&json!({ "type": "integer", more: 3 })), None);
        }
        assert_eq!(number(&json!({ "type": "string" })), None);
        assert_eq!(number(&json!(true)), None);
    }

    #[test]
    fn whole_numbers_have_the_bounds_of_their_format() {
        let (schema, notes) =
            adapted(json!({ "type": "integer", "format": "int32", "minimum": 3 }));
        assert_eq!(schema, json!({ "type": "integer", "minimum": 3, "maximum": 2_147_483_647 }));
        assert!(notes.is_empty());
        assert_eq!(
            adapted(json!({ "type": "number", "format": "double" })),
            (json!({ "type": "number" }), vec![])
        );
    }

    /// A schema of many parts gets few notes.
    #[test]
    fn what_is_not_held_to_is_bounded() {
        let part = |i: usize| json!({ "type": "string", "format": format!("f{i:04}") });
        let of = |n: usize| adapted(json!({ "anyOf": (0..n).map(part).collect::<Vec<_>>() })).1;
        assert_eq!(of(MOST_NOTES).len(), MOST_NOTES);
        let told = of(5_000);
        assert_eq!((told.len(), &*told[0]), (MOST_NOTES + 1, "format \"f0000\" is not held to"));
        assert_eq!(told[MOST_NOTES], "and 4984 more are not held to");
    }
}
