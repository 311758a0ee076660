//! Small vocabularies made by hand.

use std::path::PathBuf;
use std::time::Duration;

use gguf::{Gguf, OwnedValue, Writer};
use tokenizer::{Span, Tokenizer};

pub(crate) const NORMAL: i32 = 1;
pub(crate) const UNKNOWN: i32 = 2;
pub(crate) const CONTROL: i32 = 3;
pub(crate) const USER_DEFINED: i32 = 4;
pub(crate) const BYTE: i32 = 6;

/// A vocabulary on its way into a file.
#[derive(Default)]
pub(crate) struct Vocabulary {
    pub(crate) model: &'static str,
    pub(crate) tokens: Vec<(Vec<u8>, i32, f32)>,
    pub(crate) merges: Vec<String>,
    pub(crate) keys: Vec<(&'static str, OwnedValue)>,
}

impl Vocabulary {
    /// Byte-level: the 256 bytes are tokens 0 to 255.
    pub(crate) fn byte_level() -> Vocabulary {
        let mut v = Vocabulary { model: "gpt2", ..Vocabulary::default() };
        for byte in 0..=255 {
            v.add(&byte_char(byte).to_string(), NORMAL);
        }
        v.key("tokenizer.ggml.pre", "qwen2")
    }

    /// SentencePiece: `<unk>`, `<s>`, `</s>`, then the 256 bytes.
    pub(crate) fn spm() -> Vocabulary {
        let mut v = Vocabulary { model: "llama", ..Vocabulary::default() };
        v.add("<unk>", UNKNOWN);
        v.add("<s>", CONTROL);
        v.add("</s>", CONTROL);
        for byte in 0..=255 {
            v.add(&format!("<0x{byte:02X}>"), BYTE);
        }
        v.key("tokenizer.ggml.bos_token_id", 1_u32).key("tokenizer.ggml.eos_token_id", 2_u32)
    }

    /// WordPiece: tokens as in a `vocab.txt`, `##` before those that continue a word.
    pub(crate) fn wordpiece<'t>(tokens: impl IntoIterator<Item = &'t str>) -> Vocabulary {
        let mut v = Vocabulary { model: "bert", ..Vocabulary::default() };
        for text in tokens {
            match text.strip_prefix("##") {
                _ if text.starts_with('[') && text.ends_with(']') => v.add(text, CONTROL),
                Some(rest) => v.add(rest, NORMAL),
                None => v.add(&format!("▁{text}"), NORMAL),
            };
        }
        v
    }

    /// Adds a token; returns its id.
    pub(crate) fn add(&mut self, text: &str, kind: i32) -> u32 {
        self.scored(text, kind, 0.0)
    }

    pub(crate) fn scored(&mut self, text: &str, kind: i32, score: f32) -> u32 {
        self.tokens.push((text.as_bytes().to_vec(), kind, score));
        self.tokens.len() as u32 - 1
    }

    /// Adds a merge and the token it makes; returns the id.
    pub(crate) fn merge(&mut self, left: &str, right: &str) -> u32 {
        self.merges.push(format!("{left} {right}"));
        self.add(&format!("{left}{right}"), NORMAL)
    }

    pub(crate) fn key(mut self, key: &'static str, value: impl Into<OwnedValue>) -> Vocabulary {
        self.keys.push((key, value.into()));
        self
    }

    pub(crate) fn file(&self) -> Gguf {
        let mut w = Writer::new();
        w.set("general.architecture", "llama");
        w.set("tokenizer.ggml.model", self.model);
        let strings = |items: Vec<Vec<u8>>| {
            OwnedValue::Array(
                gguf::ValueType::String,
                items.into_iter().map(OwnedValue::String).collect(),
            )
        };
        w.set("tokenizer.ggml.tokens", strings(self.tokens.iter().map(|t| t.0.clone()).collect()));
        w.set("tokenizer.ggml.token_type", self.tokens.iter().map(|t| t.1).collect::<Vec<_>>());
        if matches!(self.model, "gpt2" | "gemma4") {
            w.set(
                "tokenizer.ggml.merges",
                strings(self.merges.iter().map(|m| m.clone().into_bytes()).collect()),
            );
        } else {
            w.set("tokenizer.ggml.scores", self.tokens.iter().map(|t| t.2).collect::<Vec<_>>());
        }
        for (key, value) in &self.keys {
            w.set(*key, value.clone());
        }
        Gguf::from_bytes(w.to_bytes().unwrap()).unwrap()
    }

    pub(crate) fn try_build(&self) -> tokenizer::Result<Tokenizer> {
        Tokenizer::from_gguf(self.file().metadata())
    }

    pub(crate) fn build(&self) -> Tokenizer {
        self.try_build().unwrap()
    }
}

/// The character GPT-2 writes for a byte.
pub(crate) fn byte_char(byte: u8) -> char {
    let prints = |b: u8| matches!(b, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
    if prints(byte) {
        return char::from(byte);
    }
    let before = (0..byte).filter(|&b| !prints(b)).count();
    char::from_u32(0x100 + before as u32).unwrap()
}

/// The text of tokens, without the space that encoding put first.
pub(crate) fn decode(t: &Tokenizer, ids: &[u32]) -> String {
    let bytes: Vec<u8> = ids.iter().flat_map(|&id| t.bytes(id)).collect();
    let text = String::from_utf8_lossy(&bytes);
    text.strip_prefix(' ').filter(|_| t.adds_space()).unwrap_or(&text).to_owned()
}

/// A prompt in one piece, special or not.
pub(crate) fn joined(spans: &[Span]) -> String {
    spans.iter().map(|s| s.text.as_str()).collect()
}

/// The folder of models and templates beside the repository, if there is one; says so if not.
pub(crate) fn shared() -> Option<PathBuf> {
    testing::shared().map_err(|why| testing::golden_skipped(&format!("tokenizer: {why}"))).ok()
}

/// Time that this thread has computed: other programs do not count, nor does waiting for them.
#[cfg(unix)]
fn computed() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec.try_into().unwrap(), now.tv_nsec.try_into().unwrap())
}

/// Time since this was first called.
#[cfg(not(unix))]
fn computed() -> Duration {
    static START: std::sync::LazyLock<std::time::Instant> =
        std::sync::LazyLock::new(std::time::Instant::now);
    START.elapsed()
}

/// The least time of a few calls.
fn least_time(calls: usize, work: &dyn Fn()) -> Duration {
    let time = |_| {
        let start = computed();
        work();
        computed() - start
    };
    (0..calls).map(time).min().expect("there are calls")
}

/// Checks that encoding takes time in proportion to the length of a text: of four times as long a run less than eight times as
/// long, where a loop over the run for each of its parts takes sixteen times.
///
/// Takes the least time of several calls, and measures again if it is too long: other programs only make it longer.
pub(crate) fn assert_linear(t: &Tokenizer, run: &str) {
    const SHORTEST: Duration = Duration::from_millis(4);
    let encode = |bytes: usize| {
        let text = run.repeat(bytes.div_ceil(run.len()));
        move || drop(std::hint::black_box(t.encode(&text).unwrap()))
    };
    // long enough for a clock, and where a loop in a loop would show
    let mut bytes = 16 << 10;
    while bytes < 1 << 20 && least_time(1, &encode(bytes)) < SHORTEST {
        bytes *= 2;
    }
    let mut ratios = Vec::new();
    for _ in 0..4 {
        let (short, long) = (least_time(3, &encode(bytes)), least_time(3, &encode(4 * bytes)));
        ratios.push(long.as_secs_f64() / short.as_secs_f64().max(1e-9));
        if ratios.last().is_some_and(|ratio| *ratio < 8.0) {
            return;
        }
    }
    panic!("{run:?}: {bytes} bytes four times take {ratios:.1?} times as long: not linear");
}
