//! Models over HTTP, in the words of the APIs that other programs speak.
//!
//! connection (`listen.rs`) -> access control (`guard.rs`, `origins.rs`) -> body, within limits (`body/`, `intake/`) -> what is
//! asked, field by field (`api/`, `request/`) -> one thread that computes for all (`worker.rs`: turns, scheduler, steps) -> what
//! happens, as one JSON object or as server-sent events.
//! Nobody who talks to a client computes, and the thread that computes waits for no client.

#![forbid(unsafe_code)]

mod api;
mod archive;
mod body;
mod deadlines;
mod error;
mod fields;
mod guard;
mod intake;
mod keep;
mod listen;
mod metrics;
mod model;
mod models;
mod offers;
mod origins;
#[cfg(test)]
mod paused_clock;
mod places;
mod prepare;
mod pulls;
mod reader;
mod record;
mod request;
mod serving;
mod unread;
mod updates;
mod wire;
mod worker;

use std::sync::{Arc, OnceLock};

use axum::extract::FromRequestParts;
use axum::http::request::Parts;

pub use api::{OpenAiEndpoint, OpenAiReply, OpenAiRequest};
pub use body::JsonBody;
pub use error::ApiError;
pub use guard::Access;
pub use intake::ServerLimits;
pub use keep::kept_for;
pub use listen::{Server, ServerListener};
pub use model::ServedModel;
pub use offers::{
    LoadFailure, LoadModel, ModelAbout, ModelDetails, ModelUse, OfferedModel, Offers,
};
pub use origins::WebOrigin;
pub use prepare::{Preparation, Prepared, PreparedReply};
pub use pulls::{PullFailure, PullModel, PullState, PullStep};
pub use reader::TextReading;
pub use record::SAID;
pub use request::{Asked, Hole, NamedText, PromptText, ReplyForm, ReplySettings, Said};
pub use wire::{
    ReplyLimits, ReplySource, TimeLimit, call_json, call_of_json, calls_json, context_json,
    limit_json, logprobs_json, timings_json, usage_json,
};

use error::Result;
use intake::Intake;
use models::Models;
use record::RequestIds;
use serving::Serving;

/// What every request sees.
pub(crate) struct App {
    /// Who may ask.
    pub(crate) access: Access,
    /// What is served, once the first of it is loaded.
    pub(crate) models: OnceLock<Arc<Models>>,
    /// Ids of requests.
    pub(crate) requests: RequestIds,
    /// What requests may take.
    pub(crate) intake: Arc<Intake>,
}

/// What is served, of a request that needs it.
pub(crate) struct Ready(pub(crate) Arc<Models>);

impl FromRequestParts<Arc<App>> for Ready {
    type Rejection = ApiError;

    async fn from_request_parts(_: &mut Parts, app: &Arc<App>) -> Result<Ready, ApiError> {
        app.models.get().cloned().map(Ready).ok_or_else(ApiError::loading)
    }
}
