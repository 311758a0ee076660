//! How far expected times were off, by model: kept beside the ceilings, so that a plan can say how far to trust them.

use planner::Cost;
use program::{Executor, Program};
use serde::{Deserialize, Serialize};

use crate::Runtime;
use crate::machine::ceilings::{self, BUILD};

/// Of the file; files of other versions are written anew.
const VERSION: u32 = 1;
/// The file.
const FILE: &str = "predictions.json";
/// Models that are remembered, those of the latest runs.
const MODELS: usize = 64;
/// Runs of each that are.
const RUNS: usize = 16;
/// Work that took less than this, in seconds, says little of the machine: waking up and waiting are most of it.
pub const TOO_SMALL: f64 = 0.05;

#[derive(Debug, Default, Serialize, Deserialize)]
struct File {
    version: u32,
    /// The latest last.
    models: Vec<Kept>,
}

/// A model on a machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Kept {
    machine: String,
    build: String,
    #[serde(flatten)]
    model: ModelKey,
    /// Measured times as parts of the expected ones, the latest last.
    prompts: Vec<f64>,
    steps: Vec<f64>,
}

/// What tells a model from others: its weights, by number and bytes, whatever its file is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelKey {
    weights: u64,
    bytes: u64,
}

impl ModelKey {
    /// Of a model that runs.
    pub fn of(program: &Program) -> ModelKey {
        let weights = program.weights.iter().map(|w| (w.rows as u64).saturating_mul(w.cols as u64));
        let bytes = program.weights.iter().map(|w| w.bytes());
        ModelKey {
            weights: weights.fold(0, u64::saturating_add),
            bytes: bytes.fold(0, u64::saturating_add),
        }
    }

    /// Of a model that is planned.
    pub fn planned(cost: &Cost) -> ModelKey {
        let weights = cost.weight_types().iter().map(|ty| ty.weights);
        ModelKey { weights: weights.fold(0, u64::saturating_add), bytes: cost.resident_bytes() }
    }
}

/// A model on this machine, whose times are remembered.
#[derive(Clone, Debug)]
pub struct RememberedModel {
    runtime: Runtime,
    machine: String,
    model: ModelKey,
    threads: usize,
}

/// A time that was expected, and what came, in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RunTime {
    /// What the time is of.
    pub phase: RunPhase,
    /// Expected time.
    pub expected: f64,
    /// Measured time.
    pub measured: f64,
}

impl RunTime {
    /// Large enough to tell something.
    fn counts(&self) -> bool {
        self.measured >= TOO_SMALL && self.expected > 0.0
    }
}

/// What a time is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunPhase {
    /// Prompts.
    Prompts,
    /// Steps of one token.
    Steps,
}

/// How far expected times were off.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ErrorBar {
    /// Of ten runs nine were within this part of what was expected.
    pub part: f64,
    /// Runs that are known.
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
        // the least that nine of ten are within
        let at = (9 * runs).div_ceil(10).checked_sub(1)?;
        Some(ErrorBar { part: errors[at], runs })
    }
}

impl File {
    fn read(runtime: &Runtime) -> File {
        let file: Option<File> = runtime.read(FILE);
        file.filter(|file| file.version == VERSION).unwrap_or_default()
    }

    /// The entry of a model, now the latest.
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
    /// This model on as many threads of this machine.
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

    /// Keep what came of expected times, where there was enough work, and unless other programs run.
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

    /// How far off the expected times of this model were; `None` if it never ran here.
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
        // one of twelve is off by half, one by a quarter: eleven are within a quarter
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
