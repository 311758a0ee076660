//! Plain weights: two registers of 16 rows per column of weights.

use std::arch::x86_64::*;

use super::super::float::{self, Plain};
use super::super::{Arranging, F32Rows, Job, PANEL_ROWS, prefetch_ahead};
use super::{PairF32, load, load_f16, load_f32, load_half, store_f32};

/// Columns of the widest tile.
const WIDTH: usize = 6;

/// How [`plain`] wants its rows.
pub(in super::super) const fn arranging() -> Arranging {
    float::arranging::<WIDTH>()
}

/// Multiplies panels of `P`.
#[target_feature(enable = "avx2,fma,f16c")]
pub(in super::super) fn plain<P: Plain>(job: &mut Job<'_, '_>) {
    match job.x.n() {
        1 => {
            let done = panels::<P, 4, 1>(job, 0);
            panels::<P, 1, 1>(job, done);
        }
        2 => {
            let done = panels::<P, 2, 2>(job, 0);
            panels::<P, 1, 2>(job, done);
        }
        3 | 4 => {
            panels::<P, 1, 4>(job, 0);
        }
        // SAFETY: this function's features are those of the tiles.
        _ => unsafe {
            float::tiles::<P, WIDTH>(job, |n| match n {
                3 => tile::<P, 3>,
                4 => tile::<P, 4>,
                5 => tile::<P, 5>,
                6 => tile::<P, 6>,
                7 => tile::<P, 7>,
                8 => tile::<P, 8>,
                9 => tile::<P, 9>,
                10 => tile::<P, 10>,
                11 => tile::<P, 11>,
                _ => tile::<P, 12>,
            })
        },
    }
}

/// 16 weights as f32.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn weights<P: Plain>(bytes: &[u8]) -> PairF32 {
    const WHOLE: &str = "a line of a panel holds 16 weights";
    if P::BYTES == 4 {
        load(bytes.first_chunk().expect(WHOLE)).map(|v| _mm256_castsi256_ps(v))
    } else if P::WIDE {
        [0, 16].map(|at| {
            let v = _mm256_cvtepu16_epi32(load_half(bytes[at..].first_chunk().expect(WHOLE)));
            _mm256_castsi256_ps(_mm256_slli_epi32::<16>(v))
        })
    } else {
        load_f16(bytes.first_chunk().expect(WHOLE))
    }
}

/// `acc += w * x` in every row.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn fma(w: PairF32, x: f32, acc: PairF32) -> PairF32 {
    let x = _mm256_set1_ps(x);
    [_mm256_fmadd_ps(w[0], x, acc[0]), _mm256_fmadd_ps(w[1], x, acc[1])]
}

/// Multiplies `P` panels at a time with `n <= N` rows, as long as there are `P`; returns how many panels are done.
#[target_feature(enable = "avx2,fma,f16c")]
fn panels<T: Plain, const P: usize, const N: usize>(job: &mut Job<'_, '_>, first: usize) -> usize {
    let x = job.f32();
    let line = PANEL_ROWS * T::BYTES;
    let (panel_bytes, tile_len) = (x.cols * line, x.n * PANEL_ROWS);
    let mut done = first;
    let panels = job.panels[first * panel_bytes..].chunks_exact(P * panel_bytes);
    let tiles = job.tile[first * tile_len..].chunks_exact_mut(P * tile_len);
    for (panels, tiles) in panels.zip(tiles) {
        let out = together::<T, P, N>(panels, panel_bytes, &x);
        for (out, tile) in out.into_iter().zip(tiles.chunks_exact_mut(tile_len)) {
            for (out, tile) in out.into_iter().zip(tile.as_chunks_mut().0) {
                store_f32(out, tile);
            }
        }
        done += P;
    }
    done
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn together<T: Plain, const P: usize, const N: usize>(
    panels: &[u8],
    panel_bytes: usize,
    x: &F32Rows<'_>,
) -> [[PairF32; N]; P] {
    let line = PANEL_ROWS * T::BYTES;
    let panels: [&[u8]; P] = std::array::from_fn(|p| &panels[p * panel_bytes..][..x.cols * line]);
    let rows = x.rows::<N>();
    let mut acc = [[[_mm256_setzero_ps(); 2]; N]; P];
    for k in 0..x.cols {
        for (acc, panel) in acc.iter_mut().zip(panels) {
            let bytes = &panel[k * line..][..line];
            if N > 2 && (T::BYTES == 4 || k % 2 == 0) {
                prefetch_ahead(bytes);
            }
            let w = weights::<T>(bytes);
            for (acc, row) in acc.iter_mut().zip(rows) {
                *acc = fma(w, row[k], *acc);
            }
        }
    }
    acc
}

/// `c[N][16] += weights * x`, with `x` as `[column][N]`.
#[target_feature(enable = "avx2,fma,f16c")]
fn tile<P: Plain, const N: usize>(panel: &[u8], x: &[f32], c: &mut [f32]) {
    let c = &mut c.as_chunks_mut::<PANEL_ROWS>().0[..N];
    let mut acc = [[_mm256_setzero_ps(); 2]; N];
    for (acc, c) in acc.iter_mut().zip(&*c) {
        *acc = load_f32(c);
    }
    for (bytes, x) in panel.chunks_exact(PANEL_ROWS * P::BYTES).zip(x.as_chunks::<N>().0) {
        let w = weights::<P>(bytes);
        for (acc, x) in acc.iter_mut().zip(x) {
            *acc = fma(w, *x, *acc);
        }
    }
    for (acc, c) in acc.into_iter().zip(c) {
        store_f32(acc, c);
    }
}
