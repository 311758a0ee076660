//! What is changed in schemas before they are compiled.

use engine::Notes;
use grammar::internals::{adapt, number};
use serde_json::{Value, json};

use crate::common::{compile, schema};

fn adapted(mut schema: Value) -> (Value, Vec<String>) {
    let mut notes = Notes::default();
    adapt(&mut schema, &mut notes);
    (schema, notes.lines())
}

#[test]
fn formats_that_are_not_known_are_left_out_and_said_wherever_they_are() {
    let text = |format: &str| json!({ "type": "string", "format": format, "maxLength": 5 });
    let without = json!({ "type": "string", "maxLength": 5 });
    for format in ["password", "binary", "file-path", "byte", "color", "iri"] {
        let (schema, notes) = adapted(text(format));
        assert_eq!(
            (schema, notes),
            (without.clone(), vec![format!("format \"{format}\" is not enforced")])
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
    for key in ["maxLength", "maxItems", "maxProperties"] {
        let (schema, notes) = adapted(json!({ key: 100_000 }));
        assert_eq!(
            (schema, notes),
            (json!({}), vec![format!("{key} 100000 is not enforced: it is above 10000")])
        );
        assert_eq!(adapted(json!({ key: 10_000 })).0, json!({ key: 10_000 }));
    }
}

#[test]
fn plain_numbers_have_an_expression() {
    assert!(number(&json!({ "type": "integer", "title": "n" })).is_some());
    assert!(number(&json!({ "type": "number" })).is_some());
    for more in [
        "minimum",
        "exclusiveMaximum",
        "multipleOf",
        "enum",
        "const",
        "allOf",
        "anyOf",
        "oneOf",
        "$ref",
    ] {
        assert_eq!(number(&json!({ "type": "integer", more: 3 })), None);
    }
    assert_eq!(number(&json!({ "type": "string" })), None);
    assert_eq!(number(&json!(true)), None);
}

#[test]
fn whole_numbers_have_the_bounds_of_their_format() {
    let (schema, notes) = adapted(json!({ "type": "integer", "format": "int32", "minimum": 3 }));
    assert_eq!(schema, json!({ "type": "integer", "minimum": 3, "maximum": 2_147_483_647 }));
    assert!(notes.is_empty());
    assert_eq!(
        adapted(json!({ "type": "number", "format": "double" })),
        (json!({ "type": "number" }), vec![])
    );
}

/// A schema of many parts gets few notes.
#[test]
fn what_is_not_enforced_is_bounded() {
    let part = |i: usize| json!({ "type": "string", "format": format!("f{i:04}") });
    let of = |n: usize| adapted(json!({ "anyOf": (0..n).map(part).collect::<Vec<_>>() })).1;
    assert_eq!(of(Notes::MOST).len(), Notes::MOST);
    let told = of(5_000);
    assert_eq!((told.len(), &*told[0]), (Notes::MOST + 1, "format \"f0000\" is not enforced"));
    assert_eq!(told[Notes::MOST], "4984 more warnings");
}

/// Keywords that cannot be enforced are removed and named, unless they require nothing.
#[test]
fn keywords_that_cannot_be_enforced_are_left_out_and_said() {
    let text = json!({ "type": "string" });
    let condition =
        json!({ "type": "string", "if": { "minLength": 1 }, "then": { "pattern": "a" } });
    for (keyword, more) in [
        ("not", json!({ "not": { "const": "a" } })),
        ("if", condition),
        ("uniqueItems", json!({ "uniqueItems": true })),
        ("contains", json!({ "contains": { "const": 1 }, "minContains": 2, "maxContains": 3 })),
        ("dependencies", json!({ "dependencies": { "a": ["b"] } })),
        ("dependentRequired", json!({ "dependentRequired": { "a": ["b"] } })),
        ("dependentSchemas", json!({ "dependentSchemas": { "a": { "required": ["b"] } } })),
        ("propertyNames", json!({ "propertyNames": { "pattern": "^a" } })),
        ("unevaluatedItems", json!({ "unevaluatedItems": false })),
        ("unevaluatedProperties", json!({ "unevaluatedProperties": false })),
        ("$dynamicRef", json!({ "$dynamicRef": "#a", "$dynamicAnchor": "a" })),
    ] {
        let mut schema = text.clone();
        schema.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let told = vec![format!("{keyword} is not enforced")];
        assert_eq!(adapted(schema.clone()), (text.clone(), told.clone()), "{keyword}");
        let nested = json!({ "items": { "anyOf": [schema] } });
        assert_eq!(adapted(nested), (json!({ "items": { "anyOf": [text] } }), told), "{keyword}");
    }
    for nothing in [
        json!({ "uniqueItems": false, "not": false }),
        json!({ "if": { "const": 1 } }),
        json!({ "then": { "const": 1 }, "minContains": 1 }),
        json!({ "propertyNames": { "type": "string" }, "unevaluatedProperties": {} }),
        json!({ "unevaluatedItems": true, "dependentRequired": {} }),
    ] {
        assert_eq!(adapted(nothing.clone()), (json!({}), vec![]), "{nothing}");
    }
    // properties may have these names
    let names = json!({ "properties": { "not": { "const": 1 }, "if": true } });
    assert_eq!(adapted(names.clone()), (names, vec![]));
}

/// Bounds on the number of properties are kept where the compiler counts these.
#[test]
fn bounds_of_optional_properties_are_kept_if_they_can_be_counted() {
    let of = |closed: bool, required: &[&str], bounds: Value| {
        let mut schema =
            json!({ "properties": { "a": {}, "b": {}, "c": {} }, "required": required });
        if closed {
            schema["additionalProperties"] = json!(false);
        }
        schema.as_object_mut().unwrap().extend(bounds.as_object().unwrap().clone());
        let (schema, notes) = adapted(schema);
        let kept = ["minProperties", "maxProperties"].map(|key| schema[key].as_u64());
        (kept, notes.join(", "))
    };
    let both = |least: u64, most: u64| json!({ "minProperties": least, "maxProperties": most });
    let (least, most) = ("minProperties is not enforced", "maxProperties is not enforced");
    let neither = format!("{least}, {most}");
    for (closed, required, bounds, kept, told) in [
        // always so
        (true, &["a"][..], both(1, 3), [None, None], ""),
        (false, &["a"], json!({ "minProperties": 1 }), [None, None], ""),
        // one of the optional ones
        (true, &["a"], both(2, 2), [Some(2), Some(2)], ""),
        (true, &[], json!({ "minProperties": 1 }), [Some(1), None], ""),
        (true, &[], json!({ "maxProperties": 1 }), [None, Some(1)], ""),
        // more than that
        (true, &[], both(1, 2), [Some(1), None], most),
        (true, &[], json!({ "minProperties": 2 }), [None, None], least),
        (false, &[], both(2, 5), [None, None], &neither),
        // nothing is optional, and nothing satisfies it
        (false, &["a", "b", "c"], both(4, 5), [Some(4), Some(5)], ""),
        (true, &[], both(3, 2), [Some(3), Some(2)], ""),
    ] {
        assert_eq!(of(closed, required, bounds.clone()), (kept, told.to_owned()), "{bounds}");
    }
}

/// A form has the warnings of its compiler, too, and enforces the rest of its schema.
#[test]
fn what_the_compiler_cannot_enforce_is_said() {
    let number = json!({ "type": "integer", "minimum": 1 });
    for (text, told) in [
        (
            json!({ "oneOf": [number, { "type": "integer", "maximum": 9 }] }),
            "oneOf is enforced as anyOf",
        ),
        (json!({ "oneOf": [number, { "type": "null" }] }), ""),
        (json!({ "not": { "const": 3 }, "type": "integer" }), "not is not enforced"),
        (
            json!({ "$ref": "#/components/a", "components": { "a": { "type": "array", "uniqueItems": true } } }),
            "uniqueItems is not enforced",
        ),
        (
            json!({ "allOf": [{ "properties": { "a": {} } }, { "properties": {}, "maxProperties": 1 }] }),
            "minProperties and maxProperties are not enforced everywhere",
        ),
        (
            json!({ "type": "object", "properties": { "a": {}, "b": {} }, "minProperties": 1, "additionalProperties": false }),
            "",
        ),
    ] {
        let form = compile(&schema(&text.to_string())).unwrap_or_else(|e| panic!("{text}: {e}"));
        assert_eq!(form.notes().lines().join(", "), told, "{text}");
    }
}
