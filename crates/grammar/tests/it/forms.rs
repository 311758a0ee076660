//! Forms on published vocabularies and on a small one: what they let through, what they refuse, and how soon.

use std::sync::{Arc, LazyLock};
use std::time::Instant;

use grammar::{Form, FormSource, TokenTrie};
use tokenizer::Tokenizer;

/// Bytes, some words, and a token that ends replies.
fn small() -> Arc<Tokenizer> {
    let words = ["{\"", "\":", "true", "name", " \"", "\"}", "123", "ab", "the"];
    let byte = |b: u8| format!("<0x{b:02X}>");
    let mut tokens = vec!["<unk>".to_owned(), "<s>".into(), "</s>".into()];
    let mut types = vec![2, 3, 3];
    tokens.extend((0..=255).map(byte));
    types.extend([6; 256]);
    tokens.extend(words.iter().map(|word| word.replace(' ', "▁")));
    types.extend([1; 9]);
    let mut writer = gguf::Writer::new();
    writer
        .set("tokenizer.ggml.model", "llama")
        .set("tokenizer.ggml.tokens", tokens.clone())
        .set("tokenizer.ggml.scores", (0..tokens.len()).map(|i| -(i as f32)).collect::<Vec<f32>>())
        .set("tokenizer.ggml.token_type", types)
        .set("tokenizer.ggml.add_space_prefix", false)
        .set("tokenizer.ggml.bos_token_id", 1u32)
        .set("tokenizer.ggml.eos_token_id", 2u32);
    let bytes = writer.to_bytes().expect("it is small");
    let file = gguf::Gguf::from_bytes(bytes).expect("it is whole");
    Arc::new(Tokenizer::from_gguf(file.metadata()).expect("it has what it needs"))
}

static SMALL: LazyLock<(Arc<Tokenizer>, TokenTrie)> = LazyLock::new(|| {
    let tokenizer = small();
    let trie = TokenTrie::new(Arc::clone(&tokenizer)).expect("it has an end");
    (tokenizer, trie)
});

fn schema(text: &str) -> FormSource {
    FormSource::JsonSchema(text.into())
}

pub(crate) fn compile(source: &FormSource) -> Result<Form, String> {
    Form::compile(source, &SMALL.1).map_err(|error| error.to_string())
}

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

/// Malformed, hostile and unsatisfiable forms.
fn hostile() -> Vec<FormSource> {
    let regex = |text: &str| FormSource::Regex(text.into());
    let lark = |text: &str| FormSource::Grammar(text.into());
    let nested =
        |open: &str, n: usize, close: &str| format!("{}{}", open.repeat(n), close.repeat(n));
    let many = |n: usize| {
        (0..n).map(|i| format!("\"p{i}\":{{\"type\":\"string\"}}")).collect::<Vec<_>>().join(",")
    };
    vec![
        schema(""),
        schema("{"),
        schema("[]"),
        schema("7"),
        schema("null"),
        schema(r#"{"type":"nothing"}"#),
        schema(r#"{"type":7}"#),
        schema("false"),
        schema(r#"{"type":"integer","minimum":5,"maximum":3}"#),
        schema(r#"{"type":"string","minLength":5,"maxLength":3}"#),
        schema(r#"{"type":"array","minItems":5,"maxItems":3}"#),
        schema(r#"{"enum":[]}"#),
        schema(r##"{"$ref":"#"}"##),
        schema(r##"{"$ref":"#/nowhere"}"##),
        schema(r##"{"$ref":"https://example.com/schema.json"}"##),
        schema(r##"{"$ref":"file:///etc/passwd"}"##),
        schema(
            r##"{"$defs":{"a":{"$ref":"#/$defs/b"},"b":{"$ref":"#/$defs/a"}},"$ref":"#/$defs/a"}"##,
        ),
        schema(r##"{"type":"object","properties":{"a":{"$ref":"#"}},"required":["a"]}"##),
        schema(r##"{"type":"array","items":{"$ref":"#"},"minItems":2}"##),
        schema(r#"{"type":"object","properties":{"a":false},"required":["a"]}"#),
        schema(r#"{"allOf":[{"type":"string"},{"type":"integer"}]}"#),
        schema(
            r#"{"type":"array","maxItems":18446744073709551615,"minItems":18446744073709551615}"#,
        ),
        schema(r#"{"type":"string","maxLength":1000000000000}"#),
        schema(r#"{"type":"string","pattern":"("}"#),
        schema(r#"{"type":"string","pattern":"(a{1000}){1000}{1000}"}"#),
        schema(r#"{"type":"string","pattern":"^+[a-z]$("}"#),
        schema(r#"{"pattern":7,"type":"string"}"#),
        schema(&nested(r#"{"items":"#, 5_500, "}")),
        schema(&nested("[", 60_000, "]")),
        schema(&format!(r#"{{"type":"object","properties":{{{}}}}}"#, many(30_000))),
        schema(&"x".repeat(1 << 20)),
        schema("{\"type\":\"\\ud800\"}"),
        schema("{\"a\":1,}"),
        schema(r#"{"x-guidance":{"lenient":true}}"#),
        regex("("),
        regex("[z-a]"),
        regex("a{99999}"),
        regex("(((a{1000}){1000}){1000})b"),
        regex(&nested("(", 60_000, ")")),
        regex("(?=a)b"),
        regex("\\p{NoSuch}"),
        regex("a{2,1}"),
        regex("[^\\x{0}-\\x{10ffff}]"),
        lark(""),
        lark("start"),
        lark("start: missing"),
        lark("start: \"a"),
        lark("other: \"a\""),
        lark(&format!("start: {}", nested("(", 60_000, ")"))),
        lark(&(0..25_000).map(|i| format!("r{i}: \"a\"\n")).collect::<String>()),
        lark("start: /(/"),
        lark("root ::= \"a\" root"),
        lark("root ::= missing"),
        lark("root ::= \"a"),
        lark("root ::= \"a\"{99999999999999999999}"),
        lark(&format!("root ::= {}", nested("(", 60_000, ")"))),
        lark("root ::= a\na ::= b\nb ::= a"),
    ]
}

#[test]
fn hostile_forms_are_refused_soon_and_in_one_line() {
    let all = hostile();
    assert!(all.len() >= 50, "{}", all.len());
    let mut wrong = Vec::new();
    for source in all {
        let start = Instant::now();
        let result = compile(&source);
        let (time, shown) =
            (start.elapsed(), format!("{source:?}").chars().take(90).collect::<String>());
        match result {
            Ok(_) => wrong.push(format!("{shown} is taken")),
            Err(line) if line.contains('\n') || line.len() > 400 => {
                wrong.push(format!("{shown}: {line}"))
            }
            Err(_) => {}
        }
        // a bound on time alone would be one on the machine: work is bounded far below this
        if time.as_secs_f64() > 10.0 {
            wrong.push(format!("{shown} took {time:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
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
