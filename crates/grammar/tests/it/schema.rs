//! JSON schemas that are refused before they are compiled.

use grammar::internals::read_schema;
use serde_json::Value;

use crate::common::{SMALL, compile, schema};

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
    assert!(told(r#"{"minItems":18446744073709551615}"#).contains("minItems: at most 10000"));
    assert!(told(r#"{"minLength":1e30}"#).contains("minLength: at most 10000"));
    // these bounds are removed, so they cost nothing
    for most in [r#"{"maxItems":18446744073709551615}"#, r#"{"maxLength":1e30}"#] {
        assert_eq!(told(most), "fine");
    }
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

/// Returns a reply that prefers these bytes wherever they are allowed, then the end of the reply, then the end of a string.
fn preferring(bytes: &[u8], text: &str) -> String {
    const END: u32 = 2;
    let form = compile(&schema(text)).unwrap_or_else(|problem| panic!("{text}: {problem}"));
    let mut state = form.begin();
    let mut written = Vec::new();
    for _ in 0..3000 {
        let mask = state.mask().expect("a mask");
        let quote = 3 + u32::from(b'"');
        let preferred = bytes.iter().map(|byte| 3 + u32::from(*byte)).chain([END, quote]);
        let token = preferred.chain(mask.tokens()).find(|token| mask.has(*token)).expect("a token");
        if token == END {
            return String::from_utf8(written).expect("UTF-8");
        }
        state.keep(token).expect("the token is allowed");
        written.extend(SMALL.0.bytes(token));
    }
    panic!("{text} does not end: {}", String::from_utf8_lossy(&written));
}

/// A value ends, is JSON and matches its schema, even if the model repeats the same bytes forever.
#[test]
fn numbers_without_bounds_end() {
    let object = r#"{"type":"object","properties":{"n":{"type":"integer"},"x":{"type":"number"}},"required":["n","x"],"additionalProperties":false}"#;
    for (text, longest) in [
        (r#"{"type":"integer"}"#, 20),
        (r#"{"type":"integer","minimum":5}"#, 20),
        (r#"{"type":"number"}"#, 60),
        (r#"{"type":"number","maximum":1.5}"#, 60),
        (r#"{"type":["integer","null"]}"#, 20),
        (object, 120),
        (r#"{"type":"array","items":{"type":"integer"},"maxItems":3}"#, 80),
        (r#"{"type":"string","format":"date-time"}"#, 60),
        (r#"{"type":"string","format":"time"}"#, 40),
        (r#"{"type":"string","format":"duration"}"#, 90),
        (r#"{"type":"string"}"#, 600),
    ] {
        for bytes in [&b"7"[..], b"0", b"9.e7", b"-0.E+9", b" 7", b"7T.:Z-"] {
            // several runs may follow each other in a string
            if text.contains("\"string\"}") && bytes.len() > 1 {
                continue;
            }
            let reply = preferring(bytes, text);
            let value: Value =
                serde_json::from_str(&reply).unwrap_or_else(|e| panic!("{text}: {e}: {reply}"));
            assert!(!value.is_null() || text.contains("null"));
            assert!(reply.len() <= longest, "{text}: {reply}");
        }
    }
    // long constants are written in full, and tighter bounds are enforced
    assert_eq!(preferring(b"1", r#"{"const":12345678901234567890123}"#).len(), 23);
    assert_eq!(preferring(b"9", r#"{"type":"integer","format":"uint8"}"#).len(), 2);
    assert_eq!(preferring(b"9", r#"{"type":"integer","maximum":99}"#), "99");
}

/// Dates are accepted only if they exist in the calendar.
#[test]
fn dates_are_those_of_the_calendar() {
    let form = compile(&schema(r#"{"type":"string","format":"date-time"}"#)).unwrap();
    let takes = |date: &str| {
        let mut state = form.begin();
        format!("\"{date}T00:00:00Z\"").bytes().all(|byte| state.keep(3 + u32::from(byte)).is_ok())
    };
    for date in ["2024-02-29", "2000-02-29", "2023-02-28", "2026-12-31", "2026-04-30"] {
        assert!(takes(date), "{date}");
    }
    for date in ["2023-02-29", "1900-02-29", "2026-04-31", "2026-13-01", "2026-00-10", "2026-01-32"]
    {
        assert!(!takes(date), "{date}");
    }
}
