//! How much memory is free, and whether a model fits.

use anyhow::Context as _;
use executors::GpuFacts;
use program::{CacheOptions, CacheType, Executor, MemoryNeeds, MemoryOptions, Program};

use crate::Error;
pub use crate::machine::memory::{OVERHEAD, available};
use crate::units;

/// Workspace of a pass, where no executor tells it.
pub const PASS: u64 = 50 << 20;

/// What `executor` needs for one session of `program`, its cache full.
///
/// # Errors
/// What the executor does not support.
pub fn needs(
    executor: &dyn Executor,
    program: &Program,
    cache: &CacheOptions,
    chunk: usize,
) -> program::Result<MemoryNeeds> {
    executor.memory(program, &MemoryOptions { cache: *cache, sessions: 1, chunk })
}

/// Counts what is needed with a cache like this.
pub type Count<'a> = dyn Fn(&CacheOptions) -> program::Result<MemoryNeeds> + 'a;

/// Free memory where a model runs, if that can be told: how much a card has, no API says, and what it lacks is told when it
/// is asked for. Where the processor runs layers beside it, those are.
pub fn free(gpu: Option<&GpuFacts>) -> Option<u64> {
    available().filter(|_| gpu.is_none_or(|gpu| gpu.shares_memory || gpu.beside.is_some()))
}

/// Whether so many free bytes are enough; where that cannot be told, they are.
pub fn fits(needs: &MemoryNeeds, available: Option<u64>) -> bool {
    available.is_none_or(|available| needs.here().saturating_add(OVERHEAD) <= available)
}

/// The options of keys and values of fewer bits.
pub const SHRINK: &str = "-ctk q8_0 -ctv q8_0";

/// Whether [`SHRINK`] would make the cache smaller: not of states alone, nor where an executor keeps other types.
pub fn shrinks(count: &Count<'_>, cache: &CacheOptions) -> bool {
    let bytes = |cache: &CacheOptions| count(cache).map(|needs| needs.bounded_cache);
    let fewer = CacheOptions { k: CacheType::Q8_0, v: CacheType::Q8_0, ..*cache };
    matches!((bytes(&fewer), bytes(cache)), (Ok(fewer), Ok(bytes)) if fewer < bytes)
}

/// The most positions, in steps of 256 and below the capacity asked for, whose needs find `room`; 0 if none do.
pub fn longest_context(count: &Count<'_>, cache: &CacheOptions, room: u64) -> usize {
    longest(cache.capacity, |capacity| {
        let cache = CacheOptions { capacity, ..*cache };
        count(&cache).is_ok_and(|needs| needs.here() <= room)
    })
}

/// The most positions, in steps of 256 and below `capacity`, that fit; 0 if none do.
pub fn longest(capacity: usize, fits: impl Fn(usize) -> bool) -> usize {
    // least number of steps that is too many
    let (mut fit, mut too_many) = (0, capacity.div_ceil(CONTEXT_STEP));
    while fit + 1 < too_many {
        let middle = fit + (too_many - fit) / 2;
        if fits(middle * CONTEXT_STEP) { fit = middle } else { too_many = middle }
    }
    fit * CONTEXT_STEP
}

/// Contexts are advised in steps of so many positions.
const CONTEXT_STEP: usize = 256;

/// Where a model is to find its place.
#[derive(Clone, Copy, Debug)]
pub struct Room {
    /// Free bytes, if that can be told.
    pub available: Option<u64>,
    /// Tokens the model was made for: no more are advised.
    pub trained: usize,
}

/// Refuse a model that would not fit, saying what to change; say what it needs if it does.
///
/// # Errors
/// [`Error::DoesNotFit`]; what the executor does not support.
pub fn check_fit(
    count: &Count<'_>,
    cache: &CacheOptions,
    room: Room,
) -> anyhow::Result<MemoryNeeds> {
    let needs = count(cache).context("counting the memory it needs")?;
    if fits(&needs, room.available) {
        return Ok(needs);
    }
    let available = room.available.unwrap_or(u64::MAX);
    let wanted = needs.here().saturating_add(OVERHEAD);
    let free = available.saturating_sub(OVERHEAD);
    let longest = longest_context(count, cache, free).min(room.trained);
    let advice = match longest {
        0 => "the weights alone do not fit: take a smaller model or a smaller quantization"
            .to_owned(),
        longest if longest == room.trained => {
            format!("try -c {longest}: the model was made for no more")
        }
        longest if shrinks(count, cache) => {
            format!("try -c {longest}, or {SHRINK}")
        }
        longest => format!("try -c {longest}"),
    };
    let need = format!(
        "{} (weights {}, cache {} for {} tokens, workspace {}{})",
        units::bytes(wanted),
        units::bytes(needs.weights),
        units::bytes(needs.cache),
        cache.capacity,
        units::bytes(needs.work),
        match needs.on_card {
            0 => String::new(),
            bytes => format!("; {} of these on the card", units::bytes(bytes)),
        },
    );
    let missing = wanted - available;
    Err(Error::DoesNotFit { need, available: units::bytes(available), missing, advice }.into())
}

#[cfg(test)]
mod tests {
    use conformance::{tiny_config, tiny_model};
    use executors::ExecutorOptions;
    use program::CacheType;

    use super::*;

    /// Of a model whose cache takes 1024 bytes a position.
    fn advice(available: u64, trained: usize) -> Option<String> {
        let program = tiny_model(&tiny_config("qwen2", 256, true), quant::GgmlType::Q8_0);
        let cpu = ExecutorOptions { threads: Some(1), ..Default::default() }.cpu();
        let cache = CacheOptions::new(CacheType::F16, CacheType::F16, 1 << 20);
        let count = |cache: &CacheOptions| needs(&cpu, &program, cache, 64);
        match check_fit(&count, &cache, Room { available: Some(available), trained }) {
            Ok(needs) => {
                assert_eq!(needs.cache, program.cache_bytes(1 << 20, &cache));
                None
            }
            Err(error) => match error.downcast() {
                Ok(Error::DoesNotFit { advice, missing, .. }) => {
                    let enough = Room { available: Some(available + missing), trained };
                    assert!(check_fit(&count, &cache, enough).is_ok(), "{missing}");
                    Some(advice)
                }
                other => panic!("{other:?}"),
            },
        }
    }

    #[test]
    fn what_fits_passes_and_what_does_not_says_what_to_change() {
        assert_eq!(advice(5 << 30, 1 << 20), None);
        let shorter =
            advice(OVERHEAD + (512 << 20), 1 << 20).expect("a gigabyte of cache does not fit");
        assert!(shorter.ends_with(SHRINK), "{shorter}");
        let digits = shorter.split_once("-c ").and_then(|(_, rest)| rest.split(',').next());
        let context: u64 = digits.and_then(|n| n.parse().ok()).expect("a context is advised");
        assert!(context.is_multiple_of(256) && (400_000..524_288).contains(&context), "{shorter}");
        assert!(advice(100 << 20, 1 << 20).unwrap().contains("smaller"));
        let trained = advice(OVERHEAD + (512 << 20), 2048).unwrap();
        assert!(trained.contains("-c 2048:"), "no more than the model was made for: {trained}");
    }
}
