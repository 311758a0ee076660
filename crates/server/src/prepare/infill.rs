//! Texts with a hole, as models that fill it were taught them: a mark, what stands before, a mark, what stands behind, a mark;
//! and before all that other files, where they were taught repositories.

use tokenizer::Tokenizer;

use crate::error::{ApiError, Result};
use crate::request::{Hole, NamedText};

/// How repository and files are called that have no name.
const REPOSITORY: &str = "project";
const FILE: &str = "file";
/// What stands before another text where there is no mark for it.
const SNIPPET: &str = "\n\n--- snippet ---\n\n";

/// The tokens of a text with a hole.
///
/// # Errors
/// A vocabulary without such marks, a text that cannot be encoded.
pub(super) fn tokens(tokenizer: &Tokenizer, hole: &Hole) -> Result<Vec<u32>> {
    let marks = tokenizer.infill().ok_or_else(|| {
        let problem =
            "the model was not taught to fill holes: its vocabulary has no marks for them";
        ApiError::field("suffix", problem)
    })?;
    let Hole { before, behind, begun, others } = hole;
    let mut tokens: Vec<u32> =
        tokenizer.bos().filter(|_| tokenizer.adds_bos()).into_iter().collect();
    let mut put = |mark: Option<u32>, text: &str| -> Result<()> {
        tokens.extend(mark);
        tokens.extend(tokenizer.encode(text).map_err(engine::Error::from)?);
        Ok(())
    };
    if !others.is_empty() {
        if marks.repository.is_some() {
            put(marks.repository, &format!("{REPOSITORY}\n"))?;
        }
        for NamedText { name, text } in others {
            let name = if name.is_empty() { FILE } else { name };
            match marks.file {
                Some(_) => put(marks.file, &format!("{name}\n{text}"))?,
                None => put(None, &format!("{SNIPPET}{text}"))?,
            }
        }
        if marks.file.is_some() {
            put(marks.file, &format!("{FILE}\n"))?;
        }
    }
    put(Some(marks.prefix), &format!("{before}{begun}"))?;
    put(Some(marks.suffix), behind)?;
    put(Some(marks.middle), "")?;
    Ok(tokens)
}
