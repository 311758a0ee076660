//! The checks, one file per subject.

mod acts;
mod caches;
mod certificate;
mod context;
mod errors;
mod experts;
mod latent;
mod locks;
mod models;
mod ops;
mod positions;
mod recurrence;
mod results;
mod scores;
mod selection;
mod sessions;
mod spilled;
mod splits;
mod steps;
mod supers;
mod texts;
mod windows;

use program::{Executor, Variation};

pub use spilled::{StorageRoom, spilled};

/// One check of the suite.
#[derive(Clone, Copy)]
pub struct Check {
    /// Its name.
    pub name: &'static str,
    /// Panics on a difference.
    pub run: fn(&dyn Executor),
    /// What the executor must have promised to be asked for: its logits are compared to the bit.
    pub relies_on: &'static [Variation],
}

impl Check {
    /// Whether the executor promised what this check relies on.
    pub fn is_for(&self, executor: &dyn Executor) -> bool {
        executor.promises().cover(self.relies_on)
    }
}

const fn meaning(name: &'static str, run: fn(&dyn Executor)) -> Check {
    Check { name, run, relies_on: &[] }
}

const fn same_bits(
    name: &'static str,
    run: fn(&dyn Executor),
    relies_on: &'static [Variation],
) -> Check {
    Check { name, run, relies_on }
}

const AGAIN: &[Variation] = &[Variation::Again];
const CUTS: &[Variation] = &[Variation::Again, Variation::Cuts];
const MATES: &[Variation] = &[Variation::Again, Variation::BatchMates];
const ALL: &[Variation] = &[Variation::Again, Variation::Cuts, Variation::BatchMates];

/// The checks of what dense programs mean, which every executor passes; the simplest first.
pub static MEANING: &[Check] = &[
    meaning("op/embed", ops::embed),
    meaning("op/positions", positions::lookup),
    meaning("op/norms", ops::norms),
    meaning("op/linear", ops::linear),
    meaning("op/elementwise", ops::elementwise),
    meaning("op/attention", ops::attention),
    meaning("op/attention_peaked", ops::attention_peaked),
    meaning("op/attention_masks", scores::masks),
    meaning("op/attention_scores", scores::each_field),
    meaning("op/attention_shared", scores::shared),
    meaning("op/attention_full", scores::full),
    meaning("op/texts", texts::whole),
    meaning("op/acts", acts::unary),
    meaning("op/gates", acts::gates),
    meaning("model/plain", models::plain),
    meaning("model/half", models::half),
    meaning("model/quantized", models::quantized),
    meaning("model/rope_scaling", models::rope_scaling),
    meaning("cache/precision", caches::precision),
    meaning("cache/memory", caches::memory),
    meaning("lock/others_do_not_wait", locks::others_do_not_wait),
    meaning("error/step", errors::step),
    meaning("error/session", errors::session),
    meaning("error/non_finite", errors::non_finite),
    meaning("error/load", errors::load),
];

/// The checks of dense programs in sessions, by those who promise the same bits.
pub static SAME_BITS: &[Check] = &[
    same_bits("session/outputs", sessions::outputs, CUTS),
    same_bits("session/chunks", sessions::chunks, CUTS),
    same_bits("session/rollback", sessions::rollback, CUTS),
    same_bits("session/cancelled", sessions::cancelled, CUTS),
    same_bits("session/fork", sessions::fork, CUTS),
    same_bits("session/commit", sessions::commit, CUTS),
    same_bits("session/replay", sessions::replay, AGAIN),
    same_bits("session/reuse", sessions::reuse, CUTS),
    same_bits("session/together", sessions::together, MATES),
    same_bits("session/scores", scores::sessions, ALL),
    same_bits("session/positions", positions::sessions, ALL),
    same_bits("lock/changes_in_a_step", locks::changes_in_a_step, ALL),
    same_bits("result/beside", results::beside, ALL),
    same_bits("result/candidates", results::candidates_are_sorted, AGAIN),
    same_bits("result/hidden", results::hidden, ALL),
    same_bits("result/rows_beside_logits", results::rows_beside_logits, AGAIN),
    same_bits("result/cache_types", results::cache_types, ALL),
];

/// The checks of programs whose attention has windows and soft caps.
pub static WINDOWS: &[Check] = &[
    meaning("model/windows", windows::models),
    same_bits("session/windows", windows::sessions, ALL),
    same_bits("session/windows_left", windows::left_behind, ALL),
];

/// The checks of sessions that read few blocks of a long past.
pub static CONTEXT: &[Check] = &[
    meaning("context/meaning", context::meaning),
    meaning("context/rounded", context::rounded),
    meaning("context/far_has_no_order", context::far_has_no_order),
    meaning("context/refused", context::refused),
    meaning("context/certificate", certificate::left_out),
    meaning("context/supers", supers::meaning),
    meaning("context/supers_refused", supers::refused),
    meaning("context/steps_readers", steps::readers),
    meaning("context/steps_refused", steps::refused),
    same_bits("context/smoothing", steps::smoothing, CUTS),
    same_bits("context/steps_runs", steps::runs, CUTS),
    same_bits("context/steps_layers", steps::layers, CUTS),
    same_bits("context/certificate_cuts", certificate::cuts, CUTS),
    same_bits("context/all_is_full", context::all_is_full, CUTS),
    same_bits("context/cuts", context::cuts, ALL),
    same_bits("context/supers_cuts", supers::cuts, ALL),
    same_bits("context/supers_histories", supers::histories, CUTS),
    same_bits("context/meter", context::meter, CUTS),
    same_bits("context/histories", context::histories, CUTS),
];

/// The checks of programs with mixtures of experts.
pub static EXPERTS: &[Check] = &[
    meaning("op/row_gate", experts::row_gate),
    meaning("op/route", experts::route),
    meaning("op/route_ties", experts::route_ties),
    meaning("op/experts", experts::experts),
    meaning("op/experts_types", experts::types_apart),
    meaning("op/experts_gates", experts::gates),
    meaning("op/experts_uneven", experts::experts_uneven),
    meaning("op/experts_shared", experts::experts_shared),
    meaning("model/experts", experts::models),
    same_bits("session/experts", experts::sessions, ALL),
];

/// The checks of programs with latent attention; its models have mixtures of experts too.
pub static LATENT: &[Check] = &[
    meaning("op/slice", latent::slice),
    meaning("op/latent_attention", latent::attention),
    meaning("op/latent_attention_peaked", latent::attention_peaked),
    meaning("op/latent_attention_scores", latent::scores),
    same_bits("op/latent_attention_of_prompts", latent::prompts, CUTS),
    meaning("model/latent", latent::models),
    same_bits("session/latent", latent::sessions, ALL),
    meaning("cache/latent", latent::cache),
];

/// The checks of what recurs.
pub static RECURRENT: &[Check] = &[
    meaning("op/causal_conv", recurrence::causal_conv),
    meaning("op/scans", recurrence::scans),
    same_bits("session/recurrence", recurrence::in_sessions, ALL),
    same_bits("session/recurrent_histories", recurrence::histories, CUTS),
];

/// The checks of what selects, and of what else such models have.
pub static SELECTION: &[Check] = &[
    meaning("op/balance", selection::balance),
    meaning("op/grams", selection::grams),
    meaning("op/indexer", selection::indexer),
    meaning("op/attention_selects", selection::attention),
    meaning("op/latent_attention_selects", selection::latent_attention),
    same_bits("op/selects_in_prompts", selection::prompts, CUTS),
    same_bits("session/selection", selection::in_sessions, ALL),
];

/// The checks of programs in parts, for executors of the same bits.
pub static PARTS: &[Check] = &[
    same_bits("part/some_cuts", splits::some_cuts, CUTS),
    same_bits("part/sessions", splits::sessions, CUTS),
];

/// Every cut of every tiny model: for the oracle, which loads fast.
pub static EVERY_CUT: &[Check] = &[same_bits("part/every_cut", splits::every_cut, CUTS)];
