//! Texts of a length, each with a question: a function of the seed, the kind, the length and the tokenizer that measures.

use std::ops::Range;

use super::draft::Draft;
use super::draw::Draw;
use super::{RecallAnswer, RecallKind, RecallPlace, controls, lists, needles};
use crate::{Error, Result};

/// Least lines of filler: with fewer, a depth means nothing.
const LEAST_LINES: usize = 20;

/// Lengths that are named as the least that work are multiples of this.
const STEP: usize = 64;

/// Length of the prompt, in tokens, that a message of the user becomes.
pub type PromptLength<'a> = &'a dyn Fn(&str) -> Result<usize>;

/// Makes questions about texts.
pub struct RecallTexts<'a> {
    seed: u64,
    length_of: PromptLength<'a>,
}

/// A question about a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecallQuestion {
    /// The message: the text and, behind it, the question.
    pub message: String,
    /// What a right reply says.
    pub answer: RecallAnswer,
    /// Length of its prompt, in tokens.
    pub tokens: usize,
}

impl RecallQuestion {
    /// Where in the message the words of the answer stand, in bytes; `None` where they stand nowhere: they are counted, added
    /// up, or found by way of others.
    pub fn places(&self) -> Option<Vec<Range<usize>>> {
        match &self.answer {
            RecallAnswer::InOrder(words) => words
                .iter()
                .map(|word| self.message.find(word).map(|start| start..start + word.len()))
                .collect(),
            RecallAnswer::Exactly { .. } | RecallAnswer::Total(_) => None,
        }
    }
}

impl<'a> RecallTexts<'a> {
    /// The texts of a seed. `length_of` measures prompts as the model will read them, its chat template included.
    pub fn new(seed: u64, length_of: PromptLength<'a>) -> RecallTexts<'a> {
        RecallTexts { seed, length_of }
    }

    /// A question whose prompt has at most `length` tokens, and less than about a sentence below that.
    ///
    /// # Errors
    /// [`Error::RecallTooShort`] where `length` is not enough, or what `length_of` fails with.
    pub fn question(
        &self,
        kind: RecallKind,
        length: usize,
        place: &RecallPlace,
    ) -> Result<RecallQuestion> {
        let draft = self.draft(kind, length, place);
        let lines = self
            .fit(&draft, length)?
            .ok_or_else(|| Error::RecallTooShort { kind: kind.name(), length })?;
        let message = draft.text(lines);
        let tokens = (self.length_of)(&message)?;
        Ok(RecallQuestion { message, answer: draft.answer, tokens })
    }

    /// The least length, a multiple of 64 from `from` on, for all these questions.
    ///
    /// # Errors
    /// What `length_of` fails with.
    pub fn least(&self, kind: RecallKind, from: usize, places: &[RecallPlace]) -> Result<usize> {
        let mut length = from;
        // Texts of another length say other things, so that what one needs is no more than a guess for the next.
        loop {
            let mut needed = 0;
            for place in places {
                let shortest = self.draft(kind, length, place).text(LEAST_LINES);
                needed = needed.max((self.length_of)(&shortest)?);
            }
            if needed <= length {
                return Ok(length);
            }
            length = needed.max(length + 1).next_multiple_of(STEP);
        }
    }

    fn draft(&self, kind: RecallKind, length: usize, place: &RecallPlace) -> Draft {
        let language = place.language;
        let name =
            format!("{}/{length}/{}/{}/{}", kind.name(), self.seed, language.name(), place.text);
        let mut text = Draw::named(&name);
        let tenth = place.tenth.unwrap_or(0).min(9);
        let mut own = Draw::named(&format!("{name}/{tenth}"));
        let depth = (tenth as f64 + 0.5) / 10.0;
        match kind {
            RecallKind::PassKey => needles::key(&mut text, &mut own, language, depth),
            RecallKind::Number => needles::long(&mut text, &mut own, language, depth),
            RecallKind::KeyValue => lists::key_value(&mut text, &mut own, language, tenth),
            RecallKind::Needles(n) => needles::codes(&mut text, language, n),
            RecallKind::Tracing => controls::tracing(&mut text, language),
            RecallKind::Count => controls::count(&mut text, language),
            RecallKind::Sum => controls::sum(&mut text, language),
            RecallKind::Last => lists::last(&mut text, language),
        }
    }

    /// How many lines of filler a prompt of `length` tokens has; `None` if too few.
    ///
    /// Each measure reads the whole text, so that what a tokenizer does across lines is counted; from the mean of the
    /// lines so far follows the next guess.
    fn fit(&self, draft: &Draft, length: usize) -> Result<Option<usize>> {
        let measure = |lines: usize| (self.length_of)(&draft.text(lines));
        let (mut most, mut tokens) = (LEAST_LINES, measure(LEAST_LINES)?);
        if tokens > length {
            return Ok(None);
        }
        let twice = measure(2 * LEAST_LINES)?;
        let mut mean = ((twice - tokens.min(twice)) as f64 / LEAST_LINES as f64).max(1.0);
        let (first, base) = (most, tokens);
        let mut least_over = usize::MAX;
        while least_over > most + 1 && (length - tokens) as f64 >= 1.5 * mean {
            let guess = most + ((length - tokens) as f64 / mean).max(1.0) as usize;
            let lines = guess.clamp(most + 1, least_over - 1);
            let found = measure(lines)?;
            if found > base {
                mean = ((found - base) as f64 / (lines - first) as f64).max(1.0);
            }
            if found <= length {
                (most, tokens) = (lines, found);
            } else {
                least_over = lines;
            }
        }
        Ok(Some(most))
    }
}
