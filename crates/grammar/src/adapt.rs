//! Adapts a JSON schema for compilation: removes and reports constraints that cannot be enforced, and bounds unbounded values.
//!
//! Keywords that no automaton can enforce (`not`, `if`, `uniqueItems`, ...) are removed. So is a `format` that is not known here, because
//! it only annotates a value, and an upper bound that is larger than any that can be counted. The digits of times and durations are
//! bounded.

use std::collections::BTreeSet;

use engine::Notes;
use serde_json::{Map, Value, json};

use crate::error::first_line;
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

/// Keywords that cannot be enforced while a reply is generated.
const UNENFORCED: [&str; 12] = [
    "$dynamicRef",
    "$recursiveRef",
    "contains",
    "dependencies",
    "dependentRequired",
    "dependentSchemas",
    "if",
    "not",
    "propertyNames",
    "unevaluatedItems",
    "unevaluatedProperties",
    "uniqueItems",
];

/// Keywords that only have a meaning next to one of those.
const THEIRS: [&str; 6] =
    ["$dynamicAnchor", "$recursiveAnchor", "else", "maxContains", "minContains", "then"];

/// Returns the warning about a keyword that is not enforced.
fn not_enforced(keyword: &str) -> String {
    format!("{keyword} is not enforced")
}

/// Adds a warning for each constraint that the compiler does not enforce, of which it made `warnings`.
pub(crate) fn add_warnings(warnings: &[String], notes: &mut Notes) {
    for warning in warnings {
        if let Some(keywords) = warning.strip_prefix("Unimplemented keys: ") {
            // a list of names between quotes
            keywords.split('"').skip(1).step_by(2).for_each(|keyword| {
                notes.insert(not_enforced(keyword));
            });
        } else if warning.starts_with("oneOf ") {
            notes.insert("oneOf is enforced as anyOf".to_owned());
        } else if warning.starts_with("min/maxProperties ") {
            notes.insert("minProperties and maxProperties are not enforced everywhere".to_owned());
        } else if let Some(format) = warning.strip_prefix("Unknown format: ") {
            notes.insert(not_enforced(&format!("format {}", quoted(format))));
        } else {
            notes.insert(first_line(warning));
        }
    }
}

/// Returns a text between quotes, short and on one line.
fn quoted(text: &str) -> String {
    let shown: String = text.chars().filter(|c| !c.is_control()).take(60).collect();
    format!("\"{shown}\"")
}

/// Changes a schema so that it can be compiled and its values are bounded. The caller has checked the nesting depth.
pub fn adapt(schema: &mut Value, notes: &mut Notes) {
    let Value::Object(object) = schema else { return };
    remove_unenforced(object, notes);
    format(object, notes);
    for key in MOST {
        let Some(Value::Number(most)) = object.get(key) else { continue };
        if most.as_f64().is_some_and(|most| most > REPEATS as f64) {
            notes.insert(
                not_enforced(&format!("{key} {most}")) + &format!(": it is above {REPEATS}"),
            );
            object.shift_remove(key);
        }
    }
    bound_properties(object, notes);
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

/// Removes keywords that cannot be enforced.
fn remove_unenforced(object: &mut Map<String, Value>, notes: &mut Notes) {
    let conditional = object.contains_key("then") || object.contains_key("else");
    for key in UNENFORCED {
        let Some(value) = object.shift_remove(key) else { continue };
        let says_nothing = match key {
            "if" => !conditional,
            "not" | "uniqueItems" => value == Value::Bool(false),
            "propertyNames" if value == json!({ "type": "string" }) => true,
            _ => value == Value::Bool(true) || value == json!({}),
        };
        if !says_nothing {
            notes.insert(not_enforced(key));
        }
    }
    THEIRS.iter().for_each(|key| drop(object.shift_remove(*key)));
}

/// Removes bounds on the number of properties that the compiler does not count. Where declared properties are optional, it counts only
/// whether there is at least, at most or exactly one of these, and only if there are no other properties.
fn bound_properties(object: &mut Map<String, Value>, notes: &mut Notes) {
    const KEYS: [&str; 2] = ["minProperties", "maxProperties"];
    let Some(Value::Object(properties)) = object.get("properties") else { return };
    let names = object.get("required").and_then(Value::as_array).into_iter().flatten();
    let required: BTreeSet<&str> = names.filter_map(Value::as_str).collect();
    let optional =
        properties.keys().filter(|name| !required.contains(name.as_str())).count() as u64;
    let required = required.len() as u64;
    let is_empty = |value: &Value| value.as_object().is_some_and(Map::is_empty);
    let closed = object.get("additionalProperties") == Some(&Value::Bool(false))
        && object.get("patternProperties").is_none_or(is_empty);
    let [least, most] = KEYS.map(|key| object.get(key).and_then(Value::as_u64));
    // what nothing satisfies is left to the compiler, which says so
    let contradicts = most.is_some_and(|most| most < required.max(least.unwrap_or(0)));
    if optional == 0 || contradicts {
        return;
    }
    let needs_least = least.is_some_and(|least| least > required);
    let needs_most = most.is_some_and(|most| !closed || most < required + optional);
    let is_one = |bound: Option<u64>, needed: bool| !needed || bound == Some(required + 1);
    let counts_least = closed && is_one(least, needs_least);
    let counts = counts_least && is_one(most, needs_most);
    let bounds = [(least, needs_least, counts_least), (most, needs_most, counts)];
    for (key, (bound, needed, counted)) in KEYS.into_iter().zip(bounds) {
        if needed && !counted {
            notes.insert(not_enforced(key));
        }
        // others than numbers are left to the compiler, which refuses them
        if bound.is_some() && !(needed && counted) {
            object.shift_remove(key);
        }
    }
}

/// Returns an expression for a schema that only requires a number. It is used in forms where digits are not counted during generation.
pub fn number(schema: &Value) -> Option<&'static str> {
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
        notes.insert(not_enforced(&format!("format {}", quoted(&name))));
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
