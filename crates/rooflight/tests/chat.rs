//! Tests conversations through the library's public API.

#![allow(clippy::unwrap_used, reason = "a test stops at its first surprise")]

use rooflight::{Error, Event, Model};

fn model() -> Model {
    Model::builder(conformance::demo_gguf()).context(512).threads(1).load().unwrap()
}

#[test]
fn events_of_a_reply_are_its_text() {
    let model = model();
    let mut chat = model.chat().unwrap();
    chat.set_max_tokens(Some(12));
    let (mut text, mut ends) = (String::new(), 0);
    for event in chat.send("one").unwrap() {
        match event.unwrap() {
            Event::Text(more) => text += &more,
            Event::End(reply) => {
                ends += 1;
                assert_eq!(reply.text, text);
                assert!(reply.tokens.len() <= 12);
            }
            _ => {}
        }
    }
    assert_eq!(ends, 1);
    let roles: Vec<&str> = chat.messages().iter().map(|message| &*message.role).collect();
    assert_eq!(roles, ["user", "assistant"]);
    assert_eq!(chat.messages()[1].content, text);
    // the conversation so far is cached: the next reply computes only the rest
    let prompts = chat.send("two").unwrap().filter_map(|event| match event.unwrap() {
        Event::Prompt { total, .. } => Some(total),
        _ => None,
    });
    assert!(prompts.last().unwrap() < 60);
    assert_eq!(chat.messages().len(), 4);
}

/// A reply that is dropped before its end stops, and the chat continues.
#[test]
fn a_dropped_reply_stops() {
    let model = model();
    let mut chat = model.chat().unwrap();
    let mut first = chat.send("one").unwrap();
    while !matches!(first.next().unwrap().unwrap(), Event::Text(_)) {}
    drop(first);
    assert_eq!(chat.messages().len(), 2);
    chat.set_max_tokens(Some(2));
    assert!(chat.send("two").unwrap().all(|event| event.is_ok()));
    assert_eq!(chat.messages().len(), 4);
}

#[test]
fn chats_of_one_model_are_apart() {
    let model = model();
    let reply = |chat: &mut rooflight::Chat| -> String {
        chat.set_max_tokens(Some(8));
        let texts = chat.send("one").unwrap().filter_map(|event| match event.unwrap() {
            Event::Text(text) => Some(text),
            _ => None,
        });
        texts.collect()
    };
    let (mut one, mut two) = (model.chat().unwrap(), model.clone().chat().unwrap());
    let greedy = engine::SamplerOptions { temperature: 0.0, ..Default::default() };
    one.set_sampler(greedy.clone()).unwrap();
    two.set_sampler(greedy).unwrap();
    two.set_system(Some("Be brief.".into()));
    assert_eq!(two.messages().len(), 1);
    let (first, _) = (reply(&mut one), reply(&mut two));
    let mut again = model.chat().unwrap();
    again.set_sampler(engine::SamplerOptions { temperature: 0.0, ..Default::default() }).unwrap();
    assert_eq!(reply(&mut again), first);
    assert_eq!((one.messages().len(), two.messages().len()), (2, 3));
}

#[test]
fn what_cannot_be_loaded_is_told() {
    let missing = Model::builder("no-such-file.gguf").load().err().unwrap();
    assert!(matches!(missing, Error::NotFound { .. }), "{missing:?}");
    let broken = Model::builder(b"GGUF".to_vec()).load().err().unwrap();
    assert!(matches!(broken, Error::Load(_)), "{broken:?}");
    let long = Model::builder(conformance::demo_gguf()).context(1 << 40).load().err().unwrap();
    assert!(matches!(long, Error::DoesNotFit { .. }), "{long:?}");
}
