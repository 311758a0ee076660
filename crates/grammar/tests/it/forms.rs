//! Forms on published vocabularies and on a small one: what they let through, what they refuse, and how soon.

use grammar::{Form, FormSource};

use crate::common::{SMALL, compile, schema};

/// Whether a form lets a text through, byte by byte, and lets it end there.
fn accepts(form: &Form, text: &str) -> bool {
    let mut state = form.begin();
    let all = text.bytes().all(|byte| {
        let token = 3 + u32::from(byte);
        state.mask().is_ok_and(|mask| allows(&mask, token, &state.forced()))
            && state.keep(token).is_ok()
    });
    all && state.mask().is_ok_and(|mask| mask.has(2))
}

/// A forced text is masked to its own tokens: another way to write it is no other text.
fn allows(mask: &engine::TokenMask, token: u32, forced: &[u32]) -> bool {
    let bytes = |token: u32| SMALL.0.bytes(token);
    mask.has(token) || forced.first().is_some_and(|&first| bytes(first).starts_with(&bytes(token)))
}

#[test]
fn forms_let_through_what_they_say() {
    for (source, good, bad) in [
        (FormSource::Regex("[a-c]+[0-9]{2}".into()), "abc12", "abc1"),
        (FormSource::Regex("(a|b)*".into()), "", "c"),
        (FormSource::Grammar("start: \"a\" start \"b\" | \"\"".into()), "aabb", "aab"),
        (FormSource::Grammar("root ::= \"a\" root \"b\" | \"\"".into()), "aabb", "aab"),
        (FormSource::Grammar("root ::= [ab]* \"a\"".into()), "abba", "abb"),
        (FormSource::Grammar("root ::= ws \"x\" ws\nws ::= [ \\n]*".into()), " x\n", " x y"),
        (
            schema(
                r#"{"type":"object","properties":{"name":{"type":"string"}},"required":["name"],"additionalProperties":false}"#,
            ),
            r#"{"name": "ab"}"#,
            r#"{"name": 1}"#,
        ),
        (schema(r#"{"enum":["the",123]}"#), "123", "12"),
        (schema(r#"{"type":"integer","minimum":5,"maximum":17}"#), "12", "4"),
        (
            schema(
                r##"{"$defs":{"l":{"anyOf":[{"type":"null"},{"type":"array","items":{"$ref":"#/$defs/l"}}]}},"$ref":"#/$defs/l"}"##,
            ),
            "[[null], []]",
            "[[1]]",
        ),
        (schema(r#"{"type":"string","pattern":"^a+$","maxLength":3}"#), "\"aa\"", "\"ab\""),
    ] {
        let form = compile(&source).unwrap_or_else(|problem| panic!("{source:?}: {problem}"));
        assert!(accepts(&form, good), "{source:?} refuses {good}");
        assert!(!accepts(&form, bad), "{source:?} takes {bad}");
    }
}

/// llama.cpp's own grammar of JSON, as GBNF.
const JSON: &str = r##"
root   ::= object
value  ::= object | array | string | number | ("true" | "false" | "null") ws

object ::=
  "{" ws (
            string ":" ws value
    ("," ws string ":" ws value)*
  )? "}" ws

array  ::=
  "[" ws (
            value
    ("," ws value)*
  )? "]" ws

string ::=
  "\"" (
    [^"\\\x7F\x00-\x1F] |
    "\\" (["\\bfnrt] | "u" [0-9a-fA-F]{4}) # escapes
  )* "\"" ws

number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]+)? ([eE] [-+]? [0-9] [1-9]{0,15})? ws

# Optional space: by convention, applied in this grammar after literal chars when allowed
ws ::= | " " | "\n" [ \t]{0,20}
"##;

#[test]
fn a_grammar_of_json_in_gbnf_is_json() {
    let form = compile(&FormSource::Grammar(JSON.into())).unwrap();
    for good in [r#"{}"#, r#"{"a": [1, -2.5e1, "x\né", {"b": null}], "c": true}"#, "{\"a\":\n\t1}"]
    {
        assert!(accepts(&form, good), "{good}");
    }
    for bad in ["1", "{", r#"{"a":}"#, r#"{"a":1,}"#, r#"{a:1}"#, "{\"a\": \"\x01\"}"] {
        assert!(!accepts(&form, bad), "{bad}");
    }
}

#[test]
fn forced_text_is_known_and_tokens_are_taken_back() {
    let form = compile(&schema(r#"{"type":"object","properties":{"name":{"type":"boolean"}},"required":["name"],"additionalProperties":false}"#)).unwrap();
    let mut state = form.begin();
    let text = |tokens: &[u32]| -> String {
        let bytes: Vec<u8> = tokens.iter().flat_map(|&token| SMALL.0.bytes(token)).collect();
        String::from_utf8(bytes).unwrap()
    };
    let forced = state.forced();
    assert_eq!(text(&forced), r#"{"name": "#);
    let before = state.mask().unwrap();
    assert_eq!((before.len(), before.has(forced[0])), (1, true));
    for &token in &forced {
        state.keep(token).unwrap();
    }
    let mut other = state.fork();
    let after = state.mask().unwrap();
    state.take_back(forced.len()).unwrap();
    assert_eq!(state.mask().unwrap(), before);
    assert_eq!(other.mask().unwrap(), after);
    assert!(state.take_back(99).is_err());
}

#[test]
fn control_tokens_are_no_text() {
    let form = compile(&FormSource::Regex("(?s:.*)".into())).unwrap();
    let mask = form.begin().mask().unwrap();
    assert!(!mask.has(0) && !mask.has(1) && mask.has(2) && mask.has(100));
}

#[test]
fn what_is_over_can_only_end_and_be_taken_back() {
    let form = compile(&FormSource::Regex("ab".into())).unwrap();
    let mut state = form.begin();
    let token = |byte: u8| 3 + u32::from(byte);
    let start = state.mask().unwrap();
    for byte in *b"ab" {
        let forced = state.forced();
        state.keep(forced.first().copied().unwrap_or(token(byte))).unwrap();
        if forced.len() == 1 {
            break;
        }
    }
    let over = state.mask().unwrap();
    assert_eq!(over.tokens().collect::<Vec<_>>(), [2]);
    assert!(state.forced().is_empty());
    state.keep(2).unwrap();
    assert_eq!(state.mask().unwrap(), over);
    state.take_back(1).unwrap();
    assert_eq!(state.mask().unwrap(), over);
    state.keep(2).unwrap();
    state.take_back(2).unwrap();
    assert_eq!(state.mask().unwrap(), start);
}
