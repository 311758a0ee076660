//! Reading ahead: blocks on their way to memory before anybody waits for them.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use super::pages::{PAGE, PageBuffer, PageBuffers};
use super::record::Record;
use super::stats::Count;

/// Records that were asked for, by their numbers, and what was read of them.
pub(super) struct ReadAhead {
    /// Most bytes of them.
    most: usize,
    state: Mutex<Ahead>,
    /// Readers wait for work.
    work: Condvar,
    /// Others wait for what is being read.
    done: Condvar,
    pub(super) counts: AheadCounts,
}

/// What became of it.
#[derive(Debug, Default)]
pub(super) struct AheadCounts {
    /// Blocks that were there when wanted.
    pub(super) hits: Count,
    /// Blocks that were asked for and not there yet.
    pub(super) late: Count,
    /// Blocks that nobody had asked for, or that had gone for others.
    pub(super) misses: Count,
    /// Blocks that were read and not wanted.
    pub(super) wasted: Count,
}

#[derive(Default)]
struct Ahead {
    slots: HashMap<u64, Slot>,
    /// What to read next; some of it may be done or not wanted any more.
    order: VecDeque<u64>,
    /// Slots that may go for others, those of the oldest request first: all but what is being read.
    loose: BTreeSet<(u64, u64)>,
    /// Bytes of all slots.
    bytes: usize,
    /// Number of the latest request.
    request: u64,
    is_stopped: bool,
}

struct Slot {
    stage: Stage,
    bytes: usize,
    request: u64,
}

enum Stage {
    Asked(Arc<Record>),
    Reading,
    Read(PageBuffer),
}

impl ReadAhead {
    pub(super) fn new(most: usize) -> ReadAhead {
        let (work, done) = (Condvar::new(), Condvar::new());
        let (state, counts) = (Mutex::default(), AheadCounts::default());
        ReadAhead { most, state, work, done, counts }
    }

    /// Have records read, in this order. Where there is no room those of earlier requests go; how many of these records
    /// are read or will be.
    pub(super) fn ask(&self, records: &[(u64, Arc<Record>)], buffers: &PageBuffers) -> usize {
        let mut gone = Vec::new();
        let mut state = self.state();
        state.request += 1;
        let request = state.request;
        let fit = |(id, record): &&(u64, Arc<Record>)| match state.renew(*id) {
            true => true,
            false => {
                let bytes = (record.entry.pages() as usize - 1) * PAGE;
                while state.bytes + bytes > self.most {
                    let oldest = state.loose.first().copied();
                    let Some((_, id)) = oldest.filter(|(of, _)| *of < request) else {
                        return false;
                    };
                    gone.extend(state.remove(id));
                }
                state.bytes += bytes;
                let stage = Stage::Asked(Arc::clone(record));
                state.slots.insert(*id, Slot { stage, bytes, request });
                state.loose.insert((request, *id));
                state.order.push_back(*id);
                true
            }
        };
        let n = records.iter().take_while(fit).count();
        drop(state);
        self.work.notify_all();
        gone.into_iter().for_each(|stage| self.waste(stage, buffers));
        n
    }

    /// A block that was read ahead; one that is being read is waited for. `None`: read it.
    pub(super) fn take(&self, id: u64) -> Option<PageBuffer> {
        let mut state = self.state();
        let mut is_late = false;
        while let Some(Slot { stage: Stage::Reading, .. }) = state.slots.get(&id) {
            is_late = true;
            state = self.done.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        let found = state.remove(id);
        drop(state);
        is_late |= matches!(found, Some(Stage::Asked(_)));
        let buffer = match found {
            Some(Stage::Read(buffer)) => Some(buffer),
            _ => None,
        };
        let count = match &buffer {
            _ if is_late => &self.counts.late,
            Some(_) => &self.counts.hits,
            None => &self.counts.misses,
        };
        count.add(1);
        buffer
    }

    /// Nobody will take it.
    pub(super) fn forget(&self, id: u64, buffers: &PageBuffers) {
        let gone = self.state().remove(id);
        gone.into_iter().for_each(|stage| self.waste(stage, buffers));
    }

    fn waste(&self, stage: Stage, buffers: &PageBuffers) {
        if let Stage::Read(buffer) = stage {
            self.counts.wasted.add(1);
            buffers.give(buffer);
        }
    }

    /// Records that are to be read, and bytes of these and of what was read.
    pub(super) fn depth(&self) -> (usize, usize) {
        let state = self.state();
        let waits = |slot: &&Slot| !matches!(slot.stage, Stage::Read(_));
        (state.slots.values().filter(waits).count(), state.bytes)
    }

    /// Make [`run`](Self::run) end.
    pub(super) fn stop(&self) {
        self.state().is_stopped = true;
        self.work.notify_all();
    }

    /// What a reader's thread does. What cannot be read is left to who wants it, who then knows why.
    pub(super) fn run(&self, read: impl Fn(&Record) -> Option<PageBuffer>, buffers: &PageBuffers) {
        while let Some((id, record)) = self.next() {
            let mut buffer = read(&record);
            let mut state = self.state();
            let wanted = state.slots.get(&id).map(|slot| slot.request);
            if let (Some(request), true) = (wanted, buffer.is_some()) {
                state.loose.insert((request, id));
                let slot = state.slots.get_mut(&id).expect("it was there");
                slot.stage = Stage::Read(buffer.take().expect("just seen"));
            } else {
                state.remove(id);
            }
            drop(state);
            self.done.notify_all();
            buffer.into_iter().for_each(|buffer| self.waste(Stage::Read(buffer), buffers));
        }
    }

    fn next(&self) -> Option<(u64, Arc<Record>)> {
        let mut state = self.state();
        while !state.is_stopped {
            match state.order.pop_front() {
                Some(id) => {
                    if let Some(record) = state.begin(id) {
                        return Some((id, record));
                    }
                }
                None => state = self.work.wait(state).unwrap_or_else(PoisonError::into_inner),
            }
        }
        None
    }

    fn state(&self) -> MutexGuard<'_, Ahead> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Ahead {
    /// Count a slot, if it is there, to the latest request.
    fn renew(&mut self, id: u64) -> bool {
        let Some(slot) = self.slots.get_mut(&id) else { return false };
        if self.loose.remove(&(slot.request, id)) {
            self.loose.insert((self.request, id));
        }
        slot.request = self.request;
        true
    }

    /// Begin to read what was asked for, if it still is.
    fn begin(&mut self, id: u64) -> Option<Arc<Record>> {
        let slot = self.slots.get_mut(&id)?;
        if !matches!(slot.stage, Stage::Asked(_)) {
            return None;
        }
        self.loose.remove(&(slot.request, id));
        match std::mem::replace(&mut slot.stage, Stage::Reading) {
            Stage::Asked(record) => Some(record),
            _ => None,
        }
    }

    fn remove(&mut self, id: u64) -> Option<Stage> {
        let slot = self.slots.remove(&id)?;
        self.loose.remove(&(slot.request, id));
        self.bytes -= slot.bytes;
        Some(slot.stage)
    }
}
