//! `logits`: numbers for comparing with other programs.

use std::io::{BufWriter, Write};
use std::path::PathBuf;
use std::sync::atomic::Ordering;

use anyhow::Context as _;
use program::{LogitRows, Model, Outputs, Prompt, Sequence, SessionId, Step};

use super::tokenize::{parse_ids, print_ids};
use crate::args::{CacheArgs, ContextArgs, ModelArgs, ThreadArgs, VerboseArgs};
use crate::counts;
use crate::executor_args::ExecutorArgs;
use crate::exit::Failure;
use crate::interrupt::Interrupt;
use crate::load::{self, LoadOptions};
use crate::output::{OutputArgs, check_input, shown};
use crate::rope::RopeArgs;
use crate::ui;

/// Rows of logits held at once unless told otherwise: 64 rows of 150,000 numbers are 38 MB.
const ROWS: usize = 64;

/// Write the logits of given tokens, and continue them greedily
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Examples:\n  rooflight logits model.gguf --tokens '9707 11 1879' -o logits.f32\n  \
                        rooflight logits model.gguf --tokens '9707 11' --greedy 24 -ctk f32 -ctv f32\n\n\
                        With -o at most 64 tokens go through at once, unless --chunk says otherwise: each has a row."
)]
pub(super) struct Logits {
    #[command(flatten)]
    model: ModelArgs,
    /// Token ids, separated by spaces
    #[arg(long, value_name = "IDS")]
    tokens: String,
    /// File for the logits of every position
    ///
    /// Little-endian f32, [n_tokens, vocab_size]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    replace: OutputArgs,
    /// Print this many greedily chosen ids
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = counts::any)]
    greedy: usize,
    /// Print the ids of --greedy as one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    context: ContextArgs,
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

impl Logits {
    pub(crate) fn run(self, out: &mut dyn Write) -> anyhow::Result<()> {
        let tokens = parse_ids(&self.tokens)?;
        if tokens.is_empty() {
            return Err(Failure::Usage("--tokens: expected at least one id".into()).into());
        }
        if self.output.is_none() && self.greedy == 0 {
            return Err(
                Failure::Usage("nothing to do: give -o FILE, --greedy N, or both".into()).into()
            );
        }
        let model = self.model.path("logits")?;
        if let Some(path) = &self.output {
            check_input(path, &[&model])?;
            self.replace.check(path)?;
        }
        let interrupt = Interrupt::install();
        let mut gguf = load::open(&model)?;
        self.rope.apply(&mut gguf)?;
        let least = tokens.len().saturating_add(self.greedy);
        let capacity = |trained| match self.context.ctx_size {
            Some(_) => self.context.capacity(trained),
            None => least,
        };
        let options = LoadOptions {
            // with -o each token has a row
            chunk: self.cache.chunk.or(self.output.as_ref().map(|_| ROWS)),
            ..self.cache.load_options(&self.threads, self.verbose)
        };
        let cache = |config: &models::ModelConfig| {
            self.cache.options(capacity(config.context_length), config.context_length)
        };
        let loaded = load::model(&gguf, &self.executor, &options, &cache)?;
        let model = &*loaded.model;
        let session = model.open(&cache(&loaded.config))?;

        // from here on Ctrl-C removes what was written
        interrupt.begin();
        let mut file = match &self.output {
            Some(path) => Some(BufWriter::new(self.replace.create(path)?)),
            None => None,
        };
        let writing =
            || format!("writing {}", self.output.as_deref().map_or_else(String::new, shown));
        let bar = ui::count_bar("tokens", tokens.len() as u64);
        let mut last = Vec::new();
        let prompt = Some(Prompt { start: 0, len: tokens.len() });
        let outputs = if file.is_some() { Outputs::ALL } else { Outputs::LAST };
        for chunk in tokens.chunks(loaded.chunk) {
            let rows = step(model, session, chunk, outputs, prompt)?;
            if let Some(file) = &mut file {
                write_f32(file, &rows.logits).with_context(writing)?;
            }
            last = rows.rows().last().map(<[f32]>::to_vec).unwrap_or_default();
            bar.inc(chunk.len() as u64);
            if interrupt.flag().load(Ordering::Relaxed) {
                bar.finish_and_clear();
                return Err(Failure::Interrupted.into());
            }
        }
        interrupt.end();
        bar.finish_and_clear();
        if let Some(file) = file {
            file.into_inner()
                .map_err(|error| error.into_error())
                .with_context(writing)?
                .finish()?;
        }
        if self.greedy > 0 {
            let ids = greedy(model, session, last, self.greedy)?;
            print_ids(&ids, self.json, out)?;
        }
        Ok(())
    }
}

fn step(
    model: &dyn Model,
    session: SessionId,
    tokens: &[u32],
    outputs: Outputs,
    prompt: Option<Prompt>,
) -> program::Result<LogitRows> {
    let sequence = Sequence { session, tokens, outputs, prompt, rows: &[] };
    Ok(model.step(&Step { sequences: &[sequence] })?.single()?.into_logits())
}

fn write_f32(file: &mut impl Write, values: &[f32]) -> std::io::Result<()> {
    values.iter().try_for_each(|value| file.write_all(&value.to_le_bytes()))
}

/// `n` ids, each the most likely one; `logits` is the row before the first.
fn greedy(
    model: &dyn Model,
    session: SessionId,
    mut logits: Vec<f32>,
    n: usize,
) -> program::Result<Vec<u32>> {
    let mut ids = Vec::new();
    loop {
        ids.push(most_likely(&logits));
        if ids.len() == n {
            return Ok(ids);
        }
        logits = step(model, session, &ids[ids.len() - 1..], Outputs::LAST, None)?.logits;
    }
}

/// Index of the greatest logit, the lowest of equals.
fn most_likely(logits: &[f32]) -> u32 {
    let mut best = 0;
    for (i, logit) in logits.iter().enumerate() {
        if *logit > logits[best] {
            best = i;
        }
    }
    u32::try_from(best).expect("a vocabulary has at most 2^32 tokens")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_of_equals_is_most_likely() {
        assert_eq!(most_likely(&[-1.0, 2.0, 2.0, 1.0]), 1);
        assert_eq!(most_likely(&[0.0, 0.0]), 0);
    }
}
