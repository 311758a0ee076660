//! `cargo xtask roofline`: measured against theory, as section 6 of the roofline article set out to do: prompts of 25 to
//! 500 tokens, and the time of all steps up to 2,048 to 16,384 tokens.
//!
//! The theory is the planner's: every op counted from the program that runs, attention in tiles, ceilings measured in
//! the same run.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail, ensure};
use plot::{Axis, Lines, Series, Unit};
use serde_json::Value;

use crate::product::{Product, number, stem};

const HELP: &str = "\
cargo xtask roofline MODEL.gguf... [--deepest TOKENS] [--every-step] [-r ROUNDS] [-t THREADS] [--binary FILE]
                     [-o FOLDER]

Prompts of 25 to 500 tokens, one of 512 in chunks of 16 to 512, and cumulative steps to 2,048 to 16,384 tokens, theory
beside measurement. Steps are sampled at some depths up to --deepest (8192) and integrated by trapezoids; beyond it
along the line that fits the samples best, and the table says so. --every-step runs each of them instead, for as long
as that takes. Writes roofline.md and roofline/ with tables as CSV and plots as SVG into FOLDER (docs).
";

/// Lengths of prompts.
const PROMPTS: [u64; 6] = [25, 100, 200, 300, 400, 500];
/// Lengths to which steps are summed, from a prompt of [`PROMPT`] tokens on.
const LENGTHS: [u64; 4] = [2048, 4096, 8192, 16_384];
const PROMPT: u64 = 24;
/// Chunks in which a prompt of the last one's length is cut.
const CHUNKS: [u64; 6] = [16, 32, 64, 128, 256, 512];
/// Depths at which steps are sampled.
const DEPTHS: [u64; 6] = [24, 1024, 2048, 4096, 8192, 16_384];
/// Steps of a sample.
const STEPS: u64 = 8;

/// Seconds: as little as the machine allows, as expected of our kernels, as measured.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Times {
    limit: f64,
    expected: f64,
    measured: f64,
}

impl Times {
    /// Of a row of `rooflight bench`, for `tokens` tokens.
    fn of(row: &Value, tokens: f64) -> anyhow::Result<Times> {
        let time = |key| Ok::<_, anyhow::Error>(tokens / number(row, key)?);
        Ok(Times {
            limit: time("limit_ts")?,
            expected: time("expected_ts")?,
            measured: time("avg_ts")?,
        })
    }

    fn each(self, other: Times, f: impl Fn(f64, f64) -> f64) -> Times {
        Times {
            limit: f(self.limit, other.limit),
            expected: f(self.expected, other.expected),
            measured: f(self.measured, other.measured),
        }
    }
}

/// One model.
#[derive(Clone, Debug, Default)]
struct Model {
    name: String,
    kind: String,
    cpu: String,
    threads: u64,
    /// By length.
    prompts: Vec<(u64, Times)>,
    /// Of a prompt of 512 tokens, by chunk.
    chunks: Vec<(u64, Times)>,
    /// The chunk in which prompts go through if nothing else is said.
    chunk: u64,
    /// Rows from which on arithmetic binds, by the ceilings.
    inflection: Option<f64>,
    /// The time of a step by depth.
    samples: Vec<(f64, Times)>,
    /// All steps up to a length.
    totals: Vec<(u64, Times)>,
}

/// The line that fits samples best: its value at depth 0 and its slope.
fn fit(samples: &[(f64, Times)]) -> (Times, Times) {
    let n = samples.len().max(1) as f64;
    let sum = |f: &dyn Fn(&(f64, Times)) -> Times| {
        samples.iter().fold(Times::default(), |sum, sample| sum.each(f(sample), |a, b| a + b))
    };
    let scaled = |times: Times, by: f64| times.each(times, |y, _| y * by);
    let middle = samples.iter().map(|(x, _)| x).sum::<f64>() / n;
    let mean = scaled(sum(&|(_, y)| *y), 1.0 / n);
    let spread: f64 = samples.iter().map(|(x, _)| (x - middle).powi(2)).sum();
    let slope = match samples.len() {
        0 | 1 => Times::default(),
        _ => scaled(sum(&|(x, y)| scaled(*y, x - middle)), 1.0 / spread),
    };
    (mean.each(slope, |mean, slope| mean - slope * middle), slope)
}

/// The time of all steps at depths `from..to`: the area under the lines between samples, and outside of them under the
/// line that fits all of them best.
fn integrate(samples: &[(f64, Times)], from: f64, to: f64) -> Times {
    let (zero, slope) = fit(samples);
    let line = |x: f64| zero.each(slope, |zero, slope| zero + slope * x);
    let area = |(x0, y0): (f64, Times), (x1, y1): (f64, Times)| {
        y0.each(y1, |y0, y1| (y0 + y1) / 2.0 * (x1 - x0))
    };
    // the part of a piece from `a` to `b` that lies within the bounds
    let within = |a: (f64, Times), b: (f64, Times)| {
        let (left, right) = (a.0.max(from), b.0.min(to));
        if left >= right {
            return Times::default();
        }
        let at = |x: f64| a.1.each(b.1, |ya, yb| ya + (yb - ya) * (x - a.0) / (b.0 - a.0));
        area((left, at(left)), (right, at(right)))
    };
    let ends = samples.first().zip(samples.last()).map(|(first, last)| (first.0, last.0));
    let (first, last) = ends.unwrap_or((from, from));
    let outer = [(from, to.min(first)), (from.max(last), to)];
    let outer = outer.into_iter().filter(|(left, right)| left < right);
    let outer = outer.map(|(left, right)| area((left, line(left)), (right, line(right))));
    let inner = samples.windows(2).map(|pair| within(pair[0], pair[1]));
    outer.chain(inner).fold(Times::default(), |sum, piece| sum.each(piece, |a, b| a + b))
}

struct Options {
    models: Vec<PathBuf>,
    deepest: u64,
    every_step: bool,
    rounds: String,
    threads: Option<String>,
    binary: Option<PathBuf>,
    folder: PathBuf,
}

fn parse(args: &[String], root: &Path) -> anyhow::Result<Options> {
    let mut options = Options {
        models: Vec::new(),
        deepest: 8192,
        every_step: false,
        rounds: "3".into(),
        threads: None,
        binary: None,
        folder: root.join("docs"),
    };
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let mut value = || args.next().cloned().with_context(|| format!("{arg} wants a value"));
        match arg.as_str() {
            "--deepest" => {
                options.deepest = value()?.parse().context("--deepest wants a number")?
            }
            "--every-step" => options.every_step = true,
            "-r" => options.rounds = value()?,
            "-t" => options.threads = Some(value()?),
            "--binary" => options.binary = Some(value()?.into()),
            "-o" => options.folder = value()?.into(),
            flag if flag.starts_with('-') => bail!("unknown flag {flag}\n\n{HELP}"),
            model => options.models.push(model.into()),
        }
    }
    ensure!(!options.models.is_empty() && options.deepest > DEPTHS[1], "{HELP}");
    Ok(options)
}

/// Measure and write.
pub(crate) fn run(root: &Path, args: &[String]) -> anyhow::Result<()> {
    if args.iter().any(|arg| arg == "--help" || arg == "-h") {
        eprint!("{HELP}");
        return Ok(());
    }
    let options = parse(args, root)?;
    let work = root.join("target/roofline");
    std::fs::create_dir_all(&work)?;
    let product = Product::new(root, options.binary.clone(), &work, options.threads.clone())?;
    let mut models = Vec::new();
    for path in &options.models {
        eprintln!("{}", path.display());
        models.push(measure(&product, path, &options)?);
    }
    write(&models, &options)
}

fn measure(product: &Product, path: &Path, options: &Options) -> anyhow::Result<Model> {
    let list = |numbers: &[u64]| numbers.iter().map(u64::to_string).collect::<Vec<_>>().join(",");
    product.forget();
    let mut model = Model { name: stem(path), ..Model::default() };
    let flags = ["-p", &list(&PROMPTS), "-n", "0", "-r", &options.rounds];
    for row in product.bench(path, &flags)? {
        let length = number(&row, "n_prompt")?;
        model.prompts.push((length as u64, Times::of(&row, length)?));
        model.kind = row["model_type"].as_str().unwrap_or_default().to_owned();
        model.cpu = row["cpu_info"].as_str().unwrap_or_default().to_owned();
        model.threads = row["n_threads"].as_u64().unwrap_or_default();
        model.chunk = row["n_ubatch"].as_u64().unwrap_or_default();
    }
    let longest = CHUNKS[CHUNKS.len() - 1].to_string();
    let flags = ["-p", &longest, "-n", "0", "-r", &options.rounds, "--chunk", &list(&CHUNKS)];
    for row in product.bench(path, &flags)? {
        let times = Times::of(&row, number(&row, "n_prompt")?)?;
        model.chunks.push((number(&row, "n_ubatch")? as u64, times));
    }
    model.inflection = product.plan(path)?["inflections"]["first"].as_f64();
    if options.every_step {
        for length in LENGTHS {
            let steps = (length - PROMPT).to_string();
            let flags = ["-p", "0", "-n", &steps, "-d", &PROMPT.to_string(), "-r", "1"];
            for row in product.bench(path, &flags)? {
                model.totals.push((length, Times::of(&row, (length - PROMPT) as f64)?));
            }
        }
        return Ok(model);
    }
    let depths: Vec<u64> = DEPTHS.into_iter().filter(|d| *d <= options.deepest).collect();
    let steps = STEPS.to_string();
    let flags = ["-p", "0", "-n", &steps, "-d", &list(&depths), "-r", &options.rounds];
    for row in product.bench(path, &flags)? {
        let depth = number(&row, "n_depth")? + (STEPS - 1) as f64 / 2.0;
        model.samples.push((depth, Times::of(&row, 1.0)?));
    }
    for length in LENGTHS {
        let times = integrate(&model.samples, PROMPT as f64 - 0.5, length as f64 - 0.5);
        model.totals.push((length, times));
    }
    Ok(model)
}

fn write(models: &[Model], options: &Options) -> anyhow::Result<()> {
    let folder = options.folder.join("roofline");
    std::fs::create_dir_all(&folder)?;
    let prompts = |model: &Model| model.prompts.clone();
    let totals = |model: &Model| model.totals.clone();
    let chunks = |model: &Model| model.chunks.clone();
    std::fs::write(folder.join("prefill.csv"), csv(models, prompts))?;
    std::fs::write(folder.join("chunks.csv"), csv(models, chunks))?;
    std::fs::write(folder.join("steps.csv"), csv(models, totals))?;
    let chart = |title: &str, label: &str, data: &dyn Fn(&Model) -> Vec<(u64, Times)>| {
        let mut chart = Lines::new(title)
            .subtitle(subtitle(models))
            .x(Axis::linear(label, Unit::Plain("tokens")))
            .y(Axis::log("time", Unit::Si("s")));
        for (colour, model) in models.iter().enumerate() {
            let points = |which: fn(&Times) -> f64| {
                data(model)
                    .into_iter()
                    .map(|(n, times)| (n as f64, which(&times)))
                    .collect::<Vec<_>>()
            };
            let limit = Series::new(format!("{}, limit", model.name), points(|t| t.limit));
            let measured = Series::new(model.name.clone(), points(|t| t.measured));
            chart = chart.series(limit.dashed().colour(colour));
            chart = chart.series(measured.dots().colour(colour));
        }
        chart.svg()
    };
    let prefill = chart("Prompts: limit and measurement", "prompt length", &prompts);
    std::fs::write(folder.join("prefill.svg"), prefill)?;
    let steps = chart("All steps up to a length: limit and measurement", "length", &totals);
    std::fs::write(folder.join("steps.svg"), steps)?;
    let text = document(models, options);
    std::fs::write(options.folder.join("roofline.md"), &text)?;
    eprintln!("\n{text}\nwritten to {}", options.folder.display());
    Ok(())
}

fn subtitle(models: &[Model]) -> String {
    models.first().map_or_else(String::new, |model| {
        let plural = if model.threads == 1 { "" } else { "s" };
        format!("{}, {} thread{plural}", model.cpu, model.threads)
    })
}

/// `1,946` for thousands; three digits below.
fn milliseconds(seconds: f64) -> String {
    let ms = 1e3 * seconds;
    if ms >= 100.0 { plot::grouped(ms, 0) } else { format!("{ms:.1}") }
}

fn csv(models: &[Model], data: impl Fn(&Model) -> Vec<(u64, Times)>) -> String {
    let mut text = String::from("model,tokens,limit_ms,expected_ms,measured_ms,share_of_limit\n");
    for model in models {
        for (tokens, times) in data(model) {
            let Times { limit, expected, measured } = times;
            let _ = writeln!(
                text,
                "{},{tokens},{:.3},{:.3},{:.3},{:.4}",
                model.name,
                1e3 * limit,
                1e3 * expected,
                1e3 * measured,
                limit / measured
            );
        }
    }
    text
}

/// A row's label and how its cells are written.
type Row = (&'static str, fn(&Times) -> String);

/// Rows of limit, expectation, measurement and share for each model, a column for each length.
fn table(models: &[Model], last: u64, data: impl Fn(&Model) -> Vec<(u64, Times)>) -> String {
    let mut text = String::from("| model | |");
    let lengths: Vec<u64> =
        models.first().map_or_else(Vec::new, |m| data(m).iter().map(|(n, _)| *n).collect());
    for n in &lengths {
        let _ = write!(text, " {} |", plot::grouped(*n as f64, 0));
    }
    let _ = writeln!(text, "\n|---|---|{}", "---:|".repeat(lengths.len()));
    for model in models {
        let rows: [Row; 4] = [
            ("limit, ms", |t| milliseconds(t.limit)),
            ("expected, ms", |t| milliseconds(t.expected)),
            ("measured, ms", |t| milliseconds(t.measured)),
            ("share of limit", |t| format!("{:.0} %", 100.0 * t.limit / t.measured)),
        ];
        for (i, (label, cell)) in rows.into_iter().enumerate() {
            let name = if i == 0 { &*model.name } else { "" };
            let _ = write!(text, "| {name} | {label} |");
            for (n, times) in data(model) {
                let mark = if n > last { "*" } else { "" };
                let _ = write!(text, " {mark}{}{mark} |", cell(&times));
            }
            text.push('\n');
        }
    }
    text
}

/// What cutting a prompt costs: the time of each chunk beside that of the largest.
fn chunks(models: &[Model]) -> String {
    let mut text = String::from(
        "## Chunks\n\n\
         By the ceilings arithmetic binds from the *inflection* on, and a larger chunk would gain nothing. Kernels have\n\
         work to share among rows beyond reading, unpacking above all, so the default is the smallest chunk from 64 on\n\
         whose rows take at most 3 % longer than those of 512, by the measured rates of the matrices. Time of a prompt of\n\
         512 tokens, over that in one chunk; in bold the default.\n\n| model | inflection |",
    );
    CHUNKS.iter().for_each(|chunk| text.push_str(&format!(" {chunk} |")));
    let _ = writeln!(text, "\n|---|---:|{}", "---:|".repeat(CHUNKS.len()));
    for model in models {
        let inflection = model.inflection.map_or("-".into(), |rows| format!("{rows:.0} tokens"));
        let _ = write!(text, "| {} | {inflection} |", model.name);
        let whole = model.chunks.last().map_or(1.0, |(_, times)| times.measured);
        for (chunk, times) in &model.chunks {
            let mark = if *chunk == model.chunk { "**" } else { "" };
            let _ = write!(text, " {mark}{:.2}{mark} |", times.measured / whole);
        }
        text.push('\n');
    }
    text.push('\n');
    text
}

fn document(models: &[Model], options: &Options) -> String {
    let mut text = String::from(
        "# Measured against theory\n\n\
         Section 6 of the roofline article measures prompts of 25 to 500 tokens and all steps up to 16,384 tokens, and\n\
         sets them against its theory. Here is the same for this engine. The theory is corrected: bytes and operations\n\
         are counted from the program that runs, with each tensor's own type; attention reads the cache once for a tile\n\
         of queries; the ceilings are measured, not a data sheet's. *Limit* is the least time with these ceilings,\n\
         everything overlapping; *expected* is the sum of what our kernels reach one by one (`rooflight machine`).\n\n\
         Made by `cargo xtask roofline`, on ",
    );
    let _ = writeln!(text, "{}.\n", subtitle(models));
    for model in models {
        let _ = writeln!(text, "- {}: {}", model.name, model.kind);
    }
    let _ = writeln!(
        text,
        "\n## Prompts\n\nTime to the logits of the last token, by length of the prompt.\n\n{}\n\
         ![Prompts](roofline/prefill.svg)\n",
        table(models, u64::MAX, |model| model.prompts.clone())
    );
    text.push_str(&chunks(models));
    let last = if options.every_step { u64::MAX } else { options.deepest };
    let _ = writeln!(
        text,
        "## Steps\n\nTime of all steps from a prompt of {PROMPT} tokens to this length.\n\n{}",
        table(models, last, |model| model.totals.clone())
    );
    if options.every_step {
        text.push_str("Every step was run.\n");
    } else {
        let depths = models.first().map_or_else(String::new, |model| {
            let depths = model.samples.iter().map(|(depth, _)| plot::grouped(depth.floor(), 0));
            depths.collect::<Vec<_>>().join("; ")
        });
        let _ = writeln!(
            text,
            "{STEPS} steps were timed around each of the depths {depths}; the sums are areas under the lines between\n\
             them (trapezoids). Figures in *italics* go beyond the deepest sample, along the line that fits all samples best."
        );
    }
    text.push_str("\n![Steps](roofline/steps.svg)\n");
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn line(depth: f64) -> Times {
        Times { limit: 1.0 + depth, expected: 2.0 * depth, measured: 3.0 }
    }

    #[test]
    fn trapezoids_are_exact_on_lines_and_go_on_beyond_them() {
        let samples: Vec<_> = [10.0, 20.0, 40.0].map(|depth| (depth, line(depth))).into();
        for (from, to) in [(10.0, 40.0), (12.0, 15.0), (0.0, 100.0), (50.0, 60.0)] {
            let sum = integrate(&samples, from, to);
            let width = to - from;
            let middle = line((from + to) / 2.0);
            let want = middle.each(Times::default(), |y, _| y * width);
            let near = sum.each(want, |a, b| (a - b).abs());
            assert!(near.limit < 1e-9 && near.expected < 1e-9 && near.measured < 1e-9, "{sum:?}");
        }
        assert_eq!(integrate(&samples[..1], 0.0, 2.0).measured, 6.0);
        // what one sample is off by does not turn the line
        let mut off = samples.clone();
        off[2].1.measured = 2.9;
        let beyond = integrate(&off, 1000.0, 1001.0).measured;
        assert!(beyond > -1.0 && beyond < 3.0, "{beyond}");
        assert_eq!(integrate(&[], 0.0, 2.0), Times::default());
    }

    fn model() -> Model {
        let row = json!({ "limit_ts": 200.0, "expected_ts": 160.0, "avg_ts": 100.0 });
        let times = Times::of(&row, 1000.0).expect("all numbers are there");
        assert_eq!(times, Times { limit: 5.0, expected: 6.25, measured: 10.0 });
        Model {
            name: "tiny".into(),
            kind: "qwen2 1 M F32".into(),
            cpu: "a CPU".into(),
            threads: 2,
            prompts: vec![(25, times), (100, times)],
            chunks: vec![(64, Times { measured: 12.0, ..times }), (512, times)],
            chunk: 64,
            inflection: Some(22.0),
            samples: vec![(27.5, times), (4099.5, times)],
            totals: vec![(2048, times), (16_384, times)],
        }
    }

    #[test]
    fn the_document_says_what_was_measured_and_what_was_not() {
        let args = ["m.gguf", "--deepest", "4096"].map(String::from);
        let options = parse(&args, Path::new("/")).expect("good flags");
        let text = document(&[model()], &options);
        for part in [
            "a CPU, 2 threads",
            "- tiny: qwen2 1 M F32",
            "| tiny | limit, ms | 5,000 | 5,000 |",
            "|  | measured, ms | 10,000 | *10,000* |",
            "|  | share of limit | 50 % | *50 %* |",
            "27; 4,099",
            "| tiny | 22 tokens | **1.20** | 1.00 |",
            "trapezoids",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let whole = Options { every_step: true, ..options };
        let text = document(&[model()], &whole);
        assert!(text.contains("Every step was run") && !text.contains("*10,000*"), "{text}");
        let csv = csv(&[model()], |model| model.prompts.clone());
        assert!(csv.contains("tiny,25,5000.000,6250.000,10000.000,0.5000"), "{csv}");
        assert!(parse(&["--fast".into()], Path::new("/")).is_err());
    }

    #[test]
    fn files_are_written() {
        let folder = std::env::temp_dir().join(format!("xtask-roofline-{}", std::process::id()));
        let args = ["m.gguf".to_owned(), "-o".into(), folder.display().to_string()];
        let options = parse(&args, Path::new("/")).expect("good flags");
        write(&[model()], &options).expect("a temporary folder can be written");
        for name in ["prefill", "chunks", "steps"].map(|name| format!("roofline/{name}.csv")) {
            assert!(folder.join(&name).exists(), "{name}");
        }
        assert!(folder.join("roofline.md").exists());
        let svg = std::fs::read_to_string(folder.join("roofline/steps.svg")).expect("a plot");
        assert!(svg.starts_with("<svg") && svg.contains("tiny, limit"));
        std::fs::remove_dir_all(folder).expect("what was written can go");
    }
}
