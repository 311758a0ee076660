//! Lowering of attention: rotation, cache and queries in one phase.

use program::{Attention, CacheKind, Error, Mask, Result};

use super::{Lowering, unsupported};
use crate::geometry::TILE_ROWS;
use crate::plan::{AttentionPhase, Cached, Chosen, NewRows};

impl Lowering<'_> {
    /// The phase of the attention at `index`, whose cache is noted.
    pub(super) fn attention(&mut self, index: usize, at: &Attention) -> Result<AttentionPhase> {
        let node = &self.program.nodes[index];
        if at.select.is_some() && at.score.mask != Mask::Causal {
            let what = "attention that selects what it reads of a part of the past";
            return Err(Error::Unsupported(what.into()));
        }
        let out = self.operand(node.output);
        let rope = at.rope.as_ref().map(|rope| self.rope(rope));
        let q = self.operand(node.inputs[0]);
        let chosen = at.select.map(|select| {
            let last = node.inputs.len() - 1;
            Chosen { select, units: self.operand(node.inputs[last]) }
        });
        let new = at.appends.then(|| {
            let [k, v] = [1, 2].map(|i| self.operand(node.inputs[i]));
            NewRows { k, v }
        });
        // q and k are rotated where they are
        let alone = |i: usize| self.uses.only_reader(node.inputs[i]) == Some(index);
        let apart =
            |NewRows { k, v }: NewRows| alone(1) && v.value != q.value && v.value != k.value;
        if !(alone(0) && new.is_none_or(apart)) {
            return Err(Error::Unsupported("queries or keys that something else reads".into()));
        }
        let CacheKind::Heads { n_kv_heads, key_dim, value_dim, window } =
            self.program.cache(at.cache).kind
        else {
            return Err(unsupported(&node.op));
        };
        let group = q.cols / key_dim / n_kv_heads;
        if group > TILE_ROWS {
            return Err(Error::Unsupported(format!(
                "{group} query heads per key-value head (1..{TILE_ROWS})"
            )));
        }
        let (cache, score) = (at.cache, at.score.clone());
        let norm = at.norm;
        let phase = AttentionPhase { cache, rope, norm, score, group, q, new, chosen, out };
        let mut tile_rows = phase.tile_rows();
        let cached = &mut self.caches[at.cache.0 as usize];
        let mut n_heads = group * n_kv_heads;
        if let Some(Cached::Heads { tile_rows: known, n_heads: appending, .. }) = cached {
            tile_rows = tile_rows.max(*known);
            n_heads = if phase.new.is_some() { n_heads } else { *appending };
        }
        *cached =
            Some(Cached::Heads { n_kv_heads, key_dim, value_dim, window, tile_rows, n_heads });
        Ok(phase)
    }
}
