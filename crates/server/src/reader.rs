//! The thread that reads texts as a whole: vectors of them, or how well they answer.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Instant;

use engine::TextReader;
use program::{HiddenRows, OutputRows};
use tokio::sync::oneshot;

use crate::error::{ApiError, Result};
use crate::guard::ClientId;
use crate::model::ServedModel;
use crate::worker::{QueuePlaces, ReplyPlaces};

/// What a model that reads texts says of them.
#[derive(Clone, Debug, PartialEq)]
pub struct TextReading {
    /// The rows of a text that yield something.
    pub rows: OutputRows,
    /// It says how well a text answers a question; else a text is a vector.
    pub ranks: bool,
    /// How the two are written, if the file says so.
    pub template: Option<String>,
}

struct ReadJob {
    texts: Vec<Vec<u32>>,
    /// Raised when nobody wants it any more.
    cancel: Arc<AtomicBool>,
    done: oneshot::Sender<Result<Vec<HiddenRows>>>,
    _place: ReplyPlaces,
}

/// Takes texts. Dropping it ends the thread.
pub(crate) struct ReaderWorker {
    jobs: Sender<ReadJob>,
    places: Arc<QueuePlaces>,
    thread: JoinHandle<()>,
}

impl ReaderWorker {
    /// Start the thread of a model.
    ///
    /// # Errors
    /// If the system refuses one.
    pub(crate) fn start(
        served: Arc<ServedModel>,
        rows: OutputRows,
    ) -> std::io::Result<ReaderWorker> {
        let (jobs, inbox) = channel();
        let most = 1 + served.waiting;
        let thread = std::thread::Builder::new().name("rooflight-engine".into());
        let thread = thread.spawn(move || {
            // what one request breaks is not the others'
            while !run(&served, rows, &inbox) {}
        })?;
        Ok(ReaderWorker { jobs, places: QueuePlaces::new(most), thread })
    }

    /// Have the thread end, and wait for it.
    pub(crate) fn end(self) {
        let ReaderWorker { jobs, thread, .. } = self;
        drop(jobs);
        // whatever it came to, it holds nothing any more
        let _ = thread.join();
    }

    /// A place for a request of a client, which is asked for before any work is done for it.
    ///
    /// # Errors
    /// A full queue, or one in which others have a right to the places that are left.
    pub(crate) fn reserve(&self, client: ClientId) -> Result<ReplyPlaces> {
        let full = || ApiError::busy(self.places.taken());
        self.places.take(client, 1, Instant::now()).ok_or_else(full)
    }

    /// What the model says of each text. `cancel` ends it.
    ///
    /// # Errors
    /// A text that does not fit, a failure of the model.
    pub(crate) async fn read(
        &self,
        texts: Vec<Vec<u32>>,
        place: ReplyPlaces,
        cancel: &Arc<AtomicBool>,
    ) -> Result<Vec<HiddenRows>> {
        let (done, said) = oneshot::channel();
        let cancel = Arc::clone(cancel);
        let ended = || ApiError::internal("the request failed; see the log");
        let job = ReadJob { texts, cancel, done, _place: place };
        self.jobs.send(job).map_err(|_| ended())?;
        said.await.unwrap_or_else(|_| Err(ended()))
    }
}

/// Read until nobody can ask any more; false if that broke off.
fn run(served: &ServedModel, rows: OutputRows, inbox: &Receiver<ReadJob>) -> bool {
    let done = catch_unwind(AssertUnwindSafe(|| {
        let model = Arc::clone(&served.model);
        let mut reader = TextReader::new(model, served.cache, rows, served.chunk);
        while let Ok(job) = inbox.recv() {
            let wanted = || !job.cancel.load(Ordering::Relaxed);
            let said = match &mut reader {
                Ok(reader) if wanted() => match reader.read(&job.texts, &mut |_| wanted()) {
                    Ok(Some(rows)) => Ok(rows),
                    Ok(None) => continue,
                    Err(error) => Err(error.into()),
                },
                Ok(_) => continue,
                Err(error) => Err(ApiError::internal(error.to_string())),
            };
            // nobody may wait any more
            let _ = job.done.send(said);
        }
    }));
    done.is_ok()
}
