//! What blocks of a cache promise a query: products with vectors that stand for them, 16 blocks at a time.

use crate::lanes::{Portable, Simd};
use crate::math::LANES;
use crate::{Isa, Kernel, Level, Slot};

/// Blocks in a tile of vectors that stand for them.
pub const ANCHORS: usize = LANES;

/// Numbers of [`ANCHORS`] blocks each.
pub type Anchors = [[f32; ANCHORS]];

/// Signature of [`PROMISE`]; see [`Kernel::call`].
pub type PromiseFn = unsafe fn(&[f32], &Anchors, &mut Anchors);

/// `promises[row][block] = queries[row] . anchors[..][block]`, summed over elements in ascending order from 0 with fused
/// multiply-adds.
pub static PROMISE: Slot<PromiseFn> = Slot {
    op: "promise",
    naive: Kernel { name: "promise/naive", isa: Isa::NONE, level: Level::Naive, run: naive },
    #[cfg(target_arch = "x86_64")]
    candidates: super::x86_64::PROMISE,
    #[cfg(not(target_arch = "x86_64"))]
    candidates: &[PORTABLE],
};

/// [`PROMISE`] for any instruction set.
pub(super) const PORTABLE: Kernel<PromiseFn> = Kernel {
    name: "promise/portable",
    isa: Isa::NONE,
    level: Level::Partial,
    run: |queries, anchors, promises| promise(Portable, queries, anchors, promises),
};

impl Kernel<PromiseFn> {
    /// One tile.
    ///
    /// - `queries`: `[n_rows, width]`
    /// - `anchors`: `[width]`, of [`ANCHORS`] blocks each
    /// - `promises`: `[n_rows]`, of these blocks, overwritten
    ///
    /// # Panics
    /// If lengths do not fit each other.
    pub fn call(&self, queries: &[f32], anchors: &Anchors, promises: &mut Anchors) {
        assert_eq!(queries.len(), promises.len() * anchors.len(), "rows of queries");
        // SAFETY: `Slot::available` is the only source of `&Kernel`, so this CPU has `self.isa`.
        unsafe { (self.run)(queries, anchors, promises) }
    }
}

fn naive(queries: &[f32], anchors: &Anchors, promises: &mut Anchors) {
    for (row, promises) in promises.iter_mut().enumerate() {
        let query = &queries[row * anchors.len()..][..anchors.len()];
        for (block, promise) in promises.iter_mut().enumerate() {
            let products = query.iter().zip(anchors);
            *promise = products.fold(0.0, |sum, (q, anchor)| q.mul_add(anchor[block], sum));
        }
    }
}

/// Rows that share what is loaded of a tile.
const ROWS: usize = 4;

/// The [`PROMISE`] op.
#[inline(always)]
pub(super) fn promise<S: Simd>(
    simd: S,
    queries: &[f32],
    anchors: &Anchors,
    promises: &mut Anchors,
) {
    let (groups, rest) = promises.as_chunks_mut::<ROWS>();
    let (many, few) = queries.split_at(groups.len() * ROWS * anchors.len());
    for (i, group) in groups.iter_mut().enumerate() {
        rows(simd, &many[i * ROWS * anchors.len()..], anchors, group);
    }
    for (i, row) in rest.iter_mut().enumerate() {
        rows(simd, &few[i * anchors.len()..], anchors, std::array::from_mut(row));
    }
}

#[inline(always)]
fn rows<S: Simd, const N: usize>(
    simd: S,
    queries: &[f32],
    anchors: &Anchors,
    out: &mut [[f32; ANCHORS]; N],
) {
    let width = anchors.len();
    let queries: [&[f32]; N] = std::array::from_fn(|row| &queries[row * width..][..width]);
    let mut sums = [simd.splat(0.0); N];
    for (i, anchor) in anchors.iter().enumerate() {
        let anchor = simd.load(anchor);
        for (sum, query) in sums.iter_mut().zip(&queries) {
            *sum = simd.fma(simd.splat(query[i]), anchor, *sum);
        }
    }
    for (out, sum) in out.iter_mut().zip(sums) {
        simd.store(sum, out);
    }
}
