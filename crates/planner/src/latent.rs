//! The cost of latent attention: its cheaper form, and what that reads. What each form computes: [`MlaDims`].

use std::ops::Range;

use program::{MlaDims, MlaForm, Selection};

use crate::cost::{Numbers, Work};
use crate::formula::positions_read;
use crate::reads::{choosing, chosen_positions};

/// The form that executors take for a prompt at these positions: the cheaper one, however the prompt is cut; for a step
/// always the one that brings queries to the latents.
pub fn form(dims: &MlaDims, prompt: Range<u64>) -> MlaForm {
    let step = prompt.end <= prompt.start.saturating_add(1);
    if step { MlaForm::Elided } else { dims.prompt_form(prompt) }
}

/// One node of latent attention, with a cache of latents; its weights are counted apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LatentCost {
    pub(crate) dims: MlaDims,
    /// Of the cache.
    pub(crate) numbers: Numbers,
    /// Of one cached position.
    pub(crate) position_bytes: u64,
    /// Queries that share one read of the cache.
    pub(crate) tile: u64,
    /// What of the positions is read, if not all.
    pub(crate) select: Option<Selection>,
}

impl LatentCost {
    /// `rows` queries of `tokens` new positions after `past`: in the cheaper form, a single query always absorbed.
    pub(crate) fn work(&self, past: u64, tokens: u64, rows: u64) -> Work {
        let before = past.saturating_add(tokens - rows);
        let [all, few] = self.select.map_or([rows, 0], |select| choosing(&select, before, rows));
        let dense = self.reading_all(before, all);
        let limit = self.select.map_or(0, |select| select.limit() as u64);
        let chosen = few.saturating_mul(limit);
        let read = self.select.map_or(0, |select| {
            chosen_positions(&select, before.saturating_add(all), few, self.tile)
        });
        let elided = MlaForm::Elided;
        let macs = chosen
            .saturating_mul(self.dims.pair_macs(elided))
            .saturating_add(few.saturating_mul(self.dims.token_macs(elided)));
        let moved = Work {
            cache_read_bytes: read.saturating_mul(self.position_bytes),
            cache_write_bytes: tokens.saturating_mul(self.position_bytes),
            barriers: u64::from(tokens > 0),
            ..Work::of_macs(self.numbers, macs)
        };
        dense.plus(&moved)
    }

    /// `rows` queries after `before` positions, which read all they see.
    fn reading_all(&self, before: u64, rows: u64) -> Work {
        let [absorbed, expanded] =
            [MlaForm::Elided, MlaForm::Compressed].map(|form| self.dims.macs(form, before, rows));
        let expand = rows > 1 && expanded < absorbed;
        let read = match rows {
            0 => 0,
            _ if expand => before.saturating_add(rows),
            _ => positions_read(rows, self.tile)
                .saturating_add(before.saturating_mul(rows.div_ceil(self.tile))),
        };
        let macs = match rows {
            0 => 0,
            _ if expand => expanded,
            _ => absorbed,
        };
        let cache_read_bytes = read.saturating_mul(self.position_bytes);
        Work { cache_read_bytes, ..Work::of_macs(self.numbers, macs) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const V2: MlaDims =
        MlaDims { n_heads: 128, rank: 512, nope_dim: 128, rope_dim: 64, value_dim: 128 };

    #[test]
    fn a_node_takes_the_cheaper_form() {
        let numbers = Numbers::F16;
        let node = LatentCost { dims: V2, numbers, position_bytes: 1152, tile: 8, select: None };
        let step = node.work(1000, 1, 1);
        assert_eq!(step.f16_macs, V2.macs(MlaForm::Elided, 1000, 1));
        assert_eq!((step.cache_read_bytes, step.cache_write_bytes), (1001 * 1152, 1152));
        let prompt = node.work(0, 500, 500);
        assert_eq!(prompt.f16_macs, V2.macs(MlaForm::Compressed, 0, 500));
        assert_eq!(prompt.cache_read_bytes, 500 * 1152);
        let few = node.work(10_000, 16, 16);
        assert_eq!(few.f16_macs, V2.macs(MlaForm::Elided, 10_000, 16));
        let (first, second) = (10_008, 10_016);
        assert_eq!(few.cache_read_bytes, (first + second) * 1152);
        // Rows that nothing reads enter the cache all the same.
        let none = node.work(10, 5, 0);
        assert_eq!(none, Work { cache_write_bytes: 5 * 1152, barriers: 1, ..Work::default() });
    }

    /// Beyond what it chooses a query costs the same at any depth.
    #[test]
    fn queries_that_choose_read_so_much_each() {
        let select = Some(Selection { unit: 1, n_units: 2048, has_tail: false });
        let numbers = Numbers::F16;
        let node = LatentCost { dims: V2, numbers, position_bytes: 1152, tile: 8, select };
        let plain = LatentCost { select: None, ..node };
        assert_eq!(node.work(0, 500, 500), plain.work(0, 500, 500));
        let deep = node.work(1 << 20, 1, 1);
        assert_eq!(deep.f16_macs, V2.macs(MlaForm::Elided, 2047, 1));
        assert_eq!((deep.cache_read_bytes, deep.cache_write_bytes), (2048 * 1152, 1152));
        let [before, both] = [plain.work(0, 2048, 2048), node.work(0, 2050, 2050)];
        assert_eq!(both.f16_macs, before.f16_macs + 2 * deep.f16_macs);
        // a tile reads no latent twice
        assert_eq!(node.work(3000, 8, 8).cache_read_bytes, 3008 * 1152);
        assert_eq!(node.work(1 << 20, 8, 8).cache_read_bytes, 8 * 2048 * 1152);
    }
}
