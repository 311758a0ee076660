//! What was measured as a page of markdown, tables as CSV and charts.

use std::fmt::Write as _;

use plot::{Axis, Figure, Lines, Series, Unit};

use super::times::Times;
use super::{CHUNKS, PROMPT, STEPS};

/// One model.
#[derive(Clone, Debug, Default)]
pub(super) struct Measured {
    pub(super) name: String,
    pub(super) kind: String,
    pub(super) cpu: String,
    pub(super) threads: u64,
    /// By length.
    pub(super) prompts: Vec<(u64, Times)>,
    /// Of a prompt of 512 tokens, by chunk.
    pub(super) chunks: Vec<(u64, Times)>,
    /// The chunk in which prompts go through if nothing else is said.
    pub(super) chunk: u64,
    /// Rows from which on arithmetic binds, by the ceilings.
    pub(super) inflection: Option<f64>,
    /// The time of a step by depth.
    pub(super) samples: Vec<(f64, Times)>,
    /// All steps up to a length.
    pub(super) totals: Vec<(u64, Times)>,
}

/// The files that are written, in the order of [`Page::files`].
pub(super) const NAMES: [&str; 6] = [
    "roofline.md",
    "roofline/prefill.csv",
    "roofline/chunks.csv",
    "roofline/steps.csv",
    "roofline/prefill.svg",
    "roofline/steps.svg",
];

/// All models.
pub(super) struct Page {
    pub(super) models: Vec<Measured>,
    /// Beyond this length sums of steps are extrapolated; `None` if every step was run.
    pub(super) last: Option<u64>,
}

impl Page {
    /// Contents of the files.
    pub(super) fn files(&self) -> [String; 6] {
        let models = &self.models;
        let prompts = |model: &Measured| model.prompts.clone();
        let totals = |model: &Measured| model.totals.clone();
        let chunks = |model: &Measured| model.chunks.clone();
        let beyond = |last| format!(" Beyond {} tokens all three are extrapolated.", grouped(last));
        let beyond = self.last.map(beyond).unwrap_or_default();
        [
            self.markdown(),
            csv(models, prompts),
            csv(models, chunks),
            csv(models, totals),
            chart(models, ["Prompts", "prompt length", ""], &prompts),
            chart(models, ["All steps up to a length", "length", &beyond], &totals),
        ]
    }

    /// The page.
    pub(super) fn markdown(&self) -> String {
        document(&self.models, self.last)
    }
}

fn grouped(n: u64) -> String {
    plot::grouped(n as f64, 0)
}

/// Limit, expectation and measurement of each model, a panel for each.
fn chart(
    models: &[Measured],
    [title, label, more]: [&str; 3],
    data: &dyn Fn(&Measured) -> Vec<(u64, Times)>,
) -> String {
    let mut figure = Figure::new(format!("{title}: limit, expected, measured"))
        .subtitle(subtitle(models))
        .note(format!(
            "Limit: the least time by the machine's ceilings. Expected: by what our kernels reach one by one.{more}"
        ));
    for model in models {
        let points = |which: fn(&Times) -> f64| {
            let points = data(model).into_iter().map(|(n, times)| (n as f64, which(&times)));
            points.collect::<Vec<_>>()
        };
        let panel = Lines::new(format!("{}: {}", model.name, model.kind))
            .size(760.0, 220.0)
            .x(Axis::linear(label, Unit::Plain("tokens")))
            .y(Axis::log("time", Unit::Si("s")))
            .series(Series::new("limit", points(|t| t.limit)).dashed().colour(0))
            .series(Series::new("expected", points(|t| t.expected)).pale())
            .series(Series::new("measured", points(|t| t.measured)).dots().colour(0));
        figure = figure.panel(panel);
    }
    figure.picture().svg()
}

fn subtitle(models: &[Measured]) -> String {
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

fn csv(models: &[Measured], data: impl Fn(&Measured) -> Vec<(u64, Times)>) -> String {
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
fn table(models: &[Measured], last: u64, data: impl Fn(&Measured) -> Vec<(u64, Times)>) -> String {
    let mut text = String::from("| model | |");
    let lengths: Vec<u64> =
        models.first().map_or_else(Vec::new, |m| data(m).iter().map(|(n, _)| *n).collect());
    for n in &lengths {
        let _ = write!(text, " {} |", grouped(*n));
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
fn chunks(models: &[Measured]) -> String {
    let mut text = String::from(
        "## Chunks\n\n\
         By the ceilings arithmetic binds from the *inflection* on, and a larger chunk would gain nothing. Kernels have\n\
         work to share among rows beyond reading, unpacking above all, so the default is the smallest chunk from 64 on\n\
         whose rows take at most 1 % longer than those of 512, by the measured rates of the matrices. Time of a prompt of\n\
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

/// `last`: beyond it sums are extrapolated; `None` if every step was run.
fn document(models: &[Measured], last: Option<u64>) -> String {
    let mut text = String::from(
        "# Measured against theory\n\n\
         Section 6 of the roofline article measures prompts of 25 to 500 tokens and all steps up to 16,384 tokens, and\n\
         sets them against its theory. Here is the same for this engine. The theory is corrected: bytes and operations\n\
         are counted from the program that runs, with each tensor's own type; attention reads the cache once for a tile\n\
         of queries; the ceilings are measured, not a data sheet's. *Limit* is the least time with these ceilings,\n\
         everything overlapping; *expected* is the sum of what our kernels reach one by one (`rooflight machine`).\n\n\
         Made by `rooflight-lab roofline`, on ",
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
    let _ = writeln!(
        text,
        "## Steps\n\nTime of all steps from a prompt of {PROMPT} tokens to this length.\n\n{}",
        table(models, last.unwrap_or(u64::MAX), |model| model.totals.clone())
    );
    if last.is_none() {
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

    fn model() -> Measured {
        let row = json!({ "limit_ts": 200.0, "expected_ts": 160.0, "avg_ts": 100.0 });
        let times = Times::of(&row, 1000.0).expect("all numbers are there");
        assert_eq!(times, Times { limit: 5.0, expected: 6.25, measured: 10.0 });
        Measured {
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
        let page = Page { models: vec![model()], last: Some(4096) };
        let text = page.markdown();
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
        let whole = Page { last: None, ..page };
        let text = whole.markdown();
        assert!(text.contains("Every step was run") && !text.contains("*10,000*"), "{text}");
        let [.., csv, _, _, prefill, steps] = whole.files();
        assert!(csv.contains("tiny,25,5000.000,6250.000,10000.000,0.5000"), "{csv}");
        for svg in [prefill, steps] {
            for want in [">limit<", ">expected<", ">measured<", "tiny: qwen2 1 M F32"] {
                assert!(svg.contains(want), "{want}");
            }
        }
    }
}
