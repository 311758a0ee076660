//! [`Notices`]: receives progress, remarks and warnings of the library.

use std::time::Duration;

/// Receives progress, remarks and warnings of the library. The default methods ignore them.
pub trait Notices: Send + Sync {
    /// Receives a remark or a warning.
    fn notice(&self, _notice: &Notice<'_>) {}

    /// Called when a task starts that may take longer than a second. The returned value receives the progress of the task and
    /// is dropped when the task ends.
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
    /// Subject of the notice.
    pub topic: Topic,
    /// Message for the user, in one line.
    pub text: &'a str,
}

/// Importance of a [`Notice`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// A remark.
    Note,
    /// A problem that does not stop the work, but that the user should know.
    Warning,
}

/// Subject of a [`Notice`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Topic {
    /// Measurements of this machine, new or stored.
    Machine,
    /// Stored limits of this machine that are unreliable.
    Doubt,
    /// A run that was faster than the measured limits of this machine allow.
    Exceeded,
    /// Tuning of GPU kernels.
    Tuning,
    /// Choice of the executor for a model.
    Executor,
    /// A plan.
    Plan,
}

/// A task that may take longer than a second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Task {
    /// Measures the ceilings of this machine.
    MeasureMachine,
    /// Measures the rates of kernels.
    MeasureKernels,
    /// Measures this machine automatically at first use.
    FirstUse {
        /// Maximum duration of the measurement.
        limit: Duration,
        /// Whether the user can skip the measurement.
        can_skip: bool,
    },
    /// Compares shapes of GPU kernels.
    TuneKernels,
    /// Loads the weights of a model. The unit of progress is bytes.
    Load,
    /// Loads the weights of a model to time it on an executor. The unit of progress is bytes.
    LoadToMeasure,
}

/// Receives the progress of a [`Task`].
pub trait TaskProgress: Send + Sync {
    /// Called with the completed amount of work and the total, in the same unit.
    fn update(&self, _done: u64, _total: u64) {}
}

/// Ignores all notices and progress.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ignored;

impl Notices for Ignored {}

impl TaskProgress for Ignored {}

impl dyn TaskProgress + '_ {
    /// Reports the completed fraction of the work, from 0 to 1.
    pub(crate) fn update_part(&self, part: f64) {
        self.update((100.0 * part.clamp(0.0, 1.0)) as u64, 100);
    }
}
