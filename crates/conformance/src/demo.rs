//! A tiny random model as a whole file, tokenizer and template included: what tests of programs run on.
//!
//! A Qwen2 of 2 layers with a byte-level vocabulary and the ChatML template. Its text is noise; that it is words of
//! letters is because only their rows of the output head are not zero.

use gguf::{GgmlType, Writer};

const HIDDEN: usize = 64;
const FEED_FORWARD: usize = 128;
const LAYERS: usize = 2;
const HEADS: usize = 4;
const KV_WIDTH: usize = 32;
const CONTEXT: u32 = 2048;
const SEED: u64 = 0x0072_6f6f_666c;

/// Pairs that merge, most frequent first; `Ġ` is a space.
const MERGES: &[&str] = &[
    "Ġ t", "h e", "Ġ a", "i n", "Ġt he", "r e", "o n", "Ġ s", "e r", "Ġ w", "a t", "Ġ o", "e n",
    "n d", "Ġ c", "i s", "Ġ b", "i t", "o r", "Ġ f", "Ġ m", "e s", "Ġa nd", "in g", "a l", "o u",
    "Ġ p", "a n", "Ġo f", "Ġ h", "e d", "Ġ in", "Ġt o", "Ġ l", "l l", "i c", "a r", "Ġ d", "s t",
    "Ġ re", "l y", "Ġ is", "Ġ y", "at i", "ati on",
];
const SPECIALS: [&str; 3] = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"];
const TEMPLATE: &str = "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + \
                        '<|im_end|>' + '\\n' }}{% endfor %}{% if add_generation_prompt %}\
                        {{ '<|im_start|>assistant\\n' }}{% endif %}";

/// The model as a GGUF file.
///
/// # Panics
/// Never: the writer accepts what is written here.
pub fn demo_gguf() -> Vec<u8> {
    demo_gguf_with(|_| ())
}

/// The same, in whose metadata something more is set.
///
/// # Panics
/// If the writer does not take that.
pub fn demo_gguf_with(more: impl FnOnce(&mut Writer)) -> Vec<u8> {
    let tokens = tokens();
    let mut writer = Writer::new();
    writer
        .set("general.architecture", "qwen2")
        .set("general.name", "demo (random weights)")
        .set("general.file_type", 0_u32)
        .set("qwen2.block_count", LAYERS as u32)
        .set("qwen2.context_length", CONTEXT)
        .set("qwen2.embedding_length", HIDDEN as u32)
        .set("qwen2.feed_forward_length", FEED_FORWARD as u32)
        .set("qwen2.attention.head_count", HEADS as u32)
        .set("qwen2.attention.head_count_kv", 2_u32)
        .set("qwen2.attention.layer_norm_rms_epsilon", 1e-6_f32)
        .set("qwen2.rope.freq_base", 10_000.0_f32)
        .set("tokenizer.ggml.model", "gpt2")
        .set("tokenizer.ggml.pre", "qwen2")
        .set("tokenizer.ggml.tokens", tokens.iter().map(String::as_str).collect::<Vec<_>>())
        .set("tokenizer.ggml.token_type", token_types(tokens.len()))
        .set("tokenizer.ggml.merges", MERGES)
        .set("tokenizer.ggml.bos_token_id", (tokens.len() - 3) as u32)
        .set("tokenizer.ggml.eos_token_id", (tokens.len() - 1) as u32)
        .set("tokenizer.ggml.add_bos_token", false)
        .set("tokenizer.chat_template", TEMPLATE);
    more(&mut writer);
    let mut tensors = Tensors { writer: &mut writer, random: SEED };
    tensors.matrix("token_embd.weight", HIDDEN, tokens.len(), &|_| 1.0);
    tensors.norm("output_norm.weight");
    tensors.matrix("output.weight", HIDDEN, tokens.len(), &|row| {
        if is_text(&tokens[row]) { 0.25 } else { 0.0 }
    });
    for layer in 0..LAYERS {
        tensors.layer(layer);
    }
    writer.to_bytes().expect("the writer accepts these tensors")
}

/// 256 bytes in the byte-level alphabet, then what the merges make, then the special tokens.
fn tokens() -> Vec<String> {
    let bytes = (0..=255).map(|byte| byte_char(byte).to_string());
    let merged = MERGES.iter().map(|pair| pair.replace(' ', ""));
    bytes.chain(merged).chain(SPECIALS.map(String::from)).collect()
}

/// GPT-2's alphabet: printable Latin-1 stands for itself, the others follow from U+0100 on.
fn byte_char(byte: u8) -> char {
    let printable = |b: u8| matches!(b, 0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff);
    if printable(byte) {
        return char::from(byte);
    }
    let skipped = (0..byte).filter(|b| !printable(*b)).count();
    char::from_u32(0x100 + skipped as u32).expect("below U+0200")
}

/// Normal, but for the special ones: control.
fn token_types(n: usize) -> Vec<i32> {
    (0..n).map(|i| if i < n - SPECIALS.len() { 1 } else { 3 }).collect()
}

/// Letters, spaces before them, a little punctuation, and the end of a reply.
fn is_text(token: &str) -> bool {
    token == SPECIALS[2]
        || token.chars().all(|c| c.is_ascii_lowercase() || c == 'Ġ')
        || matches!(token, "," | "." | "?")
}

struct Tensors<'a> {
    writer: &'a mut Writer,
    random: u64,
}

impl Tensors<'_> {
    fn layer(&mut self, layer: usize) {
        let name = |tensor: &str| format!("blk.{layer}.{tensor}");
        let scale = |cols: usize| move |_: usize| 1.0 / (cols as f32).sqrt();
        for tensor in ["attn_norm.weight", "ffn_norm.weight"] {
            self.norm(&name(tensor));
        }
        for (tensor, rows) in [("attn_q", HIDDEN), ("attn_k", KV_WIDTH), ("attn_v", KV_WIDTH)] {
            self.matrix(&name(&format!("{tensor}.weight")), HIDDEN, rows, &scale(HIDDEN));
            self.vector(&name(&format!("{tensor}.bias")), rows);
        }
        for (tensor, cols, rows) in [
            ("attn_output.weight", HIDDEN, HIDDEN),
            ("ffn_gate.weight", HIDDEN, FEED_FORWARD),
            ("ffn_up.weight", HIDDEN, FEED_FORWARD),
            ("ffn_down.weight", FEED_FORWARD, HIDDEN),
        ] {
            self.matrix(&name(tensor), cols, rows, &scale(cols));
        }
    }

    fn matrix(&mut self, name: &str, cols: usize, rows: usize, scale: &dyn Fn(usize) -> f32) {
        let values: Vec<f32> = (0..rows * cols).map(|i| self.normal() * scale(i / cols)).collect();
        self.write(name, &[cols as u64, rows as u64], &values);
    }

    fn vector(&mut self, name: &str, len: usize) {
        let values: Vec<f32> = (0..len).map(|_| self.normal() * 0.1).collect();
        self.write(name, &[len as u64], &values);
    }

    fn norm(&mut self, name: &str) {
        self.write(name, &[HIDDEN as u64], &[1.0; HIDDEN]);
    }

    fn write(&mut self, name: &str, dims: &[u64], values: &[f32]) {
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        self.writer.tensor(name, GgmlType::F32, dims, bytes);
    }

    /// Near a normal distribution: 12 uniform numbers, added (no library function whose last bit differs by platform).
    fn normal(&mut self) -> f32 {
        (0..12).map(|_| self.uniform()).sum::<f32>() - 6.0
    }

    /// splitmix64, its top 24 bits.
    fn uniform(&mut self) -> f32 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 40) as f32 / (1 << 24) as f32
    }
}
