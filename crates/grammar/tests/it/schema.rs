//! JSON schemas that are refused before they are compiled.

use grammar::internals::read_schema;

fn told(text: &str) -> String {
    read_schema(text).map_or_else(|error| error.to_string(), |_| "fine".into())
}

#[test]
fn what_never_ends_is_refused() {
    for (text, fine) in [
        (r##"{"$ref":"#"}"##, false),
        (r##"{"type":"object","properties":{"a":{"$ref":"#"}}}"##, true),
        (r##"{"type":"object","properties":{"a":{"$ref":"#"}},"required":["a"]}"##, false),
        (r##"{"properties":{"a":{"$ref":"#"}},"required":["a"]}"##, true),
        (r##"{"type":"array","items":{"$ref":"#"}}"##, true),
        (r##"{"type":"array","items":{"$ref":"#"},"minItems":1}"##, false),
        (r##"{"anyOf":[{"$ref":"#/$defs/a"},{"type":"null"}],"$defs":{"a":{"$ref":"#"}}}"##, true),
        (
            r##"{"$ref":"#/$defs/a","$defs":{"a":{"$ref":"#/$defs/b"},"b":{"$ref":"#/$defs/a"}}}"##,
            false,
        ),
        (r##"{"allOf":[{"$ref":"#"}]}"##, false),
        (r##"{"type":["array","null"],"items":{"$ref":"#"},"minItems":1}"##, true),
        (r##"{"type":"array","prefixItems":[{"$ref":"#"}],"minItems":1}"##, false),
        (r##"{"enum":[1],"$ref":"#/$defs/x","$defs":{"x":true}}"##, true),
        ("true", true),
    ] {
        assert_eq!(told(text) == "fine", fine, "{text}: {}", told(text));
    }
}

#[test]
fn what_is_too_large_or_no_schema_is_told() {
    assert!(told("[1]").ends_with("expected an object, true or false"));
    assert!(told("{").starts_with("JSON schema: EOF"));
    let deep = format!("{}{}", r#"{"items":"#.repeat(200), "}".repeat(200));
    assert!(
        told(&deep).contains("values within each other: at most 128, found 200"),
        "{}",
        told(&deep)
    );
    assert!(told(&"[".repeat(100_000)).contains("at most 128"));
    assert!(told(r#"{"maxItems":18446744073709551615}"#).contains("maxItems: at most 10000"));
    assert!(told(r#"{"maxLength":1e30}"#).contains("maxLength: at most 10000"));
    assert_eq!(told(r#"{"properties":{"maxItems":{"type":"null"}}}"#), "fine");
    assert!(told(r#"{"pattern":"a{20000}"}"#).contains("repetitions"));
    let many: Vec<String> = (0..20_001).map(|i| format!("\"{i}\":{{}}")).collect();
    assert!(
        told(&format!("{{{}}}", many.join(","))).contains("bytes")
            || told(&format!("{{{}}}", many.join(","))).contains("objects")
    );
}
