//! Replies on their way: from a request to the thread that computes, and back.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Instant;

use engine::Completion;
use tokio::sync::OwnedSemaphorePermit;

use crate::Serving;
use crate::error::{ApiError, Result};
use crate::prepare::Prepared;
use crate::record::{Asker, RequestRecord};
use crate::request::Asked;
use crate::updates::{Update, UpdateReceiver, updates};
use crate::wire::token_bytes;
use crate::worker::ReplyJob;

/// Raises a flag when whoever waited is gone.
#[derive(Default)]
pub(crate) struct CancelOnDrop(Arc<AtomicBool>);

impl CancelOnDrop {
    /// The flag.
    pub(crate) fn flag(&self) -> &Arc<AtomicBool> {
        &self.0
    }
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Replies on their way. Dropping them ends them.
pub(crate) struct Pending {
    updates: UpdateReceiver,
    replies: usize,
    /// Tokens of the first prompt.
    pub(crate) prompt_tokens: usize,
    /// What whoever asked should know.
    pub(crate) notes: Vec<String>,
    /// In which slot the last of them is made; below 0 before it begins.
    pub(crate) slot: Arc<AtomicI64>,
    /// What is noted of the request.
    record: Arc<RequestRecord>,
    cancel: CancelOnDrop,
    /// The model stays for as long as somebody waits for it.
    _serving: Arc<Serving>,
}

impl Pending {
    /// How many there will be.
    pub(crate) fn replies(&self) -> usize {
        self.replies
    }

    /// What happens next, and to which of the replies; `None` if nobody will tell any more.
    pub(crate) async fn next(&mut self) -> Option<(usize, Update)> {
        let update = self.updates.next().await;
        match &update {
            Some((_, Update::Text(_) | Update::Thought(_) | Update::Call(_))) => {
                self.record.written();
            }
            Some((_, Update::Done(reply))) => self.record.replied(reply),
            Some((_, Update::Failed(error))) => self.record.failed(error),
            _ => {}
        }
        update
    }

    /// Why a reply will never be there of which nobody told an end.
    pub(crate) fn unfinished(&self) -> ApiError {
        match self.cancel.flag().load(Ordering::Relaxed) {
            true => ApiError::ending(),
            false => ApiError::internal("the reply was not finished"),
        }
    }

    /// All of them.
    ///
    /// # Errors
    /// The first failure.
    pub(crate) async fn whole(mut self) -> Result<Vec<Completion>> {
        let mut done: Vec<Option<Completion>> = vec![None; self.replies];
        while let Some((index, update)) = self.next().await {
            match update {
                Update::Done(completion) => done[index] = Some(*completion),
                Update::Failed(error) => return Err(error),
                _ => {}
            }
        }
        let unfinished = || self.unfinished();
        done.into_iter().map(|done| done.ok_or_else(unfinished)).collect()
    }
}

impl Serving {
    /// Have replies made to what is asked; dropping what comes back ends them.
    ///
    /// # Errors
    /// What cannot be had of this model, or a full queue.
    pub(crate) async fn reply(self: &Arc<Serving>, asked: Asked, asker: &Asker) -> Result<Pending> {
        asker.record.asked(&self.model.name);
        // who finds no place is told so before anything is done for it
        let places = self.writer()?.reserve(asked.replies())?;
        let cancel = CancelOnDrop::default();
        let (app, flag, key) = (Arc::clone(self), Arc::clone(cancel.flag()), asker.key);
        let prepare = move || app.preparation.prepare(&asked, key.scope(), &flag);
        let prepared = blocking(prepare).await?;
        self.submit(prepared, places, asker, cancel)
    }

    /// Tokens of the prompt that is asked for.
    ///
    /// # Errors
    /// A template that refuses it.
    pub(crate) async fn prompt(
        self: &Arc<Serving>,
        asked: Asked,
        asker: &Asker,
    ) -> Result<Vec<u32>> {
        asker.record.asked(&self.model.name);
        let cancel = CancelOnDrop::default();
        let (app, flag, key) = (Arc::clone(self), Arc::clone(cancel.flag()), asker.key);
        blocking(move || app.preparation.prompt(&asked, key.scope(), &flag)).await
    }

    fn submit(
        self: &Arc<Serving>,
        prepared: Prepared,
        places: OwnedSemaphorePermit,
        asker: &Asker,
        cancel: CancelOnDrop,
    ) -> Result<Pending> {
        let (sender, updates) = updates();
        let Prepared { replies, max_tokens, stop, ignore_eog, early, split_thoughts, notes } =
            prepared;
        asker.record.said(replies.iter().map(|reply| {
            let format = &*self.model.format;
            let bytes = reply.prompt.iter().flat_map(|id| token_bytes(*id, format));
            String::from_utf8_lossy(&bytes.collect::<Vec<u8>>()).into_owned()
        }));
        let prompt_tokens = replies.first().map_or(0, |reply| reply.prompt.len());
        let began = Instant::now();
        let slot = Arc::new(AtomicI64::new(-1));
        let job = |(index, reply)| ReplyJob {
            reply,
            max_tokens,
            stop: stop.clone(),
            ignore_eog,
            early,
            split_thoughts,
            cancel: Arc::clone(cancel.flag()),
            updates: sender.clone(),
            index,
            key: asker.key,
            began,
            slot: Arc::clone(&slot),
        };
        let jobs: Vec<ReplyJob> = replies.into_iter().enumerate().map(job).collect();
        let replies = jobs.len();
        self.writer()?.submit(jobs, places)?;
        Ok(Pending {
            updates,
            replies,
            prompt_tokens,
            notes,
            slot,
            record: Arc::clone(&asker.record),
            cancel,
            _serving: Arc::clone(self),
        })
    }
}

/// Do what takes time where nobody else waits for it.
///
/// # Errors
/// Those of `work`; that it did not come to its end.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|_| Err(ApiError::internal("the request failed")))
}
