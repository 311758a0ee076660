//! Long JSON answers: written on a thread of their own, or chunk by chunk as the client takes them.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes, HttpBody};
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use hyper::body::{Frame, SizeHint};
use serde::Serialize;

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

/// The response with this JSON, which `reservation` pays until it is sent.
pub(super) fn whole(json: Vec<u8>, reservation: ByteReservation) -> Response {
    response(HeldBody { body: Body::from(json), _reservation: reservation })
}

fn response(body: HeldBody) -> Response {
    ([(CONTENT_TYPE, "application/json")], Body::new(body)).into_response()
}

/// A response that `write` appends to until it says that this was all. It is asked for more when the client has taken what there is.
pub(super) fn in_chunks(
    mut write: impl FnMut(&mut Vec<u8>) -> bool + Send + 'static,
    reservation: ByteReservation,
) -> Response {
    let mut is_over = false;
    let mut chunks = std::iter::from_fn(move || {
        let mut chunk = Vec::with_capacity(CHUNK + CHUNK / 8);
        while !is_over && chunk.len() < CHUNK {
            is_over = !write(&mut chunk);
        }
        (!chunk.is_empty()).then(|| Bytes::from(chunk))
    });
    let first = chunks.next().unwrap_or_default();
    let body = match first.len() < CHUNK {
        true => Body::from(first),
        false => {
            let all = std::iter::once(first).chain(chunks).map(Ok::<_, Infallible>);
            Body::from_stream(tokio_stream::iter(all))
        }
    };
    response(HeldBody { body, _reservation: reservation })
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
