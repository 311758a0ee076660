//! Recurrences over rows: the matrix of a head, changed and read row by row.
//!
//! A matrix `[key_dim, width]` lies in strips of 16 columns, `[strip][key_dim][16]`: a lane is a column, and no sum goes over
//! lanes. Sums over rows of the matrix are four, of every fourth, which are added in pairs. So a row has the same bits
//! whatever rows come with it.

mod generic;
mod naive;
#[cfg(target_arch = "x86_64")]
mod x86_64;

use crate::lanes::Portable;
use crate::math::LANES;
use crate::{Isa, Kernel, Level, Slot};

/// Columns of a strip.
pub const STRIP: usize = LANES;

/// What a row does to a matrix `S`, and what it reads; `*` is by row of `S`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ScanForm {
    /// `S = decay * S + key v^T`; `y = S^T query`.
    Linear,
    /// `S = decay * S + key (beta (v - S^T erase))^T`, the second `S` the old one; `y = S^T query`.
    Delta,
    /// `y = (S + bonus v^T)^T query`; `S = decay * S + key v^T`.
    Wkv6,
    /// `S = decay * S + bonus (S^T erase)^T + key v^T`, the second `S` the old one; `y = S^T query`.
    Wkv7,
}

/// What a row gives for each row of a matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KeyField {
    /// A factor on what is there.
    Decay,
    /// What is added to.
    Key,
    /// What is read before.
    Erase,
    /// See [`ScanForm`].
    Bonus,
    /// What is read.
    Query,
}

/// Fields of a row.
pub const KEY_FIELDS: usize = 5;

/// Rows that change a matrix one after another.
#[derive(Clone, Copy, Debug)]
pub struct ScanRows<'a> {
    /// What they do.
    pub form: ScanForm,
    /// Rows of the matrix.
    pub key_dim: usize,
    /// The matrix before them, where it is another one than that which becomes what they make of it.
    pub from: Option<&'a [f32]>,
    /// `[n][KEY_FIELDS][key_dim]`; what the form has no use for is not read.
    pub keyed: &'a [f32],
    /// `[n][width]`, whole strips.
    pub values: &'a [f32],
    /// `[n]`.
    pub betas: &'a [f32],
}

impl ScanRows<'_> {
    /// A field of row `i`: `[key_dim]`.
    #[inline(always)]
    pub(crate) fn field(&self, i: usize, field: KeyField) -> &[f32] {
        let start = (i * KEY_FIELDS + field as usize) * self.key_dim;
        &self.keyed[start..start + self.key_dim]
    }
}

/// Signature of [`SCAN`]: rows, the matrix, and what they read, if that is wanted.
pub type ScanFn = unsafe fn(&ScanRows<'_>, &mut [f32], Option<&mut [f32]>);

/// Changes a matrix by rows in ascending order.
pub static SCAN: Slot<ScanFn> = Slot {
    op: "scan",
    naive: Kernel { name: "scan/naive", isa: Isa::NONE, level: Level::Naive, run: naive::scan },
    #[cfg(target_arch = "x86_64")]
    candidates: x86_64::SCAN,
    #[cfg(not(target_arch = "x86_64"))]
    candidates: &[PORTABLE_SCAN],
};

/// [`SCAN`] for any instruction set.
const PORTABLE_SCAN: Kernel<ScanFn> = Kernel {
    name: "scan/portable",
    isa: Isa::NONE,
    level: Level::Partial,
    run: |rows, state, out| generic::scan(Portable, rows, state, out),
};

impl Kernel<ScanFn> {
    /// `state`: `[width / 16][key_dim][16]`; `out`: `[n][width]`.
    ///
    /// # Panics
    /// If lengths do not fit.
    pub fn call(&self, rows: &ScanRows<'_>, state: &mut [f32], out: Option<&mut [f32]>) {
        let (n, key_dim) = (rows.betas.len(), rows.key_dim);
        assert_eq!(rows.keyed.len(), n * KEY_FIELDS * key_dim, "fields of rows");
        assert_eq!(rows.values.len() * key_dim, n * state.len(), "values of rows");
        assert!(state.len().is_multiple_of(STRIP * key_dim.max(1)), "whole strips");
        assert!(out.as_ref().is_none_or(|out| out.len() == rows.values.len()), "what rows read");
        assert!(rows.from.is_none_or(|from| from.len() == state.len()), "the matrix before");
        // SAFETY: `Slot::available` is the only source of `&Kernel`, so this CPU has `self.isa`.
        unsafe { (self.run)(rows, state, out) }
    }
}

/// Rows that change a strip whose decay is of each element.
#[derive(Clone, Copy, Debug)]
pub struct SelectiveRows<'a> {
    /// `[key_dim][16]`: what times is multiplied with to give the logarithm of a decay.
    pub rates: &'a [f32],
    /// `[n][key_dim]`: what is added to.
    pub keys: &'a [f32],
    /// `[n][key_dim]`: what is read.
    pub queries: &'a [f32],
    /// `[n][16]`.
    pub times: &'a [f32],
    /// `[n][16]`: what is added, times not included.
    pub values: &'a [f32],
}

/// Signature of [`SELECTIVE_SCAN`]: rows, a strip, and what they read, if that is wanted.
pub type SelectiveFn = unsafe fn(&SelectiveRows<'_>, &mut [f32], Option<&mut [f32]>);

/// Changes a strip by rows in ascending order: `s_i = exp(time * rate_i) s_i + key_i (time * value)`; `y = sum query_i s_i`.
pub static SELECTIVE_SCAN: Slot<SelectiveFn> = Slot {
    op: "selective_scan",
    naive: Kernel {
        name: "selective_scan/naive",
        isa: Isa::NONE,
        level: Level::Naive,
        run: naive::selective,
    },
    #[cfg(target_arch = "x86_64")]
    candidates: x86_64::SELECTIVE_SCAN,
    #[cfg(not(target_arch = "x86_64"))]
    candidates: &[PORTABLE_SELECTIVE],
};

/// [`SELECTIVE_SCAN`] for any instruction set.
const PORTABLE_SELECTIVE: Kernel<SelectiveFn> = Kernel {
    name: "selective_scan/portable",
    isa: Isa::NONE,
    level: Level::Partial,
    run: |rows, state, out| generic::selective(Portable, rows, state, out),
};

impl Kernel<SelectiveFn> {
    /// `state`: `[key_dim][16]`; `out`: `[n][16]`.
    ///
    /// # Panics
    /// If lengths do not fit.
    pub fn call(&self, rows: &SelectiveRows<'_>, state: &mut [f32], out: Option<&mut [f32]>) {
        let n = rows.times.len() / STRIP;
        assert_eq!(rows.rates.len(), state.len(), "rates of a strip");
        assert_eq!((rows.times.len(), rows.values.len()), (n * STRIP, n * STRIP), "rows");
        let keyed = n * state.len() / STRIP;
        assert_eq!((rows.keys.len(), rows.queries.len()), (keyed, keyed), "keys and queries");
        assert!(out.as_ref().is_none_or(|out| out.len() == n * STRIP), "what rows read");
        // SAFETY: `Slot::available` is the only source of `&Kernel`, so this CPU has `self.isa`.
        unsafe { (self.run)(rows, state, out) }
    }
}
