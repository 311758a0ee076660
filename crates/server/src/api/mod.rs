//! The endpoints, by the API they belong to. Each is a file that says which fields it knows and what becomes of them.

mod anthropic;
mod endpoints;
mod llama;
mod ollama;
mod openai;
mod paths;
mod pending;
mod stream;
mod texts;
mod written;

use std::sync::Arc;

use axum::Router;
use axum::middleware::{from_fn, from_fn_with_state};

use crate::App;
use crate::error::{caught, shaped};
use crate::guard::guard;
use crate::origins::for_pages;
use crate::record::recorded;

pub use openai::{OpenAiEndpoint, OpenAiReply, OpenAiRequest};
pub(crate) use paths::{AskedPath, tidy as tidy_path};
pub(crate) use pending::CancelOnDrop;

use endpoints::Endpoints;

/// Why fields have no effect that several APIs have.
const FORGETS: &str = "nothing is forgotten: a prompt that does not fit is refused";
const FOUND_AGAIN: &str = "equal beginnings are always found again";

type Api = fn(Endpoints) -> Endpoints;

/// What is added, by API.
static APIS: &[Api] = &[openai::routes, anthropic::routes, ollama::routes, llama::routes];

/// All endpoints behind the guard.
pub(crate) fn router(app: Arc<App>) -> Router {
    let endpoints = APIS.iter().fold(Endpoints::default(), |endpoints, api| api(endpoints));
    endpoints
        .finish()
        .layer(from_fn_with_state(Arc::clone(&app), guard))
        .layer(from_fn(caught))
        .layer(from_fn(shaped))
        .layer(from_fn_with_state(Arc::clone(&app), for_pages))
        .layer(from_fn_with_state(Arc::clone(&app), recorded))
        .with_state(app)
}
