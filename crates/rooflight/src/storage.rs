//! Limits on the memory of caches: whether a session fits, and what to suggest if it does not.

use executors::ExecutorKind;
use program::{CacheOptions, CacheStorage, Executor, KvPolicy, MemoryNeeds, Program};

use crate::{Error, Result, fit, units};

/// Checks that an executor of this kind can limit the memory of its caches, if a limit is set.
///
/// # Errors
/// [`Error::Options`] for the interpreter with a limit.
pub(crate) fn check_kind(storage: &CacheStorage, kind: ExecutorKind) -> Result<()> {
    if kind == ExecutorKind::Interpreter && storage.memory.is_some() {
        let wrong = "--kv-memory: the interpreter keeps caches as they come";
        return Err(Error::Options(wrong.into()));
    }
    Ok(())
}

/// Returns the smallest limit that works for the caches of a model, in bytes.
pub fn least_bound(storage: &CacheStorage, needs: MemoryNeeds) -> u64 {
    if storage.disk.is_some() { needs.least_cache } else { needs.bounded_cache }
}

/// Checks that the cache of one session fits into the limit.
///
/// # Errors
/// [`Error::Bound`] with the smallest limit that works.
pub fn check(
    storage: &CacheStorage,
    needs: MemoryNeeds,
    cache: &CacheOptions,
    ways: impl Fn(u64) -> WaysOut,
) -> Result<()> {
    let least = least_bound(storage, needs);
    let Some(bound) = storage.memory.filter(|bound| least > *bound) else { return Ok(()) };
    let chooses = storage.disk.is_none() && cache.policy != KvPolicy::Full;
    let disk = Some(needs.least_cache).filter(|with| chooses && *with < least);
    Err(Error::Bound {
        need: format!("{} for {} tokens", units::bytes(least), cache.capacity),
        bound: units::bytes(bound),
        advice: advice(least, ways(bound), disk),
    })
}

/// Alternatives to a larger limit.
#[derive(Clone, Copy, Debug, Default)]
pub struct WaysOut {
    /// Longest context that fits, in tokens; 0 if there is none.
    pub longest: usize,
    /// Whether quantized keys and values would make the cache smaller.
    pub shrinks: bool,
}

/// Formats the advice: a limit of `least` bytes, one of the alternatives in `ways`, or a limit of `disk` bytes with a folder on
/// disk.
pub fn advice(least: u64, ways: WaysOut, disk: Option<u64>) -> String {
    let mut advice = format!("--kv-memory {} is the least that works", size_of(least));
    if ways.longest > 0 {
        advice += &format!(", -c {}", ways.longest);
    }
    if let Some(least) = disk {
        advice += &format!(", --kv-disk DIR with {}", size_of(least));
    }
    if ways.shrinks {
        advice += &format!(", or {}", fit::SHRINK);
    }
    advice
}

/// Formats a size as the command line accepts it, rounded up: in the largest unit in which the number is at least 100.
pub fn size_of(bytes: u64) -> String {
    match bytes {
        0..100_000 => format!("{bytes}B"),
        100_000..100_000_000 => format!("{}kB", bytes.div_ceil(1000)),
        _ => format!("{}MB", bytes.div_ceil(1_000_000)),
    }
}

/// Returns the longest context whose caches fit into `bound` bytes, in steps of 256 positions; 0 if there is none.
pub fn longest(
    storage: &CacheStorage,
    executor: &dyn Executor,
    program: &Program,
    cache: &CacheOptions,
    (chunk, bound): (usize, u64),
) -> usize {
    fit::longest(cache.capacity, |capacity| {
        let cache = CacheOptions { capacity, ..*cache };
        let needs = fit::needs(executor, program, &cache, chunk);
        needs.is_ok_and(|needs| least_bound(storage, needs) <= bound)
    })
}

#[cfg(test)]
mod tests {
    use program::{CacheType, ContextMemory};

    use super::*;

    #[test]
    fn a_bound_that_is_too_small_names_the_least_that_works() {
        // a larger cache stores more checkpoints to return to, which no step needs
        let (cache, bounded_cache) = (500_000_000, 300_000_000);
        let needs = MemoryNeeds { cache, bounded_cache, ..MemoryNeeds::default() };
        let cache = CacheOptions::new(CacheType::F16, CacheType::F16, 8192);
        let ways = |shrinks| move |_| WaysOut { longest: 1024, shrinks };
        let with = |memory| check(&CacheStorage { memory, disk: None }, needs, &cache, ways(true));
        assert!(with(None).is_ok() && with(Some(300_000_000)).is_ok());
        let refused = with(Some(299_999_999)).expect_err("a byte is missing");
        let Error::Bound { need, bound, advice } = refused else { panic!("{refused:?}") };
        assert_eq!((need.as_str(), bound.as_str()), ("300 MB for 8192 tokens", "300 MB"));
        let told = "--kv-memory 300MB is the least that works, -c 1024";
        assert_eq!(advice, format!("{told}, or -ctk q8_0 -ctv q8_0"));
        let args = CacheStorage { memory: Some(1), disk: None };
        let refused = check(&args, needs, &cache, ways(false));
        let Err(Error::Bound { advice, .. }) = refused else { panic!("{refused:?}") };
        assert_eq!(advice, told, "states have no types");
    }

    #[test]
    fn with_a_disk_the_least_is_less() {
        let (bounded_cache, least_cache) = (300_000_000, 20_000_000);
        let needs = MemoryNeeds { bounded_cache, least_cache, ..MemoryNeeds::default() };
        let memory = ContextMemory::suited(4096);
        let full = CacheOptions::new(CacheType::F16, CacheType::F16, 8192);
        let few = CacheOptions { policy: KvPolicy::Memory(memory), ..full };
        let with = |disk: Option<&str>, cache, bytes| {
            let args = CacheStorage { memory: Some(bytes), disk: disk.map(Into::into) };
            check(&args, needs, cache, |_| WaysOut::default())
        };
        assert!(with(Some("d"), &few, 20_000_000).is_ok());
        let advice = |refused| match refused {
            Err(Error::Bound { advice, .. }) => advice,
            other => panic!("{other:?}"),
        };
        let told = advice(with(Some("d"), &few, 19_000_000));
        assert_eq!(told, "--kv-memory 20000kB is the least that works");
        let told = advice(with(None, &few, 20_000_000));
        assert!(
            told.contains("300MB is the least that works, --kv-disk DIR with 20000kB"),
            "{told}"
        );
        assert!(!advice(with(None, &full, 20_000_000)).contains("--kv-disk"));
    }

    #[test]
    fn the_interpreter_has_no_choice() {
        let bounded = CacheStorage { memory: Some(1), disk: None };
        assert!(check_kind(&bounded, ExecutorKind::Cpu).is_ok());
        assert!(check_kind(&bounded, ExecutorKind::Interpreter).is_err());
        assert!(check_kind(&CacheStorage::default(), ExecutorKind::Interpreter).is_ok());
    }
}
