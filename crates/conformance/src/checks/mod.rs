//! The checks, one file per subject.

mod caches;
mod errors;
mod models;
mod ops;
mod sessions;

use program::Executor;

/// One check of the suite.
pub struct Check {
    /// Its name.
    pub name: &'static str,
    /// Panics on a difference.
    pub run: fn(&dyn Executor),
}

/// Every check, the simplest first.
pub static CHECKS: &[Check] = &[
    Check { name: "op/embed", run: ops::embed },
    Check { name: "op/rms_norm", run: ops::rms_norm },
    Check { name: "op/linear", run: ops::linear },
    Check { name: "op/elementwise", run: ops::elementwise },
    Check { name: "op/attention", run: ops::attention },
    Check { name: "op/attention_peaked", run: ops::attention_peaked },
    Check { name: "model/plain", run: models::plain },
    Check { name: "model/half", run: models::half },
    Check { name: "model/quantized", run: models::quantized },
    Check { name: "model/rope_scaling", run: models::rope_scaling },
    Check { name: "session/outputs", run: sessions::outputs },
    Check { name: "session/chunks", run: sessions::chunks },
    Check { name: "session/rollback", run: sessions::rollback },
    Check { name: "session/fork", run: sessions::fork },
    Check { name: "session/commit", run: sessions::commit },
    Check { name: "session/replay", run: sessions::replay },
    Check { name: "session/together", run: sessions::together },
    Check { name: "cache/precision", run: caches::precision },
    Check { name: "cache/memory", run: caches::memory },
    Check { name: "error/step", run: errors::step },
    Check { name: "error/session", run: errors::session },
    Check { name: "error/non_finite", run: errors::non_finite },
    Check { name: "error/load", run: errors::load },
];

#[cfg(test)]
mod tests {
    #[test]
    fn names_are_unique() {
        let names: std::collections::HashSet<_> = super::CHECKS.iter().map(|c| c.name).collect();
        assert_eq!(names.len(), super::CHECKS.len());
    }
}
