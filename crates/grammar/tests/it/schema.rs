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

/// The compiler counts remainders: a multiple takes as many states as its digits say, several together their least common multiple.
#[test]
fn multiples_with_too_many_states_are_refused() {
    let one = |number: &str| told(&format!(r#"{{"type":"number","multipleOf":{number}}}"#));
    for fine in ["1", "10000", "0.01", "2.5", "1e3", "1e-4", "0.50", "100e-2"] {
        assert_eq!(one(fine), "fine", "{fine}");
    }
    for large in ["10001", "99999989", "1e5", "0.12345", "1e300", "123456789012345678901234567890"]
    {
        assert!(
            one(large).contains("multipleOf: at most 10000, found "),
            "{large}: {}",
            one(large)
        );
    }
    let all = |numbers: &[&str]| {
        let each: Vec<String> =
            numbers.iter().map(|number| format!(r#"{{"multipleOf":{number}}}"#)).collect();
        told(&format!(r#"{{"type":"number","allOf":[{}]}}"#, each.join(",")))
    };
    assert_eq!(all(&["2", "3", "0.5"]), "fine");
    assert!(all(&["7", "11", "13", "17"]).contains("found 17017, the least common multiple"));
    assert!(all(&["1000", "0.001"]).contains("multipleOf"));
    // a property may have that name, and numbers that are not combined do not add up
    assert_eq!(told(r#"{"properties":{"multipleOf":{"type":"null"}}}"#), "fine");
    let apart = r#"{"properties":{"a":{"multipleOf":97},"b":{"multipleOf":9973}}}"#;
    assert_eq!(told(apart), "fine");
}
