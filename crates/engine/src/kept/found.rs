//! By what conversations on disk are found: their tokens in stretches, each known by a hash of itself and all before it.

use std::hash::{DefaultHasher, Hash, Hasher};

use super::note::Note;
use crate::alike::alike;

/// Tokens of a stretch.
pub(super) const STRETCH: usize = 16;

/// What is known of a conversation on disk.
pub(super) struct Known {
    pub(super) note: Note,
    /// Why it is of no use here, if it is not.
    pub(super) differs: Option<String>,
    /// Whether somebody was told that.
    pub(super) is_told: bool,
    /// How often its name was given anew.
    pub(super) version: u64,
    pub(super) stretches: Box<[u64]>,
}

impl Known {
    pub(super) fn new(tokens: &[u32], note: Note, differs: Option<String>) -> Known {
        let stretches = stretches(tokens).into();
        Known { note, differs, is_told: false, version: 0, stretches }
    }

    /// With how many stretches it begins as these do.
    pub(super) fn shares(&self, wanted: &[u64]) -> usize {
        alike(&self.stretches, wanted)
    }
}

/// Hashes of whole stretches of these tokens.
pub(super) fn stretches(tokens: &[u32]) -> Vec<u64> {
    let mut before = 0;
    let next = |tokens: &[u32]| {
        let mut hash = DefaultHasher::new();
        (before, tokens).hash(&mut hash);
        before = hash.finish();
        before
    };
    tokens.chunks_exact(STRETCH).map(next).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conversations_are_found_by_how_they_begin() {
        let tokens: Vec<u32> = (0..400).collect();
        let mut other = tokens.clone();
        other[130] = 7;
        let known = Known::new(&tokens, Note { owner: Default::default(), pace: None }, None);
        assert_eq!(known.shares(&stretches(&tokens[..399])), 24);
        assert_eq!(known.shares(&stretches(&tokens[..300])), 18);
        assert_eq!(known.shares(&stretches(&other)), 8, "nothing after what differs");
        assert_eq!(known.shares(&stretches(&tokens[1..])), 0);
        assert_eq!(alike(&tokens, &other), 130);
    }
}
