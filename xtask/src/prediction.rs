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
tokens per second with what those rates let one expect. Writes prediction.md and prediction.json into FOLDER
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

/// The middle and the largest of the errors, their signs dropped.
fn middle_and_worst(rows: &[Row]) -> (f64, f64) {
    let mut errors: Vec<f64> = rows.iter().map(|row| row.error().abs()).collect();
    errors.sort_by(f64::total_cmp);
    let middle = errors.get(errors.len() / 2).copied().unwrap_or(0.0);
    (middle, errors.last().copied().unwrap_or(0.0))
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
    let (mut depths, mut prompt, mut steps, mut rounds) =
        ("0,4096".to_owned(), "512".to_owned(), "32".to_owned(), "3".to_owned());
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
            "-r" => rounds = value()?,
            "-t" => threads = Some(value()?),
            "--binary" => binary = Some(value()?.into()),
            "-o" => folder = value()?.into(),
            flag if flag.starts_with('-') => bail!("unknown flag {flag}\n\n{HELP}"),
            model => models.push(model.into()),
        }
    }
    ensure!(!models.is_empty(), "{HELP}");
    std::fs::create_dir_all(&folder)?;
    let product = Product::new(root, (binary, &folder), threads)?;
    let mut rows = Vec::new();
    for model in &models {
        product.forget();
        let flags = ["-p", &prompt, "-n", &steps, "-d", &depths, "-r", &rounds];
        for row in product.bench(model, &flags)? {
            rows.push(Row::of(&stem(model), &row)?);
        }
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
    }
}
