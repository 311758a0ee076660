//! Makes the result of a turn from its parts.

use super::Lent;
use crate::text::ReplyText;
use crate::{Drafters, Generated, Result, Sampler, Stats, StopReason};

/// Returns the result of a turn that ended with `stop`.
pub(super) fn generated(
    (sampler, drafters): (Lent<'_, Sampler>, Option<Lent<'_, Drafters>>),
    (reply, tokens, mut stats): (ReplyText, Vec<u32>, Stats),
    stop: Result<StopReason>,
) -> Result<Generated> {
    if let Some(drafters) = &drafters {
        stats.drafts = drafters.stats();
    }
    let start = stats.prompt_tokens;
    let logprobs = sampler.logprobs(start..start + tokens.len()).cloned().collect();
    let reply = reply.finish();
    stop.map(|stop| Generated {
        tokens,
        logprobs,
        text: reply.text,
        thoughts: reply.thoughts,
        calls: reply.calls,
        message: reply.message,
        raw: reply.raw,
        kept_tokens: reply.kept_tokens,
        kept_bytes: reply.kept_bytes,
        stop,
        stats,
    })
}
