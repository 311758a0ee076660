//! Vectors of 16 f32 lanes, over which float kernels are written once for all instruction sets.
//!
//! A value of a type that implements [`Simd`] is a token: it can only be made inside a function compiled for its
//! instruction set, so whoever holds one may use its methods. Every function from there down to the methods is
//! `#[inline(always)]`, so that all of it is compiled for that set. [`Portable`] needs none: it serves where there are no
//! kernels for the instruction set, and shows on any CPU that the code over the lanes is right.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod functions;
pub(crate) mod fused;
pub(crate) mod portable;

#[cfg(target_arch = "x86_64")]
pub(crate) use avx2::Avx2;
#[cfg(target_arch = "x86_64")]
pub(crate) use avx512::Avx512;
pub(crate) use functions::{erfc, exp_m1, ln_1p, tanh};
pub(crate) use portable::Portable;

use crate::attention::{Elem, Order, Product};
use crate::math::{EXP_MAX, EXP_MIN, EXP_POLY, LANES, LN2_HIGH, LN2_LOW, ROUND};

/// Operations on 16 lanes; each lane is what the scalar operation gives.
pub(crate) trait Simd: Copy {
    /// 16 lanes of f32.
    type V: Copy;

    /// Most rows [`Simd::columns`] takes.
    const ROWS: usize;

    /// Run the register tile of `rows` rows at `column` of at most `left` columns; returns the columns done.
    ///
    /// # Safety
    /// As of [`tile`](crate::attention::tile), for `rows` rows and `left` columns from `column` on.
    unsafe fn columns<E: Elem, A: Order>(
        self,
        product: &mut Product<'_>,
        rows: usize,
        column: usize,
        left: usize,
    ) -> usize;

    fn splat(self, x: f32) -> Self::V;
    fn load(self, x: &[f32; LANES]) -> Self::V;
    fn load_bytes(self, x: &[u8; 4 * LANES]) -> Self::V;
    fn load_f16(self, x: &[u8; 2 * LANES]) -> Self::V;
    fn load_bf16(self, x: &[u8; 2 * LANES]) -> Self::V;
    fn load_i8(self, x: &[u8; LANES]) -> Self::V;
    fn store(self, x: Self::V, out: &mut [f32; LANES]);
    fn add(self, a: Self::V, b: Self::V) -> Self::V;
    fn sub(self, a: Self::V, b: Self::V) -> Self::V;
    fn mul(self, a: Self::V, b: Self::V) -> Self::V;
    fn div(self, a: Self::V, b: Self::V) -> Self::V;
    /// `a * b + c`, rounded once.
    fn fma(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    /// `c - a * b`, rounded once.
    fn fnma(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    /// `a < b ? a : b`.
    fn min(self, a: Self::V, b: Self::V) -> Self::V;
    /// `a > b ? a : b`.
    fn max(self, a: Self::V, b: Self::V) -> Self::V;
    /// `a < b ? yes : no`.
    fn less(self, a: Self::V, b: Self::V, yes: Self::V, no: Self::V) -> Self::V;
    /// 2 to the integer in the low bits of `x`, where adding [`ROUND`] left it.
    fn power(self, x: Self::V) -> Self::V;
    /// The first `n` lanes of `x`, the rest of `other`.
    fn first(self, x: Self::V, n: usize, other: Self::V) -> Self::V;
}

/// [`crate::math::exp`] of each lane.
#[inline(always)]
pub(crate) fn exp<S: Simd>(simd: S, x: S::V) -> S::V {
    let x = simd.min(simd.splat(EXP_MAX), x);
    let t = simd.fma(x, simd.splat(std::f32::consts::LOG2_E), simd.splat(ROUND));
    let n = simd.sub(t, simd.splat(ROUND));
    let r = simd.fma(n, simd.splat(-LN2_LOW), simd.fma(n, simd.splat(-LN2_HIGH), x));
    let mut p = simd.splat(EXP_POLY[0]);
    for c in &EXP_POLY[1..] {
        p = simd.fma(p, r, simd.splat(*c));
    }
    simd.less(x, simd.splat(EXP_MIN), simd.splat(0.0), simd.mul(p, simd.power(t)))
}

/// The lanes as an array.
#[inline(always)]
pub(crate) fn to_array<S: Simd>(simd: S, x: S::V) -> [f32; LANES] {
    let mut lanes = [0.0; LANES];
    simd.store(x, &mut lanes);
    lanes
}

/// Fewer than 16 numbers, then zeros.
#[inline(always)]
pub(crate) fn load_part<S: Simd>(simd: S, x: &[f32]) -> S::V {
    let mut lanes = [0.0; LANES];
    lanes[..x.len()].copy_from_slice(x);
    simd.load(&lanes)
}

/// Bytes that lines of a stream are asked for ahead of use.
pub(crate) const AHEAD: usize = 4096;
/// Bytes ahead of use from which they come nearer, where that takes two steps.
const NEARER: usize = 1024;

/// Ask for what comes after `address` in a stream: into the second-level cache, and nearer bytes from there into the first.
#[inline(always)]
pub(crate) fn prefetch_in_steps(address: *const u8) {
    prefetch_to_l2(address.wrapping_add(AHEAD));
    prefetch(address.wrapping_add(NEARER));
}

/// Ask for the cache line at `address`, which may be anything.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(crate) fn prefetch(address: *const u8) {
    // SAFETY: SSE is part of x86-64; a prefetch reads nothing and cannot fault.
    unsafe { std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(address.cast()) }
}

/// Ask for the cache line at `address`, which may be anything, into the second-level cache.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn prefetch_to_l2(address: *const u8) {
    // SAFETY: as for `prefetch`.
    unsafe { std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T1 }>(address.cast()) }
}

/// Nothing: the hardware's own prefetch has to do.
#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
fn prefetch_to_l2(_address: *const u8) {}

/// Nothing: the hardware's own prefetch has to do.
#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
pub(crate) fn prefetch(_address: *const u8) {}
