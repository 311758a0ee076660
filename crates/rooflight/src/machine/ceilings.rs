//! Ceilings of this machine, rates of the kernels below them, and whether the ceilings are reliable.
//!
//! They are stored in the user's cache folder. `measuring.rs` measures them.

use std::time::Duration;

use planner::{Machine, Rates};
use program::{Ceilings, ComputeCeiling, Executor, ReadCeiling};
use quant::GgmlType;
use serde::{Deserialize, Serialize};

use super::kept_rates::{self, KeptRates, Top};
use super::measuring;
use crate::notices::Topic;
use crate::{Runtime, units};

pub use super::measuring::{
    MeasureStop, crowded, first_use, kept_or_measured, measure, measure_again, measure_rates,
    rates, refresh, settle, step,
};

/// Version of the file. Files of other versions are replaced.
const VERSION: u32 = 7;

/// Build that measured: other versions have other kernels, and builds with assertions are slower.
pub const BUILD: &str = if cfg!(debug_assertions) {
    concat!(env!("CARGO_PKG_VERSION"), " debug")
} else {
    env!("CARGO_PKG_VERSION")
};

/// Content of the file: one entry for each processor, number of threads, instruction set and build.
#[derive(Debug, Serialize, Deserialize)]
struct File {
    version: u32,
    machines: Vec<KeptCeilings>,
}

/// A stored entry: ceilings and rates of one machine, in decimal units.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KeptCeilings {
    /// Name of the processor and of the executor. Other names are other machines with their own ceilings.
    pub machine: String,
    pub(crate) build: String,
    pub(crate) read: Vec<Read>,
    pub(crate) compute: Vec<Compute>,
    pub(crate) barrier_nanoseconds: u64,
    /// Latency of a submission; 0 for a processor.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) submission_nanoseconds: u64,
    /// Whether other programs ran during every measurement of the ceilings. If so, they are measured again when the machine is
    /// idle.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub busy: bool,
    /// Whether other programs ran while the rates were measured. If so, they are discarded and measured again when the machine
    /// is idle, because rates are typical times, not best times.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub rates_busy: bool,
    /// Whether the measurement was stopped before all numbers of threads were measured.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) partial: bool,
    /// Whether a run was faster than these ceilings allow.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) exceeded: bool,
    /// Number of times that the ceilings were measured again because a run was faster.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) renewals: u64,
    /// Whether the user has been told that the ceilings are unreliable.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) told: bool,
    /// Weight types whose rates an automatic measurement skipped, because its time limit was reached or the user stopped it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) skipped: Vec<String>,
    /// Measured rates of the kernels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) rates: Option<KeptRates>,
}

/// Reason why percentages of a machine's ceilings are unreliable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doubt {
    /// Other programs ran during every measurement.
    Busy,
    /// A run was faster than the ceilings allow.
    Exceeded,
}

impl Doubt {
    /// Returns a message for the user, in one line: what is unknown, why, and what to do.
    pub fn message(self) -> &'static str {
        match self {
            Doubt::Busy => {
                "limits not known yet: other programs ran; try rooflight machine --refresh"
            }
            Doubt::Exceeded => {
                "limits not known: a run was faster; try rooflight machine --refresh"
            }
        }
    }
}

/// Factor by which two measurements of the same quantity may differ. The figure of all threads may be lower than that of one
/// thread by this factor, and a rate may be higher than its ceiling by this factor.
pub const NOISE: f64 = 1.05;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Read {
    threads: usize,
    working_set_bytes: u64,
    bytes_per_second: f64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Compute {
    threads: usize,
    f32_macs_per_second: f64,
    int8_macs_per_second: f64,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl KeptCeilings {
    pub(crate) fn new(machine: String, ceilings: &Ceilings) -> KeptCeilings {
        let read = |r: &ReadCeiling| Read {
            threads: r.threads,
            working_set_bytes: r.working_set,
            bytes_per_second: r.bytes_per_second.round(),
        };
        let compute = |c: &ComputeCeiling| Compute {
            threads: c.threads,
            f32_macs_per_second: c.f32_macs_per_second.round(),
            int8_macs_per_second: c.int8_macs_per_second.round(),
        };
        KeptCeilings {
            machine,
            build: BUILD.to_owned(),
            read: ceilings.read.iter().map(read).collect(),
            compute: ceilings.compute.iter().map(compute).collect(),
            barrier_nanoseconds: ceilings.barrier.as_nanos() as u64,
            submission_nanoseconds: ceilings.submission.as_nanos() as u64,
            busy: false,
            rates_busy: false,
            partial: false,
            exceeded: false,
            renewals: 0,
            told: false,
            skipped: Vec::new(),
            rates: None,
        }
    }

    /// Returns the better figures of two measurements, since other programs only lower them. The result is not busy if one of
    /// the measurements was not.
    pub(crate) fn best_of(self, old: &KeptCeilings) -> KeptCeilings {
        let (Some(new), Some(best)) = (self.ceilings(), old.ceilings()) else { return self };
        // a measurement that was stopped early may lack figures of the earlier one
        let (new, best) = if self.partial { (best, new) } else { (new, best) };
        let best = KeptCeilings::new(self.machine.clone(), &new.best_of(&best));
        // a measurement that was stopped early does not replace the figures that it lacks
        let is_renewed = !self.busy && !self.partial;
        let busy = old.busy && !is_renewed;
        KeptCeilings {
            busy,
            partial: self.partial && old.partial,
            exceeded: old.exceeded && !is_renewed,
            renewals: old.renewals + u64::from(old.exceeded && is_renewed),
            told: old.told && busy,
            rates_busy: self.rates_busy,
            skipped: self.skipped,
            rates: self.rates,
            ..best
        }
    }

    /// Returns why percentages of these ceilings are unreliable, or `None` if they are reliable.
    pub fn doubt(&self) -> Option<Doubt> {
        match self.busy || !self.is_consistent() {
            true => Some(Doubt::Busy),
            false => self.exceeded.then_some(Doubt::Exceeded),
        }
    }

    /// Returns whether all threads together are as fast as one thread. If not, other programs disturbed the measurement.
    fn is_consistent(&self) -> bool {
        let threads = self.most_threads().unwrap_or(0);
        let (Some(ceilings), true) = (self.ceilings(), threads > 1) else { return true };
        let (Some(one), Some(all)) = (ceilings.compute(1), ceilings.compute(threads)) else {
            return true;
        };
        let memory = |n| ceilings.memory_bandwidth(n).unwrap_or(0.0);
        [
            (one.f32_macs_per_second, all.f32_macs_per_second),
            (one.int8_macs_per_second, all.int8_macs_per_second),
            (memory(1), memory(threads)),
        ]
        .iter()
        .all(|(one, all)| all * NOISE >= *one)
    }

    /// Returns the weight types whose kernels were faster than the ceilings allow: one of the two measurements was disturbed.
    pub(crate) fn types_above(&self) -> Vec<GgmlType> {
        self.rates().map_or_else(Vec::new, |rates| kept_rates::types_above(&rates, &self.top()))
    }

    /// Returns whether all numbers of threads were measured.
    pub fn is_whole(&self) -> bool {
        !self.partial
    }

    /// Returns whether this entry belongs to a GPU, which receives work by submissions.
    pub(crate) fn is_device(&self) -> bool {
        !is_zero(&self.submission_nanoseconds)
    }

    /// Returns the rates. Returns `None` if there are none, or if the stored ones are invalid.
    pub fn rates(&self) -> Option<Rates> {
        self.rates.as_ref()?.rates()
    }

    /// Returns the largest number of threads whose compute ceilings were measured.
    fn most_threads(&self) -> Option<usize> {
        self.compute.iter().map(|c| c.threads).max()
    }

    /// Returns the ceilings of all threads.
    fn top(&self) -> Top {
        let threads = self.most_threads().unwrap_or(0);
        let ceilings = self.ceilings().unwrap_or_default();
        let compute = ceilings.compute(threads);
        // caches hold a part of the matrices that were used to measure the rates
        let machine = Machine::measured(&ceilings, threads, rates::FAR);
        Top {
            bytes: machine.map_or(0.0, |machine| machine.bandwidth),
            f32: compute.map_or(0.0, |c| c.f32_macs_per_second),
            int8: compute.map_or(0.0, |c| c.int8_macs_per_second),
        }
    }

    /// Returns whether `others` running threads leave too few cores for the threads of this entry.
    pub(crate) fn is_crowded_by(&self, others: usize) -> bool {
        let cores = measuring::cores();
        let own = self.most_threads().unwrap_or(1);
        // a software GPU uses all cores
        let own = if self.machine.ends_with(", software") { cores } else { own };
        others.saturating_add(own) > cores
    }

    /// Returns the ceilings. Returns `None` if a figure is not a positive number.
    pub fn ceilings(&self) -> Option<Ceilings> {
        let figures = self.read.iter().map(|r| r.bytes_per_second);
        let mut figures = figures.chain(
            self.compute.iter().flat_map(|c| [c.f32_macs_per_second, c.int8_macs_per_second]),
        );
        if !figures.all(|x| x.is_finite() && x > 0.0) {
            return None;
        }
        let read = |r: &Read| ReadCeiling {
            threads: r.threads,
            working_set: r.working_set_bytes,
            bytes_per_second: r.bytes_per_second,
        };
        let compute = |c: &Compute| ComputeCeiling {
            threads: c.threads,
            f32_macs_per_second: c.f32_macs_per_second,
            int8_macs_per_second: c.int8_macs_per_second,
        };
        Some(Ceilings {
            read: self.read.iter().map(read).collect(),
            compute: self.compute.iter().map(compute).collect(),
            barrier: Duration::from_nanos(self.barrier_nanoseconds),
            submission: Duration::from_nanos(self.submission_nanoseconds),
        })
    }
}

/// Returns the name of the processor, or its architecture if the system does not report a name.
pub fn cpu_name() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let line = info.lines().find(|line| line.starts_with("model name"));
    let name = line.and_then(|line| line.split_once(':'));
    name.map_or(std::env::consts::ARCH, |(_, name)| name.trim()).to_owned()
}

/// Returns the name under which measurements of this machine and executor are stored.
pub fn machine(executor: &dyn Executor) -> String {
    format!("{}, {}", cpu_name(), executor.describe())
}

/// Name of the file with ceilings and rates.
const FILE: &str = "machine.json";

/// Returns all stored entries.
fn machines(runtime: &Runtime) -> Vec<KeptCeilings> {
    let file: Option<File> = runtime.read(FILE);
    file.filter(|file| file.version == VERSION).map(|file| file.machines).unwrap_or_default()
}

/// Returns the stored entry of this executor and build.
pub fn kept(runtime: &Runtime, executor: &dyn Executor) -> Option<KeptCeilings> {
    let name = machine(executor);
    machines(runtime).into_iter().find(|kept| kept.machine == name && kept.build == BUILD)
}

/// Stores an entry and replaces the older one. If that fails, the machine is measured again next time.
pub(crate) fn keep(runtime: &Runtime, kept: &KeptCeilings) {
    let mut machines = machines(runtime);
    machines.retain(|other| (&other.machine, &other.build) != (&kept.machine, &kept.build));
    machines.push(kept.clone());
    runtime.write(FILE, &File { version: VERSION, machines });
}

/// Known ceilings of a machine.
#[derive(Clone, Debug, PartialEq)]
pub struct KnownCeilings {
    /// The best figures of all measurements.
    pub ceilings: Ceilings,
    /// Reason why percentages of these ceilings are unreliable, if they are.
    pub doubt: Option<Doubt>,
}

impl KnownCeilings {
    /// Returns the ceilings of a stored entry. Returns `None` if a figure is not a positive number.
    pub fn of(kept: &KeptCeilings) -> Option<KnownCeilings> {
        Some(KnownCeilings { ceilings: kept.ceilings()?, doubt: kept.doubt() })
    }
}

/// Returns the stored rates of this executor.
pub fn kept_rates(runtime: &Runtime, executor: &dyn Executor) -> Option<Rates> {
    kept(runtime, executor)?.rates()
}

/// Records that a run was faster than the ceilings of this machine allow. `machine` is its name.
pub fn note_exceeded(runtime: &Runtime, machine: &str) {
    let found =
        machines(runtime).into_iter().find(|kept| kept.machine == machine && kept.build == BUILD);
    if let Some(kept) = found.filter(|kept| !kept.exceeded) {
        keep(runtime, &KeptCeilings { exceeded: true, told: true, ..kept });
    }
}

/// Reports that percentages of the ceilings are unreliable, if they are: once for each stored entry, or every time if `again`
/// is true.
pub fn tell_doubt(runtime: &Runtime, kept: &KeptCeilings, again: bool) {
    if let Some(doubt) = kept.doubt().filter(|_| again || !kept.told) {
        runtime.note(Topic::Doubt, doubt.message());
        if !kept.told {
            keep(runtime, &KeptCeilings { told: true, ..kept.clone() });
        }
    }
}

impl std::fmt::Display for KeptCeilings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "{}", self.machine)?;
        let is_device = self.is_device();
        let by = |threads: usize| match threads {
            _ if is_device => String::new(),
            1 => "1 thread".to_owned(),
            n => format!("{n} threads"),
        };
        for r in &self.read {
            let (set, rate) = (units::bytes(r.working_set_bytes), r.bytes_per_second / 1e9);
            writeln!(f, "read {set:>9}  {:<9}  {rate:8.1} GB/s", by(r.threads))?;
        }
        for c in &self.compute {
            let (float, int8) = (2e-9 * c.f32_macs_per_second, 2e-9 * c.int8_macs_per_second);
            let by = by(c.threads);
            writeln!(f, "compute         {by:<9}  {float:8.1} GFLOP/s f32  {int8:8.1} GOP/s int8")?;
        }
        let alone = if is_device { "dispatch" } else { "barrier" };
        write!(f, "{alone:<10}                 {:8} ns", self.barrier_nanoseconds)?;
        if is_device {
            write!(f, "\nsubmission                 {:8} ns", self.submission_nanoseconds)?;
        }
        // percentages of doubtful ceilings are unreliable
        let top = if self.doubt().is_none() { self.top() } else { Top::default() };
        let lines = self.rates().map(|rates| kept_rates::lines(&rates, &top)).unwrap_or_default();
        lines.iter().try_for_each(|line| write!(f, "\n{line}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(bytes_per_second: f64, busy: bool) -> KeptCeilings {
        let ceilings = Ceilings {
            read: vec![ReadCeiling { threads: 2, working_set: 4096, bytes_per_second }],
            compute: vec![ComputeCeiling {
                threads: 2,
                f32_macs_per_second: 1e11,
                int8_macs_per_second: 4e11,
            }],
            barrier: Duration::from_nanos(160),
            submission: Duration::from_micros(70),
        };
        KeptCeilings { busy, ..KeptCeilings::new("a CPU, 2 threads".into(), &ceilings) }
    }

    /// A busy measurement does not replace a quiet one, and an entry stays busy until a quiet measurement.
    #[test]
    fn the_best_seen_is_kept() {
        let (quiet, busy) = (of(3e10, false), of(1e10, true));
        assert_eq!(busy.clone().best_of(&quiet), quiet);
        assert_eq!(quiet.clone().best_of(&busy), quiet);
        let luckier = of(4e10, true).best_of(&quiet);
        assert_eq!((luckier.read[0].bytes_per_second, luckier.busy), (4e10, false));
        assert_eq!(of(2e10, true).best_of(&busy), of(2e10, true));
    }

    /// Percentages are reliable only if nothing disturbed the measurement and no later run was faster.
    #[test]
    fn doubtful_ceilings_are_known_as_such() {
        let quiet = of(3e10, false);
        assert_eq!(quiet.doubt(), None);
        assert_eq!(of(3e10, true).doubt(), Some(Doubt::Busy));
        let exceeded = KeptCeilings { exceeded: true, ..quiet.clone() };
        assert_eq!(exceeded.doubt(), Some(Doubt::Exceeded));
        // only a new measurement on an idle machine makes them reliable
        assert_eq!(of(2e10, true).best_of(&exceeded).doubt(), Some(Doubt::Exceeded));
        let again = of(4e10, false).best_of(&exceeded);
        assert_eq!((again.doubt(), again.renewals), (None, 1));
        // two threads that are slower than one: 502 of 702 GOP/s
        let mut slower = quiet.clone();
        slower.compute.push(Compute {
            threads: 1,
            f32_macs_per_second: 1e11,
            int8_macs_per_second: 5.6e11,
        });
        assert_eq!(slower.doubt(), Some(Doubt::Busy));
        for doubt in [Doubt::Busy, Doubt::Exceeded] {
            assert!(doubt.message().contains("rooflight machine --refresh"));
        }
    }

    /// A stopped measurement is merged with the figures of an earlier one.
    #[test]
    fn a_stopped_measurement_loses_nothing() {
        let mut whole = of(3e10, false);
        whole.compute.insert(
            0,
            Compute { threads: 1, f32_macs_per_second: 9e10, int8_macs_per_second: 3e11 },
        );
        let partial = KeptCeilings { partial: true, ..of(4e10, false) };
        let best = partial.best_of(&whole);
        assert_eq!(
            (best.compute.len(), best.read[0].bytes_per_second, best.partial),
            (2, 4e10, false)
        );
    }

    #[test]
    fn ceilings_are_kept_as_measured_and_nonsense_is_refused() {
        let ceilings = Ceilings {
            read: vec![ReadCeiling { threads: 2, working_set: 4096, bytes_per_second: 3e10 }],
            compute: vec![ComputeCeiling {
                threads: 2,
                f32_macs_per_second: 1e11,
                int8_macs_per_second: 4e11,
            }],
            barrier: Duration::from_nanos(160),
            submission: Duration::from_micros(70),
        };
        let kept = KeptCeilings::new("a CPU, 2 threads".into(), &ceilings);
        let text = serde_json::to_string(&kept).expect("plain numbers");
        let back: KeptCeilings = serde_json::from_str(&text).expect("what was written");
        assert_eq!(back.ceilings(), Some(ceilings));
        assert!(
            back.to_string().contains("30.0 GB/s") && back.to_string().contains("160 ns"),
            "{back}"
        );
        assert!(back.is_crowded_by(1 << 20) && !back.busy);
        let mut broken = back;
        broken.read[0].bytes_per_second = -1.0;
        assert_eq!(broken.ceilings(), None);
    }
}
