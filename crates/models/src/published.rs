//! Shapes of published models, by name: what can be planned for without a file.
//!
//! Source: the `config.json` of each model. Rotation and norms do not enter a plan; they are given for completeness, but
//! frequency factors, which are tensors, are not.

use program::{Gating, GroupScore, Groups, RopeScaling};

use crate::{Experts, Latent, ModelConfig};

/// Models of one design in several sizes.
struct Family {
    /// As in the models' names.
    name: &'static str,
    architecture: &'static str,
    context_length: usize,
    rope_theta: f32,
    rms_norm_eps: f32,
    rope_scaling: RopeScaling,
    models: &'static [Shape],
}

struct Shape {
    /// As in the model's name.
    size: &'static str,
    /// Hidden size, layers, intermediate size.
    dims: [usize; 3],
    /// Query heads, key-value heads, width of a head.
    heads: [usize; 3],
    vocab_size: usize,
    tied_embeddings: bool,
    latent: Option<Latent>,
    experts: Option<Experts>,
}

const fn shape(
    size: &'static str,
    dims: [usize; 3],
    heads: [usize; 3],
    vocab_size: usize,
) -> Shape {
    let (tied_embeddings, latent, experts) = (false, None, None);
    Shape { size, dims, heads, vocab_size, tied_embeddings, latent, experts }
}

const fn tied(size: &'static str, dims: [usize; 3], heads: [usize; 3], vocab_size: usize) -> Shape {
    Shape { tied_embeddings: true, ..shape(size, dims, heads, vocab_size) }
}

/// All layers with experts of this width, weighted by softmax.
const fn experts(counts: [usize; 2], width: usize, shared: usize, normalize: bool) -> Experts {
    Experts {
        n_experts: counts[0],
        n_experts_used: counts[1],
        intermediate_size: width,
        shared_intermediate_size: shared,
        n_dense_layers: 0,
        gating: Gating::Softmax,
        bias: false,
        groups: None,
        normalize,
        scale: 1.0,
    }
}

/// DeepSeek's latent attention: keys of 128 + 64, values of 128.
const fn latent(q_lora_rank: Option<usize>, mscale: f32) -> Latent {
    Latent { kv_lora_rank: 512, q_lora_rank, nope_dim: 128, joint: false, mscale }
}

const QWEN: usize = 151_936;
const QWEN_PADDED: usize = 152_064;
const LLAMA: usize = 128_256;
const DEEPSEEK: usize = 102_400;

/// `1 + 0.1 * 0.707 * ln(40)`, and with 1.0.
const MSCALE_V2: f32 = 1.260_804;
const MSCALE_V3: f32 = 1.368_888;

const DEEPSEEK_V3: Shape = Shape {
    latent: Some(latent(Some(1536), MSCALE_V3)),
    experts: Some(Experts {
        n_dense_layers: 3,
        gating: Gating::Sigmoid,
        bias: true,
        groups: Some(Groups { n_groups: 8, n_used: 4, score: GroupScore::TopTwoSum }),
        scale: 2.5,
        ..experts([256, 8], 2048, 2048, true)
    }),
    ..shape("V3", [7168, 61, 18_432], [128, 1, 192], 129_280)
};

static FAMILIES: &[Family] = &[
    Family {
        name: "Qwen1.5",
        architecture: "qwen2",
        context_length: 32_768,
        rope_theta: 1e6,
        rms_norm_eps: 1e-6,
        rope_scaling: RopeScaling::None,
        models: &[
            tied("0.5B", [1024, 24, 2816], [16, 16, 64], QWEN),
            shape("1.8B", [2048, 24, 5504], [16, 16, 128], QWEN),
            shape("4B", [2560, 40, 6912], [20, 20, 128], QWEN),
            shape("7B", [4096, 32, 11_008], [32, 32, 128], QWEN),
            shape("14B", [5120, 40, 13_696], [40, 40, 128], QWEN_PADDED),
            shape("32B", [5120, 64, 27_392], [40, 8, 128], QWEN_PADDED),
            shape("72B", [8192, 80, 24_576], [64, 64, 128], QWEN_PADDED),
            shape("110B", [8192, 80, 49_152], [64, 8, 128], QWEN_PADDED),
        ],
    },
    Family {
        name: "Qwen2.5",
        architecture: "qwen2",
        context_length: 32_768,
        rope_theta: 1e6,
        rms_norm_eps: 1e-6,
        rope_scaling: RopeScaling::None,
        models: &[
            tied("0.5B", [896, 24, 4864], [14, 2, 64], QWEN),
            tied("1.5B", [1536, 28, 8960], [12, 2, 128], QWEN),
            tied("3B", [2048, 36, 11_008], [16, 2, 128], QWEN),
            shape("7B", [3584, 28, 18_944], [28, 4, 128], QWEN_PADDED),
            shape("14B", [5120, 48, 13_824], [40, 8, 128], QWEN_PADDED),
            shape("32B", [5120, 64, 27_648], [40, 8, 128], QWEN_PADDED),
            shape("72B", [8192, 80, 29_568], [64, 8, 128], QWEN_PADDED),
        ],
    },
    Family {
        name: "Qwen3",
        architecture: "qwen3",
        context_length: 40_960,
        rope_theta: 1e6,
        rms_norm_eps: 1e-6,
        rope_scaling: RopeScaling::None,
        models: &[
            tied("0.6B", [1024, 28, 3072], [16, 8, 128], QWEN),
            tied("1.7B", [2048, 28, 6144], [16, 8, 128], QWEN),
            tied("4B", [2560, 36, 9728], [32, 8, 128], QWEN),
            shape("8B", [4096, 36, 12_288], [32, 8, 128], QWEN),
            shape("14B", [5120, 40, 17_408], [40, 8, 128], QWEN),
            shape("32B", [5120, 64, 25_600], [64, 8, 128], QWEN),
        ],
    },
    Family {
        name: "Qwen3",
        architecture: "qwen3moe",
        context_length: 40_960,
        rope_theta: 1e6,
        rms_norm_eps: 1e-6,
        rope_scaling: RopeScaling::None,
        models: &[
            Shape {
                experts: Some(experts([128, 8], 768, 0, true)),
                ..shape("30B-A3B", [2048, 48, 6144], [32, 4, 128], QWEN)
            },
            Shape {
                experts: Some(experts([128, 8], 1536, 0, true)),
                ..shape("235B-A22B", [4096, 94, 12_288], [64, 4, 128], QWEN)
            },
        ],
    },
    Family {
        name: "Qwen1.5-MoE",
        architecture: "qwen2moe",
        context_length: 8192,
        rope_theta: 1e6,
        rms_norm_eps: 1e-6,
        rope_scaling: RopeScaling::None,
        models: &[Shape {
            experts: Some(experts([60, 4], 1408, 5632, false)),
            ..shape("A2.7B", [2048, 24, 5632], [16, 16, 128], QWEN)
        }],
    },
    Family {
        name: "DeepSeek",
        architecture: "deepseek2",
        context_length: 163_840,
        rope_theta: 1e4,
        rms_norm_eps: 1e-6,
        rope_scaling: RopeScaling::Yarn {
            factor: 40.0,
            original_context: 4096,
            beta_fast: 32.0,
            beta_slow: 1.0,
            attention_factor: 1.0,
        },
        models: DEEPSEEK_MODELS,
    },
    Family {
        name: "Llama-3",
        architecture: "llama",
        context_length: 8192,
        rope_theta: 5e5,
        rms_norm_eps: 1e-5,
        rope_scaling: RopeScaling::None,
        models: &[LLAMA_8B, LLAMA_70B],
    },
    Family {
        name: "Llama-3.1",
        architecture: "llama",
        context_length: 131_072,
        rope_theta: 5e5,
        rms_norm_eps: 1e-5,
        rope_scaling: RopeScaling::None,
        models: &[LLAMA_8B, LLAMA_70B],
    },
    Family {
        name: "Llama-3.2",
        architecture: "llama",
        context_length: 131_072,
        rope_theta: 5e5,
        rms_norm_eps: 1e-5,
        rope_scaling: RopeScaling::None,
        models: &[
            tied("1B", [2048, 16, 8192], [32, 8, 64], LLAMA),
            tied("3B", [3072, 28, 8192], [24, 8, 128], LLAMA),
        ],
    },
    Family {
        name: "Llama-3.3",
        architecture: "llama",
        context_length: 131_072,
        rope_theta: 5e5,
        rms_norm_eps: 1e-5,
        rope_scaling: RopeScaling::None,
        models: &[LLAMA_70B],
    },
];

static DEEPSEEK_MODELS: &[Shape] = &[
    Shape {
        latent: Some(latent(None, MSCALE_V2)),
        experts: Some(Experts { n_dense_layers: 1, ..experts([64, 6], 1408, 2816, false) }),
        ..shape("V2-Lite", [2048, 27, 10_944], [16, 1, 192], DEEPSEEK)
    },
    Shape {
        latent: Some(latent(Some(1536), MSCALE_V2)),
        experts: Some(Experts {
            n_dense_layers: 1,
            groups: Some(Groups { n_groups: 8, n_used: 3, score: GroupScore::Max }),
            scale: 16.0,
            ..experts([160, 6], 1536, 3072, false)
        }),
        ..shape("V2", [5120, 60, 12_288], [128, 1, 192], DEEPSEEK)
    },
    DEEPSEEK_V3,
    Shape { size: "R1", ..DEEPSEEK_V3 },
];

const LLAMA_8B: Shape = shape("8B", [4096, 32, 14_336], [32, 8, 128], LLAMA);
const LLAMA_70B: Shape = shape("70B", [8192, 80, 28_672], [64, 8, 128], LLAMA);

/// Words in a model's name that say nothing about its shape.
const NO_SHAPE: &[&str] =
    &["instruct", "chat", "base", "it", "hf", "gguf", "awq", "gptq", "meta", "latest", "thinking"];

/// Every published model, family by family, smallest first.
pub fn published() -> impl Iterator<Item = ModelConfig> {
    FAMILIES.iter().flat_map(|family| family.models.iter().map(|shape| family.config(shape)))
}

/// Family and size of every published model, in the order of [`published`]: the name is both, with a dash.
pub fn published_sizes() -> impl Iterator<Item = (&'static str, &'static str)> {
    let sizes =
        |family: &'static Family| family.models.iter().map(|shape| (family.name, shape.size));
    FAMILIES.iter().flat_map(sizes)
}

/// The published model with this name, in the many ways it is written: `Qwen2.5-7B`, `qwen2.5:7b`,
/// `Qwen/Qwen2.5-7B-Instruct`.
pub fn find_published(name: &str) -> Option<ModelConfig> {
    let key = key(name);
    FAMILIES.iter().find_map(|family| {
        let mut models = family.models.iter();
        let shape = models.find(|shape| self::key(&family.model(shape)) == key)?;
        Some(family.config(shape))
    })
}

/// Published names near a name that is not one, the nearest first; none if nothing is near.
pub fn similar_published(name: &str) -> Vec<String> {
    let key = key(name);
    let mut near: Vec<(usize, String)> = FAMILIES
        .iter()
        .flat_map(|family| family.models.iter().map(|shape| family.model(shape)))
        .map(|model| (distance(&key, &self::key(&model)), model))
        .filter(|(distance, _)| *distance <= 2)
        .collect();
    near.sort_by_key(|(distance, _)| *distance);
    near.into_iter().take(3).map(|(_, name)| name).collect()
}

impl Family {
    fn model(&self, shape: &Shape) -> String {
        format!("{}-{}", self.name, shape.size)
    }

    fn config(&self, shape: &Shape) -> ModelConfig {
        let [hidden_size, n_layers, intermediate_size] = shape.dims;
        let [n_heads, n_kv_heads, head_dim] = shape.heads;
        let latent = shape.latent.clone();
        let nope_dim = latent.as_ref().map(|latent| latent.nope_dim);
        ModelConfig {
            architecture: self.architecture.to_owned(),
            name: Some(self.model(shape)),
            hidden_size,
            intermediate_size,
            n_layers,
            n_heads,
            n_kv_heads,
            head_dim,
            // DeepSeek's values are as wide as the part of a key that does not rotate
            value_dim: nope_dim.unwrap_or(head_dim),
            vocab_size: shape.vocab_size,
            context_length: self.context_length,
            rms_norm_eps: self.rms_norm_eps,
            rope_theta: self.rope_theta,
            rope_dims: head_dim - nope_dim.unwrap_or(0),
            rope_scaling: self.rope_scaling,
            tied_embeddings: shape.tied_embeddings,
            latent,
            experts: shape.experts.clone(),
        }
    }
}

/// A name without its owner, case, separators and the words that say nothing about a shape.
fn key(name: &str) -> String {
    let name = name.rsplit('/').next().unwrap_or(name).to_lowercase();
    let words = name.split(|c: char| !c.is_ascii_alphanumeric() && c != '.');
    words.filter(|word| !NO_SHAPE.contains(word)).collect()
}

/// Letters to insert, drop or change to come from one text to the other. Long texts are near to none.
fn distance(a: &str, b: &str) -> usize {
    if a.len().abs_diff(b.len()) > 2 {
        return usize::MAX;
    }
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, y) in b.iter().enumerate() {
            let changed = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(name: &str) -> Option<String> {
        find_published(name).and_then(|config| config.name)
    }

    #[test]
    fn names_as_people_write_them() {
        for config in published() {
            let name = config.name.unwrap();
            assert_eq!(found(&name).as_ref(), Some(&name), "unique");
        }
        for (written, want) in [
            ("qwen2.5:7b", "Qwen2.5-7B"),
            ("Qwen/Qwen2.5-7B-Instruct", "Qwen2.5-7B"),
            ("QWEN2.5_0.5b_instruct-GGUF", "Qwen2.5-0.5B"),
            ("qwen1.5-110b-chat", "Qwen1.5-110B"),
            ("meta-llama/Meta-Llama-3-8B", "Llama-3-8B"),
            ("llama3.1:8b", "Llama-3.1-8B"),
            ("llama3.2-1b", "Llama-3.2-1B"),
            ("deepseek-ai/DeepSeek-V2-Lite-Chat", "DeepSeek-V2-Lite"),
            ("deepseek-r1", "DeepSeek-R1"),
            ("Qwen/Qwen1.5-MoE-A2.7B-Chat", "Qwen1.5-MoE-A2.7B"),
            ("qwen3:30b-a3b", "Qwen3-30B-A3B"),
        ] {
            assert_eq!(found(written).as_deref(), Some(want), "{written}");
        }
        assert_eq!(found("qwen2.5"), None);
        assert_eq!(found(""), None);
    }

    #[test]
    fn near_misses() {
        assert_eq!(similar_published("qwen2.5:8b")[..2], ["Qwen2.5-3B", "Qwen2.5-7B"]);
        assert_eq!(similar_published("qwn3-8b")[0], "Qwen3-8B");
        assert!(similar_published("mamba").is_empty());
        assert!(similar_published(&"x".repeat(10_000)).is_empty());
    }
}
