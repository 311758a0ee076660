//! Drafts by what the target's own file has to guess with: blocks for multi-token prediction.
//!
//! Row `i` of their program reads what the target's head reads of token `i`, and token `i + 1`; its logits are of token
//! `i + 2`. A guess after a guess reads what the row before it yields in place of the target's row, which is not there yet:
//! such rows are dropped once the target has said what follows, and are computed again from its own.

use program::{OutputRows, Outputs, Prompt, Wanted};

use super::guesses::{Guesses, Timed};
use super::{Draft, DraftStep, Drafter};
use crate::alike::alike;
use crate::{Result, Sampler, Session};

/// Rows of the target's that are kept until they are read, if a chunk is less.
const KEPT: usize = 256;

/// Logits, and what the next guess reads, of the last row.
const GUESS: Outputs = Outputs { rows: OutputRows::Last, what: Wanted::LogitsAndRows };

/// Drafts by blocks of the target's file: see the [module](self).
pub(super) struct MtpDrafter {
    session: Session,
    guesses: Guesses,
    /// The token whose row is the session's first.
    from: usize,
    /// Rows of the session that were made of the target's.
    sure: usize,
    handed: Handed,
    /// What the guess after the last row reads.
    carried: Vec<f32>,
    /// The tokens of the rows that are being run, and whether those are made of the target's.
    rows: Vec<u32>,
    are_sure: bool,
    timed: Timed,
    /// The prompt that is being read.
    prompt: Option<Prompt>,
}

/// What the target handed out and was not read yet.
struct Handed {
    /// The token of the first row.
    first: usize,
    rows: Vec<f32>,
    /// Numbers of a row.
    width: usize,
}

impl Handed {
    fn end(&self) -> usize {
        self.first + self.rows.len() / self.width
    }

    /// Rows of tokens from the `first`th on; of all that are there, the last `most` are kept.
    fn push(&mut self, first: usize, rows: &[f32], most: usize) {
        if first != self.end() {
            self.rows.clear();
            self.first = first;
        }
        self.rows.extend_from_slice(rows);
        self.forget(self.end().saturating_sub(most));
    }

    /// None from the `end`th token on, of which the next ones are to come.
    fn cut(&mut self, end: usize) {
        self.rows.truncate(end.saturating_sub(self.first) * self.width);
        if self.rows.is_empty() {
            self.first = end;
        }
    }

    /// Those before token `first` are not needed any more.
    fn forget(&mut self, first: usize) {
        let n = first.clamp(self.first, self.end()) - self.first;
        self.rows.drain(..n * self.width);
        self.first += n;
    }

    /// The rows of these tokens.
    fn of(&self, tokens: std::ops::Range<usize>) -> &[f32] {
        let place = |token: usize| (token - self.first) * self.width;
        &self.rows[place(tokens.start)..place(tokens.end)]
    }
}

impl MtpDrafter {
    /// # Panics
    /// If its program does not take one input.
    pub(super) fn new(session: Session) -> MtpDrafter {
        let program = session.model().program();
        let [input] = program.inputs[..] else { panic!("one input, a row for each token") };
        let handed =
            Handed { first: 0, rows: Vec::new(), width: program.value(input).shape.cols().max(1) };
        MtpDrafter {
            session,
            guesses: Guesses::default(),
            from: 0,
            sure: 0,
            handed,
            carried: Vec::new(),
            rows: Vec::new(),
            are_sure: true,
            timed: Timed::default(),
            prompt: None,
        }
    }

    /// Tokens of the text up to the last one whose row the session has.
    fn held(&self) -> usize {
        self.from + self.session.len()
    }

    /// The last token is followed by none: it has no row yet.
    fn end(&self) -> usize {
        self.guesses.written().saturating_sub(1).min(self.handed.end())
    }

    /// Drop the session's rows from the `len`th on, and those that were not made of the target's.
    fn keep(&mut self, len: usize) {
        let len = len.min(self.sure);
        if self.session.len() != len || self.sure != len {
            let _ = self.session.keep(len).or_else(|_| self.session.clear());
        }
        self.sure = self.session.len();
    }

    /// At most `most` rows of tokens before the `end`th. After a row alone, which shows what a guess costs, and after the
    /// last one the next token's scores are wanted.
    fn read(&mut self, end: usize, most: usize) -> Option<DraftStep<'_>> {
        let most = self.timed.most(most.min(self.session.chunk()));
        if self.held() < self.handed.first {
            // rows between were not handed out, or not kept: the text is known from here on
            self.keep(0);
            (self.from, self.prompt) = (self.handed.first, None);
        }
        let tokens = self.held()..end.min(self.end()).min(self.held().saturating_add(most));
        if tokens.is_empty() {
            return None;
        }
        self.rows.clear();
        self.rows.extend_from_slice(&self.guesses.text()[tokens.start + 1..tokens.end + 1]);
        self.are_sure = true;
        let last = tokens.end + 1 == self.guesses.written() || self.rows.len() == 1;
        let end = self.session.len() + tokens.len();
        let prompt = self.prompt.filter(|prompt| end <= prompt.start + prompt.len);
        self.step(if last { GUESS } else { Outputs::NONE }, prompt, self.handed.of(tokens))
    }

    fn step<'a>(
        &'a self,
        outputs: Outputs,
        prompt: Option<Prompt>,
        input: &'a [f32],
    ) -> Option<DraftStep<'a>> {
        if self.session.len() + self.rows.len() > self.session.capacity() {
            return None;
        }
        let sequence = self.session.sequence(&self.rows, outputs, prompt);
        Some(DraftStep { session: &self.session, sequence, inputs: vec![input] })
    }
}

impl Drafter for MtpDrafter {
    fn name(&self) -> &'static str {
        "mtp"
    }

    fn has_model(&self) -> bool {
        true
    }

    fn needs_rows(&self) -> bool {
        true
    }

    fn begin(&mut self, tokens: &[u32], sampler: &Sampler) {
        let same = alike(&self.guesses.text()[..self.guesses.written()], tokens);
        self.guesses.begin(tokens, sampler);
        // a row is of a token and the one after it
        self.keep(same.saturating_sub(1 + self.from));
        self.handed.cut(same);
    }

    fn left_behind(&mut self, cached: usize) {
        // rows of tokens before that are not handed out again
        if self.handed.end().max(self.held()) < cached {
            self.keep(0);
            self.handed.cut(0);
        }
        self.handed.cut(cached);
        if self.session.is_empty() {
            self.from = self.handed.first;
        }
        // in the session's own places; the last token has no row
        let start = self.session.len();
        let len = self.guesses.written().saturating_sub(1 + self.from + start);
        self.prompt = Some(Prompt { start, len });
    }

    fn handed(&mut self, first: usize, rows: &[f32]) {
        self.handed.push(first, rows, self.session.chunk().max(KEPT));
        self.handed.forget(self.from + self.sure);
    }

    fn push(&mut self, tokens: &[u32]) {
        self.guesses.push(tokens);
        self.keep(self.sure);
    }

    fn behind(&self) -> usize {
        self.end().saturating_sub(self.held().max(self.handed.first))
    }

    fn reads(&mut self, end: usize, most: usize) -> Option<DraftStep<'_>> {
        self.read(end, most)
    }

    fn wants(&mut self, max: usize) -> Option<DraftStep<'_>> {
        if !self.guesses.may_guess(max) {
            return None;
        }
        let Some(&last) = self.guesses.guessed().last() else {
            return self.read(usize::MAX, usize::MAX);
        };
        self.rows.clear();
        self.rows.push(last);
        self.are_sure = false;
        self.step(GUESS, None, &self.carried)
    }

    fn take(&mut self, out: Result<program::RowsOut, program::Error>) -> Result<()> {
        let (logits, mut handed) = out?.into_logits_and_rows();
        self.session.appended(&self.rows);
        self.timed.ran(self.rows.len());
        if self.are_sure {
            self.session.keep(self.session.len())?;
            self.sure = self.session.len();
            self.handed.forget(self.held());
        }
        if logits.rows().len() > 0 && self.held() + 1 >= self.guesses.text().len() {
            self.carried = handed.pop().unwrap_or_default();
            self.guesses.choose(&logits.into());
        }
        Ok(())
    }

    fn draft(&mut self, max: usize) -> Result<Draft> {
        Ok(self.guesses.draft(max))
    }
}
