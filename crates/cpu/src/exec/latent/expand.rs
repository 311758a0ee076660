//! Keys and values of every head, made once for a cache that keeps them.

use kernels::linear::{F32Rows, PANEL_ROWS};

use super::super::{Exec, Scratch};
use super::heads::{HeadInput, HeadProduct, MAX_ROWS, ProductScratch, tile_floats};
use crate::plan::{ExpandPhase, LatentInputs};
use crate::pool::Worker;
use crate::schedule::LoadedExpand;

impl Exec<'_> {
    pub(in super::super) fn expand(
        &self,
        worker: &Worker<'_>,
        loaded: &LoadedExpand,
        scratch: &mut Scratch<'_>,
    ) {
        let LoadedExpand { phase, matrices: layer } = loaded;
        let ExpandPhase { inputs, rows, k, v, .. } = phase;
        let LatentInputs { dims, .. } = inputs;
        let width = dims.rank + dims.rope_dim;
        worker.section(|section| {
            for row in section.take(self.tokens.len()) {
                // SAFETY: rows are dealt to one worker each.
                let out = unsafe { self.part_mut(*rows, row, 0..width) };
                let (latent, rope) = out.split_at_mut(dims.rank);
                self.latent_row(inputs, row, latent, rope);
            }
        });
        let expand = layer.expand.as_ref().expect("`load` packed what the form needs");
        let firsts = (0..self.tokens.len()).step_by(MAX_ROWS);
        let chunks: Vec<_> = firsts.map(|f| f..(f + MAX_ROWS).min(self.tokens.len())).collect();
        let expand_item = |item: usize, scratch: &mut Scratch<'_>| {
            let (chunk, head) = (chunks[item / dims.n_heads].clone(), item % dims.n_heads);
            let (n, first) = (chunk.len(), chunk.start);
            let x = self.operand_rows(*rows, chunk.clone());
            let x = F32Rows { x, n, cols: dims.rank, stride: rows.cols, pick: None };
            let (floats, [mut input, _]) = scratch.latent.split();
            let tile = &mut floats[..tile_floats(n)];
            for (matrix, out, step, len) in [
                (expand, *k, dims.key_dim(), dims.nope_dim),
                (&layer.value, *v, dims.value_dim, dims.value_dim),
            ] {
                let input = HeadInput::new(self.kernels, matrix.kernel, x, input.reborrow());
                let mut sink = |panel: usize, outputs: &[f32]| {
                    let cols = head * step + panel * PANEL_ROWS..head * step + len;
                    self.store_panel(out, first, cols, outputs);
                };
                let products = scratch.products.reborrow();
                let product = ProductScratch { tile: &mut *tile, products };
                self.multiply(HeadProduct::whole(matrix, head), &input, product, &mut sink);
            }
            for row in chunk {
                self.expand_rest(phase, row, head);
            }
        };
        worker.section(|section| {
            let items = section.take(chunks.len() * dims.n_heads);
            items.for_each(|item| expand_item(item, scratch));
        });
    }

    /// The query and the rotated part of the key of one row and head.
    fn expand_rest(&self, phase: &ExpandPhase, row: usize, head: usize) {
        let dims = &phase.inputs.dims;
        let (start, end) = (head * dims.key_dim(), (head + 1) * dims.key_dim());
        // SAFETY: each head of each row has one writer.
        let query = unsafe { self.part_mut(phase.q, row, start..end) };
        self.query(&phase.inputs, row, head, query);
        // SAFETY: as above.
        let key = unsafe { self.part_mut(phase.k, row, start + dims.nope_dim..end) };
        key.copy_from_slice(&self.row(phase.rows, row)[dims.rank..]);
    }
}
