//! Texts with a hole, as models that fill it were taught them: a mark, what stands before, a mark, what stands behind, a mark.

use tokenizer::Tokenizer;

use crate::error::{ApiError, Result};

/// Families' marks: before what stands before the hole, before what stands behind it, before what fills it.
const MARKS: [[&str; 3]; 7] = [
    ["<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"],
    ["<fim_prefix>", "<fim_suffix>", "<fim_middle>"],
    ["<fim-prefix>", "<fim-suffix>", "<fim-middle>"],
    ["<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"],
    ["▁<PRE>", "▁<SUF>", "▁<MID>"],
    ["<PRE>", "<SUF>", "<MID>"],
    ["<|code_prefix|>", "<|code_suffix|>", "<|code_middle|>"],
];

/// The tokens of a text with a hole.
///
/// # Errors
/// A vocabulary without such marks, a text that cannot be encoded.
pub(super) fn tokens(tokenizer: &Tokenizer, before: &str, behind: &str) -> Result<Vec<u32>> {
    let [prefix, suffix, middle] = marks(tokenizer).ok_or_else(|| {
        let problem =
            "the model was not taught to fill holes: its vocabulary has no marks for them";
        ApiError::field("suffix", problem)
    })?;
    let encode = |text: &str| tokenizer.encode(text).map_err(engine::Error::from);
    let mut tokens: Vec<u32> =
        tokenizer.bos().filter(|_| tokenizer.adds_bos()).into_iter().collect();
    tokens.push(prefix);
    tokens.extend(encode(before)?);
    tokens.push(suffix);
    tokens.extend(encode(behind)?);
    tokens.push(middle);
    Ok(tokens)
}

/// The marks of the family of which all are there.
fn marks(tokenizer: &Tokenizer) -> Option<[u32; 3]> {
    let n = u32::try_from(tokenizer.vocab_size()).ok()?;
    let mut found = [[None; 3]; MARKS.len()];
    for id in 0..n {
        // a mark is no text
        let Some(text) = tokenizer.token_text(id).filter(|text| text.contains(['<'])) else {
            continue;
        };
        for (found, marks) in found.iter_mut().zip(MARKS) {
            if let Some(at) = marks.iter().position(|mark| *mark == text) {
                found[at] = Some(id);
            }
        }
    }
    found.into_iter().find_map(|[prefix, suffix, middle]| Some([prefix?, suffix?, middle?]))
}
