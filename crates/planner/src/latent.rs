//! The cost of latent attention: its cheaper form, and what that reads. What each form computes: [`MlaDims`].

use std::ops::Range;

use program::{MlaDims, MlaForm};

use crate::cost::{Numbers, Work};
use crate::formula::positions_read;

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
}

impl LatentCost {
    /// `rows` queries of `tokens` new positions after `past`: in the cheaper form, a single query always absorbed.
    pub(crate) fn work(&self, past: u64, tokens: u64, rows: u64) -> Work {
        let before = past.saturating_add(tokens - rows);
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
        Work {
            cache_read_bytes: read.saturating_mul(self.position_bytes),
            cache_write_bytes: tokens.saturating_mul(self.position_bytes),
            barriers: u64::from(tokens > 0),
            ..Work::of_macs(self.numbers, macs)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const V2: MlaDims =
        MlaDims { n_heads: 128, rank: 512, nope_dim: 128, rope_dim: 64, value_dim: 128 };

    #[test]
    fn a_node_takes_the_cheaper_form() {
        let node = LatentCost { dims: V2, numbers: Numbers::F16, position_bytes: 1152, tile: 8 };
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
}
