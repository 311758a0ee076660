//! Real templates of the shared folder, against the prompts that Jinja2 makes of them.

use std::sync::Arc;

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
    let go = Arc::default();
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
            ..RenderOptions::default()
        };
        let prompt = template.render(&messages, &options, &go).unwrap();
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
        let poisoned = template.render(&hostile, &options, &go).unwrap();
        assert_eq!(count(&poisoned), count(&prompt), "{name} {hostile:?}");
    }
}

/// A long chat with tools and thoughts takes no more than a part of what it may, in steps too, whatever the template.
#[test]
fn long_conversations_are_far_within_the_bounds() {
    let Some(shared) = shared() else { return };
    let mut v = Vocabulary::byte_level();
    for text in CONTROLS {
        v.add(text, CONTROL);
    }
    let tokenizer = v.build();
    let text = |words: usize| "Some words, a {brace} and a\nline. ".repeat(words / 6);
    let mut messages = vec![Message::new("system", text(2_000))];
    for i in 0..150 {
        messages.push(Message::new("user", text(if i == 7 { 60_000 } else { 400 })));
        let thought = format!("<think>\n{}\n</think>\n\n{}", text(250), text(400));
        messages.push(Message::new("assistant", thought));
    }
    messages.push(Message::new("user", text(30)));
    let bytes: usize = messages.iter().map(|m| m.content.len()).sum();
    assert!(bytes > 1_000_000, "{bytes}");
    let (mut rendered, mut most) = (0, [0.0_f64; 2]);
    for entry in std::fs::read_dir(shared.join("templates")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "jinja") {
            continue;
        }
        let source = std::fs::read_to_string(&path).unwrap();
        let template = ChatTemplate::new(&source, &tokenizer).unwrap();
        let options = RenderOptions { add_generation_prompt: true, ..RenderOptions::default() };
        // Some know no system messages, or want the content in parts.
        for messages in [&messages[..], &messages[1..]] {
            let (result, usage) = template.measure(messages, &options, &Arc::default());
            let limits = template.limits(messages);
            let shares =
                [usage.made as f64 / limits.made as f64, usage.work as f64 / limits.work as f64];
            assert!(shares.iter().all(|share| *share < 0.5), "{}: {shares:?}", path.display());
            most = [most[0].max(shares[0]), most[1].max(shares[1])];
            match result {
                Ok(_) => rendered += 1,
                Err(error) => {
                    let error = error.to_string();
                    assert!(!error.contains("more than"), "{}: {error}", path.display());
                }
            }
        }
    }
    eprintln!("{rendered} prompts of {bytes} bytes; at most {most:.3?} of bytes made and of work");
    assert!(rendered > 40, "{rendered}");
}
