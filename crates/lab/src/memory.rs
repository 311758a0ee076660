//! `memory`: what models take, by theory, on disk, as the executor declares and as the system counts it.

use std::io::Write;
use std::path::PathBuf;

use comfy_table::{Cell as Field, CellAlignment, Table, presets};
use console::args::{IsaArgs, ThreadArgs};
use console::units::{count, decimal_bytes};
use console::{args, counts};
use executors::ExecutorOptions;
use program::{
    CacheOptions, CacheType, Executor as _, MemoryNeeds, MemoryOptions, Model, Outputs, Prompt,
    Sequence, Step, StepOut,
};
use serde_json::{Value, json};

use crate::subject::Subject;

/// Measure the memory that models take
///
/// Of each model: its weights by theory, its file, what the executor says before it loads that it will take, and what the
/// system counts of this process, after loading and with a full context.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Examples:\n  rooflight-lab memory model.gguf\n  rooflight-lab memory small.gguf large.gguf -c 4k --json\n\n\
                  Measured is memory of the process that is no page of a file, less what it had before the model came. Linux only."
)]
pub(super) struct Memory {
    /// GGUF files
    #[arg(value_name = "MODEL", required = true)]
    models: Vec<PathBuf>,
    /// Positions of the cache, all of which are filled
    #[arg(short = 'c', long, value_name = "N", value_parser = counts::tokens, default_value = "512")]
    ctx_size: usize,
    /// Tokens in a pass
    #[arg(long, value_name = "N", value_parser = counts::chunk, default_value = "512")]
    chunk: usize,
    /// Type of cached keys and values (-ctk): f32, f16, q8_0
    #[arg(long, value_name = "TYPE", value_parser = args::cache_type, default_value = "f16")]
    cache_type_k: CacheType,
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    threads: ThreadArgs,
    #[command(flatten)]
    isa: IsaArgs,
}

/// One model, all in bytes.
#[derive(Clone, Debug, PartialEq)]
struct Taken {
    file: String,
    parameters: u64,
    /// Of all its weights, in the types of the file.
    theory: u64,
    file_bytes: u64,
    declared: MemoryNeeds,
    /// Counted by the executor.
    weights: u64,
    cache: u64,
    /// Counted by the system: after loading, and with a full context. `None` where it does not tell.
    loaded: Option<u64>,
    full: Option<u64>,
}

impl Memory {
    pub(super) fn run(self, out: &mut dyn Write) -> anyhow::Result<()> {
        let threads = args::threads_to_start(self.threads.count());
        let measure = |path: &PathBuf| self.measure(&Subject::open(path)?, threads);
        let taken = self.models.iter().map(measure).collect::<Vec<_>>();
        let taken = taken.into_iter().collect::<anyhow::Result<Vec<Taken>>>()?;
        if self.json {
            let models: Vec<Value> = taken.iter().map(json_of).collect();
            serde_json::to_writer_pretty(&mut *out, &models)?;
            return Ok(writeln!(out)?);
        }
        let (n, cache) = (self.ctx_size, self.cache_type_k.name());
        Ok(writeln!(
            out,
            "Context {n}, cache {cache}, {} at a time\n\n{}",
            self.chunk,
            table(&taken)
        )?)
    }

    fn measure(&self, subject: &Subject, threads: Option<usize>) -> anyhow::Result<Taken> {
        let options = ExecutorOptions { threads, isa: self.isa.isa, ..ExecutorOptions::default() };
        let cpu = options.cpu();
        let (kv, capacity) = (self.cache_type_k, self.ctx_size);
        let cache = CacheOptions::new(kv, kv, capacity);
        let asked = MemoryOptions { cache, sessions: 1, chunk: self.chunk };
        let declared = cpu.memory(&subject.program, &asked)?;
        let before = resident();
        let more = || Some(resident()?.saturating_sub(before?));
        let model = subject.load(&cpu)?;
        let loaded = more();
        let session = model.open(&cache)?;
        self.fill(&*model, session)?;
        let theory = subject.program.weights.iter().map(program::WeightSpec::bytes).sum();
        Ok(Taken {
            file: subject.file.clone(),
            parameters: subject.parameters,
            theory,
            file_bytes: subject.gguf.file_bytes(),
            declared,
            weights: model.stats().weight_memory,
            cache: model.cache_bytes(session)?,
            loaded,
            full: more(),
        })
    }

    /// Compute a prompt as long as the context.
    fn fill(&self, model: &dyn Model, session: program::SessionId) -> anyhow::Result<()> {
        let vocab = model.program().vocab_size().max(1);
        let tokens: Vec<u32> = (0..self.ctx_size).map(|i| (i % 1000 % vocab) as u32).collect();
        let prompt = Some(Prompt { start: 0, len: tokens.len() });
        for tokens in tokens.chunks(self.chunk) {
            let outputs = Outputs::LAST;
            let sequence = Sequence { session, tokens, outputs, prompt, rows: &[] };
            model.step(&Step { sequences: &[sequence] }).and_then(StepOut::single)?;
        }
        Ok(())
    }
}

/// Memory of this process that is no page of a file, in bytes.
fn resident() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let field = |name: &str| -> Option<u64> {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        Some(line.split_whitespace().next()?.parse::<u64>().ok()? * 1024)
    };
    Some(field("RssAnon:")? + field("RssShmem:")?)
}

const COLUMNS: [&str; 9] = [
    "model",
    "parameters",
    "theory",
    "file",
    "declared: weights",
    "cache",
    "work",
    "measured: loaded",
    "full",
];

fn table(models: &[Taken]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN).set_header(COLUMNS);
    for taken in models {
        let bytes = |n: u64| decimal_bytes(n as f64);
        let told = |n: Option<u64>| n.map(bytes).unwrap_or_default();
        let numbers = [
            count(taken.parameters),
            bytes(taken.theory),
            bytes(taken.file_bytes),
            bytes(taken.declared.weights),
            bytes(taken.declared.cache),
            bytes(taken.declared.work),
            told(taken.loaded),
            told(taken.full),
        ];
        let numbers = numbers.map(|text| Field::new(text).set_alignment(CellAlignment::Right));
        table.add_row(std::iter::once(Field::new(&taken.file)).chain(numbers));
    }
    table
}

fn json_of(taken: &Taken) -> Value {
    json!({
        "model": taken.file,
        "parameters": taken.parameters,
        "theory_bytes": taken.theory,
        "file_bytes": taken.file_bytes,
        "declared_weight_bytes": taken.declared.weights,
        "declared_cache_bytes": taken.declared.cache,
        "declared_work_bytes": taken.declared.work,
        "weight_bytes": taken.weights,
        "cache_bytes": taken.cache,
        "loaded_bytes": taken.loaded,
        "full_bytes": taken.full,
    })
}
