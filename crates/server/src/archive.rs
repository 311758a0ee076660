//! [`Archive`]: conversations on their way to disk and back, on two threads. Who computes waits for neither, unless memory is
//! short: then until one is left that is being copied for the disk. Who reads does not wait for who writes.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use engine::{KeptAs, KeptConversations, LEAST_KEPT, Owner, Session, TellKept};
use program::{CacheOptions, KeptPlace, Model};

use crate::model::ServedModel;
use crate::worker::{SlotDone, SlotJob, slot_error};

/// As what a conversation is on disk, once it is there.
pub(crate) type Lineage = Arc<Mutex<Option<KeptAs>>>;

/// What came of looking for something on disk.
pub(crate) struct Arrival {
    /// Its number.
    pub(crate) order: u64,
    /// What was found, and bytes of its cache.
    pub(crate) found: Option<(Session, u64)>,
    /// Why nothing was, where somebody asked for it by name.
    pub(crate) problem: Option<engine::Error>,
    /// As what it is there.
    pub(crate) lineage: Lineage,
}

impl Arrival {
    fn nothing(order: u64) -> Arrival {
        Arrival { order, found: None, problem: None, lineage: Lineage::default() }
    }
}

/// How far a conversation has come on its way to disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeptState {
    /// Not there: nobody tried yet, or it failed.
    Not = 0,
    OnItsWay = 1,
    /// There, or not worth it.
    Done = 2,
}

/// The same, as who writes and who waits know it.
#[derive(Clone, Debug, Default)]
pub(crate) struct KeptFlag(Arc<AtomicU8>);

impl KeptFlag {
    pub(crate) fn get(&self) -> KeptState {
        match self.0.load(Ordering::Relaxed) {
            0 => KeptState::Not,
            1 => KeptState::OnItsWay,
            _ => KeptState::Done,
        }
    }

    pub(crate) fn set(&self, state: KeptState) {
        self.0.store(state as u8, Ordering::Relaxed);
    }
}

/// A conversation on its way; where that breaks off, it is not there.
struct Underway(KeptFlag);

impl Underway {
    fn end(self, is_done: bool) {
        if is_done {
            self.0.set(KeptState::Done);
        }
    }
}

impl Drop for Underway {
    fn drop(&mut self) {
        if self.0.get() == KeptState::OnItsWay {
            self.0.set(KeptState::Not);
        }
    }
}

/// One of those on their way, until it is dropped.
struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

type Task = Box<dyn FnOnce() + Send>;
type Looked = (u64, Box<dyn FnOnce() -> Arrival + Send>);

/// The way to disk and back.
pub(crate) struct Archive {
    conversations: Option<Arc<KeptConversations>>,
    tell: Arc<TellKept>,
    /// What went wrong last, which is told once.
    last_problem: Arc<Mutex<String>>,
    /// Conversations on their way to disk.
    on_their_way: Arc<AtomicUsize>,
    /// How many there may be.
    most: usize,
    orders: u64,
    threads: Option<Threads>,
    arrivals: Receiver<Arrival>,
}

struct Threads {
    writes: Sender<Task>,
    reads: Sender<Looked>,
    writer: JoinHandle<()>,
    reader: JoinHandle<()>,
}

impl Archive {
    /// The archive of a model, if it keeps anything on disk; where the system refuses threads it does not.
    pub(crate) fn start(served: &ServedModel) -> Option<Archive> {
        let ServedModel { model, cache, chunk, .. } = served;
        let tell: Arc<TellKept> = Arc::new(|line: &str| tracing::warn!("{line}"));
        let conversations = KeptConversations::open(model, *cache, *chunk, &tell).map(Arc::new);
        if conversations.is_none() && model.kept(KeptPlace::Saved).is_none() {
            return None;
        }
        let (arrived, arrivals) = channel();
        let threads = match Threads::start(arrived) {
            Ok(threads) => threads,
            Err(error) => {
                tell(&format!("conversations are not kept on disk: starting a thread: {error}"));
                return None;
            }
        };
        Some(Archive {
            conversations,
            tell,
            last_problem: Arc::default(),
            on_their_way: Arc::default(),
            most: 2 * served.n_slots(),
            orders: 0,
            threads: Some(threads),
            arrivals,
        })
    }

    /// What a prompt took to compute.
    pub(crate) fn measured(&self, tokens: usize, time: Duration) {
        if let Some(conversations) = &self.conversations {
            conversations.measured(tokens, time);
        }
    }

    /// How many tokens of a prompt are likely to be on disk.
    pub(crate) fn promised(&self, owner: Owner, prompt: &[u32]) -> usize {
        self.conversations.as_ref().map_or(0, |kept| kept.promised(owner, prompt))
    }

    /// Whether no more are on their way to disk than may be: each holds the memory of a conversation.
    pub(crate) fn has_room(&self) -> bool {
        self.on_their_way.load(Ordering::Relaxed) < self.most
    }

    /// Put a conversation on disk, if such are kept. `lineage`: as what it is there; `flag` is told whether it is.
    pub(crate) fn keep(&self, session: Session, owner: Owner, lineage: &Lineage, flag: &KeptFlag) {
        let Some(conversations) = self.conversations.as_ref().map(Arc::clone) else {
            return flag.set(KeptState::Done);
        };
        flag.set(KeptState::OnItsWay);
        let underway = Underway(flag.clone());
        self.on_their_way.fetch_add(1, Ordering::Relaxed);
        let (lineage, counted) = (Arc::clone(lineage), Counted(Arc::clone(&self.on_their_way)));
        let (tell, last) = (Arc::clone(&self.tell), Arc::clone(&self.last_problem));
        self.write(Box::new(move || {
            let _counted = counted;
            let mut lineage = lineage.lock().unwrap_or_else(PoisonError::into_inner);
            match conversations.keep(&session, owner, lineage.as_ref()) {
                Ok(kept) => {
                    // one that memory took its rows from meanwhile may have them again
                    underway.end(kept.is_some() || session.len() < LEAST_KEPT);
                    if kept.is_some() {
                        *lineage = kept;
                    }
                    last.lock().unwrap_or_else(PoisonError::into_inner).clear();
                }
                // who computes needed its memory: it is tried again
                Err(engine::Error::Model(program::Error::Cancelled)) => {}
                Err(error) => {
                    let told = format!("a conversation is not kept on disk: {error}");
                    let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
                    // a disk that is full stays so
                    if *last != told {
                        tell(&told);
                        *last = told;
                    }
                }
            }
        }));
    }

    /// Keep a conversation no longer on disk.
    pub(crate) fn forget(&self, lineage: &Lineage) {
        let Some(conversations) = self.conversations.as_ref().map(Arc::clone) else { return };
        let lineage = Arc::clone(lineage);
        self.write(Box::new(move || {
            if let Some(kept) = lineage.lock().unwrap_or_else(PoisonError::into_inner).take() {
                conversations.forget(&kept);
            }
        }));
    }

    /// Save what a slot has under a name.
    pub(crate) fn save(&self, session: Session, name: String, job: SlotJob) {
        self.write(Box::new(move || {
            let began = Instant::now();
            let saved = engine::save(&session, &name, job.key.owner());
            // who erases the slot now has it erased
            drop(session);
            let done = saved.map(|saved| SlotDone {
                tokens: saved.tokens,
                bytes: saved.bytes,
                time: began.elapsed(),
            });
            let done = done.map_err(|error| slot_error(job.slot, &error));
            job.end(done);
        }));
    }

    fn write(&self, task: Task) {
        if let Some(threads) = &self.threads {
            // a thread that is gone takes nothing any more
            let _ = threads.writes.send(task);
        }
    }

    /// Look for a conversation that a prompt goes on; the number under which it arrives.
    pub(crate) fn look(
        &mut self,
        whose: (Owner, u64),
        prompt: Vec<u32>,
        have: usize,
        cancel: Arc<AtomicBool>,
    ) -> u64 {
        let conversations = self.conversations.as_ref().map(Arc::clone);
        self.read(move |order| {
            let found = conversations.and_then(|kept| kept.restore(whose, &prompt, have, &cancel));
            let Some((session, kept)) = found else { return Arrival::nothing(order) };
            let lineage = Arc::new(Mutex::new(Some(kept)));
            Arrival { found: Some((session, 0)), lineage, ..Arrival::nothing(order) }
        })
    }

    /// Look for what was saved under a name; the number under which it arrives.
    pub(crate) fn fill(
        &mut self,
        with: (Arc<dyn Model>, CacheOptions, usize),
        name: String,
        owner: Owner,
        cancel: Arc<AtomicBool>,
    ) -> u64 {
        self.read(move |order| {
            let (model, cache, chunk) = with;
            match engine::restore_saved((&model, cache, chunk), &name, owner, &cancel) {
                Ok((session, saved)) => {
                    Arrival { found: Some((session, saved.bytes)), ..Arrival::nothing(order) }
                }
                Err(problem) => Arrival { problem: Some(problem), ..Arrival::nothing(order) },
            }
        })
    }

    fn read(&mut self, look: impl FnOnce(u64) -> Arrival + Send + 'static) -> u64 {
        self.orders += 1;
        let order = self.orders;
        if let Some(threads) = &self.threads {
            // as above: then nobody waits for it either, for the model has ended
            let _ = threads.reads.send((order, Box::new(move || look(order))));
        }
        order
    }

    /// What has come.
    pub(crate) fn arrivals(&self) -> impl Iterator<Item = Arrival> {
        self.arrivals.try_iter()
    }
}

/// It waits until everything is on disk that is on its way there.
impl Drop for Archive {
    fn drop(&mut self) {
        let Some(Threads { writes, reads, writer, reader }) = self.threads.take() else { return };
        drop((writes, reads));
        // each caught what went wrong in it
        let _ = (writer.join(), reader.join());
    }
}

impl Threads {
    fn start(arrived: Sender<Arrival>) -> std::io::Result<Threads> {
        let named = |name: &str| std::thread::Builder::new().name(name.into());
        let (writes, tasks) = channel::<Task>();
        let writer = named("rooflight-keep").spawn(move || {
            for task in tasks {
                // what one breaks is not the others'
                let _ = catch_unwind(AssertUnwindSafe(task));
            }
        })?;
        let (reads, wanted) = channel::<Looked>();
        let reader = named("rooflight-look").spawn(move || {
            for (order, look) in wanted {
                let found = catch_unwind(AssertUnwindSafe(look));
                let arrival = found.unwrap_or_else(|_| Arrival::nothing(order));
                if arrived.send(arrival).is_err() {
                    break;
                }
            }
        })?;
        Ok(Threads { writes, reads, writer, reader })
    }
}
