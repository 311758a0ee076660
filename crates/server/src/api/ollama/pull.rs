//! `/api/pull`: models that are brought here.

use axum::Json;
use axum::response::{IntoResponse, Response};
use serde_json::Value;
use tokio::sync::mpsc::channel;

use super::model_name;
use crate::Ready;
use crate::api::stream::{BEHIND, Frames, framed, one};
use crate::api::warned;
use crate::body::{Footprint, JsonBody, RequestBody};
use crate::error::{ApiError, ErrorShape, Result};
use crate::fields::{Field, Fields, Takes};
use crate::pulls::Pulling;

const PULL_FIELDS: Fields = &[
    ("model", Field::Honoured),
    ("name", Field::Honoured),
    ("stream", Field::Honoured),
    // the hub is asked as the server was told to, and certificates are checked
    ("insecure", Field::Only(&["false"])),
];

pub(super) const PULL: Takes = Takes::Fields(PULL_FIELDS);

/// The model to pull, and whether progress is streamed.
struct PullRequest {
    name: String,
    streams: bool,
}

impl Footprint for PullRequest {
    fn footprint(&self) -> u64 {
        self.name.footprint()
    }
}

pub(super) async fn pull(Ready(models): Ready, body: RequestBody) -> Result<Response> {
    let read = |body: &JsonBody| {
        let streams = body.flag("stream")?.unwrap_or(true);
        Ok(PullRequest { name: model_name(body)?.to_owned(), streams })
    };
    let asked = body.read(PULL, read).await?;
    let PullRequest { name, streams } = asked.value;
    let mut pulling = models.pull(&name)?;
    // what goes wrong before anything is told has its status
    let mut last = pulling.next().await.transpose()?;
    if streams {
        if let Some(first) = &mut last {
            warned(first, &asked.notes);
        }
        return Ok(stream(last, pulling));
    }
    while let Some(line) = pulling.next().await {
        last = Some(line?);
    }
    if let Some(last) = &mut last {
        warned(last, &asked.notes);
    }
    Ok(Json(last).into_response())
}

/// A line for each step, as it comes.
fn stream(first: Option<Value>, mut pulling: Pulling) -> Response {
    let (sender, receiver) = channel(BEHIND);
    tokio::spawn(async move {
        let mut line = first.map(Ok::<_, ApiError>);
        while let Some(told) = line {
            let told = told.unwrap_or_else(|error| error.to_shape(ErrorShape::Ollama));
            if one(&sender, (None, told.to_string())).await.is_err() {
                return;
            }
            // who leaves ends it: it is dropped here
            line = tokio::select! {
                next = pulling.next() => next,
                () = sender.closed() => return,
            };
        }
    });
    framed(Frames::Lines, receiver)
}
