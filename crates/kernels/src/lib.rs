//! CPU kernels by instruction set: slices in, slices out. No threads, no allocation, no I/O.
//!
//! One rule makes every kernel testable to the bit: **one lane owns one output, and every output is reduced in
//! ascending order with fused multiply-adds.** So the naive kernel, AVX2 and AVX-512 give the same bits, for one row
//! of activations or five hundred, and thresholds between them can never change a token.
//!
//! In every folder `naive` is the obvious form, `generic` the body that is written once over operations of an
//! instruction set (`lanes`, `linear/generic/quads`), and `avx2`, `avx512` or `x86_64` what is compiled for one;
//! `portable` has the operations on arrays, for any CPU.

pub mod attention;
mod isa;
mod lanes;
pub mod latent;
pub mod linear;
mod math;
pub mod probe;
mod registry;
pub mod rows;
pub mod scan;

pub use isa::Isa;
pub use registry::{Kernel, Level, Slot};

/// Items that only this crate's tests use.
#[doc(hidden)]
pub mod internals {
    pub use crate::lanes::fused::{by_arithmetic, fma};
    pub use crate::lanes::portable::Portable;
    pub use crate::math::{erfc, exp_m1, ln_1p};
}
