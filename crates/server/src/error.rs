//! [`ApiError`]: what a client is told, in the shape of OpenAI's errors.

use axum::Json;
use axum::body::Body;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

/// Result of this crate.
pub(crate) type Result<T, E = ApiError> = std::result::Result<T, E>;

/// Why a request is not answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ApiError {
    pub(crate) status: StatusCode,
    /// `invalid_request_error`.
    kind: &'static str,
    /// `context_length_exceeded`.
    code: Option<&'static str>,
    /// The field at fault.
    param: Option<String>,
    /// One line.
    pub(crate) message: String,
}

/// Seconds after which a full queue is worth another try.
const RETRY_AFTER: &str = "1";

impl ApiError {
    fn new(status: StatusCode, kind: &'static str, message: impl Into<String>) -> ApiError {
        ApiError { status, kind, code: None, param: None, message: message.into() }
    }

    /// A request that cannot be read or obeyed.
    pub(crate) fn invalid(message: impl Into<String>) -> ApiError {
        ApiError::new(StatusCode::BAD_REQUEST, "invalid_request_error", message)
    }

    /// A field that cannot be obeyed.
    pub(crate) fn field(name: &str, problem: impl std::fmt::Display) -> ApiError {
        let error = ApiError::invalid(format!("{name}: {problem}"));
        ApiError { param: Some(name.to_owned()), ..error }
    }

    /// With another status than 400.
    pub(crate) fn with_status(self, status: StatusCode) -> ApiError {
        ApiError { status, ..self }
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

    /// The model is not there yet.
    pub(crate) fn loading() -> ApiError {
        let message = "the model is being loaded: try again later";
        ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable_error", message)
    }

    /// Something of ours went wrong.
    pub(crate) fn internal(message: impl Into<String>) -> ApiError {
        ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "api_error", message)
    }

    /// `{"error": {message, type, param, code}}`.
    pub(crate) fn to_json(&self) -> Value {
        json!({ "error": {
            "message": self.message,
            "type": self.kind,
            "param": self.param,
            "code": self.code,
        } })
    }
}

impl ApiError {
    /// The same in the shape of Anthropic's errors.
    pub(crate) fn to_typed_json(&self) -> Value {
        let kind = match self.kind {
            "unavailable_error" => "overloaded_error",
            kind => kind,
        };
        json!({ "type": "error", "error": { "type": kind, "message": self.message } })
    }

    /// The response of an API whose errors have another shape.
    pub(crate) fn into_response_of(self, told: &Value) -> Response {
        let mut response = self.into_response();
        *response.body_mut() = Body::from(told.to_string());
        response.headers_mut().remove(header::CONTENT_LENGTH);
        response
    }
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
            engine::Error::Busy { waiting } => ApiError::busy(*waiting),
            _ => ApiError::internal(error.to_string()),
        }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = (self.status, Json(self.to_json())).into_response();
        let headers = response.headers_mut();
        match self.status {
            StatusCode::SERVICE_UNAVAILABLE => {
                headers.insert(header::RETRY_AFTER, HeaderValue::from_static(RETRY_AFTER));
            }
            StatusCode::INTERNAL_SERVER_ERROR => {
                // clients try again by themselves what would only fail again
                let name = HeaderName::from_static("x-should-retry");
                headers.insert(name, HeaderValue::from_static("false"));
            }
            StatusCode::UNAUTHORIZED => {
                headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            }
            _ => {}
        }
        response
    }
}
