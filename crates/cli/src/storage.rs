//! Options that say where the caches of sessions lie, whether they fit there, and what came of it.

use std::path::PathBuf;

use planner::formula::Units;
use program::{CacheOptions, CacheStorage, Program, SpillCounts};
use serde_json::{Value, json};

use rooflight::load::Loaded;

use crate::output::shown;
use crate::{amounts, ui, units};
use rooflight::fit as memory;

/// Where the caches of all sessions lie.
#[derive(clap::Args, Clone, Debug, Default)]
pub(crate) struct StorageArgs {
    /// Most memory for the caches of all sessions together: 2G, 500MB, 1GiB
    #[arg(long, value_name = "SIZE", value_parser = size)]
    kv_memory: Option<u64>,
    /// A folder for what of the caches has no room in memory, until the command ends; best on a fast local disk
    #[arg(long, value_name = "DIR", requires = "kv_memory")]
    kv_disk: Option<PathBuf>,
}

/// What part of a bound on caches texts take beside it, in which drafts are found.
const DRAFTS: u64 = 128;

/// Bytes of memory, with their unit.
pub(crate) fn size(text: &str) -> Result<u64, String> {
    let bytes =
        amounts::memory(text).map_err(|_| "expected a size with its unit, such as 2G or 500MB")?;
    Ok(bytes.value(Units::Decimal) as u64)
}

impl StorageArgs {
    /// Converts these options to those of the library.
    pub(crate) fn options(&self) -> CacheStorage {
        CacheStorage { memory: self.kv_memory, disk: self.kv_disk.clone() }
    }

    /// How many sessions memory, and the bound on it, have room for, `wanted` at most.
    pub(crate) fn side_by_side(
        &self,
        wanted: usize,
        loaded: &Loaded,
        cache: &CacheOptions,
    ) -> usize {
        let program = loaded.model.program();
        let needs = memory::needs(&*loaded.executor, program, cache, loaded.chunk);
        let Ok(needs) = needs else { return wanted };
        let free = memory::free(loaded.gpu.as_ref()).map(|free| free.saturating_sub(needs.work));
        // with less than all each would give up what others could have
        let spills = self.has_disk() && program.keeps_positions();
        let each = if spills { needs.least_cache } else { needs.cache };
        // a bound is on all caches, memory has those that no card has
        let here = each.saturating_sub(needs.cache_on_card);
        let rooms = [(free, here), (self.bound(), each)];
        let rooms = rooms.into_iter().filter_map(|(room, each)| Some(room? / each.max(1)));
        let room = rooms.min().unwrap_or(u64::MAX);
        let fits = usize::try_from(room).unwrap_or(wanted).clamp(1, wanted);
        if fits < wanted {
            ui::note(format_args!(
                "{fits} requests side by side: memory has no room for more caches of {} tokens",
                cache.capacity
            ));
        }
        fits
    }

    /// Most bytes for texts in which drafts are found: where memory of caches is bounded, a small part of that beside it.
    pub(crate) fn draft_memory(&self) -> u64 {
        self.kv_memory.map_or(u64::MAX, |bound| bound / DRAFTS)
    }

    /// Most bytes of memory of all caches.
    pub(crate) fn bound(&self) -> Option<u64> {
        self.kv_memory
    }

    /// Whether caches of sessions that rest leave memory for others', and none is lost: there is a folder, and memory has room
    /// for all that the bound allows.
    pub(crate) fn gives_way(&self) -> bool {
        let has_room = |bound| memory::free(None).is_none_or(|free| bound <= free);
        self.has_disk() && self.bound().is_some_and(has_room)
    }

    /// Whether a folder was given.
    pub(crate) fn has_disk(&self) -> bool {
        self.kv_disk.is_some()
    }
}

/// What to say of a folder where a program keeps nothing that goes there.
pub(crate) fn idle(args: &StorageArgs, program: &Program) -> Option<String> {
    let all_stay = !program.caches.is_empty() && !program.keeps_positions();
    (args.has_disk() && all_stay).then(|| {
        let why = "the model keeps states, which stay in memory, and no positions";
        format!("--kv-disk has no effect: {why}")
    })
}

/// For the line that tells how a model was loaded.
pub(crate) fn told(storage: &CacheStorage) -> String {
    let memory = storage.memory.map(|most| format!(" of at most {}", units::bytes(most)));
    let disk = storage.disk.as_ref().map(|folder| format!(", the rest in {}", shown(folder)));
    memory.into_iter().chain(disk).collect()
}

/// `disk 24 blocks written, 96 loaded, 1210 in memory, waited 3.1 ms`; nothing where there was nothing to do.
pub(crate) fn footer(counts: &SpillCounts) -> Option<String> {
    let SpillCounts { written, loaded, hits, waited, recomputed, .. } = *counts;
    let disk = format!(
        "disk {written} blocks written, {loaded} loaded, {hits} in memory, waited {}",
        units::short_seconds(waited.as_secs_f64())
    );
    let again = (recomputed > 0).then(|| format!("{recomputed} tok computed again"));
    let disk = (written + loaded + hits > 0).then_some(disk);
    let parts: Vec<String> = disk.into_iter().chain(again).collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}

/// `1.5 MB a token from disk, 83 % of the blocks it wanted were in memory, waited 1.2 ms a token`; nothing where there was
/// nothing to do.
pub(crate) fn per_token(counts: &SpillCounts, tokens: usize) -> Option<String> {
    let SpillCounts { loaded, loaded_bytes, hits, waited, .. } = *counts;
    let each = |all: f64| all / tokens.max(1) as f64;
    (loaded + hits > 0).then(|| {
        format!(
            "{} a token from disk, {:.0} % of the blocks it wanted were in memory, waited {} a token",
            units::bytes(each(loaded_bytes as f64) as u64),
            100.0 * hits as f64 / (loaded + hits) as f64,
            units::short_seconds(each(waited.as_secs_f64()))
        )
    })
}

/// [`footer`] as an object, `null` where there was nothing to do.
pub(crate) fn to_json(counts: &SpillCounts) -> Value {
    let SpillCounts { memory, written, written_bytes, loaded, loaded_bytes, .. } = *counts;
    let SpillCounts { hits, waited, recomputed, .. } = *counts;
    if footer(counts).is_none() {
        return Value::Null;
    }
    json!({
        "memory_bytes": memory,
        "written": written,
        "written_bytes": written_bytes,
        "loaded": loaded,
        "loaded_bytes": loaded_bytes,
        "in_memory": hits,
        "waited_ms": waited.as_secs_f64() * 1e3,
        "recomputed_tokens": recomputed,
    })
}

#[cfg(test)]
mod tests {
    use program::{CacheKind, CacheSpec};
    use rooflight::storage::size_of;

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
    fn what_the_disk_did_is_told_where_it_did_something() {
        let mut counts = SpillCounts::default();
        assert_eq!((footer(&counts), to_json(&counts)), (None, Value::Null));
        (counts.written, counts.loaded, counts.hits) = (3, 4, 5);
        counts.waited = std::time::Duration::from_micros(1500);
        let told = "disk 3 blocks written, 4 loaded, 5 in memory, waited 1.50 ms";
        assert_eq!(footer(&counts).as_deref(), Some(told));
        counts.recomputed = 6;
        assert_eq!(footer(&counts), Some(format!("{told}, 6 tok computed again")));
        assert_eq!(to_json(&counts)["waited_ms"], 1.5);
    }

    #[test]
    fn a_folder_that_nothing_goes_to_is_told() {
        let spec = |kind| CacheSpec { layer: 0, kind };
        let state = spec(CacheKind::State { elements: 64, row: 4 });
        let heads =
            spec(CacheKind::Heads { n_kv_heads: 1, key_dim: 4, value_dim: 4, window: None });
        let told = |caches: &[CacheSpec], disk: Option<&str>| {
            let args = StorageArgs { kv_memory: Some(1), kv_disk: disk.map(Into::into) };
            idle(&args, &Program { caches: caches.to_vec(), ..Program::default() })
        };
        let alone = told(std::slice::from_ref(&state), Some("d"));
        assert!(alone.is_some_and(|told| told.starts_with("--kv-disk has no effect")));
        assert_eq!(told(&[state.clone(), heads], Some("d")), None, "positions go there");
        assert_eq!(told(&[state], None), None);
    }
}
