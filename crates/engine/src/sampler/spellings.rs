//! What tokens spell, at hand for samplers that ask.

use std::sync::Arc;

use crate::Vocabulary;

/// The bytes of all tokens, and which of them end a reply.
#[derive(Debug, Default)]
pub struct Spellings {
    bytes: Vec<u8>,
    /// Where each token's bytes end.
    ends: Vec<usize>,
    /// By id.
    eog: Vec<u32>,
}

impl Spellings {
    /// Those of `vocabulary`, found once where it keeps them.
    pub(super) fn of(vocabulary: &dyn Vocabulary) -> Arc<Spellings> {
        let new = || Arc::new(Spellings::new(vocabulary));
        vocabulary.spellings().map_or_else(new, |kept| Arc::clone(kept.get_or_init(new)))
    }

    /// Of the tokens of `vocabulary`.
    pub(super) fn new(vocabulary: &dyn Vocabulary) -> Spellings {
        let mut spellings = Spellings::default();
        for token in 0..vocabulary.vocab_size() as u32 {
            spellings.bytes.extend_from_slice(&vocabulary.bytes(token));
            spellings.ends.push(spellings.bytes.len());
            if vocabulary.is_eog(token) {
                spellings.eog.push(token);
            }
        }
        spellings
    }

    /// The bytes of a token, none of control tokens and of those that are not there.
    pub(super) fn bytes(&self, token: u32) -> &[u8] {
        let at = token as usize;
        let Some(&end) = self.ends.get(at) else { return &[] };
        let start = at.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.bytes[start..end]
    }

    /// Whether a token ends a reply.
    pub(super) fn is_eog(&self, token: u32) -> bool {
        self.eog.binary_search(&token).is_ok()
    }

    /// Those that do, by id.
    pub(super) fn eog(&self) -> &[u32] {
        &self.eog
    }
}
