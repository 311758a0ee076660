//! Drafts: tokens guessed ahead, which one pass over the weights checks together.
//!
//! A row of a draft yields the bits that a step of its own would, and which token is chosen depends on scores, the tokens
//! before and the seed alone. So a text with drafts is the text without them, whatever was guessed. What a draft costs and
//! what it saves is measured, and where it does not pay nothing is drafted (`governor.rs`).
//!
//! A drafter is a file here, and a line in [`DraftMode`] if it needs no model.

mod costs;
mod governor;
mod guesses;
mod lookup;
mod model;
mod mtp;
mod suffix;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use program::{RowsOut, Sequence};

pub(crate) use costs::PassCosts;
use governor::Governor;
use lookup::Lookup;
use model::ModelDrafter;
use mtp::MtpDrafter;
use suffix::SuffixDrafter;
pub use suffix::Suffixes;

use crate::scheduler::Pace;
use crate::{Result, Sampler, Session};

/// Most tokens of a draft.
pub(crate) const MOST_DRAFTED: usize = 15;

/// The share of a text's time that a drafter's model may have lost of it.
const REGRET: f64 = 0.01;

/// Tokens that may come next.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Draft {
    /// In order; empty: no idea.
    pub tokens: Vec<u32>,
    /// How sure the drafter is, as a class of its own below [`CLASSES`]: how often drafts of a class hold is learned apart.
    pub class: usize,
}

/// How many classes of drafts a drafter may tell apart.
pub const CLASSES: usize = 8;

/// Guesses what comes next in one text.
pub trait Drafter: Send {
    /// Its name: `lookup`.
    fn name(&self) -> &'static str;

    /// The text is `tokens` now: a reply begins, whose tokens `sampler` chooses. Most of the text may be what it was.
    fn begin(&mut self, tokens: &[u32], sampler: &Sampler);

    /// The text goes on with these, for good.
    fn push(&mut self, tokens: &[u32]);

    /// At most `max` tokens that may come next, [`MOST_DRAFTED`] at most.
    ///
    /// # Errors
    /// A failure of its own model.
    fn draft(&mut self, max: usize) -> Result<Draft>;

    /// Whether it [`wants`](Self::wants) rows at all (the default: no). Its drafts are of class 0.
    fn has_model(&self) -> bool {
        false
    }

    /// Whether it is told what the target's model hands out of each token (the default: no).
    fn needs_rows(&self) -> bool {
        false
    }

    /// What the target's model handed out of the tokens from the `first`th of the text on, row by row (the default: nothing
    /// is done with it). It is told so before what is written goes on.
    fn handed(&mut self, first: usize, rows: &[f32]) {
        let _ = (first, rows);
    }

    /// Tokens that its own model has to read before it can guess (the default: none).
    fn behind(&self) -> usize {
        0
    }

    /// The target's model had read so many tokens of the text before the reply began: what its own has not read of these it
    /// need not read whole (the default: it has no model).
    fn left_behind(&mut self, cached: usize) {
        let _ = cached;
    }

    /// Rows of what is written, up to the `end`th token and at most so many, that its own model has not read; it is told
    /// what they yield as of those it [`wants`](Self::wants) (the default: none).
    fn reads(&mut self, end: usize, most: usize) -> Option<DraftStep<'_>> {
        let _ = (end, most);
        None
    }

    /// Before [`draft`](Self::draft): rows that its own model has to run, and the session they are of; asked again until
    /// there are none (the default).
    fn wants(&mut self, max: usize) -> Option<DraftStep<'_>> {
        let _ = max;
        None
    }

    /// What these rows yielded.
    ///
    /// # Errors
    /// That they were not computed.
    fn take(&mut self, out: Result<RowsOut, program::Error>) -> Result<()> {
        let _ = out;
        Ok(())
    }
}

/// Rows that a drafter's own model has to run.
pub struct DraftStep<'a> {
    /// Whose they are.
    pub session: &'a Session,
    /// What to run, without the rows of the program's inputs.
    pub sequence: Sequence<'a>,
    /// These rows, an input after the other.
    pub inputs: Vec<&'a [f32]>,
}

impl DraftStep<'_> {
    /// What to run.
    pub fn sequence(&self) -> Sequence<'_> {
        Sequence { rows: &self.inputs, ..self.sequence }
    }
}

/// What drafts came to, in tokens and passes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct DraftStats {
    /// Tokens guessed.
    pub drafted: usize,
    /// Of these, what the model chose too.
    pub kept: usize,
    /// Passes that checked a draft.
    pub passes: usize,
    /// Seconds that plain steps would have taken for what these passes yielded, less what they took; drafting included.
    pub gained: f64,
    /// Seconds that a drafter's own model took while the reply was written, as far as they are known.
    pub drafting: f64,
}

impl DraftStats {
    /// Returns the time of drafting ([`drafting`](Self::drafting)).
    pub fn drafting_time(&self) -> Duration {
        Duration::try_from_secs_f64(self.drafting).unwrap_or_default()
    }
}

/// Which drafters work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DraftMode {
    /// None.
    #[default]
    Off,
    /// What followed the last few tokens earlier in this text.
    Lookup,
    /// What followed the longest end of this text in any text of this process.
    Suffix,
    /// All that look texts up, the surest first.
    Auto,
}

impl DraftMode {
    /// All of them.
    pub const ALL: [DraftMode; 4] =
        [DraftMode::Off, DraftMode::Lookup, DraftMode::Suffix, DraftMode::Auto];

    /// `off`, `lookup`, `suffix`, `auto`.
    pub fn name(self) -> &'static str {
        match self {
            DraftMode::Off => "off",
            DraftMode::Lookup => "lookup",
            DraftMode::Suffix => "suffix",
            DraftMode::Auto => "auto",
        }
    }
}

/// The drafters of one conversation and what was learned of them.
pub struct Drafters {
    list: Vec<Governed>,
    /// Most tokens of a draft.
    most: usize,
    /// Whether only drafts that pay are checked.
    governed: bool,
    stats: DraftStats,
    /// Whose draft is being checked, and its class.
    asked: Option<(usize, usize)>,
    /// Seconds that plain steps would have taken for all tokens so far.
    plain: f64,
    /// Seconds of the text's time that a drafter's model has won, reading along included, but for prompts.
    won: f64,
    /// Whether it ran since the last pass.
    ran: bool,
    /// What is known of the time that passes take, from one turn alone to the next.
    pub(crate) pace: Pace,
}

struct Governed {
    drafter: Box<dyn Drafter>,
    governor: Governor,
    /// What it may do before the next pass.
    may: May,
    /// Its own model failed: it is not asked again for this reply.
    failed: bool,
}

/// What a drafter may do before a pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum May {
    /// Nothing.
    #[default]
    Rest,
    /// Read the prompt along.
    Read,
    /// Read one row of what it has not read, to see what that costs.
    Try,
    /// Guess so many tokens.
    Guess(usize),
}

impl May {
    fn guess(self) -> usize {
        if let May::Guess(n) = self { n } else { 0 }
    }
}

impl Drafters {
    /// The drafters of `mode`; `suffixes` are the texts that they may look at and add to. None holds more tokens than these may.
    pub fn new(mode: DraftMode, suffixes: &Arc<Mutex<Suffixes>>) -> Drafters {
        let most = locked(suffixes).most();
        let lookup = || Box::new(Lookup::within(most)) as Box<dyn Drafter>;
        let suffix = || Box::new(SuffixDrafter::new(Arc::clone(suffixes))) as Box<dyn Drafter>;
        Drafters::of(match mode {
            DraftMode::Off => Vec::new(),
            DraftMode::Lookup => vec![lookup()],
            DraftMode::Suffix => vec![suffix()],
            DraftMode::Auto => vec![suffix(), lookup()],
        })
    }

    /// Drafts by the model of an empty session, whose vocabulary is the target's.
    pub fn by_model(session: Session) -> Drafters {
        Drafters::of(vec![Box::new(ModelDrafter::new(session))])
    }

    /// Drafts by what the target's own file has to guess with: an empty session of that program, which reads a row of the
    /// target's and the token after it, as [`MtpDrafter`] says. The target has to hand out one value of every token.
    pub fn by_own_guesses(session: Session) -> Drafters {
        Drafters::of(vec![Box::new(MtpDrafter::new(session))])
    }

    /// With all drafts checked that are made, whether they pay or not: to see that they change nothing.
    pub fn whatever_it_costs(self) -> Drafters {
        Drafters { governed: false, ..self }
    }

    /// With drafts of at most `n` tokens.
    pub fn at_most(self, n: usize) -> Drafters {
        Drafters { most: n.min(MOST_DRAFTED), ..self }
    }

    /// These drafters, asked in this order; at most one of them has a model of its own.
    pub fn of(drafters: Vec<Box<dyn Drafter>>) -> Drafters {
        let governed = |drafter| Governed {
            drafter,
            governor: Governor::default(),
            may: May::Rest,
            failed: false,
        };
        let list = drafters.into_iter().map(governed).collect();
        Drafters {
            list,
            most: MOST_DRAFTED,
            governed: true,
            stats: DraftStats::default(),
            asked: None,
            plain: 0.0,
            won: 0.0,
            ran: false,
            pace: Pace::default(),
        }
    }

    /// A reply begins after `tokens`, of which `cached` are read.
    pub(crate) fn begin(&mut self, tokens: &[u32], cached: usize, sampler: &Sampler) {
        self.stats = DraftStats::default();
        self.asked = None;
        for one in &mut self.list {
            one.failed = false;
            one.drafter.begin(tokens, sampler);
            one.drafter.left_behind(cached);
        }
    }

    /// Whether one of them is told what the target's model hands out of each token.
    pub(crate) fn need_rows(&self) -> bool {
        self.list.iter().any(|one| one.drafter.needs_rows())
    }

    /// What the target's model handed out of the tokens from the `first`th on.
    pub(crate) fn handed(&mut self, first: usize, rows: &[f32]) {
        for one in self.list.iter_mut().filter(|one| one.drafter.needs_rows()) {
            one.drafter.handed(first, rows);
        }
    }

    /// What this reply's drafts came to.
    pub(crate) fn stats(&self) -> DraftStats {
        self.stats
    }

    /// How much each drafter may guess for the next pass: at most `max` tokens; `beside`: rows of others in that pass.
    pub(crate) fn ask(&mut self, max: usize, costs: &PassCosts, beside: usize) {
        self.asked = None;
        let max = max.min(self.most);
        // a model that lost more than that is not asked, and does not read along, until others have earned it
        let may_lose = REGRET * self.plain + self.won;
        for one in &mut self.list {
            // a guess that costs nothing is judged when it is there
            let judged = self.governed && one.drafter.has_model();
            one.may = match judged {
                _ if one.failed || max == 0 => May::Rest,
                false => May::Guess(max),
                true if may_lose < 0.0 => May::Rest,
                true => {
                    let reading = one.governor.reading(one.drafter.behind());
                    match one.governor.may(max, costs, beside) {
                        // who is far behind is asked when it can be afforded to be wrong
                        May::Guess(_) if reading > may_lose => May::Rest,
                        may => may,
                    }
                }
            };
        }
    }

    /// Rows that a drafter's own model has to run before [`draft`](Self::draft).
    pub(crate) fn wants(&mut self) -> Option<DraftStep<'_>> {
        self.list.iter_mut().find_map(|one| match one.may {
            May::Rest | May::Read => None,
            May::Try => one.drafter.reads(usize::MAX, 1),
            May::Guess(n) => one.drafter.wants(n),
        })
    }

    /// While the prompt is read, of which the target's model will have read `end` tokens after the next pass: rows of it that
    /// a drafter's own model has to run. One that does not pay does not read along.
    pub(crate) fn reads(&mut self, end: usize, costs: &PassCosts) -> Option<DraftStep<'_>> {
        if self.governed && self.won < -REGRET * self.plain {
            return None;
        }
        let (governed, most) = (self.governed, self.most);
        let mut list = self.list.iter_mut().filter(|one| one.drafter.has_model() && !one.failed);
        list.find_map(|one| {
            one.may = May::Read;
            let pays = !governed || one.governor.may_pay(most, costs, 0);
            if pays { one.drafter.reads(end, usize::MAX) } else { None }
        })
    }

    /// What the rows that were wanted last yielded; `took`: how many they were, and their seconds.
    pub(crate) fn take(
        &mut self,
        out: Result<RowsOut, program::Error>,
        took: Option<(usize, f64)>,
    ) {
        let wanted = |one: &&mut Governed| one.may != May::Rest && one.drafter.has_model();
        let Some(one) = self.list.iter_mut().find(wanted) else { return };
        let reads = one.may == May::Read;
        self.ran |= !reads;
        let cancelled = matches!(out, Err(program::Error::Cancelled));
        if one.drafter.take(out).is_err() {
            // a drafter that fails has no idea
            (one.may, one.failed) = (May::Rest, !cancelled);
        }
        if let Some((rows, seconds)) = took {
            one.governor.took(rows, seconds);
            self.stats.drafting += if reads { 0.0 } else { seconds };
        }
        if one.may == May::Try {
            one.may = May::Rest;
        }
    }

    /// The draft to check in the next pass: the first one that pays, empty where none does.
    pub(crate) fn draft(&mut self, costs: &PassCosts, beside: usize) -> Vec<u32> {
        let asked = |(_, one): &(usize, &mut Governed)| one.may.guess() > 0;
        for (i, one) in self.list.iter_mut().enumerate().filter(asked) {
            let may = one.may.guess();
            let Ok(draft) = one.drafter.draft(may) else { continue };
            let class = draft.class.min(CLASSES - 1);
            let most = draft.tokens.len().min(may);
            let pays = one.governor.length(class, most, costs, beside);
            let n = if self.governed { pays } else { most };
            if n > 0 {
                self.asked = Some((i, class));
                self.stats.drafted += n;
                self.stats.passes += 1;
                return draft.tokens[..n].to_vec();
            }
        }
        Vec::new()
    }

    /// The pass that was just run: of `drafted` tokens the model chose `kept` too, and all in all the text goes on with
    /// `tokens`. `took`: seconds of a plain pass, if that is known, and of this one, guessing included.
    pub(crate) fn checked(&mut self, drafted: usize, tokens: &[u32], took: (Option<f64>, f64)) {
        let plain = took.0.unwrap_or(0.0) * tokens.len() as f64;
        let gained = plain - took.1;
        if took.0.is_some() {
            self.plain += plain;
            self.won += if self.ran { gained } else { 0.0 };
            self.ran = false;
        }
        let kept = drafted.min(tokens.len().saturating_sub(1));
        if let Some((i, class)) = self.asked.take() {
            self.list[i].governor.learn(class, drafted, kept);
            self.stats.kept += kept;
            self.stats.gained += gained;
        }
        for one in &mut self.list {
            one.governor.passed(tokens.len());
            one.drafter.push(tokens);
        }
    }
}

/// The texts that a suffix drafter looks at, whoever else was looking when something went wrong.
fn locked(suffixes: &Mutex<Suffixes>) -> std::sync::MutexGuard<'_, Suffixes> {
    suffixes.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Has a model, whatever it says.
    struct Slow;

    impl Drafter for Slow {
        fn name(&self) -> &'static str {
            "slow"
        }

        fn begin(&mut self, _: &[u32], _: &Sampler) {}

        fn push(&mut self, _: &[u32]) {}

        fn draft(&mut self, _: usize) -> Result<Draft> {
            Ok(Draft::default())
        }

        fn has_model(&self) -> bool {
            true
        }
    }

    /// The time of a draft model is that of the reply, not of the prompt.
    #[test]
    fn the_time_of_drafting_is_counted() {
        let mut drafters = Drafters::of(vec![Box::new(Slow)]);
        for (may, seconds) in [(May::Read, 1.0), (May::Guess(1), 0.5), (May::Try, 0.25)] {
            drafters.list[0].may = may;
            drafters.take(Err(program::Error::Cancelled), Some((1, seconds)));
        }
        assert_eq!(drafters.stats().drafting, 0.75);
    }

    #[test]
    fn a_model_that_lost_time_rests_until_it_is_earned() {
        let costs = PassCosts::default();
        let mut drafters = Drafters::of(vec![Box::new(Slow)]);
        let step = 1e-3;
        let pass = |drafters: &mut Drafters, ran, took: f64| {
            drafters.ran = ran;
            drafters.checked(0, &[1], (Some(step), took));
            drafters.ask(MOST_DRAFTED, &costs, 0);
            drafters.list[0].may.guess()
        };
        // without a model nothing is lost, however long it takes
        assert!((0..200).any(|_| pass(&mut drafters, false, 3.0 * step) > 0));
        // ten steps lost are a hundredth of a thousand
        let lost = pass(&mut drafters, true, 13.0 * step);
        assert_eq!(lost, 0);
        let rests = (0..2_000).take_while(|_| pass(&mut drafters, false, step) == 0).count();
        assert!((700..1_300).contains(&rests), "{rests}");
    }
}
