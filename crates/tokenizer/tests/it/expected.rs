//! Real templates of the shared folder on seven conversations, against what `transformers` makes of them or says.

use serde_json::{Map, Value};
use std::sync::Arc;
use tokenizer::{ChatTemplate, Message, RenderOptions};

use crate::common::{joined, shared};

/// 2026-11-22T12:00:00, as in the file.
const NOW: i64 = 1_795_348_800;

#[test]
fn conversations_are_those_of_transformers() {
    let Some(shared) = shared() else { return };
    let folder = shared.join("templates");
    let Ok(expected) = std::fs::read_to_string(folder.join("expected.json")) else {
        testing::golden_skipped("tokenizer: no templates/expected.json in the shared folder");
        return;
    };
    let expected: Value = serde_json::from_str(&expected).unwrap();
    assert_eq!(expected["now"], "2026-11-22T12:00:00");
    let (mut equal, mut refused, mut wrong) = (0, 0, Vec::new());
    for (name, cases) in expected["templates"].as_object().unwrap() {
        let source = std::fs::read_to_string(folder.join(name)).unwrap();
        let mut template = ChatTemplate::from_source(&source).unwrap();
        template.set_bos(expected["bos_token"].as_str().unwrap());
        template.set_eos(expected["eos_token"].as_str().unwrap());
        template.set_time(NOW);
        for case in cases.as_array().unwrap() {
            let arguments: &Map<String, Value> =
                expected["cases"][case["case"].as_str().unwrap()].as_object().unwrap();
            match (template.render_json(arguments, &Arc::default()), case["text"].as_str()) {
                (Ok(prompt), Some(text)) if joined(&prompt) == text => equal += 1,
                (Err(_), None) => refused += 1,
                (got, want) => wrong.push(format!(
                    "{name}, {}: {:?}\nexpected {:?}",
                    case["case"],
                    got.map(|prompt| joined(&prompt)),
                    want.unwrap_or_else(|| case["error"].as_str().unwrap()),
                )),
            }
        }
    }
    eprintln!("{equal} prompts equal, {refused} refused as they must be");
    assert!(wrong.is_empty(), "{} differ\n{}", wrong.len(), wrong.join("\n"));
    assert!(equal >= 324 && refused >= 12);
}

/// What a template makes of arguments, or says.
fn rendered(source: &str, arguments: &str) -> Result<String, String> {
    let template = ChatTemplate::from_source(source).unwrap();
    let arguments: Map<String, Value> = serde_json::from_str(arguments).unwrap();
    let rendered = template.render_json(&arguments, &Arc::default());
    rendered.map(|prompt| joined(&prompt)).map_err(|e| e.to_string())
}

#[test]
fn arguments_are_what_a_template_sees() {
    let source = "{{ messages[0].parts[1].text }} {{ level }} {{ tools is none }} {{ tools | length if tools }}\
                  {{ add_generation_prompt }} {{ bos_token }}.";
    let ok = |arguments: &str| rendered(source, arguments).unwrap();
    let messages = r#""messages": [{"parts": [1, {"text": "a<b"}]}]"#;
    assert_eq!(ok(&format!(r#"{{{messages}, "level": 2.5}}"#)), "a<b 2.5 True False .");
    let all = format!(
        r#"{{{messages}, "tools": [1, 2], "add_generation_prompt": true, "bos_token": "B"}}"#
    );
    assert_eq!(ok(&all), "a<b  False 2True B.");
    let wrong = |arguments: &str| rendered("a", arguments).unwrap_err();
    assert!(wrong("{}").contains("no `messages`"));
    assert!(wrong(r#"{"messages": "a"}"#).contains("no `messages`"));
    assert!(wrong(r#"{"messages": [{}, "a"]}"#).contains("message 1 is no map"));
    assert!(wrong(r#"{"messages": [], "rooflight_each": 1}"#).contains("no template may use"));
}

#[test]
fn what_python_refuses_is_refused() {
    let with = |source: &str| rendered(source, r#"{"messages": [{"a": "x<'y'"}]}"#);
    assert!(with("{% for t in tools %}{% endfor %}").unwrap_err().contains("gone over"));
    assert!(with("{{ messages | map(attribute='a') | tojson }}").unwrap_err().contains("tojson"));
    assert_eq!(
        with("{{ messages | map(attribute='a') | list | tojson }}").unwrap(),
        r#"["x<'y'"]"#
    );
    assert_eq!(with("{{ messages | map(attribute='a') | join('-') }}").unwrap(), "x<'y'");
    assert!(with("{{ 'a' | safe + 1 }}").unwrap_err().contains("safe text"));
}

/// `Markup` of Python escapes what is added to it.
#[test]
fn safe_text_escapes_its_neighbours() {
    let with = |source: &str| rendered(source, r#"{"messages": [{"a": "x<'y'"}]}"#).unwrap();
    assert_eq!(with("{{ '<b>' | safe + messages[0].a + '&' }}"), "<b>x&lt;&#39;y&#39;&amp;");
    assert_eq!(with("{{ '\"' + '<b>' | safe + '</b>' | safe }}"), "&#34;<b></b>");
    assert_eq!(with("{{ '<b>' + messages[0].a }}"), "<b>x<'y'");
    assert_eq!(with("{{ '<b>' | safe ~ messages[0].a }}"), "<b>x<'y'");
}

/// Families have switches of their own for thinking; a conversation turns all of them.
#[test]
fn thinking_is_switched_in_each_family() {
    let Some(shared) = shared() else { return };
    let messages = [Message::new("user", "2+2?")];
    for (name, off) in [
        ("Qwen-Qwen3-0.6B", "<think>\n\n</think>\n\n"),
        ("deepseek-ai-DeepSeek-V3.1", "<think></think>"),
        ("ByteDance-Seed-OSS", "thinking budget is 0"),
        ("inclusionai-ling-3.0-flash", "detailed thinking off"),
        ("openai-gpt-oss-120b", "Reasoning: low"),
        ("GLM-4.6", "/nothink"),
    ] {
        let Ok(source) = std::fs::read_to_string(shared.join(format!("templates/{name}.jinja")))
        else {
            testing::golden_skipped(&format!("tokenizer: no template {name}"));
            continue;
        };
        let template = ChatTemplate::from_source(&source).unwrap();
        let prompt = |enable_thinking| {
            let options = RenderOptions {
                add_generation_prompt: true,
                enable_thinking,
                ..RenderOptions::default()
            };
            joined(&template.render(&messages, &options, &Arc::default()).unwrap())
        };
        assert!(prompt(Some(false)).contains(off), "{name}: {}", prompt(Some(false)));
        assert!(!prompt(Some(true)).contains(off), "{name}: {}", prompt(Some(true)));
    }
}
