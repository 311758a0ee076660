//! What must be covered, and what was.

use std::collections::BTreeSet;
use std::io::Write;
use std::sync::{Mutex, PoisonError};

/// Tell once, on standard error and in the file named by `ROOFLIGHT_COVERAGE`, that `what` was tested.
///
/// # Panics
/// If the file cannot be written.
pub fn covered(what: &str) {
    note("covered", what);
}

/// The same of what could not be tested here; `what` says why.
///
/// # Panics
/// If the file cannot be written.
pub fn skipped(what: &str) {
    note("skipped", what);
}

/// Whether `ROOFLIGHT_FULL` asks for what the gate leaves to `cargo xtask full`. If not, `what` is reported as left out.
pub fn full(what: &str) -> bool {
    let full = is_set(&std::env::var("ROOFLIGHT_FULL").unwrap_or_default());
    if !full {
        skipped(&format!("{what}: in `cargo xtask full`"));
    }
    full
}

/// The first `n` cases for the gate, and all of them where `ROOFLIGHT_FULL` asks for that. The others are reported as left out.
pub fn cases<'a, T>(all: &'a [T], n: usize, what: &str) -> &'a [T] {
    if n < all.len() && !full(&format!("{what}: {} more cases", all.len() - n)) {
        return &all[..n];
    }
    all
}

/// Tell that golden cases could not run, or fail where `ROOFLIGHT_REQUIRE_GOLDEN=1` demands them.
///
/// # Panics
/// If they are demanded.
pub fn golden_skipped(why: &str) {
    let demanded = std::env::var("ROOFLIGHT_REQUIRE_GOLDEN").unwrap_or_default();
    assert!(!is_set(&demanded), "golden cases are required, but: {why}");
    skipped(why);
}

fn is_set(value: &str) -> bool {
    !matches!(value, "" | "0")
}

/// Those of `all` instruction sets that this CPU `has`, for tests of `what`. The others are told as skipped, or fail the
/// test where `ROOFLIGHT_REQUIRE_ISA` names them.
///
/// # Panics
/// If a set is demanded that the CPU lacks, or that is none of `all`.
pub fn isas<T: Copy>(
    what: &str,
    all: &[(&'static str, T)],
    has: impl Fn(T) -> bool,
) -> Vec<(&'static str, T)> {
    let known: Vec<_> = all.iter().map(|(name, isa)| (*name, has(*isa))).collect();
    let demanded = std::env::var("ROOFLIGHT_REQUIRE_ISA").unwrap_or_default();
    if let Err(why) = demanded_isas(&demanded, &known) {
        panic!("{what}: {why}");
    }
    for (name, present) in known {
        if present {
            covered(&format!("{what} on {name}"));
        } else {
            skipped(&format!("{what} on {name}: this CPU lacks it"));
        }
    }
    all.iter().filter(|(_, isa)| has(*isa)).copied().collect()
}

/// Whether what is demanded, names with commas between them, is there.
fn demanded_isas(demanded: &str, known: &[(&'static str, bool)]) -> Result<(), String> {
    for name in demanded.split(',').map(str::trim).filter(|name| !name.is_empty()) {
        match known.iter().find(|(known, _)| *known == name) {
            Some((_, true)) => {}
            Some((_, false)) => {
                return Err(format!("ROOFLIGHT_REQUIRE_ISA={demanded}, but this CPU lacks {name}"));
            }
            None => {
                let names: Vec<_> = known.iter().map(|(name, _)| *name).collect();
                let names = names.join(", ");
                return Err(format!(
                    "ROOFLIGHT_REQUIRE_ISA={demanded}: `{name}` is none of {names}"
                ));
            }
        }
    }
    Ok(())
}

/// Lines this process has told.
static TOLD: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

fn note(kind: &str, what: &str) {
    let line = format!("{kind}: {what}\n");
    if !TOLD.lock().unwrap_or_else(PoisonError::into_inner).insert(line.clone()) {
        return;
    }
    eprint!("{line}");
    if let Some(path) = std::env::var_os("ROOFLIGHT_COVERAGE").filter(|path| !path.is_empty()) {
        let file = std::fs::OpenOptions::new().create(true).append(true).open(&path);
        // One write: lines of tests that run at once do not mix.
        let written = file.and_then(|mut file| file.write_all(line.as_bytes()));
        written.unwrap_or_else(|e| panic!("ROOFLIGHT_COVERAGE={}: {e}", path.display()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AVX2_ONLY: &[(&str, bool)] = &[("scalar", true), ("avx2", true), ("avx512", false)];

    #[test]
    fn only_what_is_demanded_must_be_there() {
        for fine in ["", "avx2", "scalar,avx2", " avx2 , "] {
            assert_eq!(demanded_isas(fine, AVX2_ONLY), Ok(()), "{fine:?}");
        }
        for (demanded, why) in [
            ("avx512", "lacks avx512"),
            ("avx2,avx512", "lacks avx512"),
            ("avx", "`avx` is none of scalar, avx2, avx512"),
            ("1", "`1` is none of"),
        ] {
            let error = demanded_isas(demanded, AVX2_ONLY).expect_err(demanded);
            assert!(error.contains(why), "{error}");
        }
    }

    #[test]
    fn golden_is_demanded_by_anything_but_zero() {
        assert!(is_set("1") && is_set("yes") && !is_set("0") && !is_set(""));
    }
}
