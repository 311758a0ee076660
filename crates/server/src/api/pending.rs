//! Replies on their way: from a request to the thread that computes, and back.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Instant;

use engine::{Completion, Logprob, Notes, TokenLogprobs};

use crate::Serving;
use crate::body::{Claim, Converted};
use crate::error::{ApiError, Result};
use crate::intake::ByteReservation;
use crate::prepare::{Prepared, PreparedReply};
use crate::record::{Asker, RequestRecord};
use crate::request::Asked;
use crate::updates::{Update, UpdateReceiver, updates};
use crate::wire::{scored_text_bytes, token_bytes};
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
    /// Slot of each reply; negative before the reply begins.
    pub(crate) slots: Vec<Arc<AtomicI64>>,
    /// Memory for the scores of prompts in the response.
    pub(crate) scores: ByteReservation,
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
        notes.join("", &prepared.notes);
        prepared.notes = notes;
        let mut scores = reservation.another();
        scores.grow(scored_bytes(&prepared))?;
        let held = Held { prompts: Arc::new(reservation), scores };
        self.submit(prepared, held, places, asker, cancel)
    }

    /// Returns the number of tokens in the prompt of a request, and warnings about the request.
    ///
    /// # Errors
    /// A template that refuses it, no place, or no memory for it.
    pub(crate) async fn count_tokens(
        self: &Arc<Serving>,
        mut asked: Converted<Asked>,
        asker: &Asker,
    ) -> Result<(usize, Notes)> {
        asker.record.asked(&self.model.name);
        self.used_by(asker.client);
        let mut notes = std::mem::take(&mut asked.notes);
        let _place = asked.claim.intake.text_place()?;
        let cancel = CancelOnDrop::default();
        let (app, flag, key) = (Arc::clone(self), Arc::clone(cancel.flag()), asker.key);
        let count = move |asked: &Asked| app.preparation.count(asked, key.scope(), &flag);
        let ((n, told), _) = self.encoded(asked, count, |_| 0).await?;
        notes.join("", &told);
        Ok((n, notes))
    }

    /// Returns what `encode` makes of the texts of a request, on another thread, and the memory for it, counted by `bytes`. The request
    /// is dropped. A strict server refuses a request with an option that has no effect before.
    pub(super) async fn encoded<T: Send + 'static>(
        self: &Arc<Serving>,
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
        let (app, strict) = (Arc::clone(self), intake.strict);
        let work = move || {
            if strict {
                app.preparation.check_effects(&asked)?;
            }
            reservation.grow(asked.argument_bytes())?;
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
        held: Held,
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
        let slots: Vec<_> = replies.iter().map(|_| Arc::new(AtomicI64::new(-1))).collect();
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
            reservation: Arc::clone(&held.prompts),
            began,
            slot: Arc::clone(&slots[index]),
        };
        let jobs: Vec<ReplyJob> = replies.into_iter().enumerate().map(job).collect();
        let replies = jobs.len();
        self.writer()?.submit(jobs, places)?;
        Ok(Pending {
            updates,
            replies,
            prompt_tokens,
            notes: notes.lines(),
            slots,
            scores: held.scores,
            record: Arc::clone(&asker.record),
            cancel,
            _serving: Arc::clone(self),
        })
    }
}

/// Memory that replies need.
struct Held {
    /// For prompts and the results that are computed for them.
    prompts: Arc<ByteReservation>,
    /// For the scores of prompts in the response.
    scores: ByteReservation,
}

/// Returns the number of bytes that the scores of prompts take in the response. They are reserved before anything is computed, so that
/// a response that can never fit is refused early.
fn scored_bytes(prepared: &Prepared) -> u64 {
    let Some(top) = prepared.prompt_logprobs else { return 0 };
    let lengths = prepared.replies.iter().map(|reply| reply.prompt.len());
    lengths.map(|tokens| scored_text_bytes(tokens, top)).sum()
}

/// Returns the bytes of the prompts of replies, which their turns hold, too, and of the prompts' scores.
fn prepared_bytes(prepared: &Prepared) -> u64 {
    let scores = match prepared.prompt_logprobs {
        // three copies: in the turn, in the update about the prompt, and in the last update
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
        let prepared = |prompt_logprobs| {
            let reply = || {
                let sampler = Sampler::new(SamplerOptions::greedy()).unwrap();
                PreparedReply { prompt: vec![7; 1000], sampler, parser: None }
            };
            Prepared {
                replies: vec![reply(), reply()],
                max_tokens: None,
                stop: Vec::new(),
                stop_tokens: Vec::new(),
                prompt_logprobs,
                ignore_eog: false,
                early: EarlyEnd::default(),
                split_thoughts: false,
                notes: Notes::default(),
            }
        };
        assert_eq!(prepared_bytes(&prepared(None)), 16_000);
        let each = size_of::<TokenLogprobs>() + 20 * size_of::<Logprob>();
        assert_eq!(prepared_bytes(&prepared(Some(20))), 16_000 + 6_000 * each as u64);
        assert_eq!(scored_bytes(&prepared(None)), 0);
        assert_eq!(scored_bytes(&prepared(Some(20))), 2 * scored_text_bytes(1_000, 20));
        // 128k tokens with 20 alternatives each: the response takes most of a gigabyte
        assert!(scored_text_bytes(128 << 10, 20) > 600 << 20);
    }
}
