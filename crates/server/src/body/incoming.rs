//! [`RequestBody`]: the bytes of a request's body, received and converted within the limits of the server.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, HttpBody};
use axum::extract::FromRequest;
use axum::http::{HeaderMap, Request, StatusCode, header};
use engine::Notes;
use http_body_util::BodyExt;

use super::JsonBody;
use super::coding::ContentCoding;
use crate::App;
use crate::error::{ApiError, Result};
use crate::fields::{FieldNotes, Takes, brief_text};
use crate::guard::ClientId;
use crate::intake::{ByteReservation, Intake, SMALL};
use crate::record::RequestRecord;

/// Most bytes of a body.
pub(crate) const MOST_BYTES: usize = 8 << 20;
/// A body must be complete by then.
const DEADLINE: Duration = Duration::from_secs(30);
/// Typical ratio of the size of JSON to its compressed size.
const USUAL_RATIO: usize = 8;
/// Least bytes by which the buffer of a body without Content-Length grows.
const GROWTH: usize = 4 << 10;

/// A body that was received, not parsed yet. Clones share its bytes.
#[derive(Clone)]
pub(crate) struct RequestBody {
    raw: Arc<RawBody>,
    client: ClientId,
    intake: Arc<Intake>,
    /// Log record of the request.
    record: Option<Arc<RequestRecord>>,
}

/// Bytes of a body, and the reservation for their memory.
#[derive(Debug)]
pub(super) struct RawBody {
    pub(super) bytes: Vec<u8>,
    pub(super) reservation: ByteReservation,
}

impl RawBody {
    /// Creates an empty body.
    pub(super) fn empty(reservation: ByteReservation) -> RawBody {
        RawBody { bytes: Vec::new(), reservation }
    }

    /// Appends bytes. Their memory is reserved before it is allocated.
    ///
    /// # Errors
    /// 413 for a body that becomes too large, 503 while other requests use the memory.
    pub(super) fn append(&mut self, data: &[u8]) -> Result<()> {
        let (length, capacity) = (self.bytes.len() + data.len(), self.bytes.capacity());
        if length > MOST_BYTES {
            return Err(too_large());
        }
        if length > capacity {
            let wanted = (2 * capacity).clamp(GROWTH, MOST_BYTES).max(length);
            self.reservation.grow((wanted - capacity) as u64)?;
            self.bytes.reserve_exact(wanted - self.bytes.len());
        }
        self.bytes.extend_from_slice(data);
        Ok(())
    }
}

fn too_large() -> ApiError {
    ApiError::invalid(format!("the body has more than {MOST_BYTES} bytes"))
        .with_status(StatusCode::PAYLOAD_TOO_LARGE)
}

/// Bytes of memory that a value which was converted from a body takes, about.
pub(crate) trait Footprint {
    /// Bytes, those of its parts included.
    fn footprint(&self) -> u64;
}

/// What a body was converted to; the body itself is gone.
#[derive(Debug)]
pub(crate) struct Converted<T> {
    /// The request.
    pub(crate) value: T,
    /// What it holds, and what it needs for more.
    pub(crate) claim: Claim,
    /// Warnings about the request.
    pub(crate) notes: Notes,
}

/// Memory that a request holds, and the limits that it was taken from.
#[derive(Debug)]
pub(crate) struct Claim {
    /// The memory.
    pub(crate) reservation: ByteReservation,
    /// The limits.
    pub(crate) intake: Arc<Intake>,
}

impl<T> Converted<T> {
    /// Convert what the body was converted to further.
    pub(crate) fn map<U>(self, convert: impl FnOnce(T) -> U) -> Converted<U> {
        Converted { value: convert(self.value), claim: self.claim, notes: self.notes }
    }
}

impl FromRequest<Arc<App>> for RequestBody {
    type Rejection = ApiError;

    async fn from_request(request: Request<Body>, app: &Arc<App>) -> Result<RequestBody> {
        let (parts, body) = request.into_parts();
        check_type(&parts.headers)?;
        let coding = ContentCoding::of(&parts.headers)?;
        let (client, intake) = (ClientId::of(&parts), Arc::clone(&app.intake));
        let mut raw = receive(body, intake.budget.reservation(client)).await?;
        if let Some(coding) = coding {
            // on a separate thread, even for few bytes
            let work = (USUAL_RATIO * raw.bytes.len()).clamp(SMALL, MOST_BYTES);
            raw = intake.parsing(work, move || coding.decompress(&raw)).await?;
        }
        let record = parts.extensions.get().cloned();
        Ok(RequestBody { raw: Arc::new(raw), client, intake, record })
    }
}

/// The same where nothing needs to be said: a request without a body has none.
pub(crate) struct AnyBody(pub(crate) Option<RequestBody>);

impl FromRequest<Arc<App>> for AnyBody {
    type Rejection = ApiError;

    async fn from_request(request: Request<Body>, app: &Arc<App>) -> Result<AnyBody> {
        let is_empty = request.body().size_hint().exact() == Some(0);
        if is_empty && !request.headers().contains_key(header::CONTENT_TYPE) {
            return Ok(AnyBody(None));
        }
        RequestBody::from_request(request, app).await.map(|body| AnyBody(Some(body)))
    }
}

/// Accepted media types of bodies: those for JSON, the form type that `curl -d` and clients that set no type send, and the unspecific
/// one. Web pages, too, can send forms and bodies without a type. This is safe: pages that are not allowed are refused before the body
/// is read.
const TYPES: [&str; 4] = [
    "application/json",
    "text/json",
    "application/x-www-form-urlencoded",
    "application/octet-stream",
];

/// Checks that the media type of a body allows JSON. A body without a type is accepted: several clients of Ollama's API send none.
///
/// # Errors
/// 415 for another type.
fn check_type(headers: &HeaderMap) -> Result<()> {
    let Some(given) = headers.get(header::CONTENT_TYPE) else { return Ok(()) };
    let given = String::from_utf8_lossy(given.as_bytes());
    let kind = given.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let is_json = kind.is_empty()
        || TYPES.contains(&&*kind)
        || (kind.starts_with("application/") && kind.ends_with("+json"));
    if is_json {
        return Ok(());
    }
    let found = brief_text(&kind);
    let error =
        ApiError::invalid(format!("expected Content-Type: application/json, found {found}"));
    Err(error.with_status(StatusCode::UNSUPPORTED_MEDIA_TYPE))
}

/// Receive a body within [`DEADLINE`]. One that is refused is read on and discarded: a client that sends its whole body before it
/// reads sees why.
///
/// # Errors
/// 413 for a body that is too large, 503 if memory for it is in use, 408 for one that takes too long.
async fn receive(mut body: Body, reservation: ByteReservation) -> Result<RawBody> {
    let end = tokio::time::Instant::now() + DEADLINE;
    let collected = tokio::time::timeout_at(end, collect(&mut body, reservation)).await;
    let collected = collected.unwrap_or_else(|_| {
        let late = ApiError::invalid("the body did not come in time");
        Err(late.with_status(StatusCode::REQUEST_TIMEOUT))
    });
    let refused = [StatusCode::PAYLOAD_TOO_LARGE, StatusCode::SERVICE_UNAVAILABLE];
    if collected.as_ref().is_err_and(|error| refused.contains(&error.status)) {
        // the refusal is sent whatever comes of this
        let _ = tokio::time::timeout_at(end, discard(&mut body)).await;
    }
    collected
}

async fn collect(body: &mut Body, reservation: ByteReservation) -> Result<RawBody> {
    let mut raw = RawBody::empty(reservation);
    if let Some(declared) = body.size_hint().exact() {
        let length = usize::try_from(declared).ok().filter(|length| *length <= MOST_BYTES);
        let length = length.ok_or_else(too_large)?;
        raw.reservation.grow(declared)?;
        raw.bytes.reserve_exact(length);
    }
    while let Some(frame) = body.frame().await {
        let frame = frame
            .map_err(|error| ApiError::invalid(format!("the body could not be read: {error}")))?;
        if let Ok(data) = frame.into_data() {
            raw.append(&data)?;
        }
    }
    Ok(raw)
}

async fn discard(body: &mut Body) {
    let mut left = MOST_BYTES;
    while let Some(Ok(frame)) = body.frame().await {
        let length = frame.data_ref().map_or(0, |data| data.len());
        let Some(rest) = left.checked_sub(length) else { break };
        left = rest;
    }
}

impl RequestBody {
    /// Returns the log record of the request.
    pub(crate) fn record(&self) -> Option<&RequestRecord> {
        self.record.as_deref()
    }

    /// Parse the body, and convert it where it delays no other request. What it was parsed to is gone when this returns.
    ///
    /// # Errors
    /// What is no JSON, or has fields that cannot be obeyed; 413 or 503 where memory does not suffice; those of `convert`.
    pub(crate) async fn read<T: Footprint + Send + 'static>(
        self,
        takes: Takes,
        convert: impl FnOnce(&JsonBody) -> Result<T> + Send + 'static,
    ) -> Result<Converted<T>> {
        let RequestBody { raw, client, intake, .. } = self;
        let (length, own) = (raw.bytes.len(), Arc::clone(&intake));
        let work = move || {
            let parsed = intake.budget.reservation(client);
            let notes = FieldNotes::new(intake.strict);
            let body = JsonBody::parse_known(&raw.bytes, Some(takes), parsed, notes)?;
            let body = body.checked(takes)?;
            let mut reservation = intake.budget.reservation(client);
            // conversion copies values, and writes some of them as text again
            reservation.grow(body.reservation.bytes() + raw.bytes.len() as u64)?;
            let value = convert(&body)?;
            reservation.shrink_to(value.footprint());
            Ok(Converted { value, claim: Claim { reservation, intake }, notes: body.collected() })
        };
        own.parsing(length, work).await
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use axum::body::Bytes;
    use tokio::time::Instant;

    use super::*;
    use crate::intake::ByteBudget;
    use crate::paused_clock::run;

    /// A body of unknown length: a chunk of so many bytes each second.
    fn chunks(chunk: usize, n: usize) -> Body {
        let (sender, receiver) = tokio::sync::mpsc::channel(1);
        tokio::spawn(async move {
            for _ in 0..n {
                tokio::time::sleep(Duration::from_secs(1)).await;
                if sender.send(Ok::<_, Infallible>(Bytes::from(vec![b' '; chunk]))).await.is_err() {
                    return;
                }
            }
        });
        Body::from_stream(tokio_stream::wrappers::ReceiverStream::new(receiver))
    }

    fn status(received: &Result<RawBody>) -> u16 {
        received.as_ref().map_or_else(ApiError::status, |_| 200)
    }

    #[test]
    fn a_body_comes_in_thirty_seconds() {
        run(async {
            let start = Instant::now();
            let of = |n| receive(chunks(1, n), ByteReservation::default());
            assert_eq!(of(29).await.unwrap().bytes.len(), 29);
            assert_eq!(start.elapsed(), Duration::from_secs(29));
            let late = of(1000).await;
            assert_eq!((status(&late), start.elapsed()), (408, Duration::from_secs(29 + 30)));
        });
    }

    #[test]
    fn bodies_are_reserved_as_they_come() {
        run(async {
            let budget = ByteBudget::new(1 << 20, None);
            let reservation = || budget.reservation(ClientId::Local);
            let whole = receive(chunks(10_000, 10), reservation()).await.unwrap();
            let (used, capacity) = (budget.used(), whole.bytes.capacity());
            assert!(used == capacity as u64 && used >= 100_000, "{used}, {capacity}");
            drop(whole);
            assert_eq!(budget.used(), 0);
            // of known length at once, else when it is too much
            let declared = Body::from(vec![b' '; 300_000]);
            assert_eq!(status(&receive(declared, reservation()).await), 413);
            let start = Instant::now();
            assert_eq!(status(&receive(chunks(100_000, 12), reservation()).await), 413);
            assert_eq!(start.elapsed(), Duration::from_secs(12), "it is read to its end");
            let held = [(); 2].map(|()| {
                let mut held = reservation();
                held.grow(1 << 18).unwrap();
                held
            });
            let refused = receive(Body::from(vec![b' '; 300]), reservation()).await;
            assert_eq!((status(&refused), budget.used()), (503, 1 << 19));
            drop(held);
            let huge = receive(Body::from(vec![b' '; MOST_BYTES + 1]), ByteReservation::default());
            assert_eq!(status(&huge.await), 413);
        });
    }
}
