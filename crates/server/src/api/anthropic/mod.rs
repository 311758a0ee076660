//! Anthropic's API: messages.

mod conversation;
mod messages;
mod reply;

use super::Endpoints;

pub(super) fn routes(endpoints: Endpoints) -> Endpoints {
    let (messages, count) = (messages::MESSAGED, messages::COUNTED);
    endpoints
        .post(
            "/v1/messages",
            "A reply to messages, as Anthropic's API has it",
            messages,
            messages::messages,
        )
        .post("/v1/messages/count_tokens", "Tokens of messages", count, messages::count_tokens)
}
