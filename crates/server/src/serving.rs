//! [`Serving`]: a model that is loaded: what computes, what gets requests ready for it, what was counted.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use program::KeptPlace;

use crate::error::{ApiError, Result};
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
        Ok(Serving { model, worker, metrics: Arc::clone(metrics), preparation })
    }

    /// Bytes of memory that are free when it is gone.
    pub(crate) fn memory(&self) -> u64 {
        self.model.memory.saturating_add(self.model.model.stats().spilled.memory)
    }

    /// End the thread, and wait until what it held is free.
    pub(crate) fn end(self) {
        let Serving { model, worker, metrics, preparation } = self;
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

    /// Who reads texts, and what it says of them.
    ///
    /// # Errors
    /// A model that reads none as a whole.
    pub(crate) fn reading(&self) -> Result<(&TextReading, &ReaderWorker)> {
        match &self.worker {
            ModelWorker::Reads(worker, reading) => Ok((reading, worker)),
            ModelWorker::Writes(_) => {
                let told = "this model writes replies: serve one that embeds or ranks texts";
                Err(ApiError::invalid(told))
            }
        }
    }
}
