//! WordPiece (`tokenizer.ggml.model = bert`): text is cleaned and cut into words, and of each word the longest token that
//! it begins with is taken, again and again. A word that tokens do not cover is the unknown token as a whole.
//!
//! In the file a token that begins a word is written with `▁` before it, one that continues a word as it is.
//!
//! Source: the BERT paper's `tokenization.py`; characters are classed as in the `tokenizers` crate, whose tables of
//! Unicode these are.

use ahash::AHashMap;
use gguf::Metadata;
use unicode_categories::UnicodeCategories as _;
use unicode_normalization_alignments::char::decompose_canonical;

use crate::vocab::{MODEL, SPACE, TOKENS, Vocab};
use crate::{Error, Result};

/// Longest word, in characters, that is looked for; a longer one is unknown.
const MAX_WORD: usize = 100;

pub(crate) struct WordPiece {
    /// Tokens that begin a word, without their mark.
    begins: AHashMap<String, u32>,
    /// Tokens that continue one.
    continues: AHashMap<String, u32>,
    /// Longest text of a token, in bytes.
    longest: usize,
    unknown: u32,
    lowercase: bool,
    strips_accents: bool,
}

impl WordPiece {
    pub(crate) fn new(m: &Metadata, vocab: &Vocab) -> Result<WordPiece> {
        let unknown = vocab.unknown.ok_or_else(|| Error::Value {
            key: MODEL,
            expected: "an unknown token, which bert vocabularies need".to_owned(),
            found: "none".to_owned(),
        })?;
        let (mut begins, mut continues) = (AHashMap::new(), AHashMap::new());
        let mut longest = 0;
        for (id, text) in vocab.made_of_text() {
            let (table, text) = match text.strip_prefix(SPACE) {
                Some(rest) if !rest.is_empty() => (&mut begins, rest),
                _ => (&mut continues, text),
            };
            longest = longest.max(text.len());
            table.entry(text.to_owned()).or_insert(id);
        }
        if begins.is_empty() {
            let expected = format!("tokens that begin words, written with `{SPACE}` before them");
            return Err(Error::Value { key: TOKENS, expected, found: "none".to_owned() });
        }
        let lowercase = m.bool("tokenizer.ggml.normalizer.lowercase")?.unwrap_or(true);
        let strips_accents =
            m.bool("tokenizer.ggml.normalizer.strip_accents")?.unwrap_or(lowercase);
        Ok(WordPiece { begins, continues, longest, unknown, lowercase, strips_accents })
    }

    /// Appends the tokens of `text`.
    pub(crate) fn encode(&self, text: &str, out: &mut Vec<u32>) {
        let mut word = Word::default();
        for c in text.chars().filter(|&c| !is_dropped(c)) {
            if c.is_whitespace() {
                self.end(&mut word, out);
                continue;
            }
            let alone = is_chinese(c);
            if alone {
                self.end(&mut word, out);
            }
            self.normalize(c, &mut |c| {
                if c.is_ascii_punctuation() || c.is_punctuation() {
                    self.end(&mut word, out);
                    word.push(c);
                    self.end(&mut word, out);
                } else {
                    word.push(c);
                }
            });
            if alone {
                self.end(&mut word, out);
            }
        }
        self.end(&mut word, out);
    }

    /// What a character becomes. Marks are dropped one by one, so their order does not matter.
    fn normalize(&self, c: char, each: &mut dyn FnMut(char)) {
        let mut lower = |c: char| {
            if self.lowercase {
                c.to_lowercase().for_each(&mut *each);
            } else {
                each(c);
            }
        };
        if self.strips_accents {
            decompose_canonical(c, |c| {
                if !c.is_mark_nonspacing() {
                    lower(c);
                }
            });
        } else {
            lower(c);
        }
    }

    /// Appends the tokens of a word, if there is one, and starts the next.
    fn end(&self, word: &mut Word, out: &mut Vec<u32>) {
        let start = out.len();
        let mut rest = if word.chars > MAX_WORD { "" } else { &word.text[..] };
        let mut table = &self.begins;
        while let Some((token, len)) = self.longest(table, rest) {
            out.push(token);
            rest = &rest[len..];
            table = &self.continues;
        }
        if !rest.is_empty() || word.chars > MAX_WORD {
            out.truncate(start);
            out.push(self.unknown);
        }
        word.text.clear();
        word.chars = 0;
    }

    /// The longest token of `table` that `text` begins with, and its length.
    fn longest(&self, table: &AHashMap<String, u32>, text: &str) -> Option<(u32, usize)> {
        let most = text.len().min(self.longest);
        (1..=most)
            .rev()
            .filter(|&len| text.is_char_boundary(len))
            .find_map(|len| Some((*table.get(&text[..len])?, len)))
    }
}

/// A word while it grows; of one that is too long the rest is only counted.
#[derive(Default)]
struct Word {
    text: String,
    chars: usize,
}

impl Word {
    fn push(&mut self, c: char) {
        if self.chars < MAX_WORD {
            self.text.push(c);
        }
        self.chars += 1;
    }
}

/// Characters that no word holds: those of control, but white space.
fn is_dropped(c: char) -> bool {
    let blank = matches!(c, '\t' | '\n' | '\r');
    c == '\0' || c == '\u{fffd}' || (!blank && c.is_other())
}

/// Ideographs, each of which is a word; kana and hangul are none.
fn is_chinese(c: char) -> bool {
    matches!(u32::from(c),
        0x3400..=0x4dbf | 0x4e00..=0x9fff | 0xf900..=0xfaff | 0x20000..=0x2a6df | 0x2a700..=0x2b73f
        | 0x2b740..=0x2b81f | 0x2b920..=0x2ceaf | 0x2f800..=0x2fa1f)
}
