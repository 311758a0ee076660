//! Ollama's `options`: settings of replies, and settings that Rooflight has for the whole server only.

use crate::body::JsonBody;
use crate::error::Result;
use crate::fields::{Field, Takes};
use crate::offers::ModelAbout;

const IN_MEMORY: &str = "the server has the weights in memory of its own";

const OPTIONS: Takes = Takes::Settings(&[
    ("num_predict", Field::Honoured),
    ("num_ctx", Field::Honoured),
    ("seed", Field::Honoured),
    ("stop", Field::Honoured),
    ("stop_token_ids", Field::Honoured),
    ("logit_bias", Field::Honoured),
    ("dry_sequence_breakers", Field::Honoured),
    ("num_keep", Field::NoEffect(crate::api::FORGETS)),
    ("num_batch", Field::Ignored("it is set for the server: `rooflight serve -ub N`")),
    ("num_gpu", Field::Ignored("it is set for the server: `rooflight serve -ngl N`")),
    ("main_gpu", Field::Ignored("it is set for the server: `rooflight serve --adapter NAME`")),
    ("num_thread", Field::Ignored("it is set for the server: `rooflight serve -t N`")),
    ("use_mmap", Field::Ignored(IN_MEMORY)),
    ("use_mlock", Field::Ignored(IN_MEMORY)),
    ("low_vram", Field::Ignored("it is set for the server: `rooflight serve --gpu-memory SIZE`")),
    ("numa", Field::Ignored("the operating system places threads")),
    ("f16_kv", Field::Ignored("it is set for the server: `rooflight serve -ctk TYPE -ctv TYPE`")),
    ("num_gqa", Field::Ignored("the model's file says it")),
    (
        "rope_frequency_base",
        Field::Ignored("it is set for the server: `rooflight serve --rope-freq-base N`"),
    ),
    (
        "rope_frequency_scale",
        Field::Ignored("it is set for the server: `rooflight serve --rope-freq-scale N`"),
    ),
    ("logits_all", Field::Fixed(&["false"])),
    ("vocab_only", Field::Fixed(&["false"])),
    ("embedding_only", Field::Fixed(&["false"])),
    ("penalize_newline", Field::Fixed(&["true"])),
    ("tfs_z", Field::Fixed(&["1", "1.0"])),
]);

/// Returns the `options` of a body, and adds warnings about those that have no effect. A context larger than the loaded one causes
/// only a warning, because clients send it with each request.
///
/// # Errors
/// If a value cannot be read, or if an option has no effect and the server is strict.
pub(super) fn options(body: &JsonBody, about: &ModelAbout) -> Result<JsonBody> {
    const CONTEXT: &str = "num_ctx";
    let options = body.nested("options")?.checked(OPTIONS)?;
    let capacity = about.context;
    let wanted = options.count(CONTEXT, 0, usize::MAX)?;
    if let Some(wanted) = wanted.filter(|wanted| *wanted > capacity) {
        let why = format!(
            "the model is loaded with a context of {capacity} tokens: `rooflight serve -c {wanted}` sets it"
        );
        options.ignored(CONTEXT, &format!("ignored: {why}"), &why)?;
    }
    Ok(options)
}
