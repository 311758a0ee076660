//! Forms of calls: what they let through is what their family reads, whether its marks are control tokens or plain text.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeSet;
use std::sync::{Arc, LazyLock};

use engine::{
    CallIds, CallParser, Constraint, Event, ReplyEnd, Sampler, SamplerOptions, ToolCallDelta,
    Toolbox,
};
use grammar::{CompileBudget, TokenTrie};
use tokenizer::{ChatTemplate, Tokenizer};
use tools::{
    CallFamily, CallReader, FAMILIES, ReplyForms, ToolChoice, ToolList, ToolOptions, ToolUse,
};

pub(crate) const TOOLS: &str = r#"[
    {"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": "integer", "maximum": 9}}, "required": ["city"]}}},
    {"name": "now"}
]"#;

pub(crate) static LIST: LazyLock<Arc<ToolList>> =
    LazyLock::new(|| Arc::new(ToolList::read(TOOLS).unwrap()));

const END: u32 = 2;
const BYTE: u32 = 3;

/// Bytes, a token that ends replies, and control tokens.
pub(crate) fn vocabulary(controls: &BTreeSet<&str>) -> Arc<Tokenizer> {
    let mut tokens = vec!["<unk>".to_owned(), "<s>".into(), "</s>".into()];
    let mut types = vec![2, 3, 3];
    tokens.extend((0..=255u8).map(|b| format!("<0x{b:02X}>")));
    types.extend([6; 256]);
    tokens.extend(controls.iter().map(|control| (*control).to_owned()));
    types.extend(controls.iter().map(|_| 3));
    let mut writer = gguf::Writer::new();
    writer
        .set("tokenizer.ggml.model", "llama")
        .set("tokenizer.ggml.scores", (0..tokens.len()).map(|i| -(i as f32)).collect::<Vec<f32>>())
        .set("tokenizer.ggml.tokens", tokens)
        .set("tokenizer.ggml.token_type", types)
        .set("tokenizer.ggml.add_space_prefix", false)
        .set("tokenizer.ggml.bos_token_id", 1u32)
        .set("tokenizer.ggml.eos_token_id", END);
    let file = gguf::Gguf::from_bytes(writer.to_bytes().unwrap()).unwrap();
    Arc::new(Tokenizer::from_gguf(file.metadata()).unwrap())
}

/// What may be a control token in an example: what stands between `<` and `>`, or `[` and `]`, and has no spaces or names.
fn controls(example: &str) -> BTreeSet<&str> {
    let mut found = BTreeSet::new();
    for (open, close) in [
        ("<|", "|>"),
        ("<｜", "｜>"),
        ("[TOOL", "]"),
        ("[ARGS", "]"),
        ("[CALL", "]"),
        ("<tool_call", ">"),
        ("</tool_call", ">"),
        ("<tool_call|", ">"),
        ("<|tool_call", ">"),
    ] {
        for (at, _) in example.match_indices(open) {
            let rest = &example[at..];
            let Some(end) = rest.find(close) else { continue };
            let word = &rest[..end + close.len()];
            if !word[1..].contains('<') && !word.contains(char::is_whitespace) {
                found.insert(word);
            }
        }
    }
    found
}

fn template(family: &CallFamily) -> ChatTemplate {
    let marks: String = family.marks[0].concat();
    ChatTemplate::from_source(&format!("{{# {marks} #}}{{{{ tools | tojson }}}}")).unwrap()
}

pub(crate) fn options(choice: ToolChoice, parallel: bool) -> ToolOptions {
    ToolOptions { choice, parallel, strict: false }
}

fn tool_use(family: &CallFamily, tokenizer: &Arc<Tokenizer>, options: ToolOptions) -> ToolUse {
    let trie = TokenTrie::new(Arc::clone(tokenizer)).unwrap();
    let made = held(&LIST, family, options, &trie);
    assert_eq!(made.family().name, family.name);
    assert!(made.notes().is_empty(), "{:?}", made.notes());
    made
}

/// Tools whose calls are held to their form, within the budget of one request.
pub(crate) fn held(
    list: &Arc<ToolList>,
    family: &CallFamily,
    options: ToolOptions,
    trie: &TokenTrie,
) -> ToolUse {
    ToolUse::new(list, options, &template(family), Some(trie), &CompileBudget::default()).unwrap()
}

/// A text as the tokens of the small vocabulary.
pub(crate) fn tokens(tokenizer: &Tokenizer, text: &str) -> Vec<u32> {
    let controls: Vec<_> = tokenizer.controls().filter(|(id, _)| *id > END).collect();
    let (mut all, mut rest) = (Vec::new(), text.as_bytes());
    while let Some(&byte) = rest.first() {
        let control = controls.iter().find(|(_, name)| rest.starts_with(name.as_bytes()));
        let (token, n) =
            control.map_or((BYTE + u32::from(byte), 1), |(id, name)| (*id, name.len()));
        all.push(token);
        rest = &rest[n..];
    }
    all
}

/// How many tokens of a text a form lets through, and whether it may end behind them.
pub(crate) fn through(state: &mut dyn Constraint, tokens: &[u32]) -> (usize, bool) {
    for (at, &token) in tokens.iter().enumerate() {
        if !state.mask().is_ok_and(|mask| mask.has(token)) || state.keep(token).is_err() {
            return (at, false);
        }
    }
    (tokens.len(), state.mask().is_ok_and(|mask| mask.has(END)))
}

/// The sampler's constraint is behind its choices: a form of the same parts.
pub(crate) fn form(made: &ToolUse) -> Box<dyn Constraint> {
    made.begin().unwrap()
}

#[test]
fn forms_let_their_familys_calls_through_and_no_others() {
    for family in FAMILIES {
        let example = family.examples[0];
        let none = BTreeSet::new();
        for (kind, controls) in [("plain", none), ("controls", controls(example))] {
            let tokenizer = vocabulary(&controls);
            let made = tool_use(family, &tokenizer, options(ToolChoice::Required, true));
            let of = |text: &str| {
                let tokens = tokens(&tokenizer, text);
                let (n, ends) = through(&mut *form(&made), &tokens);
                (n == tokens.len(), ends)
            };
            // gpt-oss ends with a token that ends replies, which is none here
            assert_eq!(of(example), (true, true), "{} {kind}: {example}", family.name);
            let other = example.replace("get_weather", "get_wether");
            assert!(!of(&other).0, "{} {kind}: {other}", family.name);
            let type_of_days =
                example.replacen('2', "x", 1).replacen("\"days\": 2", "\"days\": x", 1);
            assert!(!of(&type_of_days).0, "{} {kind}: {type_of_days}", family.name);
            let half = &example[..example.find("Zürich").unwrap()];
            assert_eq!(of(half), (true, false), "{} {kind}: {half}", family.name);
        }
    }
}

#[test]
fn choices_are_held_to() {
    let family = CallFamily::of_name("hermes").unwrap();
    let tokenizer = vocabulary(&BTreeSet::new());
    let weather = family.examples[0];
    let now = "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>";
    let of = |choice: ToolChoice, parallel: bool, text: &str| {
        let made = tool_use(family, &tokenizer, options(choice, parallel));
        let tokens = tokens(&tokenizer, text);
        through(&mut *form(&made), &tokens) == (tokens.len(), true)
    };
    let named = || ToolChoice::Named("now".to_owned());
    assert!(of(ToolChoice::Required, false, now) && of(ToolChoice::Required, false, weather));
    assert!(of(named(), false, now) && !of(named(), false, weather));
    let both = format!("{weather}\n{now}");
    assert!(of(ToolChoice::Required, true, &both) && !of(ToolChoice::Required, false, &both));
    assert!(!of(ToolChoice::Required, true, ""));
    let template = template(family);
    let made = |choice| {
        ToolUse::new(&LIST, options(choice, true), &template, None, &CompileBudget::default())
    };
    let error = made(ToolChoice::Named("then".into())).unwrap_err().to_string();
    assert_eq!(error, "tool choice: no tool is called `then`: there are get_weather, now");
    assert!(made(ToolChoice::Required).unwrap_err().to_string().contains("no token ends a reply"));
    assert!(made(ToolChoice::Auto).unwrap().notes().kept()[0].contains("not held to their form"));
    let none = made(ToolChoice::None).unwrap();
    assert!(none.parser(CallIds::default()).is_none() && none.declared().is_none());
}

/// What has come of a call is taken in, wherever a token ended that completed what opens it.
#[test]
fn forms_begin_within_calls() {
    for family in FAMILIES {
        let example = family.examples[0];
        for controls in [BTreeSet::new(), controls(example)] {
            let tokenizer = vocabulary(&controls);
            let made = tool_use(family, &tokenizer, options(ToolChoice::Auto, true));
            let mut reader = CallReader::new(family, Arc::clone(&LIST), CallIds::default());
            let mut begun = false;
            for (at, c) in example.char_indices() {
                let (before, after) = example.split_at(at + c.len_utf8());
                reader.push(&before[at..], &mut |_| ());
                let Some(open) = reader.open() else { continue };
                begun = true;
                // a control token is not cut
                let cuts = |c: &&str| {
                    example
                        .match_indices(c)
                        .any(|(at, _)| at < before.len() && before.len() < at + c.len())
                };
                if controls.iter().any(cuts) {
                    continue;
                }
                let mut state = form(&made);
                state
                    .take_text(&open)
                    .unwrap_or_else(|error| panic!("{}: {open}: {error}", family.name));
                let rest = tokens(&tokenizer, after);
                assert_eq!(
                    through(&mut *state, &rest),
                    (rest.len(), true),
                    "{}: {before} | {after}",
                    family.name
                );
            }
            assert!(begun, "{}", family.name);
        }
    }
    let family = CallFamily::of_name("hermes").unwrap();
    let tokenizer = vocabulary(&BTreeSet::new());
    let made = tool_use(family, &tokenizer, options(ToolChoice::Auto, true));
    assert!(form(&made).take_text("<tool_call>\n{\"name\": \"none").is_err());
    let sampler = || Sampler::new(SamplerOptions::greedy()).unwrap();
    let forms = ReplyForms { tools: Some(&made), asks: true, ..ReplyForms::default() };
    assert!(forms.constrain(sampler(), &|form| form).unwrap().waits_to_open());
}

/// A schema that cannot be had leaves the other tools alone.
#[test]
fn one_bad_schema_does_not_spoil_the_others() {
    let list = r##"[{"name": "bad", "parameters": {"type": "object", "properties": {"a": {"$ref": "#/nowhere"}}, "required": ["a"]}},
                   {"name": "never", "parameters": {"type": "object", "properties": {"a": false}, "required": ["a"]}},
                   {"name": "good", "parameters": {"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"]}}]"##;
    let list = Arc::new(ToolList::read(list).unwrap());
    let tokenizer = vocabulary(&BTreeSet::new());
    let trie = TokenTrie::new(Arc::clone(&tokenizer)).unwrap();
    for name in ["hermes", "llama-python", "kimi"] {
        let family = CallFamily::of_name(name).unwrap();
        let required = options(ToolChoice::Required, true);
        let made = held(&list, family, required, &trie);
        let notes = made.notes().lines().join("\n");
        assert!(
            notes.contains("tool `bad`: its arguments are not held to its schema: "),
            "{name}: {notes}"
        );
        assert!(
            notes.contains("tool `never`") && !notes.contains("tool `good`"),
            "{name}: {notes}"
        );
    }
    let hermes = CallFamily::of_name("hermes").unwrap();
    let made = held(&list, hermes, options(ToolChoice::Required, true), &trie);
    let may = |text: &str| {
        let tokens = tokens(&tokenizer, text);
        through(&mut *form(&made), &tokens) == (tokens.len(), true)
    };
    assert!(may("<tool_call>\n{\"name\": \"bad\", \"arguments\": {\"x\": 1}}\n</tool_call>"));
    assert!(may("<tool_call>\n{\"name\": \"good\", \"arguments\": {\"a\": true}}\n</tool_call>"));
    assert!(!may("<tool_call>\n{\"name\": \"good\", \"arguments\": {\"a\": 1}}\n</tool_call>"));
}

/// A form of the tools in `list` for Gemma's braces, over bytes.
fn braces(list: &str) -> (Arc<Tokenizer>, ToolUse) {
    let family = CallFamily::of_name("gemma").unwrap();
    let tokenizer = vocabulary(&BTreeSet::new());
    let trie = TokenTrie::new(Arc::clone(&tokenizer)).unwrap();
    let list = Arc::new(ToolList::read(list).unwrap());
    let required = options(ToolChoice::Required, false);
    let made = held(&list, family, required, &trie);
    (tokenizer, made)
}

/// Any subset of the keys that has the required ones, in order, with a comma between each two: nothing else.
#[test]
fn optional_keys_may_be_left_out_and_change_no_order() {
    for required in ["", "\"a\"", "\"b\"", "\"c\"", "\"a\", \"c\""] {
        let (tokenizer, made) = braces(&format!(
            r#"[{{"name": "f", "parameters": {{"type": "object", "properties": {{"o": {{"type": "object", "properties":
                {{"a": {{"type": "boolean"}}, "b": {{"type": "boolean"}}, "c": {{"type": "boolean"}}}},
                "required": [{required}]}}}}, "required": ["o"]}}}}]"#
        ));
        assert!(made.notes().is_empty(), "{:?}", made.notes());
        let may = |inside: &str| {
            let text = format!("<|tool_call>call:f{{o:{{{inside}}}}}<tool_call|>");
            let tokens = tokens(&tokenizer, &text);
            through(&mut *form(&made), &tokens) == (tokens.len(), true)
        };
        let pair = |key: &str| format!("<|\"|>{key}<|\"|>:true");
        for subset in 0..8 {
            let keys = ["a", "b", "c"].into_iter().enumerate();
            let keys: Vec<&str> =
                keys.filter(|(i, _)| subset >> i & 1 == 1).map(|(_, key)| key).collect();
            let complete = ["a", "b", "c"]
                .iter()
                .all(|key| !required.contains(&format!("\"{key}\"")) || keys.contains(key));
            let pairs: Vec<String> = keys.iter().map(|key| pair(key)).collect();
            assert_eq!(may(&pairs.join(",")), complete, "{keys:?}, of which [{required}] must be");
            if pairs.len() > 1 {
                let turned: Vec<String> = pairs.iter().rev().cloned().collect();
                assert!(!may(&turned.join(",")), "{turned:?}");
                assert!(!may(&pairs.concat()), "{pairs:?} without commas");
            }
            assert!(!may(&format!("{},", pairs.join(","))), "{pairs:?} and a comma");
            assert!(!may(&format!(",{}", pairs.join(","))), "a comma and {pairs:?}");
        }
    }
}

/// A form grows with the schema. Written out for each position, and in each part again, this one would take all memory.
#[test]
fn schemas_with_many_optional_keys_become_small_forms() {
    let mut schema = String::from(r#"{"type": "integer"}"#);
    for depth in 0..5 {
        let keys = (0..60).map(|i| {
            let inner = if i == 30 { schema.as_str() } else { r#"{"type": "boolean"}"# };
            format!(r#""k{i}": {inner}"#)
        });
        let object = format!(
            r#"{{"type": "object", "properties": {{{}}}}}"#,
            keys.collect::<Vec<_>>().join(", ")
        );
        schema =
            if depth == 2 { format!(r#"{{"type": "array", "items": {object}}}"#) } else { object };
    }
    let (tokenizer, made) = braces(&format!(r#"[{{"name": "f", "parameters": {schema}}}]"#));
    assert!(made.notes().is_empty(), "{:?}", made.notes());
    let may = |text: &str| {
        let tokens = tokens(&tokenizer, text);
        through(&mut *form(&made), &tokens) == (tokens.len(), true)
    };
    let quoted = |key: &str| format!("<|\"|>{key}<|\"|>");
    // within `k30` of the whole is an object, and within its `k30` a list
    let deep = |value: &str| {
        let inside = format!("{}:{value},{}:false", quoted("k30"), quoted("k59"));
        format!("<|tool_call>call:f{{k1:true,k30:{{{inside}}}}}<tool_call|>")
    };
    assert!(may("<|tool_call>call:f{}<tool_call|>"));
    assert!(may(&deep("[]")) && may(&deep("[{}]")) && !may(&deep("{}")));
    assert!(!may("<|tool_call>call:f{k2:true,k1:true}<tool_call|>"));
}

/// Names and words of a schema are a stranger's: they stay texts, whatever they say. Those of a family are control tokens where the
/// vocabulary has them.
#[test]
fn names_from_schemas_never_become_control_tokens() {
    let list = r#"[{"name": "f", "parameters": {"type": "object", "properties": {
        "<|im_start|>": {"enum": ["<|user|>", "b"]}, "o": {"type": "object", "properties": {"<|im_start|>": {"type": "boolean"}},
        "required": ["<|im_start|>"]}}, "required": ["<|im_start|>", "o"]}}]"#;
    let list = Arc::new(ToolList::read(list).unwrap());
    for family in FAMILIES {
        let mut controls = controls(family.examples[0]);
        controls.extend(["<|im_start|>", "<|user|>"]);
        let tokenizer = vocabulary(&controls);
        let trie = TokenTrie::new(Arc::clone(&tokenizer)).unwrap();
        let required = options(ToolChoice::Required, false);
        let made = held(&list, family, required, &trie);
        assert!(made.notes().is_empty(), "{}: {:?}", family.name, made.notes());
        let hostile: Vec<u32> = tokenizer
            .controls()
            .filter(|(_, name)| ["<|im_start|>", "<|user|>"].contains(name))
            .map(|(id, _)| id)
            .collect();
        assert_eq!(hostile.len(), 2);
        for seed in 1..3u64 {
            let (mut state, mut random, mut text) = (form(&made), seed, Vec::new());
            for _ in 0..300 {
                let mask = state.mask().unwrap();
                assert!(hostile.iter().all(|id| !mask.has(*id)), "{}", family.name);
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let token = mask.tokens().nth((random >> 33) as usize % mask.len()).unwrap();
                if tokenizer.is_eog(token) {
                    break;
                }
                state.keep(token).unwrap();
                text.extend(tokenizer.bytes(token));
            }
            let text = String::from_utf8_lossy(&text).into_owned();
            assert!(text.contains("<|im_start|>"), "{}: {text}", family.name);
        }
    }
}

/// A parameter that is compiled alone has the definitions that it leads to, and no others: 64 parameters with all of them would be 64 times
/// the schema.
#[test]
fn parameters_bring_the_definitions_that_they_lead_to() {
    let unused = "x".repeat(100_000);
    let list = format!(
        r##"[{{"name": "f", "parameters": {{"type": "object", "$defs": {{"a": {{"anyOf": [{{"$ref": "#/$defs/b"}}, {{"$ref": "#/$defs/a~1c/items"}}]}},
            "b": {{"type": "integer", "maximum": 9}}, "a/c": {{"items": {{"type": "boolean"}}}}, "unused": {{"description": "{unused}"}}}},
            "properties": {{{}}}, "required": ["p0"]}}}}]"##,
        (0..64)
            .map(|i| format!(r##""p{i}": {{"$ref": "#/$defs/a"}}"##))
            .collect::<Vec<_>>()
            .join(", ")
    );
    let list = Arc::new(ToolList::read(&list).unwrap());
    for name in ["llama-python", "qwen-coder"] {
        let family = CallFamily::of_name(name).unwrap();
        let tokenizer = vocabulary(&BTreeSet::new());
        let trie = TokenTrie::new(Arc::clone(&tokenizer)).unwrap();
        let required = options(ToolChoice::Required, false);
        let made = held(&list, family, required, &trie);
        assert!(made.notes().is_empty(), "{name}: {:?}", made.notes());
    }
    let family = CallFamily::of_name("llama-python").unwrap();
    let tokenizer = vocabulary(&BTreeSet::new());
    let trie = TokenTrie::new(Arc::clone(&tokenizer)).unwrap();
    let required = options(ToolChoice::Required, false);
    let made = held(&list, family, required, &trie);
    let example = family.examples[0];
    let around = example.find('[').map_or("", |at| &example[..at]);
    let may = |value: &str| {
        let tokens = tokens(&tokenizer, &format!("{around}[f(p0={value})]"));
        through(&mut *form(&made), &tokens).0 == tokens.len()
    };
    assert!(may("7") && may("true") && !may("12") && !may("\"a\""));
}

/// Most bytes of memory that this process has had.
fn most_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0) << 10
}

/// A form that its schemas would make too large is given up while it is made: all of this one would be 250 MB.
#[test]
fn too_large_forms_are_given_up_while_they_are_made() {
    let shared = r#"{"type": "integer", "description": "D"}"#.replace('D', &"d".repeat(3_900_000));
    let properties: Vec<String> =
        (0..64).map(|i| format!(r##""p{i}": {{"title": "{i}", "$ref": "#/$defs/s"}}"##)).collect();
    let list = format!(
        r##"[{{"name": "f", "strict": true, "parameters": {{"type": "object", "$defs": {{"s": {shared}}}, "properties": {{{}}}}}}}]"##,
        properties.join(", ")
    );
    let list = Arc::new(ToolList::read(&list).unwrap());
    let family = CallFamily::of_name("qwen-coder").unwrap();
    let trie = TokenTrie::new(vocabulary(&BTreeSet::new())).unwrap();
    let (auto, budget) = (options(ToolChoice::Auto, true), CompileBudget::default());
    let before = most_memory();
    let made = ToolUse::new(&list, auto, &template(family), Some(&trie), &budget);
    let error = made.unwrap_err().to_string();
    assert!(
        error.starts_with("tools[0].parameters: the arguments of `f` cannot be held")
            && error.contains("form: bytes: at most 4194304"),
        "{error}"
    );
    let more = most_memory() - before;
    assert!(more < 120 << 20, "{} MB", more >> 20);
}

/// All tools of a request share its time, and a request that is cancelled compiles none of them.
#[test]
fn tools_share_the_time_of_their_request() {
    let slow = (0..900)
        .map(|i| format!(r#""p{i}": {{"type": "object", "properties": {{"x": {{"type": "string", "maxLength": {i}}}}}}}"#))
        .collect::<Vec<_>>()
        .join(", ");
    let tools: Vec<String> = (0..12)
        .map(|i| format!(r#"{{"name": "f{i}", "parameters": {{"type": "object", "properties": {{{slow}}}}}}}"#))
        .collect();
    let list = Arc::new(ToolList::read(&format!("[{}]", tools.join(", "))).unwrap());
    let family = CallFamily::of_name("hermes").unwrap();
    let trie = TokenTrie::new(vocabulary(&BTreeSet::new())).unwrap();
    let made = |budget: &CompileBudget| {
        let auto = options(ToolChoice::Auto, true);
        ToolUse::new(&list, auto, &template(family), Some(&trie), budget)
    };
    // as fast or slow as this machine is now
    let long = std::time::Duration::from_secs(600);
    let start = std::time::Instant::now();
    assert_eq!(made(&CompileBudget::default().with_time(long)).unwrap().notes().lines(), [""; 0]);
    let all = start.elapsed();
    let start = std::time::Instant::now();
    let result = made(&CompileBudget::default().with_time(all / 4));
    assert!(start.elapsed() < all / 2 + std::time::Duration::from_secs(2), "{all:?}");
    let notes = result.unwrap().notes().lines().join("\n");
    assert!(notes.contains("calls are not held to their form: "), "{notes}");
    let cancelled = CompileBudget::new(Arc::new(true.into()));
    assert!(matches!(made(&cancelled), Err(tools::ToolError::Compiler(_))));
}

/// Whatever is drawn, a reply that came to its end is a call that its schema allows.
#[test]
fn every_finished_reply_is_a_call() {
    let list = r#"[{"name": "set", "parameters": {"type": "object", "properties": {"mode": {"enum": ["on", "off"]},
                   "level": {"type": "integer", "minimum": 1, "maximum": 5}, "deep": {"type": "boolean"}}, "required": ["mode", "level"]}},
                   {"name": "stop"}]"#;
    let list = Arc::new(ToolList::read(list).unwrap());
    let mut finished = 0;
    for family in FAMILIES {
        for controls in [BTreeSet::new(), controls(family.examples[0])] {
            let tokenizer = vocabulary(&controls);
            let trie = TokenTrie::new(Arc::clone(&tokenizer)).unwrap();
            let required = options(ToolChoice::Required, false);
            let made = held(&list, family, required, &trie);
            for seed in 0..8u64 {
                let mut state = form(&made);
                let (mut bytes, mut random) =
                    (Vec::new(), seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
                for _ in 0..400 {
                    let mask = state.mask().unwrap();
                    random = random
                        .wrapping_mul(6_364_136_223_846_793_005)
                        .wrapping_add(1_442_695_040_888_963_407);
                    let n = (random >> 33) as usize % mask.len();
                    let token = mask.tokens().nth(n).unwrap();
                    if tokenizer.is_eog(token) {
                        break;
                    }
                    state.keep(token).unwrap();
                    match token {
                        BYTE..259 => bytes.push(u8::try_from(token - BYTE).unwrap()),
                        _ => bytes.extend(tokenizer.token_text(token).unwrap().bytes()),
                    }
                }
                let text = String::from_utf8(bytes).unwrap();
                let mut calls = Vec::new();
                let mut rest = String::new();
                let mut reader = made.parser(CallIds::default()).unwrap();
                let mut take = |event: Event<'_>| match event {
                    Event::Text(piece) => rest.push_str(piece),
                    Event::ToolCall(ToolCallDelta::Begins { name, .. }) => {
                        calls.push((name.to_owned(), String::new()))
                    }
                    Event::ToolCall(ToolCallDelta::Arguments { text, .. }) => {
                        calls.last_mut().unwrap().1.push_str(text)
                    }
                    _ => {}
                };
                reader.push(&text, &mut take);
                reader.finish(ReplyEnd::Model, &mut take);
                assert_eq!((calls.len(), rest.as_str()), (1, ""), "{}: {text}", family.name);
                let arguments: serde_json::Value = serde_json::from_str(&calls[0].1).unwrap();
                if calls[0].0 == "set" {
                    assert!(["on", "off"].contains(&arguments["mode"].as_str().unwrap()), "{text}");
                    assert!((1..=5).contains(&arguments["level"].as_i64().unwrap()), "{text}");
                } else {
                    assert_eq!(arguments, serde_json::json!({}), "{text}");
                }
                finished += 1;
            }
        }
    }
    assert_eq!(finished, FAMILIES.len() * 16);
}
