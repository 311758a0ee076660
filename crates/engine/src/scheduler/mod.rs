//! One pass over the weights for all turns that are ready.
//!
//! Turns that write take all their rows; what time is left of a pass goes to prompts, in equal shares, so that nobody who
//! reads waits for somebody who writes, nor the other way round. How rows are dealt changes no bit.

mod pace;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use program::{Among, Model, RowsOut, Sequence, Step};

use crate::drafts::DraftStep;
use crate::turn::Want;
use crate::{DEFAULT_CHUNK, Error, Event, Result, Turn};
pub(crate) use pace::Pace;

/// How many turns there may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SchedulerOptions {
    /// Turns that run at once; at least 1.
    pub running: usize,
    /// Turns that wait for one of these to end.
    pub waiting: usize,
    /// Most rows of a pass.
    pub rows: usize,
}

impl Default for SchedulerOptions {
    fn default() -> Self {
        SchedulerOptions { running: 16, waiting: 64, rows: DEFAULT_CHUNK }
    }
}

/// A turn of a [`Scheduler`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TurnId(pub u64);

/// Runs turns on one model, side by side.
pub struct Scheduler<'a> {
    model: Arc<dyn Model>,
    options: SchedulerOptions,
    running: Vec<(TurnId, Turn<'a>)>,
    waiting: VecDeque<(TurnId, Turn<'a>)>,
    pace: Pace,
    last: u64,
    /// Which of the prompts gets the first rows of the next pass.
    first: usize,
}

impl<'a> Scheduler<'a> {
    /// A scheduler without turns.
    pub fn new(model: Arc<dyn Model>, options: SchedulerOptions) -> Scheduler<'a> {
        Scheduler {
            model,
            options: SchedulerOptions {
                running: options.running.max(1),
                rows: options.rows.max(1),
                ..options
            },
            running: Vec::new(),
            waiting: VecDeque::new(),
            pace: Pace::default(),
            last: 0,
            first: 0,
        }
    }

    /// With what was learned of the time that passes take.
    pub(crate) fn at_pace(self, pace: Pace) -> Scheduler<'a> {
        Scheduler { pace, ..self }
    }

    /// What was learned of the time that passes take.
    pub(crate) fn into_pace(self) -> Pace {
        self.pace
    }

    /// Add a turn, to run at once or when another ends.
    ///
    /// # Errors
    /// [`Error::Busy`] if as many wait as may; [`Error::OtherModel`] for a session of another model.
    pub fn join(&mut self, turn: Turn<'a>) -> Result<TurnId> {
        if !turn.session().is_of(&self.model) {
            return Err(Error::OtherModel);
        }
        self.admit();
        let runs = self.waiting.is_empty() && self.running.len() < self.options.running;
        if !runs && self.waiting.len() >= self.options.waiting {
            return Err(Error::Busy { waiting: self.waiting.len() });
        }
        self.last += 1;
        let id = TurnId(self.last);
        if runs {
            self.running.push((id, turn));
        } else {
            self.waiting.push_back((id, turn));
        }
        Ok(id)
    }

    /// Have a turn rest from the next pass on, or go on: what it holds stays, and so does its text. Being cancelled ends it all
    /// the same.
    pub fn hold(&mut self, id: TurnId, held: bool) {
        let waiting = self.waiting.iter_mut();
        let mut all = self.running.iter_mut().chain(waiting);
        if let Some((_, turn)) = all.find(|(of, _)| *of == id) {
            turn.hold(held);
        }
    }

    /// Take a turn out, to pause it.
    pub fn leave(&mut self, id: TurnId) -> Option<Turn<'a>> {
        let at = self.running.iter().position(|(of, _)| *of == id);
        if let Some(at) = at {
            return Some(self.running.remove(at).1);
        }
        let at = self.waiting.iter().position(|(of, _)| *of == id)?;
        self.waiting.remove(at).map(|(_, turn)| turn)
    }

    /// Turns that run and turns that wait.
    pub fn len(&self) -> (usize, usize) {
        (self.running.len(), self.waiting.len())
    }

    /// How many turns may run.
    pub fn room(&self) -> usize {
        self.options.running
    }

    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.running.is_empty() && self.waiting.is_empty()
    }

    fn admit(&mut self) {
        while self.running.len() < self.options.running {
            let Some(turn) = self.waiting.pop_front() else { break };
            self.running.push(turn);
        }
    }

    /// Run one pass, and hand back the turns that are over: each has told its last event and holds its own error, if any.
    pub fn step(&mut self, on_event: &mut dyn FnMut(TurnId, Event<'_>)) -> Vec<(TurnId, Turn<'a>)> {
        self.admit();
        let wants = self.wants(on_event);
        let rows = self.pace.deal(&wants, self.options.rows, self.first);
        self.first += 1;
        self.run(&rows, &wants, on_event);
        self.ended()
    }

    /// How many do not rest: who does is in no pass, and no reason to guess less.
    fn at_work(&self) -> usize {
        self.running.iter().filter(|(_, turn)| !turn.rests()).count()
    }

    fn wants(&mut self, on_event: &mut dyn FnMut(TurnId, Event<'_>)) -> Vec<Want> {
        let beside = self.at_work().saturating_sub(1);
        let costs = self.pace.costs();
        for (id, turn) in self.running.iter_mut().filter(|(_, turn)| !turn.rests()) {
            turn.prepare(costs, beside, &mut |event| on_event(*id, event));
        }
        while run_drafters(&mut self.running, &mut |turn| turn.draft_reads(costs)) {}
        while run_drafters(&mut self.running, &mut |turn| turn.drafting()?.wants()) {}
        self.running.iter_mut().map(|(_, turn)| turn.wants(costs, beside)).collect()
    }

    /// Run `rows[i]` rows of the `i`th turn.
    fn run(&mut self, rows: &[usize], wants: &[Want], on_event: &mut dyn FnMut(TurnId, Event<'_>)) {
        if rows.iter().all(|n| *n == 0) {
            return;
        }
        let started = Instant::now();
        let outs = self.pass(rows);
        let seconds = started.elapsed().as_secs_f64();
        let plain = self.pace.plain(rows, wants);
        self.pace.ran(rows, wants, seconds);
        let ran = self.running.iter_mut().zip(rows).filter(|(_, n)| **n > 0);
        for (((id, turn), &n), out) in ran.zip(outs) {
            turn.take(n, out, plain, &mut |event| on_event(*id, event));
        }
    }

    /// What the rows of each turn that has some yield. The pass ends early if all of them were cancelled. Where it fails as a
    /// whole, each is tried alone: what one wants too much is not the others' error.
    fn pass(&self, rows: &[usize]) -> Vec<program::Result<RowsOut>> {
        let with_rows = self.running.iter().zip(rows).filter(|(_, n)| **n > 0);
        let turns: Vec<(&Turn<'a>, usize)> = with_rows.map(|((_, turn), n)| (turn, *n)).collect();
        let sequences: Vec<_> = turns.iter().map(|(turn, n)| turn.sequence(*n)).collect();
        let flags: Vec<_> = turns.iter().map(|(turn, _)| turn.cancel_flag()).collect();
        let among = turns.iter().zip(&sequences).map(|((turn, _), sequence)| turn.among(sequence));
        let among: Vec<_> = among.collect();
        let among: Vec<&[Among<'_>]> = among.iter().map(Vec::as_slice).collect();
        let step = |sequences: &[Sequence<'_>], among: &[&[Among<'_>]], flags: &[&AtomicBool]| {
            let go_on = || flags.iter().any(|flag| !flag.load(Ordering::Relaxed));
            let step = Step { sequences };
            match among.iter().all(|rows| rows.is_empty()) {
                true => self.model.step_while(&step, &go_on),
                false => self.model.step_among(&step, among, &go_on),
            }
        };
        match step(&sequences, &among, &flags) {
            Ok(out) => out.sequences,
            Err(error) if sequences.len() == 1 => vec![Err(error)],
            Err(_) => {
                let alone =
                    |i: usize| step(&sequences[i..][..1], &among[i..][..1], &flags[i..][..1]);
                (0..sequences.len()).map(|i| alone(i)?.single()).collect()
            }
        }
    }

    fn ended(&mut self) -> Vec<(TurnId, Turn<'a>)> {
        let over = |(_, turn): &mut (TurnId, Turn<'a>)| turn.is_over();
        let ended: Vec<_> = self.running.extract_if(.., over).collect();
        let waiting = self.waiting.iter().position(|(_, turn)| turn.is_cancelled());
        // whoever was cancelled while waiting does not wait for its place
        let left = waiting.and_then(|i| self.waiting.remove(i));
        ended.into_iter().chain(left).collect()
    }
}

/// Run one pass of a drafters' model, over the rows that `wants` names of each turn; whether there was something to run.
fn run_drafters(
    turns: &mut [(TurnId, Turn<'_>)],
    wants: &mut dyn for<'t> FnMut(&'t mut Turn<'_>) -> Option<DraftStep<'t>>,
) -> bool {
    let mut model: Option<Arc<dyn Model>> = None;
    let (mut places, mut wanted, mut flags) = (Vec::new(), Vec::new(), Vec::new());
    for (place, (_, turn)) in turns.iter_mut().enumerate() {
        let flag = turn.shared_flag();
        if turn.rests() {
            continue;
        }
        let Some(step) = wants(turn) else { continue };
        let model = model.get_or_insert_with(|| Arc::clone(step.session.model()));
        if step.session.is_of(model) {
            places.push(place);
            wanted.push(step);
            flags.push(flag);
        }
    }
    let Some(model) = model else { return false };
    let steps: Vec<Sequence<'_>> = wanted.iter().map(DraftStep::sequence).collect();
    let go_on = || flags.iter().any(|flag: &Arc<AtomicBool>| !flag.load(Ordering::Relaxed));
    let started = Instant::now();
    let outs = match model.step_while(&Step { sequences: &steps }, &go_on) {
        Ok(out) => out.sequences,
        Err(error) => vec![Err(error); steps.len()],
    };
    let rows: Vec<usize> = steps.iter().map(|step| step.tokens.len()).collect();
    let each = started.elapsed().as_secs_f64() / rows.iter().sum::<usize>() as f64;
    // beside rows of another kind one row's time is not known
    let alike = rows.iter().all(|n| (*n == 1) == (rows[0] == 1));
    for ((place, n), out) in places.into_iter().zip(rows).zip(outs) {
        if let Some(drafters) = turns[place].1.drafters() {
            drafters.take(out, alike.then_some((n, each * n as f64)));
        }
    }
    true
}
