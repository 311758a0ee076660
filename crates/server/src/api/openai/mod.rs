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
pub(super) use request::{prompts, texts_of};

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
            ("n_predict", Field::Honoured),
            ("n", Field::Honoured),
            ("n_probs", Field::Honoured),
            ("seed", Field::Honoured),
            ("stop", Field::Honoured),
            ("stop_token_ids", Field::Honoured),
            ("n_indent", Field::Honoured),
            ("t_max_predict_ms", Field::Honoured),
            ("dry_sequence_breakers", Field::Honoured),
            ("logit_bias", Field::Honoured),
            ("response_format", Field::Honoured),
            ("json_schema", Field::Honoured),
            ("grammar", Field::Honoured),
            ("structured_outputs", Field::Honoured),
            ("guided_json", Field::Honoured),
            ("guided_regex", Field::Honoured),
            ("guided_choice", Field::Honoured),
            ("guided_grammar", Field::Honoured),
            ("guided_decoding_backend", Field::NoEffect("forms are kept to whatever compiles them")),
            ("ignore_eos", Field::Honoured),
            ("user", Field::NoEffect(super::KEPT_ELSEWHERE)),
            ("store", Field::Ignored("replies are not stored")),
            ("metadata", Field::NoEffect(super::KEPT_ELSEWHERE)),
            ("service_tier", Field::NoEffect(super::KEPT_ELSEWHERE)),
            ("safety_identifier", Field::NoEffect(super::KEPT_ELSEWHERE)),
            ("prompt_cache_key", Field::NoEffect(super::ALWAYS)),
            ("prompt_cache_retention", Field::NoEffect(super::ALWAYS)),
            ("prompt_cache_options", Field::NoEffect(super::ALWAYS)),
            ("prediction", Field::NoEffect(super::DRAFTED)),
            ("samplers", Field::Honoured),
            ("session_id", Field::NoEffect(super::KEPT_ELSEWHERE)),
            ("user_id", Field::NoEffect(super::KEPT_ELSEWHERE)),
            ("provider", Field::NoEffect("this server is the only provider")),
            ("cache_control", Field::NoEffect(super::ALWAYS)),
            ("cache_prompt", Field::Fixed(&["true"])),
            ("id_slot", Field::Ignored(crate::api::SLOT_BY_CONTENT)),
            ("skip_special_tokens", Field::Fixed(&["true"])),
            ("keep_alive", Field::Ignored("models stay loaded as `rooflight serve --keepalive` says")),
            ("timings_per_token", Field::Honoured),
            $($more),*
        ]
    };
}
use common_fields;
