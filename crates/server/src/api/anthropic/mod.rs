//! Anthropic's API: messages.

mod conversation;
mod messages;
mod reply;

use std::sync::Arc;

use axum::Router;
use axum::routing::post;

use crate::App;

pub(super) fn routes(router: Router<Arc<App>>) -> Router<Arc<App>> {
    router
        .route("/v1/messages", post(messages::messages))
        .route("/v1/messages/count_tokens", post(messages::count_tokens))
}
