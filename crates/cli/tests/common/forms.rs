//! Forms that bytes choose, and the limits of memory and time that they are compiled within. The fuzz target `forms` compiles them in
//! forks of its process, tests in child processes.

use std::ffi::OsStr;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use grammar::{CompileBudget, FormChecker, TokenTrie};
use serde_json::{Value, json};
use tokenizer::{ChatTemplate, Tokenizer};
use tools::{FAMILIES, ToolChoice, ToolList, ToolOptions, ToolUse};

/// Limits of a case: whatever is measured and found small enough is compiled within these.
pub(crate) const MEMORY: u64 = 512 << 20;
pub(crate) const SECONDS: u64 = 2;
/// Tokens of the vocabulary that the requests are for.
pub(crate) const N_TOKENS: u32 = 1000;

/// A test case that the bytes of a fuzzer choose.
pub(crate) enum FormCase<'d> {
    /// A request to the command `check-form`.
    Request(Value),
    /// Tools, whose forms are compiled in parts in this process.
    Tools(Choices<'d>),
}

impl FormCase<'_> {
    pub(crate) fn chosen(data: &[u8]) -> FormCase<'_> {
        let mut choices = Choices { rest: data, left: 400 };
        let (kind, text) = match choices.below(5) {
            0 | 1 => ("json_schema", schema(&mut choices, 0).to_string()),
            2 => ("regex", regex(&mut choices, 0)),
            3 => ("grammar", grammar_text(&mut choices)),
            _ => return FormCase::Tools(choices),
        };
        FormCase::Request(json!({ "kind": kind, "text": text, "n_tokens": N_TOKENS }))
    }
}

/// Returns whether the answer to a request says that the form is valid.
///
/// # Panics
/// If the error has more than one line.
pub(crate) fn is_form(answer: &[u8]) -> bool {
    let answer: Value = serde_json::from_slice(answer).expect("a line of JSON");
    one_line(answer.get("error").and_then(Value::as_str));
    answer.get("ok").is_some()
}

fn one_line(error: Option<&str>) {
    let shown = error.unwrap_or_default();
    let first = shown.lines().next().unwrap_or_default();
    assert!(!first.chars().any(char::is_control), "{shown}");
}

/// Bytes, and a token that ends replies.
pub(crate) static TRIE: LazyLock<TokenTrie> = LazyLock::new(|| {
    let mut tokens = vec!["<unk>".to_owned(), "<s>".into(), "</s>".into()];
    tokens.extend((0..=255_u8).map(|byte| format!("<0x{byte:02X}>")));
    let types: Vec<i32> = [2, 3, 3].into_iter().chain([6; 256]).collect();
    let mut writer = gguf::Writer::new();
    writer
        .set("tokenizer.ggml.model", "llama")
        .set("tokenizer.ggml.scores", (0..tokens.len()).map(|i| -(i as f32)).collect::<Vec<f32>>())
        .set("tokenizer.ggml.tokens", tokens)
        .set("tokenizer.ggml.token_type", types)
        .set("tokenizer.ggml.eos_token_id", 2_u32);
    let file = gguf::Gguf::from_bytes(writer.to_bytes().expect("small")).expect("whole");
    let tokenizer = Tokenizer::from_gguf(file.metadata()).expect("a vocabulary");
    TokenTrie::new(Arc::new(tokenizer)).expect("an end")
});

/// Compiles the form of tools: its parts in this process, doubtful parts by the program `rooflight`. Returns whether the form is valid.
///
/// # Panics
/// If compiling takes too much time, or the error has more than one line.
pub(crate) fn tools_form(program: &OsStr, mut choices: Choices<'_>) -> bool {
    let choices = &mut choices;
    let family = FAMILIES[choices.below(FAMILIES.len())];
    let all: Vec<Value> = (0..1 + choices.below(4))
        .map(|i| {
            let mut parameters = object(choices, 0);
            parameters["$defs"] = json!({ "d": schema(choices, 1), "e": schema(choices, 1) });
            json!({ "name": format!("f{i}"), "parameters": parameters })
        })
        .collect();
    let Ok(list) = ToolList::from_json(Value::Array(all)) else { return false };
    let marks: String = family.marks[0].concat();
    let template = ChatTemplate::from_source(&format!("{{# {marks} #}}{{{{ tools | tojson }}}}"));
    let command = [program, OsStr::new("check-form")].map(OsStr::to_owned).to_vec();
    let time = Duration::from_secs(SECONDS);
    let checker = FormChecker { memory: MEMORY, time, ..FormChecker::new(command) };
    let trie = TRIE.clone().with_checker(Arc::new(checker));
    let parallel = choices.below(2) == 0;
    let options = ToolOptions { choice: ToolChoice::Auto, parallel, strict: false };
    let start = Instant::now();
    let made = ToolUse::new(
        &Arc::new(list),
        options,
        &template.expect("a template"),
        Some(&trie),
        &CompileBudget::default(),
    );
    assert!(start.elapsed() < CompileBudget::TIME + time, "{:?}", start.elapsed());
    match made {
        Ok(made) => made.begin().is_some(),
        Err(error) => {
            one_line(Some(&error.to_string()));
            false
        }
    }
}

/// Bytes as choices. When they end, each choice is the first one.
pub(crate) struct Choices<'d> {
    rest: &'d [u8],
    /// Parts that may still be made.
    left: usize,
}

impl Choices<'_> {
    fn below(&mut self, n: usize) -> usize {
        let Some((&byte, rest)) = self.rest.split_first() else { return 0 };
        self.rest = rest;
        usize::from(byte) % n
    }

    /// One of these.
    fn of<'c, T: ?Sized>(&mut self, all: &[&'c T]) -> &'c T {
        all[self.below(all.len())]
    }

    /// A number, small ones more often than large ones.
    fn number(&mut self) -> u64 {
        let large = [0, 1, 2, 7, 97, 1000, 9973, 10_000, 99_999_989, 1 << 40];
        large[self.below(large.len())] + self.below(3) as u64
    }

    /// How many parts of something, fewer the more there are.
    fn several(&mut self) -> usize {
        let n = [1, 2, 3, 5, 8, 40][self.below(6)].min(self.left);
        self.left -= n;
        n
    }
}

const PATTERNS: [&str; 10] = [
    "^[a-z]+$",
    "x",
    "^(a|b)*a(a|b){9}$",
    "\\p{L}{1,9}",
    "(?i)[^é]*",
    "^\\w+([.-]?\\w+)*@\\w+$",
    "a?a?a?a?a?a?a?a?",
    "^.{3,500}$",
    "(",
    "^$",
];
const NAMES: [&str; 6] = ["a", "b", "<|im_start|>", "x-1", "\"", "é\n"];

/// An object with properties.
fn object(choices: &mut Choices<'_>, depth: usize) -> Value {
    let mut schema = json!({ "type": "object" });
    let n = choices.several();
    for i in 0..n {
        let name = format!("{}{i}", choices.of(&NAMES));
        schema["properties"][&name] = self::schema(choices, depth + 1);
        if choices.below(3) == 0 {
            let required = schema["required"].as_array().cloned().unwrap_or_default();
            schema["required"] = required.into_iter().chain([json!(name)]).collect();
        }
    }
    match choices.below(6) {
        0 => schema["additionalProperties"] = json!(false),
        1 => schema["additionalProperties"] = self::schema(choices, depth + 1),
        2 => schema["minProperties"] = json!(choices.number()),
        3 => {
            for i in 0..choices.several() {
                let pattern = format!("{}{i}", choices.of(&PATTERNS));
                schema["patternProperties"][pattern] = self::schema(choices, depth + 1);
            }
        }
        _ => {}
    }
    schema
}

fn schema(choices: &mut Choices<'_>, depth: usize) -> Value {
    if depth > 8 || choices.left == 0 {
        return json!({ "type": "string" });
    }
    let mut schema = match choices.below(9) {
        0 => object(choices, depth),
        1 => json!({ "type": "string", "pattern": choices.of(&PATTERNS) }),
        2 => {
            json!({ "type": "string", "minLength": choices.number(), "maxLength": choices.number() })
        }
        3 => {
            json!({ "type": choices.of(&["number", "integer"]), "multipleOf": choices.number(), "minimum": choices.number() })
        }
        4 => {
            json!({ "type": "array", "items": self::schema(choices, depth + 1), "minItems": choices.number(), "maxItems": choices.number() })
        }
        5 => {
            json!({ "type": "string", "format": choices.of(&["date-time", "email", "uri", "ipv6", "none"]) })
        }
        6 => json!({ "enum": (0..choices.several()).map(|i| json!(i)).collect::<Vec<_>>() }),
        7 => {
            json!({ "$ref": choices.of(&["#", "#/$defs/d", "#/$defs/e", "#/properties/a0", "#e", "#/%24defs/d"]) })
        }
        _ => json!({}),
    };
    match choices.below(5) {
        0 => {
            let key = choices.of(&["anyOf", "oneOf", "allOf"]);
            let all = (0..choices.several()).map(|_| self::schema(choices, depth + 1));
            schema[key] = all.collect();
        }
        1 => schema["$ref"] = json!(choices.of(&["#", "#/$defs/d", "#/$defs/e"])),
        _ => {}
    }
    if depth == 0 {
        schema["$defs"] = json!({ "d": self::schema(choices, 1), "e": self::schema(choices, 1) });
    }
    schema
}

fn regex(choices: &mut Choices<'_>, depth: usize) -> String {
    let mut text = String::new();
    for _ in 0..choices.several() {
        match choices.below(8) {
            0 if depth < 8 => text += &format!("({})", regex(choices, depth + 1)),
            1 if depth < 8 => {
                text += &format!("(?:{}|{})", regex(choices, depth + 1), regex(choices, depth + 1))
            }
            2 => {
                text += choices.of(&[
                    "\\w",
                    "\\pL",
                    ".",
                    "[^a]",
                    "(?i)",
                    "[\\x{100}-\\x{10ffff}]",
                    "^",
                    "[)]",
                    "\\",
                ])
            }
            3 => text += choices.of(&PATTERNS),
            _ => text += choices.of(&["a", "b", "ab", "é", "-"]),
        }
        match choices.below(6) {
            0 => text += choices.of(&["*", "+", "?", "*?"]),
            1 => text += &format!("{{{},{}}}", choices.below(9), choices.number()),
            _ => {}
        }
    }
    text
}

/// A grammar in Lark or GBNF, with rules that name each other.
fn grammar_text(choices: &mut Choices<'_>) -> String {
    let (gbnf, n) = (choices.below(2) == 0, 1 + choices.several());
    let (start, sign) = if gbnf { ("root", "::=") } else { ("start", ":") };
    let mut text = format!("{start} {sign} r0\n");
    for i in 0..n {
        for name in [format!("r{i}"), format!("T{i}")] {
            let body = expansion(choices, &name[..1], n, gbnf, 0);
            text += &format!("{name} {sign} {body}\n");
        }
    }
    text
}

fn expansion(
    choices: &mut Choices<'_>,
    letter: &str,
    n: usize,
    gbnf: bool,
    depth: usize,
) -> String {
    let mut text = String::new();
    for _ in 0..choices.several() {
        match choices.below(8) {
            0 | 1 => text += &format!("{letter}{} ", choices.below(n)),
            2 => text += &format!("T{} ", choices.below(n)),
            3 if depth < 8 => {
                text += &format!("({}) ", expansion(choices, letter, n, gbnf, depth + 1))
            }
            4 if gbnf => text += "[a-z\\x00-\\x1f] ",
            4 => text += &format!("/{}/ ", choices.of(&PATTERNS)),
            5 => text += "| ",
            6 if !gbnf => {
                text += choices.of(&[
                    "& ",
                    "~",
                    "%json {\"type\":\"object\"} ",
                    "<[3]> ",
                    "# \" \n | ",
                    "\"x\"i ",
                ])
            }
            _ => text += choices.of(&["\"a\" ", "\"ab\" ", "\")\" "]),
        }
        if choices.below(5) == 0 {
            text.truncate(text.trim_end().len());
            text += choices.of(&["* ", "+ ", "? ", "{2,3} ", "{9973} ", " "]);
        }
    }
    text
}
