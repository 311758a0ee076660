//! Dispatches of attention: rotation and append, scores and values, the join of stretches.

use program::{Mask, Rows};

use super::{Bound, Choice, Grid, Maker, NONE};
use crate::batch::HEADER;
use crate::kernels::{ATTEND, COMBINE, HeadWidths, KEYS, Shader};
use crate::plan::{AttentionWork, ChosenUnits, InnerNorm, Place};

impl Maker<'_> {
    pub(super) fn attention(&mut self, work: &AttentionWork) {
        let (n_heads, n_kv_heads) = (work.n_heads, work.n_kv_heads);
        let [key_quads, value_quads] = [work.key_dim, work.value_dim].map(|dim| dim.div_ceil(4));
        let q_stride = query_stride(work) as u32;
        match &work.latents {
            Some(latents) => self.latents(work, latents, q_stride),
            None => self.keys(work, q_stride),
        }
        let (mask, reach) = match work.score.mask {
            Mask::Causal => (0, 0),
            Mask::Window(n) => (1, n),
            Mask::Chunk(n) => (2, n),
            Mask::Full => (3, 0),
            Mask::Around(n) => (4, n),
        };
        let out = work.out;
        if let Some(chosen) = &work.chosen {
            self.marks(chosen, out.buffer);
        }
        let chosen = work.chosen.map_or([0, 1, 0], |ChosenUnits { n_choices, select, .. }| {
            [select.unit, n_choices as u32, select.limit() as u32]
        });
        let marks = if work.chosen.is_some() { Bound::Marks } else { Bound::Nothing };
        let consts = [
            &[n_heads as u32, n_kv_heads as u32, mask, reach][..],
            &[work.score.softcap.unwrap_or(0.0).to_bits()],
            &[self.vector(work.slopes), self.vector(work.sinks)],
            &[work.cache as u32, work.value_dim as u32, q_stride],
            &self.at(out),
            &chosen,
        ]
        .concat();
        let bound = vec![
            Bound::Vectors,
            Bound::Queries,
            Bound::Blocks(work.cache),
            marks,
            Bound::Buffer(out.buffer),
            Bound::Partials,
        ];
        let grid = Grid::Attend { n_kv_heads, group: n_heads / n_kv_heads };
        let are_latents = work.latents.is_some();
        let choice = Choice::Attend(HeadWidths { key_quads, value_quads, are_latents });
        self.push((&ATTEND, choice, grid), out.buffer, bound, consts);
        let consts = [
            &[n_heads, value_quads, work.value_dim].map(|x| x as u32)[..],
            &[self.vector(work.sinks)],
            &self.at(out),
        ]
        .concat();
        let bound = vec![Bound::Vectors, Bound::Partials, Bound::Buffer(out.buffer)];
        let grid = Grid::Combine { n_heads };
        self.push((&COMBINE, Choice::One(Shader::combine()), grid), out.buffer, bound, consts);
    }

    /// Which words of a step say where the angles of a rotation are, and factors of queries.
    pub(super) fn row_numbers(&self, work: &AttentionWork) -> (u32, u32) {
        let header = HEADER as u32;
        let angles = work.rotation.map_or(NONE, |i| header + i as u32);
        let after = header + self.plan.rotations.len() as u32;
        (angles, work.temperature.map_or(NONE, |i| after + i as u32))
    }

    fn keys(&mut self, work: &AttentionWork, q_stride: u32) {
        let (angles, temperature) = self.row_numbers(work);
        let [k, v] = work.kv.map_or([None; 2], |kv| kv.map(Some));
        // in the order of the bits: q before, q behind, k before, k behind
        let [q_before, k_before, q_behind, k_behind] = work.norms;
        let ordered = [q_before, q_behind, k_before, k_behind];
        let bits = (ordered.iter().enumerate()).map(|(i, norm)| u32::from(norm.is_some()) << i);
        let vector = |norm: Option<InnerNorm>| self.vector(norm.and_then(|norm| norm.weight));
        let eps = |pair: [Option<InnerNorm>; 2]| {
            pair.into_iter().flatten().next().map_or(0, |norm| norm.eps.to_bits())
        };
        let sizes = [work.n_heads, work.n_kv_heads, work.key_dim, work.value_dim, work.rotated];
        let consts = [
            &sizes.map(|x| x as u32)[..],
            &[u32::from(work.interleaved), angles, temperature],
            &[work.score.scale.to_bits(), work.cache as u32],
            &self.at(work.q),
            &self.maybe_at(k),
            &self.maybe_at(v),
            &[q_stride, bits.sum()],
            &[vector(q_before), vector(k_before), eps([q_before, k_before])],
            &[vector(q_behind), vector(k_behind), eps([q_behind, k_behind])],
        ]
        .concat();
        let buffer =
            |place: Option<Place>| place.map_or(Bound::Nothing, |p| Bound::Buffer(p.buffer));
        let bound = vec![
            Bound::Vectors,
            Bound::Buffer(work.q.buffer),
            buffer(k),
            buffer(v),
            Bound::Queries,
            Bound::Blocks(work.cache),
        ];
        let appended = if work.kv.is_some() { 2 * work.n_kv_heads } else { 0 };
        let grid = Grid::Elements { cols: work.n_heads + appended, each: 1, rows: Rows::Tokens };
        self.push((&KEYS, Choice::Keys, grid), work.out.buffer, bound, consts);
    }
}

/// Numbers of the rotated queries of a row.
pub(crate) fn query_stride(work: &AttentionWork) -> usize {
    work.n_heads * work.key_dim.next_multiple_of(4)
}
