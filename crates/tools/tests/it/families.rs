//! Every family: its examples at every cut, anything else in pieces, and what real templates write.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::sync::{Arc, LazyLock};

use engine::{CallIds, CallParser, Event, Message, ReplyEnd, ToolCallDelta};
use proptest::prelude::*;
use serde_json::{Value, json};
use tokenizer::{ChatTemplate, RenderOptions, ToolCall, ToolDeclarations};
use tools::{CallFamily, CallReader, FAMILIES, ToolList};

const TOOLS: &str = r#"[
    {"type": "function", "function": {"name": "get_weather", "description": "Weather of a city", "parameters":
        {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}, "required": ["city"]}}},
    {"type": "function", "function": {"name": "now", "description": "The time", "parameters": {"type": "object", "properties": {}}}},
    {"name": "note", "parameters": {"type": "object", "properties": {"text": {"type": "string"}, "tags": {"type": "array"},
        "more": {"type": "object"}, "done": {"type": "boolean"}}}}
]"#;

static LIST: LazyLock<Arc<ToolList>> = LazyLock::new(|| Arc::new(ToolList::read(TOOLS).unwrap()));

/// What was told, pieces put together.
#[derive(Clone, Debug, PartialEq)]
enum Told {
    Text(String),
    Begins(usize, String, String),
    Arguments(String),
    Ends(usize),
    Fails(usize),
}

fn read<'t>(family: &'static CallFamily, pieces: impl IntoIterator<Item = &'t str>) -> Vec<Told> {
    read_to(family, pieces, ReplyEnd::Model)
}

/// Reads a reply that ended with `end`.
fn read_to<'t>(
    family: &'static CallFamily,
    pieces: impl IntoIterator<Item = &'t str>,
    end: ReplyEnd,
) -> Vec<Told> {
    let mut told: Vec<Told> = Vec::new();
    let mut take = |event: Event<'_>| match (event, told.last_mut()) {
        (Event::Text(piece), Some(Told::Text(text))) => text.push_str(piece),
        (Event::Text(piece), _) => told.push(Told::Text(piece.to_owned())),
        (Event::ToolCall(ToolCallDelta::Arguments { text, .. }), Some(Told::Arguments(all))) => {
            all.push_str(text);
        }
        (Event::ToolCall(ToolCallDelta::Arguments { text, .. }), _) => {
            told.push(Told::Arguments(text.to_owned()));
        }
        (Event::ToolCall(ToolCallDelta::Begins { index, id, name }), _) => {
            told.push(Told::Begins(index, id.to_owned(), name.to_owned()));
        }
        (Event::ToolCall(ToolCallDelta::Ends { index }), _) => told.push(Told::Ends(index)),
        (Event::ToolCall(ToolCallDelta::Fails { index }), _) => told.push(Told::Fails(index)),
        (other, _) => panic!("{other:?}"),
    };
    let mut reader = CallReader::new(family, Arc::clone(&LIST), CallIds::default());
    for piece in pieces {
        reader.push(piece, &mut take);
    }
    reader.finish(end, &mut take);
    told
}

/// Text, and calls as names and arguments.
fn reply(told: &[Told]) -> (String, Vec<(String, Value)>) {
    let (mut text, mut calls, mut arguments) = (String::new(), Vec::new(), String::new());
    let mut name = String::new();
    for event in told {
        match event {
            Told::Text(piece) => text.push_str(piece),
            Told::Begins(index, _, called) => {
                assert_eq!(*index, calls.len());
                name.clone_from(called);
                arguments.clear();
            }
            Told::Arguments(piece) => arguments.push_str(piece),
            Told::Ends(_) => {
                let value: Value = serde_json::from_str(&arguments)
                    .unwrap_or_else(|error| panic!("{error}: {arguments}"));
                assert!(value.is_object(), "{arguments}");
                calls.push((name.clone(), value));
            }
            Told::Fails(index) => assert_eq!(*index, calls.len()),
        }
    }
    (text, calls)
}

/// Reads a reply whole, cut at every place, and by characters: always the same.
fn at_every_cut(family: &'static CallFamily, text: &str) -> Vec<Told> {
    let whole = read(family, [text]);
    for (cut, _) in text.char_indices() {
        let (before, after) = text.split_at(cut);
        assert_eq!(read(family, [before, after]), whole, "{}: {before:?} | {after:?}", family.name);
    }
    let each: Vec<String> = text.chars().map(String::from).collect();
    assert_eq!(read(family, each.iter().map(String::as_str)), whole, "{}: {text}", family.name);
    whole
}

fn weather() -> (String, Value) {
    ("get_weather".to_owned(), json!({ "city": "Zürich", "days": 2 }))
}

#[test]
fn examples_are_read_at_every_cut() {
    for family in FAMILIES {
        assert!(!family.examples.is_empty(), "{}", family.name);
        for example in family.examples {
            let told = at_every_cut(family, example);
            assert_eq!(
                reply(&told),
                (String::new(), vec![weather()]),
                "{}: {example}",
                family.name
            );
            let id = told.iter().find_map(|event| match event {
                Told::Begins(_, id, _) => Some(id.as_str()),
                _ => None,
            });
            let given = family.name == "kimi" || example.contains("[CALL_ID]");
            let is_own = |id: &str| id.len() == 9 && id.bytes().all(|b| b.is_ascii_alphanumeric());
            assert!(given || id.is_some_and(is_own), "{}: {id:?}", family.name);
        }
    }
}

#[test]
fn text_before_a_call_stays_text_and_ends_where_it_ended() {
    for family in FAMILIES {
        for example in family.examples {
            let opens = family.syntaxes.iter().flat_map(|syntax| syntax.opens);
            if opens.clone().any(|open| example.starts_with(open)) {
                let told = at_every_cut(family, &format!("I look < that up. \n\n{example}\n"));
                let text = "I look < that up.".to_owned();
                assert_eq!(reply(&told), (text, vec![weather()]), "{}: {example}", family.name);
            } else {
                // only a reply that begins so is a call
                let told = at_every_cut(family, &format!("So: {example}"));
                assert_eq!(reply(&told).1, [], "{}: {example}", family.name);
            }
        }
    }
}

#[test]
fn calls_side_by_side() {
    let now = ("now".to_owned(), json!({}));
    for (family, text) in [
        (
            "hermes",
            "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Zürich\", \"days\": 2}}\n</tool_call>\n<tool_call>\n{\"name\": \"now\"}\n</tool_call>",
        ),
        (
            "qwen-coder",
            "<tool_call>\n<function=get_weather>\n<parameter=city>\nZürich\n</parameter>\n<parameter=days>\n2\n</parameter>\n</function>\n</tool_call>\n<tool_call>\n<function=now>\n</function>\n</tool_call>",
        ),
        (
            "glm",
            "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Zürich</arg_value>\n<arg_key>days</arg_key>\n<arg_value>2</arg_value>\n</tool_call>\n<tool_call>now\n</tool_call>",
        ),
        (
            "mistral",
            "[TOOL_CALLS]get_weather[ARGS]{\"city\": \"Zürich\", \"days\": 2}[TOOL_CALLS]now[ARGS]{}",
        ),
        (
            "mistral",
            "[TOOL_CALLS][{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Zürich\", \"days\": 2}}, {\"name\": \"now\", \"arguments\": {}}]",
        ),
        (
            "deepseek-r1",
            "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n```json\n{\"city\": \"Zürich\", \"days\": 2}\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>now\n```json\n{}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        ),
        (
            "deepseek-v3.1",
            "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>{\"city\": \"Zürich\", \"days\": 2}<｜tool▁call▁end｜><｜tool▁call▁begin｜>now<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        ),
        (
            "dsml",
            "<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"get_weather\">\n<｜DSML｜parameter name=\"city\" string=\"true\">Zürich</｜DSML｜parameter>\n<｜DSML｜parameter name=\"days\" string=\"false\">2</｜DSML｜parameter>\n</｜DSML｜invoke>\n<｜DSML｜invoke name=\"now\">\n\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>",
        ),
        (
            "kimi",
            "<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>{\"city\": \"Zürich\", \"days\": 2}<|tool_call_end|><|tool_call_begin|>functions.now:1<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|>",
        ),
        (
            "minimax-m2",
            "<minimax:tool_call>\n<invoke name=\"get_weather\">\n<parameter name=\"city\">Zürich</parameter>\n<parameter name=\"days\">2</parameter>\n</invoke>\n<invoke name=\"now\">\n</invoke>\n</minimax:tool_call>",
        ),
        (
            "minimax-m3",
            "]<]minimax[>[<tool_call>\n]<]minimax[>[<invoke name=\"get_weather\">]<]minimax[>[<city>Zürich]<]minimax[>[</city>]<]minimax[>[<days>2]<]minimax[>[</days>]<]minimax[>[</invoke>\n]<]minimax[>[<invoke name=\"now\">]<]minimax[>[</invoke>\n]<]minimax[>[</tool_call>",
        ),
        (
            "tool-calls",
            "<tool_calls>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Zürich\", \"days\": 2}}\n{\"name\": \"now\", \"arguments\": {}}\n</tool_calls>",
        ),
        (
            "llama-json",
            "{\"name\": \"get_weather\", \"parameters\": {\"city\": \"Zürich\", \"days\": 2}}; {\"name\": \"now\", \"parameters\": {}}",
        ),
        ("llama-python", "[get_weather(city='Zürich', days=2), now()]"),
        (
            "gemma",
            "<|tool_call>call:get_weather{city:<|\"|>Zürich<|\"|>,days:2}<tool_call|><|tool_call>call:now{}<tool_call|>",
        ),
        (
            "granite",
            "<|tool_call|>[{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Zürich\", \"days\": 2}}, {\"name\": \"now\", \"arguments\": null}]",
        ),
        (
            "apertus",
            "<|tools_prefix|>[{\"get_weather\": {\"city\": \"Zürich\", \"days\": 2}}, {\"now\": {}}]<|tools_suffix|>",
        ),
        (
            "command",
            "<|START_ACTION|>[\n    {\"tool_call_id\": \"0\", \"tool_name\": \"get_weather\", \"parameters\": {\"city\": \"Zürich\", \"days\": 2}},\n    {\"tool_call_id\": \"1\", \"tool_name\": \"now\", \"parameters\": {}}\n]<|END_ACTION|>",
        ),
        ("lfm", "<|tool_call_start|>[get_weather(city='Zürich', days=2), now()]<|tool_call_end|>"),
    ] {
        let told = at_every_cut(CallFamily::of_name(family).unwrap(), text);
        assert_eq!(reply(&told), (String::new(), vec![weather(), now.clone()]), "{family}");
    }
}

#[test]
fn values_of_parameters_have_their_types() {
    let text = |value: &str| {
        format!("<tool_call>\n<function=note>\n{value}\n</function>\n</tool_call> And so on.")
    };
    let parameters = "<parameter=text>\n12\nlines </parameter\n</parameter>\n<parameter=tags>\n[1, \"a\"]\n</parameter>\n\
                      <parameter=done>\nTrue\n</parameter>\n<parameter=new>\n7\n</parameter>";
    let family = CallFamily::of_name("qwen-coder").unwrap();
    let (rest, calls) = reply(&at_every_cut(family, &text(parameters)));
    let arguments =
        json!({ "text": "12\nlines </parameter", "tags": [1, "a"], "done": true, "new": 7 });
    assert_eq!((rest.as_str(), calls), ("And so on.", vec![("note".to_owned(), arguments)]));
    let nested =
        "<|tool_call>call:note{more:{a:[1,<|\"|>}<|\"|>],b:{}},text:<|\"|><|\"|>}<tool_call|>";
    let (_, calls) = reply(&at_every_cut(CallFamily::of_name("gemma").unwrap(), nested));
    assert_eq!(calls[0].1, json!({ "more": { "a": [1, "}"], "b": {} }, "text": "" }));
}

/// An opening mark that begins no call stays text, to the last character.
#[test]
fn what_does_not_parse_stays_text() {
    for (family, text) in [
        ("hermes", "Write <tool_call> and then JSON."),
        ("hermes", "<tool_call>\n{\"name\": \"unknown\", \"arguments\": {}}\n</tool_call>"),
        ("hermes", "<tool_call>\n{\"arguments\": {}}\n</tool_call>"),
        ("hermes", "<tool_call>\n{\"name\": \"now\", \"arguments\": [1]}\n</tool_call>"),
        ("hermes", "<tool_call>\n"),
        ("hermes", "a <tool_c"),
        ("llama-json", "{\"answer\": 42}"),
        ("llama-json", "{\"name\": \"Zürich\", \"parameters\": {}}"),
        ("llama-json", "[1, 2, 3]"),
        ("llama-python", "[see below] now()"),
        ("mistral", "[TOOL_CALLS] are written so: [ARGS]{}"),
        (
            "kimi",
            "<|tool_calls_section_begin|><|tool_call_begin|>functions.never:0<|tool_call_argument_begin|>{}",
        ),
        ("gpt-oss", "to=be or not"),
    ] {
        let told = at_every_cut(CallFamily::of_name(family).unwrap(), text);
        assert_eq!(reply(&told), (text.to_owned(), vec![]), "{family}");
    }
    // the first call counts, what follows it is text
    let half = "<tool_call>\n{\"name\": \"now\"}\n</tool_call>\n<tool_call>\n{\"nam";
    let (text, calls) = reply(&at_every_cut(CallFamily::of_name("hermes").unwrap(), half));
    assert_eq!((text.as_str(), calls.len()), ("<tool_call>\n{\"nam", 1));
}

/// The markup of a reported call that is invalid is not text: it is skipped up to its closing mark.
#[test]
fn a_reply_never_has_a_call_and_its_markup() {
    for (family, text, rest) in [
        ("hermes", "<tool_call>\n{\"name\": \"now\", \"arguments\": {\"a\": ", ""),
        (
            "hermes",
            "<tool_call>\n{\"name\": \"now\", \"arguments\": {a: 1}}\n</tool_call>\nSo.",
            "So.",
        ),
        ("qwen-coder", "<tool_call>\n<function=now>\n<parameter=x>\nthe end", ""),
        (
            "qwen-coder",
            "<tool_call>\n<function=now>\n<parameter=x>1</parameter>\n<parameter=x>2</parameter>",
            "",
        ),
        ("glm", "<tool_call>now or never</tool_call> Well", "Well"),
        ("llama-python", "[now(1)]", ""),
        ("mistral", "[TOOL_CALLS]now[ARGS]{\"a\": x} and on", ""),
        ("gemma", "<|tool_call>call:now{a:<|\"|>x}<tool_call|>", ""),
        (
            "minimax-m3",
            "]<]minimax[>[<tool_call>\n]<]minimax[>[<invoke name=\"now\">]<]minimax[>[<a>]<]minimax[>[</invoke>",
            "",
        ),
    ] {
        let told = at_every_cut(CallFamily::of_name(family).unwrap(), text);
        let failed = told.iter().filter(|event| matches!(event, Told::Fails(_))).count();
        let (text, calls) = reply(&told);
        assert_eq!((text.trim(), calls.len(), failed), (rest, 0, 1), "{family}: {told:?}");
    }
    // a call after it is reported
    let text = "<tool_call>\n{\"name\": \"now\", \"arguments\": {a}}\n</tool_call>\n<tool_call>\n{\"name\": \"now\"}\n</tool_call>";
    let (text, calls) = reply(&at_every_cut(CallFamily::of_name("hermes").unwrap(), text));
    assert_eq!((text.trim(), calls.len()), ("", 1));
}

/// No part of a call becomes text, wherever the token limit or a stop text cuts the reply.
#[test]
fn a_call_that_is_cut_is_never_text() {
    let begun = |told: &[Told]| told.iter().any(|event| matches!(event, Told::Begins(..)));
    for family in FAMILIES {
        let opens = || family.syntaxes.iter().flat_map(|syntax| syntax.opens);
        for example in family.examples {
            let is_marked = opens().any(|open| example.starts_with(open));
            for before in ["", "I look. "] {
                if !is_marked && !before.is_empty() {
                    continue;
                }
                for (cut, _) in example.char_indices().skip(1) {
                    let text = format!("{before}{}", &example[..cut]);
                    let told = read_to(family, [text.as_str()], ReplyEnd::Cut);
                    let (said, _) = reply(&told);
                    assert_eq!(said.trim(), before.trim(), "{}: {text:?}: {told:?}", family.name);
                    let each: Vec<String> = text.chars().map(String::from).collect();
                    let each = read_to(family, each.iter().map(String::as_str), ReplyEnd::Cut);
                    assert_eq!(each, told, "{}: {text:?}", family.name);
                    let opened = opens().any(|open| example[..cut].contains(open));
                    if opened || begun(&told) {
                        let told = read_to(family, [text.as_str()], ReplyEnd::StopText);
                        assert_eq!(
                            reply(&told).0.trim(),
                            before.trim(),
                            "{}: {text:?}",
                            family.name
                        );
                    }
                }
            }
        }
    }
    // text that cannot become a call is kept; if the model ended the reply, all text is kept
    let hermes = CallFamily::of_name("hermes").unwrap();
    let text = |text: &str, end| reply(&read_to(hermes, [text], end)).0;
    assert_eq!(text("a < b, <tool", ReplyEnd::Cut), "a < b, ");
    assert_eq!(text("a < b, <tool", ReplyEnd::Model), "a < b, <tool");
    assert_eq!(text("a <", ReplyEnd::StopText), "a <");
    assert_eq!(
        text("<tool_call>\n{\"name\": \"other\"", ReplyEnd::Cut),
        "<tool_call>\n{\"name\": \"other\""
    );
}

/// Ids are unique within a reply and within a conversation, even if the model writes the same id twice.
#[test]
fn ids_of_calls_do_not_repeat() {
    let prompt = [1, 2, 3];
    let ids = |seed: u64, messages: &[Message]| {
        let mut ids = CallIds::new(seed, &prompt, messages);
        [None, None, Some("functions.now:0"), Some("functions.now:0"), Some("")]
            .map(|given| ids.next_id(given))
    };
    let first = ids(7, &[]);
    assert_eq!(first, ids(7, &[]), "the same reply has the same ids");
    assert_eq!(first[2], "functions.now:0");
    let mut all: Vec<String> = first.to_vec();
    for seed in 8..40 {
        let call = |id: &String| ToolCall { id: id.clone(), ..ToolCall::default() };
        let calls = all.iter().map(call).collect();
        let history = [Message { tool_calls: calls, ..Message::new("assistant", "") }];
        all.extend(ids(seed, &history));
        // the same seed and prompt, but a history that contains the ids made from them
        all.extend(ids(
            7,
            &[Message { tool_calls: all.iter().map(call).collect(), ..history[0].clone() }],
        ));
    }
    let mut different = all.clone();
    different.sort();
    different.dedup();
    assert_eq!(different.len(), all.len());
    let own = |id: &&String| !id.contains(':');
    assert!(
        all.iter()
            .filter(own)
            .all(|id| id.len() == 9 && id.bytes().all(|b| b.is_ascii_alphanumeric()))
    );
}

#[test]
fn hostile_replies_take_the_time_of_their_text() {
    let deep =
        format!("<tool_call>{{\"name\": \"now\", \"arguments\": {}", "{\"a\":[".repeat(200_000));
    let opens = "<tool_call>".repeat(100_000);
    let spaces = format!("a{}<tool_call>", " \n".repeat(300_000));
    let long = format!(
        "<tool_call>{{\"name\": \"now\", \"arguments\": {{\"a\": \"{}",
        "x".repeat(3 << 20)
    );
    let long_tag =
        format!("<tool_call>\n<function=now>\n<parameter=a>\n{}", "</para".repeat(200_000));
    let begun = std::time::Instant::now();
    for text in [&deep, &opens, &spaces, &long, &long_tag] {
        for family in ["hermes", "qwen-coder", "glm", "llama-json"] {
            let family = CallFamily::of_name(family).unwrap();
            let (out, calls) = reply(&read(family, [text.as_str()]));
            // nothing after a reported call is text
            assert!(calls.is_empty() && text.starts_with(&out), "{}", family.name);
            let pieces: Vec<&str> =
                text.as_bytes().chunks(7).map(|c| std::str::from_utf8(c).unwrap()).collect();
            assert_eq!(reply(&read(family, pieces)).0, out);
        }
    }
    assert!(begun.elapsed().as_secs() < 60, "{:?}", begun.elapsed());
}

/// Pieces that families write, put together at random.
fn any_reply(family: &'static CallFamily) -> impl Strategy<Value = String> {
    let mut words: Vec<String> = [
        "{",
        "}",
        "[",
        "]",
        "\"",
        ": ",
        ", ",
        "\n",
        " ",
        "now",
        "get_weather",
        "x",
        "ü",
        "{}",
        "(",
        ")",
        "=",
        "1",
    ]
    .map(str::to_owned)
    .to_vec();
    for example in family.examples {
        let marks = example.split_inclusive(['>', ']', '|', '\n', ' ', '{', '(', ',']);
        words.extend(marks.map(str::to_owned));
        words.push((*example).to_owned());
    }
    prop::collection::vec(prop::sample::select(words), 0..24).prop_map(|words| words.concat())
}

fn without_space(text: &str) -> String {
    text.split_whitespace().collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// No cut changes what is told, arguments are objects, and where there is no call nothing is lost.
    #[test]
    fn any_text_is_read_at_any_cut(seeds in prop::collection::vec(any::<prop::sample::Index>(), 4), texts in FAMILIES.iter().map(|family| any_reply(family)).collect::<Vec<_>>()) {
        for (family, text) in FAMILIES.iter().zip(&texts) {
            let whole = read(family, [text.as_str()]);
            let (out, calls) = reply(&whole);
            let failed = whole.iter().any(|event| matches!(event, Told::Fails(_)));
            if calls.is_empty() && !failed && family.drops.is_empty() {
                prop_assert_eq!(without_space(&out), without_space(text), "{}", family.name);
            }
            let each: Vec<String> = text.chars().map(String::from).collect();
            prop_assert_eq!(&read(family, each.iter().map(String::as_str)), &whole, "{}: {:?}", family.name, text);
            for seed in &seeds {
                let cuts: Vec<usize> = text.char_indices().map(|(at, _)| at).collect();
                if cuts.is_empty() { continue; }
                let (before, after) = text.split_at(*seed.get(&cuts));
                prop_assert_eq!(&read(family, [before, after]), &whole, "{}: {:?} | {:?}", family.name, before, after);
            }
        }
    }

    #[test]
    fn any_characters_are_read(text in "\\PC{0,60}") {
        for family in FAMILIES {
            let (out, calls) = reply(&read(family, [text.as_str()]));
            prop_assert!(calls.is_empty() && out == text, "{}", family.name);
        }
    }
}

/// What real templates write is what their family reads.
#[test]
fn families_of_real_templates_read_what_they_write() {
    let folder = match testing::shared() {
        Ok(shared) => shared.join("templates"),
        Err(why) => return testing::golden_skipped(&format!("tools: {why}")),
    };
    let mut names: Vec<_> =
        std::fs::read_dir(&folder).unwrap().map(|e| e.unwrap().path()).collect();
    names.retain(|path| path.extension().is_some_and(|e| e == "jinja"));
    names.sort();
    let (mut read_back, mut silent) = (0, Vec::new());
    for path in names {
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        let source = std::fs::read_to_string(&path).unwrap();
        let template = ChatTemplate::from_source(&source).unwrap();
        let style = template.tool_style();
        let Some(family) = CallFamily::of_template(&source) else {
            // its text has a mark too
            let unknown = name == "meetkai-functionary-medium-v3.2";
            assert!(
                unknown || !style.writes_calls && !style.declares,
                "{name} writes calls in a way of its own"
            );
            silent.push(name);
            continue;
        };
        if !style.writes_calls {
            silent.push(format!("{name} ({})", family.name));
            continue;
        }
        let call = ToolCall {
            id: "call00000".into(),
            name: "get_weather".into(),
            arguments: "{\"city\": \"Zürich\", \"days\": 2}".into(),
        };
        let messages = [
            Message::new("user", "Weather?"),
            Message { tool_calls: vec![call], ..Message::new("assistant", "") },
        ];
        let declared = ToolDeclarations::from_json(&LIST.to_json()).unwrap();
        let options = |generation, tools| RenderOptions {
            add_generation_prompt: generation,
            tools,
            ..RenderOptions::default()
        };
        let prompt = |messages: &[Message], generation| {
            let options = options(generation, Some(&declared));
            let spans = template.render(messages, &options, &Arc::default()).unwrap();
            spans.iter().map(|span| span.text.as_str()).collect::<String>()
        };
        assert!(!style.declares || prompt(&messages[..1], true).contains("get_weather"), "{name}");
        let all = prompt(&messages, false);
        // what the model would have written: behind the user's message, from what opens calls
        let reply_text = &all[all.rfind("Weather?").unwrap() + "Weather?".len()..];
        let mut calls = reply(&read(family, [reply_text])).1;
        if calls.is_empty() {
            // a call that a reply begins with
            let begin = reply_text.find('{').unwrap_or(0);
            calls = reply(&read(family, [&reply_text[begin..]])).1;
        }
        assert_eq!(calls, [weather()], "{name} as {}: {reply_text:?}", family.name);
        read_back += 1;
    }
    eprintln!(
        "{read_back} templates' calls read back; no calls are written by {}",
        silent.join(", ")
    );
    assert!(read_back >= 38, "{read_back}");
}
