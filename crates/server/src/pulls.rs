//! Models that are brought here because somebody asks a server for them: how far that is, as it goes on. Where they come from is
//! known by whoever started the server.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::task::JoinHandle;

use crate::OfferedModel;
use crate::api::CancelOnDrop;
use crate::error::{ApiError, Result};
use crate::models::{Models, PULLS};

/// Brings the model of a name here, and offers it by that name, if it fits into what memory is free and the bytes that models
/// which are loaded would give back. It tells how far that is, and stops when it is told false.
pub type PullModel = dyn Fn(
        &str,
        u64,
        &mut dyn FnMut(PullState<'_>) -> bool,
    ) -> std::result::Result<OfferedModel, PullFailure>
    + Send
    + Sync;

/// How far a model is on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PullState<'a> {
    /// What is done with a file of it.
    pub stage: PullStep<'a>,
    /// SHA-256 of the file, as hexadecimal digits.
    pub digest: &'a str,
    /// Bytes of it that are here.
    pub done: u64,
    /// All its bytes.
    pub total: u64,
}

/// What is done with a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PullStep<'a> {
    /// It is looked what there is: nothing is to be told yet, only asked whether somebody still waits for it.
    Looked,
    /// It comes, or is here.
    Comes,
    /// Another process brings it here: it is waited for.
    Waits,
    /// Nothing comes, for this reason. It is tried again.
    Retries(&'a str),
    /// Its bytes are compared with its digest.
    Checked,
}

/// Why a model is not here.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PullFailure {
    /// That is no name of one.
    #[error("{0}")]
    Name(String),
    /// Nobody has one of this name.
    #[error("{0}")]
    NotFound(String),
    /// Nothing may be brought here.
    #[error("{0}")]
    Refused(String),
    /// Something else, or whoever wanted it wants it no more.
    #[error("{0}")]
    Failed(String),
}

impl From<PullFailure> for ApiError {
    fn from(failure: PullFailure) -> ApiError {
        match failure {
            PullFailure::Name(problem) => ApiError::field("model", problem),
            PullFailure::NotFound(problem) => ApiError::not_found(problem),
            PullFailure::Refused(problem) => ApiError::forbidden(problem),
            PullFailure::Failed(problem) => ApiError::internal(problem),
        }
    }
}

/// A model on its way. Dropping it ends that; what came is kept.
pub(crate) struct Pulling {
    lines: UnboundedReceiver<Value>,
    done: Option<JoinHandle<Result<()>>>,
    _cancel: CancelOnDrop,
}

impl Models {
    /// Have a model brought here, and served from then on by that name.
    ///
    /// # Errors
    /// That nobody may ask for this, or that as many do as may.
    pub(crate) fn pull(self: &Arc<Models>, name: &str) -> Result<Pulling> {
        if self.pull.is_none() {
            return Err(ApiError::forbidden("this server brings no models here"));
        }
        let place = Arc::clone(&self.pulls).try_acquire_owned();
        let place = place.map_err(|_| ApiError::busy(PULLS))?;
        let cancel = CancelOnDrop::default();
        let (left, models) = (Arc::clone(cancel.flag()), Arc::clone(self));
        // a client tells the same model from others by no tag, or this one
        let name = name.strip_suffix(":latest").unwrap_or(name).to_owned();
        let (sender, lines) = unbounded_channel();
        let done = tokio::task::spawn_blocking(move || {
            let _place = place;
            let mut told = Told::default();
            let mut tell = |state: PullState<'_>| {
                let lines = told.lines(&state, Instant::now());
                let is_read = lines.into_iter().all(|line| sender.send(line).is_ok());
                is_read && !left.load(Ordering::Relaxed)
            };
            if let Some(pull) = &models.pull {
                models.add(pull(&name, models.held(), &mut tell)?);
            }
            Ok(())
        });
        Ok(Pulling { lines, done: Some(done), _cancel: cancel })
    }
}

impl Pulling {
    /// What is to be told next, in Ollama's words: at last that it is here, or why it is not; `None` behind that.
    pub(crate) async fn next(&mut self) -> Option<Result<Value>> {
        if let Some(line) = self.lines.recv().await {
            return Some(Ok(line));
        }
        let ended = self.done.take()?.await;
        let ended = ended.unwrap_or_else(|_| Err(ApiError::internal("it broke off")));
        Some(ended.map(|()| json!({ "status": "success" })))
    }
}

/// What was told last.
#[derive(Default)]
struct Told {
    status: Option<String>,
    at: Option<Instant>,
}

impl Told {
    /// What is new of this, as lines.
    fn lines(&mut self, state: &PullState<'_>, now: Instant) -> Vec<Value> {
        /// The same is told so often, with other counts.
        const OFTEN: Duration = Duration::from_millis(100);
        let PullState { stage, digest, done, total } = *state;
        let short: String = digest.chars().take(12).collect();
        let status = match stage {
            PullStep::Looked => return Vec::new(),
            PullStep::Comes => format!("pulling {short}"),
            PullStep::Waits => format!("waiting for another process that pulls {short}"),
            PullStep::Retries(trouble) => format!("pulling {short} again: {trouble}"),
            PullStep::Checked => "verifying sha256 digest".to_owned(),
        };
        let is_first = self.status.is_none();
        let is_new = self.status.as_ref() != Some(&status);
        let is_whole = done == total && stage == PullStep::Comes;
        if !is_new && !is_whole && self.at.is_some_and(|at| now.duration_since(at) < OFTEN) {
            return Vec::new();
        }
        let mut line = json!({ "status": status });
        if stage != PullStep::Checked {
            line["digest"] = json!(format!("sha256:{digest}"));
            (line["total"], line["completed"]) = (json!(total), json!(done));
        } else if !is_new {
            // it has no counts: it is told once
            return Vec::new();
        }
        (self.status, self.at) = (Some(status), Some(now));
        let begins = is_first.then(|| json!({ "status": "pulling manifest" }));
        begins.into_iter().chain([line]).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_changes_or_is_a_while_ago() {
        let mut told = Told::default();
        let digest = "0123456789abcdef";
        let mut now = Instant::now();
        let mut lines =
            |stage, done, now| told.lines(&PullState { stage, digest, done, total: 9 }, now);
        let first = lines(PullStep::Comes, 0, now);
        assert_eq!(first[0], json!({ "status": "pulling manifest" }));
        let counts = json!({
            "status": "pulling 0123456789ab", "digest": "sha256:0123456789abcdef", "total": 9, "completed": 0,
        });
        assert_eq!(first[1..], [counts]);
        assert!(lines(PullStep::Comes, 1, now).is_empty(), "a moment later");
        let trouble = lines(PullStep::Retries("no way"), 1, now);
        assert_eq!(trouble[0]["status"], "pulling 0123456789ab again: no way");
        assert_eq!(lines(PullStep::Comes, 9, now)[0]["completed"], 9);
        let checked = json!({ "status": "verifying sha256 digest" });
        assert_eq!(lines(PullStep::Checked, 3, now), [checked]);
        now += Duration::from_millis(120);
        assert!(lines(PullStep::Checked, 4, now).is_empty());
        assert_eq!(lines(PullStep::Comes, 5, now)[0]["completed"], 5);
        now += Duration::from_millis(99);
        assert!(lines(PullStep::Comes, 6, now).is_empty());
        now += Duration::from_millis(1);
        assert_eq!(lines(PullStep::Comes, 6, now)[0]["completed"], 6, "a while ago");
    }
}
