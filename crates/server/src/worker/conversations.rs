//! [`Conversations`]: those of a model that may go on: in memory, as many as there are slots, and on disk, where some are kept.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use engine::{Completion, LEAST_KEPT, REWRITTEN, Session};
use program::CacheOptions;

use super::ReplyJob;
use super::places::ReplyPlaces;
use super::slots::SlotJob;
use crate::archive::{Archive, Arrival, KeptFlag, KeptState, Lineage};
use crate::guard::KeyId;
use crate::model::ServedModel;

/// How long a conversation rests before it is put on disk: one that goes on at once is not.
const SETTLES: Duration = Duration::from_secs(2);
/// How long it is left alone at most after that failed: each time twice as long.
const RARELY: Duration = Duration::from_secs(300);
/// How often it is looked whether something came from disk, where nothing else is to do.
pub(super) const LOOK: Duration = Duration::from_millis(2);

/// Where a conversation is, running or not.
#[derive(Clone)]
pub(super) struct Seat {
    /// Its slot: no other one has it.
    pub(super) slot: usize,
    /// Whose it is.
    pub(super) key: KeyId,
    /// As what it is on disk.
    pub(super) lineage: Lineage,
}

/// A conversation that may go on.
pub(super) struct Resting {
    pub(super) seat: Seat,
    pub(super) session: Session,
    /// When it came to rest, or was last tried to be put on disk.
    since: Instant,
    /// How long after that it is tried, or looked at again.
    patience: Duration,
    /// Whether it is on disk as it is.
    kept: KeptFlag,
}

/// A job for which something is looked for on disk.
pub(super) struct Awaited {
    pub(super) job: Box<ReplyJob>,
    pub(super) place: ReplyPlaces,
}

/// A job that may begin, and what was found for it.
pub(super) struct Brought {
    pub(super) awaited: Awaited,
    pub(super) found: Option<(Seat, Session)>,
}

/// What is on its way from disk.
enum OnItsWay {
    Reply(u64, Seat, Awaited),
    Slot(u64, Seat, SlotJob, Instant),
}

/// All that may go on.
pub(super) struct Conversations<'a> {
    served: &'a ServedModel,
    /// Which slots somebody has.
    taken: Vec<bool>,
    /// The oldest first.
    pub(super) idle: VecDeque<Resting>,
    on_their_way: Vec<OnItsWay>,
    /// What is asked of slots that are in use.
    pub(super) asked: Vec<SlotJob>,
    /// The way to disk, if something is kept there.
    pub(super) archive: Option<Archive>,
}

impl<'a> Conversations<'a> {
    pub(super) fn new(served: &'a ServedModel) -> Conversations<'a> {
        let taken = vec![false; served.n_slots()];
        let (idle, on_their_way, asked) = (VecDeque::new(), Vec::new(), Vec::new());
        let archive = Archive::start(served);
        Conversations { served, taken, idle, on_their_way, asked, archive }
    }

    /// Tokens of those that rest.
    pub(super) fn tokens(&self) -> usize {
        self.idle.iter().map(|resting| resting.session.len()).sum()
    }

    /// How many replies wait for the disk.
    pub(super) fn awaited(&self) -> usize {
        self.on_their_way.iter().filter(|one| matches!(one, OnItsWay::Reply(..))).count()
    }

    /// How many slots wait for the disk, those of replies among them.
    pub(super) fn on_their_way(&self) -> usize {
        self.on_their_way.len()
    }

    /// A slot of its own for a new conversation, in place of the one that nobody went on for longest if there is no other;
    /// `None` if all are in use.
    fn new_seat(&mut self, key: KeyId) -> Option<Seat> {
        if self.taken.iter().all(|taken| *taken)
            && let Some(resting) = self.goes_next(key).and_then(|at| self.idle.remove(at))
        {
            self.let_go(resting);
        }
        let slot = self.taken.iter().position(|taken| !taken)?;
        Some(self.seat_at(slot, key))
    }

    /// A slot that nobody has.
    pub(super) fn seat_at(&mut self, slot: usize, key: KeyId) -> Seat {
        self.taken[slot] = true;
        Seat { slot, key, lineage: Lineage::default() }
    }

    /// Whether somebody has a slot, if there is such a one.
    pub(super) fn is_taken(&self, slot: usize) -> Option<bool> {
        self.taken.get(slot).copied()
    }

    /// How many slots there are.
    pub(super) fn n_slots(&self) -> usize {
        self.taken.len()
    }

    /// Move the idle conversation of slot `from` to the free slot `to`.
    pub(super) fn move_to(&mut self, from: usize, to: usize) {
        self.taken[from] = false;
        self.taken[to] = true;
        let moved = self.idle.iter_mut().find(|resting| resting.seat.slot == from);
        moved.into_iter().for_each(|resting| resting.seat.slot = to);
    }

    /// A conversation is not there any more.
    pub(super) fn give_back(&mut self, seat: &Seat) {
        self.taken[seat.slot] = false;
    }

    /// Index of the idle conversation to evict for a new one of `key`: the oldest of the key that has the most, of `key` itself if several
    /// have as many. So no key takes another's share of the slots.
    fn goes_next(&self, key: KeyId) -> Option<usize> {
        let of = |key: KeyId| self.idle.iter().filter(|one| one.seat.key == key).count();
        let most = self.idle.iter().map(|one| of(one.seat.key)).max()?;
        let goes = if of(key) == most { Some(key) } else { None };
        self.idle.iter().position(|one| match goes {
            Some(own) => one.seat.key == own,
            None => of(one.seat.key) == most,
        })
    }

    /// A conversation leaves memory; it may be on disk.
    pub(super) fn let_go(&mut self, resting: Resting) {
        let Resting { seat, session, kept, .. } = resting;
        let is_wanted = kept.get() == KeptState::Not;
        if let Some(archive) = self.archive.as_ref().filter(|one| is_wanted && one.has_room()) {
            archive.keep(session, seat.key.owner(), &seat.lineage, &kept);
        }
        self.give_back(&seat);
    }

    /// The conversation of this key that `prompt` goes on; else a new one, that shares with another of this key what both
    /// begin with, in place of the one that nobody went on for longest if there is no room.
    pub(super) fn seat(&mut self, key: KeyId, prompt: &[u32]) -> engine::Result<(Seat, Session)> {
        let full = self.taken.iter().all(|taken| *taken);
        let goes = self.goes_next(key).filter(|_| full);
        match self.best(key, prompt) {
            // it goes on, or it is the one to go
            Some((i, shared))
                if shared + REWRITTEN >= self.idle[i].session.len() || goes == Some(i) =>
            {
                if shared + REWRITTEN < self.idle[i].session.len() {
                    self.keep(i, false);
                }
                let resting = self.idle.remove(i).expect("it is there");
                Ok((resting.seat, resting.session))
            }
            Some((i, shared)) => {
                let session = self.idle[i].session.fork(shared)?;
                let seat = self.new_seat(key).expect("there are as many as run, and one more");
                Ok((seat, session))
            }
            None => {
                let seat = self.new_seat(key).expect("there are as many as run, and one more");
                let ServedModel { model, cache, chunk, .. } = self.served;
                let cache = CacheOptions { scope: key.scope(), ..*cache };
                let session = Session::new(Arc::clone(model), cache, *chunk);
                session
                    .map(|session| (seat.clone(), session))
                    .inspect_err(|_| self.give_back(&seat))
            }
        }
    }

    /// The one of this key that shares most with a prompt, and how many tokens.
    fn best(&self, key: KeyId, prompt: &[u32]) -> Option<(usize, usize)> {
        let of_key = |resting: &Resting| match resting.seat.key == key {
            true => resting.session.shares(prompt),
            false => 0,
        };
        let best = self.idle.iter().map(of_key).enumerate().max_by_key(|(_, shared)| *shared);
        best.filter(|(_, shared)| *shared > 0)
    }

    /// A conversation has come to rest.
    pub(super) fn rest(&mut self, seat: Seat, session: Session) {
        let since = Instant::now();
        let kept = KeptFlag::default();
        self.idle.push_back(Resting { seat, session, since, patience: SETTLES, kept });
    }

    /// What a reply says of how fast prompts are computed.
    pub(super) fn measured(&self, done: &Completion) {
        if let Some(archive) = &self.archive {
            archive.measured(done.timings.prompt_n, done.timings.prompt);
        }
    }

    /// Put those on disk that rest for a while.
    pub(super) fn keep_settled(&mut self) {
        for i in 0..self.idle.len() {
            let resting = &self.idle[i];
            if resting.since.elapsed() < resting.patience || resting.kept.get() == KeptState::Done {
                continue;
            }
            let is_tried = resting.kept.get() == KeptState::Not && self.keep(i, false);
            let resting = &mut self.idle[i];
            // a disk that is slow is asked again later, one that fails more and more rarely
            resting.since = Instant::now();
            if is_tried {
                resting.patience = (resting.patience * 2).min(RARELY);
            }
        }
    }

    /// Put one on disk as it is, if it is not there, and not too many are on their way, or it is the `last` moment; whether that
    /// is tried.
    fn keep(&self, i: usize, last: bool) -> bool {
        let Resting { session, seat, kept, .. } = &self.idle[i];
        let is_wanted = match kept.get() {
            KeptState::Not => true,
            // it is there when its turn comes, or tried once more
            KeptState::OnItsWay => last,
            KeptState::Done => false,
        };
        let has_room = |archive: &&Archive| last || archive.has_room();
        let Some(archive) = self.archive.as_ref().filter(has_room) else { return false };
        if !is_wanted {
            return false;
        }
        // where there is no memory for it, it is tried again
        if let Ok(fork) = session.fork(session.len()) {
            archive.keep(fork, seat.key.owner(), &seat.lineage, kept);
        }
        true
    }

    /// When there is something to do that nobody asks for.
    pub(super) fn next_look(&self) -> Option<Duration> {
        if self.on_their_way() > 0 {
            return Some(LOOK);
        }
        self.archive.as_ref()?;
        let unkept = self.idle.iter().filter(|resting| resting.kept.get() != KeptState::Done);
        unkept.map(|resting| resting.patience.saturating_sub(resting.since.elapsed())).min()
    }

    /// Have a conversation looked for on disk that a job's prompt goes on, where one is likely to have more than there is in
    /// memory. Gives the job back where there is none.
    pub(super) fn look_on_disk(&mut self, awaited: Awaited) -> Option<Awaited> {
        let (key, prompt) = (awaited.job.key, &awaited.job.reply.prompt);
        let Some(archive) = &self.archive else { return Some(awaited) };
        let have = self.best(key, prompt).map_or(0, |(_, shared)| shared);
        if archive.promised(key.owner(), prompt) < have + LEAST_KEPT {
            return Some(awaited);
        }
        let Some(seat) = self.new_seat(key) else { return Some(awaited) };
        // the one in memory may have gone for it
        let have = self.best(key, prompt).map_or(0, |(_, shared)| shared);
        let whose = (key.owner(), key.scope());
        let cancel = Arc::clone(&awaited.job.cancel);
        let archive = self.archive.as_mut().expect("just seen");
        let order = archive.look(whose, prompt.clone(), have, cancel);
        self.on_their_way.push(OnItsWay::Reply(order, seat, awaited));
        None
    }

    /// Have a slot filled with what somebody saved; it must be free.
    pub(super) fn fill_slot(&mut self, name: String, job: SlotJob) {
        let seat = self.seat_at(job.slot, job.key);
        let (owner, scope) = (job.key.owner(), job.key.scope());
        let cache = CacheOptions { scope, ..self.served.cache };
        let with = (Arc::clone(&self.served.model), cache, self.served.chunk);
        let Some(archive) = &mut self.archive else { return self.give_back(&seat) };
        let order = archive.fill(with, name, owner, Arc::clone(&job.cancel));
        self.on_their_way.push(OnItsWay::Slot(order, seat, job, Instant::now()));
    }

    /// What came from disk: jobs that may begin, and slots that are filled.
    pub(super) fn brought(&mut self) -> Vec<Brought> {
        let arrived: Vec<Arrival> = self.archive.iter().flat_map(Archive::arrivals).collect();
        let mut brought = Vec::new();
        for Arrival { order, found, problem, lineage } in arrived {
            let is_it = |one: &OnItsWay| match one {
                OnItsWay::Reply(number, ..) | OnItsWay::Slot(number, ..) => *number == order,
            };
            let Some(at) = self.on_their_way.iter().position(is_it) else { continue };
            match self.on_their_way.swap_remove(at) {
                OnItsWay::Reply(_, seat, awaited) => {
                    let seat = Seat { lineage, ..seat };
                    let found = match found {
                        Some((session, _)) => Some((seat, session)),
                        None => {
                            self.give_back(&seat);
                            None
                        }
                    };
                    brought.push(Brought { awaited, found });
                }
                OnItsWay::Slot(_, seat, job, since) => {
                    self.filled(seat, job, since, found.ok_or(problem));
                }
            }
        }
        brought
    }

    /// Nobody asks any more: what is not on disk goes there.
    pub(super) fn end(mut self) {
        for i in 0..self.idle.len() {
            self.keep(i, true);
        }
        // it waits until all that is on its way is on disk
        drop(self.archive.take());
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::time::Duration;

    use engine::{ModelFormat, SamplerOptions};
    use gguf::Gguf;
    use models::GgufWeights;
    use program::interpreter::Interpreter;
    use program::{CacheType, Executor};
    use tokenizer::{ChatTemplate, Tokenizer};

    use super::*;
    use crate::guard::{Access, KeyId};

    /// The `n`th of three keys.
    pub(in crate::worker) fn key(n: usize) -> KeyId {
        let keys = ["a", "b", "c"].map(str::to_owned);
        Access::new(&keys, None).key(n)
    }

    /// Conversations of a model with this many slots.
    pub(in crate::worker) fn with_model(slots: usize, test: impl FnOnce(Conversations<'_>)) {
        let gguf = Gguf::from_bytes(conformance::demo_gguf()).unwrap();
        let loaded = models::load(&gguf).unwrap();
        let model = Interpreter.load(loaded.program, &GgufWeights(&gguf), &mut |_| ()).unwrap();
        let tokenizer = Tokenizer::from_gguf(gguf.metadata()).unwrap();
        let template = ChatTemplate::from_gguf(gguf.metadata(), &tokenizer).unwrap();
        let served = ServedModel {
            name: "demo".into(),
            created: 7,
            family: "qwen2".into(),
            bytes: 9,
            details: Arc::default(),
            memory: 9,
            model: Arc::from(model),
            drafts: true,
            draft_memory: u64::MAX,
            format: Arc::new(ModelFormat::new(Arc::new(tokenizer), template)),
            cache: CacheOptions::new(CacheType::F32, CacheType::F32, 64),
            chunk: 16,
            sampler: SamplerOptions::greedy(),
            parallel: slots,
            slots,
            waiting: 4,
            form_checker: None,
            slot_patience: Duration::from_secs(10),
            limits: None,
            reads: None,
        };
        test(Conversations::new(&served));
    }

    /// Conversations of these keys come to rest, one after the other.
    pub(in crate::worker) fn resting(all: &mut Conversations<'_>, keys: &[KeyId]) {
        for key in keys {
            let prompt = [all.idle.len() as u32 + 1];
            let (seat, session) = all.seat(*key, &prompt).unwrap();
            all.rest(seat, session);
        }
    }

    /// Slots and keys of those that rest.
    pub(in crate::worker) fn seats(all: &Conversations<'_>) -> Vec<(usize, KeyId)> {
        let mut seats: Vec<_> = all.idle.iter().map(|one| (one.seat.slot, one.seat.key)).collect();
        seats.sort_by_key(|(slot, _)| *slot);
        seats
    }

    /// A key that says much takes no other key's share of the slots.
    #[test]
    fn the_key_with_most_conversations_gives_one_up() {
        with_model(4, |mut all| {
            let (one, two) = (key(1), key(2));
            resting(&mut all, &[two, one, one, one]);
            for _ in 0..5 {
                resting(&mut all, &[one]);
            }
            let of = |all: &Conversations<'_>, key| {
                seats(all).into_iter().filter(|(_, of)| *of == key).count()
            };
            assert_eq!((of(&all, one), of(&all, two)), (3, 1));
            resting(&mut all, &[two]);
            assert_eq!((of(&all, one), of(&all, two)), (2, 2));
            resting(&mut all, &[two]);
            assert_eq!((of(&all, one), of(&all, two)), (2, 2), "of equals its own goes");
        });
    }
}
