//! Options that say which machine to plan for.

use console::args::SuggestedValues;
use executors::{ExecutorKind, ExecutorOptions};
use planner::devices::{self, Device};
use planner::formula::Units;
use rooflight::plan::{MEASURED, Target, TargetRequest};

use crate::amounts::{self, Amount};
use crate::args::{IsaArgs, ThreadArgs};
use crate::{runtime, ui};

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

impl TargetArgs {
    /// The machine; this one is measured if it was not yet.
    ///
    /// # Errors
    /// [`rooflight::Error::Options`] for an unknown device; a machine that cannot be measured.
    pub(super) fn target(&self) -> anyhow::Result<Target> {
        let units = if self.article_units { Units::Article } else { Units::Decimal };
        let value = |amount: Option<Amount>| amount.map(|amount| amount.value(units));
        let target = Target::find(
            runtime(),
            &TargetRequest {
                device: self.device.clone(),
                memory: value(self.memory),
                bandwidth: value(self.bandwidth),
                macs: value(self.flops).map(|flops| flops / 2.0),
                units,
                executor: self.options(),
            },
        )?;
        self.tell_idle(&target);
        Ok(target)
    }

    /// Warns about options that have no effect on a plan for this machine.
    fn tell_idle(&self, target: &Target) {
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
    }

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

/// Parser of `--device`. It accepts any name; the shell completes the known devices.
fn device_names() -> SuggestedValues<String> {
    let typed = |device: &Device| device.name.to_lowercase().replace(' ', "-");
    SuggestedValues::new(devices::DEVICES.iter().map(typed), |name| Ok(name.to_owned()))
}
