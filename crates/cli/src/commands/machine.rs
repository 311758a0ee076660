//! `rooflight machine`: what this machine can do at most, and what our kernels reach on it.

use std::io::Write;

use anyhow::Context as _;
use executors::ExecutorKind;
use planner::WantedRates;
use program::CacheStorage;
use quant::GgmlType;
use serde::Serialize;

use crate::args::ThreadArgs;
use crate::ceilings::{Doubt, KeptCeilings};
use crate::executor_args::ExecutorArgs;
use crate::tuned::{self, KeptShape, TuneWhen};
use crate::{ceilings, runtime, ui};

/// Measure this machine's limits, and what our kernels reach
///
/// Measures read bandwidth, arithmetic and the cost of a barrier, or of a dispatch and a submission to a GPU. Speeds are compared with this roof: `83 % of limit (memory)` after a reply means 83 % of what bandwidth allows. Shares are shown only if no other program ran meanwhile and no run was faster since.
/// Below it the rates of our own kernels, by type of weights and by shape of attention: from them come expected times, and the chunk in which prompts are cut on the processor. Those of a GPU are measured by this command alone, if it writes timestamps; of one that the processor plays that takes minutes.
/// Everything is measured once, in about half a minute, and kept in the user's cache folder; of ceilings, the best. Other commands measure what they need at first use, in five seconds at most. Figures measured while other programs ran are measured again by the first command that finds the machine quiet.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Examples:\n  rooflight machine\n  rooflight machine --refresh --json\n  rooflight machine --all\n  rooflight machine -t 1 --types Q4_K,Q6_K"
)]
pub(super) struct Machine {
    /// Measure again and forget what was kept, unless other programs run
    #[arg(long)]
    refresh: bool,
    /// Print JSON: bytes, seconds and multiply-adds per second
    #[arg(long)]
    json: bool,
    /// Measure kernels of every type of weights and of cache, not only of the usual ones
    #[arg(long)]
    all: bool,
    /// Measure kernels of these types of weights only, and no attention
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = weight_type, conflicts_with = "all")]
    types: Vec<GgmlType>,
    #[command(flatten)]
    threads: ThreadArgs,
    #[command(flatten)]
    executor: ExecutorArgs,
}

impl Machine {
    pub(crate) fn run(mut self, out: &mut dyn Write) -> anyhow::Result<()> {
        // a GPU is measured where it is asked for
        self.executor.executor.get_or_insert(ExecutorKind::Cpu);
        let kind = self.executor.kind();
        let warnings = match kind {
            ExecutorKind::Wgpu | ExecutorKind::Cuda => self.executor.warnings_without_model(),
            _ => self.executor.warnings(kind),
        };
        warnings.iter().for_each(|warning| ui::warn(warning));
        if kind == ExecutorKind::Auto {
            ui::note(
                "--executor auto: the processor is measured; --executor wgpu or cuda measures a GPU",
            );
        }
        if self.executor.mla.is_some() {
            ui::warn(
                "--mla has no effect: no latent attention is measured here; rooflight-lab bench-mla does that",
            );
        }
        let threads = console::args::threads_to_start(self.threads.count());
        let started = self.executor.options(threads).start_with(&CacheStorage::default())?;
        let executor = &*started.executor;
        let kept = match (self.refresh, ceilings::kept(runtime(), executor)) {
            (false, Some(kept)) if kept.is_whole() => kept,
            (true, _) => {
                ceilings::refresh(runtime(), executor).context("measuring this machine")?
            }
            (false, _) => {
                ceilings::measure(runtime(), executor).context("measuring this machine")?
            }
        };
        let wanted = match (self.all, self.types) {
            (true, _) => WantedRates::everything(),
            (false, types) if types.is_empty() => WantedRates::usual(),
            (false, types) => WantedRates { types, ..WantedRates::default() },
        };
        let when = if self.refresh { TuneWhen::Again } else { TuneWhen::Always };
        let types = wanted.types.iter().copied().collect();
        let shapes: Vec<_> =
            tuned::apply(runtime(), &started, &types, when).iter().map(KeptShape::from).collect();
        let known = if self.refresh { None } else { kept.rates() };
        let missing = known.unwrap_or_default().missing(&wanted);
        let kept = match ceilings::measure_rates(runtime(), executor, &missing) {
            Err(why) if kind.is_gpu() && is_unsupported(&why) => {
                ui::warn(&format!("kernels are not measured: {why:#}"));
                kept
            }
            measured => measured.context("measuring kernels")?,
        };
        if !missing.is_empty() {
            ceilings::settle(runtime(), executor)
                .context("measuring again what was above its ceiling")?;
        }
        let kept = ceilings::kept(runtime(), executor).unwrap_or(kept);
        let again = match kind {
            ExecutorKind::Wgpu | ExecutorKind::Cuda => "--refresh measures them again",
            _ => "they are measured again when the machine is quiet",
        };
        match kept.doubt() {
            Some(Doubt::Exceeded) => ui::warn(Doubt::Exceeded.message()),
            doubt if doubt.is_some() || kept.rates_busy => ui::warn(&format!(
                "other programs ran: these figures are too low and have no shares of limits; {again}"
            )),
            _ => {}
        }
        if self.json {
            let page = Page { kept: &kept, kernel_shapes: &shapes };
            writeln!(out, "{}", serde_json::to_string_pretty(&page)?)?;
        } else {
            writeln!(out, "{kept}")?;
            shapes.iter().try_for_each(|shape| writeln!(out, "{shape}"))?;
        }
        Ok(())
    }
}

/// What is printed as JSON.
#[derive(Serialize)]
struct Page<'a> {
    #[serde(flatten)]
    kept: &'a KeptCeilings,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    kernel_shapes: &'a [KeptShape],
}

/// Whether that is no failure: an adapter that writes no timestamps has ceilings all the same.
fn is_unsupported(why: &anyhow::Error) -> bool {
    matches!(why.downcast_ref(), Some(program::Error::Unsupported(_)))
}

/// A type that weights can have, by its name.
fn weight_type(name: &str) -> Result<GgmlType, String> {
    let names = || quant::FORMATS.iter().map(|f| f.ty().name()).collect::<Vec<_>>().join(", ");
    let ty = GgmlType::from_name(name).filter(|ty| quant::format(*ty).is_some());
    ty.ok_or_else(|| format!("expected one of {}", names()))
}
