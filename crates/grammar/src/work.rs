//! How much work a form is, estimated before it is compiled: the compiler's own limits count what it has built, and some of its
//! steps build without counting, so that a form which passes them may go on for minutes.
//!
//! The figures are times of llguidance 1.9 on one core of a server from 2021, in microseconds, by kind of form; those of other
//! machines are proportional.

use crate::{Result, limits};

/// Most work of a form, in microseconds.
const MOST: f64 = 1_000_000.0;
/// From this much work on a form is checked in a process of its own first, where there is one for that.
const CHECKED: f64 = 50_000.0;

/// Estimated work of a form.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Work {
    micros: f64,
    /// Parts of it are intersected, so that the estimate may be far too low.
    combines: bool,
}

impl Work {
    /// Adds work.
    ///
    /// # Errors
    /// [`TooLarge`](crate::GrammarError::TooLarge) where it is too much together.
    pub(crate) fn add(&mut self, what: &'static str, micros: f64) -> Result<()> {
        self.micros += micros;
        match self.micros <= MOST {
            true => Ok(()),
            false => limits::check(
                what,
                "estimated milliseconds to compile",
                (self.micros / 1000.0) as u64 + 1,
                (MOST / 1000.0) as u64,
            ),
        }
    }

    /// The work so far, in microseconds.
    pub(crate) fn micros(&self) -> f64 {
        self.micros
    }

    /// Says that parts of the form are intersected.
    pub(crate) fn combines(&mut self) {
        self.combines = true;
    }

    /// Whether the form is to be checked in a process of its own before it is compiled here.
    pub(crate) fn is_doubtful(&self) -> bool {
        self.combines || self.micros >= CHECKED
    }
}
