//! Slots as llama.cpp's server has them: what rests in one is saved, had back or forgotten.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use engine::Session;
use tokio::sync::oneshot;

use super::conversations::{Conversations, Seat};
use crate::error::{ApiError, Result};
use crate::guard::KeyId;

/// What is done with a slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SlotAction {
    /// What it has is saved under a name.
    Save(String),
    /// It has what was saved under a name.
    Restore(String),
    /// It has nothing any more.
    Erase,
}

/// Something that is wanted of a slot. It is done when no reply is made there.
pub(crate) struct SlotJob {
    pub(crate) slot: usize,
    pub(crate) action: SlotAction,
    /// Who wants it.
    pub(crate) key: KeyId,
    /// Raised when nobody waits for it any more.
    pub(crate) cancel: Arc<AtomicBool>,
    pub(crate) reply: oneshot::Sender<Result<SlotDone>>,
}

/// What was done with a slot.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct SlotDone {
    /// Tokens that were saved, had back or forgotten.
    pub(crate) tokens: usize,
    /// Bytes of their cache.
    pub(crate) bytes: u64,
    pub(crate) time: Duration,
}

impl SlotJob {
    /// Tell what came of it; nobody may listen any more.
    pub(crate) fn end(self, result: Result<SlotDone>) {
        let _ = self.reply.send(result);
    }
}

/// Why something was not done with a slot: a name that is of no use is the request's mistake, what a disk or memory has no room
/// for is not.
pub(crate) fn slot_error(slot: usize, error: &engine::Error) -> ApiError {
    let told = format!("slot {slot}: {error}");
    match error {
        engine::Error::Model(program::Error::Cancelled) => ApiError::gave_way(),
        engine::Error::Saved { .. } => ApiError::invalid(told),
        _ => ApiError::internal(told),
    }
}

impl Conversations<'_> {
    /// Have something done with a slot, now or when it is free.
    pub(super) fn ask_slot(&mut self, job: SlotJob) {
        self.asked.push(job);
    }

    /// Do what is asked of slots in which no reply is made. What is had back waits while as many run as memory has room for.
    pub(super) fn serve_slots(&mut self, is_full: bool) {
        for job in std::mem::take(&mut self.asked) {
            if job.cancel.load(Ordering::Relaxed) {
                continue;
            }
            let resting = self.idle.iter().position(|resting| resting.seat.slot == job.slot);
            match self.is_taken(job.slot) {
                None => {
                    let n = self.n_slots();
                    let told = format!("there is no slot {}: they are 0 to {}", job.slot, n - 1);
                    job.end(Err(ApiError::invalid(told)));
                }
                // somebody is at work there, or it is being filled
                Some(true) if resting.is_none() => self.asked.push(job),
                _ if is_full && matches!(job.action, SlotAction::Restore(_)) => {
                    self.asked.push(job);
                }
                Some(_) => self.serve_slot(job, resting),
            }
        }
    }

    /// `resting`: which of the idle ones is there.
    fn serve_slot(&mut self, job: SlotJob, resting: Option<usize>) {
        // what another key said is nobody's to see
        let own = resting.filter(|i| self.idle[*i].seat.key == job.key);
        let nothing = ApiError::invalid(format!(
            "slot {} has nothing: no conversation of this key rests there; `id_slot` of a reply to /completion tells its slot",
            job.slot
        ));
        match (job.action.clone(), own) {
            (SlotAction::Save(name), Some(i)) => {
                let session = &self.idle[i].session;
                let fork = session.fork(session.len());
                match (fork, &self.archive) {
                    (Ok(fork), Some(archive)) => archive.save(fork, name, job),
                    (Ok(_), None) => job.end(Err(nothing)),
                    (Err(error), _) => job.end(Err(error.into())),
                }
            }
            (SlotAction::Save(_), None) => job.end(Err(nothing)),
            (SlotAction::Restore(name), _) => {
                if let Some(at) = resting
                    && !self.make_room_at(at, job.key)
                {
                    let problem = format!("slot {} is in use, and no other is free", job.slot);
                    return job.end(Err(ApiError::in_use(problem)));
                }
                self.fill_slot(name, job);
            }
            (SlotAction::Erase, own) => {
                let began = Instant::now();
                let gone = own.and_then(|i| self.idle.remove(i));
                let tokens = gone.as_ref().map_or(0, |gone| gone.session.len());
                if let Some(gone) = gone {
                    if let Some(archive) = &self.archive {
                        archive.forget(&gone.seat.lineage);
                    }
                    self.give_back(&gone.seat);
                }
                let time = began.elapsed();
                job.end(Ok(SlotDone { tokens, bytes: 0, time }));
            }
        }
    }

    /// Free the slot of the idle conversation at index `at` for `key`: its own conversation is evicted; another key's is moved to a free
    /// slot, or to the slot of a conversation of `key`, which is evicted. False if there is no such slot.
    fn make_room_at(&mut self, at: usize, key: KeyId) -> bool {
        let Seat { slot, key: owner, .. } = self.idle[at].seat;
        let own = match owner == key {
            true => Some(at),
            false => self.idle.iter().position(|resting| resting.seat.key == key),
        };
        let free = (0..self.n_slots()).find(|slot| self.is_taken(*slot) == Some(false));
        let free = match (owner == key, free) {
            (false, Some(free)) => Some(free),
            _ => own.and_then(|own| self.idle.remove(own)).map(|gone| {
                let slot = gone.seat.slot;
                self.let_go(gone);
                slot
            }),
        };
        let Some(free) = free else { return false };
        if owner != key {
            self.move_to(slot, free);
        }
        true
    }

    /// What was saved has come for a slot, or has not.
    pub(super) fn filled(
        &mut self,
        seat: Seat,
        job: SlotJob,
        since: Instant,
        found: std::result::Result<(Session, u64), Option<engine::Error>>,
    ) {
        match found {
            Ok((session, bytes)) => {
                let tokens = session.len();
                self.rest(seat, session);
                job.end(Ok(SlotDone { tokens, bytes, time: since.elapsed() }));
            }
            Err(problem) => {
                self.give_back(&seat);
                let broke = || ApiError::internal(format!("slot {}: it broke off", job.slot));
                let error = problem.as_ref().map_or_else(broke, |why| slot_error(job.slot, why));
                job.end(Err(error));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::conversations::tests::{key, resting, seats, with_model};

    /// What is restored by one key takes no other key's conversation.
    #[test]
    fn restoring_a_slot_moves_another_keys_conversation() {
        with_model(3, |mut all| {
            let (one, two) = (key(1), key(2));
            resting(&mut all, &[one, two]);
            let at = |all: &super::Conversations<'_>, slot| {
                all.idle.iter().position(|resting| resting.seat.slot == slot).unwrap()
            };
            let first = at(&all, 0);
            assert!(all.make_room_at(first, two), "there is a free slot");
            assert_eq!(seats(&all), [(1, two), (2, one)]);
            assert_eq!(all.is_taken(0), Some(false));
            resting(&mut all, &[two]);
            let third = at(&all, 2);
            assert!(all.make_room_at(third, two), "one of its own goes");
            assert_eq!(seats(&all), [(0, two), (1, one)]);
            resting(&mut all, &[one]);
            let second = at(&all, 1);
            assert!(!all.make_room_at(second, key(3)), "it has none that could go");
            assert_eq!(seats(&all).len(), 3);
            let own = at(&all, 1);
            assert!(all.make_room_at(own, one));
            assert_eq!(seats(&all), [(0, two), (2, one)]);
        });
    }
}
