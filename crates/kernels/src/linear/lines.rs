//! Plain weights over 16 lanes, for every instruction set that has them: a line of a panel is a column of 16 weights.

use super::fetch::Fetch;
use super::float::{self, Plain, TileFn};
use super::{Arranging, F32Rows, Job, PANEL_ROWS};
use crate::lanes::{Portable, Simd};

/// Columns of the widest tile over [`Portable`] lanes.
const WIDTH: usize = 4;

/// How [`plain`] wants its rows.
pub(super) const fn arranging() -> Arranging {
    float::arranging::<WIDTH>()
}

/// Multiplies panels of `P`, on any CPU.
pub(super) fn plain<P: Plain>(job: &mut Job<'_, '_>) {
    fn any<P: Plain, const N: usize>(panel: &[u8], x: &[f32], c: &mut [f32]) {
        tile::<Portable, P, N>(Portable, panel, x, c);
    }
    let tiles = |n| match n {
        3 => any::<P, 3> as TileFn,
        _ => any::<P, 4>,
    };
    // SAFETY: these tiles need no features.
    unsafe { multiply::<Portable, P, WIDTH>(Portable, job, tiles) }
}

/// Multiplies panels of `P`; `tiles` gives the [`tile`] of 3 to `WIDTH` columns, compiled for the instruction set.
///
/// # Safety
/// The CPU has the features of the tiles.
#[inline(always)]
pub(super) unsafe fn multiply<S: Simd, P: Plain, const WIDTH: usize>(
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
        _ => unsafe { float::tiles::<P, WIDTH>(job, tiles) },
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
pub(super) fn tile<S: Simd, P: Plain, const N: usize>(
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
