//! Server-sent events: what happens, as it happens, to a client that reads at its own pace.

use std::time::Duration;

use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use serde_json::Value;
use tokio::sync::mpsc::{Sender, channel};
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;

use super::super::asked::Pending;
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
    /// What is sent first.
    fn begin(&mut self) -> Vec<Value>;

    /// What is sent of an update of the reply of this index.
    fn update(&mut self, index: usize, update: Update) -> Result<Vec<Value>, ApiError>;

    /// What is sent last.
    fn end(&mut self) -> Vec<Value>;
}

/// The response that sends them.
pub(super) fn stream(pending: Pending, chunks: impl Chunks) -> Response {
    let (sender, receiver) = channel(BEHIND);
    tokio::spawn(async move {
        // who does not read ends its replies: they are dropped here
        let _ = send(pending, chunks, &sender).await;
    });
    let events = ReceiverStream::new(receiver).map(Ok::<_, std::convert::Infallible>);
    Sse::new(events).keep_alive(KeepAlive::new().interval(PING)).into_response()
}

/// Nobody reads any more.
struct Gone;

async fn send(
    mut pending: Pending,
    mut chunks: impl Chunks,
    sender: &Sender<Event>,
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
            Err(error) => return one(sender, error.to_json().to_string()).await,
        }
    }
    all(sender, chunks.end()).await?;
    one(sender, "[DONE]".to_owned()).await
}

async fn all(sender: &Sender<Event>, values: Vec<Value>) -> Result<(), Gone> {
    for value in values {
        one(sender, value.to_string()).await?;
    }
    Ok(())
}

async fn one(sender: &Sender<Event>, data: String) -> Result<(), Gone> {
    let sent = tokio::time::timeout(STALLED, sender.send(Event::default().data(data))).await;
    sent.map_err(|_| Gone)?.map_err(|_| Gone)
}
