//! Ops on single rows: norms, activations, sums, rotation, and looks at a row of logits.

mod act;
#[cfg(target_arch = "x86_64")]
mod generic;
mod naive;
#[cfg(target_arch = "x86_64")]
mod x86_64;

pub use act::{ACT, ActFn, GATED, Gated, GatedFn, Unary};

use crate::math::LANES;
use crate::{Isa, Kernel, Level, Slot};

/// Which elements of a head rotate together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Pairs {
    /// `(i, i + n_pairs)`.
    HalfSplit,
    /// `(2i, 2i + 1)`.
    Interleaved,
}

/// Signature of [`RMS_NORM`] and [`LAYER_NORM`].
pub type NormFn = unsafe fn(&[f32], &[f32], f32, &mut [f32]);

/// `out = x / sqrt(mean(x^2) + eps) * weight`. Squares are summed in 16 lanes, ascending, then halves are added.
pub static RMS_NORM: Slot<NormFn> = Slot {
    op: "rms_norm",
    naive: Kernel {
        name: "rms_norm/naive",
        isa: Isa::NONE,
        level: Level::Naive,
        run: naive::rms_norm,
    },
    #[cfg(target_arch = "x86_64")]
    candidates: x86_64::RMS_NORM,
    #[cfg(not(target_arch = "x86_64"))]
    candidates: &[],
};

/// `out = (x - mean(x)) / sqrt(mean((x - mean(x))^2) + eps) * weight`, summed as in [`RMS_NORM`].
pub static LAYER_NORM: Slot<NormFn> = Slot {
    op: "layer_norm",
    naive: Kernel {
        name: "layer_norm/naive",
        isa: Isa::NONE,
        level: Level::Naive,
        run: naive::layer_norm,
    },
    #[cfg(target_arch = "x86_64")]
    candidates: x86_64::LAYER_NORM,
    #[cfg(not(target_arch = "x86_64"))]
    candidates: &[],
};

impl Kernel<NormFn> {
    /// Normalize one row: `x`, `weight` and `out` are `[dim]`.
    ///
    /// # Panics
    /// If lengths differ.
    pub fn call(&self, x: &[f32], weight: &[f32], eps: f32, out: &mut [f32]) {
        assert_eq!(
            (x.len(), weight.len()),
            (out.len(), out.len()),
            "row, weight and result of a norm"
        );
        // SAFETY: `Slot::available` is the only source of `&Kernel`, so this CPU has `self.isa`.
        unsafe { (self.run)(x, weight, eps, out) }
    }
}

/// Signature of [`ADD`] and [`ADD_PRODUCT`].
pub type BinaryFn = unsafe fn(&[f32], &[f32], &mut [f32]);

/// `out = a + b`.
pub static ADD: Slot<BinaryFn> = Slot {
    op: "add",
    naive: Kernel { name: "add/naive", isa: Isa::NONE, level: Level::Naive, run: naive::add },
    #[cfg(target_arch = "x86_64")]
    candidates: x86_64::ADD,
    #[cfg(not(target_arch = "x86_64"))]
    candidates: &[],
};

impl Kernel<BinaryFn> {
    /// Combine `a` and `b` element by element; any length.
    ///
    /// # Panics
    /// If lengths differ.
    pub fn call(&self, a: &[f32], b: &[f32], out: &mut [f32]) {
        assert_eq!(
            (a.len(), b.len()),
            (out.len(), out.len()),
            "operands and result of {}",
            self.name
        );
        // SAFETY: `Slot::available` is the only source of `&Kernel`, so this CPU has `self.isa`.
        unsafe { (self.run)(a, b, out) }
    }
}

/// `out += a * b`.
pub static ADD_PRODUCT: Slot<BinaryFn> = Slot {
    op: "add_product",
    naive: Kernel {
        name: "add_product/naive",
        isa: Isa::NONE,
        level: Level::Naive,
        run: naive::add_product,
    },
    #[cfg(target_arch = "x86_64")]
    candidates: x86_64::ADD_PRODUCT,
    #[cfg(not(target_arch = "x86_64"))]
    candidates: &[],
};

/// Signature of [`ADD_WEIGHTED`].
pub type AddWeightedFn = unsafe fn(&[f32], &[u32], &[f32], &mut [f32]);

/// `sums[rows[i]] += weights[i] * x[i]`, in ascending order of `i`, for rows of 16.
pub static ADD_WEIGHTED: Slot<AddWeightedFn> = Slot {
    op: "add_weighted",
    naive: Kernel {
        name: "add_weighted/naive",
        isa: Isa::NONE,
        level: Level::Naive,
        run: naive::add_weighted,
    },
    #[cfg(target_arch = "x86_64")]
    candidates: x86_64::ADD_WEIGHTED,
    #[cfg(not(target_arch = "x86_64"))]
    candidates: &[],
};

impl Kernel<AddWeightedFn> {
    /// Add the rows of `x`, `[rows.len()][16]`, times `weights` to those rows of `sums`, `[..][16]`.
    ///
    /// # Panics
    /// If lengths do not agree or a row is not in `sums`.
    pub fn call(&self, x: &[f32], rows: &[u32], weights: &[f32], sums: &mut [f32]) {
        assert_eq!((x.len(), weights.len()), (rows.len() * LANES, rows.len()), "rows and weights");
        // SAFETY: `Slot::available` is the only source of `&Kernel`, so this CPU has `self.isa`.
        unsafe { (self.run)(x, rows, weights, sums) }
    }
}

/// Signature of [`ROTATE`].
pub type RotateFn = unsafe fn(&mut [f32], &[f32], &[f32], Pairs);

/// Rotates the leading `2 * n_pairs` elements of a head: `(a, b) = (a cos - b sin, a sin + b cos)`.
pub static ROTATE: Slot<RotateFn> = Slot {
    op: "rotate",
    naive: Kernel { name: "rotate/naive", isa: Isa::NONE, level: Level::Naive, run: naive::rotate },
    #[cfg(target_arch = "x86_64")]
    candidates: x86_64::ROTATE,
    #[cfg(not(target_arch = "x86_64"))]
    candidates: &[],
};

impl Kernel<RotateFn> {
    /// Rotate one head `x`, `[key_dim]`, in place; `cos` and `sin` are `[n_pairs]`, a row of [`rope_angles`].
    ///
    /// # Panics
    /// If `cos` and `sin` differ in length or the head is shorter than the pairs.
    pub fn call(&self, x: &mut [f32], cos: &[f32], sin: &[f32], pairs: Pairs) {
        assert_eq!(cos.len(), sin.len(), "cosines and sines");
        assert!(x.len() >= 2 * cos.len(), "head of {} for {} pairs", x.len(), cos.len());
        // SAFETY: `Slot::available` is the only source of `&Kernel`, so this CPU has `self.isa`.
        unsafe { (self.run)(x, cos, sin, pairs) }
    }
}

/// Cosines and sines of `position * inverse_frequencies[i]`, times `factor`, computed in f64.
///
/// - `inverse_frequencies`: `[n_pairs]`, radians per position, long-context scaling applied
/// - `factor`: on cosines and sines: YaRN's attention factor, else 1
/// - `cos`, `sin`: `[n_positions, n_pairs]`
///
/// # Panics
/// If `cos` or `sin` has another length.
pub fn rope_angles(
    positions: &[u32],
    inverse_frequencies: &[f64],
    factor: f64,
    cos: &mut [f32],
    sin: &mut [f32],
) {
    let n_pairs = inverse_frequencies.len();
    assert_eq!(
        (cos.len(), sin.len()),
        (positions.len() * n_pairs, positions.len() * n_pairs),
        "angles"
    );
    let angles =
        positions.iter().flat_map(|p| inverse_frequencies.iter().map(|f| f64::from(*p) * f));
    for ((angle, cos), sin) in angles.zip(cos).zip(sin) {
        *cos = (angle.cos() * factor) as f32;
        *sin = (angle.sin() * factor) as f32;
    }
}

/// Neighbours that share a peak.
pub const PEAK: usize = 64;

/// Signature of [`PEAKS`]: the row, and the peaks.
pub type PeaksFn = unsafe fn(&[f32], &mut [f32]);

/// The greatest of each [`PEAK`] neighbours; NaN where any of them is infinite or NaN.
pub static PEAKS: Slot<PeaksFn> = Slot {
    op: "peaks",
    naive: Kernel { name: "peaks/naive", isa: Isa::NONE, level: Level::Naive, run: naive::peaks },
    #[cfg(target_arch = "x86_64")]
    candidates: x86_64::PEAKS,
    #[cfg(not(target_arch = "x86_64"))]
    candidates: &[],
};

impl Kernel<PeaksFn> {
    /// Look at one row of any length. `out`: `[row.len() / PEAK]`, rounded up.
    ///
    /// # Panics
    /// If the lengths do not fit.
    pub fn call(&self, row: &[f32], out: &mut [f32]) {
        assert_eq!(out.len(), row.len().div_ceil(PEAK), "a peak for each stretch");
        // SAFETY: `Slot::available` is the only source of `&Kernel`, so this CPU has `self.isa`.
        unsafe { (self.run)(row, out) }
    }
}
