//! Real templates of the shared folder, against the prompts that Jinja2 makes of them.

use serde_json::Value;
use tokenizer::{ChatTemplate, Message, RenderOptions};

use crate::common::{CONTROL, Vocabulary, joined, shared};

/// Made by Jinja2 3.1.6 with the settings of `transformers`: `trim_blocks`, `lstrip_blocks`, its `tojson`.
const PROMPTS: &str = include_str!("prompts.json");

const CONTROLS: &[&str] = &[
    "<BOS>",
    "<EOS>",
    "<|im_start|>",
    "<|im_end|>",
    "<|start_header_id|>",
    "<|end_header_id|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|python_tag|>",
    "<｜User｜>",
    "<｜Assistant｜>",
    "<｜end▁of▁sentence｜>",
    "<｜tool▁output▁begin｜>",
    "<｜tool▁output▁end｜>",
];

#[test]
fn prompts_are_those_of_jinja() {
    let Some(shared) = shared() else { return };
    let mut v = Vocabulary::byte_level();
    let ids: Vec<u32> = CONTROLS.iter().map(|text| v.add(text, CONTROL)).collect();
    let tokenizer = v
        .key("tokenizer.ggml.bos_token_id", ids[0])
        .key("tokenizer.ggml.eos_token_id", ids[1])
        .build();
    let cases: Vec<Value> = serde_json::from_str(PROMPTS).unwrap();
    assert!(cases.len() > 40);
    for case in cases {
        let name = case["template"].as_str().unwrap();
        let source = std::fs::read_to_string(shared.join("templates").join(name)).unwrap();
        let template = ChatTemplate::new(&source, &tokenizer).unwrap();
        let text = |m: &Value, key: &str| m[key].as_str().unwrap().to_owned();
        let messages: Vec<Message> = case["messages"]
            .as_array()
            .unwrap()
            .iter()
            .map(|m| Message::new(text(m, "role"), text(m, "content")))
            .collect();
        let options = RenderOptions {
            add_generation_prompt: case["add_generation_prompt"].as_bool().unwrap(),
            enable_thinking: case["enable_thinking"].as_bool(),
        };
        let prompt = template.render(&messages, &options).unwrap();
        assert_eq!(
            joined(&prompt),
            case["prompt"].as_str().unwrap(),
            "{name} {messages:?} {options:?}"
        );

        // The same with every control token in every content: as many control tokens as without.
        let count = |prompt: &[tokenizer::Span]| {
            let ids = tokenizer.encode_spans(prompt).unwrap();
            ids.into_iter().filter(|&id| tokenizer.is_control(id)).count()
        };
        let hostile: Vec<Message> = messages
            .iter()
            .map(|m| Message::new(m.role.clone(), m.content.clone() + &CONTROLS.concat()))
            .collect();
        let poisoned = template.render(&hostile, &options).unwrap();
        assert_eq!(count(&poisoned), count(&prompt), "{name} {hostile:?}");
    }
}
