//! Latent attention as algebra: what each of its forms caches and computes.
//!
//! In multiply-adds, for `H` heads, keys of `dn + dr`, values of `dv`, latents of rank `r`; a pair is a query and a
//! position that it attends to:
//!
//! | form             | cache per position | per pair           | besides                              |
//! |------------------|--------------------|--------------------|--------------------------------------|
//! | expanded         | `H (dn + dr + dv)` | `H (dn + dr + dv)` | `Hr (dn + dv)` per new token         |
//! | compressed       | `r + dr`           | `H (dn + dr + dv)` | `Hr (dn + dv)` per position and pass |
//! | absorbed, elided | `r + dr`           | `H (2r + dr)`      | `Hr (dn + dv)` per new token         |
//!
//! Source: arXiv:2405.04434, section 2.1; the forms, their names and measured figures: github.com/madsys-dev/deepseekv2-profile.

use std::ops::Range;

use crate::{Node, Program};

/// Tokens of a prompt that are taken to share a pass: how a prompt is really cut must not decide its form.
const PROMPT_PASS: u64 = 512;

/// How latent attention is computed. Results are equal but for rounding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MlaForm {
    /// Keys and values of every head are made once and cached.
    Expanded,
    /// Latents are cached; keys and values of all of the context are made in each pass, a tile at a time.
    Compressed,
    /// Latents are cached; queries are brought to them, each head attends to its own copy of the rows `[c | k_pe]`.
    Absorbed,
    /// As absorbed, without copies: scores are the sum of two products, and a row loaded once serves all heads.
    Elided,
}

impl MlaForm {
    /// All of them, in the order in which they improve on each other.
    pub const ALL: [MlaForm; 4] =
        [MlaForm::Expanded, MlaForm::Compressed, MlaForm::Absorbed, MlaForm::Elided];

    /// Name for options and tables.
    pub fn name(self) -> &'static str {
        match self {
            MlaForm::Expanded => "expanded",
            MlaForm::Compressed => "compressed",
            MlaForm::Absorbed => "absorbed",
            MlaForm::Elided => "elided",
        }
    }

    /// The form with this name.
    pub fn parse(name: &str) -> Option<MlaForm> {
        Self::ALL.into_iter().find(|form| form.name() == name)
    }

    /// Whether queries are brought to the latents.
    fn absorbs(self) -> bool {
        matches!(self, MlaForm::Absorbed | MlaForm::Elided)
    }
}

/// Widths of one latent attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MlaDims {
    /// `H`: query heads.
    pub n_heads: usize,
    /// `r`: width of a latent.
    pub rank: usize,
    /// `dn`: width of the part of a key that is made of a latent.
    pub nope_dim: usize,
    /// `dr`: width of the rotated part of a key, which all heads share.
    pub rope_dim: usize,
    /// `dv`: width of a value.
    pub value_dim: usize,
}

impl MlaDims {
    /// Of a node of [`crate::Op::LatentAttention`].
    pub fn of(program: &Program, node: &Node) -> MlaDims {
        let [q_nope, q_pe, c] = [0, 1, 2].map(|i| program.value(node.inputs[i]).shape);
        let value_dim = program.value(node.output).shape.cols() / q_nope.groups.max(1);
        MlaDims {
            n_heads: q_nope.groups,
            rank: c.dim,
            nope_dim: q_nope.dim,
            rope_dim: q_pe.dim,
            value_dim,
        }
    }

    /// Width of a key.
    pub fn key_dim(&self) -> usize {
        self.nope_dim + self.rope_dim
    }

    /// Elements that one position adds to the cache.
    pub fn cache_elements(&self, form: MlaForm) -> u64 {
        match form {
            MlaForm::Expanded => self.heads(self.key_dim() + self.value_dim),
            MlaForm::Compressed | MlaForm::Absorbed | MlaForm::Elided => {
                (self.rank + self.rope_dim) as u64
            }
        }
    }

    /// Multiply-adds of each query with each position it attends to.
    pub fn pair_macs(&self, form: MlaForm) -> u64 {
        self.heads(if form.absorbs() {
            2 * self.rank + self.rope_dim
        } else {
            self.key_dim() + self.value_dim
        })
    }

    /// Multiply-adds of each new token, whatever it attends to: for its key and value, or its query and result.
    pub fn token_macs(&self, form: MlaForm) -> u64 {
        if form == MlaForm::Compressed { 0 } else { self.up_weights() }
    }

    /// Multiply-adds of each position attended to, once a pass.
    pub fn position_macs(&self, form: MlaForm) -> u64 {
        if form == MlaForm::Compressed { self.up_weights() } else { 0 }
    }

    /// Multiply-adds of a pass of `rows` queries after `past` positions, projections to and from the layer apart.
    pub fn macs(&self, form: MlaForm, past: u64, rows: u64) -> u64 {
        let triangle = if rows.is_multiple_of(2) {
            (rows / 2).saturating_mul(rows.saturating_add(1))
        } else {
            rows.saturating_mul(rows / 2 + 1)
        };
        let pairs = triangle.saturating_add(past.saturating_mul(rows));
        let positions = past.saturating_add(rows);
        let parts = [
            rows.saturating_mul(self.token_macs(form)),
            pairs.saturating_mul(self.pair_macs(form)),
            positions.saturating_mul(self.position_macs(form)),
        ];
        parts.into_iter().fold(0, u64::saturating_add)
    }

    /// `H r (dn + dv)`: weights that make keys and values of a latent.
    pub fn up_weights(&self) -> u64 {
        self.heads(self.nope_dim + self.value_dim).saturating_mul(self.rank as u64)
    }

    /// New tokens from which on making keys and values of a long latent cache costs less than absorbing:
    /// `r (dn + dv) / (2r - dn - dv)`; `None` if it never does.
    pub fn break_even(&self) -> Option<f64> {
        let [rank, nope, value] = [self.rank, self.nope_dim, self.value_dim].map(|x| x as f64);
        let saved = 2.0 * rank - nope - value;
        (saved > 0.0).then(|| rank * (nope + value) / saved)
    }

    /// The cheaper form that caches latents for a prompt at these positions. Far into a context that is compressed from
    /// [`break_even`](Self::break_even) tokens on (171 for DeepSeek-V2), sooner where more of what is expanded is new.
    pub fn prompt_form(&self, positions: Range<u64>) -> MlaForm {
        let Range { start, end } = positions;
        let macs = |form| {
            let passes = (start..end).step_by(PROMPT_PASS as usize);
            let each = passes.map(|past| self.macs(form, past, PROMPT_PASS.min(end - past)));
            each.fold(0, u64::saturating_add)
        };
        if macs(MlaForm::Compressed) < macs(MlaForm::Elided) {
            MlaForm::Compressed
        } else {
            MlaForm::Elided
        }
    }

    fn heads(&self, width: usize) -> u64 {
        (self.n_heads as u64).saturating_mul(width as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const V2: MlaDims =
        MlaDims { n_heads: 128, rank: 512, nope_dim: 128, rope_dim: 64, value_dim: 128 };

    #[test]
    fn published_figures_of_v2() {
        // Bytes in 16 bits and FLOP per query and position, per layer.
        let bytes = |form| 2 * V2.cache_elements(form);
        assert_eq!(MlaForm::ALL.map(bytes), [81_920, 1152, 1152, 1152]);
        let flop = |form| 2 * (V2.pair_macs(form) + V2.position_macs(form));
        assert_eq!(MlaForm::ALL.map(flop), [81_920, 33_554_432 + 81_920, 278_528, 278_528]);
        assert_eq!(2 * V2.token_macs(MlaForm::Elided), 33_554_432);
        assert_eq!(60 * bytes(MlaForm::Absorbed), 69_120);
        // Of what one cached element is worth: 241.8 multiply-adds.
        let absorbed = MlaForm::Absorbed;
        let group = V2.pair_macs(absorbed) as f64 / V2.cache_elements(absorbed) as f64;
        assert!((group - 241.8).abs() < 0.05);
    }

    #[test]
    fn a_prompt_of_171_tokens_is_cheaper_compressed_and_one_of_170_is_not() {
        assert!((V2.break_even().unwrap() - 170.67).abs() < 0.01);
        let lite = MlaDims { n_heads: 16, ..V2 };
        assert_eq!(lite.break_even(), V2.break_even());
        let past = 1 << 30;
        for (rows, compressed) in [(170, false), (171, true)] {
            let macs = |form| V2.macs(form, past, rows);
            assert_eq!(macs(MlaForm::Compressed) < macs(MlaForm::Elided), compressed, "{rows}");
        }
        // With wide heads of a narrow latent nothing is saved by making them.
        assert_eq!(MlaDims { rank: 128, ..V2 }.break_even(), None);
    }

    #[test]
    fn passes_are_tokens_pairs_and_positions() {
        let [tokens, pairs, past] = [5, 15, 100];
        for form in MlaForm::ALL {
            let want = tokens * V2.token_macs(form)
                + (pairs + past * tokens) * V2.pair_macs(form)
                + (past + tokens) * V2.position_macs(form);
            assert_eq!(V2.macs(form, past, tokens), want, "{form:?}");
        }
        assert_eq!(V2.macs(MlaForm::Elided, 0, 0), 0);
        assert_eq!(V2.macs(MlaForm::Elided, u64::MAX, u64::MAX), u64::MAX);
    }

    #[test]
    fn names_are_read_back() {
        for form in MlaForm::ALL {
            assert_eq!(MlaForm::parse(form.name()), Some(form));
        }
        assert_eq!(MlaForm::parse("Elided"), None);
    }
}
