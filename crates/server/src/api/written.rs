//! Long JSON answers: written on a thread of their own, or chunk by chunk as the client takes them.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes, HttpBody};
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use hyper::body::{Frame, SizeHint};
use serde::Serialize;
use tokio_stream::{Stream, StreamExt};

use crate::error::{ApiError, Result};
use crate::intake::ByteReservation;

/// Least bytes of a chunk.
const CHUNK: usize = 32 << 10;

/// The text of a value as JSON.
///
/// # Errors
/// A value that JSON has no form for.
pub(super) fn json_text(value: &impl Serialize) -> Result<Vec<u8>> {
    serde_json::to_vec(value).map_err(|error| ApiError::internal(error.to_string()))
}

/// The text of a value as JSON, which takes about `bytes` bytes.
///
/// # Errors
/// A value that JSON has no form for.
pub(super) fn json_text_of(value: &impl Serialize, bytes: u64) -> Result<Vec<u8>> {
    let mut text = Vec::with_capacity(usize::try_from(bytes).unwrap_or_default());
    serde_json::to_writer(&mut text, value)
        .map_err(|error| ApiError::internal(error.to_string()))?;
    Ok(text)
}

/// The response with this JSON, which `reservation` pays until it is sent.
pub(super) fn whole(json: Vec<u8>, reservation: ByteReservation) -> Response {
    response(HeldBody { body: Body::from(json), _reservation: reservation })
}

fn response(body: HeldBody) -> Response {
    ([(CONTENT_TYPE, "application/json")], Body::new(body)).into_response()
}

/// Returns a response that `write` appends to until it returns false. It is called again when the client has received what was
/// written.
pub(super) fn in_chunks(
    write: impl FnMut(&mut Vec<u8>) -> bool + Send + 'static,
    reservation: ByteReservation,
) -> Response {
    let mut chunks = Chunks { write, is_over: false, has_yielded: false };
    let first = chunks.next_chunk().unwrap_or_default();
    let body = match first.len() < CHUNK {
        true => Body::from(first),
        false => {
            let first = tokio_stream::iter([Ok::<_, Infallible>(first)]);
            Body::from_stream(first.chain(chunks))
        }
    };
    response(HeldBody { body, _reservation: reservation })
}

/// Chunks of a response that `write` appends to. After each chunk the stream yields to other connections: otherwise a client that
/// reads quickly would occupy the thread for megabytes.
struct Chunks<W> {
    write: W,
    is_over: bool,
    has_yielded: bool,
}

impl<W: FnMut(&mut Vec<u8>) -> bool> Chunks<W> {
    fn next_chunk(&mut self) -> Option<Bytes> {
        let mut chunk = Vec::with_capacity(CHUNK + CHUNK / 8);
        while !self.is_over && chunk.len() < CHUNK {
            self.is_over = !(self.write)(&mut chunk);
        }
        (!chunk.is_empty()).then(|| Bytes::from(chunk))
    }
}

// no field is pinned
impl<W> Unpin for Chunks<W> {}

impl<W: FnMut(&mut Vec<u8>) -> bool> Stream for Chunks<W> {
    type Item = std::result::Result<Bytes, Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if !std::mem::replace(&mut self.has_yielded, true) {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        self.has_yielded = false;
        Poll::Ready(self.next_chunk().map(Ok))
    }
}

/// A body, and the memory that it takes until it is sent.
struct HeldBody {
    body: Body,
    _reservation: ByteReservation,
}

impl HttpBody for HeldBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<std::result::Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use super::*;

    struct Wakes(AtomicUsize);

    impl Wake for Wakes {
        fn wake(self: Arc<Wakes>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A client that reads without a pause does not occupy the thread: the body is pending after each chunk, and wakes its task.
    #[test]
    fn other_connections_have_their_turn_between_chunks() {
        const PARTS: usize = 1_000;
        let mut parts = 0;
        let write = move |out: &mut Vec<u8>| {
            parts += 1;
            out.extend_from_slice(&[b'x'; 1_000]);
            parts < PARTS
        };
        let response = in_chunks(write, ByteReservation::default());
        let mut body = std::pin::pin!(response.into_body());
        let wakes = Arc::new(Wakes(AtomicUsize::new(0)));
        let waker = Arc::clone(&wakes).into();
        let mut context = Context::from_waker(&waker);
        let (mut bytes, mut chunks, mut pending) = (0, 0, 0);
        loop {
            match body.as_mut().poll_frame(&mut context) {
                Poll::Pending => {
                    pending += 1;
                    assert_eq!(
                        wakes.0.load(Ordering::Relaxed),
                        pending,
                        "or it is never polled again"
                    );
                }
                Poll::Ready(None) => break,
                Poll::Ready(Some(frame)) => {
                    let data = frame.unwrap().into_data().unwrap();
                    assert!(data.len() < 2 * CHUNK, "{}", data.len());
                    bytes += data.len();
                    chunks += 1;
                }
            }
        }
        assert_eq!(bytes, PARTS * 1_000);
        assert!(
            chunks > 20 && pending >= chunks - 1,
            "{pending} turns of others in {chunks} chunks"
        );
    }
}
