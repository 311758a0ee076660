//! Tokens that are matched in text as a whole, before the model splits what lies between them.

use aho_corasick::{AhoCorasick, MatchKind};

use crate::vocab::{TOKEN_TYPE, TokenKind, Vocab};
use crate::{Error, Result};

/// Most text of tokens to find, in bytes. Real vocabularies have some 10 KiB; the automaton takes some 50 times that.
const MAX_TEXT: usize = 2 << 20;

/// Finds whole tokens in text: at each place the leftmost, of those the longest. Linear in the text.
pub(crate) struct Matcher {
    /// `None` if there is nothing to find.
    search: Option<AhoCorasick>,
    ids: Vec<u32>,
}

/// A piece of a text cut at whole tokens.
#[derive(Debug, PartialEq)]
pub(crate) enum Piece<'t> {
    Text(&'t str),
    Token(u32),
}

impl Matcher {
    /// Finds the tokens of the given kinds. Empty texts match nothing; of equal texts the first token is found.
    pub(crate) fn new(vocab: &Vocab, kinds: &[TokenKind]) -> Result<Matcher> {
        let of_kind = |id: &u32| vocab.kind(*id).is_some_and(|kind| kinds.contains(&kind));
        let (ids, texts): (Vec<u32>, Vec<&str>) =
            vocab.ids().filter(of_kind).filter_map(|id| Some((id, vocab.matchable(id)?))).unzip();
        let bytes: usize = texts.iter().map(|text| text.len()).sum();
        if bytes > MAX_TEXT {
            return Err(Error::Value {
                key: TOKEN_TYPE,
                expected: format!("at most {MAX_TEXT} bytes of control and user-defined tokens"),
                found: bytes.to_string(),
            });
        }
        let search = match texts.is_empty() {
            true => None,
            false => Some(
                AhoCorasick::builder()
                    .match_kind(MatchKind::LeftmostLongest)
                    .build(texts)
                    .map_err(Error::vocabulary)?,
            ),
        };
        Ok(Matcher { search, ids })
    }

    /// Cuts `text` into tokens and the non-empty texts between them, in order.
    pub(crate) fn cut<'t>(&self, text: &'t str, mut each: impl FnMut(Piece<'t>)) {
        let mut done = 0;
        for found in self.search.iter().flat_map(|search| search.find_iter(text)) {
            if done < found.start() {
                each(Piece::Text(&text[done..found.start()]));
            }
            each(Piece::Token(self.ids[found.pattern().as_usize()]));
            done = found.end();
        }
        if done < text.len() {
            each(Piece::Text(&text[done..]));
        }
    }
}
