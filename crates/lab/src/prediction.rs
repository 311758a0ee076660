//! `prediction`: how far expected times are from measured ones.

use std::fmt::Write as _;
use std::io::Write;
use std::path::PathBuf;

use console::counts;
use serde_json::{Value, json};

use crate::product::{ProductArgs, number, stem};

/// Compare expected speeds with measured ones
///
/// Measures the rates of the kernels, then prompts and steps at some depths, and compares tokens per second with what those
/// rates let one expect: medians over rounds, each of which measures both anew, since a shared machine's bandwidth drifts
/// within minutes. The machine should have nothing else to do.
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
}

impl Row {
    fn of(model: &str, row: &Value) -> anyhow::Result<Row> {
        let [prompt, steps, depth] = ["n_prompt", "n_gen", "n_depth"].map(|key| number(row, key));
        let (prompt, steps, depth) = (prompt?, steps?, depth?);
        let kind = if prompt > 0.0 { format!("pp{prompt}") } else { format!("tg{steps}") };
        Ok(Row {
            model: model.to_owned(),
            test: format!("{kind} @ d{depth}"),
            expected: number(row, "expected_ts")?,
            measured: number(row, "avg_ts")?,
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
        }
    };
    first.iter().enumerate().map(row).collect()
}

fn markdown(rows: &[Row]) -> String {
    let mut table = String::from(
        "| model | test | expected t/s | measured t/s | error |\n|---|---|---:|---:|---:|\n",
    );
    for row in rows {
        let (expected, measured, error) = (row.expected, row.measured, 100.0 * row.error());
        let _ = writeln!(
            table,
            "| {} | {} | {expected:.1} | {measured:.1} | {error:+.1} % |",
            row.model, row.test
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
    table
}

impl Prediction {
    pub(super) fn run(self, out: &mut dyn Write) -> anyhow::Result<()> {
        let product = self.product.start()?;
        let depths: Vec<String> = self.depths.iter().map(usize::to_string).collect();
        let [prompt, steps, depths] =
            [self.prompt.to_string(), self.steps.to_string(), depths.join(",")];
        let mut rows = Vec::new();
        for model in &self.models {
            let flags = ["-p", &prompt, "-n", &steps, "-d", &depths, "-r", "1"];
            let round = || {
                product.forget();
                let rows = product.bench(model, &flags)?;
                let rows = rows.iter().map(|row| Row::of(&stem(model), row));
                rows.collect::<anyhow::Result<Vec<_>>>()
            };
            let rounds = (0..self.rounds).map(|_| round()).collect::<anyhow::Result<Vec<_>>>()?;
            rows.extend(over(&rounds));
        }
        if !self.json {
            return Ok(write!(out, "{}", markdown(&rows))?);
        }
        let rows = rows.iter().map(|row| {
            json!({ "model": row.model, "test": row.test, "expected_ts": row.expected,
                    "measured_ts": row.measured, "error": row.error() })
        });
        serde_json::to_writer_pretty(&mut *out, &rows.collect::<Vec<_>>())?;
        Ok(writeln!(out)?)
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
            Row::of("m", &row).expect("all numbers are there")
        };
        let rows = [row(0, 55.0), row(512, 40.0), row(0, 51.0)];
        let (middle, worst) = middle_and_worst(&rows);
        assert!((middle - 0.1).abs() < 1e-12 && (worst - 0.2).abs() < 1e-12);
        let table = markdown(&rows);
        for part in ["| m | tg32 @ d7 | 55.0 | 50.0 | +10.0 % |", "pp512 @ d7", "worst 20.0 %"] {
            assert!(table.contains(part), "{part}: {table}");
        }
        assert!(Row::of("m", &json!({ "n_prompt": 1 })).is_err());
        let rounds = [vec![row(0, 10.0)], vec![row(0, 40.0)], vec![row(0, 20.0)]];
        assert_eq!(over(&rounds)[0].expected, 20.0);
        assert_eq!((over(&rounds[..2])[0].expected, over(&[]).len()), (25.0, 0));
    }
}
