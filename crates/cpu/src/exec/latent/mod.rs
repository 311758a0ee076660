//! Latent attention: normed latents and rotated keys go into the cache, then each sequence attends in its form.
//!
//! ```text
//! rows into the cache; queries to latents | attend | fold | outputs from latents     absorbed, elided
//! rows into the cache                     | expand a block, attend, fold             compressed
//! ```
//! A bar ends a section. `cut.rs` says how work is dealt.

mod absorbed;
mod compressed;
mod cut;
mod expand;
mod heads;
mod memory;
mod needs;

use std::ops::Range;

use kernels::attention::BLOCK;
use kernels::latent::{LATENT_ATTEND, LatentAttendFn};
use kernels::linear::PANEL_ROWS;
use kernels::{Isa, Kernel};

use super::{Exec, Scratch, SequenceRows};
use crate::cache::{LatentCache, pairs};
use crate::mla::MlaForm;
use crate::plan::{HeadColumns, LatentInputs, Operand};
use crate::pool::Worker;
use crate::schedule::LoadedLatent;

pub(crate) use memory::{LatentMemory, LatentNeeds, LatentScratch, LatentWorkspace};

/// The kernel of absorbed queries.
pub(crate) struct LatentKernels {
    attend: &'static Kernel<LatentAttendFn>,
}

impl LatentKernels {
    pub(crate) fn pick(isa: Isa) -> LatentKernels {
        LatentKernels { attend: LATENT_ATTEND.pick(isa) }
    }
}

/// The rows of a step, and the form each sequence attends in.
#[derive(Clone, Copy)]
pub(crate) struct StepRows<'a> {
    pub(crate) sequences: &'a [SequenceRows],
    pub(crate) forms: &'a [MlaForm],
}

impl<'a> Exec<'a> {
    pub(super) fn latent(
        &self,
        worker: &Worker<'_>,
        loaded: &LoadedLatent,
        scratch: &mut Scratch<'_>,
    ) {
        self.store_and_absorb(worker, loaded, scratch);
        if self.forms.contains(&MlaForm::Compressed) {
            self.compressed(worker, loaded, scratch);
        }
    }

    /// Write a new row into the cache.
    fn store_latent(&self, inputs: &LatentInputs, row: usize, scratch: &mut Scratch<'_>) {
        let LatentCache { shape, .. } = self.attention[inputs.cache.0 as usize].latent();
        let (floats, _) = scratch.latent.split();
        let (latent, rope) = floats[..shape.width()].split_at_mut(shape.rank);
        let index = self.sequences.partition_point(|s| s.first_row <= row) - 1;
        let position = self.sequences[index].start + row - self.sequences[index].first_row;
        self.latent_row(inputs, row, latent, rope);
        let block = self.blocks.get(inputs.cache.0 as usize, index, position / BLOCK);
        let start = position % BLOCK * shape.row_bytes();
        // SAFETY: each row has one writer, and nobody reads it in this section.
        let bytes = unsafe { block.slice_mut(start..start + shape.row_bytes()) };
        shape.store(bytes, latent, rope);
    }

    /// The normed latent and the rotated key of one row.
    fn latent_row(&self, inputs: &LatentInputs, row: usize, latent: &mut [f32], rope: &mut [f32]) {
        let c = self.part(inputs.c, row, 0, latent.len());
        match &inputs.norm {
            Some(norm) => {
                self.norm(norm, 0, c, latent);
            }
            None => latent.copy_from_slice(c),
        }
        rope.copy_from_slice(self.part(inputs.k_pe, row, 0, rope.len()));
        self.rotate_part(inputs, row, rope);
    }

    fn rotate_part(&self, inputs: &LatentInputs, row: usize, x: &mut [f32]) {
        let Some(rope) = inputs.rope else { return };
        let angles = &self.angles[rope];
        let at = row * angles.n_pairs..(row + 1) * angles.n_pairs;
        let pairs = pairs(&self.schedule.ropes[rope].rope);
        self.kernels.rotate.call(x, &angles.cos[at.clone()], &angles.sin[at], pairs);
    }

    /// The rotated query of one row and head, unscaled: `[q_nope | q_pe]`.
    fn query(&self, inputs: &LatentInputs, row: usize, head: usize, out: &mut [f32]) {
        let (nope, pe) = out.split_at_mut(inputs.dims.nope_dim);
        nope.copy_from_slice(self.part(inputs.q_nope, row, head, nope.len()));
        pe.copy_from_slice(self.part(inputs.q_pe, row, head, pe.len()));
        self.rotate_part(inputs, row, pe);
    }

    /// `len` numbers of a head's part of a row.
    fn part(&self, part: HeadColumns, row: usize, head: usize, len: usize) -> &'a [f32] {
        let start = part.start + head * part.step;
        &self.row(part.operand, row)[start..start + len]
    }

    /// Store a panel's outputs `[n][16]`, or the first of them, in columns `cols` of rows `first_row..` of an operand.
    fn store_panel(&self, out: Operand, first_row: usize, cols: Range<usize>, outputs: &[f32]) {
        let width = PANEL_ROWS.min(cols.len());
        for (i, lanes) in outputs.chunks_exact(PANEL_ROWS).enumerate() {
            // SAFETY: these columns of these rows have one writer, and nobody reads them in this section.
            let place =
                unsafe { self.part_mut(out, first_row + i, cols.start..cols.start + width) };
            place.copy_from_slice(&lanes[..width]);
        }
    }
}
