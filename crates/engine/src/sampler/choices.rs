//! The tokens that may still be drawn, with their logits: the model's whole row at first, then a list of few.
//!
//! What narrows or changes them works on either. As long as it is a row, its peaks tell which stretches need no look,
//! so that nothing here passes over the vocabulary unless a sampler needs every logit.

use program::{Candidate, PEAK, k_likeliest};

use crate::TokenMask;

/// A logit of this or less is of a token that must not be drawn.
pub(crate) const BANNED: f32 = f32::MIN;

/// Where a mask has at most one in so many tokens, these are gathered; else the others are banned.
const FEW: usize = 8;

/// Memory that is used again for the next token.
#[derive(Clone, Debug, Default)]
pub(super) struct Buffers {
    /// A changed copy of the row.
    logits: Vec<f32>,
    peaks: Vec<f32>,
    list: Vec<Candidate>,
}

/// Where the tokens are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// All of them, as the model made them.
    Given,
    /// All of them, in the changed copy.
    Changed,
    /// Those in the list, in no order that means something.
    List,
    /// Those in the list, likeliest first.
    Sorted,
}

/// What may be drawn. There is at least one token.
#[derive(Debug)]
pub(super) struct Choices<'a> {
    given: (&'a [f32], &'a [f32]),
    buffers: &'a mut Buffers,
    place: Place,
    /// What left tokens out: how they are held then must not show.
    mask: Option<&'a TokenMask>,
    /// Logits are to be divided by this.
    temperature: f32,
}

impl<'a> Choices<'a> {
    /// Every token of a row. `logits` are finite and not empty, none is above its stretch's peak; `peaks` may be empty.
    pub(super) fn new(
        logits: &'a [f32],
        peaks: &'a [f32],
        buffers: &'a mut Buffers,
    ) -> Choices<'a> {
        Choices {
            given: (logits, peaks),
            buffers,
            place: Place::Given,
            mask: None,
            temperature: 1.0,
        }
    }

    /// The likeliest tokens of a row, likeliest first, of which `wanted` were asked for: fewer are all there are.
    pub(super) fn of(
        likeliest: &[Candidate],
        wanted: usize,
        buffers: &'a mut Buffers,
    ) -> Choices<'a> {
        buffers.list.clear();
        buffers.list.extend_from_slice(likeliest);
        let place = if likeliest.len() < wanted { Place::List } else { Place::Sorted };
        if place == Place::List {
            // as a row is read
            buffers.list.sort_unstable_by_key(|candidate| candidate.token);
        }
        Choices { given: (&[], &[]), buffers, place, mask: None, temperature: 1.0 }
    }

    /// Some tokens of a row, by id: none that is not here comes into question.
    pub(super) fn listed(list: &[Candidate], buffers: &'a mut Buffers) -> Choices<'a> {
        buffers.list.clear();
        buffers.list.extend_from_slice(list);
        Choices { given: (&[], &[]), buffers, place: Place::List, mask: None, temperature: 1.0 }
    }

    /// Leave only the tokens of a mask. Comes before all else.
    pub(super) fn keep_allowed(&mut self, mask: &'a TokenMask) {
        if self.place == Place::List {
            self.buffers.list.retain(|one| mask.has(one.token));
            return self.masked(mask);
        }
        let few = mask.len() <= self.given.0.len() / FEW;
        if few { self.gather(mask) } else { self.ban_others(mask) }
    }

    /// The tokens of a mask as list.
    fn gather(&mut self, mask: &'a TokenMask) {
        let logits = self.given.0;
        let there = mask.tokens().take_while(|&token| (token as usize) < logits.len());
        let candidates = there.map(|token| Candidate { token, logit: logits[token as usize] });
        self.buffers.list.clear();
        self.buffers.list.extend(candidates);
        self.masked(mask);
    }

    /// The list has the tokens of a mask.
    fn masked(&mut self, mask: &'a TokenMask) {
        if self.buffers.list.is_empty() {
            self.buffers.list.push(Candidate { token: 0, logit: BANNED });
        }
        (self.place, self.mask) = (Place::List, Some(mask));
    }

    /// A row in which all others are banned.
    fn ban_others(&mut self, mask: &'a TokenMask) {
        self.mask = Some(mask);
        self.copy_row();
        let Buffers { logits, peaks, .. } = &mut *self.buffers;
        for (i, stretch) in logits.chunks_mut(PEAK).enumerate() {
            let bits = u64::from(mask.word(2 * i)) | u64::from(mask.word(2 * i + 1)) << 32;
            if bits == u64::MAX {
                continue;
            }
            let mut peak = BANNED;
            for (at, logit) in stretch.iter_mut().enumerate() {
                *logit = if bits >> at & 1 == 1 { *logit } else { BANNED };
                peak = peak.max(*logit);
            }
            if let Some(of_stretch) = peaks.get_mut(i) {
                *of_stretch = peak;
            }
        }
    }

    /// The row, as long as there is one.
    fn row(&self) -> Option<(&[f32], &[f32])> {
        match self.place {
            Place::Given => Some(self.given),
            Place::Changed => Some((&self.buffers.logits, &self.buffers.peaks)),
            Place::List | Place::Sorted => None,
        }
    }

    /// Whether a token could be drawn before any sampler left some out.
    pub(super) fn is_allowed(&self, token: u32) -> bool {
        let was_there = self.given.0.get(token as usize).is_some_and(|logit| *logit > BANNED);
        was_there && self.mask.is_none_or(|mask| mask.has(token))
    }

    /// How many tokens there are.
    pub(super) fn len(&self) -> usize {
        self.row().map_or(self.buffers.list.len(), |(logits, _)| logits.len())
    }

    /// The likeliest token, of equals the lowest id.
    pub(super) fn likeliest(&self) -> Candidate {
        match (self.row(), self.place) {
            (Some((logits, peaks)), _) => program::likeliest(logits, peaks),
            (None, Place::Sorted) => self.buffers.list[0],
            _ => *self.buffers.list.iter().min_by(|a, b| a.likelier(b)).expect("there is one"),
        }
    }

    /// Leave only the likeliest token.
    pub(super) fn keep_one(&mut self) {
        let one = self.likeliest();
        self.buffers.list.clear();
        self.buffers.list.push(one);
        self.place = Place::Sorted;
    }

    /// Leave only the `k` likeliest tokens, likeliest first; no effect if there are no more.
    pub(super) fn keep_likeliest(&mut self, k: usize) {
        if k >= self.len() {
            if self.mask.is_some() {
                self.sorted();
            }
            return;
        }
        self.fill(k);
        self.sort();
        self.buffers.list.truncate(k);
    }

    /// The `k` likeliest of a row as list; a list stays.
    fn fill(&mut self, k: usize) {
        let Buffers { logits, peaks, list } = &mut *self.buffers;
        match self.place {
            Place::Given => k_likeliest(self.given.0, self.given.1, k, list),
            Place::Changed => k_likeliest(logits, peaks, k, list),
            Place::List | Place::Sorted => return,
        }
        self.place = Place::List;
    }

    /// Leave only tokens with at least this logit.
    pub(super) fn keep_from(&mut self, floor: f32) {
        let Buffers { logits, peaks, list } = &mut *self.buffers;
        match self.place {
            Place::Given => at_least(self.given.0, self.given.1, floor, list),
            Place::Changed => at_least(logits, peaks, floor, list),
            Place::List | Place::Sorted => return list.retain(|c| c.logit >= floor),
        }
        self.place = Place::List;
    }

    /// Leave only the likeliest tokens whose weights together reach `share`, at least one and `least` of them: likeliest
    /// first. The best few are nearly always enough, so few are tried first.
    pub(super) fn keep_mass(&mut self, share: f64, least: usize) {
        let (place, mut k) = (self.place, least.max(256));
        loop {
            self.place = place;
            self.fill(k);
            self.sort();
            match self.reach(share) {
                Some(n) => return self.buffers.list.truncate(n.max(least)),
                None if self.buffers.list.len() < k => return,
                None => k = k.saturating_mul(8),
            }
        }
    }

    /// How many of the sorted candidates it takes to reach `share`, at least one; `None` if all of them do not.
    fn reach(&self, share: f64) -> Option<usize> {
        let sorted = &self.buffers.list;
        let mut sum = 0.0;
        let last = sorted.iter().position(|c| {
            sum += self.weight(c.logit, sorted[0].logit);
            sum >= share
        });
        last.map(|last| last + 1)
    }

    /// The candidate on which `random` in `[0, 1)` falls when each is as wide as its weight: its place in the list.
    pub(super) fn draw(&mut self, random: f64) -> usize {
        self.fill(usize::MAX);
        let list = &self.buffers.list;
        let max = list.iter().map(|c| c.logit).fold(f32::MIN, f32::max);
        let weights = || list.iter().map(|c| self.weight(c.logit, max));
        let mut left = random * weights().sum::<f64>();
        let drawn = weights().position(|weight| {
            left -= weight;
            left < 0.0
        });
        // rounding can leave a crumb; it belongs to the likeliest
        let likeliest = || {
            let places = (0..list.len()).min_by(|&a, &b| list[a].likelier(&list[b]));
            places.expect("there is one")
        };
        drawn.unwrap_or_else(likeliest)
    }

    /// Give the candidates of the list other logits, which nothing divides.
    pub(super) fn set_logits(&mut self, logits: impl Iterator<Item = f32>) {
        self.fill(usize::MAX);
        (self.place, self.temperature) = (Place::List, 1.0);
        self.buffers.list.iter_mut().zip(logits).for_each(|(c, logit)| c.logit = logit);
    }

    fn sort(&mut self) {
        if self.place != Place::Sorted {
            self.buffers.list.sort_unstable_by(Candidate::likelier);
            self.place = Place::Sorted;
        }
    }

    /// Every candidate: by id if nothing has sorted them yet.
    pub(super) fn list(&mut self) -> &mut Vec<Candidate> {
        self.fill(usize::MAX);
        &mut self.buffers.list
    }

    /// Every candidate, likeliest first. Whoever changes it keeps that order.
    pub(super) fn sorted(&mut self) -> &mut Vec<Candidate> {
        self.fill(usize::MAX);
        self.sort();
        &mut self.buffers.list
    }

    /// What logits are to be divided by.
    pub(super) fn temperature(&self) -> f32 {
        self.temperature
    }

    /// Divide logits by a temperature above 0. It is remembered, and done where logits turn into weights.
    pub(super) fn heat(&mut self, temperature: f32) {
        self.temperature *= temperature;
    }

    /// `exp((logit - max) / temperature)`: how likely a token is beside one with the logit `max`.
    pub(super) fn weight(&self, logit: f32, max: f32) -> f64 {
        f64::from(((logit - max) / self.temperature).exp())
    }

    /// The sum of all weights beside the likeliest token's.
    pub(super) fn mass(&self) -> f64 {
        let max = self.likeliest().logit;
        match self.row() {
            Some((logits, _)) => logits.iter().map(|&logit| self.weight(logit, max)).sum(),
            None => self.buffers.list.iter().map(|c| self.weight(c.logit, max)).sum(),
        }
    }

    /// Every logit, by id or in the list's order.
    pub(super) fn logits(&self) -> impl Iterator<Item = f32> + Clone + '_ {
        let (row, list) = match self.row() {
            Some((logits, _)) => (logits, &[][..]),
            None => (&[][..], &self.buffers.list[..]),
        };
        row.iter().copied().chain(list.iter().map(|c| c.logit))
    }

    /// Change the logits of some tokens, sorted by id, each once; what comes out is kept finite.
    pub(super) fn change<T>(&mut self, tokens: &[(u32, T)], f: impl Fn(f32, &T) -> f32) {
        if tokens.is_empty() {
            return;
        }
        self.settle();
        let f = |logit: f32, value| match logit > BANNED {
            true => f(logit, value).clamp(f32::MIN, f32::MAX),
            false => logit,
        };
        self.copy_row();
        let Buffers { logits, peaks, list } = &mut *self.buffers;
        if self.place == Place::Changed {
            for (token, value) in tokens {
                let Some(logit) = logits.get_mut(*token as usize) else { continue };
                *logit = f(*logit, value);
                if let Some(peak) = peaks.get_mut(*token as usize / PEAK) {
                    *peak = peak.max(*logit);
                }
            }
        } else {
            for candidate in list {
                let at = tokens.binary_search_by_key(&candidate.token, |(token, _)| *token);
                if let Ok(at) = at {
                    candidate.logit = f(candidate.logit, &tokens[at].1);
                }
            }
            self.place = Place::List;
        }
    }

    /// Make the row as given the changed one.
    fn copy_row(&mut self) {
        if self.place == Place::Given {
            let (logits, peaks) = self.given;
            self.buffers.logits.clear();
            self.buffers.logits.extend_from_slice(logits);
            self.buffers.peaks.clear();
            self.buffers.peaks.extend_from_slice(peaks);
            self.place = Place::Changed;
        }
    }

    /// Do the division that [`heat`](Self::heat) put off.
    fn settle(&mut self) {
        let temperature = std::mem::replace(&mut self.temperature, 1.0);
        if temperature == 1.0 {
            return;
        }
        self.copy_row();
        let divide = |logit: &mut f32| {
            if *logit > BANNED {
                *logit = (*logit / temperature).clamp(f32::MIN, f32::MAX);
            }
        };
        let Buffers { logits, peaks, list } = &mut *self.buffers;
        match self.place {
            Place::Changed => logits.iter_mut().chain(peaks).for_each(divide),
            _ => list.iter_mut().for_each(|c| divide(&mut c.logit)),
        }
    }
}

/// Fill `out` by id with the tokens of a row that have at least this logit.
fn at_least(logits: &[f32], peaks: &[f32], floor: f32, out: &mut Vec<Candidate>) {
    out.clear();
    for ((i, stretch), first) in logits.chunks(PEAK).enumerate().zip((0u32..).step_by(PEAK)) {
        if peaks.get(i).is_some_and(|&peak| peak < floor) {
            continue;
        }
        let numbered = stretch.iter().zip(first..);
        out.extend(
            numbered
                .filter(|(logit, _)| **logit >= floor)
                .map(|(&logit, token)| Candidate { token, logit }),
        );
    }
}

#[cfg(test)]
mod tests {
    use program::LogitRows;
    use proptest::prelude::*;

    use super::*;
    use crate::Scores;

    #[test]
    fn a_row_and_a_list_change_and_narrow_alike() {
        let logits: Vec<f32> = (0..200).map(|i| ((i * 37) % 101) as f32 * 0.25).collect();
        let scores = Scores::from(LogitRows::new(logits.clone(), logits.len()));
        let changes = [(3, 90.0f32), (64, -5.0), (199, f32::INFINITY), (999, 1.0)];
        let narrow = |choices: &mut Choices<'_>| {
            choices.heat(2.0);
            choices.change(&changes, |logit, add| logit + add);
            choices.keep_from(9.0);
            choices.keep_likeliest(20);
            choices.sorted().clone()
        };
        let (mut row, mut list, mut bare) = Default::default();
        let mut choices = Choices::new(&logits, &scores.peaks, &mut row);
        let want = narrow(&mut choices);
        assert_eq!((want[0].token, want[0].logit, want[1].token), (199, f32::MAX, 3));
        assert_eq!(want.len(), 20);
        assert_eq!(narrow(&mut Choices::new(&logits, &[], &mut bare)), want);
        let mut choices = Choices::new(&logits, &scores.peaks, &mut list);
        choices.list();
        assert_eq!(narrow(&mut choices), want);
    }

    proptest! {
        /// What is drawn does not show how few tokens a mask left.
        #[test]
        fn masks_gather_and_ban_alike(
            logits in prop::collection::vec((-40i32..40).prop_map(|x| x as f32 * 0.1), 1..300),
            words in prop::collection::vec(any::<u32>(), 12), k in 1usize..400, random in 0.0f64..1.0, peaked in any::<bool>(),
        ) {
            let words: Vec<u32> = words.chunks(2).flat_map(|w| [w[0] & w[1], w[0] & (w[1] << 7) | u32::from(w[0] % 3 == 0)]).collect();
            let mask = TokenMask::from_bits(words);
            let there: Vec<u32> = mask.tokens().filter(|&t| (t as usize) < logits.len()).collect();
            prop_assume!(!there.is_empty());
            let scores = Scores::from(LogitRows::new(logits.clone(), logits.len()));
            let peaks = if peaked { &scores.peaks[..] } else { &[] };
            let drawn = |narrow: for<'a> fn(&mut Choices<'a>, &'a TokenMask)| {
                let mut buffers = Buffers::default();
                let mut choices = Choices::new(&logits, peaks, &mut buffers);
                narrow(&mut choices, &mask);
                choices.keep_likeliest(k);
                choices.keep_mass(0.9 * choices.mass(), 0);
                let at = choices.draw(random);
                choices.list()[at]
            };
            let few = drawn(|choices, mask| choices.gather(mask));
            let most = drawn(|choices, mask| choices.ban_others(mask));
            prop_assert_eq!(few, most);
            prop_assert!(there.contains(&few.token));
        }
    }
}
