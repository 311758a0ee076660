//! The forms of latent attention, what each costs, and which one a prompt takes.
//!
//! Per layer, in floating-point operations, for `T` new tokens of which each sees its context (`pairs` of a token and a
//! position it sees), `H` heads, keys of `dn + dr`, values of `dv`, latents of rank `r`:
//!
//! | form             | cache per position      | per pair             | besides                                      |
//! |------------------|-------------------------|----------------------|----------------------------------------------|
//! | expanded         | `H (dn + dr + dv)`      | `2H (dn + dr + dv)`  | `2Hr (dn + dv)` per new token                |
//! | compressed       | `r + dr`                | `2H (dn + dr + dv)`  | `2Hr (dn + dv)` per position and step        |
//! | absorbed, elided | `r + dr`                | `2H (2r + dr)`       | `2Hr (dn + dv)` per new token                |
//!
//! Absorbed copies the cached rows for each head; elided copies nothing.
//! Source: arXiv:2405.04434, section 2.1; the names are those of github.com/madsys-dev/deepseekv2-profile.

use program::Prompt;

/// How latent attention is computed. Results are equal but for rounding.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum MlaForm {
    /// By cost: long prompts compressed, all else elided.
    #[default]
    Auto,
    /// Keys and values of every head are made once and cached.
    Expanded,
    /// Latents are cached; keys and values of all of the context are made in each step, a tile at a time.
    Compressed,
    /// Latents are cached; queries are brought to them, each head attends to its own copy of the rows `[c | k_pe]`.
    Absorbed,
    /// As absorbed, without copies: scores are the sum of two products, and a row loaded once serves all heads.
    Elided,
}

impl MlaForm {
    /// Names that [`MlaForm::parse`] takes.
    pub const NAMES: &'static [(&'static str, MlaForm)] = &[
        ("auto", MlaForm::Auto),
        ("expanded", MlaForm::Expanded),
        ("compressed", MlaForm::Compressed),
        ("absorbed", MlaForm::Absorbed),
        ("elided", MlaForm::Elided),
    ];

    /// The form with this name.
    pub fn parse(name: &str) -> Option<MlaForm> {
        Self::NAMES.iter().find(|(known, _)| *known == name).map(|(_, form)| *form)
    }

    /// The name of this form.
    pub fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(_, form)| *form == self).map_or("", |(name, _)| name)
    }

    /// The form of a sequence whose tokens are part of `prompt`, if they are of one: never [`MlaForm::Auto`].
    pub(crate) fn choose(self, dims: &MlaDims, prompt: Option<Prompt>) -> MlaForm {
        match (self, prompt) {
            (MlaForm::Auto, Some(prompt)) if dims.compressed_is_less(prompt) => MlaForm::Compressed,
            (MlaForm::Auto, _) => MlaForm::Elided,
            (form, _) => form,
        }
    }

    /// Whether keys and values of every head are cached instead of latents.
    pub(crate) fn is_expanded(self) -> bool {
        self == MlaForm::Expanded
    }

    /// Whether it may bring queries to the latents.
    pub(crate) fn absorbs(self) -> bool {
        matches!(self, MlaForm::Auto | MlaForm::Absorbed | MlaForm::Elided)
    }

    /// Whether it may make keys of latents.
    pub(crate) fn expands(self) -> bool {
        matches!(self, MlaForm::Auto | MlaForm::Compressed | MlaForm::Expanded)
    }
}

/// Widths of one latent attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MlaDims {
    /// `H`.
    pub n_heads: usize,
    /// `r`: width of a latent.
    pub rank: usize,
    /// `dn`: width of the part of a key that is made of a latent.
    pub nope_dim: usize,
    /// `dr`: width of the rotated part of a key.
    pub rope_dim: usize,
    /// `dv`: width of a value.
    pub value_dim: usize,
}

/// Tokens of a prompt that are taken to share a step: how a prompt is really cut must not decide.
const CHUNK: usize = 512;

impl MlaDims {
    /// Width of a key.
    pub fn key_dim(&self) -> usize {
        self.nope_dim + self.rope_dim
    }

    /// Operations for each pair of a token and a position it sees.
    pub fn flops_per_pair(&self, form: MlaForm) -> u64 {
        let width = match form {
            MlaForm::Expanded | MlaForm::Compressed => self.key_dim() + self.value_dim,
            MlaForm::Auto | MlaForm::Absorbed | MlaForm::Elided => 2 * self.rank + self.rope_dim,
        };
        2 * (self.n_heads * width) as u64
    }

    /// Operations that bring one position to its heads' keys and values, or one token's queries and outputs to latents.
    pub fn flops_per_row(&self) -> u64 {
        2 * (self.n_heads * self.rank * (self.nope_dim + self.value_dim)) as u64
    }

    /// Operations of a step of `n` tokens after `context` positions, projections to and from the layer apart.
    pub fn flops(&self, form: MlaForm, context: usize, n: usize) -> u64 {
        let pairs = n * context + n * (n + 1) / 2;
        let rows = if form == MlaForm::Compressed { context + n } else { n };
        pairs as u64 * self.flops_per_pair(form) + rows as u64 * self.flops_per_row()
    }

    /// Numbers that one position takes in the cache.
    pub fn cached(&self, form: MlaForm) -> usize {
        if form.is_expanded() {
            self.n_heads * (self.key_dim() + self.value_dim)
        } else {
            self.rank + self.rope_dim
        }
    }

    /// Whether a prompt takes fewer operations in compressed form. Far into a context that is from
    /// `r (dn + dv) / (2r - dn - dv)` tokens on (171 for DeepSeek-V2); sooner where more of what is expanded is new.
    fn compressed_is_less(&self, prompt: Prompt) -> bool {
        let cost = |form| -> u64 {
            let steps = (0..prompt.len).step_by(CHUNK);
            let cost = |done| self.flops(form, prompt.start + done, CHUNK.min(prompt.len - done));
            steps.map(cost).sum()
        };
        cost(MlaForm::Compressed) < cost(MlaForm::Elided)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const V2: MlaDims =
        MlaDims { n_heads: 128, rank: 512, nope_dim: 128, rope_dim: 64, value_dim: 128 };

    #[test]
    fn costs_are_those_of_the_article() {
        assert_eq!(V2.flops_per_pair(MlaForm::Expanded), 81_920);
        assert_eq!(V2.flops_per_pair(MlaForm::Elided), 278_528);
        assert_eq!(V2.flops_per_row(), 33_554_432);
        assert_eq!(2 * V2.cached(MlaForm::Expanded), 81_920);
        assert_eq!(2 * V2.cached(MlaForm::Compressed), 1152);
    }

    #[test]
    fn long_prompts_are_compressed_and_steps_are_not() {
        let form = |start, len| MlaForm::Auto.choose(&V2, Some(Prompt { start, len }));
        let first = (1..600).find(|&n| form(1_000_000, n) == MlaForm::Compressed);
        assert_eq!(first, Some(171));
        assert_eq!(form(0, 512), MlaForm::Compressed);
        assert_eq!(form(0, 100_000), MlaForm::Compressed);
        assert_eq!(form(1000, 1), MlaForm::Elided);
        assert_eq!(MlaForm::Auto.choose(&V2, None), MlaForm::Elided);
        assert_eq!(MlaForm::Absorbed.choose(&V2, None), MlaForm::Absorbed);
    }

    #[test]
    fn names_are_read_back() {
        for (name, form) in MlaForm::NAMES {
            assert_eq!((MlaForm::parse(name), form.name()), (Some(*form), *name));
        }
        assert_eq!(MlaForm::parse("Elided"), None);
    }
}
