//! [`Mixture`]: the element type of each tensor in a file of some type, `Q4_K_M` for one.
//!
//! The rules are those of llama.cpp's quantizer without an importance matrix, so that what is planned has the size of
//! what is published. Some tensors matter more than others and get more bits: the output head, the values of attention
//! and the way down of the feed-forward layer, in the first and last eighth of the layers and in every third between.

use program::Mask;
use quant::GgmlType;

use crate::{LayerConfig, ModelConfig};

/// A file type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mixture {
    name: &'static str,
    base: GgmlType,
    level: Level,
}

/// The letter at the end of a file type: how generous it is with bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Level {
    /// The same for all but the head.
    Even,
    Small,
    Medium,
    Large,
}

const fn mixture(name: &'static str, base: GgmlType, level: Level) -> Mixture {
    Mixture { name, base, level }
}

/// Every file type, most bits first.
pub static MIXTURES: &[Mixture] = &[
    mixture("F32", GgmlType::F32, Level::Even),
    mixture("F16", GgmlType::F16, Level::Even),
    mixture("BF16", GgmlType::Bf16, Level::Even),
    mixture("Q8_0", GgmlType::Q8_0, Level::Even),
    mixture("Q6_K", GgmlType::Q6K, Level::Even),
    mixture("Q5_1", GgmlType::Q5_1, Level::Even),
    mixture("Q5_K_M", GgmlType::Q5K, Level::Medium),
    mixture("Q5_K_S", GgmlType::Q5K, Level::Small),
    mixture("Q5_0", GgmlType::Q5_0, Level::Even),
    mixture("Q4_1", GgmlType::Q4_1, Level::Even),
    mixture("Q4_K_M", GgmlType::Q4K, Level::Medium),
    mixture("Q4_K_S", GgmlType::Q4K, Level::Small),
    mixture("Q4_0", GgmlType::Q4_0, Level::Even),
    mixture("MXFP4_MOE", GgmlType::Mxfp4, Level::Even),
    mixture("IQ4_NL", GgmlType::Iq4Nl, Level::Even),
    mixture("IQ4_XS", GgmlType::Iq4Xs, Level::Even),
    mixture("Q3_K_L", GgmlType::Q3K, Level::Large),
    mixture("Q3_K_M", GgmlType::Q3K, Level::Medium),
    mixture("Q3_K_S", GgmlType::Q3K, Level::Small),
    mixture("IQ3_S", GgmlType::Iq3S, Level::Even),
    mixture("Q2_K", GgmlType::Q2K, Level::Medium),
    mixture("TQ2_0", GgmlType::Tq2_0, Level::Even),
    mixture("TQ1_0", GgmlType::Tq1_0, Level::Even),
];

/// Biases that every model has whose layers have such a part.
const ALWAYS_BIASED: [&str; 3] = ["ssm_dt.bias", "ssm_conv1d.bias", "indexer.k_norm.bias"];

impl Mixture {
    /// The file type with this name, ignoring case; `Q4_K` and its like mean the medium one.
    pub fn from_name(name: &str) -> Option<&'static Mixture> {
        let named = |name: &str| MIXTURES.iter().find(|m| m.name.eq_ignore_ascii_case(name));
        let more = ["_M", "_MOE"].map(|end| format!("{name}{end}"));
        named(name).or_else(|| more.iter().find_map(|name| named(name)))
    }

    /// Its name as GGUF tools print it.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Type of a tensor, `dims` with the row length first; `None` for a tensor that such a model does not have. Without
    /// `dims` it is only asked whether there is one.
    pub fn tensor_type(&self, c: &ModelConfig, name: &str, dims: &[u64]) -> Option<GgmlType> {
        let Some(&cols) = dims.first() else {
            let narrow = ["ssm_f_b.weight", "ssm_g_b.weight"].iter().any(|end| name.ends_with(end));
            return (&*c.architecture == "kimi-linear" && narrow).then_some(self.base);
        };
        let cols = usize::try_from(cols).ok()?;
        if dims.len() == 1 {
            let there = if ["output_norm", "output_norm.weight"].contains(&name) {
                // LFM2 names it for the embedding
                !c.architecture.starts_with("lfm2")
            } else if name.ends_with("exp_probs_b.bias") {
                c.layers
                    .iter()
                    .flat_map(|layer| &layer.experts)
                    .any(|experts| experts.bias.is_some())
            } else if ALWAYS_BIASED.iter().any(|end| name.ends_with(end)) {
                true
            } else if name.ends_with(".bias") {
                let biased = ["attn_q.bias", "attn_k.bias", "attn_v.bias", "attn_qkv.bias"];
                let biased = biased.iter().any(|b| name.ends_with(b));
                match &*c.architecture {
                    "gpt-oss" => true,
                    "qwen" | "qwen2" | "qwen2moe" | "seed_oss" | "glm4moe" => biased,
                    _ => false,
                }
            } else if name.ends_with("attn_sinks.weight") && &*c.architecture == "mimo2" {
                layer_of(name).and_then(|i| c.layers.get(i)).is_some_and(windowed)
            } else {
                !name.starts_with("rope_f")
                    && !["attn_sinks", "ssm_a.weight"].iter().any(|end| name.ends_with(end))
            };
            return there.then_some(GgmlType::F32);
        }
        // the large Gemma 4s have none where a layer sees all: its keys are the values, too
        if name.ends_with("attn_v.weight") && &*c.architecture == "gemma4" && c.per_layer_size == 0
        {
            let layer = layer_of(name).and_then(|i| c.layers.get(i));
            if layer.is_some_and(|layer| !windowed(layer)) {
                return None;
            }
        }
        if ["_norm.weight", "_exps.bias"].iter().any(|end| name.ends_with(end))
            || ["ffn_gate_inp", "conv1d", "shortconv.conv"].iter().any(|part| name.contains(part))
            || ["ssm_a", "ssm_d"].iter().any(|end| name.ends_with(end))
        {
            return Some(GgmlType::F32);
        }
        if self.base == GgmlType::Mxfp4 && !name.contains("_exps.") {
            return Some(whole_blocks(GgmlType::Q8_0, cols));
        }
        if self.base.block_len() == 1 {
            return Some(self.base);
        }
        let head = match name {
            "output.weight" => true,
            "token_embd.weight" => c.tied_embeddings,
            _ => false,
        };
        let wanted = if head { self.head(cols) } else { self.in_layer(c, name) };
        Some(whole_blocks(wanted, cols))
    }

    fn head(&self, cols: usize) -> GgmlType {
        let whole = cols.is_multiple_of(self.base.block_len());
        if whole && self.base != GgmlType::Q8_0 { GgmlType::Q6K } else { GgmlType::Q8_0 }
    }

    fn in_layer(&self, c: &ModelConfig, name: &str) -> GgmlType {
        let layer = name.strip_prefix("blk.").and_then(|rest| rest.split_once('.'));
        let Some((Ok(i), tensor)) = layer.map(|(i, tensor)| (i.parse(), tensor)) else {
            let ternary = matches!(self.base, GgmlType::Tq1_0 | GgmlType::Tq2_0);
            return if ternary { GgmlType::Q4K } else { self.base };
        };
        // Beside eight experts, attention is so little that more bits for it cost next to nothing.
        let experts = c.layers.iter().find_map(|layer| layer.experts.as_ref());
        let eight = experts.is_some_and(|experts| experts.n_experts == 8);
        if eight && matches!(tensor, "attn_k.weight" | "attn_v.weight") {
            GgmlType::Q8_0
        } else if eight && tensor == "attn_output.weight" {
            match (self.base, self.level) {
                (GgmlType::Q3K, Level::Large) => GgmlType::Q3K,
                (GgmlType::Q2K | GgmlType::Q3K | GgmlType::Q4K, _) => GgmlType::Q5K,
                (GgmlType::Iq3S | GgmlType::Iq4Nl | GgmlType::Iq4Xs, _) => GgmlType::Q5K,
                (base, _) => base,
            }
        } else if tensor == "attn_v.weight" {
            let ty = self.values(c, i);
            // Where eight queries share a value of 80 layers, more bits for it cost next to nothing.
            let seventy = c.layers.len() == 80 && matches!(&*c.architecture, "llama" | "qwen2");
            let few = matches!(ty, GgmlType::Q3K | GgmlType::Q4K);
            if seventy && few { GgmlType::Q5K } else { ty }
        } else if tensor == "attn_qkv.weight" {
            match (self.base, self.level) {
                (GgmlType::Q3K, Level::Medium | Level::Large) => GgmlType::Q4K,
                (GgmlType::Q4K, Level::Medium) => GgmlType::Q5K,
                (GgmlType::Q5K, Level::Medium) => GgmlType::Q6K,
                (base, _) => base,
            }
        } else if tensor.starts_with("ffn_down") {
            self.way_down(i, c.layers.len())
        } else if tensor == "attn_output.weight" {
            match (self.base, self.level) {
                (GgmlType::Q2K, _) => GgmlType::Q3K,
                (GgmlType::Q3K, Level::Medium) => GgmlType::Q4K,
                (GgmlType::Q3K, Level::Large) => GgmlType::Q5K,
                (base, _) => base,
            }
        } else {
            self.base
        }
    }

    fn values(&self, c: &ModelConfig, i: usize) -> GgmlType {
        let shared =
            c.layers.get(i).is_some_and(|layer| layer.n_heads / layer.n_kv_heads.max(1) >= 4);
        match (self.base, self.level) {
            (GgmlType::Q2K, _) => {
                if shared {
                    GgmlType::Q4K
                } else {
                    GgmlType::Q3K
                }
            }
            (GgmlType::Q3K, Level::Medium) => {
                if i < 2 {
                    GgmlType::Q5K
                } else {
                    GgmlType::Q4K
                }
            }
            (GgmlType::Q3K, Level::Large) => GgmlType::Q5K,
            (GgmlType::Q4K, Level::Small) if i < 4 => GgmlType::Q5K,
            (GgmlType::Q4K | GgmlType::Q5K, Level::Medium) if more_bits(i, c.layers.len()) => {
                GgmlType::Q6K
            }
            (GgmlType::Iq4Nl | GgmlType::Iq4Xs, _) if shared => GgmlType::Q5K,
            (GgmlType::Iq3S, _) if shared => GgmlType::Q4K,
            (base, _) => base,
        }
    }

    fn way_down(&self, i: usize, n_layers: usize) -> GgmlType {
        let early = i < n_layers / 8;
        match (self.base, self.level) {
            (GgmlType::Q2K, _) => GgmlType::Q3K,
            (GgmlType::Q3K, Level::Medium) if i < n_layers / 16 => GgmlType::Q5K,
            (GgmlType::Q3K, Level::Medium) => GgmlType::Q4K,
            (GgmlType::Q3K, Level::Large) => GgmlType::Q5K,
            (GgmlType::Q4K | GgmlType::Q5K, Level::Medium) if more_bits(i, n_layers) => {
                GgmlType::Q6K
            }
            (GgmlType::Q4K, Level::Small) if early => GgmlType::Q5K,
            (GgmlType::Iq4Nl | GgmlType::Iq4Xs, _) if early => GgmlType::Q5K,
            (base, _) => base,
        }
    }
}

/// The layer whose tensor this is.
fn layer_of(name: &str) -> Option<usize> {
    name.strip_prefix("blk.")?.split_once('.')?.0.parse().ok()
}

fn windowed(layer: &LayerConfig) -> bool {
    matches!(layer.score.mask, Mask::Window(_))
}

/// The first and last eighth of the layers, and every third between.
fn more_bits(i: usize, n_layers: usize) -> bool {
    let eighth = n_layers / 8;
    i < eighth || i >= 7 * n_layers / 8 || (i - eighth) % 3 == 2
}

/// The type itself where rows are whole blocks of it, or the nearest one with smaller blocks.
fn whole_blocks(ty: GgmlType, cols: usize) -> GgmlType {
    let fits = |ty: GgmlType| cols.is_multiple_of(ty.block_len());
    let smaller = match ty {
        ty if fits(ty) => return ty,
        GgmlType::Q2K | GgmlType::Q3K | GgmlType::Tq1_0 | GgmlType::Tq2_0 => GgmlType::Q4_0,
        GgmlType::Iq3S | GgmlType::Iq4Xs => GgmlType::Iq4Nl,
        GgmlType::Q4K => GgmlType::Q5_0,
        GgmlType::Q5K => GgmlType::Q5_1,
        _ => GgmlType::Q8_0,
    };
    if fits(smaller) { smaller } else { GgmlType::F16 }
}
