//! Which token comes next. A chain of samplers changes and narrows what may be drawn (`stages/`, in llama.cpp's order by
//! default), and a chooser draws from what is left (`choosers/`).
//!
//! The choice is a function of the logits, the tokens before and the seed: the random number belongs to the position,
//! not to a running generator, so that threads, caching, forks and speculation cannot change it. Mirostat and adaptive-p
//! go by what they chose before, too: what they learned is kept beside each token they chose, and counts as long as that
//! token is among those before. Who goes back in the text goes back in it.

mod asked;
mod breakers;
mod choices;
mod choosers;
mod logprobs;
mod options;
mod order;
mod random;
mod settings;
mod spellings;
mod stages;

#[cfg(test)]
mod golden;
#[cfg(test)]
mod reference;

use std::hash::{BuildHasher, RandomState};
use std::ops::Range;
use std::sync::Arc;

pub(crate) use asked::RowAsk;
pub use logprobs::{Logprob, PromptLogprobs, TokenLogprobs};
pub use options::{Recommended, SamplerOptions};
pub use order::SamplerOrder;
pub use settings::{SETTINGS as SAMPLER_SETTINGS, SamplerSetting};
pub use spellings::Spellings;

use program::Candidate;

use crate::constraint::Ahead;
use crate::{Constraint, Error, Result, Scores, Vocabulary};
use breakers::Breakers;
use choices::{BANNED, Buffers, Choices};
use choosers::{Chooser, Feedback, chooser};
use random::Chance;
use stages::{FIRST, Situation, Stage};

/// Chooses tokens of one text. A clone goes on as it would; with a constraint it has a thread of its own.
#[derive(Clone)]
pub struct Sampler {
    options: SamplerOptions,
    seed: u64,
    attempt: u64,
    chain: Vec<&'static dyn Stage>,
    chooser: &'static dyn Chooser,
    /// `None`: nobody said what tokens spell.
    breakers: Option<Breakers>,
    /// The same of who asks for more.
    spellings: Option<Arc<Spellings>>,
    /// So many of the likeliest tokens are kept beside each choice.
    logprobs: Option<usize>,
    /// Tokens that were chosen, by position, where something is kept of them.
    chosen: Vec<Chosen>,
    buffers: Buffers,
    /// What the text may consist of, and where it begins.
    form: Option<Form>,
    /// What it may consist of once something opens that.
    opened: Option<Opened>,
}

/// A form that begins where the text says so.
struct Opened(Box<dyn Constraint>);

impl Clone for Opened {
    fn clone(&self) -> Opened {
        Opened(self.0.fork())
    }
}

/// The form of a text.
#[derive(Clone)]
struct Form {
    ahead: Ahead,
    /// Tokens before it; known with the first choice.
    start: Option<usize>,
    /// What is chosen now comes before it.
    waits: bool,
}

impl Form {
    /// The tokens of the text among those before, and what comes after them.
    fn own(&mut self, before: &[u32], next: &[u32]) -> Vec<u32> {
        let start = self.start.get_or_insert(before.len());
        *start = (before.len() + next.len()).min(*start);
        let (before, next) =
            (before.iter().skip(*start), next.iter().skip(start.saturating_sub(before.len())));
        before.chain(next).copied().collect()
    }

    /// Begin with what follows a choice, unless a draft has it there already.
    fn go_on(&mut self, before: &[u32], token: u32) -> Result<()> {
        let own = self.own(before, &[token]);
        if self.ahead.foresees(&own) { Ok(()) } else { self.ahead.begin(&own, &[]) }
    }
}

/// What a token is chosen from.
#[derive(Clone, Copy)]
enum Shown<'a> {
    /// A whole row.
    Row(&'a Scores),
    /// Its likeliest tokens, likeliest first, of which so many were asked for.
    Likeliest(&'a [Candidate], usize),
    /// What was asked of it, by id.
    Asked(&'a [Candidate]),
}

/// What is kept of a choice.
#[derive(Clone, Debug)]
struct Chosen {
    position: usize,
    token: u32,
    /// What was known after it.
    known: Feedback,
    logprobs: Option<TokenLogprobs>,
}

impl Sampler {
    /// A sampler with these options; without a seed it takes one at random. DRY finds its sequence breakers, and infill what
    /// tokens spell, if there is a vocabulary: [`with_vocabulary`](Self::with_vocabulary).
    ///
    /// # Errors
    /// [`Error::Setting`] for the first option out of its range.
    pub fn new(mut options: SamplerOptions) -> Result<Sampler> {
        options.check()?;
        options.merge_biases();
        let seed = options.seed.unwrap_or_else(|| RandomState::new().hash_one("rooflight"));
        Ok(Sampler {
            seed,
            attempt: 0,
            chain: chain(&options),
            chooser: chooser(&options),
            breakers: (!reads(&options)).then(Breakers::default),
            spellings: (!spells(&options)).then(Arc::default),
            logprobs: None,
            chosen: Vec::new(),
            buffers: Buffers::default(),
            form: None,
            opened: None,
            options,
        })
    }

    /// The same, for tokens that spell what this vocabulary says. Nothing is looked up unless a sampler asks for it.
    pub fn with_vocabulary(mut self, vocabulary: &dyn Vocabulary) -> Sampler {
        if reads(&self.options) {
            let breakers = Breakers::new(&self.options.dry_sequence_breakers, vocabulary);
            self.breakers = Some(breakers);
        }
        if spells(&self.options) {
            self.spellings = Some(Spellings::of(vocabulary));
        }
        self
    }

    /// The same, keeping beside each choice how likely the model found it, and its `n` likeliest tokens.
    pub fn with_logprobs(mut self, n: usize) -> Sampler {
        self.logprobs = Some(n);
        self
    }

    /// The same, choosing only what `constraint` allows, from the first choice on. What may follow is computed on a thread
    /// of its own, as soon as a token is chosen. Tokens before may be taken back, or others than chosen may stand there.
    ///
    /// # Errors
    /// [`Error::Constraint`] if there is no thread to be had.
    pub fn with_constraint(mut self, constraint: Box<dyn Constraint>) -> Result<Sampler> {
        self.form =
            Some(Form { ahead: Ahead::new(constraint, Vec::new())?, start: None, waits: false });
        Ok(self)
    }

    /// The same, choosing freely until [`begin_within`](Self::begin_within) says that the form has begun. Until then it
    /// costs nothing.
    pub fn with_opened_constraint(mut self, constraint: Box<dyn Constraint>) -> Sampler {
        self.opened = Some(Opened(constraint));
        self
    }

    /// Whether it waits for what opens its form.
    pub fn waits_to_open(&self) -> bool {
        self.opened.is_some()
    }

    /// The form has begun: `text` of it came before the token after so many. A text that is not as the form would have it
    /// leaves the rest free, too.
    pub fn begin_within(&mut self, before: usize, text: &str) {
        let Some(Opened(mut constraint)) = self.opened.take() else { return };
        let taken = constraint.take_text(text);
        if let Ok(ahead) = taken.and_then(|()| Ahead::new(constraint, Vec::new())) {
            self.form = Some(Form { ahead, start: Some(before), waits: false });
        }
    }

    /// What has a form begins after so many tokens. If nobody says so, it does with the first choice.
    pub fn begin(&mut self, before: usize) {
        if let Some(form) = &mut self.form {
            (form.start, form.waits) = (Some(before), false);
        }
    }

    /// What is chosen next has no form: it comes before what [`begin`](Self::begin) will announce.
    pub fn wait(&mut self) {
        if let Some(form) = &mut self.form {
            form.waits = true;
        }
    }

    /// Whether it waits for what has a form.
    pub fn waits(&self) -> bool {
        self.form.as_ref().is_some_and(|form| form.waits)
    }

    /// The form of what is chosen next.
    fn form(&mut self) -> Option<&mut Form> {
        self.form.as_mut().filter(|form| !form.waits)
    }

    /// The tokens that must follow `before` and `next` because the form of the text leaves no choice: what would be
    /// chosen anyway, one by one.
    ///
    /// # Errors
    /// [`Error::Constraint`] if the text cannot go on.
    pub fn forced(&mut self, before: &[u32], next: &[u32]) -> Result<Vec<u32>> {
        let Some(form) = self.form() else { return Ok(Vec::new()) };
        let own = form.own(before, next);
        Ok(form.ahead.forced(&own)?.to_vec())
    }

    /// Begin to compute what may follow `before` and `next`, and each token of a draft after them. Nothing has to be
    /// begun: it saves waiting.
    ///
    /// # Errors
    /// [`Error::Constraint`] if that has failed before.
    pub fn foresee(&mut self, before: &[u32], next: &[u32], draft: &[u32]) -> Result<()> {
        let Some(form) = self.form() else { return Ok(()) };
        let own = form.own(before, next);
        form.ahead.begin(&own, draft)
    }

    /// How likely the model found the tokens at these positions, as far as they were chosen here and are kept.
    pub fn logprobs(&self, positions: Range<usize>) -> impl Iterator<Item = &TokenLogprobs> {
        let there = self.chosen.iter().filter(move |chosen| positions.contains(&chosen.position));
        there.filter_map(|chosen| chosen.logprobs.as_ref())
    }

    /// The options it was made with.
    pub fn options(&self) -> &SamplerOptions {
        &self.options
    }

    /// The seed in use, also if it was chosen at random.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Which of the texts of this seed to draw: 0 at first, another number for another text from the same prompt.
    pub fn set_attempt(&mut self, attempt: u64) {
        self.attempt = attempt;
    }

    /// Choose the token after `before` from `logits` `[vocab_size]`.
    ///
    /// # Errors
    /// [`Error::NonFinite`], [`Error::Logits`] if there are none, [`Error::Setting`] for the bias of a token that is not
    /// there, or for DRY or infill without a vocabulary.
    pub fn sample(&mut self, logits: &[f32], before: &[u32]) -> Result<u32> {
        self.sample_scores(&Scores { logits: logits.to_vec(), peaks: Vec::new() }, before)
    }

    /// Choose the token after `before` from what a model made: with its peaks, greedy choice and top-k look at few logits.
    ///
    /// # Errors
    /// As [`sample`](Self::sample).
    pub fn sample_scores(&mut self, scores: &Scores, before: &[u32]) -> Result<u32> {
        let (logits, peaks) = (&scores.logits, &scores.peaks);
        // what is not finite shows in its peak
        if peaks.is_empty() || !peaks.iter().all(|peak| peak.is_finite()) {
            check_finite(logits, before.len())?;
        }
        check_bias(&self.options, logits.len())?;
        self.choose(Shown::Row(scores), before)
    }

    /// How many of the likeliest tokens are all that choices go by; `None` if they go by others too, because something
    /// changes or tells the logits of any token, or may leave out any.
    pub fn needs(&self) -> Option<usize> {
        let any = !self.options.logit_bias.is_empty() || spells(&self.options);
        if any || self.logprobs.is_some() || self.form.is_some() || self.opened.is_some() {
            return None;
        }
        let first = *self.chain.first()?;
        match first.letter() {
            // one more tells whether any is left out
            'k' => usize::try_from(self.options.top_k).ok()?.checked_add(1),
            't' if is_greedy(&self.options) => Some(1),
            _ => None,
        }
    }

    /// Choose the token after `before` from the likeliest ones, as many as are [needed](Self::needs), likeliest first: the same
    /// as from all.
    ///
    /// # Errors
    /// As [`sample`](Self::sample).
    ///
    /// # Panics
    /// If choices go by others too.
    pub fn sample_likeliest(&mut self, likeliest: &[Candidate], before: &[u32]) -> Result<u32> {
        let needed = self.needs().expect("choices go by the likeliest alone");
        if likeliest.is_empty() {
            return Err(Error::Logits { expected: 1, found: 0 });
        }
        self.choose(Shown::Likeliest(likeliest, needed), before)
    }

    fn choose(&mut self, shown: Shown<'_>, before: &[u32]) -> Result<u32> {
        let mask = match self.form() {
            Some(form) => {
                let own = form.own(before, &[]);
                Some(form.ahead.mask(&own)?)
            }
            None => None,
        };
        let known = self.known(before);
        let chance =
            Chance { seed: self.seed, attempt: self.attempt, position: before.len() as u64 };
        let (breakers, spellings) = match (&self.breakers, &self.spellings) {
            (None, _) => return Err(no_vocabulary("dry-sequence-breaker")),
            (_, None) => return Err(no_vocabulary("infill")),
            (Some(breakers), Some(spellings)) => (breakers, spellings),
        };
        let at = Situation { options: &self.options, before, chance, breakers, spellings };
        let mut choices = match shown {
            Shown::Row(Scores { logits, peaks }) => Choices::new(logits, peaks, &mut self.buffers),
            Shown::Likeliest(list, wanted) => Choices::of(list, wanted, &mut self.buffers),
            Shown::Asked(list) => Choices::listed(list, &mut self.buffers),
        };
        if let Some(mask) = &mask {
            choices.keep_allowed(mask);
        }
        self.chain.iter().for_each(|stage| stage.apply(&mut choices, &at));
        let lessons = self.chooser.prepare(&mut choices, &self.options, known);
        let drawn = choices.draw(chance.draw());
        let Candidate { token, logit } = choices.list()[drawn];
        if let Some(form) = self.form.as_mut().filter(|form| !form.waits) {
            if logit <= BANNED {
                let problem = "what may come next was banned".to_owned();
                return Err(Error::Constraint { problem });
            }
            form.go_on(before, token)?;
        }
        let logprobs = match shown {
            Shown::Row(scores) => self.logprobs.map(|n| TokenLogprobs::new(scores, token, n)),
            Shown::Likeliest(..) | Shown::Asked(_) => None,
        };
        if !lessons.is_empty() || logprobs.is_some() {
            let lesson = lessons.get(drawn);
            let known = lesson.map_or(known, |&p| self.chooser.learn(&self.options, known, p));
            self.chosen.push(Chosen { position: before.len(), token, known, logprobs });
        }
        Ok(token)
    }

    /// What was learned from the tokens before. What is kept of others is forgotten.
    fn known(&mut self, before: &[u32]) -> Feedback {
        while self.chosen.last().is_some_and(|last| before.get(last.position) != Some(&last.token))
        {
            self.chosen.pop();
        }
        self.chosen.last().map_or_else(|| self.chooser.start(&self.options), |last| last.known)
    }
}

/// The samplers that do anything with these options, in order.
fn chain(options: &SamplerOptions) -> Vec<&'static dyn Stage> {
    let mut chain: Vec<_> = options.samplers.stages().collect();
    if options.mirostat == 2 {
        chain.retain(|stage| stage.letter() == 't');
    }
    chain.insert(0, FIRST);
    chain.retain(|stage| stage.acts(options));
    // greedy choice needs only what can change which token is the likeliest
    let greedy = is_greedy(options);
    if let Some(end) = chain.iter().position(|stage| greedy && stage.letter() == 't') {
        chain.truncate(end + 1);
        chain.retain(|stage| stage.letter() == 't' || !stage.spares_likeliest());
    }
    chain
}

/// Whether the temperature leaves the likeliest token alone.
fn is_greedy(options: &SamplerOptions) -> bool {
    options.temperature <= 0.0 && options.dynatemp_range <= 0.0
}

/// Whether DRY acts, and over which texts it sees no repetition.
fn reads(options: &SamplerOptions) -> bool {
    let texts = options.dry_sequence_breakers.iter().any(|text| !text.is_empty());
    texts && chain(options).iter().any(|stage| stage.letter() == 'd')
}

/// Whether a sampler asks what any token spells.
fn spells(options: &SamplerOptions) -> bool {
    chain(options).iter().any(|stage| stage.letter() == 'i')
}

/// Nobody said what tokens spell.
fn no_vocabulary(name: &'static str) -> Error {
    Error::Setting { name, expected: "a vocabulary in which to find it", found: "none".into() }
}

/// # Errors
/// [`Error::NonFinite`] naming the first such logit; [`Error::Logits`] for an empty row.
fn check_finite(logits: &[f32], position: usize) -> Result<()> {
    if logits.is_empty() {
        return Err(Error::Logits { expected: 1, found: 0 });
    }
    // Infinities and NaN have all exponent bits set. Without an early exit the pass vectorizes.
    let exponent = f32::INFINITY.to_bits();
    if !logits.iter().fold(false, |bad, x| bad | (x.to_bits() & exponent == exponent)) {
        return Ok(());
    }
    let token = logits.iter().position(|x| !x.is_finite()).expect("one was seen");
    Err(Error::NonFinite { position, token, value: logits[token] })
}

/// # Errors
/// [`Error::Setting`] for the bias of a token that the vocabulary does not have.
fn check_bias(options: &SamplerOptions, vocab_size: usize) -> Result<()> {
    // they are sorted
    match options.logit_bias.last().filter(|(token, _)| *token as usize >= vocab_size) {
        None => Ok(()),
        Some((token, _)) => Err(Error::Setting {
            name: "logit-bias",
            expected: "ids of the vocabulary's tokens",
            found: format!("{token}, where there are {vocab_size}"),
        }),
    }
}

#[cfg(test)]
mod tests;
