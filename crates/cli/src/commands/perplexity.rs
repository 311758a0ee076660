//! `perplexity`: the measure itself is in `engine`.

use std::io::Write;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use anyhow::Context as _;
use engine::PerplexityOptions;
use serde_json::json;

use crate::args::{CacheArgs, ModelArgs, ThreadArgs, VerboseArgs};
use crate::counts;
use crate::executor_args::ExecutorArgs;
use crate::exit::Failure;
use crate::input::TextSource;
use crate::load;
use crate::rope::RopeArgs;
use crate::{ui, units};

/// Measure how well a model predicts a text
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:\n  rooflight perplexity model.gguf -f text.txt\n\n\
                        As llama.cpp counts it: windows of -c tokens, the second half of each is scored, at most 64 tokens at once.")]
pub(super) struct Perplexity {
    #[command(flatten)]
    model: ModelArgs,
    /// The text; - for stdin
    #[arg(short, long, value_name = "FILE")]
    file: PathBuf,
    /// Names of special tokens in the text become those tokens
    #[arg(long)]
    special: bool,
    /// Tokens per window
    #[arg(short, long, value_name = "N", default_value_t = 512, value_parser = counts::tokens)]
    ctx_size: usize,
    /// Windows to score, -1 for all
    #[arg(long, value_name = "N", default_value = "-1", value_parser = windows, allow_negative_numbers = true)]
    chunks: Windows,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    rope: RopeArgs,
    #[command(flatten)]
    cache: CacheArgs,
    #[command(flatten)]
    threads: ThreadArgs,
    #[command(flatten)]
    executor: ExecutorArgs,
    #[command(flatten)]
    verbose: VerboseArgs,
}

/// Part of a text to score.
#[derive(Clone, Copy, Debug)]
enum Windows {
    All,
    First(usize),
}

fn windows(text: &str) -> Result<Windows, String> {
    match text {
        "-1" => Ok(Windows::All),
        _ => counts::tokens(text).map(Windows::First),
    }
}

/// Refuses a text that is shorter than a window, and suggests a window size that fits it.
///
/// # Errors
/// A text that is too short.
fn check_length(n_tokens: usize, window: usize) -> rooflight::Result<()> {
    if n_tokens >= window {
        return Ok(());
    }
    let fits = match n_tokens {
        0..8 => String::new(),
        // a power of two, as people usually type
        n => format!(", or smaller windows by -c {}", 1_usize << n.ilog2()),
    };
    Err(rooflight::Error::Malformed(format!(
        "the text has {n_tokens} tokens, fewer than a window of {window}: give a longer text{fits}"
    )))
}

impl Perplexity {
    pub(crate) fn run(self, out: &mut dyn Write) -> anyhow::Result<()> {
        let mut gguf = load::open(&self.model.path("perplexity")?)?;
        self.rope.apply(&mut gguf)?;
        let text = TextSource::of_path(self.file).read()?;
        let tokenizer = load::tokenizer(&gguf)?;
        load::warn_lost(&tokenizer, &text)?;
        let bos = tokenizer.bos().filter(|_| tokenizer.adds_bos());
        let mut tokens: Vec<u32> = bos.into_iter().collect();
        let encoded =
            if self.special { tokenizer.encode_special(&text) } else { tokenizer.encode(&text) };
        tokens.extend(encoded.context("encoding the text")?);
        check_length(tokens.len(), self.ctx_size)?;
        if let Windows::First(n) = self.chunks {
            tokens.truncate(n.saturating_mul(self.ctx_size));
        }

        let options = self.cache.load_options(&self.threads, self.verbose);
        let cache =
            |config: &models::ModelConfig| self.cache.options(self.ctx_size, config.context_length);
        let loaded = load::model(&gguf, &self.executor, &options, &cache)?;
        let cache = cache(&loaded.config);
        drop(gguf);
        let options = PerplexityOptions { cache, bos, chunk: loaded.chunk };
        let bar = ui::count_bar("windows", engine::windows(tokens.len(), self.ctx_size) as u64);
        let running = AtomicBool::new(false);
        let start = Instant::now();
        let result = engine::perplexity(&loaded.model, options, &tokens, &running, &mut |window| {
            bar.inc(1);
            bar.set_message(format!("{:.4}", window.so_far.value));
            if self.verbose.verbose && !ui::stderr_is_terminal() {
                ui::note(format_args!(
                    "[{}/{}] {:.4}",
                    window.so_far.windows, window.total, window.so_far.value
                ));
            }
        });
        bar.finish_and_clear();
        let result = result?.ok_or(Failure::Interrupted)?;
        let engine::Perplexity { value, error, tokens: scored, windows } = result;
        let rate = units::rate(windows * self.ctx_size, start.elapsed());
        if self.json {
            let object = json!({
                "perplexity": value,
                "error": error,
                "windows": windows,
                "window_tokens": self.ctx_size,
                "tokens_scored": scored,
                "tokens_per_second": rate,
            });
            return Ok(writeln!(out, "{object}")?);
        }
        writeln!(out, "perplexity: {value:.4} +/- {error:.5}")?;
        writeln!(
            out,
            "PPL = {value:.4} +/- {error:.5}, {windows} windows of {} tokens, {scored} tokens scored, {rate:.1} tokens/s",
            self.ctx_size
        )?;
        Ok(())
    }
}
