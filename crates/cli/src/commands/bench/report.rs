//! Rows of results as a table, JSON, JSON lines or CSV, with llama-bench's keys.

use std::io::Write;
use std::time::{SystemTime, UNIX_EPOCH};

use executors::{ExecutorKind, GpuFacts};
use gguf::Gguf;
use planner::{Cost, CostOptions};
use plot::Picture;
use program::CacheOptions;
use serde::Serialize;

use super::explain::{self, Explanation};
use super::measure::{Fill, Test, Timed};
use crate::ceilings::{KnownCeilings, cpu_name};
use crate::executor;
use crate::limits::{Limits, Unjudged};
use crate::load::Loaded;
use crate::wrap::hanging;
use crate::{naming, storage, ui};

use table::{legend, reasons, tables};

mod table;

/// How results are written.
#[derive(clap::ValueEnum, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Format {
    /// A table.
    #[default]
    Md,
    /// An array of objects.
    Json,
    /// One object per line, as tests end.
    Jsonl,
    /// A line of names, then one line per test.
    Csv,
}

/// What the rows of one loaded model have in common.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Setting {
    build_commit: &'static str,
    build_number: u32,
    cpu_info: String,
    gpu_info: String,
    backends: &'static str,
    model_filename: String,
    pub(super) model_type: String,
    model_size: u64,
    model_n_params: u64,
    n_batch: usize,
    n_ubatch: usize,
    pub(super) n_threads: usize,
    type_k: &'static str,
    type_v: &'static str,
    #[serde(flatten)]
    fixed: Fixed,
    #[serde(skip)]
    weight_bytes_per_token: u64,
    /// What of the past steps read.
    kv_policy: String,
    /// How depths are reached: made-up rows, or a prompt.
    fill: Fill,
    #[serde(skip)]
    cost: Cost,
}

/// What llama-bench can be told and Rooflight does in one way, with the keys and types that it documents.
/// Source: tools/llama-bench/README.md of llama.cpp, "Output formats".
#[derive(Clone, Copy, Debug, Serialize)]
struct Fixed {
    cpu_mask: &'static str,
    cpu_strict: bool,
    poll: u32,
    n_gpu_layers: i32,
    n_cpu_moe: u32,
    split_mode: &'static str,
    main_gpu: u32,
    no_kv_offload: bool,
    flash_attn: i32,
    devices: &'static str,
    tensor_split: &'static str,
    tensor_buft_overrides: &'static str,
    load_mode: &'static str,
    use_mmap: bool,
    use_direct_io: bool,
    embeddings: bool,
    no_op_offload: u32,
    no_host: bool,
    repack: bool,
    moe_cache: &'static str,
    n_gen_warmup: u32,
    fit_target: u32,
    fit_min_ctx: u32,
}

const FIXED: Fixed = Fixed {
    cpu_mask: "0x0",
    cpu_strict: false,
    poll: 50,
    n_gpu_layers: 0,
    n_cpu_moe: 0,
    split_mode: "none",
    main_gpu: 0,
    no_kv_offload: false,
    flash_attn: 1,
    devices: "none",
    tensor_split: "0.00",
    tensor_buft_overrides: "none",
    load_mode: "none",
    use_mmap: false,
    use_direct_io: false,
    embeddings: false,
    no_op_offload: 0,
    no_host: false,
    repack: true,
    moe_cache: "off",
    n_gen_warmup: 1,
    fit_target: 0,
    fit_min_ctx: 0,
};

impl Setting {
    /// Of a model as it is loaded.
    pub(super) fn new(
        gguf: &Gguf,
        loaded: &Loaded,
        cache: CacheOptions,
        chunk: usize,
        fill: Fill,
    ) -> Self {
        let program = loaded.model.program();
        let CacheOptions { k, v, policy, .. } = executor::kept(&cache, loaded.gpu.as_ref());
        Self {
            build_commit: concat!("rooflight-", env!("CARGO_PKG_VERSION")),
            build_number: 0,
            cpu_info: cpu_name(),
            gpu_info: loaded.gpu.as_ref().map(|gpu| gpu.adapter.clone()).unwrap_or_default(),
            backends: match &loaded.gpu {
                Some(GpuFacts { beside: Some(_), .. }) => match loaded.chosen.kind {
                    ExecutorKind::Cuda => "cuda,CPU",
                    _ => "wgpu,CPU",
                },
                Some(_) => loaded.chosen.kind.name(),
                None => "CPU",
            },
            model_filename: gguf
                .paths()
                .first()
                .map(|path| path.display().to_string())
                .unwrap_or_default(),
            model_type: naming::description(gguf, &loaded.config),
            model_size: gguf.tensors().iter().map(|t| t.byte_len() as u64).sum(),
            model_n_params: naming::parameters(gguf),
            n_batch: chunk,
            n_ubatch: chunk,
            n_threads: loaded.n_threads(),
            type_k: k.name(),
            type_v: v.name(),
            fixed: match &loaded.gpu {
                Some(gpu) => {
                    let n_layers = gpu.beside.unwrap_or(loaded.config.layers.len());
                    Fixed { n_gpu_layers: n_layers as i32, ..FIXED }
                }
                None => FIXED,
            },
            weight_bytes_per_token: program.weight_bytes_per_token(),
            kv_policy: cache.policy.to_string(),
            fill,
            cost: Cost::of(program, &CostOptions { k, v, policy, ..CostOptions::default() }),
        }
    }

    /// Bytes of the cache that a step reads of `positions`.
    fn cache_bytes_read(&self, positions: u64) -> u64 {
        let step = positions.checked_sub(1).map(|past| self.cost.step(past).total());
        step.map_or(0, |step| step.cache_read_bytes)
    }

    /// What a machine with these ceilings allows this model.
    pub(super) fn limits(
        &self,
        loaded: &Loaded,
        cache: CacheOptions,
        ceilings: &KnownCeilings,
    ) -> Option<Limits> {
        Limits::new(loaded.model.program(), &cache, self.n_ubatch, ceilings, self.n_threads)
    }
}

/// One test's result.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Row {
    #[serde(flatten)]
    setting: Setting,
    n_prompt: usize,
    n_gen: usize,
    n_depth: usize,
    /// Whether the model's likeliest tokens were generated; else made-up ones.
    greedy: bool,
    test_time: String,
    avg_ns: u64,
    stddev_ns: u64,
    avg_ts: f64,
    stddev_ts: f64,
    samples_ns: Vec<u64>,
    samples_ts: Vec<f64>,
    /// Bytes of memory that one token reads at least: all weights it is multiplied with, and the cache at half of the
    /// test's length. For a prompt the weights are shared by the tokens of a chunk.
    bytes_per_token: u64,
    /// Tokens per second that the machine's ceilings, the best ever seen, allow at most; absent for an executor without
    /// ceilings.
    #[serde(skip_serializing_if = "Option::is_none")]
    limit_ts: Option<f64>,
    /// `avg_ts / limit_ts`; absent if it is unreliable: the work is too small, or the limit is in doubt.
    #[serde(skip_serializing_if = "Option::is_none")]
    share: Option<f64>,
    /// The limit is in doubt: other programs ran during every measurement of the ceilings, or a run was faster than they allow.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    limit_busy: bool,
    /// The resource that sets the limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    bound_by: Option<&'static str>,
    /// Tokens per second to be expected from the rates of our kernels, where those are known.
    #[serde(skip_serializing_if = "Option::is_none")]
    expected_ts: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    explain: Option<Explanation>,
    /// Blocks between memory and disk in all samples; absent where there were none.
    #[serde(skip_serializing_if = "serde_json::Value::is_null")]
    kv_disk: serde_json::Value,
    /// The same in words.
    #[serde(skip)]
    from_disk: Option<String>,
    /// Reason why `share` is missing.
    #[serde(skip)]
    unjudged: Option<Unjudged>,
    #[serde(skip)]
    test: String,
}

impl Row {
    /// With where the time went.
    pub(super) fn explained(self, explain: Option<Explanation>) -> Self {
        Self { explain, ..self }
    }

    /// From the times of one test, and what the machine would have allowed.
    pub(super) fn new(
        setting: &Setting,
        test: Test,
        started: String,
        timed: &Timed,
        limits: Option<&Limits>,
    ) -> Self {
        let ns: Vec<f64> = timed.samples.iter().map(|time| time.as_nanos() as f64).collect();
        let ts: Vec<f64> = ns.iter().map(|ns| test.tokens() as f64 * 1e9 / ns.max(1.0)).collect();
        let rows = if test.n_gen > 0 { 1 } else { test.n_prompt.min(setting.n_ubatch).max(1) };
        let position = (test.depth + test.tokens() / 2) as u64;
        let limit = limits.map(|limits| {
            let prompt = limits.prompt(test.depth, test.n_prompt);
            prompt.plus(&limits.steps(test.depth + test.n_prompt, test.n_gen))
        });
        let expected =
            limits.and_then(|limits| limits.expected(test.depth, test.n_prompt, test.n_gen));
        let share =
            limits.zip(limit.as_ref()).and_then(|(l, limit)| l.share_of(limit, mean(&ns) / 1e9));
        // a run that was faster than its limit puts the limit in doubt
        let unjudged =
            limits.zip(limit.as_ref()).and_then(|(l, limit)| l.unjudged(limit, mean(&ns) / 1e9));
        let limit_ts = limit.as_ref().map(|limit| test.tokens() as f64 / limit.limit());
        Self {
            n_prompt: test.n_prompt,
            n_gen: test.n_gen,
            n_depth: test.depth,
            greedy: test.greedy,
            test_time: started,
            avg_ns: mean(&ns) as u64,
            stddev_ns: deviation(&ns) as u64,
            avg_ts: mean(&ts),
            stddev_ts: deviation(&ts),
            samples_ns: ns.iter().map(|ns| *ns as u64).collect(),
            bytes_per_token: setting.weight_bytes_per_token / rows as u64
                + setting.cache_bytes_read(position),
            limit_ts,
            share: share.map(|share| share.part),
            limit_busy: limits.is_some_and(|limits| limits.doubt().is_some()),
            bound_by: limit.map(|limit| limit.binds().name()),
            samples_ts: ts,
            expected_ts: expected.map(|seconds| test.tokens() as f64 / seconds),
            explain: None,
            unjudged,
            kv_disk: storage::to_json(&timed.spilled),
            from_disk: storage::per_token(&timed.spilled, test.tokens() * timed.samples.len()),
            test: test.name(),
            setting: setting.clone(),
        }
    }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

/// Standard deviation of a sample; 0 for a single value.
fn deviation(values: &[f64]) -> f64 {
    let mean = mean(values);
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    if values.len() < 2 { 0.0 } else { (squares / (values.len() - 1) as f64).sqrt() }
}

/// The current time, `2026-05-04T12:00:00Z`.
pub(super) fn now() -> String {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
    timestamp(seconds)
}

/// Seconds since 1970 as a date. The calendar starts in March, so that the leap day ends a year.
/// Source: days from civil, Howard Hinnant, "chrono-compatible low-level date algorithms".
fn timestamp(seconds: u64) -> String {
    let (days, time) = (seconds / 86_400 + 719_468, seconds % 86_400);
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    format!(
        "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z",
        time / 3600,
        time / 60 % 60,
        time % 60
    )
}

/// Collects rows and writes them in one of the formats.
pub(super) struct Report<'a> {
    format: Format,
    out: &'a mut dyn Write,
    rows: Vec<Row>,
}

impl<'a> Report<'a> {
    /// An empty report.
    pub(super) fn new(format: Format, out: &'a mut dyn Write) -> Self {
        Self { format, out, rows: Vec::new() }
    }

    /// Add a row; JSON lines are written at once.
    pub(super) fn row(&mut self, row: &Row) -> anyhow::Result<()> {
        if self.format == Format::Jsonl {
            serde_json::to_writer(&mut *self.out, row)?;
            writeln!(self.out)?;
            self.out.flush()?;
        }
        self.rows.push(row.clone());
        Ok(())
    }

    /// The explanations of all rows as a picture.
    pub(super) fn picture(&self) -> Picture {
        let explanations: Vec<&Explanation> =
            self.rows.iter().filter_map(|row| row.explain.as_ref()).collect();
        let mut models: Vec<&str> = self.rows.iter().map(|row| &*row.setting.model_type).collect();
        models.dedup();
        explain::picture(&models.join(", "), &explanations)
    }

    /// Write what was collected.
    pub(super) fn finish(self) -> anyhow::Result<()> {
        match self.format {
            Format::Jsonl => {}
            Format::Json => {
                serde_json::to_writer_pretty(&mut *self.out, &self.rows)?;
                writeln!(self.out)?;
            }
            Format::Csv => csv(&self.rows, self.out)?,
            Format::Md => {
                let columns = ui::stdout_columns();
                writeln!(self.out, "{}", tables(&self.rows, columns))?;
                let indent = |_: &str| 0;
                write!(
                    self.out,
                    "{}",
                    hanging(&legend(&self.rows), columns.unwrap_or(80), indent)
                )?;
                for reason in reasons(&self.rows) {
                    write!(self.out, "{}", hanging(&reason, columns.unwrap_or(usize::MAX), |_| 2))?;
                }
                for (test, told) in
                    self.rows.iter().filter_map(|row| Some((&row.test, row.from_disk.as_ref()?)))
                {
                    writeln!(self.out, "{test}: {told}")?;
                }
                for explanation in self.rows.iter().filter_map(|row| row.explain.as_ref()) {
                    let text = explanation.text(columns);
                    let hang = |line: &str| if line.starts_with("  -> ") { 5 } else { 2 };
                    let text = columns.map_or(text.clone(), |most| hanging(&text, most, hang));
                    write!(self.out, "\n{text}")?;
                }
            }
        }
        Ok(())
    }
}

/// Every field in quotes, truths as 1 and 0, without lists of samples and explanations.
pub(super) fn csv<T: Serialize>(rows: &[T], out: &mut dyn Write) -> anyhow::Result<()> {
    let quoted = |value: &serde_json::Value| {
        let text = match value {
            serde_json::Value::String(text) => text.clone(),
            serde_json::Value::Bool(truth) => u8::from(*truth).to_string(),
            value => value.to_string(),
        };
        format!("\"{}\"", text.replace('"', "\"\""))
    };
    for (i, row) in rows.iter().enumerate() {
        let serde_json::Value::Object(fields) = serde_json::to_value(row)? else { continue };
        let fields: Vec<_> =
            fields.iter().filter(|(_, value)| !value.is_array() && !value.is_object()).collect();
        if i == 0 {
            writeln!(
                out,
                "{}",
                fields.iter().map(|(key, _)| key.as_str()).collect::<Vec<_>>().join(",")
            )?;
        }
        writeln!(
            out,
            "{}",
            fields.iter().map(|(_, value)| quoted(value)).collect::<Vec<_>>().join(",")
        )?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates() {
        assert_eq!(timestamp(0), "1970-01-01T00:00:00Z");
        assert_eq!(timestamp(951_782_399), "2000-02-28T23:59:59Z");
        assert_eq!(timestamp(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(timestamp(1_798_761_600), "2027-01-01T00:00:00Z");
    }

    #[test]
    fn mean_and_deviation() {
        assert_eq!((mean(&[1.0, 3.0]), deviation(&[1.0, 3.0])), (2.0, 2.0_f64.sqrt()));
        assert_eq!((deviation(&[5.0]), mean(&[])), (0.0, 0.0));
    }
}
