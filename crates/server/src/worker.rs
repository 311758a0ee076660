//! The thread that computes: it makes turns of what is asked, runs them side by side, and tells what happens.
//!
//! It waits for no client: what a client has not read yet waits in that client's own channel, and one that is gone is
//! seen when something is told to it, or by its flag. Conversations that came to an end stay, as many as there are places,
//! so that their next message computes only what is new.

use std::collections::{HashMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use engine::{
    Completion, DraftMode, Drafters, Event, Request, Scheduler, SchedulerOptions, Session,
    Suffixes, Turn, TurnId,
};
use program::CacheOptions;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::error::{ApiError, Result};
use crate::guard::KeyId;
use crate::metrics::Metrics;
use crate::model::ServedModel;
use crate::prepare::PreparedReply;
use crate::updates::{Update, UpdateSender};

/// A reply that is wanted.
pub(crate) struct ReplyJob {
    /// What it begins with.
    pub(crate) reply: PreparedReply,
    /// Most tokens; `None`: to its own end or that of the context.
    pub(crate) max_tokens: Option<usize>,
    /// Texts that end it.
    pub(crate) stop: Vec<String>,
    /// It does not end by itself.
    pub(crate) ignore_eog: bool,
    /// Thoughts are told apart.
    pub(crate) split_thoughts: bool,
    /// Raised when nobody wants it any more.
    pub(crate) cancel: Arc<AtomicBool>,
    /// Where it is told what happens, and as which of the request's replies.
    pub(crate) updates: UpdateSender,
    pub(crate) index: usize,
    /// Whose it is.
    pub(crate) key: KeyId,
    /// When it was asked for.
    pub(crate) began: Instant,
}

/// Takes jobs. Dropping it ends the thread once all are done.
pub(crate) struct ReplyWorker {
    jobs: Sender<(ReplyJob, OwnedSemaphorePermit)>,
    places: Arc<Semaphore>,
    /// Places in all, and those of replies that are made side by side.
    most: usize,
    parallel: usize,
    metrics: Arc<Metrics>,
    /// Raised to end the requests that are there.
    flags: Mutex<Vec<Weak<AtomicBool>>>,
    /// Nothing more is taken.
    ending: AtomicBool,
    thread: JoinHandle<()>,
}

impl ReplyWorker {
    /// Start the thread of a model.
    ///
    /// # Errors
    /// If the system refuses one.
    pub(crate) fn start(
        served: Arc<ServedModel>,
        metrics: Arc<Metrics>,
    ) -> std::io::Result<ReplyWorker> {
        let (jobs, inbox) = channel();
        let parallel = served.parallel.max(1);
        let most = parallel + served.waiting;
        let counted = Arc::clone(&metrics);
        let thread = std::thread::Builder::new().name("rooflight-engine".into());
        let thread = thread.spawn(move || {
            // what one request breaks is not the others': they are told, and who asks next is served
            while !run(&served, &counted, &inbox) {}
        })?;
        let places = Arc::new(Semaphore::new(most));
        let (flags, ending) = Default::default();
        Ok(ReplyWorker { jobs, places, most, parallel, metrics, flags, ending, thread })
    }

    /// Have the thread end when what it has is done, and wait for it.
    pub(crate) fn end(self) {
        let ReplyWorker { jobs, thread, .. } = self;
        drop(jobs);
        // whatever it came to, it holds nothing any more
        let _ = thread.join();
    }

    /// Places for so many replies, which are asked for before any work is done for them; dropping them frees them.
    ///
    /// # Errors
    /// If as many as there may be are there already: all or none of them are taken.
    pub(crate) fn reserve(&self, replies: usize) -> Result<OwnedSemaphorePermit> {
        let n = u32::try_from(replies).unwrap_or(u32::MAX);
        let full = || {
            let taken = self.most - self.places.available_permits().min(self.most);
            // one of those side by side ends so often
            let often = self.metrics.usual_time() / u32::try_from(self.parallel).unwrap_or(1);
            ApiError::busy(taken).again_in(often)
        };
        Arc::clone(&self.places).try_acquire_many_owned(n).map_err(|_| full())
    }

    /// Have these made, side by side, each on one of the places.
    ///
    /// # Errors
    /// If the thread is not there any more, or the server ends.
    pub(crate) fn submit(
        &self,
        jobs: Vec<ReplyJob>,
        mut places: OwnedSemaphorePermit,
    ) -> Result<()> {
        let ended = || ApiError::internal("the thread that computes has ended");
        if let Some(job) = jobs.first() {
            let mut flags = self.lock();
            if self.ending.load(Ordering::Relaxed) {
                return Err(ApiError::ending());
            }
            flags.retain(|flag| flag.strong_count() > 0);
            flags.push(Arc::downgrade(&job.cancel));
        }
        for job in jobs {
            let place = places.split(1).ok_or_else(ended)?;
            self.jobs.send((job, place)).map_err(|_| ended())?;
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Weak<AtomicBool>>> {
        // a list is whole whatever happened beside it
        self.flags.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Have what is being made end here, and what waits not begin.
    pub(crate) fn end_replies(&self) {
        let flags = self.lock();
        self.ending.store(true, Ordering::Relaxed);
        for flag in flags.iter().filter_map(Weak::upgrade) {
            flag.store(true, Ordering::Relaxed);
        }
    }
}

/// Make replies until nobody can ask any more; false if that broke off. Nothing of what was there can be trusted then: who
/// waits is told that it failed, and conversations are computed anew.
fn run(
    served: &ServedModel,
    metrics: &Metrics,
    inbox: &Receiver<(ReplyJob, OwnedSemaphorePermit)>,
) -> bool {
    let mut replies = Replies::new(served, metrics);
    let done = catch_unwind(AssertUnwindSafe(|| {
        while replies.receive(inbox) {
            replies.admit();
            replies.step();
        }
    }));
    if done.is_err() {
        replies.fail();
    }
    done.is_ok()
}

/// Tokens at the end of a conversation that its template may write in another way than they were generated.
const LAST: usize = 16;

/// So often it is looked whether clients have read what they were told.
const REST: Duration = Duration::from_millis(2);

/// A reply that is being made.
struct Running {
    index: usize,
    updates: UpdateSender,
    cancel: Arc<AtomicBool>,
    place: OwnedSemaphorePermit,
    key: KeyId,
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
struct Replies<'a> {
    served: &'a ServedModel,
    scheduler: Scheduler<'a>,
    running: HashMap<TurnId, Running>,
    waiting: VecDeque<(ReplyJob, OwnedSemaphorePermit)>,
    /// Conversations that may go on, and whose they are, the oldest first.
    idle: VecDeque<(KeyId, Session)>,
    /// Texts of each key, in which its drafts are found.
    suffixes: HashMap<KeyId, Arc<Mutex<Suffixes>>>,
    metrics: &'a Metrics,
}

impl<'a> Replies<'a> {
    fn new(served: &'a ServedModel, metrics: &'a Metrics) -> Replies<'a> {
        Replies {
            served,
            scheduler: scheduler_of(served),
            running: HashMap::new(),
            waiting: VecDeque::new(),
            idle: VecDeque::new(),
            suffixes: HashMap::new(),
            metrics,
        }
    }

    /// Take what was asked meanwhile, or wait if there is nothing to do; false if nobody can ask any more.
    fn receive(&mut self, inbox: &Receiver<(ReplyJob, OwnedSemaphorePermit)>) -> bool {
        if self.running.is_empty() && self.waiting.is_empty() {
            match inbox.recv() {
                Ok(job) => self.waiting.push_back(job),
                Err(_) => return false,
            }
        }
        // while all of them rest there is nothing to compute
        let rests = |reply: &Running| reply.updates.is_behind();
        if !self.running.is_empty() && self.running.values().all(rests) {
            self.waiting.extend(inbox.recv_timeout(REST));
        }
        self.waiting.extend(inbox.try_iter());
        self.waiting.retain(|(job, _)| !job.cancel.load(Ordering::Relaxed));
        true
    }

    /// Begin what there are places for.
    fn admit(&mut self) {
        while self.running.len() < self.served.parallel.max(1) {
            let Some((job, place)) = self.waiting.pop_front() else { break };
            let ReplyJob { index, updates, cancel, key, .. } = &job;
            let (updates, cancel) = (updates.clone(), Arc::clone(cancel));
            let (prompt_tokens, waited) = (job.reply.prompt.len(), job.began.elapsed());
            let (index, key) = (*index, *key);
            let running = Running { index, updates, cancel, place, key, prompt_tokens, waited };
            match self.begin(job) {
                Ok(id) => {
                    self.running.insert(id, running);
                }
                Err(error) => {
                    self.metrics.failed();
                    running.end(Update::Failed(error.into()));
                }
            }
        }
        self.count();
    }

    fn count(&self) {
        self.metrics.running.store(self.running.len(), Ordering::Relaxed);
        self.metrics.waiting.store(self.waiting.len(), Ordering::Relaxed);
        let idle = self.idle.iter().map(|(_, session)| session.len()).sum::<usize>();
        let made = self.running.values().map(|reply| reply.prompt_tokens).sum::<usize>();
        self.metrics.held.store(idle + made, Ordering::Relaxed);
    }

    fn begin(&mut self, job: ReplyJob) -> engine::Result<TurnId> {
        let PreparedReply { prompt, sampler, parser } = job.reply;
        let session = self.session(job.key, &prompt)?;
        let request = Request {
            prompt: &prompt,
            max_tokens: job.max_tokens,
            stop: &job.stop,
            ignore_eog: job.ignore_eog,
            split_thoughts: job.split_thoughts,
            cancel: &job.cancel,
        };
        let turn = Turn::new(session, sampler, &*self.served.format, &request);
        let turn = match self.served.drafts {
            true => {
                let suffixes = self.suffixes.entry(job.key).or_default();
                turn.drafted(Drafters::new(DraftMode::Auto, suffixes))
            }
            false => turn,
        };
        self.scheduler.join(match parser {
            Some(parser) => turn.with_calls(parser),
            None => turn,
        })
    }

    /// The conversation of this key that `prompt` goes on; else a new one, that shares with another of this key what both
    /// begin with, in place of the one that nobody went on for longest if there is no room.
    fn session(&mut self, key: KeyId, prompt: &[u32]) -> engine::Result<Session> {
        let shared = |session: &Session| {
            session.tokens().iter().zip(prompt).take_while(|(held, wanted)| held == wanted).count()
        };
        let best = self.idle.iter().map(|(owner, session)| match *owner == key {
            true => (shared(session), session.len()),
            false => (0, session.len()),
        });
        let best = best.enumerate().max_by_key(|(_, (shared, _))| *shared);
        let full = self.idle.len() + self.running.len() >= self.served.parallel.max(1);
        match best.filter(|(_, (shared, _))| *shared > 0) {
            // it goes on, or it is the one to go
            Some((i, (shared, held))) if shared + LAST >= held || full && i == 0 => {
                Ok(self.idle.remove(i).expect("it is there").1)
            }
            Some((i, (shared, _))) => {
                let session = self.idle[i].1.fork(shared)?;
                if full {
                    self.idle.pop_front();
                }
                Ok(session)
            }
            None => {
                if full {
                    self.idle.pop_front();
                }
                let ServedModel { model, cache, chunk, .. } = self.served;
                let cache = CacheOptions { scope: key.scope(), ..*cache };
                Session::new(Arc::clone(model), cache, *chunk)
            }
        }
    }

    /// One pass for all, and what ended with it.
    fn step(&mut self) {
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
            if let Some(session) = session.into_owned() {
                self.idle.push_back((reply.key, session));
            }
            self.count();
            let update = match result {
                Ok(generated) => {
                    let done = Completion::from(generated);
                    self.metrics.ended(&done, reply.waited);
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
    fn fail(&mut self) {
        let failed: Vec<Running> = self.running.drain().map(|(_, reply)| reply).collect();
        self.count();
        for reply in failed {
            self.metrics.failed();
            reply.end(Update::Failed(ApiError::internal("the reply failed; see the log")));
        }
    }
}

fn scheduler_of<'a>(served: &ServedModel) -> Scheduler<'a> {
    let options =
        SchedulerOptions { running: served.parallel.max(1), waiting: 0, rows: served.chunk };
    Scheduler::new(Arc::clone(&served.model), options)
}
