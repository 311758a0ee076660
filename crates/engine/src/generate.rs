//! One reply, with nobody beside it.

use crate::{Event, Generated, Request, Result, Sampler, Session, Turn, Vocabulary};

/// Generate a reply to `request.prompt` in `session`, reporting to `on_event` as it goes.
///
/// # Errors
/// An empty prompt or one that does not fit, non-finite logits, or a failure of the model. The session then holds what
/// was computed before.
pub fn generate(
    session: &mut Session,
    sampler: &mut Sampler,
    vocabulary: &dyn Vocabulary,
    request: &Request<'_>,
    on_event: &mut dyn FnMut(Event<'_>),
) -> Result<Generated> {
    Turn::new(session, sampler, vocabulary, request).alone(on_event)
}
