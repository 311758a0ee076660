//! [`Notices`]: what the library reports while it works.

use std::time::Duration;

/// Receives what the library reports while it works. All methods have a default that ignores it.
pub trait Notices: Send + Sync {
    /// Receives a remark or a warning.
    fn notice(&self, _notice: &Notice<'_>) {}

    /// Called at the beginning of a task that may take longer than a second. The returned value receives its progress and is dropped
    /// at its end.
    fn begin(&self, _task: Task) -> Box<dyn TaskProgress> {
        Box::new(Ignored)
    }
}

/// A remark or a warning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Notice<'a> {
    /// Whether the user should act on it.
    pub level: Level,
    /// What it is about.
    pub topic: Topic,
    /// One line for people.
    pub text: &'a str,
}

/// Importance of a [`Notice`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// A remark.
    Note,
    /// Something that does not stop the work, but that the user should know.
    Warning,
}

/// Subject of a [`Notice`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Topic {
    /// The stored measurements of this machine, or their measurement.
    Machine,
    /// Doubtful limits of this machine, from before.
    Doubt,
    /// Work that was just faster than the limits of this machine allow.
    Exceeded,
    /// Shapes of a GPU's kernels.
    Tuning,
    /// Which executor runs a model, and why.
    Executor,
}

/// A task that may take longer than a second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Task {
    /// Ceilings of this machine are measured.
    MeasureMachine,
    /// Rates of kernels are measured.
    MeasureKernels,
    /// This machine is measured automatically, at first use.
    FirstUse {
        /// Maximum time.
        limit: Duration,
        /// Whether the user can stop it.
        can_skip: bool,
    },
    /// Shapes of a GPU's kernels are compared.
    TuneKernels,
    /// The weights of a model are loaded. Progress is in bytes.
    Load,
    /// The same, to time the model on an executor.
    LoadToMeasure,
}

/// Receives the progress of a [`Task`].
pub trait TaskProgress: Send + Sync {
    /// Called with the completed part of the work, and all of it, in the same unit.
    fn update(&self, _done: u64, _total: u64) {}
}

/// Ignores everything.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ignored;

impl Notices for Ignored {}

impl TaskProgress for Ignored {}

impl dyn TaskProgress + '_ {
    /// Reports the completed part, from 0 to 1.
    pub(crate) fn update_part(&self, part: f64) {
        self.update((100.0 * part.clamp(0.0, 1.0)) as u64, 100);
    }
}
