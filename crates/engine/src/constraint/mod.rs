//! Replies that must have a form: a schema, an expression, a grammar. What that form is, others say ([`Constraint`]); here
//! is how its masks are had while the model computes ([`ahead`]), and what a mask is.

mod ahead;
mod either;
mod thoughts;

pub(crate) use ahead::Ahead;
pub use either::EitherForm;
pub use thoughts::ThoughtMarks;

use std::sync::Arc;

use crate::{Error, Result};

/// What a reply may consist of, as far as it has come. It starts before the first token.
pub trait Constraint: Send {
    /// The tokens that may come next, at least one: those that end a reply, if nothing else can follow.
    ///
    /// # Errors
    /// [`Error::Constraint`](crate::Error::Constraint) if that cannot be computed within bounds.
    fn mask(&mut self) -> Result<TokenMask>;

    /// The tokens that must come next because the form leaves no choice, as they would be encoded; empty where there is
    /// one, and where the vocabulary cannot say.
    fn forced(&mut self) -> Vec<u32>;

    /// A token has come.
    ///
    /// # Errors
    /// If it may not come here; nothing can come then.
    fn keep(&mut self, token: u32) -> Result<()>;

    /// The last `n` tokens have not come.
    ///
    /// # Errors
    /// If fewer have.
    fn take_back(&mut self, n: usize) -> Result<()>;

    /// This text has come before its first token, control tokens by their names.
    ///
    /// # Errors
    /// If no text of the form begins so.
    fn take_text(&mut self, text: &str) -> Result<()> {
        let problem = format!("it cannot begin within a text of {} bytes", text.len());
        Err(Error::Constraint { problem })
    }

    /// One that goes on from here by itself.
    fn fork(&self) -> Box<dyn Constraint>;
}

/// A set of tokens. Clones share their memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TokenMask {
    /// Token `i` is bit `i % 32` of word `i / 32`.
    words: Arc<Vec<u32>>,
    count: usize,
}

impl TokenMask {
    /// From bits: token `i` is bit `i % 32` of word `i / 32`.
    pub fn from_bits(words: Vec<u32>) -> TokenMask {
        let count = words.iter().map(|word| word.count_ones() as usize).sum();
        TokenMask { words: Arc::new(words), count }
    }

    /// Creates a mask of these tokens for a vocabulary of `vocab_size` tokens. Tokens outside it are left out.
    pub(crate) fn of(tokens: impl Iterator<Item = u32>, vocab_size: usize) -> TokenMask {
        let mut words = vec![0_u32; vocab_size.div_ceil(32)];
        for token in tokens {
            if let Some(word) = words.get_mut(token as usize / 32) {
                *word |= 1 << (token % 32);
            }
        }
        TokenMask::from_bits(words)
    }

    /// Returns the mask of all tokens that are in either mask.
    pub(crate) fn union(&self, other: &TokenMask) -> TokenMask {
        let n = self.words.len().max(other.words.len());
        TokenMask::from_bits((0..n).map(|i| self.word(i) | other.word(i)).collect())
    }

    /// Whether a token is in it.
    pub fn has(&self, token: u32) -> bool {
        self.word(token as usize / 32) >> (token % 32) & 1 == 1
    }

    /// How many tokens are in it.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Its tokens, by id.
    pub fn tokens(&self) -> impl Iterator<Item = u32> + '_ {
        self.words.iter().zip((0u32..).step_by(32)).flat_map(|(&word, first)| {
            let mut left = word;
            std::iter::from_fn(move || {
                let bit = left.trailing_zeros();
                left &= left.wrapping_sub(1);
                (bit < 32).then_some(first + bit)
            })
        })
    }

    /// All bits: token `i` is bit `i % 32` of word `i / 32`.
    pub(crate) fn words(&self) -> &[u32] {
        &self.words
    }

    /// The bits of 32 tokens.
    pub(crate) fn word(&self, i: usize) -> u32 {
        self.words.get(i).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Constraint that accepts exactly one sequence of tokens.
    pub(super) struct Word {
        tokens: &'static [u32],
        at: usize,
    }

    impl Word {
        pub(super) fn boxed(tokens: &'static [u32]) -> Box<dyn Constraint> {
            Box::new(Word { tokens, at: 0 })
        }
    }

    impl Constraint for Word {
        fn mask(&mut self) -> Result<TokenMask> {
            Ok(TokenMask::of(self.tokens[self.at..].iter().take(1).copied(), 300))
        }

        fn forced(&mut self) -> Vec<u32> {
            self.tokens[self.at..].to_vec()
        }

        fn keep(&mut self, token: u32) -> Result<()> {
            assert_eq!(self.tokens.get(self.at), Some(&token), "what its mask does not have");
            self.at += 1;
            Ok(())
        }

        fn take_back(&mut self, n: usize) -> Result<()> {
            self.at -= n;
            Ok(())
        }

        /// Accepts a text whose bytes are the next tokens.
        fn take_text(&mut self, text: &str) -> Result<()> {
            let tokens: Vec<u32> = text.bytes().map(u32::from).collect();
            if !self.tokens[self.at..].starts_with(&tokens) {
                return Err(Error::Constraint { problem: text.to_owned() });
            }
            self.at += tokens.len();
            Ok(())
        }

        fn fork(&self) -> Box<dyn Constraint> {
            Box::new(Word { tokens: self.tokens, at: self.at })
        }
    }

    #[test]
    fn a_mask_has_the_tokens_of_its_bits() {
        let mask = TokenMask::from_bits(vec![0b1001, 0, 1 << 31]);
        assert_eq!(mask.tokens().collect::<Vec<_>>(), [0, 3, 95]);
        assert_eq!((mask.len(), mask.is_empty()), (3, false));
        assert!(mask.has(95) && !mask.has(94) && !mask.has(9999));
        assert!(TokenMask::from_bits(vec![0; 4]).is_empty());
        let full = TokenMask::from_bits(vec![u32::MAX; 2]);
        assert!(full.tokens().eq(0..64));
    }
}
