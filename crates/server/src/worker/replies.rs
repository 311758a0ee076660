//! [`Replies`]: all replies of a model, from their place to their end.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use engine::{
    Completion, DraftMode, Drafters, Event, Request, Scheduler, SchedulerOptions, Session,
    Suffixes, Turn, TurnId,
};

use super::conversations::{Awaited, Brought, Conversations, LOOK, Seat};
use super::places::ReplyPlaces;
use super::turns::{Parked, Reply, Running, Waiting, WaitingLine, gives_way};
use super::{Inbox, Message, Next, ReplyJob};
use crate::error::ApiError;
use crate::guard::{ClientId, KeyId};
use crate::metrics::Metrics;
use crate::model::ServedModel;
use crate::prepare::PreparedReply;
use crate::updates::Update;

/// So often it is looked whether clients have read what they were told.
const REST: Duration = Duration::from_millis(2);

/// All replies of a model.
pub(super) struct Replies<'a> {
    served: &'a ServedModel,
    scheduler: Scheduler<'a>,
    running: HashMap<TurnId, Running>,
    waiting: WaitingLine<'a>,
    /// When it was last looked how long clients have not read.
    looked: Instant,
    conversations: Conversations<'a>,
    /// Texts of each key, in which its drafts are found.
    suffixes: HashMap<KeyId, Arc<Mutex<Suffixes>>>,
    metrics: &'a Metrics,
}

impl<'a> Replies<'a> {
    pub(super) fn new(served: &'a ServedModel, metrics: &'a Metrics) -> Replies<'a> {
        Replies {
            served,
            scheduler: scheduler_of(served),
            running: HashMap::new(),
            waiting: WaitingLine::default(),
            looked: Instant::now(),
            conversations: Conversations::new(served),
            suffixes: HashMap::new(),
            metrics,
        }
    }

    /// Take what was asked meanwhile, or wait if there is nothing to do; false if nobody can ask any more.
    pub(super) fn receive(&mut self, inbox: &Inbox) -> bool {
        if self.running.is_empty() && (!self.waiting.is_ready() || self.is_full()) {
            let is_parked = self.waiting.has_parked();
            let next = self.conversations.next_look();
            let next =
                if is_parked { Some(next.map_or(REST, |next| next.min(REST))) } else { next };
            match inbox.wait(next) {
                Next::Message(message) => self.take(message),
                Next::Nothing => {}
                Next::Ended if is_parked || self.conversations.on_their_way() > 0 => {
                    std::thread::sleep(LOOK);
                }
                Next::Ended => return false,
            }
        }
        // while all of them rest there is nothing to compute
        let rests = |running: &Running| running.reply.updates.is_behind();
        if !self.running.is_empty() && self.running.values().all(rests) {
            match inbox.wait(Some(REST)) {
                Next::Message(message) => self.take(message),
                Next::Nothing => {}
                Next::Ended => std::thread::sleep(REST),
            }
        }
        while let Some(message) = inbox.ready() {
            self.take(message);
        }
        self.waiting.take_cancelled().into_iter().for_each(Parked::end);
        for brought in self.conversations.brought() {
            self.go_on(brought);
        }
        self.conversations.keep_settled();
        let is_full = self.is_full();
        self.conversations.serve_slots(is_full);
        true
    }

    fn take(&mut self, message: Message) {
        match message {
            Message::Reply(job, place) => self.waiting.push(Waiting::Job(job, place)),
            Message::Slot(job) => self.conversations.ask_slot(job),
            Message::End => {}
        }
    }

    /// Whether replies, and what comes from disk, have all slots.
    fn is_full(&self) -> bool {
        self.running.len() + self.conversations.on_their_way() >= self.served.parallel.max(1)
    }

    /// Where all slots are taken and others wait, have a reply give up its slot whose client does not read, or has more than its share.
    pub(super) fn give_way(&mut self) {
        let passed = self.looked.elapsed();
        self.looked += passed;
        self.running.values_mut().for_each(|running| running.passes(passed));
        if self.running.is_empty() || !self.is_full() || !self.waiting.is_ready() {
            return;
        }
        let waiting: Vec<ClientId> = self.waiting.clients().collect();
        let (slots, patience) = (self.served.parallel.max(1), self.served.slot_patience);
        if let Some(id) = gives_way(&self.running, &waiting, slots, patience) {
            self.park(id);
        }
    }

    /// A reply gives up its slot: its conversation is kept as others are, and it waits behind those that wait.
    fn park(&mut self, id: TurnId) {
        let Some(Running { reply, seat, .. }) = self.running.remove(&id) else { return };
        let Some(turn) = self.scheduler.leave(id) else {
            return self.conversations.give_back(&seat);
        };
        let (session, turn) = turn.pause();
        match session.into_owned() {
            Some(session) => self.conversations.rest(seat, session),
            None => self.conversations.give_back(&seat),
        }
        tracing::debug!("a reply gave up its slot for another");
        self.waiting.push(Waiting::Parked(Box::new(Parked { reply, turn })));
    }

    /// A reply that had given up its slot has one again.
    fn resume(&mut self, Parked { reply, turn }: Parked<'a>) {
        match self.conversations.seat(reply.key, &turn.text()) {
            Ok((seat, session)) => self.join(reply, seat, turn.resume(session)),
            Err(error) => self.refuse(reply, error),
        }
    }

    /// A turn joins the others.
    fn join(&mut self, reply: Reply, seat: Seat, turn: Turn<'a>) {
        reply.slot.store(seat.slot as i64, Ordering::Relaxed);
        match self.scheduler.join(turn) {
            Ok(id) => {
                self.running.insert(id, Running::new(reply, seat));
            }
            Err(error) => {
                self.conversations.give_back(&seat);
                self.refuse(reply, error);
            }
        }
    }

    fn refuse(&self, reply: Reply, error: engine::Error) {
        self.metrics.failed();
        reply.end(Update::Failed(error.into()));
    }

    /// Begin what there are slots for: one of the client that has the fewest comes first.
    pub(super) fn admit(&mut self) {
        while !self.is_full() {
            let running = &self.running;
            let slots = |client: ClientId| {
                running.values().filter(|one| one.reply.client() == client).count()
            };
            match self.waiting.next(slots) {
                None => break,
                Some(Waiting::Parked(parked)) => self.resume(*parked),
                Some(Waiting::Job(job, place)) => {
                    let awaited = Awaited { job, place };
                    match self.conversations.look_on_disk(awaited) {
                        // others go on meanwhile
                        None => {}
                        Some(Awaited { job, place }) => self.begin(*job, place, None),
                    }
                }
            }
        }
        self.count();
    }

    /// A job that waited for a conversation on disk begins, with it or without.
    fn go_on(&mut self, brought: Brought) {
        let Brought { awaited: Awaited { job, place }, found } = brought;
        if job.cancel.load(Ordering::Relaxed) {
            found.iter().for_each(|(seat, _)| self.conversations.give_back(seat));
            return;
        }
        self.begin(*job, place, found);
    }

    fn count(&self) {
        self.metrics.running.store(self.running.len(), Ordering::Relaxed);
        let waiting = self.waiting.len() + self.conversations.awaited();
        self.metrics.waiting.store(waiting, Ordering::Relaxed);
        let slots = self.running.values().map(|running| 1 << running.seat.slot.min(63));
        self.metrics
            .slots
            .store(slots.fold(0, |all: u64, slot: u64| all | slot), Ordering::Relaxed);
        let made = self.running.values().map(|one| one.reply.prompt_tokens).sum::<usize>();
        self.metrics.held.store(self.conversations.tokens() + made, Ordering::Relaxed);
    }

    fn begin(&mut self, job: ReplyJob, place: ReplyPlaces, found: Option<(Seat, Session)>) {
        let reply = Reply::new(&job, place);
        let seated = match found {
            Some(found) => Ok(found),
            None => self.conversations.seat(job.key, &job.reply.prompt),
        };
        match seated {
            Ok((seat, session)) => {
                let turn = self.turn(job, session);
                self.join(reply, seat, turn);
            }
            Err(error) => self.refuse(reply, error),
        }
    }

    /// The turn that makes the reply of a job.
    fn turn(&mut self, job: ReplyJob, session: Session) -> Turn<'a> {
        let PreparedReply { prompt, sampler, parser } = job.reply;
        let request = Request {
            prompt: &prompt,
            max_tokens: job.max_tokens,
            stop: &job.stop,
            ignore_eog: job.ignore_eog,
            split_thoughts: job.split_thoughts,
            cancel: &job.cancel,
        };
        let turn = Turn::new(session, sampler, &*self.served.format, &request);
        let turn = turn.ending(job.early).stopping_at(job.stop_tokens);
        let turn = match self.served.drafts {
            true => {
                let room = self.served.draft_memory;
                let none = || Arc::new(Mutex::new(Suffixes::within(room)));
                let suffixes = self.suffixes.entry(job.key).or_insert_with(none);
                turn.drafted(Drafters::new(DraftMode::Auto, suffixes))
            }
            false => turn,
        };
        let turn = match job.prompt_logprobs {
            Some(top) => turn.scoring_prompt(top),
            None => turn,
        };
        match parser {
            Some(parser) => turn.with_calls(parser),
            None => turn,
        }
    }

    /// One pass for all, and what ended with it.
    pub(super) fn step(&mut self) {
        if self.running.is_empty() {
            return;
        }
        let running = &self.running;
        let scheduler = &mut self.scheduler;
        for (id, running) in running {
            scheduler.hold(*id, running.reply.updates.is_behind());
        }
        let stepped = catch_unwind(AssertUnwindSafe(|| {
            scheduler.step(&mut |id, event| {
                let Some(Running { reply, .. }) = running.get(&id) else { return };
                match event {
                    Event::Prefill(prefill) => reply.tell(Update::Prefill(prefill)),
                    Event::PromptScored(scores) => {
                        reply.tell(Update::PromptScored(Box::new(scores.clone())));
                    }
                    Event::Text(text) => reply.tell(Update::Text(text.to_owned())),
                    Event::Thought(text) => reply.tell(Update::Thought(text.to_owned())),
                    Event::Chosen(scores) => reply.tell(Update::Chosen(Box::new(scores.clone()))),
                    Event::ToolCall(delta) => reply.tell(Update::Call(delta.into_owned())),
                    // usage and end come with the whole reply, when its place is free
                    Event::Dropped(_) | Event::Usage(_) | Event::End(_) => {}
                }
            })
        }));
        let Ok(ended) = stepped else {
            // nothing of what was in this pass can be trusted
            self.scheduler = scheduler_of(self.served);
            self.fail_running();
            return;
        };
        for (id, turn) in ended {
            let Some(Running { reply, seat, .. }) = self.running.remove(&id) else { continue };
            let (session, result) = turn.into_parts();
            match session.into_owned() {
                Some(session) => self.conversations.rest(seat, session),
                None => self.conversations.give_back(&seat),
            }
            self.count();
            let update = match result {
                Ok(generated) => {
                    let done = Completion::from(generated);
                    self.metrics.ended(&done, reply.waited);
                    self.conversations.measured(&done);
                    Update::Done(Box::new(done))
                }
                Err(error) => {
                    self.metrics.failed();
                    Update::Failed(error.into())
                }
            };
            reply.end(update);
        }
    }

    /// Tell all that have begun that they failed.
    pub(super) fn fail(&mut self) {
        for Parked { reply, .. } in self.waiting.take_parked() {
            self.failed(reply);
        }
        self.fail_running();
    }

    /// Tell those that run that they failed.
    fn fail_running(&mut self) {
        for (_, Running { reply, seat, .. }) in std::mem::take(&mut self.running) {
            self.conversations.give_back(&seat);
            self.failed(reply);
        }
        self.count();
    }

    fn failed(&self, reply: Reply) {
        self.metrics.failed();
        reply.end(Update::Failed(ApiError::internal("the reply failed; see the log")));
    }

    /// Nobody asks any more: what is to be kept goes to disk.
    pub(super) fn rest(self) {
        self.conversations.end();
    }
}

fn scheduler_of<'a>(served: &ServedModel) -> Scheduler<'a> {
    let options =
        SchedulerOptions { running: served.parallel.max(1), waiting: 0, rows: served.chunk };
    Scheduler::new(Arc::clone(&served.model), options)
}
