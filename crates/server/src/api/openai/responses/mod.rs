//! `/v1/responses`: OpenAI's newer API, of which nothing is kept between requests.

mod reply;
mod request;

use axum::Json;
use axum::response::{IntoResponse, Response};
use engine::SamplerOptions;

use crate::Ready;
use crate::api::stream::stream;
use crate::body::JsonBody;
use crate::error::{ApiError, Result};
use crate::offers::ModelAbout;
use crate::record::Asker;
use reply::ResponsesReply;
pub(super) use request::FIELDS;
use request::ResponsesRequest;

pub(super) async fn responses(
    Ready(models): Ready,
    asker: Asker,
    body: JsonBody,
) -> Result<Response> {
    let read = |_: &ModelAbout, sampler: &SamplerOptions| ResponsesRequest::read(&body, sampler);
    let (app, request) = models.serving_for(body.text("model")?, read).await?;
    let pending = app.reply(request.asked, &asker).await?;
    let reply = ResponsesReply::new(app.model.source(), request.echo, pending.notes.clone());
    if request.stream {
        return Ok(stream(pending, reply));
    }
    let whole = pending.whole().await?;
    let one = whole.first().ok_or_else(|| ApiError::internal("there is no reply"))?;
    Ok(Json(reply.whole(one)).into_response())
}
