//! The shapes that can be made: every published one, and small ones for tests of numerics.
//!
//! A new shape is a row in `models/src/published/families.rs` or in [`VARIANTS`].

use anyhow::{Context as _, ensure};
use models::{ModelConfig, Outline};

use super::vocabulary::Vocabulary;

/// A model to be made.
#[derive(Clone, Debug)]
pub(super) struct Shape {
    pub(crate) name: String,
    /// The keys of its file.
    pub(crate) outline: Outline,
    /// What the keys say.
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
    n_layers: u32,
    intermediate_size: u32,
    n_heads: u32,
    n_kv_heads: u32,
    head_dim: u32,
}

const fn small(n_layers: u32, intermediate_size: u32, heads: [u32; 3]) -> Small {
    let [n_heads, n_kv_heads, head_dim] = heads;
    Small { n_layers, intermediate_size, n_heads, n_kv_heads, head_dim }
}

const SMALL_VOCABULARY: usize = 2048;

/// What is not published under a name of its own. `tiny-*` have the names and shapes of `make_model.py`, which made the
/// models of the golden tests.
static VARIANTS: &[Variant] = &[
    variant("qwen3-30b-a3b-6l", "Qwen3-30B-A3B", |s| s.count("block_count", 6)),
    variant("deepseek-v2-lite-16e", "DeepSeek-V2-Lite", |s| s.count("expert_count", 16)),
    variant("tiny-qwen2", "Qwen2.5-7B", |s| s.shrink(&small(3, 512, [4, 2, 64]))),
    variant("tiny-quant", "Qwen2.5-7B", |s| {
        s.shrink(&small(2, 512, [4, 2, 64]));
        s.outline.vocab_size(1024);
    }),
    variant("tiny-qwen2-mha", "Qwen2.5-0.5B", |s| s.shrink(&small(2, 768, [4, 4, 64]))),
    variant("tiny-qwen3", "Qwen3-8B", |s| s.shrink(&small(3, 512, [4, 2, 128]))),
    variant("tiny-llama", "Llama-3-8B", |s| s.shrink(&small(3, 512, [8, 4, 32]))),
    variant("tiny-llama3-rope", "Llama-3.1-8B", |s| s.shrink(&small(2, 512, [4, 2, 64]))),
    variant("tiny-llama-yarn", "Llama-3-8B", |s| {
        s.shrink(&small(2, 512, [4, 2, 64]));
        s.count("rope.scaling.original_context_length", 128);
        s.outline.set("rope.scaling.type", "yarn").set("rope.scaling.factor", 4f32);
    }),
    variant("tiny-llama-linear", "Llama-3-8B", |s| {
        s.shrink(&small(2, 512, [4, 2, 64]));
        s.outline.set("rope.scaling.type", "linear").set("rope.scaling.factor", 4f32);
    }),
    variant("tiny-llama-spm", "Llama-3-8B", |s| {
        s.shrink(&small(2, 512, [4, 2, 64]));
        s.outline.vocab_size(4096);
        s.vocabulary = Vocabulary::Spm;
    }),
    variant("tiny-qwen2moe", "Qwen1.5-MoE-A2.7B", |s| {
        s.shrink(&small(2, 512, [4, 2, 64]));
        s.few_experts([8, 2]);
        s.count("expert_shared_feed_forward_length", 512);
    }),
    variant("tiny-qwen3moe", "Qwen3-30B-A3B", |s| {
        s.shrink(&small(2, 512, [4, 2, 128]));
        s.few_experts([8, 2]);
    }),
    // 27 layers because llama.cpp tells V2-Lite from V2 by their number
    variant("tiny-deepseek2-lite", "DeepSeek-V2-Lite", |s| {
        s.shrink(&small(27, 512, [4, 1, 96]));
        s.few_experts([4, 2]);
        s.latents(None);
    }),
    variant("tiny-deepseek2", "DeepSeek-V2", |s| {
        s.shrink(&small(3, 512, [4, 1, 96]));
        s.few_experts([8, 2]);
        s.latents(Some(256));
    }),
    variant("tiny-deepseek2-legacy", "DeepSeek-V2", |s| {
        s.shrink(&small(3, 512, [4, 1, 96]));
        s.few_experts([8, 2]);
        s.latents(Some(256));
        // as older files: every head has its keys and values
        s.count("attention.head_count_kv", 4);
        s.count("attention.key_length", 96);
        s.count("attention.value_length", 64);
        s.outline.unset("attention.key_length_mla").unset("attention.value_length_mla");
        s.outline.tensor("blk.0.attn_kv_b.weight");
    }),
    variant("tiny-deepseek3", "DeepSeek-V3", |s| {
        s.shrink(&small(3, 512, [4, 1, 96]));
        s.few_experts([8, 2]);
        s.latents(Some(256));
    }),
    variant("tiny-deepseek3-groups", "DeepSeek-V3", |s| {
        s.shrink(&small(3, 512, [4, 1, 96]));
        s.few_experts([16, 4]);
        s.latents(Some(256));
        s.count("expert_group_count", 4);
        s.count("expert_group_used_count", 2);
    }),
];

/// Every shape: published ones by their names in lower case, then the variants.
pub(crate) fn all() -> impl Iterator<Item = Shape> {
    let variants = VARIANTS.iter().map(|variant| variant.shape());
    let published = models::published().filter_map(|config| models::find_outline(&config.name?));
    published.map(Shape::published).chain(variants)
}

/// The shape with this name.
///
/// # Errors
/// If there is none; names that are near are told.
pub(crate) fn find(name: &str) -> anyhow::Result<Shape> {
    if let Some(variant) = VARIANTS.iter().find(|v| v.name.eq_ignore_ascii_case(name)) {
        return Ok(variant.shape());
    }
    models::find_outline(name).map(Shape::published).with_context(|| {
        let near = models::similar_published(name);
        let hint = if near.is_empty() { "--list shows them".to_owned() } else { near.join(", ") };
        format!("no shape `{name}` ({hint})")
    })
}

impl Variant {
    fn shape(&self) -> Shape {
        let outline = models::find_outline(self.of).expect("a variant is one of a published model");
        let mut shape = Shape::published(outline);
        shape.name = self.name.to_owned();
        shape.outline.name(self.name);
        (self.change)(&mut shape);
        shape.config = shape.outline.config().expect("every variant is read by a test");
        shape
    }
}

impl Shape {
    fn published(outline: Outline) -> Shape {
        let config = outline.config().expect("every published outline is read by a test");
        let name = config.name.clone().unwrap_or_default();
        let rope_divisors =
            ["Llama-3.1", "Llama-3.2", "Llama-3.3"].iter().any(|f| name.starts_with(f));
        let (name, vocabulary) = (name.to_lowercase(), Vocabulary::Bpe);
        Shape { name, outline, config, vocabulary, rope_divisors }
    }

    fn count(&mut self, key: &str, n: u32) {
        self.outline.set(key, n);
    }

    /// Widths and lengths of a model for tests.
    fn shrink(&mut self, small: &Small) {
        self.outline.vocab_size(SMALL_VOCABULARY);
        for (key, n) in [
            ("embedding_length", 256),
            ("block_count", small.n_layers),
            ("feed_forward_length", small.intermediate_size),
            ("attention.head_count", small.n_heads),
            ("attention.head_count_kv", small.n_kv_heads),
            ("attention.key_length", small.head_dim),
            ("attention.value_length", small.head_dim),
            ("context_length", 4096),
        ] {
            self.count(key, n);
        }
    }

    /// Experts of 256 in all layers but the first dense one, of which a token uses some.
    fn few_experts(&mut self, [n, used]: [u32; 2]) {
        self.count("expert_count", n);
        self.count("expert_used_count", used);
        self.count("expert_feed_forward_length", 256);
        self.outline.unset("expert_group_count").unset("expert_group_used_count");
    }

    /// DeepSeek's attention in small: keys of 64 + 32, values of 64, latents of 256, and one dense layer.
    fn latents(&mut self, q_lora_rank: Option<u32>) {
        for (key, n) in [
            ("rope.dimension_count", 32),
            ("rope.scaling.original_context_length", 128),
            ("attention.kv_lora_rank", 256),
            ("attention.key_length", 256 + 32),
            ("attention.value_length", 256),
            ("attention.key_length_mla", 64 + 32),
            ("attention.value_length_mla", 64),
            ("expert_shared_count", 1),
            ("leading_dense_block_count", 1),
        ] {
            self.count(key, n);
        }
        if let Some(rank) = q_lora_rank {
            self.count("attention.q_lora_rank", rank);
            self.outline.set("expert_weights_scale", 2.5f32);
        }
        let experts = self.config.layers.iter().find_map(|layer| layer.experts.as_ref());
        if experts.is_some_and(|experts| experts.bias.is_some()) {
            self.outline.tensor("blk.1.exp_probs_b.bias");
        }
    }

    /// Keeps the first layers.
    ///
    /// # Errors
    /// If there are not as many, or none is left.
    pub(crate) fn cut(&mut self, n_layers: usize) -> anyhow::Result<()> {
        let all = self.config.layers.len();
        ensure!((1..=all).contains(&n_layers), "{} has {all} layers, not {n_layers}", self.name);
        let latent = self.config.first_layer().latent.as_ref();
        if latent.is_some_and(|latent| latent.q_lora_rank.is_none()) && n_layers != all {
            eprintln!(
                "note: llama.cpp tells this model by its {all} layers and will not load {n_layers}"
            );
        }
        self.outline.cut(n_layers);
        self.config = self.outline.config().context("with fewer layers")?;
        Ok(())
    }

    /// Gives it a block behind the others that guesses the token after the next one.
    ///
    /// # Errors
    /// If that is not known of its architecture.
    pub(crate) fn guess(&mut self) -> anyhow::Result<()> {
        let n_layers = u32::try_from(self.config.layers.len())?;
        self.outline.set("block_count", n_layers + 1).set("nextn_predict_layers", 1u32);
        self.config = self.outline.config().context("with a block that guesses")?;
        ensure!(self.config.can_guess(), "how blocks of {} guess is not known", self.name);
        Ok(())
    }

    /// A line for the list.
    pub(crate) fn summary(&self) -> String {
        let (c, layer) = (&self.config, self.config.first_layer());
        let heads =
            if layer.latent.is_some() { String::new() } else { format!("/{}", layer.n_kv_heads) };
        let experts = c.layers.iter().find_map(|layer| layer.experts.as_ref());
        let experts = experts.map_or(String::new(), |e| {
            format!(", {} of {} experts", e.n_experts_used, e.n_experts)
        });
        format!(
            "{:10} {} layers of {}, {}{heads} heads{experts}, {} tokens",
            c.architecture,
            c.layers.len(),
            c.hidden_size,
            layer.n_heads,
            c.vocab_size
        )
    }
}
