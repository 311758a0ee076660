//! Log of requests: client, path and outcome of each. Nothing else that a client wrote is logged, not even the query, and nothing of
//! the response.

use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::{FromRequestParts, MatchedPath, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderName, HeaderValue, Method};
use axum::middleware::Next;
use axum::response::Response;
use engine::{Completion, FinishReason};
use hyper::body::{Frame, SizeHint};

use crate::App;
use crate::api::AskedPath;
use crate::error::{ApiError, ErrorShape, Result};
use crate::fields::brief_text;
use crate::guard::{ClientId, KeyId};
use crate::places::{Peer, Waits};

/// As what it is logged what is said and answered, which is nobody's business but of who asks for it.
pub const SAID: &str = "rooflight_said";

/// Outcome of a reply that was incomplete when the server was shut down.
const SHUT_DOWN: &str = "cut: server shut down";

/// Whose a request is, and what is noted of it.
#[derive(Clone)]
pub(crate) struct Asker {
    /// Whose it is.
    pub(crate) key: KeyId,
    /// The client that sent it.
    pub(crate) client: ClientId,
    /// What is noted of it.
    pub(crate) record: Arc<RequestRecord>,
}

impl<S: Sync> FromRequestParts<S> for Asker {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Asker> {
        let key = parts.extensions.get().copied().unwrap_or_default();
        let record: Option<&Arc<RequestRecord>> = parts.extensions.get();
        let record = record.ok_or_else(|| ApiError::internal("the request was not noted"))?;
        Ok(Asker { key, client: ClientId::of(parts), record: Arc::clone(record) })
    }
}

/// One request, from its head to the last byte of its answer. It is told to the log when nobody has it any more.
pub(crate) struct RequestRecord {
    id: String,
    /// HTTP method (`POST`); `other` for methods that [`recorded`] does not list.
    method: &'static str,
    /// Path of the request without its query, in printable form.
    path: String,
    /// Route of the endpoint, if there is one: `/v1/models/{*id}`.
    route: Option<String>,
    from: Option<IpAddr>,
    /// Time when the head of the request was complete.
    pub(crate) began: Instant,
    noted: Mutex<Noted>,
}

#[derive(Default)]
struct Noted {
    key: KeyId,
    status: Option<u16>,
    /// What kind of error it came to.
    error: Option<&'static str>,
    /// All of the answer was taken.
    whole: bool,
    /// A reply was ended by the server.
    cut: bool,
    model: Option<String>,
    replies: usize,
    prompt: usize,
    cached: usize,
    tokens: usize,
    /// Time that it waited for its model to be loaded, including the time for other models that were loaded first.
    load: Duration,
    /// Until something of the reply was there.
    first: Option<Duration>,
    /// In which replies were written, one after another.
    writing: Duration,
}

/// Ids of a server's requests.
pub(crate) struct RequestIds {
    /// What they begin with, so that those of a server that is started again are others.
    server: u32,
    last: AtomicU64,
}

impl Default for RequestIds {
    fn default() -> RequestIds {
        let server = RandomState::new().hash_one("server") as u32;
        RequestIds { server, last: AtomicU64::new(0) }
    }
}

impl RequestIds {
    fn next(&self) -> String {
        let n = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        format!("req_{:08x}{n:08x}", self.server)
    }
}

impl RequestRecord {
    fn lock(&self) -> MutexGuard<'_, Noted> {
        // counts are whole whatever happened beside them
        self.noted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Which model was asked.
    pub(crate) fn asked(&self, model: &str) {
        self.lock().model.get_or_insert_with(|| brief_text(model));
    }

    /// What is said to the model, where that is to be logged.
    pub(crate) fn said(&self, prompts: impl Iterator<Item = String>) {
        if tracing::enabled!(target: SAID, tracing::Level::INFO) {
            prompts.for_each(|prompt| {
                tracing::info!(target: SAID, id = self.id, prompt, "prompt");
            });
        }
    }

    /// Adds time that the request waited for its model to be loaded.
    pub(crate) fn waited_for_model(&self, time: Duration) {
        self.lock().load += time;
    }

    /// Returns the time that the request waited for its model to be loaded.
    pub(crate) fn load_time(&self) -> Duration {
        self.lock().load
    }

    /// Something of a reply is there.
    pub(crate) fn written(&self) {
        let mut noted = self.lock();
        if noted.first.is_none() {
            noted.first = Some(self.began.elapsed());
        }
    }

    /// A reply is there.
    pub(crate) fn replied(&self, reply: &Completion) {
        let mut noted = self.lock();
        noted.replies += 1;
        noted.prompt += reply.usage.prompt_tokens;
        noted.cached += reply.usage.cached_tokens;
        noted.tokens += reply.usage.completion_tokens;
        noted.writing += reply.timings.predicted;
        noted.cut |= reply.reason == FinishReason::Cancelled;
        let Completion { text, thoughts, .. } = reply;
        tracing::info!(target: SAID, id = self.id, text, thoughts, "reply");
    }

    /// Texts of so many tokens were read.
    pub(crate) fn read(&self, tokens: usize) {
        self.lock().prompt += tokens;
    }

    fn answered(&self, key: KeyId, status: u16, error: Option<&ApiError>) {
        let mut noted = self.lock();
        (noted.key, noted.status) = (key, Some(status));
        noted.error = error.map(ApiError::name);
    }

    /// What went wrong after the answer had begun.
    pub(crate) fn failed(&self, error: &ApiError) {
        self.lock().error = Some(error.name());
    }

    /// Whether the request is of a frequent kind, which is logged only at debug level if it succeeds: monitoring sends one every few
    /// seconds, and a browser sends a preflight before each request of a page.
    fn is_routine(&self) -> bool {
        let watched = ["/health", "/v1/health", "/metrics"];
        let is_watched = self.route.as_deref().is_some_and(|route| watched.contains(&route));
        self.method == "OPTIONS" || (is_watched && ["GET", "HEAD"].contains(&self.method))
    }

    fn tell(&self) {
        let ms = |time: Duration| (time.as_secs_f64() * 1e6).round() / 1e3;
        let noted = self.lock();
        let some = |n: usize| (n > 0).then_some(n as u64);
        let seconds = noted.writing.as_secs_f64();
        let rate = (noted.tokens > 0 && seconds > 0.0)
            .then(|| (noted.tokens as f64 / seconds * 10.0).round() / 10.0);
        let ended = match (noted.status, noted.whole) {
            (Some(_), true) if noted.cut => SHUT_DOWN,
            (Some(_), true) => "ok",
            (Some(_), false) => "client disconnected",
            (None, _) => "client disconnected before the reply",
        };
        macro_rules! told {
            ($level:ident) => {
                tracing::$level!(
                    id = self.id,
                    method = self.method,
                    path = self.path,
                    route = self.route,
                    status = noted.status,
                    error = noted.error,
                    model = noted.model,
                    key = Some(noted.key.scope()).filter(|key| *key > 0),
                    from = self.from.map(tracing::field::display),
                    replies = some(noted.replies),
                    prompt_tokens = some(noted.prompt),
                    cached_tokens = some(noted.cached),
                    tokens = some(noted.tokens),
                    load_ms = Some(noted.load).filter(|load| !load.is_zero()).map(ms),
                    first_ms = noted.first.map(ms),
                    total_ms = ms(self.began.elapsed()),
                    tokens_per_second = rate,
                    ended,
                    "request"
                )
            };
        }
        match noted.status {
            Some(500..) => told!(warn),
            Some(..400) if self.is_routine() => told!(debug),
            _ => told!(info),
        }
    }
}

impl Drop for RequestRecord {
    fn drop(&mut self) {
        self.tell();
    }
}

/// The outermost layer: each request is noted, and its answer says by which id.
pub(crate) async fn recorded(
    State(app): State<Arc<App>>,
    mut request: Request,
    next: Next,
) -> Response {
    let route: Option<&MatchedPath> = request.extensions().get();
    let route = route.map(|route| route.as_str().to_owned());
    let method = match *request.method() {
        Method::GET => "GET",
        Method::HEAD => "HEAD",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::PATCH => "PATCH",
        Method::DELETE => "DELETE",
        Method::OPTIONS => "OPTIONS",
        _ => "other",
    };
    let path = request.uri().path();
    let names: &[HeaderName] = match ErrorShape::of_path(path) {
        ErrorShape::Anthropic => &[REQUEST_ID, ANTHROPIC_ID],
        _ => &[REQUEST_ID],
    };
    let asked: Option<&AskedPath> = request.extensions().get();
    let path = printable_path(asked.map_or(path, |AskedPath(asked)| asked));
    let peer: Option<Peer> = request.extensions().get().cloned();
    let from = peer.as_ref().and_then(|peer| peer.address);
    let (id, began, noted) = (app.requests.next(), Instant::now(), Mutex::default());
    let record = Arc::new(RequestRecord { id, method, path, route, from, began, noted });
    tracing::debug!(id = record.id, method, path = record.path, "request begins");
    let id = HeaderValue::from_str(&record.id);
    request.extensions_mut().insert(Arc::clone(&record));
    let waits = peer.map(|peer| peer.waits);
    let request = match &waits {
        Some(waits) => request.map(|body| arriving(body, waits.clone())),
        None => request,
    };
    let mut response = next.run(request).await;
    let key = response.extensions().get().copied().unwrap_or_default();
    let error: Option<&ApiError> = response.extensions().get();
    record.answered(key, response.status().as_u16(), error);
    if let Ok(id) = id {
        for name in names {
            response.headers_mut().insert(name.clone(), id.clone());
        }
    }
    response.map(|body| {
        // the response to HEAD has no body, whatever length it declares
        let is_head = record.method == "HEAD";
        let end = AnswerEnd { record, waits, whole: body.is_end_stream() || is_head };
        Body::new(NotedBody { body, end })
    })
}

/// Formats a path for the log: bounded length, visible ASCII.
fn printable_path(path: &str) -> String {
    const MOST: usize = 100;
    let mut shown = String::new();
    for byte in path.bytes() {
        if shown.len() >= MOST {
            return shown + "...";
        }
        match byte {
            b'!'..=b'~' => shown.push(byte.into()),
            _ => shown.push_str(&format!("%{byte:02X}")),
        }
    }
    shown
}

/// By what OpenAI's clients know a request, and Anthropic's.
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const ANTHROPIC_ID: HeaderName = HeaderName::from_static("request-id");

/// A body whose end is noted.
struct NotedBody<E> {
    body: Body,
    end: E,
}

/// What happens at the end of a body.
trait BodyEnd {
    /// All of it has been taken.
    fn is_there(&mut self);
}

impl<E: BodyEnd + Unpin> HttpBody for NotedBody<E> {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<std::result::Result<Frame<Bytes>, axum::Error>>> {
        let frame = Pin::new(&mut self.body).poll_frame(context);
        if matches!(frame, Poll::Ready(None)) || self.body.is_end_stream() {
            self.end.is_there();
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The end of an answer.
struct AnswerEnd {
    record: Arc<RequestRecord>,
    waits: Option<Waits>,
    whole: bool,
}

impl BodyEnd for AnswerEnd {
    fn is_there(&mut self) {
        self.whole = true;
    }
}

impl Drop for AnswerEnd {
    fn drop(&mut self) {
        self.record.lock().whole = self.whole;
        // for what it asks next
        if let Some(waits) = &self.waits {
            waits.client();
        }
    }
}

/// The end of a request's body: until all of it is there, its client is waited for.
struct RequestEnd(Waits);

impl BodyEnd for RequestEnd {
    fn is_there(&mut self) {
        self.0.nobody();
    }
}

/// The body of a request, whose client is waited for.
fn arriving(body: Body, waits: Waits) -> Body {
    if body.is_end_stream() {
        waits.nobody();
        return body;
    }
    waits.client();
    Body::new(NotedBody { body, end: RequestEnd(waits) })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// For any path that a client requests, a log entry stays one line of bounded length, without control characters for a terminal.
    #[test]
    fn paths_are_printable_and_bounded() {
        assert_eq!(printable_path("/v1/models/a:b"), "/v1/models/a:b");
        assert_eq!(printable_path("/\u{1b}]0;x\u{7} \n\u{e9}"), "/%1B]0;x%07%20%0A%C3%A9");
        let long = printable_path(&"/\u{1b}".repeat(5000));
        assert!(long.len() < 120 && long.ends_with("..."), "{long}");
    }
}
