//! Slots: in which of them replies are made; and what rests in one is saved, had back or forgotten.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::Json;
use axum::extract::Path;
use axum::http::Uri;
use engine::Notes;
use program::{CacheOptions, KeptPlace, is_kept_name};
use serde_json::{Value, json};
use tokio::sync::oneshot;

use super::{asked_of, model_of};
use crate::Ready;
use crate::api::pending::CancelOnDrop;
use crate::api::warned;
use crate::body::{AnyBody, Converted, JsonBody};
use crate::error::{ApiError, Result};
use crate::fields::{Field, Fields, Takes, brief_text};
use crate::record::Asker;
use crate::worker::{SlotAction, SlotJob, slot_error};

const SLOT_FIELDS: Fields = &[("filename", Field::Honoured), ("model", Field::Honoured)];
pub(super) const SLOT: Takes = Takes::Fields(SLOT_FIELDS);

pub(super) const QUERY: &[(&str, &str)] = &[
    ("action", "save, restore or erase"),
    ("model", "Its name; the first one is meant where none is given"),
];

/// In which slots replies are being made. What they say is nobody else's.
pub(super) async fn slots(Ready(models): Ready, uri: Uri) -> Result<Json<Value>> {
    let app = models.there(model_of(&uri).as_deref())?;
    let busy = app.metrics.slots.load(Ordering::Relaxed);
    let n_ctx = app.model.cache.capacity;
    let slot = |id: usize| json!({ "id": id, "n_ctx": n_ctx, "is_processing": busy >> id.min(63) & 1 == 1 });
    Ok(Json((0..app.model.n_slots()).map(slot).collect()))
}

/// What rests in a slot is saved, had back or forgotten.
pub(super) async fn act(
    Ready(models): Ready,
    asker: Asker,
    Path(id): Path<String>,
    uri: Uri,
    AnyBody(body): AnyBody,
) -> Result<Json<Value>> {
    let (filename, named, notes) = match body {
        Some(body) => {
            let text = |body: &JsonBody, name| body.text(name).map(|text| text.map(str::to_owned));
            let read = move |body: &JsonBody| Ok((text(body, "filename")?, text(body, "model")?));
            let Converted { value: (filename, named), notes, .. } = body.read(SLOT, read).await?;
            (filename, named, notes)
        }
        None => (None, None, Notes::default()),
    };
    let slot: usize = id.parse().map_err(|_| {
        ApiError::invalid(format!("expected the number of a slot, found {}", brief_text(&id)))
    })?;
    let name = || {
        let name = filename.as_deref().unwrap_or_default();
        let expected = || {
            ApiError::field(
                "filename",
                "expected 1 to 64 letters, digits, '.', '_' and '-', no '.' first",
            )
        };
        is_kept_name(name).then(|| name.to_owned()).ok_or_else(expected)
    };
    let asked = asked_of(&uri, "action").unwrap_or_default();
    let action = match &*asked {
        "save" => SlotAction::Save(name()?),
        "restore" => SlotAction::Restore(name()?),
        "erase" => SlotAction::Erase,
        other => {
            let told =
                format!("action: expected save, restore or erase, found {}", brief_text(other));
            return Err(ApiError::invalid(told));
        }
    };
    let model = named.or_else(|| model_of(&uri));
    let app = models.serving(model.as_deref(), Some(&asker.record)).await?;
    asker.record.asked(&app.model.name);
    let (worker, key) = (app.writer()?, asker.key);
    if app.model.model.kept(KeptPlace::Saved).is_none() {
        let told = "this server does not save slots: start it with --slot-save-path DIR";
        return Err(ApiError::not_supported(told));
    }
    let broke = |_| ApiError::internal("the slot's work was not finished");
    if let SlotAction::Restore(name) = &action {
        // what rests in the slot does not go for what is not there
        let (served, name) = (Arc::clone(&app.model), name.clone());
        let look = move || {
            let cache = CacheOptions { scope: key.scope(), ..served.cache };
            engine::find_saved((&served.model, &cache), &name, key.owner()).map(drop)
        };
        let found = tokio::task::spawn_blocking(look).await;
        let found = found.map_err(|_| ApiError::internal("looking for it broke off"))?;
        found.map_err(|error| slot_error(slot, &error))?;
    }
    let cancel = CancelOnDrop::default();
    let (reply, done) = oneshot::channel();
    let cancelled = Arc::clone(cancel.flag());
    worker.with_slot(SlotJob { slot, action: action.clone(), key, cancel: cancelled, reply })?;
    let done = done.await.map_err(broke)??;
    let ms = done.time.as_secs_f64() * 1e3;
    let mut done = match action {
        SlotAction::Save(name) => json!({
            "id_slot": slot,
            "filename": name,
            "n_saved": done.tokens,
            "n_written": done.bytes,
            "timings": { "save_ms": ms },
        }),
        SlotAction::Restore(name) => json!({
            "id_slot": slot,
            "filename": name,
            "n_restored": done.tokens,
            "n_read": done.bytes,
            "timings": { "restore_ms": ms },
        }),
        SlotAction::Erase => json!({ "id_slot": slot, "n_erased": done.tokens }),
    };
    warned(&mut done, &notes);
    Ok(Json(done))
}
