//! A turn: one reply in the making, which says what rows it wants next and takes what they yield.
//!
//! prompt -> tokens, one a pass, or several where a draft held -> why it ended. Who runs the rows, and beside which others,
//! is in `scheduler/`; what a token means as text is in `text/`, which one is chosen in `sampler/`, what is guessed ahead in
//! `drafts/`.

mod asks;
mod lent;
mod outcome;
mod paused;
mod seen;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use program::{Among, OutputRows, Outputs, Prompt, RowsOut, Sequence, Wanted};

use asks::Asks;
pub use lent::Lent;
use outcome::generated;
pub use paused::PausedTurn;
use seen::Seen;

use crate::drafts::{DraftStep, MOST_DRAFTED, PassCosts};
use crate::text::{ReplyText, TextEnd, opens_thought};
use crate::{
    CallParser, Drafters, EarlyEnd, Error, Event, FinishReason, Generated, Prefill, Request,
    Result, Sampler, Scheduler, SchedulerOptions, Session, Stats, StopReason, TokenUsage,
    Vocabulary,
};

/// One reply in the making.
pub struct Turn<'a> {
    session: Lent<'a, Session>,
    sampler: Lent<'a, Sampler>,
    drafters: Option<Lent<'a, Drafters>>,
    vocabulary: &'a dyn Vocabulary,
    prompt: Vec<u32>,
    max_tokens: usize,
    ignore_eog: bool,
    /// A line that ends so long after the first token ends it.
    most_time: Option<Duration>,
    cancel: Arc<AtomicBool>,
    /// It rests.
    held: bool,
    state: State,
    /// What the next step is asked for its choices.
    asks: Asks,
    /// The last pass failed over rows that were guessed or forced: the next one is without.
    failed: bool,
    reply: ReplyText,
    tokens: Vec<u32>,
    stats: Stats,
    start: Instant,
    /// When the last token was chosen, from the start.
    chosen: Duration,
}

/// How far a turn is.
enum State {
    /// Nothing was asked of the session yet.
    New,
    /// The prompt is being read; so many of its tokens were in the cache.
    Reading { cached: usize },
    /// The token chosen last, and a draft of what follows it.
    Writing { rows: Vec<u32> },
    /// Resumed in a session that may hold less than before. `text`: prompt and reply so far.
    Resumed { text: Vec<u32> },
    /// Computes all of `text` but its last token again, from the first position that was not in the cache.
    Rereading { text: Vec<u32>, start: usize },
    /// It is over.
    Ended(Result<StopReason>),
}

/// The rows that a turn wants next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Want {
    /// None: it is over, or rests.
    Nothing,
    /// So many of its prompt, or fewer at a time.
    Prompt(usize),
    /// So many, all at once.
    Steps(usize),
}

impl Want {
    /// Rows that go into the next pass in any case.
    pub(crate) fn written(self) -> usize {
        if let Want::Steps(n) = self { n } else { 0 }
    }
}

impl<'a> Turn<'a> {
    /// A reply to `request` in `session`, which may be lent or given, as may the sampler. It begins with its first step.
    pub fn new(
        session: impl Into<Lent<'a, Session>>,
        sampler: impl Into<Lent<'a, Sampler>>,
        vocabulary: &'a dyn Vocabulary,
        request: &Request<'_>,
    ) -> Turn<'a> {
        let thoughts = request.split_thoughts.then(|| opens_thought(vocabulary, request.prompt));
        Turn {
            session: session.into(),
            sampler: sampler.into(),
            drafters: None,
            vocabulary,
            prompt: request.prompt.to_vec(),
            max_tokens: request.max_tokens.unwrap_or(usize::MAX),
            ignore_eog: request.ignore_eog,
            most_time: None,
            cancel: Arc::clone(request.cancel),
            held: false,
            state: State::New,
            asks: Asks::default(),
            failed: false,
            reply: ReplyText::new(request.stop, thoughts),
            tokens: Vec::new(),
            stats: Stats { prompt_tokens: request.prompt.len(), ..Stats::default() },
            start: Instant::now(),
            chosen: Duration::ZERO,
        }
    }

    /// With drafts by these.
    pub fn drafted(self, drafters: impl Into<Lent<'a, Drafters>>) -> Turn<'a> {
        Turn { drafters: Some(drafters.into()), ..self }
    }

    /// Ending early where this says so.
    pub fn ending(mut self, early: EarlyEnd) -> Turn<'a> {
        self.most_time = early.time;
        self.reply.set_indent(early.indent);
        self
    }

    /// With calls of tools found by this.
    pub fn with_calls(mut self, parser: Box<dyn CallParser>) -> Turn<'a> {
        self.reply.set_parser(parser);
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
        let pace = self.drafters.as_mut().map(|drafters| std::mem::take(&mut drafters.pace));
        let options = SchedulerOptions { rows, ..SchedulerOptions::default() };
        let mut scheduler = Scheduler::new(model, options).at_pace(pace.unwrap_or_default());
        scheduler.join(self)?;
        loop {
            let mut ended = scheduler.step(&mut |_, event| on_event(event));
            if let Some((_, mut turn)) = ended.pop() {
                if let Some(drafters) = &mut turn.drafters {
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
        let stop = match self.state {
            State::Ended(stop) => stop,
            _ => Ok(StopReason::Cancelled),
        };
        let choosers = (self.sampler, self.drafters);
        (self.session, generated(choosers, (self.reply, self.tokens, self.stats), stop))
    }

    /// Its session.
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// Whether it wants nothing any more.
    pub fn is_over(&self) -> bool {
        matches!(self.state, State::Ended(_))
    }

    /// Whether somebody asked it to stop.
    pub(crate) fn is_cancelled(&self) -> bool {
        self.cancel.load(Ordering::Relaxed)
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
        &self.cancel
    }

    /// The same, to look at while the turn is used.
    pub(crate) fn shared_flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.cancel)
    }

    /// Get ready for the next step: what may be guessed is asked. `beside`: rows of other turns that write.
    pub(crate) fn prepare(
        &mut self,
        costs: &PassCosts,
        beside: usize,
        on_event: &mut dyn FnMut(Event<'_>),
    ) {
        if matches!(self.state, State::New) {
            self.begin(on_event);
        }
        if let State::Resumed { text } = &mut self.state {
            let text = std::mem::take(text);
            self.reread(text, on_event);
        }
        if self.is_cancelled() {
            self.end(Ok(StopReason::Cancelled), on_event);
        }
        let room = self.session.capacity().saturating_sub(self.session.len() + 1);
        // the last token of the reply is chosen and not computed
        let left = self.max_tokens.saturating_sub(self.tokens.len() + 1);
        if let State::Writing { rows } = &mut self.state {
            rows.truncate(1);
            let mut free = room.min(left);
            if std::mem::take(&mut self.failed) {
                free = 0;
            }
            // what fails here fails again where a token is chosen, and is told there
            let forced = match free {
                0 => Vec::new(),
                _ => self.sampler.forced(self.session.tokens(), rows).unwrap_or_default(),
            };
            rows.extend(forced.into_iter().take(free.min(MOST_DRAFTED)));
            if rows.len() > 1 {
                free = 0;
            }
            if let Some(drafters) = &mut self.drafters {
                drafters.ask(free, costs, beside);
            }
        }
    }

    /// Its drafters, if it has some.
    pub(crate) fn drafters(&mut self) -> Option<&mut Drafters> {
        self.drafters.as_deref_mut()
    }

    /// While the prompt is read: what a drafter's own model has to read of it to be as far after the next pass.
    pub(crate) fn draft_reads(&mut self, costs: &PassCosts) -> Option<DraftStep<'_>> {
        let end = self.session.len() + self.session.chunk();
        match self.state {
            // who reads no more is not read along with
            State::Reading { .. } if self.max_tokens > 1 && !self.is_cancelled() => {
                self.drafters.as_deref_mut()?.reads(end, costs)
            }
            _ => None,
        }
    }

    /// The drafters, while there is something to guess.
    pub(crate) fn drafting(&mut self) -> Option<&mut Drafters> {
        match self.state {
            State::Writing { .. } => self.drafters.as_deref_mut(),
            _ => None,
        }
    }

    /// What it wants next, drafts included.
    pub(crate) fn wants(&mut self, costs: &PassCosts, beside: usize) -> Want {
        if self.rests() {
            return Want::Nothing;
        }
        self.asks.clear();
        let ignored = self.ignore_eog.then_some(self.vocabulary);
        match &mut self.state {
            State::New | State::Resumed { .. } | State::Ended(_) => Want::Nothing,
            State::Rereading { text, .. } => Want::Prompt(text.len() - 1 - self.session.len()),
            State::Reading { .. } => {
                let left = self.prompt.len() - self.session.len();
                // else its end is not in the next step
                if left <= self.session.chunk() {
                    let of = (&*self.session, &mut *self.sampler);
                    self.asks.prepare(of, ignored, (&self.prompt, &[]));
                }
                Want::Prompt(left)
            }
            State::Writing { rows } => {
                if let Some(drafters) = &mut self.drafters {
                    rows.extend(drafters.draft(costs, beside));
                }
                if rows.len() > 1 {
                    let (next, draft) = rows.split_at(1);
                    let _ = self.sampler.foresee(self.session.tokens(), next, draft);
                }
                let of = (&*self.session, &mut *self.sampler);
                self.asks.prepare(of, ignored, (self.session.tokens(), rows));
                Want::Steps(rows.len())
            }
        }
    }

    fn begin(&mut self, on_event: &mut dyn FnMut(Event<'_>)) {
        match self.session.begin(&self.prompt) {
            Ok(cached) => {
                self.stats.cached_tokens = cached;
                self.state = State::Reading { cached };
                let total = self.prompt.len() - cached;
                match self.reply.is_in_thought() {
                    true => self.sampler.wait(),
                    false => self.sampler.begin(self.prompt.len()),
                }
                on_event(Event::Prefill(Prefill { cached, done: 0, total }));
                if let Some(drafters) = &mut self.drafters {
                    drafters.begin(&self.prompt, cached, &self.sampler);
                }
            }
            Err(error) => self.end(Err(error), on_event),
        }
    }

    /// What `n` rows are to yield.
    fn wanted(&self, n: usize) -> Wanted {
        if self.drafters.as_ref().is_some_and(|drafters| drafters.need_rows()) {
            return Wanted::LogitsAndRows;
        }
        let most = if self.ignore_eog { 0 } else { self.session.most_candidates() };
        let plain = || self.sampler.needs().filter(|k| *k <= most);
        match self.asks.candidates(n).or_else(plain) {
            Some(k) => Wanted::Candidates { k },
            None => Wanted::Logits,
        }
    }

    /// What a step is asked, `n` rows of what was wanted.
    pub(crate) fn sequence(&self, n: usize) -> Sequence<'_> {
        match &self.state {
            State::Writing { rows } => {
                let outputs = Outputs { rows: OutputRows::All, what: self.wanted(n) };
                self.session.sequence(&rows[..n], outputs, None)
            }
            State::Reading { cached } => {
                let held = self.session.len();
                let last = held + n == self.prompt.len();
                let rows = if last { OutputRows::Last } else { OutputRows::None };
                let outputs = Outputs { rows, what: self.wanted(1) };
                let prompt = Prompt { start: *cached, len: self.prompt.len() - cached };
                self.session.sequence(&self.prompt[held..held + n], outputs, Some(prompt))
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
        let state = std::mem::replace(&mut self.state, State::New);
        let taken = match state {
            State::Reading { cached } => self.take_prompt(cached, n, out, on_event),
            State::Writing { rows } => self.take_steps(&rows[..n], out, plain, on_event),
            State::Rereading { text, start } => self.take_again(text, start, n, out),
            State::New | State::Resumed { .. } | State::Ended(_) => {
                unreachable!("it wanted nothing")
            }
        };
        match taken {
            Ok(Next::Goes(state)) => self.state = state,
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
        let (seen, handed) = Seen::each(out?);
        self.session.appended(&self.prompt[held..held + n]);
        self.hand(held, n, n, &handed);
        self.session.keep(held + n)?;
        let done = held + n - cached;
        self.stats.computed_tokens = done;
        self.stats.prefill = self.start.elapsed();
        on_event(Event::Prefill(Prefill { cached, done, total: self.prompt.len() - cached }));
        if held + n < self.prompt.len() {
            return Ok(Next::Goes(State::Reading { cached }));
        }
        if self.max_tokens == 0 {
            return Ok(Next::Ends(StopReason::MaxTokens));
        }
        let token = self.choose((0, Seen::single(seen)), held + n)?;
        let now = self.start.elapsed();
        self.stats.first_token = Some(now);
        self.chosen = now;
        if let Some(drafters) = &mut self.drafters {
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
        let now = self.start.elapsed();
        let each = (now - self.chosen) / written.len() as u32;
        self.stats.steps.extend(std::iter::repeat_n(each, written.len()));
        if let Some(drafters) = &mut self.drafters {
            let took = (now - self.chosen).as_secs_f64();
            drafters.checked(rows.len() - 1, &written, (plain, took));
        }
        self.chosen = now;
        Ok(match (stop, written.last()) {
            (None, Some(&last)) => Next::Goes(State::Writing { rows: vec![last] }),
            (stop, _) => Next::Ends(stop.unwrap_or(StopReason::Cancelled)),
        })
    }

    /// Tell the drafters what was handed out of `n` tokens from the `first`th on, of which `kept` are the text's.
    fn hand(&mut self, first: usize, n: usize, kept: usize, handed: &[Vec<f32>]) {
        if let (Some(drafters), [rows]) = (&mut self.drafters, handed) {
            drafters.handed(first, &rows[..rows.len() / n * kept]);
        }
    }

    /// The pass over a draft failed: try the row that is no guess.
    fn undrafted(&mut self, rows: &[u32]) -> Next {
        if let Some(drafters) = &mut self.drafters {
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
                if self.ignore_eog {
                    self.asks.ban(&mut scores, self.vocabulary);
                }
                self.sampler.sample_scores(&scores, before)
            }
            Seen::Likeliest(likeliest) => self.sampler.sample_likeliest(&likeliest, before),
            Seen::Asked(row) => self.asks.choose(&mut self.sampler, (i, row), before),
        }
    }

    /// Add a token to the reply; the cache holds `len` tokens of it and the prompt by then. Why it ends, if it does.
    fn write(
        &mut self,
        token: u32,
        len: usize,
        on_event: &mut dyn FnMut(Event<'_>),
    ) -> Option<StopReason> {
        if self.vocabulary.is_eog(token) && !self.ignore_eog {
            return Some(StopReason::EndOfGeneration(token));
        }
        self.tokens.push(token);
        if let Some(chosen) = self.sampler.logprobs(len..len + 1).last() {
            on_event(Event::Chosen(chosen));
        }
        match self.reply.push(self.vocabulary, token, on_event) {
            Some(TextEnd::Stop(stop)) => return Some(StopReason::StopString(stop)),
            Some(TextEnd::Outdented) => return Some(StopReason::Outdented),
            None => {}
        }
        if self.sampler.waits_to_open()
            && let Some(text) = self.reply.open_calls()
        {
            self.sampler.begin_within(len + 1, &text);
        }
        // a thought that the prompt began is over
        if self.sampler.waits() && !self.reply.is_in_thought() {
            self.sampler.begin(len + 1);
        }
        if self.tokens.len() >= self.max_tokens {
            return Some(StopReason::MaxTokens);
        }
        if self.is_cancelled() {
            return Some(StopReason::Cancelled);
        }
        let since = || self.start.elapsed() - self.stats.first_token.unwrap_or_default();
        if self.most_time.is_some_and(|time| self.reply.ended_line() && since() > time) {
            return Some(StopReason::Time);
        }
        (len >= self.session.capacity()).then_some(StopReason::ContextFull)
    }

    fn end(&mut self, stop: Result<StopReason>, on_event: &mut dyn FnMut(Event<'_>)) {
        if !self.is_over() {
            self.reply.flush(on_event);
            if let Ok(stop) = &stop {
                on_event(Event::Usage(TokenUsage::new(&self.stats, self.tokens.len())));
                on_event(Event::End(FinishReason::new(stop, self.reply.has_calls())));
            }
            self.state = State::Ended(stop);
        }
    }
}

/// What follows a step.
enum Next {
    Goes(State),
    Ends(StopReason),
}
