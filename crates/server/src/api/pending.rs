//! Replies on their way: from a request to the thread that computes, and back.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Instant;

use engine::{Completion, Logprob, TokenLogprobs};

use crate::Serving;
use crate::body::{Claim, Converted};
use crate::error::{ApiError, Result};
use crate::intake::ByteReservation;
use crate::prepare::{Prepared, PreparedReply};
use crate::record::{Asker, RequestRecord};
use crate::request::Asked;
use crate::updates::{Update, UpdateReceiver, updates};
use crate::wire::token_bytes;
use crate::worker::{ReplyJob, ReplyPlaces};

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
    /// What cannot be had of this model, a full queue, or no memory for the prompt.
    pub(crate) async fn reply(
        self: &Arc<Serving>,
        asked: Converted<Asked>,
        asker: &Asker,
    ) -> Result<Pending> {
        asker.record.asked(&self.model.name);
        self.used_by(asker.client);
        // who finds no place is told so before anything is done for it
        let places = self.writer()?.reserve(asked.value.replies(), asker.client)?;
        let cancel = CancelOnDrop::default();
        let (app, flag, key) = (Arc::clone(self), Arc::clone(cancel.flag()), asker.key);
        let prepare = move |asked: &Asked| app.preparation.prepare(asked, key.scope(), &flag);
        let mut asked = asked;
        let mut notes = std::mem::take(&mut asked.notes);
        let (mut prepared, reservation) = self.encoded(asked, prepare, prepared_bytes).await?;
        notes.append(&mut prepared.notes);
        prepared.notes = notes;
        self.submit(prepared, &Arc::new(reservation), places, asker, cancel)
    }

    /// Number of tokens of the prompt that is asked for.
    ///
    /// # Errors
    /// A template that refuses it, no place, or no memory for it.
    pub(crate) async fn count_tokens(
        self: &Arc<Serving>,
        asked: Converted<Asked>,
        asker: &Asker,
    ) -> Result<usize> {
        asker.record.asked(&self.model.name);
        self.used_by(asker.client);
        let _place = asked.claim.intake.text_place()?;
        let cancel = CancelOnDrop::default();
        let (app, flag, key) = (Arc::clone(self), Arc::clone(cancel.flag()), asker.key);
        let count =
            move |asked: &Asked| Ok(app.preparation.prompt(asked, key.scope(), &flag)?.len());
        Ok(self.encoded(asked, count, |_| 0).await?.0)
    }

    /// What `encode` makes of the texts of a request, on a thread of its own, and what that takes by `bytes`. The request itself is gone
    /// then.
    async fn encoded<T: Send + 'static>(
        &self,
        asked: Converted<Asked>,
        encode: impl FnOnce(&Asked) -> Result<T> + Send + 'static,
        bytes: impl FnOnce(&T) -> u64 + Send + 'static,
    ) -> Result<(T, ByteReservation)> {
        let Converted { value: asked, claim: Claim { mut reservation, intake }, .. } = asked;
        let text = asked.text_bytes();
        reservation.grow(self.encoding_memory(text))?;
        if asked.has_large_form() {
            reservation.set_frees_much();
        }
        let work = move || {
            let made = encode(&asked)?;
            drop(asked);
            reservation.set(bytes(&made))?;
            Ok((made, reservation))
        };
        intake.encoding(text, work).await
    }

    fn submit(
        self: &Arc<Serving>,
        prepared: Prepared,
        reservation: &Arc<ByteReservation>,
        places: ReplyPlaces,
        asker: &Asker,
        cancel: CancelOnDrop,
    ) -> Result<Pending> {
        let (sender, updates) = updates();
        let Prepared { replies, max_tokens, stop, stop_tokens, prompt_logprobs, .. } = prepared;
        let Prepared { ignore_eog, early, split_thoughts, notes, .. } = prepared;
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
            stop_tokens: stop_tokens.clone(),
            prompt_logprobs,
            ignore_eog,
            early,
            split_thoughts,
            cancel: Arc::clone(cancel.flag()),
            updates: sender.clone(),
            index,
            key: asker.key,
            reservation: Arc::clone(reservation),
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

/// Returns the bytes of the prompts of replies, which their turns hold, too, and of the prompts' scores.
fn prepared_bytes(prepared: &Prepared) -> u64 {
    let scores = match prepared.prompt_logprobs {
        // three copies: in the turn, in its last update, and in the response
        Some(top) => 3 * (size_of::<TokenLogprobs>() + top * size_of::<Logprob>()),
        None => 0,
    };
    let each = |reply: &PreparedReply| {
        (2 * size_of_val(&*reply.prompt) + scores * reply.prompt.len()) as u64
    };
    prepared.replies.iter().map(each).sum()
}

#[cfg(test)]
mod tests {
    use engine::{EarlyEnd, Sampler, SamplerOptions};

    use super::*;

    /// The scores of a prompt take far more memory than its tokens: each token has as many scores as the request asks for.
    #[test]
    fn scores_of_prompts_are_reserved() {
        let bytes = |prompt_logprobs| {
            let sampler = Sampler::new(SamplerOptions::greedy()).unwrap();
            let reply = PreparedReply { prompt: vec![7; 1000], sampler, parser: None };
            prepared_bytes(&Prepared {
                replies: vec![reply],
                max_tokens: None,
                stop: Vec::new(),
                stop_tokens: Vec::new(),
                prompt_logprobs,
                ignore_eog: false,
                early: EarlyEnd::default(),
                split_thoughts: false,
                notes: Vec::new(),
            })
        };
        assert_eq!(bytes(None), 8_000);
        let each = size_of::<TokenLogprobs>() + 20 * size_of::<Logprob>();
        assert_eq!(bytes(Some(20)), 8_000 + 3_000 * each as u64);
    }
}
