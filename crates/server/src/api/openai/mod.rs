//! OpenAI's API: chats, texts, models.

mod chat;
mod embeddings;
mod models;
mod reply;
mod request;
mod responses;

use super::Endpoints;

pub use reply::OpenAiReply;
pub use request::{OpenAiEndpoint, OpenAiRequest};
pub(super) use request::{prompts_of, texts_of};

/// Replies to one request.
const MOST_CHOICES: usize = 8;

pub(super) fn routes(endpoints: Endpoints) -> Endpoints {
    let (rerank, vectors) = (embeddings::RERANKED, embeddings::EMBEDDED);
    endpoints
        .post(
            "/v1/chat/completions",
            "Replies to messages",
            OpenAiEndpoint::Chat.takes(),
            chat::chat,
        )
        .post(
            "/v1/completions",
            "Texts that go on",
            OpenAiEndpoint::Texts.takes(),
            chat::completions,
        )
        .post(
            "/v1/responses",
            "A reply to items: OpenAI's newer API",
            responses::TAKES,
            responses::responses,
        )
        .post("/v1/embeddings", "Vectors of texts", vectors, embeddings::embeddings)
        .post("/v1/rerank", "How well texts answer a question", rerank, embeddings::rerank)
        .post("/rerank", "The same as /v1/rerank", rerank, embeddings::rerank)
        .get("/v1/models", "The models that are served", models::list)
        .get("/v1/models/{*id}", "One of them", models::one)
}

const KEPT_ELSEWHERE: &str = "nothing is kept or billed here";
const ALWAYS: &str = "it is so anyway";
const DRAFTED: &str = "what is likely is guessed ahead anyway, and a reply is the same without";

/// Fields of chats and texts alike.
macro_rules! common_fields {
    ($($more:expr),* $(,)?) => {
        &[
            ("model", Field::Honoured),
            ("stream", Field::Honoured),
            ("stream_options", Field::Honoured),
            ("return_progress", Field::Honoured),
            ("max_tokens", Field::Honoured),
            ("n", Field::Honoured),
            ("seed", Field::Honoured),
            ("stop", Field::Honoured),
            ("logit_bias", Field::Honoured),
            ("response_format", Field::Honoured),
            ("json_schema", Field::Honoured),
            ("grammar", Field::Honoured),
            ("ignore_eos", Field::Honoured),
            ("user", Field::NoEffect(super::KEPT_ELSEWHERE)),
            ("store", Field::NoEffect(super::KEPT_ELSEWHERE)),
            ("metadata", Field::NoEffect(super::KEPT_ELSEWHERE)),
            ("service_tier", Field::NoEffect(super::KEPT_ELSEWHERE)),
            ("safety_identifier", Field::NoEffect(super::KEPT_ELSEWHERE)),
            ("prompt_cache_key", Field::NoEffect(super::ALWAYS)),
            ("prompt_cache_retention", Field::NoEffect(super::ALWAYS)),
            ("prompt_cache_options", Field::NoEffect(super::ALWAYS)),
            ("prediction", Field::NoEffect(super::DRAFTED)),
            ("samplers", Field::Honoured),
            ("timings_per_token", Field::Only("false")),
            ("cache_prompt", Field::NoEffect(super::ALWAYS)),
            $($more),*
        ]
    };
}
use common_fields;
