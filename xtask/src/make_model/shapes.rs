//! The shapes that can be made: every published one, and small ones for tests of numerics.
//!
//! A new shape is a row in `models/src/published.rs` or in [`VARIANTS`].

use anyhow::{Context as _, ensure};
use models::{Experts, ModelConfig};
use program::{GroupScore, Groups, RopeScaling};

use super::vocabulary::Vocabulary;

/// A model to be made.
#[derive(Clone, Debug)]
pub(crate) struct Shape {
    pub(crate) name: String,
    pub(crate) config: ModelConfig,
    pub(crate) vocabulary: Vocabulary,
    /// The file has divisors of the rotation's frequencies (`rope_freqs`).
    pub(crate) rope_divisors: bool,
}

/// A published model with changes.
struct Variant {
    name: &'static str,
    of: &'static str,
    change: fn(&mut Shape),
}

const fn variant(name: &'static str, of: &'static str, change: fn(&mut Shape)) -> Variant {
    Variant { name, of, change }
}

/// Widths of a small model: multiples of 256, so that its rows are whole blocks of every type.
struct Small {
    n_layers: usize,
    intermediate_size: usize,
    n_heads: usize,
    n_kv_heads: usize,
    head_dim: usize,
}

const fn small(n_layers: usize, intermediate_size: usize, heads: [usize; 3]) -> Small {
    let [n_heads, n_kv_heads, head_dim] = heads;
    Small { n_layers, intermediate_size, n_heads, n_kv_heads, head_dim }
}

const SMALL_VOCABULARY: usize = 2048;

/// What is not published under a name of its own. `tiny-*` have the names and shapes of `make_model.py`, which made the
/// models of the golden tests.
static VARIANTS: &[Variant] = &[
    variant("qwen3-30b-a3b-6l", "Qwen3-30B-A3B", |s| s.config.n_layers = 6),
    variant("deepseek-v2-lite-16e", "DeepSeek-V2-Lite", |s| experts(s).n_experts = 16),
    variant("tiny-qwen2", "Qwen2.5-7B", |s| s.shrink(&small(3, 512, [4, 2, 64]))),
    variant("tiny-quant", "Qwen2.5-7B", |s| {
        s.shrink(&small(2, 512, [4, 2, 64]));
        s.config.vocab_size = 1024;
    }),
    variant("tiny-qwen2-mha", "Qwen2.5-0.5B", |s| s.shrink(&small(2, 768, [4, 4, 64]))),
    variant("tiny-qwen3", "Qwen3-8B", |s| s.shrink(&small(3, 512, [4, 2, 128]))),
    variant("tiny-llama", "Llama-3-8B", |s| s.shrink(&small(3, 512, [8, 4, 32]))),
    variant("tiny-llama3-rope", "Llama-3.1-8B", |s| s.shrink(&small(2, 512, [4, 2, 64]))),
    variant("tiny-llama-yarn", "Llama-3-8B", |s| {
        s.shrink(&small(2, 512, [4, 2, 64]));
        let attention_factor = 1.0 + 0.1 * 4f32.ln();
        s.config.rope_scaling = yarn(4.0, attention_factor);
    }),
    variant("tiny-llama-linear", "Llama-3-8B", |s| {
        s.shrink(&small(2, 512, [4, 2, 64]));
        s.config.rope_scaling = RopeScaling::Linear { factor: 4.0 };
    }),
    variant("tiny-llama-spm", "Llama-3-8B", |s| {
        s.shrink(&small(2, 512, [4, 2, 64]));
        s.config.vocab_size = 4096;
        s.vocabulary = Vocabulary::Spm;
    }),
    variant("tiny-qwen2moe", "Qwen1.5-MoE-A2.7B", |s| {
        s.shrink(&small(2, 512, [4, 2, 64]));
        few_experts(s, [8, 2], 512);
    }),
    variant("tiny-qwen3moe", "Qwen3-30B-A3B", |s| {
        s.shrink(&small(2, 512, [4, 2, 128]));
        few_experts(s, [8, 2], 0);
    }),
    // 27 layers because llama.cpp tells V2-Lite from V2 by their number
    variant("tiny-deepseek2-lite", "DeepSeek-V2-Lite", |s| {
        s.shrink(&small(27, 512, [4, 1, 96]));
        few_experts(s, [4, 2], 256);
    }),
    variant("tiny-deepseek2", "DeepSeek-V2", |s| {
        s.shrink(&small(3, 512, [4, 1, 96]));
        few_experts(s, [8, 2], 256);
    }),
    variant("tiny-deepseek2-legacy", "DeepSeek-V2", |s| {
        s.shrink(&small(3, 512, [4, 1, 96]));
        few_experts(s, [8, 2], 256);
        s.config.latent.as_mut().expect("DeepSeek's attention is latent").joint = true;
    }),
    variant("tiny-deepseek3", "DeepSeek-V3", |s| {
        s.shrink(&small(3, 512, [4, 1, 96]));
        few_experts(s, [8, 2], 256);
    }),
    variant("tiny-deepseek3-groups", "DeepSeek-V3", |s| {
        s.shrink(&small(3, 512, [4, 1, 96]));
        few_experts(s, [16, 4], 256);
        let score = GroupScore::TopTwoSum;
        experts(s).groups = Some(Groups { n_groups: 4, n_used: 2, score });
    }),
];

fn yarn(factor: f32, attention_factor: f32) -> RopeScaling {
    let (beta_fast, beta_slow) = (32.0, 1.0);
    RopeScaling::Yarn { factor, original_context: 128, beta_fast, beta_slow, attention_factor }
}

fn experts(shape: &mut Shape) -> &mut Experts {
    shape.config.experts.as_mut().expect("the published model has experts")
}

/// Experts of 256, of which a token uses some.
fn few_experts(shape: &mut Shape, [n, used]: [usize; 2], shared_intermediate_size: usize) {
    let experts = experts(shape);
    (experts.n_experts, experts.n_experts_used) = (n, used);
    experts.intermediate_size = 256;
    experts.shared_intermediate_size = shared_intermediate_size;
    experts.n_dense_layers = experts.n_dense_layers.min(1);
    experts.groups = None;
    experts.scale = if experts.scale == 1.0 { 1.0 } else { 2.5 };
}

/// Every shape: published ones by their names in lower case, then the variants.
pub(crate) fn all() -> impl Iterator<Item = Shape> {
    let variants = VARIANTS.iter().map(|variant| variant.shape());
    models::published().map(Shape::published).chain(variants)
}

/// The shape with this name.
///
/// # Errors
/// If there is none; names that are near are told.
pub(crate) fn find(name: &str) -> anyhow::Result<Shape> {
    if let Some(variant) = VARIANTS.iter().find(|v| v.name.eq_ignore_ascii_case(name)) {
        return Ok(variant.shape());
    }
    models::find_published(name).map(Shape::published).with_context(|| {
        let near = models::similar_published(name);
        let hint = if near.is_empty() { "--list shows them".to_owned() } else { near.join(", ") };
        format!("no shape `{name}` ({hint})")
    })
}

impl Variant {
    fn shape(&self) -> Shape {
        let config =
            models::find_published(self.of).expect("a variant is one of a published model");
        let mut shape = Shape::published(config);
        shape.name = self.name.to_owned();
        shape.config.name = Some(self.name.to_owned());
        (self.change)(&mut shape);
        shape
    }
}

impl Shape {
    fn published(config: ModelConfig) -> Shape {
        let name = config.name.clone().unwrap_or_default();
        let rope_divisors =
            ["Llama-3.1", "Llama-3.2", "Llama-3.3"].iter().any(|f| name.starts_with(f));
        Shape { name: name.to_lowercase(), config, vocabulary: Vocabulary::Bpe, rope_divisors }
    }

    /// Widths and lengths of a model for tests.
    fn shrink(&mut self, small: &Small) {
        let c = &mut self.config;
        c.hidden_size = 256;
        (c.n_layers, c.intermediate_size) = (small.n_layers, small.intermediate_size);
        (c.n_heads, c.n_kv_heads, c.head_dim) = (small.n_heads, small.n_kv_heads, small.head_dim);
        (c.value_dim, c.rope_dims) = (small.head_dim, small.head_dim);
        (c.vocab_size, c.context_length) = (SMALL_VOCABULARY, 4096);
        if let Some(latent) = &mut c.latent {
            latent.kv_lora_rank = 256;
            latent.q_lora_rank = latent.q_lora_rank.map(|_| 256);
            (latent.nope_dim, c.value_dim, c.rope_dims) = (64, 64, 32);
            if let RopeScaling::Yarn { original_context, .. } = &mut c.rope_scaling {
                *original_context = 128;
            }
        }
    }

    /// Keeps the first layers.
    ///
    /// # Errors
    /// If there are not as many, or none is left.
    pub(crate) fn cut(&mut self, n_layers: usize) -> anyhow::Result<()> {
        let all = self.config.n_layers;
        ensure!((1..=all).contains(&n_layers), "{} has {all} layers, not {n_layers}", self.name);
        self.config.n_layers = n_layers;
        if self.config.latent.as_ref().is_some_and(|latent| latent.q_lora_rank.is_none())
            && n_layers != all
        {
            eprintln!(
                "note: llama.cpp tells this model by its {all} layers and will not load {n_layers}"
            );
        }
        Ok(())
    }

    /// A line for the list.
    pub(crate) fn summary(&self) -> String {
        let c = &self.config;
        let heads = if c.latent.is_some() { String::new() } else { format!("/{}", c.n_kv_heads) };
        let experts = c.experts.as_ref().map_or(String::new(), |e| {
            format!(", {} of {} experts", e.n_experts_used, e.n_experts)
        });
        format!(
            "{:10} {} layers of {}, {}{heads} heads{experts}, {} tokens",
            c.architecture, c.n_layers, c.hidden_size, c.n_heads, c.vocab_size
        )
    }
}
