//! What the fuzz targets of this crate do with bytes. The corpus and mutations of it are run as plain tests too.

use std::sync::{Arc, LazyLock};

use gguf::{Gguf, OwnedValue, ValueType, Writer};
use tokenizer::{ChatTemplate, Message, RenderOptions, Tokenizer, Usage};

const CONTROLS: &[&str] = &["<s>", "</s>", "<|im_start|>", "<|im_end|>", "<|user|>", "[|user|]"];
/// Small, so that many inputs are tried; the bounds themselves have tests of their own.
const LIMITS: Usage = Usage { made: 1 << 20, work: 4 << 20 };

static VOCABULARY: LazyLock<Tokenizer> = LazyLock::new(|| {
    let tokens: Vec<Vec<u8>> = CONTROLS
        .iter()
        .map(|text| text.as_bytes().to_vec())
        .chain((0..=255_u8).map(|byte| format!("<0x{byte:02X}>").into_bytes()))
        .collect();
    let types = (0..tokens.len()).map(|i| if i < CONTROLS.len() { 3 } else { 6 }).collect();
    let file = vocabulary("llama", tokens, types, &[]);
    Tokenizer::from_gguf(file.metadata()).expect("a vocabulary of bytes")
});

fn vocabulary(model: &str, tokens: Vec<Vec<u8>>, types: Vec<i32>, merges: &[&[u8]]) -> Gguf {
    let strings = |items: Vec<Vec<u8>>| {
        OwnedValue::Array(ValueType::String, items.into_iter().map(OwnedValue::String).collect())
    };
    let mut w = Writer::new();
    w.set("general.architecture", "llama");
    w.set("tokenizer.ggml.model", model);
    w.set("tokenizer.ggml.pre", "qwen2");
    // Scores fall with the place in the list.
    w.set("tokenizer.ggml.scores", (0..tokens.len()).map(|i| -(i as f32)).collect::<Vec<_>>());
    w.set("tokenizer.ggml.token_type", types);
    w.set("tokenizer.ggml.tokens", strings(tokens));
    w.set("tokenizer.ggml.merges", strings(merges.iter().map(|m| m.to_vec()).collect()));
    Gguf::from_bytes(w.to_bytes().expect("written")).expect("read back")
}

fn one_line(error: &tokenizer::Error) {
    let text = error.to_string();
    assert!(text.chars().count() <= 400 && !text.contains(char::is_control), "{text}");
}

/// Renders: up to the first zero byte the template, then contents of messages between zero bytes, of which some begin
/// with a role and a line feed. Returns whether there was a prompt.
pub(crate) fn template_render(data: &[u8]) -> bool {
    let mut parts = data.split(|byte| *byte == 0).map(String::from_utf8_lossy);
    let source = parts.next().unwrap_or_default();
    let messages: Vec<Message> = parts
        .take(8)
        .map(|part| match part.split_once('\n') {
            Some((role, content)) if role.len() < 12 => Message::new(role, content),
            _ => Message::new("user", &*part),
        })
        .collect();
    let mut template = match ChatTemplate::new(&source, &VOCABULARY) {
        Ok(template) => template,
        Err(error) => {
            one_line(&error);
            return false;
        }
    };
    template.set_limits(LIMITS);
    template.set_time(1_721_952_000);
    let options = RenderOptions { add_generation_prompt: true, ..RenderOptions::default() };
    let (rendered, usage) = template.measure(&messages, &options, &Arc::default());
    assert!(usage.made <= LIMITS.made && usage.work <= LIMITS.work, "{usage:?}");
    match rendered {
        Ok(spans) => {
            for span in spans.iter().filter(|span| span.special) {
                assert!(CONTROLS.contains(&span.text.as_str()), "{span:?}");
            }
            let special = spans.iter().filter(|span| span.special).count();
            let ids = VOCABULARY.encode_spans(&spans).expect("all bytes are tokens");
            let controls = ids.into_iter().filter(|id| VOCABULARY.is_control(*id)).count();
            assert_eq!(controls, special);
            true
        }
        Err(error) => {
            one_line(&error);
            false
        }
    }
}

/// Reads a vocabulary and encodes: up to the first zero byte a line for the model and one for each token, its type as a
/// digit before it; then merges, one to a line, up to the next zero byte; then the text. Returns whether it was encoded.
pub(crate) fn vocabulary_encode(data: &[u8]) -> bool {
    let mut parts = data.splitn(3, |byte| *byte == 0);
    let mut lines = parts.next().unwrap_or_default().split(|byte| *byte == b'\n');
    let model = match lines.next() {
        Some(b"gpt2") => "gpt2",
        Some(b"t5") => "t5",
        Some(b"bert") => "bert",
        Some(b"gemma4") => "gemma4",
        _ => "llama",
    };
    let (types, tokens): (Vec<i32>, Vec<Vec<u8>>) = lines
        .map(|line| match line.split_first() {
            Some((kind @ b'0'..=b'9', text)) => (i32::from(kind - b'0'), text.to_vec()),
            _ => (1, line.to_vec()),
        })
        .unzip();
    let merges = parts.next().unwrap_or_default().split(|byte| *byte == b'\n');
    let merges: Vec<&[u8]> = merges.filter(|merge| !merge.is_empty()).collect();
    let text = String::from_utf8_lossy(parts.next().unwrap_or_default()).into_owned();
    let file = vocabulary(model, tokens, types, &merges);
    let tokenizer = match Tokenizer::from_gguf(file.metadata()) {
        Ok(tokenizer) => tokenizer,
        Err(error) => {
            one_line(&error);
            return false;
        }
    };
    match tokenizer.encode(&text) {
        Ok(ids) => {
            for id in ids {
                assert!((id as usize) < tokenizer.vocab_size() && !tokenizer.is_control(id));
                let _ = tokenizer.bytes(id);
            }
            true
        }
        Err(error) => {
            one_line(&error);
            false
        }
    }
}
