//! Suffix drafts: what followed the longest end of this text wherever it stood before, in any text of this process.
//!
//! All texts go into one suffix automaton (Blumer et al. 1985): a state stands for the strings that end at the same places,
//! an edge for a token that followed them, with how often it did. The state of a whole text has a link to that of its
//! longest end that stands somewhere else too; from there the commonest edges are the draft. Source of the idea:
//! arXiv:2411.04975.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use foldhash::fast::RandomState;

use super::{Draft, Drafter, locked};
use crate::alike::alike;
use crate::{Result, Sampler};

/// The shortest end worth a draft.
const SHORTEST: u32 = 2;
/// A draft ends where it holds with less than this probability, by what was counted.
const LEAST: f64 = 0.25;
/// Ends of the text, longest first, whose edges are counted for a new token: in a text of one token there are as many as
/// tokens.
const COUNTED: usize = 48;
/// Tokens of all texts before they are forgotten, unless less memory is given.
const MOST_TOKENS: usize = 1 << 18;
/// Bytes that a token takes, about.
const TOKEN_BYTES: u64 = 200;

/// Texts, and what followed what in them.
#[derive(Debug)]
pub struct Suffixes {
    states: Vec<State>,
    n_tokens: usize,
    /// Most of them.
    most: usize,
    /// How often all was forgotten.
    age: u64,
}

#[derive(Clone, Debug)]
struct State {
    /// Length of its longest string.
    len: u32,
    /// The state of the longest end that is not in this one; the root has itself.
    link: u32,
    edges: Edges,
}

#[derive(Clone, Copy, Debug)]
struct Edge {
    to: u32,
    count: u32,
}

/// Edges by token: most states have one, the root has many.
#[derive(Clone, Debug)]
enum Edges {
    Few(Vec<(u32, Edge)>),
    Many(HashMap<u32, Edge, RandomState>),
}

const FEW: usize = 8;
const ROOT: u32 = 0;

impl Edges {
    fn get(&self, token: u32) -> Option<Edge> {
        match self {
            Edges::Few(edges) => edges.iter().find(|(t, _)| *t == token).map(|(_, edge)| *edge),
            Edges::Many(edges) => edges.get(&token).copied(),
        }
    }

    fn get_mut(&mut self, token: u32) -> Option<&mut Edge> {
        match self {
            Edges::Few(edges) => edges.iter_mut().find(|(t, _)| *t == token).map(|(_, edge)| edge),
            Edges::Many(edges) => edges.get_mut(&token),
        }
    }

    fn insert(&mut self, token: u32, edge: Edge) {
        match self {
            Edges::Few(edges) if edges.len() < FEW => edges.push((token, edge)),
            Edges::Few(edges) => {
                let mut many: HashMap<u32, Edge, RandomState> = edges.drain(..).collect();
                many.insert(token, edge);
                *self = Edges::Many(many);
            }
            Edges::Many(edges) => {
                edges.insert(token, edge);
            }
        }
    }

    /// The edge that was taken most, of equals the one to the lower token, and its share of all.
    fn commonest(&self) -> Option<(u32, Edge, f64)> {
        let better = |best: &mut Option<(u32, Edge)>, token: u32, edge: Edge| {
            let beats = |(t, e): &(u32, Edge)| (edge.count, *t) > (e.count, token);
            if best.as_ref().is_none_or(beats) {
                *best = Some((token, edge));
            }
        };
        let (mut best, mut total) = (None, 0u64);
        let mut look = |token: u32, edge: Edge| {
            total += u64::from(edge.count);
            better(&mut best, token, edge);
        };
        match self {
            Edges::Few(edges) => edges.iter().for_each(|(token, edge)| look(*token, *edge)),
            Edges::Many(edges) => edges.iter().for_each(|(token, edge)| look(*token, *edge)),
        }
        best.map(|(token, edge)| (token, edge, f64::from(edge.count) / total as f64))
    }
}

impl Default for Suffixes {
    fn default() -> Self {
        let root = State { len: 0, link: ROOT, edges: Edges::Few(Vec::new()) };
        Suffixes { states: vec![root], n_tokens: 0, most: MOST_TOKENS, age: 0 }
    }
}

impl Suffixes {
    /// Texts that take about so many bytes at most; of longer ones the end is known.
    pub fn within(bytes: u64) -> Suffixes {
        let most = usize::try_from(bytes / TOKEN_BYTES).unwrap_or(usize::MAX).min(MOST_TOKENS);
        Suffixes { most, ..Suffixes::default() }
    }

    /// Tokens held.
    pub fn n_tokens(&self) -> usize {
        self.n_tokens
    }

    /// Most tokens held.
    pub(super) fn most(&self) -> usize {
        self.most
    }

    /// The state of the text whose state without `token` is `last`.
    fn append(&mut self, last: u32, token: u32) -> u32 {
        self.n_tokens += 1;
        if let Some(edge) = self.states[last as usize].edges.get(token) {
            // another text said so before
            let state = self.split(last, token, edge.to);
            self.count(last, token);
            return state;
        }
        let len = self.states[last as usize].len + 1;
        let new = self.add(State { len, link: ROOT, edges: Edges::Few(Vec::new()) });
        let mut from = last;
        loop {
            let state = &mut self.states[from as usize];
            if let Some(edge) = state.edges.get(token) {
                let link = self.split(from, token, edge.to);
                self.states[new as usize].link = link;
                self.count(from, token);
                return new;
            }
            state.edges.insert(token, Edge { to: new, count: 1 });
            if from == ROOT {
                return new;
            }
            from = state.link;
        }
    }

    /// The state of the strings of `from` and `token` alone, where the edge leads to a state that has longer ones too.
    fn split(&mut self, from: u32, token: u32, to: u32) -> u32 {
        let len = self.states[from as usize].len + 1;
        if self.states[to as usize].len == len {
            return to;
        }
        let State { link, edges, .. } = self.states[to as usize].clone();
        let shorter = self.add(State { len, link, edges });
        self.states[to as usize].link = shorter;
        let mut at = from;
        loop {
            let state = &mut self.states[at as usize];
            match state.edges.get_mut(token) {
                Some(edge) if edge.to == to => edge.to = shorter,
                _ => return shorter,
            }
            if at == ROOT {
                return shorter;
            }
            at = state.link;
        }
    }

    /// `token` followed the strings of `from`, and their ends.
    fn count(&mut self, from: u32, token: u32) {
        let mut at = from;
        for _ in 0..COUNTED {
            let state = &mut self.states[at as usize];
            if let Some(edge) = state.edges.get_mut(token) {
                edge.count = edge.count.saturating_add(1);
            }
            if at == ROOT {
                return;
            }
            at = state.link;
        }
    }

    fn add(&mut self, state: State) -> u32 {
        self.states.push(state);
        (self.states.len() - 1) as u32
    }

    /// What followed the longest end of the text of state `last` that stands elsewhere too.
    fn draft(&self, last: u32, max: usize) -> Draft {
        // what is said again whole goes on as it did; else its longest end that stands elsewhere
        let whole = &self.states[last as usize];
        let mut at = if whole.edges.commonest().is_some() { last } else { whole.link };
        let matched = self.states[at as usize].len;
        if matched < SHORTEST {
            return Draft::default();
        }
        let (mut tokens, mut holds, mut first) = (Vec::new(), 1.0, 0.0);
        while tokens.len() < max {
            let Some((token, edge, share)) = self.states[at as usize].edges.commonest() else {
                // nothing ever followed so long an end
                at = self.states[at as usize].link;
                if self.states[at as usize].len < SHORTEST {
                    break;
                }
                continue;
            };
            holds *= share;
            if holds < LEAST {
                break;
            }
            if tokens.is_empty() {
                first = share;
            }
            tokens.push(token);
            at = edge.to;
        }
        // lengths 2 to 3, 4 to 7, 8 to 15, longer; and whether nothing else ever followed
        let length = (matched.ilog2() as usize).clamp(1, 4) - 1;
        Draft { tokens, class: 2 * length + usize::from(first >= 0.9) }
    }
}

/// Drafts for one text from all texts.
pub(super) struct SuffixDrafter {
    suffixes: Arc<Mutex<Suffixes>>,
    text: Vec<u32>,
    /// The states of the text's beginnings, the empty one left out.
    states: Vec<u32>,
    age: u64,
}

impl SuffixDrafter {
    pub(super) fn new(suffixes: Arc<Mutex<Suffixes>>) -> SuffixDrafter {
        SuffixDrafter { suffixes, text: Vec::new(), states: Vec::new(), age: 0 }
    }

    /// Add what of the text is not in yet.
    fn catch_up(&mut self) {
        let mut suffixes = locked(&self.suffixes);
        let most = suffixes.most;
        if suffixes.n_tokens + self.text.len() - self.states.len() > most {
            *suffixes = Suffixes { age: suffixes.age + 1, most, ..Suffixes::default() };
        }
        if suffixes.age != self.age {
            self.age = suffixes.age;
            self.states.clear();
        }
        // a text that is longer than all that is held is known by its end
        let skipped = (self.text.len() - self.states.len()).saturating_sub(most);
        self.states.extend(std::iter::repeat_n(ROOT, skipped));
        for &token in &self.text[self.states.len()..] {
            let last = self.states.last().copied().unwrap_or(ROOT);
            self.states.push(suffixes.append(last, token));
        }
    }
}

impl Drafter for SuffixDrafter {
    fn name(&self) -> &'static str {
        "suffix"
    }

    fn begin(&mut self, tokens: &[u32], _: &Sampler) {
        let same = alike(&self.text, tokens);
        self.text.truncate(same);
        self.states.truncate(same);
        self.push(&tokens[same..]);
    }

    fn push(&mut self, tokens: &[u32]) {
        self.text.extend_from_slice(tokens);
        self.catch_up();
    }

    fn draft(&mut self, max: usize) -> Result<Draft> {
        self.catch_up();
        let suffixes = locked(&self.suffixes);
        Ok(self.states.last().map_or_else(Draft::default, |&last| suffixes.draft(last, max)))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::SamplerOptions;

    fn sampler() -> Sampler {
        Sampler::new(SamplerOptions::greedy()).expect("they are in range")
    }

    fn shared() -> Arc<Mutex<Suffixes>> {
        Arc::default()
    }

    fn drafted(drafter: &mut SuffixDrafter, max: usize) -> Vec<u32> {
        drafter.draft(max).unwrap_or_default().tokens
    }

    #[test]
    fn another_text_is_continued() {
        let all = shared();
        SuffixDrafter::new(Arc::clone(&all)).begin(&[1, 2, 3, 4, 5, 6], &sampler());
        let mut text = SuffixDrafter::new(all);
        text.begin(&[9, 3, 4], &sampler());
        assert_eq!(drafted(&mut text, 5), [5, 6]);
        text.push(&[7]);
        assert!(drafted(&mut text, 5).is_empty());
    }

    #[test]
    fn a_text_that_is_said_again_goes_on_as_it_did() {
        let all = shared();
        SuffixDrafter::new(Arc::clone(&all)).begin(&[1, 2, 3, 4, 5, 6], &sampler());
        let mut text = SuffixDrafter::new(all);
        text.begin(&[1, 2, 3], &sampler());
        assert_eq!(drafted(&mut text, 2), [4, 5]);
    }

    #[test]
    fn the_commonest_continuation_is_taken() {
        let mut text = SuffixDrafter::new(shared());
        text.begin(&[1, 2, 3, 0, 1, 2, 4, 0, 1, 2, 3, 8, 1, 2], &sampler());
        assert_eq!(drafted(&mut text, 1), [3]);
        let rare: Vec<u32> = (10..20).flat_map(|x| [1, 2, x]).chain([1, 2]).collect();
        let mut text = SuffixDrafter::new(shared());
        text.begin(&rare, &sampler());
        assert!(drafted(&mut text, 1).is_empty(), "one of ten is not worth it");
    }

    /// An edit goes on from what both texts begin with.
    #[test]
    fn an_edited_text_is_the_text() {
        let (all, text) = (shared(), [1, 2, 3, 4, 1, 2, 3, 5, 1, 2]);
        let mut edited = SuffixDrafter::new(Arc::clone(&all));
        edited.begin(&text, &sampler());
        edited.begin(&[1, 2, 3, 4, 7, 3, 4], &sampler());
        assert_eq!(drafted(&mut edited, 1).len(), 1);
        assert_eq!(edited.text, [1, 2, 3, 4, 7, 3, 4]);
        assert_eq!(edited.states.len(), edited.text.len());
    }

    #[test]
    fn memory_is_bounded() {
        let all = shared();
        let mut text = SuffixDrafter::new(Arc::clone(&all));
        for part in 0..5u32 {
            let tokens: Vec<u32> =
                (0..1 << 16).map(|i: u32| (i.wrapping_mul(2_654_435_761) ^ part) % 5000).collect();
            text.push(&tokens);
            assert!(locked(&all).n_tokens() <= MOST_TOKENS);
        }
        assert_eq!(text.states.len(), text.text.len());
        // one token over and over: an end for each token
        let mut text = SuffixDrafter::new(shared());
        text.begin(&vec![3; 20_000], &sampler());
        assert_eq!(drafted(&mut text, 4), [3, 3, 3, 3]);
    }

    /// The longest end of the last of `texts` that stands elsewhere in them, by looking.
    fn longest(texts: &[Vec<u32>]) -> usize {
        let (last, others) = texts.split_last().expect("there is a text");
        let fits = |n: &usize| {
            let end = &last[last.len() - n..];
            let inner = last[..last.len() - 1].windows(*n).any(|w| w == end);
            inner || others.iter().any(|text| text.windows(*n).any(|w| w == end))
        };
        (1..=last.len()).take_while(fits).last().unwrap_or(0)
    }

    proptest! {
        /// The link of a text is its longest end that stands elsewhere, and the draft what followed it most.
        #[test]
        fn links_are_what_they_mean(texts in prop::collection::vec(prop::collection::vec(0u32..3, 1..30), 1..5)) {
            let all = shared();
            let mut states = 0;
            for text in &texts {
                let mut drafter = SuffixDrafter::new(Arc::clone(&all));
                drafter.begin(text, &sampler());
                states = drafter.states.last().copied().unwrap_or(ROOT);
            }
            let suffixes = locked(&all);
            let n = texts.iter().map(Vec::len).sum::<usize>();
            prop_assert!(suffixes.states.len() <= 2 * n + 1);
            let want = longest(&texts);
            let text = texts.last().expect("there is a text");
            let linked = suffixes.states[suffixes.states[states as usize].link as usize].len as usize;
            // a text that is the end of an earlier one is a state of its own string: all of it stands elsewhere
            prop_assert!(linked == want || want == text.len(), "{linked} {want}");
            // every beginning of every text is found from the root
            for text in &texts {
                let mut at = ROOT;
                for &token in text {
                    let edge = suffixes.states[at as usize].edges.get(token);
                    prop_assert!(edge.is_some());
                    at = edge.map_or(ROOT, |edge| edge.to);
                }
            }
        }
    }
}
