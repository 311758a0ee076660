//! What a model is planned for: this machine as measured, a published one, or figures given by hand.

use std::sync::Arc;

use planner::devices::{self, Device, DeviceMatch};
use planner::formula::{ModelShape, Roofline, Units};
use planner::{Estimate, Machine, Rates};
use program::{CacheStorage, Ceilings, Executor};

use crate::amounts::{self, Amount};
use crate::args::{IsaArgs, ThreadArgs};
use crate::ceilings::KnownCeilings;
use crate::exit::Failure;
use crate::predictions::{ErrorBar, ModelKey, RememberedModel, RunPhase};
use crate::{ceilings, executor, memory, runtime, ui};
use console::args::SuggestedValues;
use executors::{ExecutorKind, ExecutorOptions};

/// Which machine, and in which units its figures are read.
#[derive(clap::Args, Clone, Debug)]
pub(super) struct TargetArgs {
    /// Plan for this device, not this machine: 4090
    ///
    /// Any unique part of its name; --list names the devices
    #[arg(long, value_name = "NAME", value_parser = device_names(), hide_possible_values = true)]
    device: Option<String>,
    /// Memory for weights and cache: 24GB, 24GiB
    ///
    /// By default what is free, or the device's
    #[arg(long, value_name = "BYTES", value_parser = amounts::memory, allow_hyphen_values = true)]
    memory: Option<Amount>,
    /// Memory bandwidth instead of the machine's: 67GB/s
    #[arg(long, value_name = "BYTES/S", value_parser = amounts::amount, allow_hyphen_values = true)]
    bandwidth: Option<Amount>,
    /// Arithmetic of every kind instead of the machine's: 82.58T
    #[arg(long, value_name = "FLOP/S", value_parser = amounts::amount, allow_hyphen_values = true)]
    flops: Option<Amount>,
    /// The units and formulas of the article: M, G and T are powers of 1024, types are w16, w8, w6, w4 without scales, attention has no tiles
    #[arg(long)]
    article_units: bool,
    /// Executor of this machine to plan for: cpu, wgpu or cuda (GPUs; need a build with that feature; expected times need kernels measured by `machine`) [default: cpu]
    #[arg(
        long,
        value_name = "NAME",
        value_enum,
        default_value_t,
        hide_default_value = true,
        hide_possible_values = true
    )]
    executor: ExecutorKind,
    /// The GPU of --executor wgpu or cuda, by a part of its name; by default a card, else what is built in
    #[arg(long, value_name = "NAME")]
    adapter: Option<String>,
    #[command(flatten)]
    threads: ThreadArgs,
    #[command(flatten)]
    isa: IsaArgs,
}

/// Where the figures of this machine come from.
const MEASURED: &str = "measured";

/// A machine to plan for.
pub(super) struct Target {
    /// For people.
    pub(super) name: String,
    /// Where its figures come from: `measured`, `device` or `given`.
    pub(super) source: &'static str,
    /// Other programs ran whenever it was measured.
    pub(super) busy: bool,
    /// Bytes of memory, if known.
    pub(super) memory: Option<f64>,
    /// What the figures' prefixes mean.
    pub(super) units: Units,
    /// What the kernels reach on this machine, as far as that was measured.
    pub(super) rates: Option<Arc<Rates>>,
    figures: Figures,
    bandwidth: Option<f64>,
    /// Multiply-adds per second of every kind.
    macs: Option<f64>,
    /// Whether it is a GPU: prompts are cut in chunks of one size then.
    pub(super) is_gpu: bool,
    /// Whether it is a card beside a processor, whose memory is another.
    pub(super) has_own_memory: bool,
    /// What runs models on it: on this machine.
    pub(super) executor: Option<Box<dyn Executor>>,
}

enum Figures {
    /// Bandwidth depends on how much is read.
    Measured(Ceilings, usize),
    Fixed(Machine),
}

impl TargetArgs {
    pub(super) fn units(&self) -> Units {
        if self.article_units { Units::Article } else { Units::Decimal }
    }

    /// The machine; this one is measured if it was not yet.
    ///
    /// # Errors
    /// [`Failure::Usage`] for an unknown device; a machine that cannot be measured.
    pub(super) fn target(&self) -> anyhow::Result<Target> {
        let units = self.units();
        let value = |amount: Option<Amount>| amount.map(|amount| amount.value(units));
        let bandwidth = value(self.bandwidth);
        let macs = value(self.flops).map(|flops| flops / 2.0);
        let mut target = match (&self.device, bandwidth, macs) {
            (Some(name), _, _) => of_device(name, units)?,
            (None, Some(bandwidth), Some(macs)) => Target {
                name: "the machine given".into(),
                source: "given",
                busy: false,
                memory: memory::available().map(|bytes| bytes as f64),
                units,
                rates: None,
                figures: Figures::Fixed(Machine::uniform(bandwidth, macs)),
                bandwidth: None,
                macs: None,
                is_gpu: false,
                has_own_memory: false,
                executor: None,
            },
            _ => this_machine(&self.options(), units)?,
        };
        let is_gpu = self.executor.is_gpu();
        if self.executor == ExecutorKind::Auto {
            ui::note(
                "--executor auto: planned for the processor; --executor wgpu or cuda plans for a GPU",
            );
        }
        let planned = match (target.source, is_gpu) {
            (MEASURED, true) => "a GPU",
            (MEASURED, false) => "the processor",
            _ => "another machine",
        };
        let of_cpu = planned != "the processor";
        for (flag, idle) in [
            ("-t", of_cpu && self.threads.count().is_some()),
            ("--isa", of_cpu && self.isa.isa.is_some()),
            ("--adapter", planned != "a GPU" && self.adapter.is_some()),
            ("--executor", planned == "another machine" && is_gpu),
        ] {
            if idle {
                ui::warn(&format!("{flag} has no effect: it is {planned} that is planned for"));
            }
        }
        target.memory = value(self.memory).or(target.memory);
        target.bandwidth = bandwidth;
        target.macs = macs;
        if bandwidth.is_some() || macs.is_some() {
            // kernels were not measured on the machine that is made up here
            target.rates = None;
        }
        Ok(target)
    }
}

impl TargetArgs {
    fn options(&self) -> ExecutorOptions {
        ExecutorOptions {
            kind: self.executor,
            threads: console::args::threads_to_start(self.threads.count()),
            isa: self.isa.isa,
            adapter: self.adapter.clone(),
            ..ExecutorOptions::default()
        }
    }
}

/// Any name, of which those that are known are completed as they can be typed.
fn device_names() -> SuggestedValues<String> {
    let typed = |device: &Device| device.name.to_lowercase().replace(' ', "-");
    SuggestedValues::new(devices::DEVICES.iter().map(typed), |name| Ok(name.to_owned()))
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
        has_own_memory: device.memory.is_some(),
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
    Failure::Usage(format!("--device `{}` {verb} {names}", gguf::escape(name, 60))).into()
}

fn this_machine(options: &ExecutorOptions, units: Units) -> anyhow::Result<Target> {
    let started = options
        .start_with(&CacheStorage::default())
        .map_err(|why| executor::not_started(options.kind, why))?;
    let executor = started.executor;
    let gpu = started.gpu.as_ref();
    let memory = match gpu {
        Some(gpu) if !gpu.shares_memory => executor::card_memory(gpu, None).map(|(bytes, _)| bytes),
        _ => memory::available(),
    };
    let kept = ceilings::first_use(runtime(), &*executor, None, None);
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
    /// This machine's processor.
    ///
    /// # Errors
    /// If it cannot be measured.
    pub(super) fn processor() -> anyhow::Result<Target> {
        this_machine(&ExecutorOptions::default(), Units::Decimal)
    }

    /// Seconds in which it answers, where that was measured.
    pub(super) fn submission(&self) -> Option<f64> {
        match &self.figures {
            Figures::Measured(ceilings, _) => Some(ceilings.submission.as_secs_f64()),
            Figures::Fixed(_) => None,
        }
    }

    /// The executor of the GPU of this machine, if it is that.
    pub(super) fn gpu(&self) -> Option<&dyn Executor> {
        self.executor.as_deref().filter(|_| self.is_gpu)
    }

    /// Memory for weights and cache: what is left beside the tables, code and workspace of a run. The article counts
    /// none of those.
    pub(super) fn room(&self) -> Option<f64> {
        self.memory.map(|memory| match self.units {
            Units::Decimal => executor::room(memory),
            Units::Article => memory,
        })
    }

    /// What it can do with a model that reads so many bytes over and over.
    ///
    /// # Errors
    /// A number of threads that was not measured.
    pub(super) fn machine(&self, working_set: u64) -> anyhow::Result<Machine> {
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
    pub(super) fn has_chunk(&self, estimate: &Estimate) -> bool {
        !self.is_gpu && estimate.best_chunk().is_some()
    }

    /// How far off expected times of this model were when it ran here, of prompts and of steps.
    pub(super) fn error_bars(&self, estimate: &Estimate) -> [Option<ErrorBar>; 2] {
        match (&self.executor, &self.figures, estimate) {
            (Some(executor), Figures::Measured(_, threads), Estimate::Counted(c)) => {
                let subject = RememberedModel::new(
                    runtime(),
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
    pub(super) fn roofline(&self, shape: &ModelShape) -> anyhow::Result<Roofline> {
        let machine = self.machine(u64::MAX)?;
        Ok(Roofline::new(shape, machine.bandwidth, 2.0 * machine.f32_macs))
    }
}
