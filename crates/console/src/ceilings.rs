//! What is known of the machine: its ceilings, and the rates of our kernels below them. Measured once, kept in the
//! user's cache folder, measured again on demand.

use std::path::PathBuf;
use std::time::Duration;

use planner::{Rates, WantedRates};
use program::{Ceilings, ComputeCeiling, Error, Executor, ReadCeiling};
use quant::GgmlType;
use serde::{Deserialize, Serialize};

use crate::kept_rates::{self, KeptRates, Top};
use crate::{memory, output, ui, units};

/// Of the file; files of other versions are written anew.
const VERSION: u32 = 6;

/// What measured: another version has other kernels, and a build with assertions is slower.
pub const BUILD: &str = if cfg!(debug_assertions) {
    concat!(env!("CARGO_PKG_VERSION"), " debug")
} else {
    env!("CARGO_PKG_VERSION")
};

/// The file: one entry for each processor, number of threads and instruction set, and each build.
#[derive(Debug, Serialize, Deserialize)]
struct File {
    version: u32,
    machines: Vec<KeptCeilings>,
}

/// Ceilings as they are kept: decimal units, whole numbers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KeptCeilings {
    /// The processor and what of it is used: other ceilings belong to another machine.
    pub machine: String,
    build: String,
    read: Vec<Read>,
    compute: Vec<Compute>,
    barrier_nanoseconds: u64,
    /// Of a device.
    #[serde(default, skip_serializing_if = "is_zero")]
    submission_nanoseconds: u64,
    /// Other programs ran whenever these were measured: measured again once they do not.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub busy: bool,
    /// The same of the rates, which are usual times and not the best ones: then they are measured anew.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub rates_busy: bool,
    /// What kernels reach, as far as that was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    rates: Option<KeptRates>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Read {
    threads: usize,
    working_set_bytes: u64,
    bytes_per_second: f64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Compute {
    threads: usize,
    f32_macs_per_second: f64,
    int8_macs_per_second: f64,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl KeptCeilings {
    fn new(machine: String, ceilings: &Ceilings) -> KeptCeilings {
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
            rates: None,
        }
    }

    /// The better figures of both, for other programs only lower them; quiet if one of them was.
    fn best_of(self, old: &KeptCeilings) -> KeptCeilings {
        let (Some(new), Some(best)) = (self.ceilings(), old.ceilings()) else { return self };
        let best = KeptCeilings::new(self.machine.clone(), &new.best_of(&best));
        KeptCeilings {
            busy: self.busy && old.busy,
            rates_busy: self.rates_busy,
            rates: self.rates,
            ..best
        }
    }

    /// Whether it is a GPU, which is given work by submissions.
    fn is_device(&self) -> bool {
        !is_zero(&self.submission_nanoseconds)
    }

    /// The rates; `None` if there are none, or what is there makes no sense.
    pub fn rates(&self) -> Option<Rates> {
        self.rates.as_ref()?.rates()
    }

    /// The ceilings of all threads.
    fn top(&self) -> Top {
        let threads = self.compute.iter().map(|c| c.threads).max().unwrap_or(0);
        let ceilings = self.ceilings().unwrap_or_default();
        let compute = ceilings.compute(threads);
        Top {
            bytes: ceilings.memory_bandwidth(threads).unwrap_or(0.0),
            f32: compute.map_or(0.0, |c| c.f32_macs_per_second),
            int8: compute.map_or(0.0, |c| c.int8_macs_per_second),
        }
    }

    /// Whether so many other threads leave too few cores for those that were measured.
    fn is_crowded_by(&self, others: usize) -> bool {
        let own = self.compute.iter().map(|c| c.threads).max().unwrap_or(1);
        // a device that the processor plays takes all of it
        let own = if self.machine.ends_with(", software") { cores() } else { own };
        others.saturating_add(own) > cores()
    }

    /// The ceilings; `None` if a figure is no positive number.
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

/// The processor's name, or its architecture where the system does not tell.
pub fn cpu_name() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let line = info.lines().find(|line| line.starts_with("model name"));
    let name = line.and_then(|line| line.split_once(':'));
    name.map_or(std::env::consts::ARCH, |(_, name)| name.trim()).to_owned()
}

/// This machine, as far as speeds depend on it.
pub fn machine(executor: &dyn Executor) -> String {
    format!("{}, {}", cpu_name(), executor.describe())
}

/// A file of `$XDG_CACHE_HOME/rooflight`, by default in `~/.cache`.
pub fn cache_file(name: &str) -> Option<PathBuf> {
    let variable =
        |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let cache = variable("XDG_CACHE_HOME").or_else(|| Some(variable("HOME")?.join(".cache")))?;
    Some(cache.join("rooflight").join(name))
}

/// Replace a file of the cache folder, where it can be written; elsewhere nothing is kept, no more.
pub fn replace(name: &str, text: &str) {
    let Some(file) = cache_file(name) else { return };
    let _ = file.parent().map(std::fs::create_dir_all);
    // whoever reads at this moment sees the old file or the new one, no half
    let new = file.with_extension(format!("{}.new", std::process::id()));
    if std::fs::write(&new, text).and_then(|()| std::fs::rename(&new, file)).is_err() {
        let _ = std::fs::remove_file(new);
    }
}

/// The file of ceilings and rates.
const FILE: &str = "machine.json";

/// Every machine that was kept.
fn machines() -> Vec<KeptCeilings> {
    let text = cache_file(FILE).and_then(|file| std::fs::read_to_string(file).ok());
    let file: Option<File> = text.and_then(|text| serde_json::from_str(&text).ok());
    file.filter(|file| file.version == VERSION).map(|file| file.machines).unwrap_or_default()
}

/// What was kept for this executor.
pub fn kept(executor: &dyn Executor) -> Option<KeptCeilings> {
    let name = machine(executor);
    machines().into_iter().find(|kept| kept.machine == name && kept.build == BUILD)
}

/// Keep an entry in place of an older one, where a cache folder can be written; elsewhere the machine is measured again
/// next time, no more.
fn keep(kept: &KeptCeilings) {
    let mut machines = machines();
    machines.retain(|other| (&other.machine, &other.build) != (&kept.machine, &kept.build));
    machines.push(kept.clone());
    if let Ok(text) = serde_json::to_string_pretty(&File { version: VERSION, machines }) {
        replace(FILE, &text);
    }
}

/// What a machine can do at most, as far as that was seen.
#[derive(Clone, Debug, PartialEq)]
pub struct KnownCeilings {
    /// The best of every measurement.
    pub ceilings: Ceilings,
    /// Other programs ran at each of them.
    pub busy: bool,
}

impl KnownCeilings {
    fn of(kept: &KeptCeilings) -> Option<KnownCeilings> {
        Some(KnownCeilings { ceilings: kept.ceilings()?, busy: kept.busy })
    }
}

/// What is kept, without measuring anything.
pub fn known(executor: &dyn Executor) -> Option<KnownCeilings> {
    KnownCeilings::of(&kept(executor)?)
}

/// Measure the ceilings now, with a bar. What is kept is raised to them, never lowered. Rates that were kept stay.
///
/// # Errors
/// An executor without ceilings, or memory.
pub fn measure(executor: &dyn Executor) -> program::Result<KeptCeilings> {
    let new = measured(executor)?;
    let new = match kept(executor) {
        Some(old) => {
            let (rates, rates_busy) = (old.rates.clone(), old.rates_busy);
            KeptCeilings { rates, rates_busy, ..new }.best_of(&old)
        }
        None => new,
    };
    keep(&new);
    Ok(new)
}

/// Measure the ceilings now, with a bar, and forget what was kept: the machine may have changed. If other programs run,
/// that would only lower what is known, and the better figures are kept.
///
/// # Errors
/// An executor without ceilings, or memory.
pub fn refresh(executor: &dyn Executor) -> program::Result<KeptCeilings> {
    let new = measured(executor)?;
    let old = kept(executor).filter(|_| new.busy);
    let new = old.map_or(new.clone(), |old| new.best_of(&old));
    keep(&new);
    Ok(new)
}

/// What is kept, raised to what is measured now.
///
/// # Errors
/// An executor without ceilings, or memory.
pub fn measure_again(executor: &dyn Executor) -> program::Result<KnownCeilings> {
    let known = KnownCeilings::of(&measure(executor)?);
    known.ok_or_else(|| Error::Unsupported("ceilings that are no numbers".into()))
}

/// What is kept of a time when other programs ran is measured again if they do not any more.
fn renew(executor: &dyn Executor) {
    let Some(crowded) = kept(executor).filter(|kept| kept.busy || kept.rates_busy) else { return };
    if !roomy() || crowded.is_crowded_by(others()) {
        return;
    }
    if crowded.rates_busy && !crowded.is_device() {
        // those that are wanted are measured by whoever wants them
        keep(&KeptCeilings { rates: None, rates_busy: false, ..crowded.clone() });
    }
    if crowded.busy {
        // an executor that could be measured once can be again; if not, what is known serves
        let _ = measure(executor);
    }
}

/// Whether other programs leave too few cores for so many threads.
pub fn crowded(threads: usize) -> bool {
    others().saturating_add(threads) > cores()
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Threads of other programs that run now, where the system tells.
fn others() -> usize {
    let running = || {
        let text = std::fs::read_to_string("/proc/loadavg").ok()?;
        let (running, _) = text.split_whitespace().nth(3)?.split_once('/')?;
        running.parse::<usize>().ok()?.checked_sub(1)
    };
    // what runs at one moment only does not matter, nor do our own threads before they sleep
    let looks = (0..4).map(|_| {
        std::thread::sleep(Duration::from_millis(5));
        running().unwrap_or(0)
    });
    looks.min().unwrap_or(0)
}

/// The ceilings of this moment.
fn measured(executor: &dyn Executor) -> program::Result<KeptCeilings> {
    let before = others();
    let bar = ui::count_bar("measuring this machine", 100);
    let ceilings = executor.ceilings(&mut |part| bar.set_position((100.0 * part) as u64));
    bar.finish_and_clear();
    let mut new = KeptCeilings::new(machine(executor), &ceilings?);
    new.busy = new.is_crowded_by(before.max(others()));
    Ok(new)
}

/// Measure the rates of what is `wanted` now, with a bar, and keep them with those that are known.
///
/// # Errors
/// An executor without ceilings or without times of its phases, or memory.
pub fn measure_rates(
    executor: &dyn Executor,
    wanted: &WantedRates,
) -> anyhow::Result<KeptCeilings> {
    let mut kept = match kept(executor) {
        Some(kept) => kept,
        None => measure(executor)?,
    };
    if wanted.is_empty() {
        return Ok(kept);
    }
    let before = others();
    let bar = ui::count_bar("measuring its kernels", 100);
    let measured =
        rates::measure(executor, wanted, &mut |part| bar.set_position((100.0 * part) as u64));
    bar.finish_and_clear();
    let mut rates = kept.rates().unwrap_or_default();
    rates.update(measured?);
    kept.rates_busy |= kept.is_crowded_by(before.max(others()));
    kept.rates = Some(KeptRates::new(&rates));
    keep(&kept);
    Ok(kept)
}

/// What an executor takes for a step of one token through matrices of a type: bytes of these, and seconds.
///
/// # Errors
/// Memory, or an executor that does not have this type.
pub fn step(executor: &dyn Executor, ty: GgmlType) -> program::Result<(u64, f64)> {
    rates::step(executor, ty)
}

/// Whether other programs ran when the rates were measured that are kept.
pub fn rates_busy(executor: &dyn Executor) -> bool {
    kept(executor).is_some_and(|kept| kept.rates_busy)
}

/// The rates that were kept for this executor.
pub fn kept_rates(executor: &dyn Executor) -> Option<Rates> {
    kept(executor)?.rates()
}

/// Rates for all that is `wanted`: kept, or else measured now. `None` where an executor cannot tell, or where measuring
/// would crowd out the model that is loaded.
pub fn rates(executor: &dyn Executor, wanted: &WantedRates) -> Option<Rates> {
    renew(executor);
    let known = kept_rates(executor).unwrap_or_default();
    let missing = known.missing(wanted);
    if missing.is_empty() {
        return Some(known);
    }
    if roomy() { measure_rates(executor, &missing).ok()?.rates() } else { None }
}

/// What was kept, or else measured now; `None` where an executor has no ceilings, or where measuring would crowd out
/// the model that is loaded.
pub fn kept_or_measured(executor: &dyn Executor) -> Option<KnownCeilings> {
    renew(executor);
    let known = kept(executor).or_else(|| {
        let measured = if roomy() { measure(executor).ok() } else { None };
        measured.inspect(|_| warn_unkept(executor))
    });
    KnownCeilings::of(&known?)
}

/// Say so where what was measured could not be kept: every start takes the time again.
pub fn warn_unkept(executor: &dyn Executor) {
    if kept(executor).is_none() {
        let why = match cache_file(FILE) {
            Some(file) => format!("{} cannot be written", output::shown(&file)),
            None => "neither XDG_CACHE_HOME nor HOME is set".to_owned(),
        };
        ui::warn(&format!("what was measured is not kept and will be measured again: {why}"));
    }
}

/// Whether there is memory to measure unasked.
fn roomy() -> bool {
    memory::available().is_none_or(|free| free >= ROOM)
}

/// Free memory below which the machine is not measured unasked: a measurement reads a quarter of a gigabyte.
const ROOM: u64 = 2 << 30;

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
        let lines =
            self.rates().map(|rates| kept_rates::lines(&rates, &self.top())).unwrap_or_default();
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

    /// A quiet figure is not lost in a busy moment, and a busy one counts as such until a quiet moment.
    #[test]
    fn the_best_seen_is_kept() {
        let (quiet, busy) = (of(3e10, false), of(1e10, true));
        assert_eq!(busy.clone().best_of(&quiet), quiet);
        assert_eq!(quiet.clone().best_of(&busy), quiet);
        let luckier = of(4e10, true).best_of(&quiet);
        assert_eq!((luckier.read[0].bytes_per_second, luckier.busy), (4e10, false));
        assert_eq!(of(2e10, true).best_of(&busy), of(2e10, true));
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
