//! Checks whether a model fits in free memory.

use std::collections::BTreeMap;

use anyhow::Context as _;
use executors::GpuFacts;
use program::{CacheOptions, CacheType, Executor, MemoryNeeds, MemoryOptions, Program};

use crate::Error;
pub use crate::machine::memory::{OVERHEAD, available};
use crate::units;

/// Assumed workspace of a pass if no executor reports it, in bytes.
pub const PASS: u64 = 50 << 20;

/// Returns the memory that `executor` needs for `program` and one session with a full cache.
///
/// # Errors
/// If the executor does not support the program.
pub fn needs(
    executor: &dyn Executor,
    program: &Program,
    cache: &CacheOptions,
    chunk: usize,
) -> program::Result<MemoryNeeds> {
    executor.memory(program, &MemoryOptions { cache: *cache, sessions: 1, chunk })
}

/// Returns the memory that a model needs with the given cache options.
pub type Count<'a> = dyn Fn(&CacheOptions) -> program::Result<MemoryNeeds> + 'a;

/// Returns the free machine memory for a model, in bytes, if the system reports it.
///
/// Returns `None` if the whole model is on a GPU with its own memory: no API reports what is free there, and allocation fails
/// if it is not enough. If the processor runs some of the layers, the machine's memory counts.
pub fn free(gpu: Option<&GpuFacts>) -> Option<u64> {
    available().filter(|_| gpu.is_none_or(|gpu| gpu.shares_memory || gpu.beside.is_some()))
}

/// Returns whether a model fits in `available` bytes. Unknown free memory counts as enough.
pub fn fits(needs: &MemoryNeeds, available: Option<u64>) -> bool {
    available.is_none_or(|available| needs.here().saturating_add(OVERHEAD) <= available)
}

/// Command line options that quantize keys and values.
pub const SHRINK: &str = "-ctk q8_0 -ctv q8_0";

/// Returns whether [`SHRINK`] makes the cache smaller. It does not for recurrent states, or if the executor uses other types.
pub fn shrinks(count: &Count<'_>, cache: &CacheOptions) -> bool {
    let bytes = |cache: &CacheOptions| count(cache).map(|needs| needs.bounded_cache);
    let fewer = CacheOptions { k: CacheType::Q8_0, v: CacheType::Q8_0, ..*cache };
    matches!((bytes(&fewer), bytes(cache)), (Ok(fewer), Ok(bytes)) if fewer < bytes)
}

/// Returns the longest context below the requested one whose needs fit in `room` bytes, in steps of 256 positions; 0 if there
/// is none.
pub fn longest_context(count: &Count<'_>, cache: &CacheOptions, room: u64) -> usize {
    longest(cache.capacity, |capacity| {
        let cache = CacheOptions { capacity, ..*cache };
        count(&cache).is_ok_and(|needs| needs.here() <= room)
    })
}

/// Returns the longest context below `capacity` for which `fits` returns true, in steps of 256 positions; 0 if there is none.
pub fn longest(capacity: usize, fits: impl Fn(usize) -> bool) -> usize {
    // `too_many` is the least number of steps that does not fit
    let (mut fit, mut too_many) = (0, capacity.div_ceil(CONTEXT_STEP));
    while fit + 1 < too_many {
        let middle = fit + (too_many - fit) / 2;
        if fits(middle * CONTEXT_STEP) { fit = middle } else { too_many = middle }
    }
    fit * CONTEXT_STEP
}

/// Finds the longest contexts that several sizes of memory hold. What it has counted serves the next search, and it guesses that
/// memory grows evenly with the context: counting may take long.
pub struct LongestContexts<'a> {
    /// Bytes of memory with a context of so many positions.
    bytes: &'a dyn Fn(usize) -> u64,
    /// Steps of 256 positions that are searched, and the bytes of those that were counted.
    most: usize,
    known: BTreeMap<usize, u64>,
}

impl<'a> LongestContexts<'a> {
    /// Searches contexts below `capacity` positions. `bytes` must not fall as the context grows.
    pub fn new(capacity: usize, bytes: &'a dyn Fn(usize) -> u64) -> LongestContexts<'a> {
        LongestContexts { bytes, most: capacity.div_ceil(CONTEXT_STEP), known: BTreeMap::new() }
    }

    /// Returns the longest context that fits in `room` bytes, as [`longest`] does.
    pub fn within(&mut self, room: u64) -> usize {
        if self.most > 1 {
            self.count(1);
            self.count(self.most - 1);
        }
        let (mut fit, mut too_many) = (0, self.most);
        for (&steps, &bytes) in &self.known {
            match bytes <= room {
                true => fit = fit.max(steps),
                false => too_many = too_many.min(steps),
            }
        }
        let mut tries = 0;
        while fit + 1 < too_many {
            let halfway = fit + (too_many - fit) / 2;
            // a curve is halved now and then
            let steps = match (self.known.get(&fit), self.known.get(&too_many)) {
                (Some(&a), Some(&b)) if tries % 3 < 2 && a < b => {
                    let part = (room - a) as f64 / (b - a) as f64;
                    let guess = fit + (part * (too_many - fit) as f64) as usize;
                    guess.clamp(fit + 1, too_many - 1)
                }
                _ => halfway,
            };
            tries += 1;
            if self.count(steps) <= room { fit = steps } else { too_many = steps }
        }
        fit * CONTEXT_STEP
    }

    fn count(&mut self, steps: usize) -> u64 {
        *self.known.entry(steps).or_insert_with(|| (self.bytes)(steps * CONTEXT_STEP))
    }
}

/// Step of advised contexts, in positions.
const CONTEXT_STEP: usize = 256;

/// Limits that a model must fit in.
#[derive(Clone, Copy, Debug)]
pub struct Room {
    /// Free memory in bytes, if the system reports it.
    pub available: Option<u64>,
    /// Context that the model was trained for, in tokens. No longer context is advised.
    pub trained: usize,
}

/// Checks that a model fits in memory, and returns the memory that it needs.
///
/// # Errors
/// [`Error::DoesNotFit`] with advice on what to change; errors of the executor if it does not support the program.
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

    /// Returns the advice for a model whose cache takes 1024 bytes per position.
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

    /// Every search finds what halving finds, and counts few contexts where memory grows evenly.
    #[test]
    fn several_searches_count_few_contexts() {
        let even = |n: usize| 5_000_000 + 1000 * n as u64;
        let curved = |n: usize| (n as u64 / 300).pow(2) + n as u64 / 7;
        let steps = |n: usize| 1 << (n / 4000).min(40);
        let shapes: [&dyn Fn(usize) -> u64; 4] = [&even, &curved, &steps, &|_| 9];
        for (i, bytes) in shapes.into_iter().enumerate() {
            for capacity in [0, 1, 256, 257, 4096, 1 << 20] {
                let counted = std::cell::Cell::new(0);
                let count = |n: usize| {
                    counted.set(counted.get() + 1);
                    bytes(n)
                };
                let mut contexts = LongestContexts::new(capacity, &count);
                let rooms = [0, 8, 9, 5_000_000, 5_300_000, 90_000_000, 400_000_000, u64::MAX];
                for room in rooms {
                    let want = longest(capacity, |n| bytes(n) <= room);
                    assert_eq!(contexts.within(room), want, "shape {i}, {capacity}, {room}");
                }
                assert!(i > 0 || counted.get() <= 3 * rooms.len(), "{}", counted.get());
            }
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
