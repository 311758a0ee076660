//! [`Replies`]: all replies of a model, from their place to their end.

use std::collections::{HashMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use engine::{
    Completion, DraftMode, Drafters, Event, Request, Scheduler, SchedulerOptions, Session,
    Suffixes, Turn, TurnId,
};
use tokio::sync::OwnedSemaphorePermit;

use super::conversations::{Awaited, Brought, Conversations, LOOK, Seat};
use super::{Inbox, Message, Next, ReplyJob};
use crate::error::ApiError;
use crate::guard::KeyId;
use crate::metrics::Metrics;
use crate::model::ServedModel;
use crate::prepare::PreparedReply;
use crate::updates::{Update, UpdateSender};

/// So often it is looked whether clients have read what they were told.
const REST: Duration = Duration::from_millis(2);

/// A reply that is being made.
struct Running {
    index: usize,
    updates: UpdateSender,
    cancel: Arc<AtomicBool>,
    place: OwnedSemaphorePermit,
    seat: Seat,
    prompt_tokens: usize,
    /// From the request to its beginning.
    waited: Duration,
}

impl Running {
    /// Tell what happened; who does not listen any more wants no more.
    fn tell(&self, update: Update) {
        if !self.updates.send(self.index, update) {
            self.cancel.store(true, Ordering::Relaxed);
        }
    }

    /// Tell what came of it. Its place is free by then: who reads this may ask for it at once.
    fn end(self, update: Update) {
        let Running { index, updates, place, .. } = self;
        drop(place);
        // nobody may listen any more
        updates.send(index, update);
    }
}

/// All replies of a model.
pub(super) struct Replies<'a> {
    served: &'a ServedModel,
    scheduler: Scheduler<'a>,
    running: HashMap<TurnId, Running>,
    waiting: VecDeque<(Box<ReplyJob>, OwnedSemaphorePermit)>,
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
            waiting: VecDeque::new(),
            conversations: Conversations::new(served),
            suffixes: HashMap::new(),
            metrics,
        }
    }

    /// Take what was asked meanwhile, or wait if there is nothing to do; false if nobody can ask any more.
    pub(super) fn receive(&mut self, inbox: &Inbox) -> bool {
        if self.running.is_empty() && (self.waiting.is_empty() || self.is_full()) {
            match inbox.wait(self.conversations.next_look()) {
                Next::Message(message) => self.take(message),
                Next::Nothing => {}
                Next::Ended if self.conversations.on_their_way() > 0 => std::thread::sleep(LOOK),
                Next::Ended => return false,
            }
        }
        // while all of them rest there is nothing to compute
        let rests = |reply: &Running| reply.updates.is_behind();
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
        self.waiting.retain(|(job, _)| !job.cancel.load(Ordering::Relaxed));
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
            Message::Reply(job, place) => self.waiting.push_back((job, place)),
            Message::Slot(job) => self.conversations.ask_slot(job),
            Message::End => {}
        }
    }

    /// Whether replies, and what comes from disk, have all slots.
    fn is_full(&self) -> bool {
        self.running.len() + self.conversations.on_their_way() >= self.served.parallel.max(1)
    }

    /// Begin what there are places for.
    pub(super) fn admit(&mut self) {
        while !self.is_full() {
            let Some((job, place)) = self.waiting.pop_front() else { break };
            let awaited = Awaited { job, place };
            match self.conversations.look_on_disk(awaited) {
                // others go on meanwhile
                None => {}
                Some(Awaited { job, place }) => self.begin(job, place, None),
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
        self.begin(job, place, found);
    }

    fn count(&self) {
        self.metrics.running.store(self.running.len(), Ordering::Relaxed);
        let waiting = self.waiting.len() + self.conversations.awaited();
        self.metrics.waiting.store(waiting, Ordering::Relaxed);
        let slots = self.running.values().map(|reply| 1 << reply.seat.slot.min(63));
        self.metrics
            .slots
            .store(slots.fold(0, |all: u64, slot: u64| all | slot), Ordering::Relaxed);
        let made = self.running.values().map(|reply| reply.prompt_tokens).sum::<usize>();
        self.metrics.held.store(self.conversations.tokens() + made, Ordering::Relaxed);
    }

    fn begin(
        &mut self,
        job: Box<ReplyJob>,
        place: OwnedSemaphorePermit,
        found: Option<(Seat, Session)>,
    ) {
        let ReplyJob { index, updates, cancel, key, slot, .. } = &*job;
        let (updates, cancel, slot) = (updates.clone(), Arc::clone(cancel), Arc::clone(slot));
        let (prompt_tokens, waited) = (job.reply.prompt.len(), job.began.elapsed());
        let (index, key) = (*index, *key);
        let failed = |error: engine::Error| Update::Failed(error.into());
        let seated = match found {
            Some(found) => Ok(found),
            None => self.conversations.seat(key, &job.reply.prompt),
        };
        let (seat, session) = match seated {
            Ok(seated) => seated,
            Err(error) => {
                self.metrics.failed();
                drop(place);
                // nobody may listen any more
                updates.send(index, failed(error));
                return;
            }
        };
        slot.store(seat.slot as i64, Ordering::Relaxed);
        let running = Running { index, updates, cancel, place, seat, prompt_tokens, waited };
        match self.start(*job, session) {
            Ok(id) => {
                self.running.insert(id, running);
            }
            Err(error) => {
                self.metrics.failed();
                self.conversations.give_back(&running.seat);
                running.end(failed(error));
            }
        }
    }

    fn start(&mut self, job: ReplyJob, session: Session) -> engine::Result<TurnId> {
        let PreparedReply { prompt, sampler, parser } = job.reply;
        let request = Request {
            prompt: &prompt,
            max_tokens: job.max_tokens,
            stop: &job.stop,
            ignore_eog: job.ignore_eog,
            split_thoughts: job.split_thoughts,
            cancel: &job.cancel,
        };
        let turn = Turn::new(session, sampler, &*self.served.format, &request).ending(job.early);
        let turn = match self.served.drafts {
            true => {
                let room = self.served.draft_memory;
                let none = || Arc::new(Mutex::new(Suffixes::within(room)));
                let suffixes = self.suffixes.entry(job.key).or_insert_with(none);
                turn.drafted(Drafters::new(DraftMode::Auto, suffixes))
            }
            false => turn,
        };
        self.scheduler.join(match parser {
            Some(parser) => turn.with_calls(parser),
            None => turn,
        })
    }

    /// One pass for all, and what ended with it.
    pub(super) fn step(&mut self) {
        if self.running.is_empty() {
            return;
        }
        let running = &self.running;
        let scheduler = &mut self.scheduler;
        for (id, reply) in running {
            scheduler.hold(*id, reply.updates.is_behind());
        }
        let stepped = catch_unwind(AssertUnwindSafe(|| {
            scheduler.step(&mut |id, event| {
                let Some(reply) = running.get(&id) else { return };
                match event {
                    Event::Prefill(prefill) => reply.tell(Update::Prefill(prefill)),
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
            self.fail();
            return;
        };
        for (id, turn) in ended {
            let Some(reply) = self.running.remove(&id) else { continue };
            let (session, result) = turn.into_parts();
            match session.into_owned() {
                Some(session) => self.conversations.rest(reply.seat.clone(), session),
                None => self.conversations.give_back(&reply.seat),
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

    /// Tell all that run that they failed.
    pub(super) fn fail(&mut self) {
        let failed: Vec<Running> = self.running.drain().map(|(_, reply)| reply).collect();
        for reply in failed {
            self.metrics.failed();
            self.conversations.give_back(&reply.seat);
            reply.end(Update::Failed(ApiError::internal("the reply failed; see the log")));
        }
        self.count();
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
