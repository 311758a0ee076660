//! One suite that every executor passes, with the reference interpreter as the oracle.
//!
//! An executor's own test calls [`run`] with each list of checks it takes on: [`MEANING`], which is every executor's, and
//! [`SAME_BITS`], which is theirs who promise it ([`program::Promises`]); and [`WINDOWS`], [`EXPERTS`] and [`LATENT`], which
//! have checks of both kinds, for programs with windows, with mixtures of experts and with latent attention, [`RECURRENT`]
//! for what recurs, [`SELECTION`] for what selects, and [`CONTEXT`], for sessions that read few blocks of a long past. A test may
//! also run one check alone. [`golden`] compares an executor with logits made by another program, where the feature `golden` is
//! on, and [`replies()`] two executors. Everything else here panics on a difference: this crate is a dev-dependency of executors,
//! and what `rooflight selftest` runs.
#![forbid(unsafe_code)]

mod checks;
mod compare;
mod demo;
#[cfg(feature = "golden")]
pub mod golden;
mod made;
mod memory;
mod oracle;
mod picky;
mod random;
mod replies;

#[cfg(feature = "golden")]
use program::Executor;

pub use checks::{
    CONTEXT, Check, EVERY_CUT, EXPERTS, LATENT, MEANING, PARTS, RECURRENT, SAME_BITS, SELECTION,
    StorageRoom, WINDOWS, spilled,
};
pub use compare::{assert_close, assert_same_bits, bound, first_difference, nmse, trace};
pub use demo::{demo_gguf, demo_gguf_with};
pub use made::{Family, Made, deep_config, tiny_config, tiny_model};
pub use memory::MemoryWeights;
pub use oracle::Oracle;
pub use picky::Picky;
pub use random::Random;
pub use replies::{Replies, ReplyRules, replies};

/// Items that only this crate's tests use.
#[cfg(feature = "golden")]
#[doc(hidden)]
pub mod internals {
    pub use crate::golden::generator::Generator;
}

/// Run these checks, for a test, and print how long each took; those that rely on a promise the executor does not make are
/// skipped aloud.
///
/// # Panics
/// At the first difference, naming the check, the case and what was found.
#[cfg(feature = "golden")]
pub fn run(executor: &dyn Executor, checks: &[Check]) {
    for check in checks {
        if check.is_for(executor) {
            let start = std::time::Instant::now();
            (check.run)(executor);
            eprintln!("{}: {:.1} s", check.name, start.elapsed().as_secs_f64());
        } else {
            let (name, promise) = (check.name, check.relies_on);
            testing::skipped(&format!("{name} on {}: needs {promise:?}", executor.describe()));
        }
    }
}
