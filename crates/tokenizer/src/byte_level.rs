//! Byte-level BPE (`tokenizer.ggml.model = gpt2`): text is split into words, each byte of a word is written as one
//! printable character, and the `tokenizers` crate merges those characters in the order of the merges in the file.

use ahash::AHashMap;
use gguf::{Metadata, escape};
use tokenizers::Model as _;
use tokenizers::models::bpe::BPE;

use crate::loss::{LossCollector, may_lose_bytes};
use crate::merge::Merges;
use crate::pre::{self, PreTokenizer};
use crate::recognize::{self, recognize};
use crate::split::Splitter;
use crate::vocab::{MAX_ENTRIES, MAX_TOKEN, MERGES, PRE, Vocab};
use crate::{Error, Result};

/// The printable characters that stand for bytes: those of Latin-1 that print stand for themselves, the other 68 bytes
/// are U+0100 and up, in order.
///
/// Source: the vocabulary of GPT-2.
pub(crate) struct Alphabet {
    chars: [char; 256],
    bytes: AHashMap<char, u8>,
}

impl Alphabet {
    pub(crate) fn new() -> Alphabet {
        let mut spare = (0x100_u32..).filter_map(char::from_u32);
        let chars = std::array::from_fn(|byte| {
            let c = char::from(byte as u8);
            let prints = matches!(c, '!'..='~' | '¡'..='¬' | '®'..='ÿ');
            if prints {
                c
            } else {
                spare.next().expect("there are more than 256 characters from U+0100 on")
            }
        });
        let bytes = (0..=u8::MAX).map(|b| (chars[usize::from(b)], b)).collect();
        Alphabet { chars, bytes }
    }

    /// Appends the bytes that the characters of a token stand for; what is not of this alphabet stays as it is.
    pub(crate) fn decode(&self, token: &[u8], out: &mut Vec<u8>) {
        for chunk in token.utf8_chunks() {
            for c in chunk.valid().chars() {
                match self.bytes.get(&c) {
                    Some(&byte) => out.push(byte),
                    None => out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
                }
            }
            out.extend_from_slice(chunk.invalid());
        }
    }
}

/// Longest word, in bytes, whose tokens are remembered within one text.
const MAX_REMEMBERED: usize = 64;
/// Longest word, in bytes, that is left to the `tokenizers` crate. Longer ones are no tokens themselves.
const MAX_WORD: usize = 1024;
const _: () = assert!(MAX_WORD > MAX_TOKEN);
/// Most words remembered within one text.
const MAX_WORDS: usize = 1 << 16;

pub(crate) struct ByteLevel {
    alphabet: Alphabet,
    splitter: &'static Splitter,
    bpe: BPE,
    /// The same merges for words that are too long for `bpe`.
    merges: Merges,
    /// Token of each byte.
    bytes: [Option<u32>; 256],
    /// Whether some text contains bytes without a token.
    pub(crate) may_lose_bytes: bool,
    /// Whether a word that is a token is encoded as that token, without merges.
    whole_words: bool,
    /// What the pre-tokenizer says about a begin token where the file says nothing.
    pub(crate) adds_bos: bool,
}

impl ByteLevel {
    pub(crate) fn new(m: &Metadata, vocab: &mut Vocab) -> Result<ByteLevel> {
        let (pre, whole_words) = choose(m, vocab)?;
        let alphabet = Alphabet::new();
        let mut texts: AHashMap<String, u32> = AHashMap::with_capacity(vocab.len());
        for (id, text) in vocab.made_of_text() {
            texts.entry(text.to_owned()).or_insert(id);
        }
        let bytes = alphabet.chars.map(|c| texts.get(&*c.encode_utf8(&mut [0; 4])).copied());
        let (lines, merges) = merges(m, &texts, &mut vocab.warnings)?;
        // The cache of the crate would outlive the tokenizer; `encode` remembers words itself, text by text.
        let bpe = BPE::builder()
            .vocab_and_merges(texts, lines)
            .ignore_merges(whole_words)
            .cache_capacity(0)
            .build()
            .map_err(Error::vocabulary)?;
        let splitter = pre.splitter()?;
        let adds_bos = pre.adds_bos;
        let may_lose_bytes = may_lose_bytes(&bytes);
        Ok(ByteLevel {
            alphabet,
            splitter,
            bpe,
            merges,
            bytes,
            may_lose_bytes,
            whole_words,
            adds_bos,
        })
    }

    /// Appends the tokens of `text`.
    pub(crate) fn encode(&self, text: &str, out: &mut Vec<u32>) -> Result<()> {
        if u32::try_from(text.len()).is_err() {
            return Err(Error::encode("longer than 4 GiB"));
        }
        // Where in `out` the tokens of a word stand.
        let mut seen: AHashMap<&str, (usize, usize)> = AHashMap::new();
        let mut word_chars = String::new();
        self.splitter.split(text, &mut |word| {
            if word.len() > MAX_WORD {
                // Bytes without a token are left out, as the crate does.
                let bytes = word.bytes().filter_map(|b| self.bytes[usize::from(b)]);
                self.merges.apply(bytes, |token, _| out.push(token));
                return Ok(());
            }
            if let Some(&(start, end)) = seen.get(word) {
                out.extend_from_within(start..end);
                return Ok(());
            }
            word_chars.clear();
            word_chars.extend(word.bytes().map(|b| self.alphabet.chars[usize::from(b)]));
            let start = out.len();
            let tokens = self.bpe.tokenize(&word_chars).map_err(Error::encode)?;
            out.extend(tokens.iter().map(|token| token.id));
            if word.len() <= MAX_REMEMBERED && seen.len() < MAX_WORDS {
                seen.insert(word, (start, out.len()));
            }
            Ok(())
        })
    }
}

impl ByteLevel {
    /// Adds the bytes of `text` that [`ByteLevel::encode`] leaves out.
    pub(crate) fn find_loss(&self, text: &str, loss: &mut LossCollector) -> Result<()> {
        let is_lost = |byte: u8| self.bytes[usize::from(byte)].is_none();
        if !text.bytes().any(is_lost) {
            return Ok(());
        }
        let mut word_chars = String::new();
        self.splitter.split(text, &mut |word| {
            word_chars.clear();
            word_chars.extend(word.bytes().map(|b| self.alphabet.chars[usize::from(b)]));
            let is_token = self.whole_words && word.len() <= MAX_WORD;
            if !(is_token && self.bpe.token_to_id(&word_chars).is_some()) {
                word.chars().for_each(|c| loss.add(c, is_lost));
            }
            Ok(())
        })
    }
}

/// The pre-tokenizer named in the file, or the one that its `tokenizer.json` describes; whether a word that is a token
/// is that token. An absent name is a warning and means the default.
fn choose(m: &Metadata, vocab: &mut Vocab) -> Result<(&'static PreTokenizer, bool)> {
    let Some(name) = m.str(PRE)? else {
        vocab.warnings.push(format!(
            "metadata key `{PRE}` is missing: splitting words as `{}` does",
            pre::DEFAULT.names[0]
        ));
        return Ok((&pre::DEFAULT, pre::DEFAULT.whole_words));
    };
    if let Some(pre) = pre::find(name) {
        return Ok((pre, pre.whole_words));
    }
    let why = match m.str(recognize::KEY)? {
        Some(json) => match recognize(json) {
            Ok(found) => return Ok(found),
            Err(why) => format!("key `{}` does not tell: {why}", recognize::KEY),
        },
        None => format!("there is no key `{}` to tell from", recognize::KEY),
    };
    let found = format!("\"{}\"; {why}", escape(name, 60));
    Err(Error::Value { key: PRE, expected: "a pre-tokenizer that is known".to_owned(), found })
}

/// The merges in order, for the crate and for long words. One that is no pair of tokens, or does not make a token, is left out with a warning; of two for
/// the same pair the first counts.
pub(crate) fn merges(
    m: &Metadata,
    texts: &AHashMap<String, u32>,
    warnings: &mut Vec<String>,
) -> Result<(Vec<(String, String)>, Merges)> {
    let lines = m
        .strings(MERGES)?
        .ok_or(Error::Missing { key: MERGES, expected: "the merges of a gpt2 vocabulary" })?;
    let n = lines.len();
    if n > MAX_ENTRIES {
        let expected = format!("at most {MAX_ENTRIES} merges");
        return Err(Error::Value { key: MERGES, expected, found: n.to_string() });
    }
    let (mut pairs, mut merges) = (Vec::with_capacity(n), Merges::with_capacity(n));
    let (mut left_out, mut example) = (0, None);
    let mut union = String::new();
    for line in lines {
        let Some((left, right)) = pair(line) else {
            left_out += 1;
            example.get_or_insert(line);
            continue;
        };
        union.clear();
        union.push_str(left);
        union.push_str(right);
        match (texts.get(left), texts.get(right), texts.get(&union)) {
            (Some(&l), Some(&r), Some(&union)) => {
                if merges.insert((l, r), pairs.len() as u32, union) {
                    pairs.push((left.to_owned(), right.to_owned()));
                }
            }
            _ => {
                left_out += 1;
                example.get_or_insert(line);
            }
        }
    }
    if pairs.is_empty() && n > 0 {
        let found = format!("{n} entries such as \"{}\"", escape(example.unwrap_or_default(), 60));
        return Err(Error::Value {
            key: MERGES,
            expected: "pairs of tokens separated by a space".to_owned(),
            found,
        });
    }
    if let Some(example) = example {
        let example = escape(example, 60);
        warnings.push(format!("metadata key `{MERGES}`: {left_out} of {n} are no pairs of tokens, such as \"{example}\": ignored"));
    }
    Ok((pairs, merges))
}

/// The two sides of a merge; the left one has at least one character, which may be a space.
pub fn pair(line: &[u8]) -> Option<(&str, &str)> {
    let line = std::str::from_utf8(line).ok()?;
    let first = line.chars().next()?.len_utf8();
    let space = first + line[first..].find(' ')?;
    let right = &line[space + 1..];
    (!right.is_empty()).then_some((&line[..space], right))
}
