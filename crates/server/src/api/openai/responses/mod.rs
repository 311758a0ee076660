//! `/v1/responses`: OpenAI's newer API, of which nothing is kept between requests.

mod reply;
mod request;

use axum::Json;
use axum::response::{IntoResponse, Response};
use engine::SamplerOptions;

use crate::Ready;
use crate::api::stream::stream;
use crate::body::{Converted, Footprint, JsonBody, RequestBody, map_bytes};
use crate::error::{ApiError, Result};
use crate::models::ModelField;
use crate::offers::ModelAbout;
use crate::record::Asker;
use reply::ResponsesReply;
use request::ResponsesRequest;
pub(super) use request::TAKES;

/// Reason why fields about stored responses have no effect, and what to do instead.
const NOT_STORED: &str = "responses are not stored: send the whole conversation in `input`";

pub(super) async fn responses(
    Ready(models): Ready,
    asker: Asker,
    body: RequestBody,
) -> Result<Response> {
    let read = |body: &JsonBody, _: &ModelAbout, sampler: &SamplerOptions| {
        ResponsesRequest::read(body, sampler)
    };
    let name: ModelField = |body| body.text("model");
    let (app, request) = models.serving_for(body, TAKES, name, read).await?;
    let Converted { value, mut claim, notes } = request;
    let ResponsesRequest { asked, stream: streams, echo } = value;
    // what the response repeats stays until it is sent, and is copied into it
    let repeated = 2 * map_bytes(&echo);
    let mut held = claim.reservation.another();
    claim.reservation.shrink_to(asked.footprint());
    held.grow(repeated)?;
    let pending = app.reply(Converted { value: asked, claim, notes }, &asker).await?;
    let reply =
        ResponsesReply::new(app.model.source(&asker.record), (echo, held), pending.notes.clone());
    if streams {
        return Ok(stream(pending, reply));
    }
    let whole = pending.whole().await?;
    let one = whole.first().ok_or_else(|| ApiError::internal("there is no reply"))?;
    Ok(Json(reply.whole(one)).into_response())
}
