//! `rooflight machine`: what this machine can do at most, and what our kernels reach on it.

use std::io::Write;
use std::time::Duration;

use anyhow::Context as _;
use planner::Wanted;
use quant::GgmlType;

use crate::args::{ExecutorArgs, ThreadArgs};
use crate::executors::ExecutorOptions;
use crate::{ceilings, ui};

/// Measure what this machine can do at most, and what our kernels reach on it
///
/// Read bandwidth, arithmetic and the cost of a barrier: the roof that speeds are compared with: `83 % of limit (memory)` after a reply means 83 % of what bandwidth allows.
/// Below it the rates of our own kernels, by type of weights and by shape of attention: from them come expected times, and the chunk in which prompts are cut.
/// All is measured once, in some seconds, and kept in the user's cache folder.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Examples:\n  rooflight machine\n  rooflight machine --refresh --json\n  rooflight machine -t 1 --types Q4_K,Q6_K"
)]
pub(crate) struct Machine {
    /// Measure again although figures were kept
    #[arg(long)]
    refresh: bool,
    /// Print JSON: bytes, seconds and multiply-adds per second
    #[arg(long)]
    json: bool,
    /// Measure kernels of these types of weights only, and no attention
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = weight_type)]
    types: Vec<GgmlType>,
    #[command(flatten)]
    threads: ThreadArgs,
    #[command(flatten)]
    executor: ExecutorArgs,
}

impl Machine {
    pub(crate) fn run(self, out: &mut dyn Write) -> anyhow::Result<()> {
        let (kind, isa) = (self.executor.executor, self.executor.isa);
        let options = ExecutorOptions { kind, threads: self.threads.threads, isa };
        let others = others();
        let executor = options.start();
        let kept = if self.refresh { None } else { ceilings::kept(&*executor) };
        let kept = match kept {
            Some(kept) => kept,
            None => ceilings::measure(&*executor).context("measuring this machine")?,
        };
        let wanted = if self.types.is_empty() {
            Wanted::everything()
        } else {
            Wanted { types: self.types, ..Wanted::default() }
        };
        let known = if self.refresh { None } else { kept.rates() };
        let missing = known.unwrap_or_default().missing(&wanted);
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        if !missing.is_empty() && others + options.n_threads() > cores {
            ui::warn(
                "other programs run: what is measured now is too low, --refresh measures again",
            );
        }
        let kept = ceilings::measure_rates(&*executor, &missing).context("measuring kernels")?;
        if self.json {
            writeln!(out, "{}", serde_json::to_string_pretty(&kept)?)?;
        } else {
            writeln!(out, "{kept}")?;
        }
        Ok(())
    }
}

/// Threads of other programs that run now, where the system tells; this one does nothing yet.
fn others() -> usize {
    let running = || {
        let text = std::fs::read_to_string("/proc/loadavg").ok()?;
        let (running, _) = text.split_whitespace().nth(3)?.split_once('/')?;
        running.parse::<usize>().ok()?.checked_sub(1)
    };
    // what runs at one moment only does not matter
    let looks = (0..4).map(|_| {
        std::thread::sleep(Duration::from_millis(5));
        running().unwrap_or(0)
    });
    looks.min().unwrap_or(0)
}

/// A type that weights can have, by its name.
fn weight_type(name: &str) -> Result<GgmlType, String> {
    let names = || quant::FORMATS.iter().map(|f| f.ty().name()).collect::<Vec<_>>().join(", ");
    let ty = GgmlType::from_name(name).filter(|ty| quant::format(*ty).is_some());
    ty.ok_or_else(|| format!("expected one of {}", names()))
}
