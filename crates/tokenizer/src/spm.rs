//! SentencePiece BPE (`tokenizer.ggml.model = llama`): the pair of neighbours whose union has the highest score is
//! merged first, of equals the leftmost.
//!
//! The merges are not in the file: they are every way to split a token into two others. The `tokenizers` crate cannot
//! run them, because it gives each merge a rank of its own and so has no ties to break by position; and as this kind of
//! vocabulary is applied to the whole text at once, its tables of symbols have to stay small.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use ahash::AHashMap;

use crate::vocab::{SPACE, Vocab};
use crate::{Error, Result};

/// A character that is in no token: never merged, written as bytes.
const NO_SYMBOL: u32 = u32::MAX;

/// No neighbour.
const NONE: u32 = u32::MAX;

pub(crate) struct Spm {
    /// Symbol of a character: its token or, if it has none but longer tokens contain it, a number past the vocabulary.
    symbols: AHashMap<char, u32>,
    /// Rank (0 first, equal scores have equal ranks) and token of a pair of symbols.
    merges: AHashMap<(u32, u32), (u32, u32)>,
    bytes: [Option<u32>; 256],
    unknown: Option<u32>,
    vocab_size: u32,
}

/// A run of characters that has become one symbol. Linked, so that a merge takes constant time.
struct Node {
    symbol: u32,
    /// Where it starts in the text.
    start: u32,
    prev: u32,
    next: u32,
}

impl Spm {
    pub(crate) fn new(vocab: &mut Vocab) -> Spm {
        let vocab_size = u32::try_from(vocab.len())
            .expect("the vocabulary was checked to have fewer than 2^32 tokens");
        let mut texts: AHashMap<&str, u32> = AHashMap::with_capacity(vocab.len());
        for (id, text) in vocab.made_of_text() {
            texts.entry(text).or_insert(id);
        }
        let mut symbols = AHashMap::new();
        for (text, &id) in &texts {
            if let Some(c) = only_char(text) {
                symbols.insert(c, id);
            }
        }
        let mut next_symbol = vocab_size;
        for c in vocab.made_of_text().flat_map(|(_, text)| text.chars()) {
            symbols.entry(c).or_insert_with(|| {
                next_symbol += 1;
                next_symbol - 1
            });
        }
        let ranks = Ranks::new(vocab);
        let mut merges = AHashMap::new();
        for (text, &id) in &texts {
            let rank = ranks.of(vocab.score(id));
            for (at, _) in text.char_indices().skip(1) {
                let (left, right) = text.split_at(at);
                let symbol = |part| {
                    texts.get(part).copied().or_else(|| symbols.get(&only_char(part)?).copied())
                };
                if let (Some(left), Some(right)) = (symbol(left), symbol(right)) {
                    merges.insert((left, right), (rank, id));
                }
            }
        }
        let (bytes, unknown) = (vocab.byte_tokens(), vocab.unknown);
        drop(texts);
        let missing = bytes.iter().filter(|token| token.is_none()).count();
        if missing > 0 && unknown.is_none() {
            vocab.warnings.push(format!(
                "{missing} byte values have no token and there is no unknown token: characters that need them are dropped"
            ));
        }
        Spm { symbols, merges, bytes, unknown, vocab_size }
    }

    /// Appends the tokens of `text`, in which spaces are written `▁` already.
    pub(crate) fn encode(&self, text: &str, out: &mut Vec<u32>) -> Result<()> {
        if u32::try_from(text.len()).is_err() {
            return Err(Error::encode("longer than 4 GiB"));
        }
        let mut nodes: Vec<Node> = (0_u32..)
            .zip(text.char_indices())
            .map(|(i, (start, c))| Node {
                symbol: self.symbols.get(&c).copied().unwrap_or(NO_SYMBOL),
                start: start as u32,
                prev: i.wrapping_sub(1),
                next: i + 1,
            })
            .collect();
        let Some(last) = nodes.last_mut() else { return Ok(()) };
        last.next = NONE;
        self.merge(&mut nodes);
        let mut at = 0;
        while at != NONE {
            let node = &nodes[at as usize];
            if node.symbol < self.vocab_size {
                out.push(node.symbol);
            } else {
                let c = text[node.start as usize..]
                    .chars()
                    .next()
                    .expect("a node starts at a character");
                self.push_char(c, out);
            }
            at = node.next;
        }
        Ok(())
    }

    /// Merges until no pair of neighbours is a token.
    fn merge(&self, nodes: &mut [Node]) {
        let pair = |nodes: &[Node], left: u32, right: u32| {
            self.merges.get(&(nodes[left as usize].symbol, nodes[right as usize].symbol)).copied()
        };
        // Least rank first, then leftmost. Entries whose pair is gone are skipped when they come up.
        let mut queue: BinaryHeap<Reverse<(u32, u32, u32)>> = (0_u32..)
            .take(nodes.len().saturating_sub(1))
            .filter_map(|left| {
                pair(nodes, left, left + 1).map(|(rank, token)| Reverse((rank, left, token)))
            })
            .collect();
        while let Some(Reverse((rank, left, token))) = queue.pop() {
            let right = nodes[left as usize].next;
            if nodes[left as usize].symbol == NO_SYMBOL
                || right == NONE
                || pair(nodes, left, right) != Some((rank, token))
            {
                continue;
            }
            let next = nodes[right as usize].next;
            // No pair contains it, so what still refers to it is skipped.
            nodes[right as usize].symbol = NO_SYMBOL;
            nodes[left as usize].symbol = token;
            nodes[left as usize].next = next;
            if next != NONE {
                nodes[next as usize].prev = left;
                queue.extend(
                    pair(nodes, left, next).map(|(rank, token)| Reverse((rank, left, token))),
                );
            }
            let prev = nodes[left as usize].prev;
            if prev != NONE {
                queue.extend(
                    pair(nodes, prev, left).map(|(rank, token)| Reverse((rank, prev, token))),
                );
            }
        }
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
