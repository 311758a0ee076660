//! Products of rows with one vector that lies in one piece: what a super-block promises.

use crate::lanes::{Portable, Simd, load_part, to_array};
use crate::math::{LANES, sum_lanes};
use crate::{Isa, Kernel, Level, Slot};

/// Signature of [`DOTS`]: queries, the vector, products; see [`Kernel::call`].
pub type DotsFn = unsafe fn([&[f32]; 2], &mut [f32]);

/// `products[row] = queries[row] . vector`: elements are summed in 16 lanes (lane = element mod 16), each ascending from 0
/// with fused multiply-adds, then halves are added.
pub static DOTS: Slot<DotsFn> = Slot {
    op: "dots",
    naive: Kernel { name: "dots/naive", isa: Isa::NONE, level: Level::Naive, run: naive },
    #[cfg(target_arch = "x86_64")]
    candidates: super::x86_64::DOTS,
    #[cfg(not(target_arch = "x86_64"))]
    candidates: &[PORTABLE],
};

/// [`DOTS`] for any instruction set.
pub(super) const PORTABLE: Kernel<DotsFn> = Kernel {
    name: "dots/portable",
    isa: Isa::NONE,
    level: Level::Partial,
    run: |inputs, products| dots(Portable, inputs, products),
};

impl Kernel<DotsFn> {
    /// One vector.
    ///
    /// - `queries`: `[n_rows, width]`
    /// - `vector`: `[width]`
    /// - `products`: `[n_rows]`, overwritten
    ///
    /// # Panics
    /// If lengths do not fit each other.
    pub fn call(&self, queries: &[f32], vector: &[f32], products: &mut [f32]) {
        assert_eq!(queries.len(), products.len() * vector.len(), "rows of queries");
        // SAFETY: `Slot::available` is the only source of `&Kernel`, so this CPU has `self.isa`.
        unsafe { (self.run)([queries, vector], products) }
    }
}

fn naive([queries, vector]: [&[f32]; 2], products: &mut [f32]) {
    for (row, product) in products.iter_mut().enumerate() {
        let mut lanes = [0.0f32; LANES];
        for (i, (q, x)) in queries[row * vector.len()..].iter().zip(vector).enumerate() {
            lanes[i % LANES] = q.mul_add(*x, lanes[i % LANES]);
        }
        *product = sum_lanes(lanes);
    }
}

/// Rows that share what is loaded of the vector.
const ROWS: usize = 4;

/// The [`DOTS`] op.
#[inline(always)]
pub(super) fn dots<S: Simd>(simd: S, [queries, vector]: [&[f32]; 2], products: &mut [f32]) {
    let (groups, rest) = products.as_chunks_mut::<ROWS>();
    let (many, few) = queries.split_at(groups.len() * ROWS * vector.len());
    for (i, group) in groups.iter_mut().enumerate() {
        rows(simd, &many[i * ROWS * vector.len()..], vector, group);
    }
    for (i, product) in rest.iter_mut().enumerate() {
        rows(simd, &few[i * vector.len()..], vector, std::array::from_mut(product));
    }
}

#[inline(always)]
fn rows<S: Simd, const N: usize>(simd: S, queries: &[f32], vector: &[f32], out: &mut [f32; N]) {
    let width = vector.len();
    let queries: [&[f32]; N] = std::array::from_fn(|row| &queries[row * width..][..width]);
    let (whole, rest) = vector.as_chunks::<LANES>();
    let mut sums = [simd.splat(0.0); N];
    for (i, x) in whole.iter().enumerate() {
        let x = simd.load(x);
        for (sum, query) in sums.iter_mut().zip(&queries) {
            *sum = simd.fma(simd.load(&query.as_chunks().0[i]), x, *sum);
        }
    }
    if !rest.is_empty() {
        let x = load_part(simd, rest);
        for (sum, query) in sums.iter_mut().zip(&queries) {
            let last = load_part(simd, &query[whole.len() * LANES..]);
            *sum = simd.first(simd.fma(last, x, *sum), rest.len(), *sum);
        }
    }
    for (out, sum) in out.iter_mut().zip(sums) {
        *out = sum_lanes(to_array(simd, sum));
    }
}
