//! Anthropic's API: messages.

mod messages;
mod reply;

use std::sync::Arc;

use axum::Router;
use axum::response::{IntoResponse, Response};
use axum::routing::post;

use crate::App;
use crate::error::ApiError;

pub(super) fn routes(router: Router<Arc<App>>) -> Router<Arc<App>> {
    router
        .route("/v1/messages", post(messages::messages))
        .route("/v1/messages/count_tokens", post(messages::count_tokens))
}

/// What a client of this API is told.
struct AnthropicError(ApiError);

impl From<ApiError> for AnthropicError {
    fn from(error: ApiError) -> AnthropicError {
        AnthropicError(error)
    }
}

impl IntoResponse for AnthropicError {
    fn into_response(self) -> Response {
        let told = self.0.to_typed_json();
        self.0.into_response_of(&told)
    }
}
