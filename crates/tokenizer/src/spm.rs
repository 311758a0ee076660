//! SentencePiece BPE (`tokenizer.ggml.model = llama`): the pair of neighbours whose union has the highest score is
//! merged first, of equals the leftmost.
//!
//! The merges are not in the file: they are every way to split a token into two others. Merges to the same token have the
//! same rank, and so have tokens of the same score; the `tokenizers` crate gives each merge a rank of its own, which is
//! why they run in `merge.rs`.
//!
//! Gemma 4 has the same characters, spaces and bytes with merges that are in the file.

use ahash::AHashMap;
use gguf::Metadata;

use crate::byte_level;
use crate::loss::{LossCollector, may_lose_bytes};
use crate::merge::{Merges, NONE};
use crate::vocab::{SPACE, TOKENS, Vocab};
use crate::{Error, Result};

/// Longest piece, in bytes, that merges are derived for: twice the longest known. Costs grow with the square.
const MAX_PIECE: usize = 192;
/// Most merges; the largest vocabularies have some 600,000.
const MAX_MERGES: usize = 1 << 22;

pub(crate) struct Spm {
    /// Symbol of a character: its token or, if it has none but longer tokens contain it, a number past the vocabulary.
    symbols: AHashMap<char, u32>,
    merges: Merges,
    bytes: [Option<u32>; 256],
    /// Whether some text contains bytes without a token.
    pub(crate) may_lose_bytes: bool,
    unknown: Option<u32>,
    vocab_size: u32,
}

impl Spm {
    pub(crate) fn new(vocab: &Vocab) -> Result<Spm> {
        let mut texts: AHashMap<&str, u32> = AHashMap::with_capacity(vocab.len());
        for (id, text) in vocab.made_of_text() {
            texts.entry(text).or_insert(id);
        }
        let symbols = symbols(vocab, &texts);
        let ranks = Ranks::new(vocab);
        let mut merges = Merges::default();
        for (text, &id) in texts.iter().filter(|(text, _)| text.len() <= MAX_PIECE) {
            let rank = ranks.of(vocab.score(id));
            for (at, _) in text.char_indices().skip(1) {
                let (left, right) = text.split_at(at);
                let symbol = |part| {
                    texts.get(part).copied().or_else(|| symbols.get(&only_char(part)?).copied())
                };
                if let (Some(left), Some(right)) = (symbol(left), symbol(right)) {
                    merges.insert((left, right), rank, id);
                }
            }
            if merges.len() > MAX_MERGES {
                let expected =
                    format!("tokens that split into one another in at most {MAX_MERGES} ways");
                return Err(Error::Value { key: TOKENS, expected, found: "more".to_owned() });
            }
        }
        drop(texts);
        Ok(Spm::from_parts(vocab, symbols, merges))
    }

    /// The same with the merges of the file, in their order.
    pub(crate) fn with_merges(m: &Metadata, vocab: &mut Vocab) -> Result<Spm> {
        let mut texts: AHashMap<String, u32> = AHashMap::with_capacity(vocab.len());
        for (id, text) in vocab.made_of_text() {
            texts.entry(text.to_owned()).or_insert(id);
        }
        let borrowed = texts.iter().map(|(text, &id)| (text.as_str(), id)).collect();
        let symbols = symbols(vocab, &borrowed);
        drop(borrowed);
        let (_, merges) = byte_level::merges(m, &texts, &mut vocab.warnings)?;
        Ok(Spm::from_parts(vocab, symbols, merges))
    }

    fn from_parts(vocab: &Vocab, symbols: AHashMap<char, u32>, merges: Merges) -> Spm {
        let (bytes, unknown) = (vocab.byte_tokens(), vocab.unknown);
        let may_lose_bytes = may_lose_bytes(&bytes);
        Spm { symbols, merges, bytes, may_lose_bytes, unknown, vocab_size: size(vocab) }
    }

    /// As [`Spm::encode`], but line breaks do not merge with what lies between them.
    pub(crate) fn encode_lines(&self, text: &str, out: &mut Vec<u32>) -> Result<()> {
        let mut rest = text;
        while let Some(first) = rest.chars().next() {
            let breaks = first == '\n';
            let end = rest.find(|c| (c == '\n') != breaks).unwrap_or(rest.len());
            self.encode(&rest[..end], out)?;
            rest = &rest[end..];
        }
        Ok(())
    }

    /// Appends the tokens of `text`, in which spaces are written `▁` already.
    pub(crate) fn encode(&self, text: &str, out: &mut Vec<u32>) -> Result<()> {
        self.each_piece(text, &mut |piece| match piece {
            MergedPiece::Token(token) => out.push(token),
            MergedPiece::Char(c) => self.push_char(c, out),
        })
    }

    /// Adds the bytes that have no token when `text` is encoded with spaces written as `▁`.
    pub(crate) fn find_loss(&self, text: &str, loss: &mut LossCollector) -> Result<()> {
        let is_lost = |byte: u8| self.bytes[usize::from(byte)].is_none();
        let is_space_lost = SPACE.bytes().any(is_lost);
        if !text.bytes().any(|byte| if byte == b' ' { is_space_lost } else { is_lost(byte) }) {
            return Ok(());
        }
        self.each_piece(&with_marked_spaces(text, false), &mut |piece| {
            if let MergedPiece::Char(c) = piece {
                loss.add(c, is_lost);
            }
        })
    }

    /// Calls `each` for every piece that merging makes of `text`, in order.
    fn each_piece(&self, text: &str, each: &mut dyn FnMut(MergedPiece)) -> Result<()> {
        if u32::try_from(text.len()).is_err() {
            return Err(Error::encode("longer than 4 GiB"));
        }
        let symbols = text.chars().map(|c| self.symbols.get(&c).copied().unwrap_or(NONE));
        // The characters not yet passed, for those that have to be written as bytes.
        let (mut chars, mut passed) = (text.chars(), 0);
        self.merges.apply(symbols, |symbol, at| {
            if symbol < self.vocab_size {
                each(MergedPiece::Token(symbol));
            } else if let Some(c) = chars.nth(at - passed) {
                passed = at + 1;
                each(MergedPiece::Char(c));
            }
        });
        Ok(())
    }

    /// A character without a token: its bytes, or the unknown token if some byte has none.
    fn push_char(&self, c: char, out: &mut Vec<u32>) {
        let mut buffer = [0; 4];
        let bytes = c.encode_utf8(&mut buffer).bytes().map(|b| self.bytes[usize::from(b)]);
        if bytes.clone().all(|token| token.is_some()) {
            out.extend(bytes.flatten());
        } else {
            out.extend(self.unknown);
        }
    }
}

/// Piece of a text after merging.
enum MergedPiece {
    Token(u32),
    /// A character that has no token.
    Char(char),
}

fn size(vocab: &Vocab) -> u32 {
    u32::try_from(vocab.len()).expect("the number of tokens was checked")
}

/// A symbol for every character of every token.
fn symbols(vocab: &Vocab, texts: &AHashMap<&str, u32>) -> AHashMap<char, u32> {
    let mut symbols = AHashMap::new();
    for (text, &id) in texts {
        if let Some(c) = only_char(text) {
            symbols.insert(c, id);
        }
    }
    let mut next_symbol = size(vocab);
    for c in vocab.made_of_text().flat_map(|(_, text)| text.chars()) {
        symbols.entry(c).or_insert_with(|| {
            next_symbol += 1;
            next_symbol - 1
        });
    }
    symbols
}

/// Spaces as SentencePiece writes them, with one in front if asked for.
pub(crate) fn with_marked_spaces(text: &str, prefix: bool) -> String {
    let marked = text.replace(' ', SPACE);
    if prefix { format!("{SPACE}{marked}") } else { marked }
}

fn only_char(text: &str) -> Option<char> {
    let mut chars = text.chars();
    chars.next().filter(|_| chars.next().is_none())
}

/// Ranks of scores: 0 for the highest, the same for equal ones.
struct Ranks(Vec<f32>);

impl Ranks {
    fn new(vocab: &Vocab) -> Ranks {
        // Adding 0 turns -0 into 0, so that the two are one score.
        let mut scores: Vec<f32> = vocab.ids().map(|id| vocab.score(id) + 0.0).collect();
        scores.sort_unstable_by(|a, b| b.total_cmp(a));
        scores.dedup();
        Ranks(scores)
    }

    fn of(&self, score: f32) -> u32 {
        let at = self.0.partition_point(|s| s.total_cmp(&(score + 0.0)).is_gt());
        u32::try_from(at).expect("there are no more scores than tokens")
    }
}
