//! Texts over which no repetition is seen ("sequence breakers"), looked up among tokens.

use std::collections::{HashMap, HashSet};

use crate::Vocabulary;

/// Bytes of a breaker that count; llama.cpp cuts at the same.
const LONGEST: usize = 40;

/// What each token means for a list of breakers.
#[derive(Clone, Debug, Default)]
pub(super) struct Breakers {
    /// Tokens with a breaker within them.
    whole: HashSet<u32>,
    /// Tokens whose end begins a breaker, with what is missing of it.
    begins: HashMap<u32, Vec<Rest>>,
    /// What a token does to what is missing; a token that is not here ends in nothing.
    goes_on: HashMap<(Rest, u32), Option<Rest>>,
}

/// What is missing of a breaker: which one, and how much of it has come.
type Rest = (usize, usize);

impl Breakers {
    /// The breakers `texts` among the tokens of `vocabulary`.
    pub(super) fn new(texts: &[String], vocabulary: &dyn Vocabulary) -> Breakers {
        let mut breakers = Breakers::default();
        let texts: Vec<&[u8]> = texts.iter().map(|text| cut(text)).collect();
        for token in 0..vocabulary.vocab_size() as u32 {
            let bytes = vocabulary.bytes(token);
            for (i, text) in texts.iter().enumerate().filter(|(_, text)| !text.is_empty()) {
                breakers.enter(token, &bytes, i, text);
            }
        }
        breakers
    }

    fn enter(&mut self, token: u32, bytes: &[u8], i: usize, text: &[u8]) {
        if bytes.windows(text.len()).any(|window| window == text) {
            self.whole.insert(token);
            return;
        }
        for come in 1..text.len() {
            if bytes.ends_with(&text[..come]) {
                self.begins.entry(token).or_default().push((i, come));
            }
            let rest = &text[come..];
            if bytes.starts_with(rest) {
                self.goes_on.insert(((i, come), token), None);
            } else if !bytes.is_empty() && rest.starts_with(bytes) {
                self.goes_on.insert(((i, come), token), Some((i, come + bytes.len())));
            }
        }
    }

    /// Whether a breaker is within this token.
    pub(super) fn is_one(&self, token: u32) -> bool {
        self.whole.contains(&token)
    }

    /// How many tokens come after the last breaker in `tokens`; all of them if there is none.
    pub(super) fn tokens_after_last(&self, tokens: &[u32]) -> usize {
        if self.whole.is_empty() && self.begins.is_empty() {
            return tokens.len();
        }
        let ends = (0..tokens.len()).rev().find_map(|first| self.end(tokens, first));
        tokens.len() - ends.unwrap_or(0)
    }

    /// Where the longest breaker that begins in token `first` ends: the next token.
    fn end(&self, tokens: &[u32], first: usize) -> Option<usize> {
        let whole = self.is_one(tokens[first]).then_some(first + 1);
        let longer = self.begins.get(&tokens[first]).into_iter().flatten();
        longer.filter_map(|&rest| self.completed(tokens, first + 1, rest)).max().or(whole)
    }

    fn completed(&self, tokens: &[u32], from: usize, mut rest: Rest) -> Option<usize> {
        for (at, &token) in tokens.iter().enumerate().skip(from) {
            match self.goes_on.get(&(rest, token))? {
                None => return Some(at + 1),
                Some(next) => rest = *next,
            }
        }
        None
    }
}

/// The bytes of a breaker that count.
fn cut(text: &str) -> &[u8] {
    &text.as_bytes()[..text.len().min(LONGEST)]
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use proptest::prelude::*;

    use super::*;

    /// Tokens are these texts.
    struct Words(&'static [&'static str]);

    impl Vocabulary for Words {
        fn bytes(&self, token: u32) -> Cow<'_, [u8]> {
            Cow::Borrowed(self.0[token as usize].as_bytes())
        }
        fn vocab_size(&self) -> usize {
            self.0.len()
        }
        fn spelling(&self, token: u32) -> Option<Cow<'_, str>> {
            self.0.get(token as usize).map(|word| Cow::Borrowed(*word))
        }
        fn is_eog(&self, _: u32) -> bool {
            false
        }
    }

    const WORDS: Words = Words(&["a", "b", "ab", ":", "x:y", "y", "aab", "ba"]);

    /// The definition: the last token in which a breaker begins, of the breakers there the one that ends last.
    fn naive(texts: &[&str], tokens: &[u32]) -> usize {
        let mut starts = vec![0];
        for &token in tokens {
            starts.push(starts[starts.len() - 1] + WORDS.0[token as usize].len());
        }
        let text: String = tokens.iter().map(|&token| WORDS.0[token as usize]).collect();
        let token_of = |byte: usize| starts.iter().rposition(|&start| start <= byte).unwrap();
        // a text within one token counts as a token, also where a part of it could go on
        let found = (0..text.len()).flat_map(|at| {
            let here = texts.iter().filter(move |breaker| !breaker.is_empty());
            let text = &text;
            here.filter(move |breaker| text[at..].starts_with(**breaker))
                .map(move |breaker| (at, at + breaker.len() - 1))
        });
        let found = found.map(|(first, last)| (token_of(first), token_of(last) + 1));
        tokens.len() - found.max().map_or(0, |(_, end)| end)
    }

    proptest! {
        #[test]
        fn breakers_are_found_over_tokens(tokens in prop::collection::vec(0u32..8, 0..12)) {
            for texts in [&[":"][..], &["aab"], &["ab", "x"], &["ba:"], &["bb", ""]] {
                let owned: Vec<String> = texts.iter().map(|text| (*text).to_owned()).collect();
                let got = Breakers::new(&owned, &WORDS).tokens_after_last(&tokens);
                prop_assert_eq!(got, naive(texts, &tokens), "{:?}", texts);
            }
        }
    }

    #[test]
    fn without_breakers_everything_counts() {
        assert_eq!(Breakers::default().tokens_after_last(&[1, 2, 3]), 3);
        assert!(!Breakers::new(&[":".to_owned()], &WORDS).is_one(0));
        assert!(Breakers::new(&[":".to_owned()], &WORDS).is_one(4));
    }
}
