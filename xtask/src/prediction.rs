//! `cargo xtask prediction`: how far expected times are from measured ones.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail, ensure};
use serde_json::{Value, json};

use crate::product::{Product, number, stem};

const HELP: &str = "\
cargo xtask prediction MODEL.gguf... [-d DEPTHS] [-p TOKENS] [-n TOKENS] [-r ROUNDS] [-t THREADS]
                       [--binary FILE] [-o FOLDER]

Measures the rates of the kernels, then prompts (-p, 512) and steps (-n, 32) at some depths (-d, 0,4096), and compares
tokens per second with what those rates let one expect: medians over rounds (-r, 3), each of which measures both anew,
since a shared machine's bandwidth drifts within minutes. Writes prediction.md and prediction.json into FOLDER
(target/prediction). The machine should have nothing else to do.
";

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

/// Measure, write the table, and print it.
pub(crate) fn run(root: &Path, args: &[String]) -> anyhow::Result<()> {
    let mut models: Vec<PathBuf> = Vec::new();
    let (mut depths, mut prompt, mut steps) =
        ("0,4096".to_owned(), "512".to_owned(), "32".to_owned());
    let mut rounds = 3_usize;
    let (mut threads, mut binary) = (None, None);
    let mut folder = root.join("target/prediction");
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let mut value = || args.next().cloned().with_context(|| format!("{arg} wants a value"));
        match arg.as_str() {
            "-h" | "--help" => {
                eprint!("{HELP}");
                return Ok(());
            }
            "-d" => depths = value()?,
            "-p" => prompt = value()?,
            "-n" => steps = value()?,
            "-r" => rounds = value()?.parse().context("-r wants a number")?,
            "-t" => threads = Some(value()?),
            "--binary" => binary = Some(value()?.into()),
            "-o" => folder = value()?.into(),
            flag if flag.starts_with('-') => bail!("unknown flag {flag}\n\n{HELP}"),
            model => models.push(model.into()),
        }
    }
    ensure!(!models.is_empty() && rounds > 0, "{HELP}");
    std::fs::create_dir_all(&folder)?;
    let product = Product::new(root, binary, &folder, threads)?;
    let mut rows = Vec::new();
    for model in &models {
        let flags = ["-p", &prompt, "-n", &steps, "-d", &depths, "-r", "1"];
        let round = || {
            product.forget();
            let rows = product.bench(model, &flags)?;
            rows.iter().map(|row| Row::of(&stem(model), row)).collect::<anyhow::Result<Vec<_>>>()
        };
        rows.extend(over(&(0..rounds).map(|_| round()).collect::<anyhow::Result<Vec<_>>>()?));
    }
    let table = markdown(&rows);
    std::fs::write(folder.join("prediction.md"), &table)?;
    let json = rows.iter().map(|row| {
        json!({ "model": row.model, "test": row.test, "expected_ts": row.expected,
                "measured_ts": row.measured, "error": row.error() })
    });
    let json = serde_json::to_string_pretty(&json.collect::<Vec<_>>())?;
    std::fs::write(folder.join("prediction.json"), json)?;
    eprintln!("\n{table}\nwritten to {}", folder.display());
    Ok(())
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
