//! The one inner loop of attention: rows of f32 times a matrix whose rows are vectors of 16 lanes.
//!
//! Scores are `queries x keys` (depth: elements of a key; columns: tiles), outputs are `weights x values` (depth:
//! positions; columns: 16 elements of a value each).

use crate::lanes::{Simd, prefetch};
use crate::math::LANES;

/// How far ahead rows are prefetched, in bytes.
const AHEAD: usize = 2048;
/// With fewer rows the loads alone run as far ahead as memory serves them.
const PREFETCH_ROWS: usize = 3;

/// A type of matrix element, read 16 at a time.
pub(crate) trait Elem {
    /// Bytes of 16 elements.
    const BYTES: usize;
    /// Whether they come from memory rather than from scratch.
    const FAR: bool;

    /// The 16 elements at the start of `bytes`.
    ///
    /// # Safety
    /// `bytes` points at [`Elem::BYTES`] readable bytes.
    unsafe fn load<S: Simd>(simd: S, bytes: *const u8) -> S::V;
}

/// 4-byte elements.
pub(crate) struct Single;

impl Elem for Single {
    const BYTES: usize = 4 * LANES;
    const FAR: bool = false;

    #[inline(always)]
    unsafe fn load<S: Simd>(simd: S, bytes: *const u8) -> S::V {
        // SAFETY: the caller vouches for 64 readable bytes, and bytes have no alignment.
        simd.load_bytes(unsafe { &*bytes.cast() })
    }
}

/// 2-byte elements.
pub(crate) struct Half;

impl Elem for Half {
    const BYTES: usize = 2 * LANES;
    const FAR: bool = true;

    #[inline(always)]
    unsafe fn load<S: Simd>(simd: S, bytes: *const u8) -> S::V {
        // SAFETY: the caller vouches for 32 readable bytes, and bytes have no alignment.
        simd.load_f16(unsafe { &*bytes.cast() })
    }
}

/// How the rows of `a` lie.
pub(crate) trait Order {
    /// Where element `k` of row `r` is; `stride` lies between rows, or between neighbours of a row.
    fn at(r: usize, k: usize, stride: usize) -> usize;

    /// Elements from the first to the last.
    fn len(rows: usize, depth: usize, stride: usize) -> usize;
}

/// A row's elements are neighbours.
pub(crate) struct ByRow;

impl Order for ByRow {
    #[inline(always)]
    fn at(r: usize, k: usize, stride: usize) -> usize {
        r * stride + k
    }

    #[inline(always)]
    fn len(rows: usize, depth: usize, stride: usize) -> usize {
        (rows - 1) * stride + depth
    }
}

/// Rows lie side by side.
pub(crate) struct ByDepth;

impl Order for ByDepth {
    #[inline(always)]
    fn at(r: usize, k: usize, stride: usize) -> usize {
        k * stride + r
    }

    #[inline(always)]
    fn len(rows: usize, depth: usize, stride: usize) -> usize {
        (depth - 1) * stride + rows
    }
}

/// `out[row][column] (+)= Σ a[row][k] * b[k][column]`, k ascending, fused; a column is 16 lanes.
pub(crate) struct Product<'a> {
    /// In the [`Order`] it is multiplied in.
    pub(crate) a: &'a [f32],
    pub(crate) a_stride: usize,
    /// Column `c` of row `k` starts at byte `k * b_step + c * b_column`.
    pub(crate) b: &'a [u8],
    pub(crate) b_step: usize,
    pub(crate) b_column: usize,
    /// How many k there are.
    pub(crate) depth: usize,
    /// Column `c` of row `r` starts at `r * out_stride + c * 16`.
    pub(crate) out: &'a mut [f32],
    pub(crate) out_stride: usize,
    /// Whether `out` is added to, or overwritten.
    pub(crate) add: bool,
}

impl Product<'_> {
    /// Compute `columns` columns of `rows` rows, at most [`Simd::ROWS`].
    #[inline(always)]
    pub(crate) fn run<S: Simd, E: Elem, A: Order>(mut self, simd: S, rows: usize, columns: usize) {
        if rows == 0 || columns == 0 {
            return;
        }
        assert!(rows <= S::ROWS, "rows of a register tile");
        assert!(
            self.out.len() >= (rows - 1) * self.out_stride + columns * LANES,
            "result of a product"
        );
        if self.depth > 0 {
            let last = (self.depth - 1) * self.b_step + (columns - 1) * self.b_column;
            assert!(self.a.len() >= A::len(rows, self.depth, self.a_stride), "rows of a product");
            assert!(self.b.len() >= last + E::BYTES, "matrix of a product");
        }
        let mut column = 0;
        while column < columns {
            // SAFETY: the lengths were checked for all rows and columns.
            column += unsafe { simd.columns::<E, A>(&mut self, rows, column, columns - column) };
        }
    }
}

/// `R` rows times `C` columns from `column` on, in registers. Returns `C`.
///
/// # Safety
/// `a` and `b` of the product must be long enough for `R` rows and for columns up to `column + C`, as [`Product::run`]
/// checks.
#[inline(always)]
pub(crate) unsafe fn tile<S: Simd, E: Elem, A: Order, const R: usize, const C: usize>(
    simd: S,
    product: &mut Product<'_>,
    column: usize,
) -> usize {
    let mut sums = [[simd.splat(0.0); C]; R];
    if product.add {
        for (r, sums) in sums.iter_mut().enumerate() {
            for (c, sum) in sums.iter_mut().enumerate() {
                *sum = simd.load(out_column(product, r, column + c));
            }
        }
    }
    // Along tiles the next group of columns is next in memory; along positions the next rows are.
    let ahead = if product.b_column > product.b_step { C * product.b_column } else { AHEAD };
    for k in 0..product.depth {
        for c in 0..C {
            let at = k * product.b_step + (column + c) * product.b_column;
            // SAFETY: the caller guarantees that the last column of the last row ends within `b`.
            let bytes = unsafe { product.b.as_ptr().add(at) };
            if E::FAR && R >= PREFETCH_ROWS {
                prefetch(bytes.wrapping_add(ahead));
            }
            // SAFETY: as above.
            let b = unsafe { E::load(simd, bytes) };
            for (r, sums) in sums.iter_mut().enumerate() {
                // SAFETY: the caller guarantees that the last row's `depth` elements lie within `a`.
                let a = unsafe { product.a.get_unchecked(A::at(r, k, product.a_stride)) };
                sums[c] = simd.fma(simd.splat(*a), b, sums[c]);
            }
        }
    }
    for (r, sums) in sums.iter().enumerate() {
        for (c, sum) in sums.iter().enumerate() {
            simd.store(*sum, out_column(product, r, column + c));
        }
    }
    C
}

#[inline(always)]
fn out_column<'a>(product: &'a mut Product<'_>, row: usize, column: usize) -> &'a mut [f32; LANES] {
    let at = row * product.out_stride + column * LANES;
    product.out[at..].first_chunk_mut().expect("`Product::run` checked the result's length")
}
