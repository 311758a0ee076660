//! The endpoints, by the API they belong to. Each is a file that says which fields it knows and what becomes of them.

mod anthropic;
mod endpoints;
mod llama;
mod ollama;
mod openai;
mod paths;
mod pending;
mod running;
mod stream;
mod texts;
mod thinking;
mod written;

use std::sync::Arc;

use axum::Router;
use axum::middleware::{from_fn, from_fn_with_state};
use engine::Notes;
use serde_json::Value;

use crate::App;
use crate::error::{caught, shaped};
use crate::guard::guard;
use crate::origins::for_pages;
use crate::record::recorded;

pub use openai::{OpenAiEndpoint, OpenAiReply, OpenAiRequest};
pub(crate) use paths::{AskedPath, tidy as tidy_path};
pub(crate) use pending::CancelOnDrop;

use endpoints::Endpoints;
pub(crate) use thinking::think;

/// Why fields have no effect that several APIs have.
const FORGETS: &str = "nothing is forgotten: a prompt that does not fit is refused";
pub(crate) const FOUND_AGAIN: &str = "equal beginnings are always found again";
const SLOT_BY_CONTENT: &str = "a slot is chosen by what it holds; the reply tells which";

/// Adds `warnings` to a response, if there are notes.
fn warned(response: &mut Value, notes: &Notes) {
    if !notes.is_empty() {
        response["warnings"] = notes.lines().into();
    }
}

type Api = fn(Endpoints) -> Endpoints;

/// What is added, by API.
static APIS: &[Api] = &[openai::routes, anthropic::routes, ollama::routes, llama::routes];

/// All endpoints behind the guard.
pub(crate) fn router(app: Arc<App>) -> Router {
    let endpoints = APIS.iter().fold(Endpoints::default(), |endpoints, api| api(endpoints));
    endpoints
        .finish(app.intake.strict)
        .layer(from_fn_with_state(Arc::clone(&app), guard))
        .layer(from_fn(caught))
        .layer(from_fn(shaped))
        .layer(from_fn_with_state(Arc::clone(&app), for_pages))
        .layer(from_fn_with_state(Arc::clone(&app), recorded))
        .with_state(app)
}
