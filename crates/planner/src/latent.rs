//! Latent attention as algebra: what a query, a position and a pair of both cost in each of its forms.
//!
//! Source: arXiv:2405.04434, section 2.1; the forms and their measured figures: `deepseekv2-profile` by madsys-dev.

use program::{LatentUp, Node, Program, WeightId};

use crate::cost::Work;
use crate::formula::{positions_read, product, sum, triangle};

/// Widths of one layer's latent attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LatentShape {
    /// `H`: query heads.
    pub n_heads: u64,
    /// `dn`: part of a key that does not rotate.
    pub nope_dim: u64,
    /// `dr`: part of a key that rotates, which all heads share.
    pub rope_dims: u64,
    /// `dv`: width of a value.
    pub value_dim: u64,
    /// `r`: width of a latent.
    pub rank: u64,
}

/// Ways to compute the same outputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Form {
    /// Keys and values of all heads are made once and cached.
    Expanded,
    /// Latents are cached; keys and values of all positions are made in every pass.
    CacheCompressed,
    /// Latents are cached; queries go to the latents' space and results come back from it. Keys and queries are joined
    /// from their two parts, and copied for each head.
    Absorbed,
    /// The same without the copies: scores are the sum of two products.
    MoveElision,
}

impl Form {
    /// All of them, in the order in which they improve on each other.
    pub const ALL: [Form; 4] =
        [Form::Expanded, Form::CacheCompressed, Form::Absorbed, Form::MoveElision];

    fn absorbed(self) -> bool {
        matches!(self, Form::Absorbed | Form::MoveElision)
    }
}

impl LatentShape {
    /// Elements that one position adds to the cache: `H (dn + dr + dv)` or `r + dr`.
    pub fn cache_elements(&self, form: Form) -> u64 {
        match form {
            Form::Expanded => product(&[self.n_heads, self.expanded_width()]),
            _ => sum(&[self.rank, self.rope_dims]),
        }
    }

    /// Multiply-adds for each query and position it attends to: `H (dn + dr + dv)` or `H (2r + dr)`.
    pub fn pair_macs(&self, form: Form) -> u64 {
        let width = if form.absorbed() {
            sum(&[self.rank, self.rank, self.rope_dims])
        } else {
            self.expanded_width()
        };
        product(&[self.n_heads, width])
    }

    /// Multiply-adds for each new token, whatever it attends to: `H r (dn + dv)`, for its key and value or for its query
    /// and result.
    pub fn token_macs(&self, form: Form) -> u64 {
        if form == Form::CacheCompressed { 0 } else { self.up_weights() }
    }

    /// Multiply-adds for each position attended to, once a pass: `H r (dn + dv)` where keys and values are made then.
    pub fn position_macs(&self, form: Form) -> u64 {
        if form == Form::CacheCompressed { self.up_weights() } else { 0 }
    }

    /// Multiply-adds of a pass of `rows` queries after `past` positions.
    pub fn macs(&self, form: Form, past: u64, rows: u64) -> u64 {
        let pairs = triangle(rows).saturating_add(past.saturating_mul(rows));
        sum(&[
            product(&[rows, self.token_macs(form)]),
            product(&[pairs, self.pair_macs(form)]),
            product(&[past.saturating_add(rows), self.position_macs(form)]),
        ])
    }

    /// New tokens above which making keys and values of a long latent cache costs less than absorbing:
    /// `r (dn + dv) / (2r - dn - dv)`; `None` if it never does.
    pub fn break_even(&self) -> Option<f64> {
        let [rank, nope, value] = [self.rank, self.nope_dim, self.value_dim].map(|x| x as f64);
        let saved = 2.0 * rank - nope - value;
        (saved > 0.0).then(|| rank * (nope + value) / saved)
    }

    /// `H r (dn + dv)`: weights that make keys and values of a latent.
    pub fn up_weights(&self) -> u64 {
        product(&[self.n_heads, self.rank, sum(&[self.nope_dim, self.value_dim])])
    }

    fn expanded_width(&self) -> u64 {
        sum(&[self.nope_dim, self.rope_dims, self.value_dim])
    }
}

/// One node of latent attention, with a cache of latents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LatentCost {
    pub(crate) shape: LatentShape,
    /// Of the weights that make keys and values.
    pub(crate) weight_bytes: u64,
    /// Of one cached position.
    pub(crate) position_bytes: u64,
    /// Queries that share one read of the cache.
    pub(crate) tile: u64,
}

impl LatentCost {
    /// The last argument: bytes of one cached position, and queries that share one read of it.
    pub(crate) fn of(
        program: &Program,
        node: &Node,
        up: &LatentUp,
        (position_bytes, tile): (u64, usize),
    ) -> LatentCost {
        let [q_nope, q_pe, c] = [0, 1, 2].map(|i| program.value(node.inputs[i]).shape);
        let n_heads = q_nope.groups as u64;
        let bytes = |id: &WeightId| program.weight(*id).bytes();
        LatentCost {
            shape: LatentShape {
                n_heads,
                nope_dim: q_nope.dim as u64,
                rope_dims: q_pe.dim as u64,
                value_dim: program.value(node.output).shape.cols() as u64 / n_heads.max(1),
                rank: c.dim as u64,
            },
            weight_bytes: match up {
                LatentUp::Split { k_b, v_b } => bytes(k_b).saturating_add(bytes(v_b)),
                LatentUp::Joint { kv_b } => bytes(kv_b),
            },
            position_bytes,
            tile: tile.max(1) as u64,
        }
    }

    /// `rows` queries of `tokens` new positions after `past`: in the cheaper form, a single query always absorbed.
    pub(crate) fn work(&self, past: u64, tokens: u64, rows: u64) -> Work {
        let before = past.saturating_add(tokens - rows);
        let [absorbed, expanded] = [Form::MoveElision, Form::CacheCompressed]
            .map(|form| self.shape.macs(form, before, rows));
        let expand = rows > 1 && expanded < absorbed;
        let read = match rows {
            0 => 0,
            _ if expand => before.saturating_add(rows),
            _ => positions_read(rows, self.tile)
                .saturating_add(before.saturating_mul(rows.div_ceil(self.tile))),
        };
        let used = u64::from(rows > 0);
        Work {
            weights: used * self.shape.up_weights(),
            weight_bytes: used * self.weight_bytes,
            cache_read_bytes: read.saturating_mul(self.position_bytes),
            cache_write_bytes: tokens.saturating_mul(self.position_bytes),
            f32_macs: match rows {
                0 => 0,
                _ if expand => expanded,
                _ => absorbed,
            },
            barriers: u64::from(tokens > 0),
            ..Work::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const V2: LatentShape =
        LatentShape { n_heads: 128, nope_dim: 128, rope_dims: 64, value_dim: 128, rank: 512 };

    #[test]
    fn published_figures_of_v2() {
        // Bytes in 16 bits and FLOP per query and position, per layer.
        let bytes = |form| 2 * V2.cache_elements(form);
        assert_eq!(Form::ALL.map(bytes), [81_920, 1152, 1152, 1152]);
        let flop = |form| 2 * (V2.pair_macs(form) + V2.position_macs(form));
        assert_eq!(Form::ALL.map(flop), [81_920, 33_554_432 + 81_920, 278_528, 278_528]);
        assert_eq!(2 * V2.token_macs(Form::MoveElision), 33_554_432);
        assert_eq!(60 * bytes(Form::Absorbed), 69_120);
        // Of what one cached element is worth: 241.8 multiply-adds.
        let group = V2.pair_macs(Form::Absorbed) as f64 / V2.cache_elements(Form::Absorbed) as f64;
        assert!((group - 241.8).abs() < 0.05);
    }

    #[test]
    fn a_prompt_of_171_tokens_is_expanded_and_one_of_170_is_not() {
        assert!((V2.break_even().unwrap() - 170.67).abs() < 0.01);
        let lite = LatentShape { n_heads: 16, ..V2 };
        assert_eq!(lite.break_even(), V2.break_even());
        let past = 1 << 30;
        for (rows, expand) in [(170, false), (171, true)] {
            let macs = |form| V2.macs(form, past, rows);
            assert_eq!(macs(Form::CacheCompressed) < macs(Form::MoveElision), expand, "{rows}");
        }
        // With wide heads of a narrow latent nothing is saved by making them.
        assert_eq!(LatentShape { rank: 128, ..V2 }.break_even(), None);
    }

    #[test]
    fn a_node_takes_the_cheaper_form() {
        let node = LatentCost { shape: V2, weight_bytes: 7, position_bytes: 1152, tile: 8 };
        let step = node.work(1000, 1, 1);
        assert_eq!(step.f32_macs, V2.macs(Form::MoveElision, 1000, 1));
        assert_eq!((step.cache_read_bytes, step.cache_write_bytes), (1001 * 1152, 1152));
        assert_eq!((step.weights, step.weight_bytes), (V2.up_weights(), 7));
        let prompt = node.work(0, 500, 500);
        assert_eq!(prompt.f32_macs, V2.macs(Form::CacheCompressed, 0, 500));
        assert_eq!(prompt.cache_read_bytes, 500 * 1152);
        let few = node.work(10_000, 16, 16);
        assert_eq!(few.f32_macs, V2.macs(Form::MoveElision, 10_000, 16));
        let (first, second) = (10_008, 10_016);
        assert_eq!(few.cache_read_bytes, (first + second) * 1152);
        // Rows that nothing reads enter the cache all the same.
        let none = node.work(10, 5, 0);
        assert_eq!(none, Work { cache_write_bytes: 5 * 1152, barriers: 1, ..Work::default() });
    }
}
