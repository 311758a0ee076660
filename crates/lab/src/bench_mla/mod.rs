//! `bench-mla`: which layers, forms and contexts, how long it may take; what a cell is (`cell.rs`), how cells are shown
//! (`report.rs`).

mod cell;
mod layer;
mod peak;
mod report;

use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use cpu::MlaForm;
use program::{CacheType, Ceilings};
use quant::GgmlType;

use cell::{Cell, Least, Load, Row, Shape};
use console::args::{IsaArgs, ThreadArgs};
use console::counts;
use console::output::OutputArgs;
use console::{args, ceilings, memory, picture, runtime, ui};
use executors::ExecutorOptions;
use layer::LayerBench;
use peak::Peak;
use report::Report;

/// Measure each form of latent attention, beside what the machine allows it
///
/// One layer of DeepSeek-V2 or V2-Lite with made-up weights attends to a made-up context: time, FLOP, bytes and memory of
/// the forms expanded, compressed, absorbed and elided, which yield the same, and the longest context of each in so much
/// memory. The limit is the form's own: its FLOP at the
/// machine's peak, or its bytes at the machine's bandwidth, whichever takes longer.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  rooflight-lab bench-mla\n  \
                  rooflight-lab bench-mla --shape v2,v2-lite --contexts 1024,32768 --queries 1,512 --plot mla.svg\n  \
                  rooflight-lab bench-mla --forms compressed,elided -ctk q8_0 --json\n\n\
                  Cells that would take longer than --budget, or more memory than there is, are left out and listed.")]
pub(super) struct BenchMla {
    /// Shapes of the layer: v2 has 128 heads, v2-lite 16
    #[arg(long, value_enum, value_name = "LIST", value_delimiter = ',', default_value = "v2")]
    shape: Vec<Shape>,
    /// Positions in the cache before the new tokens
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = context, default_value = "1024,4096,16384,32768,131072")]
    contexts: Vec<usize>,
    /// New tokens of a pass
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = queries, default_value = "1,16,512")]
    queries: Vec<usize>,
    /// Forms: expanded, compressed, absorbed, elided
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = form, default_value = "expanded,compressed,absorbed,elided")]
    forms: Vec<MlaForm>,
    /// Type of the layer's matrices
    #[arg(long = "type", value_name = "TYPE", value_parser = weight_type, default_value = "Q8_0")]
    ty: GgmlType,
    /// Type of what is cached (-ctk): f32, f16, q8_0
    #[arg(long, value_name = "TYPE", value_parser = args::cache_type, default_value = "f16")]
    cache_type_k: CacheType,
    /// How often each cell is timed, fewer times where it is slow
    #[arg(short, long, value_name = "N", default_value_t = 3, value_parser = repetitions)]
    repetitions: usize,
    /// Longest time for one cell, filling the cache aside
    #[arg(long, value_name = "SECONDS", value_parser = seconds, default_value = "20s")]
    budget: Duration,
    /// Memory for cache and work in which the longest context of each form is looked for: 256MB, 1GiB
    #[arg(long, value_name = "SIZE", value_parser = size, default_value = "1GB")]
    memory: u64,
    /// Print JSON instead of tables
    #[arg(long)]
    json: bool,
    /// Draw time by context into a file, .svg
    #[arg(long, value_name = "FILE", value_parser = picture::path)]
    plot: Option<PathBuf>,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    threads: ThreadArgs,
    #[command(flatten)]
    isa: IsaArgs,
}

impl BenchMla {
    pub(super) fn run(self, out: &mut dyn Write) -> anyhow::Result<()> {
        self.plot.iter().try_for_each(|path| self.output.check(path))?;
        let (threads, isa) = (args::threads_to_start(self.threads.count()), self.isa.isa);
        let options = ExecutorOptions { threads, isa, ..Default::default() };
        let cpu = options.cpu();
        let before = ceilings::measure_again(runtime(), &cpu)?.ceilings;
        let bar = ui::count_bar("bench-mla", self.loads().count() as u64);
        let (mut cells, mut peaks) = (Vec::new(), Vec::new());
        for &shape in &self.shape {
            for &queries in &self.queries {
                for &form in &self.forms {
                    let row = Row { shape, form, queries };
                    cells.extend(self.row(&options, row, &before, &bar)?);
                    let load = self.loads().find(|load| load.row() == row);
                    let peak = load.map(|load| Peak::find(&options, &load, self.memory));
                    peaks.extend(peak.transpose()?);
                }
            }
        }
        bar.finish_and_clear();
        // other guests of a shared machine lower its figures: what counts is the best that was seen
        let after = ceilings::measure_again(runtime(), &cpu)?.ceilings;
        let report = Report {
            machine: ceilings::cpu_name(),
            threads: cpu.threads(),
            ty: self.ty,
            cache: self.cache_type_k,
            ceilings: after,
            cells,
            room: self.memory,
            peaks,
        };
        if let Some(path) = &self.plot {
            picture::write(path, &report.picture(), self.output)?;
        }
        if self.json { report.json(out) } else { report.tables(out) }
    }

    /// Every cell, whether it will be measured or not.
    fn loads(&self) -> impl Iterator<Item = Load> {
        let BenchMla { ty, cache_type_k: cache, .. } = *self;
        self.shape.iter().flat_map(move |&shape| {
            self.queries.iter().flat_map(move |&queries| {
                self.forms.iter().flat_map(move |&form| {
                    let contexts = self.contexts.iter();
                    contexts.map(move |&context| Load { shape, form, queries, context, ty, cache })
                })
            })
        })
    }

    /// One form over all contexts, in a layer of its own, so that the memory of one form is not told of another.
    fn row(
        &self,
        options: &ExecutorOptions,
        row: Row,
        ceilings: &Ceilings,
        bar: &indicatif::ProgressBar,
    ) -> anyhow::Result<Vec<Cell>> {
        let mut loads: Vec<Load> = self.loads().filter(|load| load.row() == row).collect();
        loads.sort_by_key(|load| load.context);
        let mut bench = None;
        let mut slower = FIRST_GUESS;
        let mut cells = Vec::new();
        for load in loads {
            bar.set_message(load.to_string());
            let least = Least::new(&load, ceilings, options.n_threads());
            let result = match self.repetitions(&load, slower * least.seconds) {
                Err(why) => Err(why),
                Ok(repetitions) => {
                    let bench = match &mut bench {
                        Some(bench) => bench,
                        none => none.insert(LayerBench::new(options, &load.layer(), load.form)?),
                    };
                    Ok(bench.measure(load.context, load.queries, repetitions)?)
                }
            };
            let cell = Cell { load, result };
            if let Some(seconds) = cell.attention().filter(|_| least.seconds > 0.0) {
                slower = seconds / least.seconds;
            }
            cells.push(cell);
            bar.inc(1);
        }
        Ok(cells)
    }

    /// How often a cell is timed, or why it is not, if one pass is expected to take so long.
    fn repetitions(&self, load: &Load, seconds: f64) -> Result<usize, String> {
        let needed = load.memory().saturating_add(memory::OVERHEAD);
        if let Some(free) = memory::available().filter(|free| needed > *free) {
            let [needed, free] = [needed, free].map(console::units::bytes);
            return Err(format!("needs {needed} of memory, of which {free} are free"));
        }
        let budget = self.budget.as_secs_f64();
        // a pass that warms up, and one that counts
        let least = 2.0 * seconds;
        if least > budget {
            let [least, budget] = [least, budget].map(console::units::short_seconds);
            return Err(format!("would take about {least}, more than the budget of {budget}"));
        }
        let affordable = if seconds > 0.0 { budget / seconds - 1.0 } else { f64::INFINITY };
        Ok(self.repetitions.min(affordable.max(1.0) as usize))
    }
}

/// How many times as long as its limit a form is taken to need before it was measured.
const FIRST_GUESS: f64 = 3.0;

fn context(text: &str) -> Result<usize, String> {
    counts::within(text, 1, 1 << 20)
}

fn queries(text: &str) -> Result<usize, String> {
    counts::within(text, 1, 1 << 13)
}

fn repetitions(text: &str) -> Result<usize, String> {
    counts::within(text, 1, 1000)
}

fn form(name: &str) -> Result<MlaForm, String> {
    let names = || MlaForm::ALL.map(MlaForm::name).join(", ");
    MlaForm::parse(name).ok_or_else(|| format!("expected one of {}", names()))
}

fn weight_type(name: &str) -> Result<GgmlType, String> {
    let ty = GgmlType::from_name(name).filter(|ty| quant::format(*ty).is_some());
    ty.ok_or_else(|| "expected a type of weights, such as Q8_0 or F16".into())
}

/// Bytes: `256MB`, `1GiB`.
fn size(text: &str) -> Result<u64, String> {
    let lower = text.to_ascii_lowercase();
    let units =
        [("kib", 10), ("mib", 20), ("gib", 30)].map(|(unit, power)| (unit, 2f64.powi(power)));
    let units = units.into_iter().chain([("kb", 1e3), ("mb", 1e6), ("gb", 1e9)]);
    let found =
        units.into_iter().find_map(|(unit, bytes)| Some((lower.strip_suffix(unit)?, bytes)));
    let bytes = found.and_then(|(number, unit)| Some(number.trim().parse::<f64>().ok()? * unit));
    let bytes = bytes.filter(|bytes| (1.0..1e18).contains(bytes));
    bytes.map(|bytes| bytes as u64).ok_or_else(|| "expected a size such as 256MB or 1GiB".into())
}

fn seconds(text: &str) -> Result<Duration, String> {
    let number = text.strip_suffix('s').unwrap_or(text).parse().ok();
    let time = number.and_then(|seconds: f64| Duration::try_from_secs_f64(seconds).ok());
    time.filter(|time| !time.is_zero()).ok_or_else(|| "expected seconds, such as 20s".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_flags() {
        assert_eq!(seconds("20s"), Ok(Duration::from_secs(20)));
        assert_eq!(seconds("0.5"), Ok(Duration::from_millis(500)));
        for wrong in ["", "0", "-1", "nan", "1m", "1e300"] {
            assert!(seconds(wrong).is_err(), "{wrong}");
        }
        assert_eq!(
            [size("1GB"), size("1.5mb"), size("2 KiB")],
            [Ok(1_000_000_000), Ok(1_500_000), Ok(2048)]
        );
        assert!(["", "GB", "0GB", "-1GB", "7", "1TB"].iter().all(|wrong| size(wrong).is_err()));
        assert_eq!(form("elided"), Ok(MlaForm::Elided));
        assert_eq!(
            form("auto").unwrap_err(),
            "expected one of expanded, compressed, absorbed, elided"
        );
        assert_eq!(weight_type("q8_0"), Ok(GgmlType::Q8_0));
        assert!(context("0").is_err() && queries("99999").is_err());
    }
}
