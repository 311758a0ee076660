//! The checks, one file per subject.

mod acts;
mod caches;
mod errors;
mod experts;
mod latent;
mod locks;
mod models;
mod ops;
mod results;
mod scores;
mod sessions;
mod splits;
mod windows;

use program::Executor;

/// One check of the suite.
#[derive(Clone, Copy)]
pub struct Check {
    /// Its name.
    pub name: &'static str,
    /// Panics on a difference.
    pub run: fn(&dyn Executor),
}

/// The checks of dense programs, which every executor passes; the simplest first.
pub static CHECKS: &[Check] = &[
    Check { name: "op/embed", run: ops::embed },
    Check { name: "op/rms_norm", run: ops::rms_norm },
    Check { name: "op/linear", run: ops::linear },
    Check { name: "op/elementwise", run: ops::elementwise },
    Check { name: "op/attention", run: ops::attention },
    Check { name: "op/attention_peaked", run: ops::attention_peaked },
    Check { name: "op/attention_masks", run: scores::masks },
    Check { name: "op/attention_scores", run: scores::each_field },
    Check { name: "op/attention_shared", run: scores::shared },
    Check { name: "op/attention_full", run: scores::full },
    Check { name: "op/acts", run: acts::unary },
    Check { name: "op/gates", run: acts::gates },
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
    Check { name: "session/reuse", run: sessions::reuse },
    Check { name: "session/together", run: sessions::together },
    Check { name: "session/scores", run: scores::sessions },
    Check { name: "cache/precision", run: caches::precision },
    Check { name: "cache/memory", run: caches::memory },
    Check { name: "lock/others_do_not_wait", run: locks::others_do_not_wait },
    Check { name: "lock/changes_in_a_step", run: locks::changes_in_a_step },
    Check { name: "result/beside", run: results::beside },
    Check { name: "result/candidates", run: results::candidates_are_sorted },
    Check { name: "result/hidden", run: results::hidden },
    Check { name: "result/cache_types", run: results::cache_types },
    Check { name: "error/step", run: errors::step },
    Check { name: "error/session", run: errors::session },
    Check { name: "error/non_finite", run: errors::non_finite },
    Check { name: "error/load", run: errors::load },
];

/// The checks of programs whose attention has windows and soft caps.
pub static WINDOWS: &[Check] = &[
    Check { name: "model/windows", run: windows::models },
    Check { name: "session/windows", run: windows::sessions },
    Check { name: "session/windows_left", run: windows::left_behind },
];

/// The checks of programs with mixtures of experts.
pub static EXPERTS: &[Check] = &[
    Check { name: "op/row_gate", run: experts::row_gate },
    Check { name: "op/route", run: experts::route },
    Check { name: "op/route_ties", run: experts::route_ties },
    Check { name: "op/experts", run: experts::experts },
    Check { name: "op/experts_gates", run: experts::gates },
    Check { name: "op/experts_uneven", run: experts::experts_uneven },
    Check { name: "model/experts", run: experts::models },
    Check { name: "session/experts", run: experts::sessions },
];

/// The checks of programs with latent attention; its models have mixtures of experts too.
pub static LATENT: &[Check] = &[
    Check { name: "op/slice", run: latent::slice },
    Check { name: "op/latent_attention", run: latent::attention },
    Check { name: "op/latent_attention_peaked", run: latent::attention_peaked },
    Check { name: "op/latent_attention_scores", run: latent::scores },
    Check { name: "op/latent_attention_of_prompts", run: latent::prompts },
    Check { name: "model/latent", run: latent::models },
    Check { name: "session/latent", run: latent::sessions },
    Check { name: "cache/latent", run: latent::cache },
];

/// The checks of programs in parts, for executors of the same bits.
pub static PARTS: &[Check] = &[
    Check { name: "part/some_cuts", run: splits::some_cuts },
    Check { name: "part/sessions", run: splits::sessions },
];

/// Every cut of every tiny model: for the oracle, which loads fast.
pub static EVERY_CUT: &[Check] = &[Check { name: "part/every_cut", run: splits::every_cut }];

#[cfg(test)]
mod tests {
    #[test]
    fn names_are_unique() {
        let all = [
            super::CHECKS,
            super::WINDOWS,
            super::EXPERTS,
            super::LATENT,
            super::PARTS,
            super::EVERY_CUT,
        ]
        .concat();
        let names: std::collections::HashSet<_> = all.iter().map(|c| c.name).collect();
        assert_eq!(names.len(), all.len());
    }
}
