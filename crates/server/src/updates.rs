//! The way from the thread that computes to whoever talks to a client: what happens to replies, and how much of it nobody has
//! taken yet. The thread waits for nobody; a reply whose client is far behind rests.

use std::mem::size_of;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use engine::{Completion, Logprob, Prefill, PromptLogprobs, TokenLogprobs, ToolCallDelta};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::error::ApiError;

/// Bytes of updates that a client may be behind before its replies rest, beside what the system holds for it.
const BEHIND: usize = 128 << 10;

/// What happens to a job.
#[derive(Debug)]
pub(crate) enum Update {
    /// The prompt has come so far.
    Prefill(Prefill),
    /// Log probabilities of the tokens of the prompt.
    PromptScored(Box<PromptLogprobs>),
    /// More of the reply.
    Text(String),
    /// More of the model's thoughts.
    Thought(String),
    /// How likely the next token was.
    Chosen(Box<TokenLogprobs>),
    /// More of a call of a tool.
    Call(ToolCallDelta<String>),
    /// It is there. The last update.
    Done(Box<Completion>),
    /// There will be none. The last update.
    Failed(ApiError),
}

impl Update {
    /// Bytes that it takes, about.
    fn bytes(&self) -> usize {
        let more = match self {
            Update::Text(text) | Update::Thought(text) => text.len(),
            Update::PromptScored(scores) => scores.rest.iter().map(logprobs_bytes).sum(),
            Update::Chosen(scores) => logprobs_bytes(scores),
            Update::Call(ToolCallDelta::Arguments { text, .. }) => text.len(),
            _ => 0,
        };
        size_of::<Update>() + more
    }
}

fn logprobs_bytes(scores: &TokenLogprobs) -> usize {
    size_of::<TokenLogprobs>() + scores.top.len() * size_of::<Logprob>()
}

/// Where it is told what happens. Each clone is of the same client.
#[derive(Clone)]
pub(crate) struct UpdateSender {
    sender: UnboundedSender<(usize, Update)>,
    unread: Arc<AtomicUsize>,
}

/// Where a client's side hears of it.
pub(crate) struct UpdateReceiver {
    receiver: UnboundedReceiver<(usize, Update)>,
    unread: Arc<AtomicUsize>,
}

/// Both ends.
pub(crate) fn updates() -> (UpdateSender, UpdateReceiver) {
    let (sender, receiver) = unbounded_channel();
    let unread = Arc::<AtomicUsize>::default();
    let same = Arc::clone(&unread);
    (UpdateSender { sender, unread }, UpdateReceiver { receiver, unread: same })
}

impl UpdateSender {
    /// Tell what happened to the reply of this index; whether anybody listens.
    pub(crate) fn send(&self, index: usize, update: Update) -> bool {
        self.unread.fetch_add(update.bytes(), Ordering::Relaxed);
        self.sender.send((index, update)).is_ok()
    }

    /// Whether so much was taken that more may be made for a while.
    pub(crate) fn has_caught_up(&self) -> bool {
        self.unread.load(Ordering::Relaxed) <= BEHIND / 2
    }

    /// Whether so much was not taken yet that nothing more should be made.
    pub(crate) fn is_behind(&self) -> bool {
        self.unread.load(Ordering::Relaxed) > BEHIND
    }
}

impl UpdateReceiver {
    /// What happens next, and to which reply; `None` if nobody will tell any more.
    pub(crate) async fn next(&mut self) -> Option<(usize, Update)> {
        let update = self.receiver.recv().await?;
        self.unread.fetch_sub(update.1.bytes(), Ordering::Relaxed);
        Some(update)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_reads_nothing_is_behind_until_it_does() {
        let (sender, mut receiver) = updates();
        let piece = || Update::Text("x".repeat(1000));
        let mut sent = 0;
        while !sender.is_behind() {
            assert!(sender.send(0, piece()));
            sent += 1;
        }
        assert!((90..=131).contains(&sent), "{sent} pieces of a kB");
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            for _ in 0..sent {
                assert!(receiver.next().await.is_some());
            }
        });
        assert!(!sender.is_behind());
        assert_eq!(sender.unread.load(Ordering::Relaxed), 0);
        drop(receiver);
        assert!(!sender.send(0, piece()), "nobody listens");
    }
}
