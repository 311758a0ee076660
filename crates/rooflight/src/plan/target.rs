//! The machine to plan for: this one as measured, a published device, or figures given by the caller.

use std::sync::Arc;

use executors::ExecutorOptions;
use planner::devices::{self, Device, DeviceMatch};
use planner::formula::{ModelShape, Roofline, Units};
use planner::{Estimate, Machine, Rates};
use program::{CacheStorage, Ceilings, Executor};

use crate::executor;
use crate::machine::ceilings::{self, KeptCeilings, KnownCeilings};
use crate::machine::memory;
use crate::predictions::{ErrorBar, ModelKey, RememberedModel, RunPhase};
use crate::{Error, Runtime};

/// Which machine to plan for. The default is this machine's processor as measured.
#[derive(Clone, Debug, Default)]
pub struct TargetRequest {
    /// Any unique part of the name of a published device, instead of this machine.
    pub device: Option<String>,
    /// Memory for weights and cache, in bytes, instead of what is free or what the device has.
    pub memory: Option<f64>,
    /// Memory bandwidth, in bytes per second, instead of the machine's.
    pub bandwidth: Option<f64>,
    /// Multiply-adds per second of every kind, instead of the machine's.
    pub macs: Option<f64>,
    /// What the prefixes of figures mean.
    pub units: Units,
    /// What runs models on this machine.
    pub executor: ExecutorOptions,
}

/// [`Target::source`] of a machine that was measured.
pub const MEASURED: &str = "measured";

/// A machine to plan for.
pub struct Target {
    /// For people.
    pub name: String,
    /// Where its figures come from: `measured`, `device` or `given`.
    pub source: &'static str,
    /// Other programs ran whenever it was measured.
    pub busy: bool,
    /// Bytes of memory, if known.
    pub memory: Option<f64>,
    /// What the figures' prefixes mean.
    pub units: Units,
    /// What the kernels reach on this machine, as far as that was measured.
    pub rates: Option<Arc<Rates>>,
    figures: Figures,
    bandwidth: Option<f64>,
    /// Multiply-adds per second of every kind.
    macs: Option<f64>,
    /// Whether it is a GPU: prompts are cut in chunks of one size then.
    pub is_gpu: bool,
    /// Whether it is a card beside a processor, whose memory is another.
    pub has_own_memory: bool,
    /// What runs models on it: on this machine.
    pub executor: Option<Box<dyn Executor>>,
}

enum Figures {
    /// Bandwidth depends on how much is read.
    Measured(Ceilings, usize),
    Fixed(Machine),
}

fn of_device(name: &str, units: Units) -> anyhow::Result<Target> {
    let device = match devices::find(name) {
        DeviceMatch::One(device) => device,
        DeviceMatch::Several(all) => return Err(unknown(name, "could be", &all)),
        DeviceMatch::Nothing => {
            let all: Vec<_> = devices::DEVICES.iter().collect();
            return Err(unknown(name, "is none of", &all));
        }
    };
    let (giga, tera) = (units.giga(1.0) / 1e9, units.tera(1.0) / 1e12);
    let peak = device.machine;
    Ok(Target {
        name: device.name.to_owned(),
        source: "device",
        busy: false,
        memory: device.memory.map(|bytes| bytes * giga),
        units,
        rates: None,
        figures: Figures::Fixed(Machine {
            bandwidth: peak.bandwidth * giga,
            int8_macs: peak.int8_macs * tera,
            f16_macs: peak.f16_macs * tera,
            bf16_macs: peak.bf16_macs * tera,
            f32_macs: peak.f32_macs * tera,
            barrier: peak.barrier,
        }),
        bandwidth: None,
        macs: None,
        is_gpu: false,
        has_own_memory: !device.shares_memory,
        executor: None,
    })
}

/// `--device H100 could be H100 SXM, H100 PCIe or H100 NVL`.
fn unknown(name: &str, verb: &str, all: &[&Device]) -> anyhow::Error {
    let names: Vec<_> = all.iter().map(|device| device.name).collect();
    let names = match &names[..] {
        [some @ .., last] if !some.is_empty() => format!("{} or {last}", some.join(", ")),
        _ => names.concat(),
    };
    Error::Options(format!("--device `{}` {verb} {names}", gguf::escape(name, 60))).into()
}

fn this_machine(
    runtime: &Runtime,
    options: &ExecutorOptions,
    units: Units,
) -> anyhow::Result<Target> {
    measured(options, units, &|executor| ceilings::first_use(runtime, executor, None, None))
}

/// This machine with the ceilings that `kept` returns for its executor.
fn measured(
    options: &ExecutorOptions,
    units: Units,
    kept: &dyn Fn(&dyn Executor) -> Option<KeptCeilings>,
) -> anyhow::Result<Target> {
    let started = options
        .start_with(&CacheStorage::default())
        .map_err(|why| executor::not_started(options.kind, why))?;
    let executor = started.executor;
    let gpu = started.gpu.as_ref();
    let memory = match gpu {
        Some(gpu) if !gpu.shares_memory => executor::card_memory(gpu, None).map(|(bytes, _)| bytes),
        _ => memory::available(),
    };
    let kept = kept(&*executor);
    let known = kept.as_ref().and_then(KnownCeilings::of);
    let (Some(kept), Some(known)) = (kept, known) else {
        anyhow::bail!(
            "this machine could not be measured: give --device, or --bandwidth and --flops"
        );
    };
    Ok(Target {
        name: format!("{}, {}", ceilings::cpu_name(), executor.describe()),
        source: MEASURED,
        busy: known.doubt.is_some() || kept.rates_busy,
        memory: memory.map(|bytes| bytes as f64),
        units,
        rates: kept.rates().map(Arc::new),
        figures: Figures::Measured(known.ceilings, options.n_threads()),
        bandwidth: None,
        macs: None,
        is_gpu: gpu.is_some(),
        has_own_memory: gpu.is_some_and(|gpu| !gpu.shares_memory),
        executor: Some(executor),
    })
}

impl Target {
    /// Finds the machine. This machine is measured if it was not yet.
    ///
    /// # Errors
    /// [`Error::Options`] for an unknown device; a machine that cannot be measured.
    pub fn find(runtime: &Runtime, request: &TargetRequest) -> anyhow::Result<Target> {
        let TargetRequest { device, memory, bandwidth, macs, units, executor } = request;
        let mut target = match (device, *bandwidth, *macs) {
            (Some(name), _, _) => of_device(name, *units)?,
            (None, Some(bandwidth), Some(macs)) => Target {
                name: "the machine given".into(),
                source: "given",
                busy: false,
                memory: memory::available().map(|bytes| bytes as f64),
                units: *units,
                rates: None,
                figures: Figures::Fixed(Machine::uniform(bandwidth, macs)),
                bandwidth: None,
                macs: None,
                is_gpu: false,
                has_own_memory: false,
                executor: None,
            },
            _ => this_machine(runtime, executor, *units)?,
        };
        target.memory = memory.or(target.memory);
        target.bandwidth = *bandwidth;
        target.macs = *macs;
        if bandwidth.is_some() || macs.is_some() {
            // kernels were not measured on the machine that is made up here
            target.rates = None;
        }
        Ok(target)
    }

    /// This machine's processor.
    ///
    /// # Errors
    /// If it cannot be measured.
    pub fn processor(runtime: &Runtime) -> anyhow::Result<Target> {
        this_machine(runtime, &ExecutorOptions::default(), Units::Decimal)
    }

    /// This machine's processor if it was measured already. Nothing is measured.
    pub fn known_processor(runtime: &Runtime) -> Option<Target> {
        let known = |executor: &dyn Executor| ceilings::kept(runtime, executor);
        measured(&ExecutorOptions::default(), Units::Decimal, &known).ok()
    }

    /// Seconds in which it answers, where that was measured.
    pub fn submission(&self) -> Option<f64> {
        match &self.figures {
            Figures::Measured(ceilings, _) => Some(ceilings.submission.as_secs_f64()),
            Figures::Fixed(_) => None,
        }
    }

    /// The executor of the GPU of this machine, if it is that.
    pub fn gpu(&self) -> Option<&dyn Executor> {
        self.executor.as_deref().filter(|_| self.is_gpu)
    }

    /// Memory for weights and cache: what is left beside the tables, code and workspace of a run. The article counts
    /// none of those.
    pub fn room(&self) -> Option<f64> {
        self.memory.map(|memory| match self.units {
            Units::Decimal => executor::room(memory),
            Units::Article => memory,
        })
    }

    /// What it can do with a model that reads so many bytes over and over.
    ///
    /// # Errors
    /// A number of threads that was not measured.
    pub fn machine(&self, working_set: u64) -> anyhow::Result<Machine> {
        let machine = match &self.figures {
            Figures::Fixed(machine) => Some(*machine),
            Figures::Measured(ceilings, threads) => {
                Machine::measured(ceilings, *threads, working_set)
            }
        };
        let Some(machine) = machine else {
            anyhow::bail!(
                "the ceilings kept are not those of this machine: rooflight machine --refresh"
            );
        };
        Ok(Machine {
            bandwidth: self.bandwidth.unwrap_or(machine.bandwidth),
            int8_macs: self.macs.unwrap_or(machine.int8_macs),
            f16_macs: self.macs.unwrap_or(machine.f16_macs),
            bf16_macs: self.macs.unwrap_or(machine.bf16_macs),
            f32_macs: self.macs.unwrap_or(machine.f32_macs),
            ..machine
        })
    }

    /// Whether the size of chunks was measured: a GPU's is the same always.
    pub fn has_chunk(&self, estimate: &Estimate) -> bool {
        !self.is_gpu && estimate.best_chunk().is_some()
    }

    /// How far off expected times of this model were when it ran here, of prompts and of steps.
    pub fn error_bars(&self, runtime: &Runtime, estimate: &Estimate) -> [Option<ErrorBar>; 2] {
        match (&self.executor, &self.figures, estimate) {
            (Some(executor), Figures::Measured(_, threads), Estimate::Counted(c)) => {
                let subject = RememberedModel::new(
                    runtime,
                    &**executor,
                    ModelKey::planned(&c.cost),
                    *threads,
                );
                [RunPhase::Prompts, RunPhase::Steps].map(|phase| subject.error_bar(phase))
            }
            _ => [None, None],
        }
    }

    /// The closed form of a shape on it.
    ///
    /// # Errors
    /// As [`machine`](Self::machine).
    pub fn roofline(&self, shape: &ModelShape) -> anyhow::Result<Roofline> {
        let machine = self.machine(u64::MAX)?;
        Ok(Roofline::new(shape, machine.bandwidth, 2.0 * machine.f32_macs))
    }
}
