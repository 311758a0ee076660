//! Texts with a hole, as models that fill it were taught them: a mark, what stands before, a mark, what stands behind, a mark;
//! and before all that other files, where they were taught repositories.

use tokenizer::{InfillMarks, Tokenizer};

use crate::error::{ApiError, Result};
use crate::request::{Hole, NamedText};

/// How repository and files are called that have no name.
const REPOSITORY: &str = "project";
const FILE: &str = "file";
/// What stands before another text where there is no mark for it.
const SNIPPET: &str = "\n\n--- snippet ---\n\n";

/// The tokens of a text with a hole, at most `room` where it may be cut, and what was left out then.
///
/// # Errors
/// A vocabulary without such marks, a text that cannot be encoded.
pub(super) fn tokens(
    tokenizer: &Tokenizer,
    hole: &Hole,
    room: usize,
) -> Result<(Vec<u32>, Option<String>)> {
    let marks = tokenizer.infill().ok_or_else(|| {
        let problem =
            "the model was not taught to fill holes: its vocabulary has no marks for them";
        // OpenAI's and Ollama's APIs have a hole only where there is this field
        if hole.cuts { ApiError::invalid(problem) } else { ApiError::field("suffix", problem) }
    })?;
    let encode = |text: &str| tokenizer.encode(text).map_err(engine::Error::from);
    let mut before = encode(&format!("{}{}", hole.before, hole.begun))?;
    let mut behind = encode(&hole.behind)?;
    let mut tokens: Vec<u32> =
        tokenizer.bos().filter(|_| tokenizer.adds_bos()).into_iter().collect();
    let room = if hole.cuts { room.saturating_sub(tokens.len() + 3) } else { usize::MAX };
    let cut = keep_near(&mut before, &mut behind, room);
    let others = others(tokenizer, &marks, &hole.others)?;
    let room = room - before.len() - behind.len();
    let (others, dropped) = keep_last(others, room);
    tokens.extend(others);
    tokens.push(marks.prefix);
    tokens.append(&mut before);
    tokens.push(marks.suffix);
    tokens.append(&mut behind);
    tokens.push(marks.middle);
    let told = || {
        let (far, behind) = cut;
        format!(
            "left out, for the context has no room: {dropped} of the other texts, {far} tokens before and {behind} behind what is near the hole"
        )
    };
    Ok((tokens, (dropped > 0 || cut != (0, 0)).then(told)))
}

/// Leave so many tokens in all: the end of what stands before the hole, and the beginning of what stands behind it, a quarter
/// unless the other takes less. How many of both go.
fn keep_near(before: &mut Vec<u32>, behind: &mut Vec<u32>, room: usize) -> (usize, usize) {
    let had = (before.len(), behind.len());
    behind.truncate((room / 4).max(room.saturating_sub(before.len())));
    before.drain(..before.len().saturating_sub(room - behind.len()));
    (had.0 - before.len(), had.1 - behind.len())
}

/// Texts that stand before all: what opens them, each of them, and what ends them.
struct Others {
    open: Vec<u32>,
    each: Vec<Vec<u32>>,
    close: Vec<u32>,
}

fn others(tokenizer: &Tokenizer, marks: &InfillMarks, texts: &[NamedText]) -> Result<Others> {
    let piece = |mark: Option<u32>, text: &str| -> Result<Vec<u32>> {
        let text = tokenizer.encode(text).map_err(engine::Error::from)?;
        Ok(mark.into_iter().chain(text).collect())
    };
    let marked = |mark: Option<u32>, name: &str| match mark {
        Some(_) => piece(mark, &format!("{name}\n")),
        None => Ok(Vec::new()),
    };
    let one = |NamedText { name, text }: &NamedText| match marks.file {
        Some(_) if name.is_empty() => piece(marks.file, &format!("{FILE}\n{text}")),
        Some(_) => piece(marks.file, &format!("{name}\n{text}")),
        None => piece(None, &format!("{SNIPPET}{text}")),
    };
    Ok(Others {
        open: marked(marks.repository, REPOSITORY)?,
        each: texts.iter().map(one).collect::<Result<_>>()?,
        close: marked(marks.file, FILE)?,
    })
}

/// As many of the last of them as there is room for, and how many go.
fn keep_last(others: Others, room: usize) -> (Vec<u32>, usize) {
    let Others { open, each, close } = others;
    let Some(mut left) = room.checked_sub(open.len() + close.len()) else {
        return (Vec::new(), each.len());
    };
    let fits = |text: &&Vec<u32>| {
        let rest = left.checked_sub(text.len());
        left = rest.unwrap_or(left);
        rest.is_some()
    };
    let kept = each.iter().rev().take_while(fits).count();
    let dropped = each.len() - kept;
    if kept == 0 {
        return (Vec::new(), dropped);
    }
    let texts = each.into_iter().skip(dropped).flatten();
    (open.into_iter().chain(texts).chain(close).collect(), dropped)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_near_stays(before in 0usize..40, behind in 0usize..40, room in 0usize..60) {
            let (mut left, mut right): (Vec<u32>, Vec<u32>) = ((0..before as u32).collect(), (0..behind as u32).collect());
            let cut = keep_near(&mut left, &mut right, room);
            prop_assert_eq!((left.len() + cut.0, right.len() + cut.1), (before, behind));
            // all the room is used, and nothing goes where there is enough
            prop_assert_eq!(left.len() + right.len(), room.min(before + behind));
            prop_assert!(left.iter().rev().eq((0..before as u32).rev().take(left.len()).collect::<Vec<_>>().iter()));
            prop_assert!(right.iter().copied().eq(0..right.len() as u32));
            prop_assert!(cut.1 == 0 || right.len() >= room / 4);
        }

        #[test]
        fn the_last_others_stay(lengths in prop::collection::vec(0usize..9, 0..6), room in 0usize..40) {
            let each: Vec<Vec<u32>> = lengths.iter().zip(10..).map(|(&n, i)| vec![i; n]).collect();
            let others = Others { open: vec![1, 2], each: each.clone(), close: vec![3] };
            let (tokens, dropped) = keep_last(others, room);
            prop_assert!(tokens.len() <= room);
            let kept: Vec<u32> = each[dropped..].iter().flatten().copied().collect();
            let want = if dropped == each.len() { vec![] } else { [&[1, 2][..], &kept, &[3]].concat() };
            prop_assert_eq!(tokens, want);
            let one_more = dropped.checked_sub(1).map(|at| 3 + each[at..].iter().map(Vec::len).sum::<usize>());
            prop_assert!(one_more.is_none_or(|n| n > room));
        }
    }
}
