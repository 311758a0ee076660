//! Many activation rows: the loop around a register tile, for any instruction set.
//!
//! ```text
//! for a few panels, for a step of 256 columns:       (activation rows come arranged in column tiles)
//!     unpack the panels' codes and scales into L1
//!     for each column tile, for each panel:  C tile += register tile over the step
//! ```
//! `C` lies in the output, in f32, so a step continues exactly where the one before stopped.

use bytemuck::Pod;

use crate::linear::format::PanelFormat;
use crate::linear::{Activations, Arranging, Job, PANEL_ROWS, Tiling, prefetch_line};

/// Groups of 32 columns per step.
pub(in crate::linear) const STEP: usize = 8;

/// A register tile over one step: `c[N][16] += unpacked * activations`, with activations `[block][FIELDS][N]`.
pub(in crate::linear) type TileFn<U> = unsafe fn(unpacked: &U, activations: &[i32], c: &mut [f32]);

/// One block of an activation row.
#[derive(Clone, Copy)]
pub(in crate::linear) struct ActBlock<'a> {
    pub(in crate::linear) codes: &'a [i8],
    /// Of each 16 codes.
    pub(in crate::linear) sums: &'a [i32],
    pub(in crate::linear) d: f32,
}

/// How an instruction set multiplies a format.
pub(in crate::linear) trait Recipe: 'static {
    /// The weights.
    type F: PanelFormat;
    /// One panel over one step, unpacked.
    type Unpacked: Pod;
    /// 32-bit words that a block of an activation row becomes.
    const FIELDS: usize;
    /// Panels unpacked at once.
    const PANELS: usize;
    /// Columns of the widest tile.
    const WIDTH: usize;
    /// Unpacks the panel blocks of up to [`STEP`] groups.
    const UNPACK: unsafe fn(blocks: &[u8], out: &mut Self::Unpacked);

    /// Writes the words of a block, `step` apart.
    fn fields(a: ActBlock<'_>, out: &mut [i32], step: usize);

    /// The tile of `n` columns.
    fn tile(n: usize) -> TileFn<Self::Unpacked>;
}

/// How [`run`] wants its rows: `[tile][block][FIELDS][tile_rows]`.
pub(in crate::linear) const fn arranging<R: Recipe>(stream_rows: usize) -> Arranging {
    let unpacked = R::PANELS * size_of::<R::Unpacked>();
    Arranging {
        stream_rows,
        tiling: Some(tiling::<R>),
        fill: fill::<R>,
        scratch: 64 + unpacked + 4 * R::WIDTH * PANEL_ROWS,
    }
}

fn tiling<R: Recipe>(n: usize, cols: usize) -> Tiling {
    Tiling::new(n, R::WIDTH, R::FIELDS * (cols / R::F::BLOCK))
}

/// Copies the words of all codes, `step` apart.
#[inline(always)]
pub(in crate::linear) fn put_codes(codes: &[i8], out: &mut [i32], step: usize) {
    for (j, quad) in codes.as_chunks::<4>().0.iter().enumerate() {
        out[j * step] = i32::from_le_bytes(quad.map(i8::cast_unsigned));
    }
}

/// Two sums as a pair of int16, which they must fit.
pub(in crate::linear) const fn sum_pair(sums: [i32; 2]) -> i32 {
    (sums[0] & 0xffff) | (sums[1] << 16)
}

/// Writes the scale of a block, and behind it what minima are multiplied with: `d * sum` in blocks of 32; in blocks of
/// 256 pairs of sums, of two groups or of the halves of one.
#[inline(always)]
pub(in crate::linear) fn put_scale<F: PanelFormat>(a: ActBlock<'_>, out: &mut [i32], step: usize) {
    out[0] = a.d.to_bits().cast_signed();
    if !F::SCALES.min() {
        return;
    }
    if !F::WHOLE {
        out[step] = (a.d * a.sums.iter().sum::<i32>() as f32).to_bits().cast_signed();
    } else if F::SCALES.halves() {
        for (j, halves) in a.sums.as_chunks::<2>().0.iter().enumerate() {
            out[(1 + j) * step] = sum_pair(*halves);
        }
    } else {
        for (j, s) in a.sums.as_chunks::<4>().0.iter().enumerate() {
            out[(1 + j) * step] = sum_pair([s[0] + s[1], s[2] + s[3]]);
        }
    }
}

/// Words of [`put_scale`].
pub(in crate::linear) const fn scale_words<F: PanelFormat>() -> usize {
    1 + match (F::SCALES.min(), F::WHOLE, F::SCALES.halves()) {
        (false, _, _) => 0,
        (true, false, _) => 1,
        (true, true, true) => F::GROUPS,
        (true, true, false) => F::GROUPS / 2,
    }
}

fn fill<R: Recipe>(x: &Activations<'_>, tiling: &Tiling, tile: usize, out: &mut [i32]) {
    let Activations::Q8(x) = x else { unreachable!("`arrange` compared the formats") };
    let (width, block) = (tiling.tile_rows, R::F::BLOCK);
    for c in 0..width {
        let row = x.row((tile * width + c).min(x.n - 1));
        let parts = row.codes.chunks_exact(block).zip(row.sums.chunks_exact(block / 16));
        let records = out.chunks_exact_mut(R::FIELDS * width);
        for (((codes, sums), d), record) in
            parts.zip(row.scales.iter().step_by(block / 32)).zip(records)
        {
            R::fields(ActBlock { codes, sums, d: *d }, &mut record[c..], width);
        }
    }
}

/// Multiplies panels with any number of activation rows.
///
/// # Safety
/// The CPU has the features of `R`.
pub(in crate::linear) unsafe fn run<R: Recipe>(job: &mut Job<'_, '_>) {
    let x = job.q8();
    let blocks = x.cols / R::F::BLOCK;
    let Tiling { n_tiles: tiles, tile_rows: width, .. } =
        Tiling::new(x.n, R::WIDTH, R::FIELDS * blocks);
    let words = R::FIELDS * width;
    let aligned = job.scratch.as_ptr().align_offset(64);
    let (unpacked, rest) =
        job.scratch[aligned..].split_at_mut(R::PANELS * size_of::<R::Unpacked>());
    let unpacked: &mut [R::Unpacked] = bytemuck::cast_slice_mut(unpacked);
    let spare: &mut [f32] = bytemuck::cast_slice_mut(&mut rest[..4 * width * PANEL_ROWS]);
    let activations = job.arranged;

    let tile = R::tile(width);
    let panel_bytes = blocks * R::F::BLOCK_BYTES;
    job.tile.fill(0.0);
    let outs = job.tile.chunks_mut(R::PANELS * x.n * PANEL_ROWS);
    for (panels, out) in job.panels.chunks(R::PANELS * panel_bytes).zip(outs) {
        for first in (0..blocks).step_by(STEP / R::F::GROUPS) {
            let here = first..blocks.min(first + STEP / R::F::GROUPS);
            let bytes = here.start * R::F::BLOCK_BYTES..here.end * R::F::BLOCK_BYTES;
            for (panel, unpacked) in panels.chunks_exact(panel_bytes).zip(&mut *unpacked) {
                // SAFETY: the caller vouches for the CPU.
                unsafe { R::UNPACK(&panel[bytes.clone()], unpacked) }
            }
            let share = bytes.len().div_ceil(64).div_ceil(tiles);
            // from a panel's step to its next one, or to the first of the panel that takes its place
            let next = if here.end == blocks { R::PANELS * panel_bytes } else { bytes.end };
            for (t, activations) in activations.chunks_exact(blocks * words).enumerate() {
                let activations = &activations[here.start * words..here.end * words];
                let columns = t * width..x.n.min((t + 1) * width);
                let panels = panels.chunks_exact(panel_bytes);
                let outs = out.chunks_exact_mut(x.n * PANEL_ROWS);
                for ((panel, unpacked), out) in panels.zip(&*unpacked).zip(outs) {
                    // The next step's lines arrive while this one's tiles are computed.
                    for line in t * share..(t + 1) * share {
                        prefetch_line(panel.as_ptr().wrapping_add(next + 64 * line));
                    }
                    let c = &mut out[columns.start * PANEL_ROWS..columns.end * PANEL_ROWS];
                    if c.len() == spare.len() {
                        // SAFETY: the caller vouches for the CPU.
                        unsafe { tile(unpacked, activations, c) }
                    } else {
                        let (live, rest) = spare.split_at_mut(c.len());
                        live.copy_from_slice(c);
                        rest.fill(0.0);
                        // SAFETY: the caller vouches for the CPU.
                        unsafe { tile(unpacked, activations, spare) }
                        c.copy_from_slice(&spare[..c.len()]);
                    }
                }
            }
        }
    }
}
