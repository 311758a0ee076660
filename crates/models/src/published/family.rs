//! [`Family`]: how models of one design in several sizes are written down.

use Fact::{Count, Counts, EverySecond, Flag, Layers, List, Real, Tensor, Text};

use crate::Outline;

/// Models of one design in several sizes.
pub(super) struct Family {
    /// As in the models' names.
    pub(super) name: &'static str,
    pub(super) architecture: &'static str,
    pub(super) facts: &'static [Fact],
    pub(super) models: &'static [Shape],
}

pub(super) struct Shape {
    /// As in the model's name; empty where the family's name is all of it.
    pub(super) size: &'static str,
    /// Hidden size, layers, intermediate size.
    pub(super) dims: [u32; 3],
    /// Query heads, key-value heads, width of a head.
    pub(super) heads: [u32; 3],
    pub(super) vocab_size: usize,
    pub(super) tied_embeddings: bool,
    pub(super) facts: &'static [&'static [Fact]],
}

/// What a model's file says beside its shape: a key without the architecture's prefix, or a tensor that it has.
pub(super) enum Fact {
    Count(&'static str, u32),
    /// A count for each layer, from the first again where there are fewer of them.
    Counts(&'static str, &'static [u32]),
    /// Several counts that are not of layers.
    List(&'static str, &'static [u32]),
    /// A count for each layer, by its letter; 0 for letters without one.
    Layers(&'static str, &'static str, &'static [(char, u32)]),
    Real(&'static str, f32),
    Flag(&'static str, bool),
    Text(&'static str, &'static str),
    Tensor(&'static str),
    /// One that every second layer has, from the first on, by its name there.
    EverySecond(&'static str),
}

impl Family {
    pub(super) fn model(&self, shape: &Shape) -> String {
        match shape.size {
            "" => self.name.to_owned(),
            size => format!("{}-{size}", self.name),
        }
    }

    pub(super) fn outline(&self, shape: &Shape) -> Outline {
        let [hidden_size, n_layers, intermediate_size] = shape.dims;
        let [n_heads, n_kv_heads, head_dim] = shape.heads;
        let mut outline = Outline::new(self.architecture, shape.vocab_size);
        outline.name(&self.model(shape));
        for (key, count) in [
            ("block_count", n_layers),
            ("embedding_length", hidden_size),
            ("feed_forward_length", intermediate_size),
            ("attention.head_count", n_heads),
            ("attention.head_count_kv", n_kv_heads),
            ("attention.key_length", head_dim),
            ("attention.value_length", head_dim),
        ] {
            outline.set(key, count);
        }
        for fact in self.facts.iter().chain(shape.facts.iter().copied().flatten()) {
            match *fact {
                Count(key, value) => outline.set(key, value),
                Counts(key, cycle) => {
                    let values = cycle.iter().copied().cycle().take(n_layers as usize);
                    outline.set(key, values.collect::<Vec<u32>>())
                }
                List(key, values) => outline.set(key, values.to_vec()),
                Layers(key, letters, counts) => {
                    let count = |letter| counts.iter().find(|(known, _)| *known == letter);
                    let values = letters.chars().map(|letter| count(letter).map_or(0, |c| c.1));
                    outline.set(key, values.collect::<Vec<u32>>())
                }
                Real(key, value) => outline.set(key, value),
                Flag(key, value) => outline.set(key, value),
                Text(key, value) => outline.set(key, value),
                Tensor(name) => outline.tensor(name),
                EverySecond(name) => {
                    for i in (0..n_layers).step_by(2) {
                        outline.tensor(&format!("blk.{i}.{name}"));
                    }
                    &mut outline
                }
            };
        }
        if !shape.tied_embeddings {
            outline.tensor("output.weight");
        }
        outline
    }
}

pub(super) const fn shape(
    size: &'static str,
    dims: [u32; 3],
    heads: [u32; 3],
    vocab_size: usize,
) -> Shape {
    Shape { size, dims, heads, vocab_size, tied_embeddings: false, facts: &[] }
}

pub(super) const fn tied(
    size: &'static str,
    dims: [u32; 3],
    heads: [u32; 3],
    vocab_size: usize,
) -> Shape {
    Shape { tied_embeddings: true, ..shape(size, dims, heads, vocab_size) }
}

pub(super) const fn context(tokens: u32) -> Fact {
    Count("context_length", tokens)
}

pub(super) const fn theta(base: f32) -> Fact {
    Real("rope.freq_base", base)
}

pub(super) const fn eps(eps: f32) -> Fact {
    Real("attention.layer_norm_rms_epsilon", eps)
}

pub(super) const fn experts(count: u32, used: u32, width: u32) -> [Fact; 3] {
    [
        Count("expert_count", count),
        Count("expert_used_count", used),
        Count("expert_feed_forward_length", width),
    ]
}

/// The number that layer norms add, where norms are such.
pub(super) const fn layer_eps(eps: f32) -> Fact {
    Real("attention.layer_norm_epsilon", eps)
}

pub(super) const fn window(tokens: u32) -> Fact {
    Count("attention.sliding_window", tokens)
}

/// Elements of a head that rotate.
pub(super) const fn rotated(dims: u32) -> Fact {
    Count("rope.dimension_count", dims)
}

/// Dense layers before those of experts.
pub(super) const fn dense(layers: u32) -> Fact {
    Count("leading_dense_block_count", layers)
}

/// Experts chosen by sigmoids, whose weights are normalized, then scaled.
pub(super) const fn sigmoids(scale: f32) -> [Fact; 3] {
    [
        Count("expert_gating_func", 2),
        Flag("expert_weights_norm", true),
        Real("expert_weights_scale", scale),
    ]
}

pub(super) const fn shared(count: u32) -> Fact {
    Count("expert_shared_count", count)
}
