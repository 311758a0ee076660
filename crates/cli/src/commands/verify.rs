//! `verify`: the same logits to the bit, however a model is run on this machine. The matrix is in `engine`.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use comfy_table::{Cell, CellAlignment, Table, presets};
use engine::{Verified, VerifyMatrix, VerifyState, VerifyStorage};
use executors::SessionFolders;
use gguf::Gguf;
use program::{CacheKind, CacheOptions, CacheSpec, Program};
use serde_json::json;

use crate::args::{CacheArgs, ModelArgs, VerboseArgs};
use crate::counts::{self, ThreadCount};
use crate::executor_args::ExecutorArgs;
use crate::exit::Failure;
use crate::load::{self, LoadOptions};
use crate::storage::StorageArgs;
use crate::{keeping, ui, units};

/// Check that a model says the same, to the bit, however it is run
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Examples:\n  rooflight verify model.gguf --quick\n  rooflight verify model.gguf --kv-policy infllm --json\n\n\
                  Logits of 128 tokens are computed with 1, 2, 3, 5, 8 and 16 threads, prompts cut into 1, 7, 64, 128 and 512, \
                  1, 2, 5 and 16 texts in each pass, cold, after a part was cached, and as drafts: 360 runs, all of which \
                  must have the same bits, 120 more with --kv-disk, and 120 with --cache-disk, of which a part was kept there \
                  by a model that is gone. Exit code 1 if one has others."
)]
pub(super) struct Verify {
    #[command(flatten)]
    model: ModelArgs,
    /// 24 runs of a few tokens, with one thread and with all
    #[arg(long)]
    quick: bool,
    /// Instead of 1, 2, 3, 5, 8 and 16
    #[arg(short, long, value_name = "LIST", value_delimiter = ',', value_parser = counts::threads)]
    threads: Vec<ThreadCount>,
    /// Tokens whose logits are compared
    #[arg(short = 'n', long, value_name = "N", value_parser = counts::tokens)]
    n_gen: Option<usize>,
    #[command(flatten)]
    cache: CacheArgs,
    /// A folder where parts of texts are kept for another model to find, as a server does over restarts
    #[arg(long, value_name = "DIR")]
    cache_disk: Option<PathBuf>,
    #[command(flatten)]
    executor: ExecutorArgs,
    /// Print one JSON object: every run and its digest
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    verbose: VerboseArgs,
}

impl Verify {
    pub(crate) fn run(self, out: &mut dyn Write) -> anyhow::Result<()> {
        let gguf = load::open_or_bundled(self.model.clone().given().as_deref())?;
        let matrix = self.matrix();
        let model = models::load(&gguf)?;
        let cache = self.cache.options(matrix.capacity(), model.config.context_length);
        let found = self.runs(&gguf, &matrix, cache)?;
        let verdict = Verdict::of(&found);
        if self.json {
            writeln!(out, "{}", verdict.to_json(&found))?;
        } else {
            writeln!(out, "{}", verdict.table(&matrix, &found))?;
            writeln!(out, "{}", verdict.line())?;
        }
        if verdict.others > 0
            && let Some(why) = exception(&model.program, self.executor.mla.is_some())
        {
            ui::note(why);
        }
        let on_disk = |one: &&Verified| one.run.state == VerifyState::Spilled;
        let mut spilled = found.iter().filter(on_disk).peekable();
        if spilled.peek().is_some() && spilled.all(|one| one.spilled == 0) {
            ui::warn(
                "--kv-disk has no effect: all had room in memory; a smaller --kv-memory or --kv-local leaves none",
            );
        }
        let from_disk = |one: &&Verified| one.run.state == VerifyState::Restored;
        let mut restored = found.iter().filter(from_disk).peekable();
        // every second text beside others is there as a whole, also where caches cannot be cut
        let nothing_restored = restored.peek().is_some() && restored.all(|one| one.restored == 0);
        match verdict.others {
            0 if nothing_restored => {
                let told = "--cache-disk: nothing came back from there, and all was computed";
                Err(Failure::Differs(told.into()).into())
            }
            0 => Ok(()),
            _ => Err(Failure::Differs(verdict.line()).into()),
        }
    }

    fn matrix(&self) -> VerifyMatrix {
        let mut matrix = match self.quick {
            true => VerifyMatrix::quick(self.executor.options(None).n_threads()),
            false => VerifyMatrix::whole(),
        };
        if self.threads.iter().any(|count| count.0.is_some()) {
            matrix.threads = self.threads.iter().filter_map(|count| count.0).collect();
        }
        if let Some(n) = self.cache.chunk {
            matrix.chunks = vec![n];
        }
        if self.cache.storage.has_disk() {
            matrix.states.push(VerifyState::Spilled);
        }
        if self.cache_disk.is_some() {
            matrix.states.push(VerifyState::Restored);
        }
        matrix.tokens = self.n_gen.unwrap_or(matrix.tokens).max(3);
        matrix
    }

    fn runs(
        &self,
        gguf: &Gguf,
        matrix: &VerifyMatrix,
        cache: CacheOptions,
    ) -> anyhow::Result<Vec<Verified>> {
        let bar = ui::count_bar("runs", matrix.runs() as u64);
        // with a disk the other states show what it must not change
        let kept = &self.cache.storage;
        let storage = |disk| {
            if disk || !kept.has_disk() { kept.clone() } else { StorageArgs::default() }
        };
        let mut load = |threads, lies: VerifyStorage| {
            let disk = lies == VerifyStorage::Spills;
            let folder = self.cache_disk.as_ref().filter(|_| lies == VerifyStorage::Keeps);
            // what a user has there is none of its business
            let conversations = folder.map(|folder| keeping::untouched(folder));
            let conversations = conversations.transpose()?;
            let options = LoadOptions {
                threads: Some(threads),
                verbose: self.verbose.verbose,
                chunk: self.cache.chunk,
                values: self.cache.cache_type_v.is_some(),
                same_bits: Some("verify"),
                storage: storage(disk),
                kept: SessionFolders { conversations, saved: None },
                ..LoadOptions::default()
            };
            let loaded = load::model(gguf, &self.executor, &options, &|_| cache)?;
            Ok::<_, anyhow::Error>(loaded.model)
        };
        let (mut found, mut told) = (Vec::new(), false);
        let started = Instant::now();
        engine::verify(matrix, cache, &mut load, &mut |one| {
            found.push(one);
            bar.inc(1);
            let left = one.elapsed.mul_f64((matrix.runs() - 1) as f64);
            if !std::mem::replace(&mut told, true) && left > LONG {
                ui::note(format_args!("this takes about {}", units::about(left)));
            }
            Ok(())
        })?;
        bar.finish_and_clear();
        if self.verbose.verbose {
            ui::note(format_args!("{} runs in {}", found.len(), units::seconds(started.elapsed())));
        }
        Ok(found)
    }
}

/// What is not promised of this model, if nothing keeps it from happening.
fn exception(program: &Program, one_form: bool) -> Option<&'static str> {
    let latent = |cache: &CacheSpec| matches!(cache.kind, CacheKind::Latent { .. });
    let differs = !one_form && program.caches.iter().any(latent);
    differs.then_some(
        "latent attention takes its form from how much of a prompt is computed, and a cached part changes that: \
         with --mla elided it has one form",
    )
}

/// What is worth telling before it is waited for.
const LONG: Duration = Duration::from_secs(20);

/// What most runs yielded, and how many did not.
struct Verdict {
    digest: u64,
    runs: usize,
    others: usize,
}

impl Verdict {
    fn of(found: &[Verified]) -> Verdict {
        let mut counts: BTreeMap<u64, usize> = BTreeMap::new();
        found.iter().for_each(|one| *counts.entry(one.digest).or_default() += 1);
        let most = counts.into_iter().max_by_key(|(_, n)| *n).unwrap_or_default();
        Verdict { digest: most.0, runs: found.len(), others: found.len() - most.1 }
    }

    /// `360 of 360 runs have the same bits: 9f86d081884c7d65`.
    fn line(&self) -> String {
        let Verdict { digest, runs, others } = self;
        format!("{} of {runs} runs have the same bits: {digest:016x}", runs - others)
    }

    /// A row for each number of threads and state, a column for each cut and number of texts.
    fn table(&self, matrix: &VerifyMatrix, found: &[Verified]) -> Table {
        let mut table = Table::new();
        table.load_style(presets::ASCII_MARKDOWN);
        let columns: Vec<(usize, usize)> = matrix
            .together
            .iter()
            .flat_map(|texts| matrix.chunks.iter().map(move |chunk| (*texts, *chunk)))
            .collect();
        let head = |(texts, chunk): &(usize, usize)| format!("{texts} x {chunk}");
        table.set_header(
            ["threads".to_owned(), "tokens".to_owned()].into_iter().chain(columns.iter().map(head)),
        );
        for &threads in &matrix.threads {
            for state in &matrix.states {
                let cell = |(texts, chunk): &(usize, usize)| {
                    let run = |one: &&Verified| {
                        let run = one.run;
                        (run.threads, run.state, run.together, run.chunk)
                            == (threads, *state, *texts, *chunk)
                    };
                    let same = found.iter().find(run).map(|one| one.digest == self.digest);
                    let word = same.map_or("", |same| if same { "same" } else { "OTHER" });
                    Cell::new(word).set_alignment(CellAlignment::Center)
                };
                let before = [Cell::new(threads), Cell::new(state.name())];
                table.add_row(before.into_iter().chain(columns.iter().map(cell)));
            }
        }
        table
    }

    fn to_json(&self, found: &[Verified]) -> serde_json::Value {
        let run = |one: &Verified| {
            json!({
                "threads": one.run.threads,
                "chunk": one.run.chunk,
                "texts": one.run.together,
                "tokens": one.run.state.name(),
                "digest": format!("{:016x}", one.digest),
                "same": one.digest == self.digest,
                "ms": one.elapsed.as_secs_f64() * 1e3,
                "spilled": one.spilled,
                "restored": one.restored,
            })
        };
        json!({
            "runs": self.runs,
            "same": self.runs - self.others,
            "digest": format!("{:016x}", self.digest),
            "all": found.iter().map(run).collect::<Vec<_>>(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_latents_whose_form_is_free_are_an_exception() {
        let told = |architecture: &str, one_form| {
            let config = conformance::tiny_config(architecture, 64, false);
            let program = conformance::tiny_model(&config, quant::GgmlType::F32);
            exception(&program, one_form).is_some()
        };
        assert!(told("deepseek2", false));
        assert!(!told("deepseek2", true) && !told("qwen2", false));
    }
}
