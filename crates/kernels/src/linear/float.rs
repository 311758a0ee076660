//! Plain weights (F32, F16, BF16): panels of `[column][16 rows]` in the file's type, f32 activations.
//!
//! Each lane is `acc = fma(w, x, acc)` over ascending columns. The loops over vectors are in `lines.rs`.

use half::{bf16, f16};
use quant::GgmlType;

use super::formats::names;
use super::{
    ActFormat, Activations, Arranging, Body, FEW_ROWS, Job, LEVELS, LinearKernel, PANEL_ROWS,
    Tiling, pack,
};
use crate::Isa;

/// A plain weight type.
pub(super) trait Plain: 'static {
    const TY: GgmlType;
    const NAMES: [&'static str; 4];
    /// Bytes of an element.
    const BYTES: usize;
    /// Whether it is the upper half of an f32.
    const WIDE: bool = false;

    /// The value of one element.
    fn value(bytes: &[u8]) -> f32;
}

pub(super) struct F32;
impl Plain for F32 {
    const TY: GgmlType = GgmlType::F32;
    const NAMES: [&'static str; 4] = names!("f32");
    const BYTES: usize = 4;
    fn value(b: &[u8]) -> f32 {
        f32::from_le_bytes([b[0], b[1], b[2], b[3]])
    }
}

pub(super) struct F16;
impl Plain for F16 {
    const TY: GgmlType = GgmlType::F16;
    const NAMES: [&'static str; 4] = names!("f16");
    const BYTES: usize = 2;
    fn value(b: &[u8]) -> f32 {
        f16::from_le_bytes([b[0], b[1]]).to_f32()
    }
}

pub(super) struct Bf16;
impl Plain for Bf16 {
    const TY: GgmlType = GgmlType::Bf16;
    const NAMES: [&'static str; 4] = names!("bf16");
    const BYTES: usize = 2;
    const WIDE: bool = true;
    fn value(b: &[u8]) -> f32 {
        bf16::from_le_bytes([b[0], b[1]]).to_f32()
    }
}

/// The kernel of plain type `P` that has name `which`.
pub(super) const fn kernel<P: Plain>(
    which: usize,
    isa: Isa,
    arranging: Arranging,
    body: Body,
) -> LinearKernel {
    LinearKernel {
        name: P::NAMES[which],
        ty: P::TY,
        isa,
        level: LEVELS[which],
        act_format: ActFormat::F32,
        block: (1, PANEL_ROWS * P::BYTES),
        row: super::row::plain::<P>,
        pack: if P::BYTES == 2 { pack::plain::<2> } else { pack::plain::<4> },
        arranging,
        body,
    }
}

/// Multiplies panels of `P`, in plain loops.
pub(super) fn naive<P: Plain>(job: &mut Job<'_, '_>) {
    let x = job.f32();
    let panels = job.panels.chunks_exact(x.cols * PANEL_ROWS * P::BYTES);
    for (panel, tile) in panels.zip(job.tile.chunks_exact_mut(x.n * PANEL_ROWS)) {
        tile.fill(0.0);
        for (k, weights) in panel.chunks_exact(PANEL_ROWS * P::BYTES).enumerate() {
            let mut w = [0.0; PANEL_ROWS];
            for (w, bytes) in w.iter_mut().zip(weights.chunks_exact(P::BYTES)) {
                *w = P::value(bytes);
            }
            for (c, acc) in tile.as_chunks_mut::<PANEL_ROWS>().0.iter_mut().enumerate() {
                let x = x.row(c)[k];
                for (acc, w) in acc.iter_mut().zip(w) {
                    *acc = w.mul_add(x, *acc);
                }
            }
        }
    }
}

/// Columns of weights per step: 8 KB of F16 stay in L1 beside the activations of a tile.
const STEP: usize = 128;

/// A register tile over one step: `c[N][16] += panel * x`, with `x` as `[column][N]`.
pub(super) type TileFn = unsafe fn(panel: &[u8], x: &[f32], c: &mut [f32]);

/// How [`tiles`] wants its rows: `[tile][column][tile_rows]`.
pub(super) const fn arranging<const WIDTH: usize>() -> Arranging {
    Arranging {
        stream_rows: FEW_ROWS,
        tiling: Some(tiling::<WIDTH>),
        fill,
        scratch: 4 + 4 * WIDTH * PANEL_ROWS,
    }
}

fn tiling<const WIDTH: usize>(n: usize, cols: usize) -> Tiling {
    Tiling::new(n, WIDTH, cols)
}

fn fill(x: &Activations<'_>, tiling: &Tiling, tile: usize, out: &mut [i32]) {
    let Activations::F32(x) = x else { unreachable!("`arrange` compared the formats") };
    for c in 0..tiling.tile_rows {
        let row = x.row((tile * tiling.tile_rows + c).min(x.n - 1));
        for (out, x) in out.chunks_exact_mut(tiling.tile_rows).zip(row) {
            out[c] = x.to_bits().cast_signed();
        }
    }
}

/// Multiplies panels with more than 4 activation rows, by register tiles of up to `WIDTH` columns.
///
/// # Safety
/// The CPU has the features of the tiles.
pub(super) unsafe fn tiles<P: Plain, const WIDTH: usize>(
    job: &mut Job<'_, '_>,
    tile: fn(usize) -> TileFn,
) {
    let x = job.f32();
    let width = Tiling::new(x.n, WIDTH, x.cols).tile_rows;
    let tile = tile(width);
    let aligned = job.scratch.as_ptr().align_offset(4);
    let spare = &mut job.scratch[aligned..][..4 * width * PANEL_ROWS];
    let spare: &mut [f32] = bytemuck::cast_slice_mut(spare);
    let columns: &[f32] = bytemuck::cast_slice(job.arranged);
    job.tile.fill(0.0);
    let line = PANEL_ROWS * P::BYTES;
    let outs = job.tile.chunks_exact_mut(x.n * PANEL_ROWS);
    for (panel, out) in job.panels.chunks_exact(x.cols * line).zip(outs) {
        for (first, step) in panel.chunks(STEP * line).enumerate() {
            for (columns, c) in
                columns.chunks_exact(width * x.cols).zip(out.chunks_mut(width * PANEL_ROWS))
            {
                let x = &columns[first * STEP * width..][..step.len() / line * width];
                if c.len() == spare.len() {
                    // SAFETY: the caller vouches for the CPU.
                    unsafe { tile(step, x, c) }
                } else {
                    let (live, rest) = spare.split_at_mut(c.len());
                    live.copy_from_slice(c);
                    rest.fill(0.0);
                    // SAFETY: the caller vouches for the CPU.
                    unsafe { tile(step, x, spare) }
                    c.copy_from_slice(&spare[..c.len()]);
                }
            }
        }
    }
}
