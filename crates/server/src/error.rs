//! [`ApiError`]: what a client is told, in the shape that its API has for errors.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Poll;
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

/// Result of this crate.
pub(crate) type Result<T, E = ApiError> = std::result::Result<T, E>;

/// Why a request is not answered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ApiError {
    pub(crate) status: StatusCode,
    /// `invalid_request_error`.
    kind: &'static str,
    /// `context_length_exceeded`.
    code: Option<&'static str>,
    /// The field at fault.
    pub(crate) param: Option<String>,
    /// One line.
    pub(crate) message: String,
    /// Seconds after which it may be tried again.
    again: u8,
}

/// Seconds after which what cannot be had now is worth another try, where nothing more is known, and at most.
const AGAIN: u8 = 1;
const MOST_AGAIN: u8 = 60;

impl ApiError {
    fn new(status: StatusCode, kind: &'static str, message: impl Into<String>) -> ApiError {
        ApiError { status, kind, code: None, param: None, message: message.into(), again: AGAIN }
    }

    /// A request that cannot be read or obeyed.
    pub fn invalid(message: impl Into<String>) -> ApiError {
        ApiError::new(StatusCode::BAD_REQUEST, "invalid_request_error", message)
    }

    /// A field that cannot be obeyed.
    pub fn field(name: &str, problem: impl std::fmt::Display) -> ApiError {
        let error = ApiError::invalid(format!("{name}: {problem}"));
        ApiError { param: Some(name.to_owned()), ..error }
    }

    /// Returns the error with the name of the field at fault.
    pub(crate) fn with_param(self, name: String) -> ApiError {
        ApiError { param: Some(name), ..self }
    }

    /// Returns the error with the field at fault, which the message names, too.
    pub(crate) fn at(self, place: &str) -> ApiError {
        let message = format!("{place}: {}", self.message);
        ApiError { message, ..self }.with_param(place.to_owned())
    }

    /// With another status than 400.
    pub(crate) fn with_status(self, status: StatusCode) -> ApiError {
        ApiError { status, ..self }
    }

    /// Something that this server was not started for.
    pub(crate) fn not_supported(message: impl Into<String>) -> ApiError {
        ApiError::new(StatusCode::NOT_IMPLEMENTED, "not_supported_error", message)
    }

    /// Somebody who may not ask.
    pub(crate) fn forbidden(message: impl Into<String>) -> ApiError {
        ApiError::new(StatusCode::FORBIDDEN, "permission_error", message)
    }

    /// No key, or a wrong one.
    pub(crate) fn unauthorized() -> ApiError {
        let message = "expected a valid key: Authorization: Bearer KEY";
        ApiError::new(StatusCode::UNAUTHORIZED, "authentication_error", message)
    }

    /// Something that is not there.
    pub(crate) fn not_found(message: impl Into<String>) -> ApiError {
        ApiError::new(StatusCode::NOT_FOUND, "not_found_error", message)
    }

    /// As many requests wait as may.
    pub(crate) fn busy(waiting: usize) -> ApiError {
        let message = format!("{waiting} requests are running and waiting: try again later");
        ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable_error", message)
    }

    /// With the time after which there may be a place.
    pub(crate) fn again_in(self, time: Duration) -> ApiError {
        let again = (time.as_secs_f64().ceil() as u8).clamp(AGAIN, MOST_AGAIN);
        ApiError { again, ..self }
    }

    /// The memory for request bodies is in use.
    pub(crate) fn no_memory_for_bodies() -> ApiError {
        let message = "the memory for request bodies is in use: try again later";
        ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable_error", message)
    }

    /// A body that takes more memory than one request may: `most` bytes.
    pub(crate) fn body_too_large(most: u64) -> ApiError {
        let message = format!(
            "the request takes more than {most} bytes of memory once it is read: shorten it"
        );
        ApiError::invalid(message).with_status(StatusCode::PAYLOAD_TOO_LARGE)
    }

    /// Something that others use now, as the compiler of forms.
    pub(crate) fn in_use(message: impl Into<String>) -> ApiError {
        ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable_error", message)
    }

    /// Something that had to give way to replies.
    pub(crate) fn gave_way() -> ApiError {
        let message = "memory was needed for replies meanwhile: try again later";
        ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable_error", message)
    }

    /// The server ends before a reply has begun.
    pub(crate) fn ending() -> ApiError {
        let message = "the server ends: ask again when it is there again";
        ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable_error", message)
    }

    /// The model is not there yet.
    pub(crate) fn loading() -> ApiError {
        let message = "the model is being loaded: try again later";
        ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable_error", message)
    }

    /// A model that is served, and not loaded now.
    pub(crate) fn not_loaded(name: &str) -> ApiError {
        let message = format!("the model `{name}` is not loaded: a request for a reply loads it");
        ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable_error", message)
    }

    /// Memory has no room for a model beside those in use.
    pub(crate) fn no_room(name: &str, problem: &str) -> ApiError {
        let message = format!("the model `{name}` cannot be loaded now: {problem}");
        ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable_error", message)
    }

    /// Memory has no room for a model, whichever others go.
    pub(crate) fn too_large(name: &str, problem: &str) -> ApiError {
        let message = format!("the model `{name}` cannot be loaded: {problem}");
        ApiError::internal(message)
    }

    /// Something of ours went wrong.
    pub(crate) fn internal(message: impl Into<String>) -> ApiError {
        ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "api_error", message)
    }

    /// The field at fault, if it is one.
    pub fn param(&self) -> Option<&str> {
        self.param.as_deref()
    }

    /// What kind of error it is, in a word.
    pub(crate) fn name(&self) -> &'static str {
        self.code.unwrap_or(self.kind)
    }

    /// The status of the response.
    pub fn status(&self) -> u16 {
        self.status.as_u16()
    }

    /// `{"error": {message, type, param, code}}`, as OpenAI's API has it.
    pub fn to_json(&self) -> Value {
        json!({ "error": {
            "message": self.message,
            "type": self.kind,
            "param": self.param,
            "code": self.code,
        } })
    }

    /// In the shape that this API has for errors.
    pub(crate) fn to_shape(&self, shape: ErrorShape) -> Value {
        match shape {
            ErrorShape::OpenAi => self.to_json(),
            ErrorShape::Anthropic => {
                let kind = match self.kind {
                    "unavailable_error" => "overloaded_error",
                    kind => kind,
                };
                json!({ "type": "error", "error": { "type": kind, "message": self.message } })
            }
            ErrorShape::Ollama => json!({ "error": self.message }),
            ErrorShape::Event => json!({
                "type": "error",
                "code": self.name(),
                "message": self.message,
                "param": self.param,
            }),
        }
    }
}

/// How an API tells errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ErrorShape {
    /// An object with message, type, field and code.
    OpenAi,
    /// An object with type and message.
    Anthropic,
    /// A text.
    Ollama,
    /// An event of OpenAI's newer API.
    Event,
}

impl ErrorShape {
    /// Returns the shape of the API to which a path belongs, or appears to belong.
    pub(crate) fn of_path(path: &str) -> ErrorShape {
        match path {
            path if path.starts_with("/messages") || path.contains("/v1/messages") => {
                ErrorShape::Anthropic
            }
            path if path.starts_with("/api/") => ErrorShape::Ollama,
            _ => ErrorShape::OpenAi,
        }
    }
}

/// The outermost layer: whoever refused a request, the body says so as the API of its path does.
pub(crate) async fn shaped(request: Request, next: Next) -> Response {
    let shape = ErrorShape::of_path(request.uri().path());
    let mut response = next.run(request).await;
    if let Some(error) = response.extensions().get::<ApiError>() {
        let body = Body::from(error.to_shape(shape).to_string());
        let json = HeaderValue::from_static("application/json");
        response.headers_mut().insert(header::CONTENT_TYPE, json);
        *response.body_mut() = body;
    }
    response
}

/// Answers 500 where a handler panics. Without this layer the connection closes without an answer.
pub(crate) async fn caught(request: Request, next: Next) -> Response {
    let mut answer = std::pin::pin!(next.run(request));
    let caught = std::future::poll_fn(|context| {
        let polled = catch_unwind(AssertUnwindSafe(|| answer.as_mut().poll(context)));
        polled.map_or(Poll::Ready(None), |poll| poll.map(Some))
    });
    let failed = || ApiError::internal("the request failed; see the log").into_response();
    caught.await.unwrap_or_else(failed)
}

impl From<engine::Error> for ApiError {
    fn from(error: engine::Error) -> ApiError {
        match &error {
            engine::Error::ContextFull { wanted, capacity } => {
                let message = format!(
                    "the prompt has {wanted} tokens, of which the context holds {capacity}"
                );
                let error = ApiError::invalid(message);
                ApiError { code: Some("context_length_exceeded"), ..error }
            }
            engine::Error::Setting { name, expected, found } => {
                ApiError::field(name, format!("expected {expected}, found {found}"))
            }
            engine::Error::EmptyPrompt => ApiError::invalid("the prompt has no tokens"),
            // a template that refuses, a text that cannot be encoded
            engine::Error::Text(error) => ApiError::invalid(error.to_string()),
            // a form that the model's other settings leave no token for
            engine::Error::Constraint { .. } => ApiError::invalid(error.to_string()),
            engine::Error::Saved { .. } => ApiError::invalid(error.to_string()),
            engine::Error::Busy { waiting } => ApiError::busy(*waiting),
            _ => ApiError::internal(error.to_string()),
        }
    }
}

impl IntoResponse for ApiError {
    /// Without a body, which [`shaped`] makes of it.
    fn into_response(self) -> Response {
        let mut response = self.status.into_response();
        let headers = response.headers_mut();
        match self.status {
            StatusCode::SERVICE_UNAVAILABLE => {
                headers.insert(header::RETRY_AFTER, HeaderValue::from(u16::from(self.again)));
            }
            StatusCode::INTERNAL_SERVER_ERROR => {
                // clients try again by themselves what would only fail again
                let name = HeaderName::from_static("x-should-retry");
                headers.insert(name, HeaderValue::from_static("false"));
            }
            // names the supported codings (RFC 9110, section 15.5.16)
            StatusCode::UNSUPPORTED_MEDIA_TYPE => {
                headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("gzip, deflate"));
            }
            StatusCode::UNAUTHORIZED => {
                headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            }
            _ => {}
        }
        response.extensions_mut().insert(self);
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A request that finds the compiler of forms busy may be repeated; a form that is too costly stays so.
    #[test]
    fn a_busy_compiler_says_when_to_come_again() {
        use grammar::GrammarError;
        for error in [
            ApiError::from(GrammarError::Busy),
            ApiError::from(tools::ToolError::Compiler(GrammarError::Busy)),
        ] {
            assert_eq!(error.status(), 503);
            assert_eq!(error.into_response().headers()[header::RETRY_AFTER], "1");
        }
        assert_eq!(ApiError::from(GrammarError::TooCostly { what: "grammar" }).status(), 400);
    }

    #[test]
    fn a_full_queue_says_when_there_may_be_a_place() {
        let told = |error: ApiError| {
            let response = error.into_response();
            response.headers()[header::RETRY_AFTER].to_str().unwrap().to_owned()
        };
        assert_eq!(told(ApiError::busy(3)), "1");
        for (ms, seconds) in [(0, "1"), (900, "1"), (2500, "3"), (3_600_000, "60")] {
            assert_eq!(told(ApiError::busy(3).again_in(Duration::from_millis(ms))), seconds);
        }
    }
}
