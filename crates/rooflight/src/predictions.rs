//! Stores how far predicted times were off for each model, next to the ceilings. A plan uses this to tell how accurate it is.

use planner::Cost;
use program::{Executor, Program};
use serde::{Deserialize, Serialize};

use crate::Runtime;
use crate::machine::ceilings::{self, BUILD};

/// Version of the file. Files of other versions are replaced.
const VERSION: u32 = 1;
/// Name of the file.
const FILE: &str = "predictions.json";
/// Maximum number of stored models. The least recently run models are removed.
const MODELS: usize = 64;
/// Maximum number of stored runs per model and phase.
const RUNS: usize = 16;
/// Minimum duration of a run that counts, in seconds. Shorter runs mostly consist of waking up threads and waiting.
pub const TOO_SMALL: f64 = 0.05;

#[derive(Debug, Default, Serialize, Deserialize)]
struct File {
    version: u32,
    /// Most recently run last.
    models: Vec<Kept>,
}

/// Predictions for a model on a machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Kept {
    machine: String,
    build: String,
    #[serde(flatten)]
    model: ModelKey,
    /// Ratios of measured to predicted times, newest last.
    prompts: Vec<f64>,
    steps: Vec<f64>,
}

/// Identifies a model by the number and bytes of its weights, independently of its file name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelKey {
    weights: u64,
    bytes: u64,
}

impl ModelKey {
    /// Returns the key of a loaded model.
    pub fn of(program: &Program) -> ModelKey {
        let weights = program.weights.iter().map(|w| (w.rows as u64).saturating_mul(w.cols as u64));
        let bytes = program.weights.iter().map(|w| w.bytes());
        ModelKey {
            weights: weights.fold(0, u64::saturating_add),
            bytes: bytes.fold(0, u64::saturating_add),
        }
    }

    /// Returns the key of a planned model.
    pub fn planned(cost: &Cost) -> ModelKey {
        let weights = cost.weight_types().iter().map(|ty| ty.weights);
        ModelKey { weights: weights.fold(0, u64::saturating_add), bytes: cost.resident_bytes() }
    }
}

/// A model on this machine whose predictions are stored.
#[derive(Clone, Debug)]
pub struct RememberedModel {
    runtime: Runtime,
    machine: String,
    model: ModelKey,
    threads: usize,
}

/// Predicted and measured time of a phase, in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RunTime {
    /// Phase of the run.
    pub phase: RunPhase,
    /// Predicted time.
    pub expected: f64,
    /// Measured time.
    pub measured: f64,
}

impl RunTime {
    /// Returns whether the run is long enough to count.
    fn counts(&self) -> bool {
        self.measured >= TOO_SMALL && self.expected > 0.0
    }
}

/// Phase of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunPhase {
    /// Processing of prompts.
    Prompts,
    /// Steps of one token each.
    Steps,
}

/// Error of predicted times.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ErrorBar {
    /// Relative error that nine of ten runs do not exceed.
    pub part: f64,
    /// Number of stored runs.
    pub runs: usize,
}

impl Kept {
    fn ratios(&mut self, phase: RunPhase) -> &mut Vec<f64> {
        match phase {
            RunPhase::Prompts => &mut self.prompts,
            RunPhase::Steps => &mut self.steps,
        }
    }

    fn add(&mut self, phase: RunPhase, ratio: f64) {
        let ratios = self.ratios(phase);
        ratios.push(ratio);
        let old = ratios.len().saturating_sub(RUNS);
        ratios.drain(..old);
    }

    fn bar(&self, phase: RunPhase) -> Option<ErrorBar> {
        let ratios = match phase {
            RunPhase::Prompts => &self.prompts,
            RunPhase::Steps => &self.steps,
        };
        let mut errors: Vec<f64> = ratios.iter().map(|ratio| (ratio - 1.0).abs()).collect();
        errors.retain(|error| error.is_finite());
        errors.sort_by(f64::total_cmp);
        let runs = errors.len();
        // least error that nine of ten runs do not exceed
        let at = (9 * runs).div_ceil(10).checked_sub(1)?;
        Some(ErrorBar { part: errors[at], runs })
    }
}

impl File {
    fn read(runtime: &Runtime) -> File {
        let file: Option<File> = runtime.read(FILE);
        file.filter(|file| file.version == VERSION).unwrap_or_default()
    }

    /// Returns the entry of a model and moves it to the end.
    fn latest(&mut self, machine: &str, model: &ModelKey) -> &mut Kept {
        let same = |kept: &Kept| kept.is(machine, model);
        let kept = match self.models.iter().position(same) {
            Some(at) => self.models.remove(at),
            None => Kept {
                machine: machine.to_owned(),
                build: BUILD.to_owned(),
                model: *model,
                prompts: Vec::new(),
                steps: Vec::new(),
            },
        };
        let old = (self.models.len() + 1).saturating_sub(MODELS);
        self.models.drain(..old);
        self.models.push(kept);
        self.models.last_mut().expect("it was pushed")
    }
}

impl Kept {
    fn is(&self, machine: &str, model: &ModelKey) -> bool {
        self.machine == machine && self.build == BUILD && self.model == *model
    }
}

impl RememberedModel {
    /// Creates the record of a model on this machine with this number of threads.
    pub fn new(
        runtime: &Runtime,
        executor: &dyn Executor,
        model: ModelKey,
        threads: usize,
    ) -> RememberedModel {
        let machine = ceilings::machine(executor);
        RememberedModel { runtime: runtime.clone(), machine, model, threads }
    }

    /// Returns the name under which the machine's ceilings are stored.
    pub fn machine(&self) -> &str {
        &self.machine
    }

    /// Stores the ratios of measured to predicted times. Does nothing if all runs are too short, or if other programs run.
    pub fn remember(&self, runs: &[RunTime]) {
        if !runs.iter().any(RunTime::counts) || ceilings::crowded(self.threads) {
            return;
        }
        let mut file = File { version: VERSION, ..File::read(&self.runtime) };
        let kept = file.latest(&self.machine, &self.model);
        for run in runs.iter().filter(|run| run.counts()) {
            kept.add(run.phase, run.measured / run.expected);
        }
        self.runtime.write(FILE, &file);
    }

    /// Returns the error of the predicted times of this model, or `None` if it has not run here.
    pub fn error_bar(&self, phase: RunPhase) -> Option<ErrorBar> {
        let file = File::read(&self.runtime);
        file.models.iter().find(|kept| kept.is(&self.machine, &self.model))?.bar(phase)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nine_of_ten_runs_are_within_the_bar() {
        let mut file = File::default();
        let key = ModelKey { weights: 1, bytes: 2 };
        assert_eq!(file.latest("here", &key).bar(RunPhase::Steps), None);
        let kept = file.latest("here", &key);
        for ratio in [1.25, 1.0, 0.5] {
            kept.add(RunPhase::Steps, ratio);
        }
        assert_eq!(kept.bar(RunPhase::Steps), Some(ErrorBar { part: 0.5, runs: 3 }));
        assert_eq!(kept.bar(RunPhase::Prompts), None);
        for _ in 0..9 {
            kept.add(RunPhase::Steps, 1.125);
        }
        // one of twelve is off by half and one by a quarter: eleven are within a quarter
        assert_eq!(kept.bar(RunPhase::Steps), Some(ErrorBar { part: 0.25, runs: 12 }));
    }

    #[test]
    fn what_is_kept_is_bounded_and_the_latest_stays() {
        let mut file = File::default();
        let key = |n: u64| ModelKey { weights: n, bytes: n };
        for n in 0..1000 {
            file.latest("here", &key(n)).add(RunPhase::Prompts, 1.0);
            file.latest("here", &key(0)).add(RunPhase::Prompts, 1.0 + n as f64);
        }
        assert_eq!(file.models.len(), MODELS);
        let kept = file.latest("here", &key(0));
        assert_eq!((kept.prompts.len(), kept.prompts[RUNS - 1]), (RUNS, 1000.0));
        assert_eq!(file.latest("elsewhere", &key(0)).prompts, [] as [f64; 0]);
        let text = serde_json::to_string(&file).expect("plain numbers");
        let back: File = serde_json::from_str(&text).expect("what was written");
        assert_eq!(back.models, file.models);
        assert!(text.len() < 64 * 1024, "{}", text.len());
    }
}
