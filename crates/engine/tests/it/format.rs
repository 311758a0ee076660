//! Conversations through real tokenizers and templates: later turns compute little more than what is new.

#![allow(clippy::unwrap_used, reason = "a test stops at its first surprise")]

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, LazyLock};

use engine::{
    ChatFormat, Conversation, Message, ModelFormat, PromptOptions, Reasoning, ReplyOptions,
    Sampler, SamplerOptions, StopReason,
};
use gguf::{Gguf, Writer};
use tokenizer::{ChatTemplate, Tokenizer};

use crate::common::Toy;

static GO: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);

/// A byte-level vocabulary with one merge and three control tokens.
fn tiny() -> Gguf {
    let printable = |b: u8| matches!(b, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..);
    let mut spare = (0x100..).filter_map(char::from_u32);
    let letter = |b: u8| if printable(b) { char::from(b) } else { spare.next().unwrap() };
    let mut tokens: Vec<String> = (0..=255).map(letter).map(String::from).collect();
    tokens.extend(["he", "<s>", "<|im_start|>", "<|im_end|>"].map(String::from));
    let types: Vec<i32> = (0..tokens.len()).map(|i| if i < 257 { 1 } else { 3 }).collect();
    let mut writer = Writer::new();
    writer
        .set("general.architecture", "none")
        .set("tokenizer.ggml.model", "gpt2")
        .set("tokenizer.ggml.pre", "qwen2")
        .set("tokenizer.ggml.tokens", tokens)
        .set("tokenizer.ggml.token_type", types)
        .set("tokenizer.ggml.merges", vec!["h e".to_owned()])
        .set("tokenizer.ggml.bos_token_id", 257_u32)
        .set("tokenizer.ggml.eos_token_id", 259_u32)
        .set("tokenizer.ggml.add_bos_token", true);
    Gguf::from_bytes(writer.to_bytes().unwrap()).unwrap()
}

/// The way of Llama 2: no control tokens around the roles, replies trimmed.
const INSTRUCT: &str = "{{ bos_token }}{% for m in messages %}{% if m.role == 'user' %}\
    {{ '[INST] ' + m.content + ' [/INST]' }}{% else %}{{ ' ' + m.content | trim + eos_token }}\
    {% endif %}{% endfor %}";

/// Five turns of noise; every turn after the first may compute `allowance` tokens besides the message's letters.
fn converse(tokenizer: &Arc<Tokenizer>, template: ChatTemplate, allowance: usize) {
    let toy = Toy::with_vocab(tokenizer.vocab_size());
    let format = Arc::new(ModelFormat::new(Arc::clone(tokenizer), template));
    let mut conversation = Conversation::new(toy.session(4000, 0), format);
    let options = SamplerOptions { seed: Some(11), ..SamplerOptions::default() };
    let mut sampler = Sampler::new(options).unwrap();
    let options = ReplyOptions {
        full: engine::FullContext::Stop,
        max_tokens: Some(30),
        stop: &[],
        ignore_eog: false,
        reasoning: Reasoning::Auto,
        cancel: &GO,
    };
    for turn in 0..5 {
        let text = if turn == 0 { "tell me ".repeat(50) } else { "and the rest?".to_owned() };
        let reply = conversation.say(&text, &mut sampler, &options, &mut |_| ()).unwrap();
        let computed = reply.stats.prompt_tokens - reply.stats.cached_tokens;
        assert!(
            turn == 0 || computed <= text.len() + allowance,
            "turn {turn}: {computed} computed"
        );
    }
    assert_eq!(conversation.messages().len(), 10);
}

#[test]
fn a_tiny_vocabulary() {
    let file = tiny();
    let tokenizer = Arc::new(Tokenizer::from_gguf(file.metadata()).unwrap());
    let template = ChatTemplate::from_gguf(file.metadata(), &tokenizer).unwrap();
    assert!(template.is_fallback());
    converse(&tokenizer, template, 60);
    converse(&tokenizer, ChatTemplate::new(INSTRUCT, &tokenizer).unwrap(), 20);
}

#[test]
fn every_conversation_begins_with_one_begin_token() {
    let file = tiny();
    let tokenizer = Arc::new(Tokenizer::from_gguf(file.metadata()).unwrap());
    let begins = |template: ChatTemplate| {
        let format = ModelFormat::new(Arc::clone(&tokenizer), template);
        let spans = format
            .render(&[Message::new("user", "<s>he")], &PromptOptions::default(), &GO)
            .unwrap();
        let tokens = format.encode(&spans, true).unwrap();
        let at: Vec<usize> = (0..tokens.len()).filter(|&i| tokens[i] == 257).collect();
        assert_eq!(at, [0], "what a user writes is no begin token");
        assert!(tokens.contains(&256));
    };
    begins(ChatTemplate::from_gguf(file.metadata(), &tokenizer).unwrap());
    begins(ChatTemplate::new(INSTRUCT, &tokenizer).unwrap());
}

#[test]
fn the_shared_vocabularies() {
    let shared = match testing::shared() {
        Ok(shared) => shared,
        Err(why) => {
            return testing::skipped(&format!("conversations with real vocabularies: {why}"));
        }
    };
    for entry in shared.join("models/vocab").read_dir().unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "gguf") {
            continue;
        }
        let file = Gguf::open(&path).unwrap();
        let tokenizer = match Tokenizer::from_gguf(file.metadata()) {
            Ok(tokenizer) => Arc::new(tokenizer),
            // the tokenizer's tests say why, and which must load
            Err(error) if path.to_string_lossy().contains("gemma-4") => {
                eprintln!("skipped: {}: {error}", path.display());
                continue;
            }
            Err(error) => panic!("{}: {error}", path.display()),
        };
        let template = ChatTemplate::from_gguf(file.metadata(), &tokenizer).unwrap();
        converse(&tokenizer, template, 60);
        converse(&tokenizer, ChatTemplate::new(INSTRUCT, &tokenizer).unwrap(), 20);
    }
}

/// A Ctrl-C while the template runs ends the reply, not the conversation.
#[test]
fn a_cancel_reaches_the_template() {
    let toy = Toy::new();
    let file = tiny();
    let tokenizer = Arc::new(Tokenizer::from_gguf(file.metadata()).unwrap());
    let busy = "{% for i in range(90000) %}{{ 'a' in messages[0].content }}{% endfor %}";
    let template = ChatTemplate::new(busy, &tokenizer).unwrap();
    let format = Arc::new(ModelFormat::new(tokenizer.clone(), template));
    let mut conversation = Conversation::new(toy.session(400, 0), format);
    let mut sampler = Sampler::new(SamplerOptions::default()).unwrap();
    let cancel = Arc::new(AtomicBool::new(true));
    let options = ReplyOptions {
        full: engine::FullContext::Stop,
        max_tokens: Some(4),
        stop: &[],
        ignore_eog: false,
        reasoning: Reasoning::Auto,
        cancel: &cancel,
    };
    let reply = conversation.say("he", &mut sampler, &options, &mut |_| ()).unwrap();
    assert_eq!((reply.stop, reply.stats.prompt_tokens), (StopReason::Cancelled, 0));
    assert_eq!(conversation.messages(), []);
}

/// A note says that thinking cannot be switched, unless there are no thoughts to turn off.
#[test]
fn a_template_without_a_switch_says_so_only_if_it_has_thoughts() {
    let file = tiny();
    let tokenizer = Arc::new(Tokenizer::from_gguf(file.metadata()).unwrap());
    let notes = |source: &str| {
        let template = ChatTemplate::new(source, &tokenizer).unwrap();
        let format = ModelFormat::new(Arc::clone(&tokenizer), template);
        [Reasoning::On, Reasoning::Off, Reasoning::Auto]
            .map(|asked| format.switch_note(asked).is_some())
    };
    assert_eq!(notes("{{ messages[0].content }}"), [true, false, false]);
    assert_eq!(notes("{{ messages[0].content.split('</think>')[-1] }}"), [true, true, false]);
    let ends = "<|assistant|>{{ messages[0].content }}<|end|>";
    assert_eq!(notes(ends), [true, false, false], "the end of a message is no tag of thoughts");
    let switch =
        "{{ messages[0].content }}{% if enable_thinking is false %}<think></think>{% endif %}";
    assert_eq!(notes(switch), [false; 3]);
}
