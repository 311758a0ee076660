//! What happens, as it happens, to a client that reads at its own pace: as server-sent events, or a line each.

use std::convert::Infallible;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::header;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use tokio::sync::mpsc::{Sender, channel};
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;

use super::asked::Pending;
use crate::error::ApiError;
use crate::worker::Update;

/// Events that a client may be behind; what is told beyond waits where it was told.
const BEHIND: usize = 64;
/// A client that reads nothing for so long is gone.
const STALLED: Duration = Duration::from_secs(30);
/// Something is said at least so often, so that nobody between takes the connection for dead.
const PING: Duration = Duration::from_secs(10);

/// Turns what happens into what is sent.
pub(super) trait Chunks: Send + 'static {
    /// Between the objects that are sent.
    const FRAMES: Frames;

    /// What is sent first.
    fn begin(&mut self) -> Vec<Value> {
        Vec::new()
    }

    /// What is sent of an update of the reply of this index.
    fn update(&mut self, index: usize, update: Update) -> Result<Vec<Value>, ApiError>;

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
    let texts = ReceiverStream::new(receiver);
    match C::FRAMES {
        Frames::Events => {
            let events = texts.map(|text| Ok::<_, Infallible>(Event::default().data(text)));
            Sse::new(events).keep_alive(KeepAlive::new().interval(PING)).into_response()
        }
        Frames::Lines => {
            let lines = texts.map(|text| Ok::<_, Infallible>(Bytes::from(text + "\n")));
            let kind = [(header::CONTENT_TYPE, "application/x-ndjson")];
            (kind, Body::from_stream(lines)).into_response()
        }
    }
}

/// Nobody reads any more.
struct Gone;

async fn send<C: Chunks>(
    mut pending: Pending,
    mut chunks: C,
    sender: &Sender<String>,
) -> Result<(), Gone> {
    all(sender, chunks.begin()).await?;
    loop {
        let next = tokio::select! {
            next = pending.next() => next,
            () = sender.closed() => return Err(Gone),
        };
        let Some((index, update)) = next else { break };
        match chunks.update(index, update) {
            Ok(values) => all(sender, values).await?,
            Err(error) => {
                let told = match C::FRAMES {
                    Frames::Events => error.to_json(),
                    Frames::Lines => json!({ "error": error.message }),
                };
                return one(sender, told.to_string()).await;
            }
        }
    }
    all(sender, chunks.end()).await?;
    match C::FRAMES {
        Frames::Events => one(sender, "[DONE]".to_owned()).await,
        Frames::Lines => Ok(()),
    }
}

async fn all(sender: &Sender<String>, values: Vec<Value>) -> Result<(), Gone> {
    for value in values {
        one(sender, value.to_string()).await?;
    }
    Ok(())
}

async fn one(sender: &Sender<String>, data: String) -> Result<(), Gone> {
    let sent = tokio::time::timeout(STALLED, sender.send(data)).await;
    sent.map_err(|_| Gone)?.map_err(|_| Gone)
}
