//! Shows notices and progress of the library on stderr.

use std::sync::OnceLock;

use indicatif::ProgressBar;
use rooflight::notices::{Level, Notice, Notices, Task, TaskProgress, Topic};
use rooflight::{Runtime, Settings};

use crate::ui;

/// Returns the runtime of this process, with settings from the environment and notices on stderr.
pub fn runtime() -> &'static Runtime {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    RUNTIME.get_or_init(|| Runtime::new(Settings::from_env(), Terminal))
}

/// Prints notices and progress bars on stderr.
struct Terminal;

impl Notices for Terminal {
    fn notice(&self, notice: &Notice<'_>) {
        match (notice.level, notice.topic) {
            // programs that read the results do not need remarks on the machine
            (_, Topic::Exceeded) if !ui::is_interactive() => {}
            (Level::Warning, _) => ui::warn(notice.text),
            (Level::Note, _) => ui::note(notice.text),
        }
    }

    fn begin(&self, task: Task) -> Box<dyn TaskProgress> {
        // without a terminal there is no bar, and the wait would have no reason that is seen
        if let Task::FirstUse { limit, .. } = task
            && !ui::stderr_is_terminal()
        {
            ui::note(ui::first_use_label(limit, false));
        }
        Box::new(Bar(match task {
            Task::MeasureMachine => ui::count_bar("measuring this machine", 100),
            Task::MeasureKernels => ui::count_bar("measuring its kernels", 100),
            Task::FirstUse { limit, can_skip } => ui::first_use_bar(limit, can_skip),
            Task::TuneKernels => ui::count_bar("tuning kernels", 100),
            Task::Load => ui::bytes_bar("loading", 0),
            Task::LoadToMeasure => ui::bytes_bar("loading to measure", 0),
            _ => ui::count_bar("working", 100),
        }))
    }
}

/// Progress bar that is erased at the end of its task.
struct Bar(ProgressBar);

impl TaskProgress for Bar {
    fn update(&self, done: u64, total: u64) {
        self.0.set_length(total);
        self.0.set_position(done);
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
