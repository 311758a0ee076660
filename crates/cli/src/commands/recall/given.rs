//! `--given`: the blocks that hold an answer are read whatever is chosen, so that faults of the choice and of what comes behind
//! it are told apart.

use std::ops::Range;

use engine::{RecallKind, RecallQuestion};
use program::{CacheOptions, ContextMemory, GivenBlocks, KvPolicy};

use super::{Asker, made};
use crate::exit::Failure;

/// The memory of a policy that chooses blocks, which can be given some.
pub(super) fn memory(policy: &KvPolicy) -> Result<ContextMemory, Failure> {
    let memory = match policy {
        KvPolicy::Memory(memory) if memory.n_blocks > 0 => *memory,
        _ => {
            let problem = "--given needs a --kv-policy that chooses blocks: infllm or quest";
            return Err(Failure::Usage(problem.into()));
        }
    };
    // all of them are looked at: a group that nobody looks at could hold what is given
    Ok(ContextMemory { n_supers: 0, ..memory })
}

/// The cache for a question: the blocks where its answer stands are chosen before others.
///
/// # Errors
/// Where the answer stands nowhere, or in more blocks than are chosen.
pub(super) fn cache(
    asker: &Asker,
    cache: CacheOptions,
    kind: RecallKind,
    question: &RecallQuestion,
) -> anyhow::Result<CacheOptions> {
    let memory = memory(&cache.policy)?;
    let places = question.places().ok_or_else(|| {
        let problem =
            format!("--given: what {} asks for stands nowhere: leave it out", kind.name());
        Failure::Usage(problem)
    })?;
    let size = memory.block;
    let mut blocks = Vec::new();
    for place in &places {
        let Range { start, end } = positions(asker, &question.message, place)?;
        blocks.extend(start as u32 / size..=end.saturating_sub(1).max(start) as u32 / size);
    }
    let given = GivenBlocks::new(blocks.iter().copied());
    let memory = ContextMemory { given, ..memory };
    if given.is_none() || memory.check().is_err() {
        blocks.dedup();
        return Err(Failure::Usage(format!(
            "--given: an answer of {} stands in {} blocks, and {} are chosen: --kv-blocks {} reads as many",
            kind.name(),
            blocks.len(),
            memory.n_blocks,
            blocks.len()
        ))
        .into());
    }
    Ok(CacheOptions { policy: KvPolicy::Memory(memory), ..cache })
}

/// The tokens of the prompt that hold a place of its message, and the one before them.
fn positions(asker: &Asker, message: &str, place: &Range<usize>) -> engine::Result<Range<usize>> {
    let prompt = |message: &str| asker.prompt(&[engine::Message::new("user", message)]);
    // behind the message stands the same in every prompt
    let (one, other) = (prompt("a")?, prompt("b")?);
    let behind = one.iter().rev().zip(other.iter().rev()).take_while(|(a, b)| a == b).count();
    let until = |end: usize| made::tokens(asker, &message[..end]).map(|n| n.saturating_sub(behind));
    Ok(until(place.start)?.saturating_sub(1)..until(place.end)?)
}
