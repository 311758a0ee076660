//! Made-up vocabularies of any size: every byte has a token, the others are pairs of letters and pairs of pairs.

use anyhow::ensure;
use gguf::Writer;

/// What kind of vocabulary a model has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Vocabulary {
    /// Byte-level BPE with merges.
    Bpe,
    /// SentencePiece with scores.
    Spm,
}

const TEMPLATE: &str = "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + \
                        message['content'] + '<|im_end|>' + '\\n' }}{% endfor %}\
                        {% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";
/// The last tokens; the first of them begins a text, the last ends a reply.
const SPECIALS: [&str; 3] = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"];

/// `tokenizer.ggml.token_type`.
const NORMAL: i32 = 1;
const UNKNOWN: i32 = 2;
const CONTROL: i32 = 3;
const UNUSED: i32 = 5;
const BYTE: i32 = 6;

/// Tokens with their types and the merges that make them.
#[derive(Default)]
struct Tokens {
    texts: Vec<String>,
    types: Vec<i32>,
    merges: Vec<String>,
}

impl Tokens {
    fn push(&mut self, text: impl Into<String>, ty: i32) {
        self.texts.push(text.into());
        self.types.push(ty);
    }

    /// Tokens of two parts up to `size`: two letters, a space before them, two of the first.
    fn words(&mut self, space: &str, size: usize) {
        let letters = || ('a'..='z').map(String::from);
        let pairs: Vec<String> =
            letters().flat_map(|a| letters().map(move |b| format!("{a}{b}"))).collect();
        let two = letters().flat_map(|a| letters().map(move |b| (a.clone(), b)));
        let spaced = pairs.iter().map(|pair| (space.to_owned(), pair.clone()));
        let four = pairs.iter().flat_map(|a| pairs.iter().map(|b| (a.clone(), b.clone())));
        let missing = size.saturating_sub(self.texts.len());
        for (left, right) in two.chain(spaced).chain(four).take(missing) {
            self.push(format!("{left}{right}"), NORMAL);
            self.merges.push(format!("{left} {right}"));
        }
        for i in self.texts.len()..size {
            self.push(format!("[PAD{i}]"), UNUSED);
        }
    }
}

/// Sets the tokenizer's keys: `size` tokens, the template of ChatML.
///
/// # Errors
/// If `size` is too small for the bytes and what steers a chat.
pub(crate) fn set(writer: &mut Writer, kind: Vocabulary, size: usize) -> anyhow::Result<()> {
    ensure!(size >= 512, "a vocabulary of {size} tokens; at least 512 are needed");
    let mut tokens = Tokens::default();
    let normal = size - SPECIALS.len();
    match kind {
        Vocabulary::Bpe => {
            (0..=u8::MAX).for_each(|byte| tokens.push(byte_char(byte), NORMAL));
            tokens.words(&byte_char(b' ').to_string(), normal);
            writer.set("tokenizer.ggml.model", "gpt2").set("tokenizer.ggml.pre", "qwen2");
            writer.set("tokenizer.ggml.merges", std::mem::take(&mut tokens.merges));
        }
        Vocabulary::Spm => {
            tokens.push("<unk>", UNKNOWN);
            (0..=u8::MAX).for_each(|byte| tokens.push(format!("<0x{byte:02X}>"), BYTE));
            let space = '\u{2581}';
            ('!'..='~').chain([space]).for_each(|c| tokens.push(c, NORMAL));
            tokens.words(&space.to_string(), normal);
            let scores: Vec<f32> = (0..size).map(|i| -(i as f32)).collect();
            writer.set("tokenizer.ggml.model", "llama").set("tokenizer.ggml.scores", scores);
            writer.set("tokenizer.ggml.unknown_token_id", 0_u32);
        }
    }
    SPECIALS.iter().for_each(|text| tokens.push(*text, CONTROL));
    let id = |back: usize| u32::try_from(size - back);
    writer
        .set("tokenizer.ggml.tokens", tokens.texts)
        .set("tokenizer.ggml.token_type", tokens.types)
        .set("tokenizer.ggml.bos_token_id", id(3)?)
        .set("tokenizer.ggml.padding_token_id", id(3)?)
        .set("tokenizer.ggml.eos_token_id", id(1)?)
        .set("tokenizer.ggml.add_bos_token", false)
        .set("tokenizer.chat_template", TEMPLATE);
    Ok(())
}

/// The character of a byte in byte-level vocabularies: printable Latin-1 stands for itself, the others follow from
/// U+0100 on.
fn byte_char(byte: u8) -> char {
    let printable = |b: u8| matches!(b, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
    if printable(byte) {
        return char::from(byte);
    }
    let before = (0..byte).filter(|&b| !printable(b)).count();
    char::from_u32(0x100 + before as u32).expect("68 characters from U+0100 on")
}
