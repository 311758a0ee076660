//! The thread that computes: it makes turns of what is asked, runs them side by side, and tells what happens.
//!
//! It waits for no client: what a client has not read yet waits in that client's own channel, and one that is gone is
//! seen when something is told to it, or by its flag. Conversations that came to an end stay, as many as there are places,
//! so that their next message computes only what is new (`worker/conversations.rs`); those that go from there may be on disk
//! (`archive.rs`).

mod conversations;
mod places;
mod replies;
mod slots;
mod turns;

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::error::{ApiError, Result};
use crate::guard::{ClientId, KeyId};
use crate::intake::ByteReservation;
use crate::metrics::Metrics;
use crate::model::ServedModel;
use crate::prepare::PreparedReply;
use crate::updates::UpdateSender;
use engine::EarlyEnd;
pub(crate) use places::{QueuePlaces, ReplyPlaces};
use replies::Replies;
pub(crate) use slots::{SlotAction, SlotDone, SlotJob, slot_error};

/// A reply that is wanted.
pub(crate) struct ReplyJob {
    /// What it begins with.
    pub(crate) reply: PreparedReply,
    /// Most tokens; `None`: to its own end or that of the context.
    pub(crate) max_tokens: Option<usize>,
    /// Texts that end it.
    pub(crate) stop: Vec<String>,
    /// Tokens that also end it.
    pub(crate) stop_tokens: Vec<u32>,
    /// Number of likeliest tokens returned for each token of its prompt; `None` if the prompt has no scores.
    pub(crate) prompt_logprobs: Option<usize>,
    /// It does not end by itself.
    pub(crate) ignore_eog: bool,
    /// Where it ends early.
    pub(crate) early: EarlyEnd,
    /// Thoughts are told apart.
    pub(crate) split_thoughts: bool,
    /// Raised when nobody wants it any more.
    pub(crate) cancel: Arc<AtomicBool>,
    /// Where it is told what happens, and as which of the request's replies.
    pub(crate) updates: UpdateSender,
    pub(crate) index: usize,
    /// Whose it is.
    pub(crate) key: KeyId,
    /// Memory that its prompt takes.
    pub(crate) reservation: Arc<ByteReservation>,
    /// When it was asked for.
    pub(crate) began: Instant,
    /// Where it is told in which slot it is made; below 0 before that.
    pub(crate) slot: Arc<AtomicI64>,
}

/// What the thread is asked.
enum Message {
    /// A reply, on one of the places.
    Reply(Box<ReplyJob>, ReplyPlaces),
    /// Something with a slot.
    Slot(SlotJob),
    /// To end once all is done that was asked before.
    End,
}

/// Takes jobs. Dropping it ends the thread once all are done.
pub(crate) struct ReplyWorker {
    jobs: Sender<Message>,
    places: Arc<QueuePlaces>,
    /// Replies that are made side by side.
    parallel: usize,
    metrics: Arc<Metrics>,
    /// Raised to end the requests that are there.
    flags: Mutex<Vec<Weak<AtomicBool>>>,
    /// Nothing more is taken.
    ending: AtomicBool,
    thread: Mutex<Option<JoinHandle<()>>>,
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
        let (jobs, messages) = channel();
        let parallel = served.parallel.max(1);
        let most = parallel + served.waiting;
        let counted = Arc::clone(&metrics);
        let thread = std::thread::Builder::new().name("rooflight-engine".into());
        let thread = thread.spawn(move || {
            let inbox = Inbox { messages, ended: Cell::new(false) };
            // what one request breaks is not the others': they are told, and who asks next is served
            while !run(&served, &counted, &inbox) {}
        })?;
        let (places, thread) = (QueuePlaces::new(most), Mutex::new(Some(thread)));
        let (flags, ending) = Default::default();
        Ok(ReplyWorker { jobs, places, parallel, metrics, flags, ending, thread })
    }

    /// Have the thread end when what it has is done and what is to be kept is on disk, and wait for it.
    pub(crate) fn end(&self) {
        // one that is not there any more needs no word
        let _ = self.jobs.send(Message::End);
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        // whatever it came to, it holds nothing any more
        thread.into_iter().for_each(|thread| drop(thread.join()));
    }

    /// Have something done with a slot.
    ///
    /// # Errors
    /// If the thread is not there any more.
    pub(crate) fn with_slot(&self, job: SlotJob) -> Result<()> {
        let ended = |_| ApiError::internal("the thread that computes has ended");
        self.jobs.send(Message::Slot(job)).map_err(ended)
    }

    /// Reserve places for `replies` replies of a client, before any work is done for them. Dropping them frees them.
    ///
    /// # Errors
    /// If there are not enough, or others have a right to them: all or none of them are taken.
    pub(crate) fn reserve(&self, replies: usize, client: ClientId) -> Result<ReplyPlaces> {
        let full = || {
            // one of those side by side ends so often
            let often = self.metrics.usual_time() / u32::try_from(self.parallel).unwrap_or(1);
            ApiError::busy(self.places.taken()).again_in(often)
        };
        self.places.take(client, replies, Instant::now()).ok_or_else(full)
    }

    /// Have these made, side by side, each on one of the places.
    ///
    /// # Errors
    /// If the thread is not there any more, or the server ends.
    pub(crate) fn submit(&self, jobs: Vec<ReplyJob>, mut places: ReplyPlaces) -> Result<()> {
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
            let place = places.split().ok_or_else(ended)?;
            let message = Message::Reply(Box::new(job), place);
            self.jobs.send(message).map_err(|_| ended())?;
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

/// Where the thread finds what it is asked.
struct Inbox {
    messages: Receiver<Message>,
    /// Nothing will come any more.
    ended: Cell<bool>,
}

/// What came next.
enum Next {
    Message(Message),
    /// Nothing, in time.
    Nothing,
    /// Nothing will.
    Ended,
}

impl Inbox {
    /// Wait for a message, for so long at most.
    fn wait(&self, at_most: Option<Duration>) -> Next {
        if self.ended.get() {
            return Next::Ended;
        }
        let received = match at_most {
            None => self.messages.recv().map_err(RecvTimeoutError::from),
            Some(time) => self.messages.recv_timeout(time),
        };
        match received {
            Ok(Message::End) | Err(RecvTimeoutError::Disconnected) => {
                self.ended.set(true);
                Next::Ended
            }
            Ok(message) => Next::Message(message),
            Err(RecvTimeoutError::Timeout) => Next::Nothing,
        }
    }

    /// A message that is there already.
    fn ready(&self) -> Option<Message> {
        if self.ended.get() {
            return None;
        }
        let message = self.messages.try_recv().ok()?;
        self.ended.set(matches!(message, Message::End));
        Some(message)
    }
}

/// Make replies until nobody can ask any more; false if that broke off. Nothing of what was there can be trusted then: who
/// waits is told that it failed, and conversations are computed anew.
fn run(served: &ServedModel, metrics: &Metrics, inbox: &Inbox) -> bool {
    let mut replies = Replies::new(served, metrics);
    let done = catch_unwind(AssertUnwindSafe(|| {
        while replies.receive(inbox) {
            replies.give_way();
            replies.admit();
            replies.step();
        }
    }));
    match done {
        Ok(()) => replies.rest(),
        Err(_) => replies.fail(),
    }
    done.is_ok()
}
