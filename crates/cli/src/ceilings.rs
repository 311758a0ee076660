//! The machine's ceilings: measured once, kept in the user's cache folder, measured again on demand.

use std::path::PathBuf;
use std::time::Duration;

use program::{Ceilings, ComputeCeiling, Executor, ReadCeiling};
use serde::{Deserialize, Serialize};

use crate::{memory, ui, units};

/// Ceilings as they are kept: decimal units, whole numbers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Kept {
    /// The processor and what of it is used: other ceilings belong to another machine.
    pub(crate) machine: String,
    read: Vec<Read>,
    compute: Vec<Compute>,
    barrier_nanoseconds: u64,
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

impl Kept {
    fn new(machine: String, ceilings: &Ceilings) -> Kept {
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
        Kept {
            machine,
            read: ceilings.read.iter().map(read).collect(),
            compute: ceilings.compute.iter().map(compute).collect(),
            barrier_nanoseconds: ceilings.barrier.as_nanos() as u64,
        }
    }

    /// The ceilings; `None` if a figure is no positive number.
    pub(crate) fn ceilings(&self) -> Option<Ceilings> {
        let figures = self.read.iter().map(|r| r.bytes_per_second);
        let mut figures = figures.chain(
            self.compute.iter().flat_map(|c| [c.f32_macs_per_second, c.int8_macs_per_second]),
        );
        if !figures.all(|x| x.is_finite() && x >= 0.0) {
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
        })
    }
}

/// The processor's name, or its architecture where the system does not tell.
pub(crate) fn cpu_name() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let line = info.lines().find(|line| line.starts_with("model name"));
    let name = line.and_then(|line| line.split_once(':'));
    name.map_or(std::env::consts::ARCH, |(_, name)| name.trim()).to_owned()
}

fn machine(executor: &dyn Executor) -> String {
    format!("{}, {}", cpu_name(), executor.describe())
}

/// `$XDG_CACHE_HOME/rooflight/machine.json`, by default in `~/.cache`.
fn file() -> Option<PathBuf> {
    let variable =
        |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let cache = variable("XDG_CACHE_HOME").or_else(|| Some(variable("HOME")?.join(".cache")))?;
    Some(cache.join("rooflight").join("machine.json"))
}

/// What was kept for this executor.
pub(crate) fn kept(executor: &dyn Executor) -> Option<Kept> {
    let text = std::fs::read_to_string(file()?).ok()?;
    let kept: Kept = serde_json::from_str(&text).ok()?;
    (kept.machine == machine(executor)).then_some(kept)
}

/// Measure now, with a bar; the result is kept where a cache folder can be written.
///
/// # Errors
/// An executor without ceilings, or memory.
pub(crate) fn measure(executor: &dyn Executor) -> program::Result<Kept> {
    let bar = ui::count_bar("measuring this machine", 100);
    let ceilings = executor.ceilings(&mut |part| bar.set_position((100.0 * part) as u64));
    bar.finish_and_clear();
    let kept = Kept::new(machine(executor), &ceilings?);
    if let (Some(file), Ok(text)) = (file(), serde_json::to_string_pretty(&kept)) {
        // without a cache folder the machine is measured again next time, no more
        let _ = file.parent().map(std::fs::create_dir_all);
        let _ = std::fs::write(file, text);
    }
    Ok(kept)
}

/// What was kept, or else measured now; `None` where an executor has no ceilings, or where measuring would crowd out
/// the model that is loaded.
pub(crate) fn kept_or_measured(executor: &dyn Executor) -> Option<Ceilings> {
    let roomy = || memory::available().is_none_or(|free| free >= ROOM);
    kept(executor).or_else(|| if roomy() { measure(executor).ok() } else { None })?.ceilings()
}

/// Free memory below which the machine is not measured unasked: a measurement reads a quarter of a gigabyte.
const ROOM: u64 = 2 << 30;

impl std::fmt::Display for Kept {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "{}", self.machine)?;
        for r in &self.read {
            let set = units::bytes(r.working_set_bytes);
            let plural = if r.threads == 1 { "" } else { "s" };
            writeln!(
                f,
                "read {set:>9}  {} thread{plural}  {:8.1} GB/s",
                r.threads,
                r.bytes_per_second / 1e9
            )?;
        }
        for c in &self.compute {
            let plural = if c.threads == 1 { "" } else { "s" };
            let (float, int8) = (2e-9 * c.f32_macs_per_second, 2e-9 * c.int8_macs_per_second);
            writeln!(
                f,
                "compute         {} thread{plural}  {float:8.1} GFLOP/s f32  {int8:8.1} GOP/s int8",
                c.threads
            )?;
        }
        write!(f, "barrier                    {:8} ns", self.barrier_nanoseconds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        };
        let kept = Kept::new("a CPU, 2 threads".into(), &ceilings);
        let text = serde_json::to_string(&kept).expect("plain numbers");
        let back: Kept = serde_json::from_str(&text).expect("what was written");
        assert_eq!(back.ceilings(), Some(ceilings));
        assert!(
            back.to_string().contains("30.0 GB/s") && back.to_string().contains("160 ns"),
            "{back}"
        );
        let mut broken = back;
        broken.read[0].bytes_per_second = -1.0;
        assert_eq!(broken.ceilings(), None);
    }
}
