//! `prediction`: how far expected times are from measured ones, and whether within the bar that was shown for them.

use std::fmt::Write as _;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use console::{args, counts};
use executors::ExecutorOptions;
use program::Executor as _;
use serde_json::{Value, json};

use crate::product::{Product, ProductArgs, number, stem};

/// Compare expected speeds with measured ones
///
/// Measures the rates of the kernels, then prompts and steps at some depths, and compares tokens per second with what those
/// rates let one expect: medians over rounds, each of which measures both anew, since a shared machine's bandwidth drifts
/// within minutes. A figure is measured again if the read ceiling moved meanwhile. Before each `rooflight plan` is asked how far
/// it takes its expected times to be off, by the figures before: those of the last round are judged by that. The machine should
/// have nothing else to do.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  rooflight-lab prediction model.gguf\n  \
                  rooflight-lab prediction small.gguf large.gguf -d 0,1024 -r 5 --json")]
pub(super) struct Prediction {
    /// GGUF files
    #[arg(value_name = "MODEL", required = true)]
    models: Vec<PathBuf>,
    /// Tokens of the prompt
    #[arg(short = 'p', long, value_name = "N", value_parser = counts::tokens, default_value = "512")]
    prompt: usize,
    /// Steps
    #[arg(short = 'n', long, value_name = "N", value_parser = counts::tokens, default_value = "32")]
    steps: usize,
    /// Positions in the cache before
    #[arg(short = 'd', long, value_name = "LIST", value_delimiter = ',', value_parser = counts::any, default_value = "0,4096")]
    depths: Vec<usize>,
    /// Rounds
    #[arg(short, long, value_name = "N", value_parser = counts::tokens, default_value = "3")]
    rounds: usize,
    /// A figure is measured again, rates and all, if reading got faster or slower by more than this meanwhile
    #[arg(long, value_name = "PERCENT", default_value = "10", value_parser = clap::value_parser!(u32).range(0..=1000))]
    steady: u32,
    /// How often at most; the last one counts
    #[arg(long, value_name = "N", value_parser = counts::tokens, default_value = "5")]
    attempts: usize,
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    product: ProductArgs,
}

/// One comparison.
struct Row {
    model: String,
    test: String,
    expected: f64,
    measured: f64,
    /// How far the last round was off, and how far it might have been, by what was shown before; as parts.
    judged: Option<(f64, f64)>,
}

/// How far `rooflight plan` takes expected times to be off.
struct Bars {
    prompts: Option<f64>,
    steps: Option<f64>,
}

impl Bars {
    fn of(plan: &Value) -> Bars {
        // as it is shown: whole percents, rounded up
        let part = |of: &str| {
            plan["expected_error"][of]["part"].as_f64().map(|part| (100.0 * part).ceil() / 100.0)
        };
        Bars { prompts: part("prompts"), steps: part("steps") }
    }
}

impl Row {
    fn of(model: &str, row: &Value, bars: &Bars) -> anyhow::Result<Row> {
        let [prompt, steps, depth] = ["n_prompt", "n_gen", "n_depth"].map(|key| number(row, key));
        let (prompt, steps, depth) = (prompt?, steps?, depth?);
        let (kind, bar) = if prompt > 0.0 {
            (format!("pp{prompt}"), bars.prompts)
        } else {
            (format!("tg{steps}"), bars.steps)
        };
        let (expected, measured) = (number(row, "expected_ts")?, number(row, "avg_ts")?);
        Ok(Row {
            model: model.to_owned(),
            test: format!("{kind} @ d{depth}"),
            expected,
            measured,
            // bars are of times, and of the expected ones
            judged: bar.map(|bar| ((expected / measured - 1.0).abs(), bar)),
        })
    }

    /// Of the measured speed.
    fn error(&self) -> f64 {
        self.expected / self.measured - 1.0
    }
}

/// The middle one, or the mean of the middle two; 0 of none.
fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let (low, high) = (values.len().saturating_sub(1) / 2, values.len() / 2);
    let at = |index: usize| values.get(index).copied().unwrap_or(0.0);
    (at(low) + at(high)) / 2.0
}

/// The middle and the largest of the errors, their signs dropped.
fn middle_and_worst(rows: &[Row]) -> (f64, f64) {
    let errors = || rows.iter().map(|row| row.error().abs());
    (median(errors()), errors().fold(0.0, f64::max))
}

/// Medians over rounds, each of which has the same tests in the same order.
fn over(rounds: &[Vec<Row>]) -> Vec<Row> {
    let first = rounds.first().map_or(&[][..], Vec::as_slice);
    let row = |(index, row): (usize, &Row)| {
        let figures = |figure: fn(&Row) -> f64| {
            median(rounds.iter().filter_map(|rows| rows.get(index)).map(figure))
        };
        Row {
            model: row.model.clone(),
            test: row.test.clone(),
            expected: figures(|row| row.expected),
            measured: figures(|row| row.measured),
            judged: rounds.last().and_then(|rows| rows.get(index)?.judged),
        }
    };
    first.iter().enumerate().map(row).collect()
}

fn markdown(rows: &[Row]) -> String {
    let mut table = String::from(
        "| model | test | expected t/s | measured t/s | error | last round | shown before |\n\
         |---|---|---:|---:|---:|---:|---:|\n",
    );
    for row in rows {
        let (expected, measured, error) = (row.expected, row.measured, 100.0 * row.error());
        let _ = writeln!(
            table,
            "| {} | {} | {expected:.1} | {measured:.1} | {error:+.1} % | {} |",
            row.model,
            row.test,
            row.judged.map_or(" | ".to_owned(), |(error, bar)| {
                let beyond = if error > bar { ", beyond" } else { "" };
                format!("{:.1} %{beyond} | ± {:.0} %", 100.0 * error, 100.0 * bar)
            })
        );
    }
    let (middle, worst) = middle_and_worst(rows);
    let _ = writeln!(
        table,
        "\nMedian error {:.1} %, worst {:.1} %, over {} figures.",
        100.0 * middle,
        100.0 * worst,
        rows.len()
    );
    let judged: Vec<(f64, f64)> = rows.iter().filter_map(|row| row.judged).collect();
    if !judged.is_empty() {
        let within = judged.iter().filter(|(error, bar)| error <= bar).count();
        let widest = judged.iter().map(|(_, bar)| *bar).fold(0.0, f64::max);
        let _ = writeln!(
            table,
            "Of the last round's {} figures {within} are within what was shown before, at most ± {:.0} %.",
            judged.len(),
            100.0 * widest
        );
    }
    table
}

/// Bytes a second that all threads read from memory now.
fn read_ceiling(options: &ExecutorOptions) -> anyhow::Result<f64> {
    let cpu = options.cpu();
    let ceilings = cpu.ceilings(&mut |_| true)?;
    ceilings.memory_bandwidth(cpu.threads()).context("reading memory was not measured")
}

/// By what part a rate moved, of the lower.
fn moved(before: f64, after: f64) -> f64 {
    before.max(after) / before.min(after) - 1.0
}

impl Prediction {
    pub(super) fn run(self, out: &mut dyn Write) -> anyhow::Result<()> {
        let product = self.product.start()?;
        let mut rows = Vec::new();
        for model in &self.models {
            product.forget();
            let rounds = (0..self.rounds).map(|_| self.round(&product, model));
            rows.extend(over(&rounds.collect::<anyhow::Result<Vec<_>>>()?));
        }
        if !self.json {
            return Ok(write!(out, "{}", markdown(&rows))?);
        }
        let rows = rows.iter().map(|row| {
            json!({ "model": row.model, "test": row.test, "expected_ts": row.expected,
                    "measured_ts": row.measured, "error": row.error(),
                    "last_error": row.judged.map(|judged| judged.0), "shown_before": row.judged.map(|judged| judged.1) })
        });
        serde_json::to_writer_pretty(&mut *out, &rows.collect::<Vec<_>>())?;
        Ok(writeln!(out)?)
    }

    /// Each figure of a model.
    fn round(&self, product: &Product, model: &Path) -> anyhow::Result<Vec<Row>> {
        let mut rows = Vec::new();
        for depth in &self.depths {
            for (prompt, steps) in [(self.prompt, 0), (0, self.steps)] {
                let [prompt, steps, depth] = [prompt, steps, *depth].map(|count| count.to_string());
                let flags = ["-p", &prompt, "-n", &steps, "-d", &depth, "-r", "1"];
                rows.extend(self.pair(product, model, &flags)?);
            }
        }
        Ok(rows)
    }

    /// Rates, and a speed beside what they let one expect, at a time when reading is as fast at the end as it was at the start.
    fn pair(&self, product: &Product, model: &Path, flags: &[&str]) -> anyhow::Result<Vec<Row>> {
        let threads = args::threads_to_start(self.product.threads());
        let options = ExecutorOptions { threads, ..Default::default() };
        let known = product.known_errors();
        let mut attempt = 1;
        loop {
            product.forget_rates();
            let bars = Bars::of(&product.plan(model)?);
            let before = read_ceiling(&options)?;
            let rows = product.bench(model, flags)?;
            let part = moved(before, read_ceiling(&options)?);
            if part <= f64::from(self.steady) / 100.0 || attempt >= self.attempts {
                let rows = rows.iter().map(|row| Row::of(&stem(model), row, &bars));
                return rows.collect();
            }
            eprintln!(
                "{}: reading moved by {:.0} % meanwhile; measured again",
                stem(model),
                100.0 * part
            );
            // what such a pair shows is the machine's wandering, which no bar should hold
            product.know_errors(known.as_deref())?;
            attempt += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_of_the_measured_speed() {
        let row = |prompt: u32, expected: f64| {
            let row = json!({ "n_prompt": prompt, "n_gen": 32, "n_depth": 7,
                              "expected_ts": expected, "avg_ts": 50.0 });
            let bars = Bars { prompts: Some(0.25), steps: None };
            Row::of("m", &row, &bars).expect("all numbers are there")
        };
        let rows = [row(0, 55.0), row(512, 40.0), row(0, 51.0)];
        let (middle, worst) = middle_and_worst(&rows);
        assert!((middle - 0.1).abs() < 1e-12 && (worst - 0.2).abs() < 1e-12);
        let table = markdown(&rows);
        for part in [
            "| m | tg32 @ d7 | 55.0 | 50.0 | +10.0 % |  |  |",
            "| m | pp512 @ d7 | 40.0 | 50.0 | -20.0 % | 20.0 % | ± 25 % |",
            "worst 20.0 %",
            "last round's 1 figures 1 are within what was shown before, at most ± 25 %",
        ] {
            assert!(table.contains(part), "{part}: {table}");
        }
        assert!(Row::of("m", &json!({ "n_prompt": 1 }), &Bars::of(&json!({}))).is_err());
        let rounds = [vec![row(0, 10.0)], vec![row(0, 40.0)], vec![row(0, 20.0)]];
        assert_eq!(over(&rounds)[0].expected, 20.0);
        assert_eq!((over(&rounds[..2])[0].expected, over(&[]).len()), (25.0, 0));
    }
}
