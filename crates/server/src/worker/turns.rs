//! Replies of a model while they run, and while they have given up their slots for others.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::{Duration, Instant};

use engine::{Completion, PausedTurn, TurnId};

use super::ReplyJob;
use super::conversations::Seat;
use super::places::ReplyPlaces;
use crate::guard::{ClientId, KeyId};
use crate::intake::ByteReservation;
use crate::updates::{Update, UpdateSender};

/// A reply, whether it runs or not.
pub(super) struct Reply {
    pub(super) index: usize,
    pub(super) updates: UpdateSender,
    pub(super) cancel: Arc<AtomicBool>,
    place: ReplyPlaces,
    pub(super) key: KeyId,
    pub(super) prompt_tokens: usize,
    /// From the request to its beginning.
    pub(super) waited: Duration,
    /// Number of its slot, for its response.
    pub(super) slot: Arc<AtomicI64>,
    /// Memory that its prompt takes.
    _reservation: Arc<ByteReservation>,
}

impl Reply {
    /// The reply of a job that begins.
    pub(super) fn new(job: &ReplyJob, place: ReplyPlaces) -> Reply {
        Reply {
            index: job.index,
            updates: job.updates.clone(),
            cancel: Arc::clone(&job.cancel),
            place,
            key: job.key,
            prompt_tokens: job.reply.prompt.len(),
            waited: job.began.elapsed(),
            slot: Arc::clone(&job.slot),
            _reservation: Arc::clone(&job.reservation),
        }
    }

    /// The client that it is for.
    pub(super) fn client(&self) -> ClientId {
        self.place.client()
    }

    /// Send an update; cancels the reply if its client has left.
    pub(super) fn tell(&self, update: Update) {
        if !self.updates.send(self.index, update) {
            self.cancel.store(true, Ordering::Relaxed);
        }
    }

    /// Send the last update. The place is freed before: a client that has read it may ask at once.
    pub(super) fn end(self, update: Update) {
        let Reply { index, updates, place, .. } = self;
        drop(place);
        // the client may have left
        updates.send(index, update);
    }
}

/// A reply that has a slot.
pub(super) struct Running {
    pub(super) reply: Reply,
    pub(super) seat: Seat,
    /// When it got its slot.
    since: Instant,
    /// How long its client has kept it from being made, less the time since when it did not.
    unread: Duration,
}

impl Running {
    pub(super) fn new(reply: Reply, seat: Seat) -> Running {
        Running { reply, seat, since: Instant::now(), unread: Duration::ZERO }
    }

    /// `time` has passed.
    pub(super) fn passes(&mut self, time: Duration) {
        self.unread = match self.reply.updates.is_behind() {
            true => self.unread + time,
            false => self.unread.saturating_sub(time),
        };
    }

    /// How long its client has not read, if that is as long as `patience`.
    pub(super) fn unread_for(&self, patience: Duration) -> Option<Duration> {
        Some(self.unread).filter(|unread| *unread >= patience)
    }

    /// How long it has had its slot.
    pub(super) fn age(&self) -> Duration {
        self.since.elapsed()
    }
}

/// A reply that has given up its slot.
pub(super) struct Parked<'a> {
    pub(super) reply: Reply,
    pub(super) turn: PausedTurn<'a>,
}

impl Parked<'_> {
    /// It was cancelled: tell what there is of it.
    pub(super) fn end(self) {
        let Parked { reply, turn } = self;
        let update = match turn.finish() {
            Ok(generated) => Update::Done(Box::new(Completion::from(generated))),
            Err(error) => Update::Failed(error.into()),
        };
        reply.end(update);
    }
}

/// What waits for a slot.
pub(super) enum Waiting<'a> {
    Job(Box<ReplyJob>, ReplyPlaces),
    Parked(Box<Parked<'a>>),
}

impl Waiting<'_> {
    fn client(&self) -> ClientId {
        match self {
            Waiting::Job(_, place) => place.client(),
            Waiting::Parked(parked) => parked.reply.client(),
        }
    }

    fn is_cancelled(&self) -> bool {
        let cancel = match self {
            Waiting::Job(job, _) => &job.cancel,
            Waiting::Parked(parked) => &parked.reply.cancel,
        };
        cancel.load(Ordering::Relaxed)
    }

    /// Whether it could run now. A parked reply waits until its client has read most of what was sent.
    fn is_ready(&self) -> bool {
        match self {
            Waiting::Job(..) => true,
            Waiting::Parked(parked) => parked.reply.updates.has_caught_up(),
        }
    }
}

/// All that wait for a slot, in the order in which they came or gave up theirs.
#[derive(Default)]
pub(super) struct WaitingLine<'a>(Vec<Waiting<'a>>);

impl<'a> WaitingLine<'a> {
    pub(super) fn push(&mut self, waiting: Waiting<'a>) {
        self.0.push(waiting);
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether one could begin if there was a slot.
    pub(super) fn is_ready(&self) -> bool {
        self.0.iter().any(Waiting::is_ready)
    }

    /// Whether one waits for its client to read.
    pub(super) fn has_parked(&self) -> bool {
        self.0.iter().any(|waiting| matches!(waiting, Waiting::Parked(_)))
    }

    /// The next one to begin: of the client that has the fewest slots by `slots`, the one that came first.
    pub(super) fn next(&mut self, slots: impl Fn(ClientId) -> usize) -> Option<Waiting<'a>> {
        let ready = self.0.iter().enumerate().filter(|(_, waiting)| waiting.is_ready());
        let first = ready.min_by_key(|(at, waiting)| (slots(waiting.client()), *at));
        let at = first?.0;
        Some(self.0.remove(at))
    }

    /// Clients of those that could begin.
    pub(super) fn clients(&self) -> impl Iterator<Item = ClientId> {
        self.0.iter().filter(|waiting| waiting.is_ready()).map(Waiting::client)
    }

    /// Take out what was cancelled: what never began is gone, and what was parked is returned.
    pub(super) fn take_cancelled(&mut self) -> Vec<Parked<'a>> {
        let cancelled = self.0.extract_if(.., |waiting| waiting.is_cancelled());
        let parked = |waiting| match waiting {
            Waiting::Parked(parked) => Some(*parked),
            Waiting::Job(..) => None,
        };
        cancelled.filter_map(parked).collect()
    }

    /// Take out what was parked.
    pub(super) fn take_parked(&mut self) -> Vec<Parked<'a>> {
        let parked = self.0.extract_if(.., |waiting| matches!(waiting, Waiting::Parked(_)));
        let parked = parked.filter_map(|waiting| match waiting {
            Waiting::Parked(parked) => Some(*parked),
            Waiting::Job(..) => None,
        });
        parked.collect()
    }
}

/// Which of the replies that have slots is to give one up for another that waits, if any: one whose client has not read for as long as
/// `patience`; else one of a client that has had more than its share of `slots` for so long, while another has none.
pub(super) fn gives_way(
    running: &HashMap<TurnId, Running>,
    waiting: &[ClientId],
    slots: usize,
    patience: Duration,
) -> Option<TurnId> {
    let unread = running.iter().filter_map(|(id, one)| Some((one.unread_for(patience)?, *id)));
    if let Some((_, id)) = unread.max().filter(|_| !waiting.is_empty()) {
        return Some(id);
    }
    let of = |client| running.values().filter(|one| one.reply.client() == client).count();
    if waiting.iter().all(|client| of(*client) > 0) {
        return None;
    }
    let mut clients: Vec<ClientId> = running.values().map(|one| one.reply.client()).collect();
    clients.extend(waiting);
    clients.sort_unstable();
    clients.dedup();
    let share = (slots / clients.len().max(1)).max(1);
    let is_over = |one: &Running| one.age() >= patience && of(one.reply.client()) > share;
    let over = running.iter().filter(|(_, one)| is_over(one));
    over.max_by_key(|(_, one)| one.age()).map(|(id, _)| *id)
}
