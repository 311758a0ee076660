//! How much memory is free, and whether a model fits.

use std::path::Path;

use program::{CacheOptions, Program};

use crate::exit::Failure;
use crate::units;

/// Tables of the tokenizer, workspace of a pass, code and stacks.
pub(crate) const OVERHEAD: u64 = 150 << 20;

/// Bytes this process may still take: the machine's free memory, cut by the limit of its control group.
/// `None` where that cannot be told.
pub(crate) fn available() -> Option<u64> {
    let meminfo = std::fs::read_to_string("/proc/meminfo").ok()?;
    let free = field(&meminfo, "MemAvailable:")? * 1024;
    Some(free.min(cgroup_room(Path::new("/sys/fs/cgroup")).unwrap_or(u64::MAX)))
}

fn field(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name))?.split_whitespace().next()?.parse().ok()
}

/// What the control group at `root` has left; file cache counts as free, for it can be dropped.
fn cgroup_room(root: &Path) -> Option<u64> {
    let read = |name: &str| std::fs::read_to_string(root.join(name)).ok();
    let max: u64 = read("memory.max")?.trim().parse().ok()?;
    let current: u64 = read("memory.current")?.trim().parse().ok()?;
    let cache = read("memory.stat").and_then(|stat| field(&stat, "file ")).unwrap_or(0);
    Some(max.saturating_sub(current.saturating_sub(cache)))
}

/// Refuse a model that would not fit, saying what to change.
///
/// # Errors
/// [`Failure::DoesNotFit`].
pub(crate) fn check_fit(
    program: &Program,
    options: &CacheOptions,
    available: Option<u64>,
) -> Result<(), Failure> {
    let Some(available) = available else { return Ok(()) };
    let weights: u64 = program.weight_bytes();
    let cache = program.cache_bytes(options.capacity, options);
    let fixed = weights.saturating_add(OVERHEAD);
    if fixed.saturating_add(cache) <= available {
        return Ok(());
    }
    let room = available.saturating_sub(fixed);
    let mut contexts = (256..options.capacity).step_by(256).rev();
    let advice = match contexts.find(|n| program.cache_bytes(*n, options) <= room).unwrap_or(0) {
        0 => "the weights alone do not fit: take a smaller model or a smaller quantization"
            .to_owned(),
        room => format!("try -c {room}, or -ctk q8_0 -ctv q8_0"),
    };
    let need = format!(
        "{} (weights {}, cache {} for {} tokens)",
        units::bytes(fixed.saturating_add(cache)),
        units::bytes(weights),
        units::bytes(cache),
        options.capacity
    );
    Err(Failure::DoesNotFit { need, available: units::bytes(available), advice })
}

#[cfg(test)]
mod tests {
    use program::{CacheKind, CacheSpec, CacheType, WeightSpec};

    use super::*;

    fn advice(available: u64) -> Option<String> {
        let kind = CacheKind::Heads { n_kv_heads: 8, key_dim: 128, value_dim: 128, window: None };
        let program = Program {
            weights: vec![WeightSpec {
                name: "w".into(),
                ty: quant::GgmlType::F32,
                rows: 1 << 10,
                cols: 1 << 10,
            }],
            caches: vec![CacheSpec { layer: 0, kind }],
            ..Program::default()
        };
        let options = CacheOptions { k: CacheType::F16, v: CacheType::F16, capacity: 1 << 20 };
        assert_eq!(program.cache_bytes(1 << 20, &options), (1 << 20) * 4096);
        match check_fit(&program, &options, Some(available)) {
            Ok(()) => None,
            Err(Failure::DoesNotFit { advice, .. }) => Some(advice),
            Err(other) => panic!("{other}"),
        }
    }

    #[test]
    fn what_fits_passes_and_what_does_not_says_what_to_change() {
        assert_eq!(advice(5 << 30), None);
        assert!(advice(1 << 30).unwrap().contains("-c 222720"), "{:?}", advice(1 << 30));
        assert!(advice(100 << 20).unwrap().contains("smaller"));
    }

    #[test]
    fn the_limit_of_a_control_group_counts() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(cgroup_room(dir.path()), None);
        for (name, text) in [
            ("memory.max", "1000\n"),
            ("memory.current", "700\n"),
            ("memory.stat", "anon 500\nfile 200\n"),
        ] {
            std::fs::write(dir.path().join(name), text).unwrap();
        }
        assert_eq!(cgroup_room(dir.path()), Some(500));
        std::fs::write(dir.path().join("memory.max"), "max\n").unwrap();
        assert_eq!(cgroup_room(dir.path()), None);
    }
}
