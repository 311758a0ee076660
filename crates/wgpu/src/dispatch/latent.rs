//! Dispatches of attention over latents, but for those that all attention has.

use program::Rows;

use super::{Bound, Choice, Grid, Maker};
use crate::kernels::{LATENTS, Shader, TURNED};
use crate::plan::{AttentionWork, LatentParts, TurnedWork};

/// Columns of a slot that a workgroup of [`TURNED`] has.
const TURNED_COLS: usize = 128;

impl Maker<'_> {
    pub(super) fn latents(&mut self, work: &AttentionWork, latents: &LatentParts, q_stride: u32) {
        let (angles, temperature) = self.row_numbers(work);
        let [c, k_pe] = work.kv.expect("latents are appended");
        let LatentParts { q_pe, pe_pitch, rank } = *latents;
        let consts = [
            &[work.n_heads, rank, work.value_dim, work.rotated].map(|n| n as u32)[..],
            &[u32::from(work.interleaved), angles, temperature],
            &[work.score.scale.to_bits(), work.cache as u32],
            &self.at(work.q),
            &self.at(q_pe),
            &[pe_pitch as u32],
            &self.at(c),
            &self.at(k_pe),
            &[q_stride],
        ]
        .concat();
        let read = [work.q, q_pe, c, k_pe].map(|place| Bound::Buffer(place.buffer));
        let bound = [&read[..], &[Bound::Queries, Bound::Blocks(work.cache)]].concat();
        let grid = Grid::Elements { cols: work.n_heads + 1, each: 1, rows: Rows::Tokens };
        self.push((&LATENTS, Choice::Latents, grid), work.out.buffer, bound, consts);
    }

    pub(super) fn turned(&mut self, work: &TurnedWork) {
        let TurnedWork { matrix, each, taken, slots, x, x_pitch, out, out_pitch } = *work;
        let shader = Shader::turned(self.weights.matrices[matrix].format);
        for part in 0..self.weights.matrices[matrix].parts.len() {
            let (consts, planes) = self.part(matrix, part);
            let consts = [
                &consts[..],
                &[each, taken].map(|n| n as u32),
                &self.at(x),
                &[x_pitch as u32],
                &self.at(out),
                &[out_pitch as u32],
            ]
            .concat();
            let bound =
                [&planes[..], &[Bound::Buffer(x.buffer), Bound::Buffer(out.buffer)]].concat();
            let tiles = out_pitch.div_ceil(TURNED_COLS);
            let grid = Grid::Slots { tiles, slots, rows: self.rows(x) };
            self.push((&TURNED, Choice::One(shader.clone()), grid), out.buffer, bound, consts);
        }
    }
}
