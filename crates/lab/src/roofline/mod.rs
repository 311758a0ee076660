//! `roofline`: measured against theory, as section 6 of the roofline article set out to do: prompts of 25 to 500 tokens,
//! and the time of all steps up to 2,048 to 16,384 tokens.
//!
//! The theory is the planner's: every op counted from the program that runs, attention in tiles, ceilings measured in
//! the same run.

mod report;
mod times;

use std::io::Write;
use std::path::{Path, PathBuf};

use console::counts;
use console::output::{OutputArgs, shown};
use console::ui;

use crate::product::{Product, ProductArgs, number, stem};
use report::{Measured, Page};
use times::{Times, integrate};

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

/// Measure models against theory, over lengths
///
/// Prompts of 25 to 500 tokens, one of 512 in chunks of 16 to 512, and cumulative steps to 2,048 to 16,384 tokens, theory
/// beside measurement. Steps are sampled at some depths up to --deepest and integrated by trapezoids; beyond it along the
/// line that fits the samples best, and the page says so. The machine should have nothing else to do.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Examples:\n  rooflight-lab roofline small.gguf large.gguf --out docs --force\n  \
                  rooflight-lab roofline model.gguf --every-step --out folder\n\n\
                  Writes roofline.md, and roofline/ with tables as CSV and charts as SVG."
)]
pub(super) struct Roofline {
    /// GGUF files
    #[arg(value_name = "MODEL", required = true)]
    models: Vec<PathBuf>,
    /// The folder to write into
    #[arg(short, long, value_name = "FOLDER")]
    out: PathBuf,
    /// The deepest sample of steps, in tokens
    #[arg(long, value_name = "N", value_parser = deepest, default_value = "8192")]
    deepest: usize,
    /// Run every step instead of samples, for as long as that takes
    #[arg(long)]
    every_step: bool,
    /// How often each figure is measured
    #[arg(short, long, value_name = "N", value_parser = counts::tokens, default_value = "3")]
    repetitions: usize,
    #[command(flatten)]
    product: ProductArgs,
    #[command(flatten)]
    output: OutputArgs,
}

fn deepest(text: &str) -> Result<usize, String> {
    counts::within(text, DEPTHS[1] as usize, DEPTHS[5] as usize)
}

impl Roofline {
    pub(super) fn run(self, out: &mut dyn Write) -> anyhow::Result<()> {
        let folder = self.out.join("roofline");
        std::fs::create_dir_all(&folder)
            .map_err(|error| anyhow::anyhow!("making the folder {}: {error}", shown(&folder)))?;
        let names = report::NAMES.map(|name| self.out.join(name));
        names.iter().try_for_each(|path| self.output.check(path))?;
        let product = self.product.start()?;
        let mut models = Vec::new();
        for path in &self.models {
            ui::note(shown(path));
            models.push(self.measure(&product, path)?);
        }
        let last = if self.every_step { None } else { Some(self.deepest as u64) };
        let page = Page { models, last };
        for (path, content) in names.iter().zip(page.files()) {
            self.output.write(path, content.as_bytes())?;
        }
        Ok(write!(out, "{}", page.markdown())?)
    }

    /// All figures of a model.
    fn measure(&self, product: &Product, path: &Path) -> anyhow::Result<Measured> {
        let list =
            |numbers: &[u64]| numbers.iter().map(u64::to_string).collect::<Vec<_>>().join(",");
        product.forget();
        let rounds = self.repetitions.to_string();
        let mut model = Measured { name: stem(path), ..Measured::default() };
        let flags = ["-p", &list(&PROMPTS), "-n", "0", "-r", &rounds];
        for row in product.bench(path, &flags)? {
            let length = number(&row, "n_prompt")?;
            model.prompts.push((length as u64, Times::of(&row, length)?));
            model.kind = row["model_type"].as_str().unwrap_or_default().to_owned();
            model.cpu = row["cpu_info"].as_str().unwrap_or_default().to_owned();
            model.threads = row["n_threads"].as_u64().unwrap_or_default();
            model.chunk = row["n_ubatch"].as_u64().unwrap_or_default();
        }
        let longest = CHUNKS[CHUNKS.len() - 1].to_string();
        let flags = ["-p", &longest, "-n", "0", "-r", &rounds, "--chunk", &list(&CHUNKS)];
        for row in product.bench(path, &flags)? {
            let times = Times::of(&row, number(&row, "n_prompt")?)?;
            model.chunks.push((number(&row, "n_ubatch")? as u64, times));
        }
        model.inflection = product.plan(path)?["inflections"]["first"].as_f64();
        if self.every_step {
            for length in LENGTHS {
                let steps = (length - PROMPT).to_string();
                let flags = ["-p", "0", "-n", &steps, "-d", &PROMPT.to_string(), "-r", "1"];
                for row in product.bench(path, &flags)? {
                    model.totals.push((length, Times::of(&row, (length - PROMPT) as f64)?));
                }
            }
            return Ok(model);
        }
        let depths: Vec<u64> = DEPTHS.into_iter().filter(|d| *d <= self.deepest as u64).collect();
        let steps = STEPS.to_string();
        let flags = ["-p", "0", "-n", &steps, "-d", &list(&depths), "-r", &rounds];
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
}
