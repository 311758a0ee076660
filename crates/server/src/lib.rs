//! Models over HTTP, in the words of the APIs that other programs speak.
//!
//! connection (`listen.rs`) -> who may ask (`guard.rs`) -> what is asked, field by field (`api/`) -> one thread that
//! computes for all (`worker.rs`: turns, scheduler, steps) -> what happens, as one JSON object or as server-sent events.
//! Nobody who talks to a client computes, and the thread that computes waits for no client.

#![forbid(unsafe_code)]

mod api;
mod body;
mod deadlines;
mod error;
mod fields;
mod guard;
mod keep;
mod listen;
mod metrics;
mod model;
mod models;
mod prepare;
mod reader;
mod request;
mod unread;
mod wire;
mod worker;

use std::sync::{Arc, OnceLock};

use axum::extract::FromRequestParts;
use axum::http::request::Parts;

pub use api::{OpenAiEndpoint, OpenAiReply, OpenAiRequest};
pub use body::JsonBody;
pub use error::ApiError;
pub use guard::Access;
pub use keep::kept_for;
pub use listen::Server;
pub use model::ServedModel;
pub use models::{LoadFailure, LoadModel, ModelAbout, OfferedModel};
pub use prepare::{Preparation, Prepared, PreparedReply};
pub use reader::TextReading;
pub use request::{Asked, PromptText, ReplySettings, Said};
pub use wire::{
    ReplyLimits, ReplySource, TimeLimit, call_json, call_of_json, calls_json, logprobs_json,
    timings_json, usage_json,
};

use error::Result;
use metrics::Metrics;
use models::Models;
use reader::ReaderWorker;
use worker::ReplyWorker;

/// What every request sees.
pub(crate) struct App {
    /// Who may ask.
    pub(crate) access: Access,
    /// What is served, once the first of it is loaded.
    pub(crate) models: OnceLock<Arc<Models>>,
}

/// A model that is served.
pub(crate) struct Serving {
    /// The model.
    pub(crate) model: Arc<ServedModel>,
    /// The thread that computes.
    pub(crate) worker: ModelWorker,
    /// What was counted.
    pub(crate) metrics: Arc<Metrics>,
    /// What gets requests ready.
    pub(crate) preparation: Preparation,
}

/// The thread of a model.
pub(crate) enum ModelWorker {
    /// It writes replies.
    Writes(ReplyWorker),
    /// It reads texts.
    Reads(ReaderWorker, TextReading),
}

impl Serving {
    /// Who writes replies.
    ///
    /// # Errors
    /// A model that writes none.
    pub(crate) fn writer(&self) -> Result<&ReplyWorker> {
        match &self.worker {
            ModelWorker::Writes(worker) => Ok(worker),
            ModelWorker::Reads(..) => {
                let told = "this model reads texts and writes none: /v1/embeddings, /v1/rerank";
                Err(ApiError::invalid(told))
            }
        }
    }

    /// Who reads texts, and what it says of them.
    ///
    /// # Errors
    /// A model that reads none as a whole.
    pub(crate) fn reading(&self) -> Result<(&TextReading, &ReaderWorker)> {
        match &self.worker {
            ModelWorker::Reads(worker, reading) => Ok((reading, worker)),
            ModelWorker::Writes(_) => {
                let told = "this model writes replies: serve one that embeds or ranks texts";
                Err(ApiError::invalid(told))
            }
        }
    }
}

/// What is served, of a request that needs it.
pub(crate) struct Ready(pub(crate) Arc<Models>);

impl FromRequestParts<Arc<App>> for Ready {
    type Rejection = ApiError;

    async fn from_request_parts(_: &mut Parts, app: &Arc<App>) -> Result<Ready, ApiError> {
        app.models.get().cloned().map(Ready).ok_or_else(ApiError::loading)
    }
}
