//! What happens, as it happens, to a client that reads at its own pace: as server-sent events, or a line each.

use std::convert::Infallible;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::header;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use engine::PromptLogprobs;
use serde_json::Value;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;

use super::pending::Pending;
use crate::error::{ApiError, ErrorShape};
use crate::updates::Update;

/// Events that a client may be behind; what is told beyond waits where it was told.
pub(super) const BEHIND: usize = 64;
/// A client that reads nothing for so long is gone.
const STALLED: Duration = Duration::from_secs(30);
/// Something is said at least so often, so that nobody between takes the connection for dead.
const PING: Duration = Duration::from_secs(10);

/// Turns what happens into what is sent.
pub(super) trait Chunks: Send + 'static {
    /// Between the objects that are sent.
    const FRAMES: Frames;
    /// How a failure is told.
    const ERRORS: ErrorShape;

    /// What is sent first.
    fn begin(&mut self) -> Vec<Value> {
        Vec::new()
    }

    /// What is sent of an update of the reply of this index.
    fn update(&mut self, index: usize, update: Update) -> Result<Vec<Value>, ApiError>;

    /// Returns part `part` of the scores of a prompt, counted from 0; `None` after the last one. The parts bound the work of one call.
    fn prompt_scores(
        &mut self,
        _index: usize,
        _scores: &PromptLogprobs,
        _part: usize,
    ) -> Option<Value> {
        None
    }

    /// Returns the last messages of the stream of a reply that failed.
    fn failed(&mut self, error: &ApiError) -> Vec<Value> {
        vec![error.to_shape(Self::ERRORS)]
    }

    /// What is sent last.
    fn end(&mut self) -> Vec<Value> {
        Vec::new()
    }
}

/// How objects follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Frames {
    /// Server-sent events, the last of which says `[DONE]`.
    Events,
    /// Server-sent events, the last of which says so itself.
    PlainEvents,
    /// Server-sent events, each by the name of its object's `type`.
    NamedEvents,
    /// A line each.
    Lines,
}

/// The response that sends them.
pub(super) fn stream<C: Chunks>(pending: Pending, chunks: C) -> Response {
    let (sender, receiver) = channel(BEHIND);
    tokio::spawn(async move {
        // who does not read ends its replies: they are dropped here
        let _ = send(pending, chunks, &sender).await;
    });
    framed(C::FRAMES, receiver)
}

/// The response that sends what comes from here.
pub(super) fn framed(frames: Frames, receiver: Receiver<Frame>) -> Response {
    let texts = ReceiverStream::new(receiver);
    match frames {
        Frames::Events | Frames::PlainEvents | Frames::NamedEvents => {
            // the name comes first, as other servers write it: some clients read line by line
            let event = |(name, text): (Option<String>, String)| {
                let event = Event::default();
                let event = name.map_or(event.clone(), |name| event.event(name));
                Ok::<_, Infallible>(event.data(text))
            };
            let events = texts.map(event);
            Sse::new(events).keep_alive(KeepAlive::new().interval(PING)).into_response()
        }
        Frames::Lines => {
            let lines = texts.map(|(_, text)| Ok::<_, Infallible>(Bytes::from(text + "\n")));
            let kind = [(header::CONTENT_TYPE, "application/x-ndjson")];
            (kind, Body::from_stream(lines)).into_response()
        }
    }
}

/// What is sent at once: the name of an event, and a text.
pub(super) type Frame = (Option<String>, String);

/// Nobody reads any more.
pub(super) struct Gone;

async fn send<C: Chunks>(
    mut pending: Pending,
    mut chunks: C,
    sender: &Sender<Frame>,
) -> Result<(), Gone> {
    all::<C>(sender, chunks.begin()).await?;
    let mut done = 0;
    loop {
        let next = tokio::select! {
            next = pending.next() => next,
            () = sender.closed() => return Err(Gone),
        };
        let Some((index, update)) = next else { break };
        done += usize::from(matches!(update, Update::Done(..)));
        if let Update::PromptScored(scores) = &update {
            let mut part = 0;
            while let Some(value) = chunks.prompt_scores(index, scores, part) {
                all::<C>(sender, vec![value]).await?;
                part += 1;
                tokio::task::yield_now().await;
            }
        }
        match chunks.update(index, update) {
            Ok(values) => all::<C>(sender, values).await?,
            Err(error) => return all::<C>(sender, chunks.failed(&error)).await,
        }
    }
    if done < pending.replies() {
        return all::<C>(sender, chunks.failed(&pending.unfinished())).await;
    }
    all::<C>(sender, chunks.end()).await?;
    match C::FRAMES {
        Frames::Events => one(sender, (None, "[DONE]".to_owned())).await,
        Frames::PlainEvents | Frames::NamedEvents | Frames::Lines => Ok(()),
    }
}

async fn all<C: Chunks>(sender: &Sender<Frame>, values: Vec<Value>) -> Result<(), Gone> {
    for value in values {
        let named = C::FRAMES == Frames::NamedEvents;
        let name = value["type"].as_str().filter(|_| named).map(str::to_owned);
        one(sender, (name, value.to_string())).await?;
    }
    Ok(())
}

/// Send one, for as long as somebody reads.
///
/// # Errors
/// Nobody does.
pub(super) async fn one(sender: &Sender<Frame>, frame: Frame) -> Result<(), Gone> {
    let sent = tokio::time::timeout(STALLED, sender.send(frame)).await;
    sent.map_err(|_| Gone)?.map_err(|_| Gone)
}
