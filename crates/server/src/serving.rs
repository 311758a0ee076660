//! [`Serving`]: a model that is loaded: what computes, what gets requests ready for it, what was counted.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};

use program::KeptPlace;

use crate::error::{ApiError, Result};
use crate::guard::ClientId;
use crate::metrics::Metrics;
use crate::reader::{ReaderWorker, TextReading};
use crate::worker::ReplyWorker;
use crate::{Preparation, ServedModel};

/// A model that is served.
pub(crate) struct Serving {
    /// The model.
    pub(crate) model: Arc<ServedModel>,
    /// The thread that computes.
    pub(crate) worker: ModelWorker,
    /// What was counted.
    pub(crate) metrics: Arc<Metrics>,
    /// What gets requests ready.
    pub(crate) preparation: Preparation,
    /// Clients that have used it since it was loaded.
    users: Mutex<Users>,
}

/// Which clients use a model.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Users {
    #[default]
    None,
    One(ClientId),
    Several,
}

/// Result that texts are read for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadingPurpose {
    /// One vector for each text.
    Vectors,
    /// Score of how well each text answers a question.
    Ranks,
}

/// The thread of a model.
pub(crate) enum ModelWorker {
    /// It writes replies.
    Writes(ReplyWorker),
    /// It reads texts.
    Reads(ReaderWorker, TextReading),
}

impl Serving {
    /// Start the thread of a model.
    ///
    /// # Errors
    /// If the system refuses it.
    pub(crate) fn start(model: ServedModel, metrics: &Arc<Metrics>) -> std::io::Result<Serving> {
        let model = Arc::new(model);
        let room = model.n_slots() * model.cache.capacity;
        metrics.room.store(room, Ordering::Relaxed);
        let worker = match &model.reads {
            None => {
                ModelWorker::Writes(ReplyWorker::start(Arc::clone(&model), Arc::clone(metrics))?)
            }
            Some(reading) => {
                let worker = ReaderWorker::start(Arc::clone(&model), reading.rows)?;
                ModelWorker::Reads(worker, reading.clone())
            }
        };
        let (format, cache) = (Arc::clone(&model.format), &model.cache);
        let vocab_size = model.model.program().vocab_size();
        let preparation = Preparation::new(format, vocab_size, cache.capacity)
            .with_form_checker(model.form_checker.clone());
        let users = Mutex::default();
        Ok(Serving { model, worker, metrics: Arc::clone(metrics), preparation, users })
    }

    /// Bytes of memory that rendering and encoding texts of `bytes` bytes take, at most.
    pub(crate) fn encoding_memory(&self, bytes: u64) -> u64 {
        bytes.saturating_mul(self.model.format.tokenizer().memory_per_byte())
    }

    /// A client asks for something.
    pub(crate) fn used_by(&self, client: ClientId) {
        let mut users = self.users.lock().unwrap_or_else(PoisonError::into_inner);
        *users = match *users {
            Users::None => Users::One(client),
            Users::One(other) if other == client => Users::One(client),
            Users::One(_) | Users::Several => Users::Several,
        };
    }

    /// Whether other clients than this one have asked for something.
    pub(crate) fn is_of_others(&self, client: ClientId) -> bool {
        let users = self.users.lock().unwrap_or_else(PoisonError::into_inner);
        !matches!(*users, Users::None) && *users != Users::One(client)
    }

    /// Bytes of memory that are free when it is gone.
    pub(crate) fn memory(&self) -> u64 {
        self.model.memory.saturating_add(self.model.model.stats().spilled.memory)
    }

    /// End the thread, and wait until what it held is free.
    pub(crate) fn end(self) {
        let Serving { model, worker, metrics, preparation, .. } = self;
        drop((model, preparation));
        match worker {
            ModelWorker::Writes(worker) => worker.end(),
            ModelWorker::Reads(worker, _) => worker.end(),
        }
        metrics.unloaded();
    }

    /// Have what is to be kept go to disk, if anything is; nothing more is computed then.
    pub(crate) fn rest(&self) {
        let places = [KeptPlace::Conversations, KeptPlace::Saved];
        if let ModelWorker::Writes(worker) = &self.worker
            && places.into_iter().any(|place| self.model.model.kept(place).is_some())
        {
            worker.end();
        }
    }

    /// Who writes replies.
    ///
    /// # Errors
    /// A model that writes none.
    pub(crate) fn writer(&self) -> Result<&ReplyWorker> {
        match &self.worker {
            ModelWorker::Writes(worker) => Ok(worker),
            ModelWorker::Reads(..) => {
                let told = "this model reads texts and writes none: /v1/embeddings, /v1/rerank";
                Err(ApiError::invalid(told))
            }
        }
    }

    /// Returns the thread that reads texts for this purpose, and how it reads them.
    ///
    /// # Errors
    /// If the model cannot serve this purpose; the error names the kind of model that can.
    pub(crate) fn reading(&self, purpose: ReadingPurpose) -> Result<(&TextReading, &ReaderWorker)> {
        const RERANKER: &str = "load a reranking model for /v1/rerank (its file has a classifier; --pooling rank \
                                if the file does not name its pooling)";
        let told = match (&self.worker, purpose) {
            (ModelWorker::Reads(worker, reading), purpose) => match (reading.ranks, purpose) {
                (false, ReadingPurpose::Vectors) | (true, ReadingPurpose::Ranks) => {
                    return Ok((reading, worker));
                }
                (true, ReadingPurpose::Vectors) => {
                    "this model ranks texts and embeds none: /v1/rerank; load an embedding model for /v1/embeddings"
                        .to_owned()
                }
                (false, ReadingPurpose::Ranks) => {
                    format!("this model embeds texts and ranks none: /v1/embeddings; {RERANKER}")
                }
            },
            (ModelWorker::Writes(_), ReadingPurpose::Vectors) => {
                "this is a chat model; load an embedding model for /v1/embeddings, or serve this one with --pooling mean"
                    .to_owned()
            }
            (ModelWorker::Writes(_), ReadingPurpose::Ranks) => {
                format!("this is a chat model and ranks no texts; {RERANKER}")
            }
        };
        Err(ApiError::invalid(told))
    }
}
