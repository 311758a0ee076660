//! The closed forms of the roofline for dense decoders with a gated feed-forward layer.
//!
//! What [`crate::cost`] counts op by op stands here as algebra: parameters, cache, prefill, inflection points, steps.
//! One number of bytes per weight for the whole model; block formats by tensor are the business of [`crate::cost`].
//! SI units, but for [`Units::Article`], which exists to reproduce the article the formulas come from.
//!
//! Symbols of the formulas: `Lp`, `Hp`, `Ep` parameters of layers, head and embedding, `Ap = Lp + Hp`, `K` cache elements
//! per token, `g` query heads per key-value head, `wb` and `ab` bytes per weight and per cache element, `tri(n) =
//! n(n+1)/2`, `BW` and `F` bytes and FLOP per second.

use program::Mask;

/// What "giga" means in figures such as 1008 GB/s.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Units {
    /// SI: `10^9`.
    #[default]
    Decimal,
    /// The article's: `2^30`, also in bandwidth and FLOP per second.
    Article,
}

impl Units {
    /// `x` million: parameters, bytes.
    pub fn mega(self, x: f64) -> f64 {
        x * self.base().powi(2)
    }

    /// `x` billion: parameters, bytes, bytes per second.
    pub fn giga(self, x: f64) -> f64 {
        x * self.base().powi(3)
    }

    /// `x` million million: FLOP per second.
    pub fn tera(self, x: f64) -> f64 {
        x * self.base().powi(4)
    }

    fn base(self) -> f64 {
        match self {
            Units::Decimal => 1000.0,
            Units::Article => 1024.0,
        }
    }
}

/// Dimensions of a dense decoder: attention, gated feed-forward layer, norms before both and before the head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModelShape {
    /// Decoder blocks.
    pub n_layers: u64,
    /// Width of the residual stream.
    pub hidden_size: u64,
    /// Width inside the feed-forward layer.
    pub intermediate_size: u64,
    /// Rows of the embedding table and of the head.
    pub vocab_size: u64,
    /// Query heads.
    pub n_heads: u64,
    /// Key-value heads; divides `n_heads`.
    pub n_kv_heads: u64,
    /// Width of a query, key or value.
    pub head_dim: u64,
    /// The head is the embedding table.
    pub tied_embeddings: bool,
    /// q, k and v have biases (Qwen2).
    pub qkv_bias: bool,
    /// Norms are counted. The article leaves them out.
    pub norms: bool,
    /// Each layer has norms of its q and k heads (Qwen3); counted with `norms` only.
    pub qk_norms: bool,
}

impl ModelShape {
    /// Weights by part of the model.
    pub fn parameters(&self) -> Parameters {
        let (h, i, d) = (self.hidden_size, self.intermediate_size, self.head_dim);
        let (q, kv) = (product(&[self.n_heads, d]), product(&[self.n_kv_heads, d]));
        let mut layer = sum(&[
            product(&[2, h, q]),
            product(&[2, h, kv]),
            product(&[3, h, i]),
            if self.qkv_bias { sum(&[q, kv, kv]) } else { 0 },
        ]);
        if self.norms {
            let qk = if self.qk_norms { product(&[2, d]) } else { 0 };
            layer = sum(&[layer, product(&[2, h]), qk]);
        }
        let last = if self.norms { h } else { 0 };
        let table = product(&[h, self.vocab_size]);
        Parameters {
            layers: product(&[self.n_layers, layer]).saturating_add(last),
            idle: 0,
            head: table,
            embedding: table,
            shared: if self.tied_embeddings { table } else { 0 },
        }
    }

    /// `K`: elements of keys and values one position adds, over all layers.
    pub fn cache_elements_per_token(&self) -> u64 {
        product(&[self.n_layers, 2, self.n_kv_heads, self.head_dim])
    }

    /// `g`: query heads per key-value head, which share what they read of the cache.
    pub fn group(&self) -> f64 {
        self.n_heads as f64 / self.n_kv_heads.max(1) as f64
    }
}

/// Weights of a model by part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameters {
    /// `Lp`: all decoder blocks, and the norm before the head where norms are counted.
    pub layers: u64,
    /// Experts in the blocks that one token does not use; 0 without experts.
    pub idle: u64,
    /// `Hp`: the output head.
    pub head: u64,
    /// `Ep`: the embedding table, and others of which a token reads a row.
    pub embedding: u64,
    /// Of all these, those that are counted twice: the head's where it is the embedding table.
    pub shared: u64,
}

impl Parameters {
    /// `Ap`: weights multiplied for each token. Tied or not, the head is read whole and of the embedding only a row.
    pub fn active(&self) -> u64 {
        self.layers.saturating_add(self.head)
    }

    /// `Tp`: head and embedding both counted, tied or not.
    pub fn total(&self) -> u64 {
        sum(&[self.active(), self.idle, self.embedding])
    }

    /// Head and embedding are one tensor.
    pub fn tied_embeddings(&self) -> bool {
        self.shared > 0
    }

    /// Weights that memory holds: a tied table once.
    pub fn resident(&self) -> u64 {
        self.total().saturating_sub(self.shared)
    }
}

/// Positions whose cache fits into `memory` beside `weights`, all in bytes; `None` if the weights alone do not fit.
pub fn longest_context(memory: f64, weights: f64, cache_per_token: f64) -> Option<u64> {
    let left = memory - weights;
    (left > 0.0).then(|| (left / cache_per_token) as u64)
}

/// `tri(n)` where each tile of `tile` queries reads the cache once, up to its last query: positions read by a prompt of
/// `n_tokens` on an empty cache. About `tri(n) / tile`, and `tri(n)` itself for a tile of 1 (attention without tiles).
pub fn positions_read(n_tokens: u64, tile: u64) -> u64 {
    let tile = tile.max(1);
    let (full, rest) = (n_tokens / tile, n_tokens % tile);
    let whole = product(&[tile, triangle(full)]);
    whole.saturating_add(if rest > 0 { n_tokens } else { 0 })
}

/// Cached positions read by `n_tokens` queries after `past` positions, in tiles as in [`positions_read`], each query
/// seeing what `mask` lets it see.
pub fn positions_seen(mask: Mask, past: u64, n_tokens: u64, tile: u64) -> u64 {
    let [past, n_tokens, tile] = [past, n_tokens, tile.max(1)].map(u128::from);
    let triangle = |n: u128| if n.is_multiple_of(2) { n / 2 * (n + 1) } else { n.div_ceil(2) * n };
    let (full, rest) = (n_tokens / tile, n_tokens % tile);
    let n_tiles = full + u128::from(rest > 0);
    // up to the last query of each tile
    let ends =
        tile.saturating_mul(triangle(full)).saturating_add(if rest > 0 { n_tokens } else { 0 });
    let all = past.saturating_mul(n_tiles).saturating_add(ends);
    // max(0, past + 1 - n + i tile) over the tiles i
    let before = |n: u128| {
        let reached = n.saturating_sub(past + 1).div_ceil(tile).min(n_tiles);
        let first = (past + 1 + reached * tile).saturating_sub(n);
        let rest = n_tiles - reached;
        let steps = triangle(rest.saturating_sub(1)).saturating_mul(tile);
        first.saturating_mul(rest).saturating_add(steps)
    };
    let whole = n_tiles.saturating_mul(past + n_tokens);
    // less what lies before the first position that the tile's first query sees
    let seen = match mask {
        Mask::Causal => all,
        Mask::Full => whole,
        Mask::Window(n) => all.saturating_sub(before(u128::from(n))),
        Mask::Around(n) => {
            let n = u128::from(n);
            // tiles whose last query does not see the last position: each ends a tile after the one before it
            let short = n_tokens.saturating_sub(n) / tile;
            let ends =
                short.saturating_mul(past + n).saturating_add(tile.saturating_mul(triangle(short)));
            let ends = ends.saturating_add((n_tiles - short).saturating_mul(past + n_tokens));
            ends.saturating_sub(before(n + 1))
        }
        Mask::Chunk(n) => {
            let n = u128::from(n).max(1);
            all.saturating_sub(floor_sum(n_tiles, n, tile, past).saturating_mul(n))
        }
    };
    u64::try_from(seen).unwrap_or(u64::MAX)
}

/// `floor((a i + b) / m)` summed over `i` below `n`, as in Euclid's algorithm.
fn floor_sum(n: u128, m: u128, a: u128, b: u128) -> u128 {
    let Some(before) = n.checked_sub(1) else { return 0 };
    let triangle = if n.is_multiple_of(2) { n / 2 * before } else { before / 2 * n };
    let whole = triangle.saturating_mul(a / m).saturating_add(n.saturating_mul(b / m));
    let (a, b) = (a % m, b % m);
    let last = a.saturating_mul(n).saturating_add(b);
    if last < m {
        return whole;
    }
    whole.saturating_add(floor_sum(last / m, a, m, last % m))
}

/// `n(n+1)/2`: positions that the queries of a prompt of `n` tokens attend to.
pub fn triangle(n: u64) -> u64 {
    let (half, other) =
        if n.is_multiple_of(2) { (n / 2, n.saturating_add(1)) } else { (n / 2 + 1, n) };
    half.saturating_mul(other)
}

/// How many rows of a prompt pass the output head.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Head {
    /// The last one: the article's "exact".
    LastToken,
    /// Every one: the article's "rough".
    EveryToken,
}

/// Prompt lengths, in tokens, at which another resource starts to bind. First integers past them: `floor + 1`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Inflections {
    /// Below it, reading weights binds; above it, arithmetic.
    pub first: f64,
    /// Above it, reading the cache binds; infinite where it never does.
    pub second: f64,
}

/// A model of one weight and one cache format on a machine of one bandwidth and one arithmetic rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Roofline {
    /// `Lp`, `Hp`, `Ep`.
    pub parameters: Parameters,
    /// `K`: cache elements per token.
    pub cache_elements: u64,
    /// `g`: query heads per key-value head.
    pub group: f64,
    /// `wb`: bytes per weight.
    pub weight_bytes: f64,
    /// `ab`: bytes per cache element.
    pub cache_bytes: f64,
    /// Queries that share one read of the cache in prefill; 1 in the article.
    pub query_tile: u64,
    /// `BW`: bytes per second.
    pub bandwidth: f64,
    /// `F`: FLOP per second.
    pub flops: f64,
}

impl Roofline {
    /// Weights and cache of `shape` in 16 bits, no query tiles.
    pub fn new(shape: &ModelShape, bandwidth: f64, flops: f64) -> Self {
        Roofline {
            parameters: shape.parameters(),
            cache_elements: shape.cache_elements_per_token(),
            group: shape.group(),
            weight_bytes: 2.0,
            cache_bytes: 2.0,
            query_tile: 1,
            bandwidth,
            flops,
        }
    }

    /// The same with weights of `bits`.
    #[must_use]
    pub fn weight_bits(self, bits: f64) -> Self {
        Roofline { weight_bytes: bits / 8.0, ..self }
    }

    /// Bytes of the weights read for a token or a prompt: `Ap wb`.
    pub fn active_bytes(&self) -> f64 {
        self.parameters.active() as f64 * self.weight_bytes
    }

    /// Bytes one position adds to the cache: `K ab`.
    pub fn cache_bytes_per_token(&self) -> f64 {
        self.cache_elements as f64 * self.cache_bytes
    }

    /// Seconds in which a prompt of `n` tokens reads weights and cache: `(Ap wb + positions K ab) / BW`.
    pub fn prefill_read(&self, n: u64) -> f64 {
        let positions = positions_read(n, self.query_tile) as f64;
        (self.active_bytes() + positions * self.cache_bytes_per_token()) / self.bandwidth
    }

    /// FLOP of a prompt of `n` tokens: `2 (Lp n + tri(n) K g + Hp rows)`.
    pub fn prefill_flop(&self, n: u64, head: Head) -> f64 {
        let rows = match head {
            Head::LastToken => n.min(1),
            Head::EveryToken => n,
        };
        let attention = triangle(n) as f64 * self.cache_elements as f64 * self.group;
        let linear = self.parameters.layers as f64 * n as f64;
        2.0 * (linear + attention + self.parameters.head as f64 * rows as f64)
    }

    /// Seconds in which it is computed.
    pub fn prefill_compute(&self, n: u64, head: Head) -> f64 {
        self.prefill_flop(n, head) / self.flops
    }

    /// Least time to the first token, in seconds: the greater of read and compute.
    pub fn time_to_first_token(&self, n: u64, head: Head) -> f64 {
        self.prefill_read(n).max(self.prefill_compute(n, head))
    }

    /// Where compute equals read, exact for prompts of whole query tiles; `None` where arithmetic never binds.
    ///
    /// Multiplied by `F/2`, with `beta = F / 2BW` and a query tile of `t`, equality is `a n^2 + s n - c = 0`, where
    /// `a = K (g - beta ab / t) / 2`, `s = P + K (g - beta ab) / 2`; `P = Ap`, `c = beta Ap wb` if every token passes the
    /// head, `P = Lp`, `c = beta Ap wb - Hp` if the last does. From a first inflection on, prompts may be cut into
    /// chunks of that length without loss; without tiles the second is an artefact of re-reading the cache per token.
    pub fn inflections(&self, head: Head) -> Option<Inflections> {
        let beta = self.flops / (2.0 * self.bandwidth);
        let k = self.cache_elements as f64;
        let a = k * (self.group - beta * self.cache_bytes / self.query_tile.max(1) as f64) / 2.0;
        let (p, once) = match head {
            Head::EveryToken => (self.parameters.active() as f64, 0.0),
            Head::LastToken => (self.parameters.layers as f64, self.parameters.head as f64),
        };
        let s = p + k * (self.group - beta * self.cache_bytes) / 2.0;
        let c = beta * self.active_bytes() - once;
        let d = s * s + 4.0 * a * c;
        if d < 0.0 {
            return None;
        }
        // The form that does not cancel, and holds for `a = 0`.
        let first = 2.0 * c / (s + d.sqrt());
        if a >= 0.0 {
            return Some(Inflections { first: first.max(0.0), second: f64::INFINITY });
        }
        let second = (-d.sqrt() - s) / (2.0 * a);
        (second > 0.0).then(|| Inflections { first: first.max(0.0), second })
    }

    /// Seconds in which the step that yields token `n` (from 1) reads weights and the cache of `n` positions.
    pub fn step_read(&self, n: u64) -> f64 {
        (self.active_bytes() + n as f64 * self.cache_bytes_per_token()) / self.bandwidth
    }

    /// FLOP of that step: `2 (Ap + n K g)`.
    pub fn step_flop(&self, n: u64) -> f64 {
        2.0 * (self.parameters.active() as f64 + n as f64 * self.cache_elements as f64 * self.group)
    }

    /// Seconds in which it is computed.
    pub fn step_compute(&self, n: u64) -> f64 {
        self.step_flop(n) / self.flops
    }

    /// Least time of that step, in seconds.
    pub fn step(&self, n: u64) -> f64 {
        self.step_read(n).max(self.step_compute(n))
    }

    /// `W`: tokens after which a step takes a millisecond more; of the cache alone.
    pub fn tokens_per_millisecond(&self) -> f64 {
        self.bandwidth / (1000.0 * self.cache_bytes_per_token())
    }

    /// `B`: milliseconds of a first step; of the weights alone.
    pub fn first_step_milliseconds(&self) -> f64 {
        1000.0 * self.active_bytes() / self.bandwidth
    }

    /// Milliseconds of the step that yields token `n` (from 1), as the article writes it: `(n - 1) / W + B`. One row of
    /// the cache less than [`step_read`](Self::step_read).
    pub fn step_milliseconds(&self, n: u64) -> f64 {
        n.saturating_sub(1) as f64 / self.tokens_per_millisecond() + self.first_step_milliseconds()
    }

    /// Milliseconds of all steps from token `first` (from 1) to token `last`, both included: the sum of
    /// [`step_milliseconds`](Self::step_milliseconds). 0 if `last < first`.
    pub fn cumulative_milliseconds(&self, first: u64, last: u64) -> f64 {
        let first = first.max(1);
        if last < first {
            return 0.0;
        }
        let steps = (last - first + 1) as f64;
        let rows = (triangle(last - 1) - triangle((first - 1).saturating_sub(1))) as f64;
        steps * self.first_step_milliseconds() + rows / self.tokens_per_millisecond()
    }
}

/// Shapes come from strangers' files: a count beyond 64 bits is the largest one, not a wrong one.
pub(crate) fn product(factors: &[u64]) -> u64 {
    factors.iter().fold(1, |all, &x| all.saturating_mul(x))
}

pub(crate) fn sum(terms: &[u64]) -> u64 {
    terms.iter().fold(0, |all, &x| all.saturating_add(x))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_are_those_that_tiles_of_queries_see() {
        let masks = [1, 2, 7, 30]
            .into_iter()
            .flat_map(|n| [Mask::Window(n), Mask::Chunk(n), Mask::Around(n)]);
        for mask in masks.chain([Mask::Causal, Mask::Full]) {
            for (past, n, tile) in
                [(0, 0, 1), (0, 1, 1), (0, 20, 1), (13, 20, 3), (40, 9, 4), (5, 64, 8), (29, 33, 5)]
            {
                let tiles = (0..n).step_by(tile);
                let want: u64 = tiles
                    .map(|at| {
                        let end = mask.end(past + (at + tile).min(n) - 1, past + n);
                        (end - mask.first(past + at)) as u64
                    })
                    .sum();
                let seen = positions_seen(mask, past as u64, n as u64, tile as u64);
                assert_eq!(seen, want, "{mask:?} {past} {n} {tile}");
            }
        }
        let far = positions_seen(Mask::Window(4096), 1 << 40, 1 << 40, 64);
        assert_eq!(far, (1 << 34) * (4096 + 63));
    }
}
