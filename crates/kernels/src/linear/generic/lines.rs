//! Plain weights over 16 lanes, for every instruction set that has them: a line of a panel is a column of 16 weights.

use crate::lanes::Simd;
use crate::linear::fetch::Fetch;
use crate::linear::float::Plain;
use crate::linear::{Activations, Arranging, F32Rows, FEW_ROWS, Job, PANEL_ROWS, Tiling};

/// Columns of weights per step: 8 KB of F16 stay in L1 beside the activations of a tile.
const STEP: usize = 128;

/// A register tile over one step: `c[N][16] += panel * x`, with `x` as `[column][N]`.
pub(in crate::linear) type TileFn = unsafe fn(panel: &[u8], x: &[f32], c: &mut [f32]);

/// How [`multiply`] wants its rows: `[tile][column][tile_rows]`.
pub(in crate::linear) const fn arranging<const WIDTH: usize>() -> Arranging {
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
unsafe fn tiles_of<P: Plain, const WIDTH: usize>(job: &mut Job<'_, '_>, tile: fn(usize) -> TileFn) {
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

/// Multiplies panels of `P`; `tiles` gives the [`tile`] of 3 to `WIDTH` columns, compiled for the instruction set.
///
/// # Safety
/// The CPU has the features of the tiles.
#[inline(always)]
pub(in crate::linear) unsafe fn multiply<S: Simd, P: Plain, const WIDTH: usize>(
    simd: S,
    job: &mut Job<'_, '_>,
    tiles: fn(usize) -> TileFn,
) {
    match job.x.n() {
        1 => {
            let done = panels::<S, P, 4, 1>(simd, job, 0);
            panels::<S, P, 1, 1>(simd, job, done);
        }
        2 => {
            let done = panels::<S, P, 2, 2>(simd, job, 0);
            panels::<S, P, 1, 2>(simd, job, done);
        }
        3 | 4 => {
            panels::<S, P, 1, 4>(simd, job, 0);
        }
        // SAFETY: the caller vouches for the CPU.
        _ => unsafe { tiles_of::<P, WIDTH>(job, tiles) },
    }
}

/// 16 weights as f32.
#[inline(always)]
fn weights<S: Simd, P: Plain>(simd: S, bytes: &[u8]) -> S::V {
    const WHOLE: &str = "a line of a panel holds 16 weights";
    if P::BYTES == 4 {
        simd.load_bytes(bytes.first_chunk().expect(WHOLE))
    } else if P::WIDE {
        simd.load_bf16(bytes.first_chunk().expect(WHOLE))
    } else {
        simd.load_f16(bytes.first_chunk().expect(WHOLE))
    }
}

/// Multiplies `P` panels at a time with `n <= N` rows, as long as there are `P`; returns how many panels are done.
#[inline(always)]
fn panels<S: Simd, T: Plain, const P: usize, const N: usize>(
    simd: S,
    job: &mut Job<'_, '_>,
    first: usize,
) -> usize {
    let x = job.f32();
    let line = PANEL_ROWS * T::BYTES;
    let (panel_bytes, tile_len) = (x.cols * line, x.n * PANEL_ROWS);
    let mut done = first;
    let panels = job.panels[first * panel_bytes..].chunks_exact(P * panel_bytes);
    let tiles = job.tile[first * tile_len..].chunks_exact_mut(P * tile_len);
    for (panels, tiles) in panels.zip(tiles) {
        let out = together::<S, T, P, N>(simd, panels, panel_bytes, &x);
        for (out, tile) in out.into_iter().zip(tiles.chunks_exact_mut(tile_len)) {
            for (out, tile) in out.into_iter().zip(tile.as_chunks_mut().0) {
                simd.store(out, tile);
            }
        }
        done += P;
    }
    done
}

#[inline(always)]
fn together<S: Simd, T: Plain, const P: usize, const N: usize>(
    simd: S,
    panels: &[u8],
    panel_bytes: usize,
    x: &F32Rows<'_>,
) -> [[S::V; N]; P] {
    let line = PANEL_ROWS * T::BYTES;
    let panels: [&[u8]; P] = std::array::from_fn(|p| &panels[p * panel_bytes..][..x.cols * line]);
    let (rows, fetch) = (x.rows::<N>(), Fetch::best());
    let mut acc = [[simd.splat(0.0); N]; P];
    for k in 0..x.cols {
        for (acc, panel) in acc.iter_mut().zip(panels) {
            let bytes = &panel[k * line..][..line];
            if T::BYTES == 4 || k % 2 == 0 {
                fetch.line(bytes, N);
            }
            let w = weights::<S, T>(simd, bytes);
            for (acc, row) in acc.iter_mut().zip(rows) {
                *acc = simd.fma(w, simd.splat(row[k]), *acc);
            }
        }
    }
    acc
}

/// `c[N][16] += weights * x`, with `x` as `[column][N]`.
#[inline(always)]
pub(in crate::linear) fn tile<S: Simd, P: Plain, const N: usize>(
    simd: S,
    panel: &[u8],
    x: &[f32],
    c: &mut [f32],
) {
    let c = &mut c.as_chunks_mut::<PANEL_ROWS>().0[..N];
    let mut acc = [simd.splat(0.0); N];
    for (acc, c) in acc.iter_mut().zip(&*c) {
        *acc = simd.load(c);
    }
    for (bytes, x) in panel.chunks_exact(PANEL_ROWS * P::BYTES).zip(x.as_chunks::<N>().0) {
        let w = weights::<S, P>(simd, bytes);
        for (acc, x) in acc.iter_mut().zip(x) {
            *acc = simd.fma(w, simd.splat(*x), *acc);
        }
    }
    for (acc, c) in acc.into_iter().zip(c) {
        simd.store(acc, c);
    }
}
