//! Options that say where the caches of sessions lie, and whether they fit there.

use executors::ExecutorKind;
use planner::formula::Units;
use program::{CacheOptions, CacheStorage, Executor, MemoryNeeds, Program};

use crate::exit::Failure;
use crate::{amounts, memory, units};

/// Where the caches of all sessions lie.
#[derive(clap::Args, Clone, Debug, Default)]
pub(crate) struct StorageArgs {
    /// Most memory for the caches of all sessions together: 2G, 500MB, 1GiB
    #[arg(long, value_name = "SIZE", value_parser = size)]
    kv_memory: Option<u64>,
}

fn size(text: &str) -> Result<u64, String> {
    let bytes =
        amounts::memory(text).map_err(|_| "expected a size with its unit, such as 2G or 500MB")?;
    Ok(bytes.value(Units::Decimal) as u64)
}

impl StorageArgs {
    /// What an executor is started with.
    ///
    /// # Errors
    /// One that has no choice of it.
    pub(crate) fn storage(&self, kind: ExecutorKind) -> Result<CacheStorage, Failure> {
        if kind == ExecutorKind::Interpreter && self.kv_memory.is_some() {
            let wrong = "--kv-memory: the interpreter keeps caches as they come";
            return Err(Failure::Usage(wrong.into()));
        }
        Ok(CacheStorage { memory: self.kv_memory })
    }

    /// Most bytes of memory of all caches.
    pub(crate) fn bound(&self) -> Option<u64> {
        self.kv_memory
    }
}

/// For the line that tells how a model was loaded.
pub(crate) fn told(storage: &CacheStorage) -> String {
    storage.memory.map_or_else(String::new, |most| format!(" of at most {}", units::bytes(most)))
}

/// Refuse a bound that one session's cache does not fit into, naming the least that works.
///
/// # Errors
/// [`Failure::Bound`].
pub(crate) fn check(
    storage: &CacheStorage,
    needs: MemoryNeeds,
    cache: &CacheOptions,
    fits: impl Fn(u64) -> usize,
) -> Result<(), Failure> {
    let Some(bound) = storage.memory.filter(|bound| needs.cache > *bound) else { return Ok(()) };
    Err(Failure::Bound {
        need: format!("{} for {} tokens", units::bytes(needs.cache), cache.capacity),
        bound: units::bytes(bound),
        advice: advice(needs.cache, fits(bound)),
    })
}

/// What would do: `least` bytes, or so many tokens.
pub(crate) fn advice(least: u64, longest: usize) -> String {
    let shorter = if longest == 0 { String::new() } else { format!(", -c {longest}") };
    format!(
        "--kv-memory {} is the least that works{shorter}, or -ctk q8_0 -ctv q8_0",
        size_of(least)
    )
}

/// A size that is not less, as the option takes it: in the greatest unit of which it is a hundred or more.
pub(crate) fn size_of(bytes: u64) -> String {
    match bytes {
        0..100_000 => format!("{bytes}B"),
        100_000..100_000_000 => format!("{}kB", bytes.div_ceil(1000)),
        _ => format!("{}MB", bytes.div_ceil(1_000_000)),
    }
}

/// The most positions, in steps of 256, whose caches take no more than `bound`; 0 if none do.
pub(crate) fn longest(
    executor: &dyn Executor,
    program: &Program,
    cache: &CacheOptions,
    chunk: usize,
    bound: u64,
) -> usize {
    memory::longest(cache.capacity, |capacity| {
        let cache = CacheOptions { capacity, ..*cache };
        memory::needs(executor, program, &cache, chunk).is_ok_and(|needs| needs.cache <= bound)
    })
}

#[cfg(test)]
mod tests {
    use program::CacheType;

    use super::*;

    #[test]
    fn sizes_have_a_unit_and_are_not_less() {
        assert_eq!(size("2G"), Ok(2_000_000_000));
        assert_eq!(size("500MB"), Ok(500_000_000));
        assert_eq!(size("1GiB"), Ok(1 << 30));
        for bad in ["2", "", "-1G", "0G", "many"] {
            assert!(size(bad).is_err_and(|e| e.contains("2G")), "{bad}");
        }
        for bytes in [1, 99_999, 100_001, 99_999_999, 100_000_001, 12_345_678_901] {
            let back = size(&size_of(bytes)).expect("a size");
            assert!((bytes..=bytes + bytes / 100).contains(&back), "{bytes}: {back}");
        }
    }

    #[test]
    fn a_bound_that_is_too_small_names_the_least_that_works() {
        let needs = MemoryNeeds { cache: 300_000_000, ..MemoryNeeds::default() };
        let cache = CacheOptions::new(CacheType::F16, CacheType::F16, 8192);
        let with = |memory| check(&CacheStorage { memory }, needs, &cache, |_| 1024);
        assert!(with(None).is_ok() && with(Some(300_000_000)).is_ok());
        let refused = with(Some(299_999_999)).expect_err("a byte is missing");
        let Failure::Bound { need, bound, advice } = refused else { panic!("{refused:?}") };
        assert_eq!((need.as_str(), bound.as_str()), ("300 MB for 8192 tokens", "300 MB"));
        assert!(
            advice.starts_with("--kv-memory 300MB is the least that works, -c 1024"),
            "{advice}"
        );
    }

    #[test]
    fn the_interpreter_has_no_choice() {
        let args = StorageArgs { kv_memory: Some(1) };
        assert!(args.storage(ExecutorKind::Cpu).is_ok());
        assert!(args.storage(ExecutorKind::Interpreter).is_err());
        assert!(StorageArgs::default().storage(ExecutorKind::Interpreter).is_ok());
    }
}
