//! A turn: one reply in the making, which says what rows it wants next and takes what they yield.
//!
//! prompt -> tokens, one a pass, or several where a draft held -> why it ended. Who runs the rows, and beside which others,
//! is in `scheduler/`; what a token means as text is in `text/`, which one is chosen in `sampler/`, what is guessed ahead in
//! `drafts/`.

mod asks;
mod lent;
mod paused;
mod progress;
mod prompt_scores;
mod seen;
mod want;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use program::{Among, OutputRows, Outputs, Prompt, RowsOut, Sequence, Wanted};

use asks::Asks;
pub use lent::Lent;
pub use paused::PausedTurn;
use progress::{Progress, State};
use prompt_scores::PromptScores;
use seen::Seen;
pub(crate) use want::Want;

use crate::drafts::{DraftStep, MOST_DRAFTED, PassCosts};
use crate::text::TextEnd;
use crate::{
    CallParser, Drafters, EarlyEnd, Error, Event, FinishReason, Generated, Prefill, ReplyEnd,
    Request, Result, Sampler, Scheduler, SchedulerOptions, Session, StopReason, TokenUsage,
    Vocabulary,
};

/// One reply in the making.
pub struct Turn<'a> {
    session: Lent<'a, Session>,
    /// Paused: left out of steps, because the client is not reading.
    held: bool,
    /// Candidate tokens requested from the next step.
    asks: Asks,
    /// The last step failed with drafted or forced rows: the next one has none.
    failed: bool,
    progress: Progress<'a>,
}

impl<'a> Turn<'a> {
    /// A reply to `request` in `session`, which may be lent or given, as may the sampler. It begins with its first step.
    pub fn new(
        session: impl Into<Lent<'a, Session>>,
        sampler: impl Into<Lent<'a, Sampler>>,
        vocabulary: &'a dyn Vocabulary,
        request: &Request<'_>,
    ) -> Turn<'a> {
        let progress = Progress::new(sampler.into(), vocabulary, request);
        Turn::with_progress(session.into(), progress)
    }

    fn with_progress(session: Lent<'a, Session>, progress: Progress<'a>) -> Turn<'a> {
        Turn { session, held: false, asks: Asks::default(), failed: false, progress }
    }

    /// With drafts by these.
    pub fn drafted(mut self, drafters: impl Into<Lent<'a, Drafters>>) -> Turn<'a> {
        self.progress.drafters = Some(drafters.into());
        self
    }

    /// Ending early where this says so.
    pub fn ending(mut self, early: EarlyEnd) -> Turn<'a> {
        self.progress.most_time = early.time;
        self.progress.reply.set_indent(early.indent);
        self
    }

    /// Ends the reply at these tokens, too. They are not part of the reply.
    pub fn stopping_at(mut self, stop_tokens: Vec<u32>) -> Turn<'a> {
        self.progress.stop_tokens = stop_tokens;
        self
    }

    /// Requests the log probabilities of the prompt's tokens, each with the `top` likeliest tokens at its position. The whole prompt
    /// is computed for this, and drafting is off.
    pub fn scoring_prompt(mut self, top: usize) -> Turn<'a> {
        self.progress.prompt_scores = Some(PromptScores::new(top));
        self.progress.drafters = None;
        self
    }

    /// With calls of tools found by this.
    pub fn with_calls(mut self, parser: Box<dyn CallParser>) -> Turn<'a> {
        self.progress.reply.set_parser(parser);
        self
    }

    /// The reply, with nobody beside it.
    ///
    /// # Errors
    /// An empty prompt or one that does not fit, non-finite logits, or a failure of the model. The session then holds what
    /// was computed before.
    pub fn alone(mut self, on_event: &mut dyn FnMut(Event<'_>)) -> Result<Generated> {
        let model = Arc::clone(self.session.model());
        let rows = self.session.chunk();
        let pace =
            self.progress.drafters.as_mut().map(|drafters| std::mem::take(&mut drafters.pace));
        let options = SchedulerOptions { rows, ..SchedulerOptions::default() };
        let mut scheduler = Scheduler::new(model, options).at_pace(pace.unwrap_or_default());
        scheduler.join(self)?;
        loop {
            let mut ended = scheduler.step(&mut |_, event| on_event(event));
            if let Some((_, mut turn)) = ended.pop() {
                if let Some(drafters) = &mut turn.progress.drafters {
                    drafters.pace = scheduler.into_pace();
                }
                return turn.finish();
            }
        }
    }

    /// What came of it; as if cancelled, if it is not over.
    ///
    /// # Errors
    /// As [`alone`](Self::alone).
    pub fn finish(self) -> Result<Generated> {
        self.into_parts().1
    }

    /// The session, and what came of the turn.
    pub fn into_parts(self) -> (Lent<'a, Session>, Result<Generated>) {
        (self.session, self.progress.finish())
    }

    /// Its session.
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// Whether it wants nothing any more.
    pub fn is_over(&self) -> bool {
        matches!(self.progress.state, State::Ended(_))
    }

    /// Whether somebody asked it to stop.
    pub(crate) fn is_cancelled(&self) -> bool {
        self.progress.cancel.load(Ordering::Relaxed)
    }

    /// Have it rest, or go on.
    pub(crate) fn hold(&mut self, held: bool) {
        self.held = held;
    }

    /// Whether it is left out of the next pass.
    pub(crate) fn rests(&self) -> bool {
        self.held && !self.is_cancelled()
    }

    /// What is set to ask it to stop.
    pub(crate) fn cancel_flag(&self) -> &AtomicBool {
        &self.progress.cancel
    }

    /// The same, to look at while the turn is used.
    pub(crate) fn shared_flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.progress.cancel)
    }

    /// Get ready for the next step: what may be guessed is asked. `beside`: rows of other turns that write.
    pub(crate) fn prepare(
        &mut self,
        costs: &PassCosts,
        beside: usize,
        on_event: &mut dyn FnMut(Event<'_>),
    ) {
        if matches!(self.progress.state, State::New) {
            self.begin(on_event);
        }
        if let State::Resumed { text } = &mut self.progress.state {
            let text = std::mem::take(text);
            self.reread(text, on_event);
        }
        if self.is_cancelled() {
            self.end(Ok(StopReason::Cancelled), on_event);
        }
        let room = self.session.capacity().saturating_sub(self.session.len() + 1);
        // the last token of the reply is chosen and not computed
        let left = self.progress.max_tokens.saturating_sub(self.progress.tokens.len() + 1);
        if let State::Writing { rows } = &mut self.progress.state {
            rows.truncate(1);
            let mut free = room.min(left);
            if std::mem::take(&mut self.failed) {
                free = 0;
            }
            // what fails here fails again where a token is chosen, and is told there
            let forced = match free {
                0 => Vec::new(),
                _ => self.progress.sampler.forced(self.session.tokens(), rows).unwrap_or_default(),
            };
            rows.extend(forced.into_iter().take(free.min(MOST_DRAFTED)));
            if rows.len() > 1 {
                free = 0;
            }
            if let Some(drafters) = &mut self.progress.drafters {
                drafters.ask(free, costs, beside);
            }
        }
    }

    /// Its drafters, if it has some.
    pub(crate) fn drafters(&mut self) -> Option<&mut Drafters> {
        self.progress.drafters.as_deref_mut()
    }

    /// While the prompt is read: what a drafter's own model has to read of it to be as far after the next pass.
    pub(crate) fn draft_reads(&mut self, costs: &PassCosts) -> Option<DraftStep<'_>> {
        let end = self.session.len() + self.session.chunk();
        match self.progress.state {
            // who reads no more is not read along with
            State::Reading { .. } if self.progress.max_tokens > 1 && !self.is_cancelled() => {
                self.progress.drafters.as_deref_mut()?.reads(end, costs)
            }
            _ => None,
        }
    }

    /// The drafters, while there is something to guess.
    pub(crate) fn drafting(&mut self) -> Option<&mut Drafters> {
        match self.progress.state {
            State::Writing { .. } => self.progress.drafters.as_deref_mut(),
            _ => None,
        }
    }

    /// What it wants next, drafts included.
    pub(crate) fn wants(&mut self, costs: &PassCosts, beside: usize) -> Want {
        if self.rests() {
            return Want::Nothing;
        }
        self.asks.clear();
        let ignored = self.progress.ignore_eog.then_some(self.progress.vocabulary);
        match &mut self.progress.state {
            State::New | State::Resumed { .. } | State::Ended(_) => Want::Nothing,
            State::Rereading { text, .. } => Want::Prompt(text.len() - 1 - self.session.len()),
            State::Reading { .. } => {
                let left = self.progress.prompt.len() - self.session.len();
                if self.progress.prompt_scores.is_some() {
                    return Want::Prompt(PromptScores::rows(left));
                }
                // else its end is not in the next step
                if left <= self.session.chunk() {
                    let of = (&*self.session, &mut *self.progress.sampler);
                    self.asks.prepare(of, ignored, (&self.progress.prompt, &[]));
                }
                Want::Prompt(left)
            }
            State::Writing { rows } => {
                if let Some(drafters) = &mut self.progress.drafters {
                    rows.extend(drafters.draft(costs, beside));
                }
                if rows.len() > 1 {
                    let (next, draft) = rows.split_at(1);
                    let _ = self.progress.sampler.foresee(self.session.tokens(), next, draft);
                }
                let of = (&*self.session, &mut *self.progress.sampler);
                self.asks.prepare(of, ignored, (self.session.tokens(), rows));
                Want::Steps(rows.len())
            }
        }
    }

    fn begin(&mut self, on_event: &mut dyn FnMut(Event<'_>)) {
        let begun = match &mut self.progress.prompt_scores {
            None => self.session.begin(&self.progress.prompt),
            Some(scores) => {
                scores.begin();
                self.session.begin_anew(&self.progress.prompt)
            }
        };
        match begun {
            Ok(cached) => {
                self.progress.stats.cached_tokens = cached;
                self.progress.state = State::Reading { cached };
                let total = self.progress.prompt.len() - cached;
                match self.progress.reply.is_in_thought() {
                    true => self.progress.sampler.wait(),
                    false => self.progress.sampler.begin(self.progress.prompt.len()),
                }
                on_event(Event::Prefill(Prefill { cached, done: 0, total }));
                if let Some(drafters) = &mut self.progress.drafters {
                    drafters.begin(&self.progress.prompt, cached, &self.progress.sampler);
                }
            }
            Err(error) => self.end(Err(error), on_event),
        }
    }

    /// What `n` rows are to yield.
    fn wanted(&self, n: usize) -> Wanted {
        if self.progress.drafters.as_ref().is_some_and(|drafters| drafters.need_rows()) {
            return Wanted::LogitsAndRows;
        }
        let most = if self.progress.ignore_eog { 0 } else { self.session.most_candidates() };
        let plain = || self.progress.sampler.needs().filter(|k| *k <= most);
        match self.asks.candidates(n).or_else(plain) {
            Some(k) => Wanted::Candidates { k },
            None => Wanted::Logits,
        }
    }

    /// What a step is asked, `n` rows of what was wanted.
    pub(crate) fn sequence(&self, n: usize) -> Sequence<'_> {
        match &self.progress.state {
            State::Writing { rows } => {
                let outputs = Outputs { rows: OutputRows::All, what: self.wanted(n) };
                self.session.sequence(&rows[..n], outputs, None)
            }
            State::Reading { cached } => {
                let held = self.session.len();
                let last = held + n == self.progress.prompt.len();
                let outputs = match (&self.progress.prompt_scores, last) {
                    (Some(_), _) => Outputs::ALL,
                    (None, true) => Outputs { rows: OutputRows::Last, what: self.wanted(1) },
                    (None, false) => Outputs { rows: OutputRows::None, what: self.wanted(1) },
                };
                let prompt = Prompt { start: *cached, len: self.progress.prompt.len() - cached };
                self.session.sequence(&self.progress.prompt[held..held + n], outputs, Some(prompt))
            }
            State::Rereading { text, start } => {
                let held = self.session.len();
                let outputs = Outputs { rows: OutputRows::None, what: Wanted::Logits };
                let prompt = Prompt { start: *start, len: text.len() - 1 - start };
                self.session.sequence(&text[held..held + n], outputs, Some(prompt))
            }
            State::New | State::Resumed { .. } | State::Ended(_) => {
                unreachable!("it wants nothing")
            }
        }
    }

    /// What its likeliest tokens are looked for among: nothing, or one for each of its rows that yield some.
    pub(crate) fn among(&self, sequence: &Sequence<'_>) -> Vec<Among<'_>> {
        match sequence.outputs.what {
            Wanted::Candidates { .. } => {
                self.asks.among(sequence.outputs.count(sequence.tokens.len()))
            }
            _ => Vec::new(),
        }
    }

    /// What the `n` rows of its sequence yielded. `plain`: seconds of a pass over its one row that is no guess, and what was
    /// beside it, if that is known.
    pub(crate) fn take(
        &mut self,
        n: usize,
        out: program::Result<RowsOut>,
        plain: Option<f64>,
        on_event: &mut dyn FnMut(Event<'_>),
    ) {
        let state = std::mem::replace(&mut self.progress.state, State::New);
        let taken = match state {
            State::Reading { cached } => self.take_prompt(cached, n, out, on_event),
            State::Writing { rows } => self.take_steps(&rows[..n], out, plain, on_event),
            State::Rereading { text, start } => self.take_again(text, start, n, out),
            State::New | State::Resumed { .. } | State::Ended(_) => {
                unreachable!("it wanted nothing")
            }
        };
        match taken {
            Ok(Next::Goes(state)) => self.progress.state = state,
            Ok(Next::Ends(stop)) => self.end(Ok(stop), on_event),
            Err(Error::Model(program::Error::Cancelled)) => {
                self.end(Ok(StopReason::Cancelled), on_event);
            }
            Err(error) => self.end(Err(error), on_event),
        }
    }

    fn take_prompt(
        &mut self,
        cached: usize,
        n: usize,
        out: program::Result<RowsOut>,
        on_event: &mut dyn FnMut(Event<'_>),
    ) -> Result<Next> {
        let held = self.session.len();
        let (mut seen, handed) = Seen::each(out?);
        if let Some(scores) = &mut self.progress.prompt_scores {
            scores.take(&self.progress.prompt, held, &seen)?;
            seen.drain(..n - 1);
        }
        self.session.appended(&self.progress.prompt[held..held + n]);
        self.hand(held, n, n, &handed);
        self.session.keep(held + n)?;
        let done = held + n - cached;
        self.progress.stats.computed_tokens = done;
        self.progress.stats.prefill = self.progress.start.elapsed();
        on_event(Event::Prefill(Prefill {
            cached,
            done,
            total: self.progress.prompt.len() - cached,
        }));
        if held + n < self.progress.prompt.len() {
            return Ok(Next::Goes(State::Reading { cached }));
        }
        if let Some(scores) = self.progress.prompt_scores.take() {
            let scores = scores.finish(&self.progress.prompt);
            scores.iter().for_each(|scores| on_event(Event::PromptScored(scores)));
            self.progress.stats.prompt_logprobs = scores;
        }
        if self.progress.max_tokens == 0 {
            return Ok(Next::Ends(StopReason::MaxTokens));
        }
        let token = self.choose((0, Seen::single(seen)), held + n)?;
        let now = self.progress.start.elapsed();
        self.progress.stats.first_token = Some(now);
        self.progress.chosen = now;
        if let Some(drafters) = &mut self.progress.drafters {
            drafters.checked(0, &[token], (None, 0.0));
        }
        Ok(match self.write(token, held + n, on_event) {
            Some(stop) => Next::Ends(stop),
            None => Next::Goes(State::Writing { rows: vec![token] }),
        })
    }

    /// Choose a token for each row as long as the draft holds; drop the rows behind.
    fn take_steps(
        &mut self,
        rows: &[u32],
        out: program::Result<RowsOut>,
        plain: Option<f64>,
        on_event: &mut dyn FnMut(Event<'_>),
    ) -> Result<Next> {
        let held = self.session.len();
        let (seen, handed) = match out {
            Ok(out) => Seen::each(out),
            // what only a wrong draft ran into is no error of the text
            Err(_) if rows.len() > 1 && !self.is_cancelled() => return Ok(self.undrafted(rows)),
            Err(error) => return Err(error.into()),
        };
        self.session.appended(rows);
        let mut written = Vec::new();
        let mut stop = None;
        for (i, seen) in seen.into_iter().enumerate() {
            let token = match self.choose((i, seen), held + i + 1) {
                Ok(token) => token,
                Err(error) => {
                    self.session.keep(held + i + 1)?;
                    return Err(error);
                }
            };
            written.push(token);
            stop = self.write(token, held + i + 1, on_event);
            if stop.is_some() || rows.get(i + 1) != Some(&token) {
                break;
            }
        }
        self.session.keep(held + written.len())?;
        self.hand(held, rows.len(), written.len(), &handed);
        let now = self.progress.start.elapsed();
        let each = (now - self.progress.chosen) / written.len() as u32;
        self.progress.stats.steps.extend(std::iter::repeat_n(each, written.len()));
        if let Some(drafters) = &mut self.progress.drafters {
            let took = (now - self.progress.chosen).as_secs_f64();
            drafters.checked(rows.len() - 1, &written, (plain, took));
        }
        self.progress.chosen = now;
        Ok(match (stop, written.last()) {
            (None, Some(&last)) => Next::Goes(State::Writing { rows: vec![last] }),
            (stop, _) => Next::Ends(stop.unwrap_or(StopReason::Cancelled)),
        })
    }

    /// Tell the drafters what was handed out of `n` tokens from the `first`th on, of which `kept` are the text's.
    fn hand(&mut self, first: usize, n: usize, kept: usize, handed: &[Vec<f32>]) {
        if let (Some(drafters), [rows]) = (&mut self.progress.drafters, handed) {
            drafters.handed(first, &rows[..rows.len() / n * kept]);
        }
    }

    /// The pass over a draft failed: try the row that is no guess.
    fn undrafted(&mut self, rows: &[u32]) -> Next {
        if let Some(drafters) = &mut self.progress.drafters {
            drafters.checked(rows.len() - 1, &[], (None, 0.0));
        }
        self.failed = true;
        Next::Goes(State::Writing { rows: rows[..1].to_vec() })
    }

    /// The token after the first `len` that the session holds, by what row `i` of the step shows of it.
    fn choose(&mut self, (i, seen): (usize, Seen), len: usize) -> Result<u32> {
        let before = &self.session.tokens()[..len];
        match seen {
            Seen::All(mut scores) => {
                if self.progress.ignore_eog {
                    self.asks.ban(&mut scores, self.progress.vocabulary);
                }
                self.progress.sampler.sample_scores(&scores, before)
            }
            Seen::Likeliest(likeliest) => {
                self.progress.sampler.sample_likeliest(&likeliest, before)
            }
            Seen::Asked(row) => self.asks.choose(&mut self.progress.sampler, (i, row), before),
        }
    }

    /// Add a token to the reply; the cache holds `len` tokens of it and the prompt by then. Why it ends, if it does.
    fn write(
        &mut self,
        token: u32,
        len: usize,
        on_event: &mut dyn FnMut(Event<'_>),
    ) -> Option<StopReason> {
        let ends = self.progress.vocabulary.is_eog(token) && !self.progress.ignore_eog;
        if ends || self.progress.stop_tokens.contains(&token) {
            return Some(StopReason::EndOfGeneration(token));
        }
        self.progress.tokens.push(token);
        let thought = self.progress.reply.is_in_thought();
        if let Some(chosen) = self.progress.sampler.logprobs(len..len + 1).last() {
            on_event(Event::Chosen(chosen));
        }
        let end = self.progress.reply.push(self.progress.vocabulary, token, on_event);
        if let Some(tokens) = &mut self.progress.stats.reasoning_tokens {
            *tokens += usize::from(thought || self.progress.reply.is_in_thought());
        }
        match end {
            Some(TextEnd::Stop(stop)) => return Some(StopReason::StopString(stop)),
            Some(TextEnd::Outdented) => return Some(StopReason::Outdented),
            None => {}
        }
        if self.progress.sampler.waits_to_open()
            && let Some(text) = self.progress.reply.open_calls()
        {
            self.progress.sampler.begin_within(len + 1, &text);
        }
        // a thought that the prompt began is over
        if self.progress.sampler.waits() && !self.progress.reply.is_in_thought() {
            self.progress.sampler.begin(len + 1);
        }
        if self.progress.tokens.len() >= self.progress.max_tokens {
            return Some(StopReason::MaxTokens);
        }
        if self.is_cancelled() {
            return Some(StopReason::Cancelled);
        }
        let since =
            || self.progress.start.elapsed() - self.progress.stats.first_token.unwrap_or_default();
        if self
            .progress
            .most_time
            .is_some_and(|time| self.progress.reply.ended_line() && since() > time)
        {
            return Some(StopReason::Time);
        }
        (len >= self.session.capacity()).then_some(StopReason::ContextFull)
    }

    fn end(&mut self, stop: Result<StopReason>, on_event: &mut dyn FnMut(Event<'_>)) {
        if !self.is_over() {
            let end = stop.as_ref().map_or(ReplyEnd::Cut, ReplyEnd::of);
            self.progress.reply.flush(end, on_event);
            if let Ok(stop) = &stop {
                on_event(Event::Usage(TokenUsage::new(
                    &self.progress.stats,
                    self.progress.tokens.len(),
                )));
                on_event(Event::End(FinishReason::new(stop, self.progress.reply.has_calls())));
            }
            self.progress.state = State::Ended(stop);
        }
    }
}

/// What follows a step.
enum Next {
    Goes(State),
    Ends(StopReason),
}
