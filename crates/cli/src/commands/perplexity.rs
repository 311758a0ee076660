//! `perplexity`: the measure itself is in `engine`.

use std::io::Write;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

use anyhow::Context as _;

use crate::args::{CacheArgs, ExecutorArgs, ModelArgs, ThreadArgs, VerboseArgs};
use crate::exit::Failure;
use crate::load::{self, LoadOptions};
use crate::ui;

/// Measure how well a model predicts a text
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:\n  rooflight perplexity -m model.gguf -f text.txt\n\n\
                        As llama.cpp counts it: windows of -c tokens, the second half of each is scored.")]
pub(super) struct Perplexity {
    #[command(flatten)]
    model: ModelArgs,
    /// The text
    #[arg(short, long, value_name = "FILE")]
    file: PathBuf,
    /// Names of special tokens in the text become those tokens
    #[arg(long)]
    special: bool,
    /// Tokens per window
    #[arg(short, long, value_name = "N", default_value_t = 512)]
    ctx_size: usize,
    #[command(flatten)]
    cache: CacheArgs,
    #[command(flatten)]
    threads: ThreadArgs,
    #[command(flatten)]
    executor: ExecutorArgs,
    #[command(flatten)]
    verbose: VerboseArgs,
}

impl Perplexity {
    pub(crate) fn run(self, out: &mut dyn Write) -> anyhow::Result<()> {
        let gguf = load::open(&self.model.model)?;
        let text = std::fs::read_to_string(&self.file)
            .with_context(|| format!("reading {}", self.file.display()))?;
        let tokenizer = load::tokenizer(&gguf)?;
        let bos = tokenizer.bos().filter(|_| tokenizer.adds_bos());
        let mut tokens: Vec<u32> = bos.into_iter().collect();
        let encoded =
            if self.special { tokenizer.encode_special(&text) } else { tokenizer.encode(&text) };
        tokens.extend(encoded.context("encoding the text")?);

        let cache = self.cache.options(self.ctx_size);
        let options = LoadOptions {
            threads: self.threads.threads,
            verbose: self.verbose.verbose,
            ceilings: false,
            chunk: self.cache.chunk,
        };
        let loaded = load::model(&gguf, &self.executor, options, &|_| cache)?;
        drop(gguf);
        let bar = ui::count_bar("windows", engine::windows(tokens.len(), self.ctx_size) as u64);
        let running = AtomicBool::new(false);
        let result =
            engine::perplexity(&loaded.model, cache, &tokens, bos, &running, &mut |window| {
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
        writeln!(out, "perplexity: {:.4} +/- {:.5}", result.value, result.error)?;
        Ok(())
    }
}
