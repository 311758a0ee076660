//! One file per family of architectures. A new one is a static here, in a file of its own or in its family's, and a row in
//! [`ARCHITECTURES`]: it reads its own keys, and records
//! what differs from the skeleton in `decoder.rs` with the pieces in `attention.rs`, `latent.rs` and `ffn.rs`.

mod arctic;
mod attention;
mod bert;
mod bitnet;
mod cohere;
mod deci;
mod decoder;
mod deepseek;
mod deepseek2;
mod ernie;
mod exaone;
mod ffn;
mod gated;
mod gemma2;
mod gemma3;
mod gemma3n;
mod gemma4;
mod glm;
mod glm5_next;
mod gpt_oss;
mod granite;
mod grok;
mod grove;
pub(crate) mod guess;
mod head;
mod hrm;
mod hunyuan;
mod hyper;
mod indexer;
mod kimi;
mod kimi_k3;
mod latent;
mod layernorm;
mod lfm2;
mod llama;
mod llama4;
mod looped;
mod mamba;
mod minimax;
mod minimax_m3;
mod mistral3;
mod mlp;
mod olmo;
mod openelm;
mod per_layer;
mod phi3;
mod qwen;
mod qwen2;
mod qwen2moe;
mod qwen3;
mod qwen35;
mod qwen4exp;
mod rwkv;
mod smallthinker;
mod sparse;
mod talkie;
mod ungated;
mod windows;

use gguf::escape;
use program::{OutputKind, Recorder, ValueId};

use crate::{Error, Keys, ModelConfig, Result, Weights};

/// What a recorded pass yields: see [`program::Program::outputs`].
pub type ProgramOutputs = Vec<(OutputKind, ValueId)>;

/// A family of models with one forward pass.
pub struct Architecture {
    /// Its name in `general.architecture`.
    pub name: &'static str,
    /// The hyper-parameters that these keys give. Errors: a key that is missing, of a wrong type or out of range.
    pub config: fn(&Keys<'_>) -> Result<ModelConfig>,
    /// Records one forward pass and returns its results: logits `[selected, vocab_size]`, and the hidden rows before the
    /// head. Errors: a tensor that is missing or does not fit the hyper-parameters.
    pub record: fn(&Recorder, &Weights<'_>, &ModelConfig) -> Result<ProgramOutputs>,
}

/// Every architecture, roughly by name; their order means nothing.
pub static ARCHITECTURES: &[&Architecture] = &[
    &gated::AFMOE,
    &ungated::APERTUS,
    &ungated::ARCEE,
    &rwkv::ARWKV7,
    &arctic::ARCTIC,
    &llama::BAICHUAN,
    &deepseek::BAILING_MOE,
    &deepseek::BAILING_MOE2,
    &kimi::BAILING_MOE3,
    &bert::BERT,
    &bitnet::BITNET,
    &mlp::BLOOM,
    &glm::CHATGLM,
    &mlp::CODESHELL,
    &llama::COGVLM,
    &cohere::COHERE2,
    &cohere::COHERE2_MOE,
    &cohere::COMMAND_R,
    &layernorm::DBRX,
    &deci::DECI,
    &deepseek::DEEPSEEK,
    &deepseek2::DEEPSEEK2,
    &sparse::DEEPSEEK32,
    &deepseek::DEEPSEEK_OCR,
    &deepseek::DOTS1,
    &sparse::DOTS3NOTE,
    &ernie::ERNIE4_5,
    &ernie::ERNIE4_5_MOE,
    &exaone::EXAONE,
    &exaone::EXAONE4,
    &exaone::EXAONE_MOE,
    &mamba::FALCON_H1,
    &mlp::FALCON,
    &gemma2::GEMMA,
    &gemma2::GEMMA2,
    &gemma3::GEMMA3,
    &gemma3::GEMMA_EMBEDDING,
    &gemma3n::GEMMA3N,
    &gemma4::GEMMA4,
    &glm::GLM4,
    &glm::GLM4_MOE,
    &sparse::GLM_DSA,
    &glm5_next::GLM5_NEXT,
    &mlp::GPTNEOX,
    &mlp::GPT2,
    &gpt_oss::GPT_OSS,
    &granite::GRANITE,
    &mamba::GRANITE_HYBRID,
    &granite::GRANITE_MOE,
    &granite::GRANITE_SWA,
    &grok::GROK,
    &grove::GROVE_MOE,
    &hrm::HRM_TEXT,
    &hunyuan::HUNYUAN_DENSE,
    &hunyuan::HUNYUAN_MOE,
    &hunyuan::HUNYUAN_VL,
    &deepseek::HY_V3,
    &sparse::HY_V4,
    &llama::INTERNLM2,
    &layernorm::JAIS,
    &mlp::JAIS2,
    &kimi_k3::KIMI_K3,
    &kimi::KIMI_LINEAR,
    &gated::LAGUNA,
    &mamba::JAMBA,
    &bert::JINA_BERT_V2,
    &lfm2::LFM2,
    &lfm2::LFM2_MOE,
    &llama::LLAMA,
    &llama4::LLAMA4,
    &hunyuan::MAINCODER,
    &mamba::MAMBA,
    &mamba::MAMBA2,
    &windows::MAPLE,
    &windows::MELLUM,
    &windows::MIMO2,
    &granite::MINICPM,
    &granite::MINICPM3,
    &minimax::MINIMAX_01,
    &olmo::MINIMAX_M2,
    &minimax_m3::MINIMAX_M3,
    &mistral3::MISTRAL3,
    &mistral3::MISTRAL4,
    &mlp::MPT,
    &gated::MUSE_GLIMMER,
    &looped::NANBEIGE,
    &mlp::NEMOTRON,
    &mamba::NEMOTRON_H,
    &mamba::NEMOTRON_H_MOE,
    &bert::NOMIC_BERT,
    &layernorm::OLMO,
    &olmo::OLMO2,
    &olmo::OLMOE,
    &openelm::OPENELM,
    &layernorm::ORION,
    &ernie::PADDLEOCR,
    &llama::PANGU,
    &mlp::PHI2,
    &phi3::PHI3,
    &layernorm::PHIMOE,
    &llama::PLAMO,
    &mamba::PLAMO2,
    &windows::PLAMO3,
    &ungated::PLM,
    &qwen::QWEN,
    &qwen2::QWEN2,
    &qwen2moe::QWEN2_MOE,
    &qwen2::QWEN2_VL,
    &qwen3::QWEN3,
    &qwen35::QWEN35,
    &qwen35::QWEN35_MOE,
    &qwen3::QWEN3_MOE,
    &qwen35::QWEN3_NEXT,
    &qwen3::QWEN3_VL,
    &qwen3::QWEN3_VL_MOE,
    &qwen4exp::QWEN4_EXP,
    &llama::REFACT,
    &rwkv::RWKV6,
    &rwkv::RWKV6_QWEN2,
    &rwkv::RWKV7,
    &qwen2::SEED_OSS,
    &smallthinker::SMALLTHINKER,
    &llama::SMOLLM3,
    &gated::SPARK2_5,
    &layernorm::STABLELM,
    &mlp::STARCODER,
    &mlp::STARCODER2,
    &gated::STEP35,
    &talkie::TALKIE,
    &llama::XVERSE,
];

/// Known ones that do not run, and what they need for that.
const LACKING: [(&str, &str); 1] = [(
    "deepseek4",
    "it needs attention to a window and to rows made of several positions in one, and experts that ids of tokens choose",
)];

/// The architecture with this name.
///
/// # Errors
/// [`Error::Architecture`] quotes an unknown name.
pub fn architecture(name: &str) -> Result<&'static Architecture> {
    by_bytes(name.as_bytes())
}

pub(crate) fn by_bytes(name: &[u8]) -> Result<&'static Architecture> {
    ARCHITECTURES.iter().copied().find(|a| a.name.as_bytes() == name).ok_or_else(|| {
        let lacking = LACKING.iter().find(|(known, _)| known.as_bytes() == name);
        let why = lacking.map_or("docs/models.md lists those that run", |(_, why)| *why);
        Error::Architecture { name: escape(name, 80), why }
    })
}
