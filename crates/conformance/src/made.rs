//! Programs made for tests, loaded by the executor under test and by the oracle.

use std::sync::Arc;

use models::{ModelConfig, Outline};
use program::{
    CacheOptions, CacheType, Executor, LogitRows, Model, OutputKind, Outputs, Program, Prompt,
    Recorder, Result, Sequence, SessionId, Step, StepOut, ValueId,
};
use quant::GgmlType;

use crate::{MemoryWeights, Oracle};

/// A cache that rounds nothing, long enough for every check.
pub(crate) const EXACT: CacheOptions = CacheOptions::new(CacheType::F32, CacheType::F32, 1024);

/// Architectures by what their programs ask of an executor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// None of the others.
    Dense,
    /// Attention within windows, on some layers; soft caps.
    Windows,
    /// Mixtures of experts.
    Experts,
    /// Latent attention, with mixtures of experts.
    Latent,
}

impl Family {
    /// All of them.
    pub const ALL: [Family; 4] = [Family::Dense, Family::Windows, Family::Experts, Family::Latent];

    /// Architectures whose programs have, between them, what such programs have: those that every check runs. Golden
    /// cases run all.
    pub fn architectures(self) -> &'static [&'static str] {
        match self {
            Family::Dense => &["llama", "qwen2", "qwen3", "phi3"],
            Family::Windows => &["gemma2", "gemma3"],
            Family::Experts => &["qwen2moe", "qwen3moe"],
            Family::Latent => &["deepseek2"],
        }
    }

    fn of(architecture: &str) -> Family {
        let its = |family: &Family| family.architectures().contains(&architecture);
        Family::ALL.into_iter().find(its).expect("a representative of a family")
    }
}

/// A program with weights, loaded twice.
pub struct Made {
    /// By the executor under test.
    pub tested: Box<dyn Model>,
    /// By the interpreter.
    pub oracle: Box<dyn Model>,
}

impl Made {
    /// Load `program` with random weights.
    ///
    /// # Panics
    /// If one of them refuses it.
    pub fn new(executor: &dyn Executor, program: &Arc<Program>, seed: u64) -> Self {
        Made::with(executor, program, &MemoryWeights::random(program, seed))
    }

    /// Load `program` with these weights.
    ///
    /// # Panics
    /// If one of them refuses it.
    pub fn with(executor: &dyn Executor, program: &Arc<Program>, weights: &MemoryWeights) -> Self {
        let load = |executor: &dyn Executor| {
            let loaded = executor.load(Arc::clone(program), weights, &mut |_| ());
            loaded.unwrap_or_else(|e| {
                panic!(
                    "{} does not load the program: {e}\n{}",
                    executor.describe(),
                    program.listing()
                )
            })
        };
        Made { tested: load(executor), oracle: load(&Oracle) }
    }
}

/// Record a program that ends in the selected rows of what `record` returns.
pub(crate) fn program(record: impl FnOnce(&Recorder) -> Result<ValueId>) -> Arc<Program> {
    let recorder = Recorder::new();
    let value = record(&recorder).expect("the check records a valid program");
    let joined = recorder.view("joined", value, 1).expect("a row joins");
    let rows = recorder.select_rows("rows", joined).expect("rows were not selected before");
    Arc::new(recorder.finish(&[(OutputKind::Logits, rows)]))
}

/// Hyper-parameters of a small model: 2 layers, `hidden_size` and the widths inside are `width`, a multiple of 32, but
/// for heads, which are a fourth. With latent attention keys are half as wide, and a fourth rotates beside them; with
/// experts, each token uses 2 of 6. With windows, the first layer sees 24 positions and the second one all.
///
/// # Panics
/// If `width` is not a multiple of 32 or there is no such architecture.
pub fn tiny_config(name: &str, width: usize, tied_embeddings: bool) -> ModelConfig {
    deep_config(name, width, tied_embeddings, 2)
}

/// The same with so many layers.
///
/// # Panics
/// As [`tiny_config`].
pub fn deep_config(name: &str, width: usize, tied_embeddings: bool, n_layers: u32) -> ModelConfig {
    assert!(width.is_multiple_of(32), "whole blocks");
    let (family, width) = (Family::of(name), width as u32);
    let mut outline = Outline::new(name, 97);
    let mut set = |keys: &[(&str, u32)]| {
        for (key, value) in keys {
            outline.set(key, *value);
        }
    };
    set(&[
        ("block_count", n_layers),
        ("context_length", 1024),
        ("embedding_length", width),
        ("feed_forward_length", 2 * width),
        ("attention.head_count", 4),
        ("attention.head_count_kv", 2),
        ("rope.dimension_count", width / 4),
    ]);
    if family == Family::Windows {
        set(&[("attention.sliding_window", 24), ("attention.sliding_window_pattern", 2)]);
    }
    if matches!(family, Family::Experts | Family::Latent) {
        set(&[
            ("expert_count", 6),
            ("expert_used_count", 2),
            ("expert_feed_forward_length", width),
            ("expert_shared_feed_forward_length", width),
        ]);
    }
    if family == Family::Latent {
        set(&[
            ("leading_dense_block_count", 1),
            ("attention.kv_lora_rank", width),
            ("attention.q_lora_rank", width),
            ("attention.key_length", width / 2 + width / 4),
            ("attention.value_length", width / 2),
        ]);
    }
    outline.set("attention.layer_norm_rms_epsilon", 1e-6f32);
    if !tied_embeddings {
        outline.tensor("output.weight");
    }
    outline.config().expect("keys made for the architecture")
}

/// A model of this configuration whose matrices are of type `ty`, but for those of routers, and whose vectors are F32.
///
/// # Panics
/// If the architecture cannot be recorded.
pub fn tiny_model(config: &ModelConfig, ty: GgmlType) -> Arc<Program> {
    let choose = |name: &str, dims: &[u64]| {
        let plain = dims.len() == 1 || name.contains("ffn_gate_inp");
        Some(if plain { GgmlType::F32 } else { ty })
    };
    models::from_config(config, &choose).expect("a configuration made for the architecture").program
}

/// Feed `tokens` to an open session, as part of no prompt.
pub(crate) fn feed(
    model: &dyn Model,
    session: SessionId,
    tokens: &[u32],
    outputs: Outputs,
) -> Vec<f32> {
    step(model, Sequence { session, tokens, outputs, prompt: None, rows: &[] })
}

/// The logits of one sequence.
pub(crate) fn step(model: &dyn Model, sequence: Sequence<'_>) -> Vec<f32> {
    let n = sequence.tokens.len();
    let out = model.step(&Step { sequences: &[sequence] }).and_then(StepOut::single);
    let out = out.unwrap_or_else(|e| panic!("a step of {n} tokens fails: {e}")).into_logits();
    assert_eq!(out.logits.len(), sequence.outputs.count(n) * out.vocab_size, "rows of logits");
    let made = LogitRows::new(out.logits, out.vocab_size);
    assert_eq!(out.peaks, made.peaks, "peaks of the logits");
    made.logits
}

/// The logits of every token, fed to a new session in chunks.
pub(crate) fn all_logits(
    model: &dyn Model,
    options: &CacheOptions,
    tokens: &[u32],
    chunk: usize,
) -> Vec<f32> {
    chunked(model, options, tokens, chunk, None)
}

/// The same for tokens that are one prompt, and known to be.
pub(crate) fn prompt_logits(
    model: &dyn Model,
    options: &CacheOptions,
    tokens: &[u32],
    chunk: usize,
) -> Vec<f32> {
    chunked(model, options, tokens, chunk, Some(Prompt { start: 0, len: tokens.len() }))
}

fn chunked(
    model: &dyn Model,
    options: &CacheOptions,
    tokens: &[u32],
    chunk: usize,
    prompt: Option<Prompt>,
) -> Vec<f32> {
    let session = model.open(options).unwrap_or_else(|e| panic!("opening a session fails: {e}"));
    let part = |tokens| {
        step(model, Sequence { session, tokens, outputs: Outputs::ALL, prompt, rows: &[] })
    };
    let logits = tokens.chunks(chunk).flat_map(part).collect();
    model.close(session);
    logits
}
