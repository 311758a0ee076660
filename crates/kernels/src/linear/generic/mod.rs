//! Products written once for every instruction set, over the traits [`Simd`](crate::lanes::Simd) and [`quads::Quads`].
//!
//! What is compiled for one stands in its folder (`avx2`, `avx512`), what any CPU runs in `portable`. AVX2 has no product
//! of four codes, so its quantized tiles are its own; only the loop around them is from here.

pub(super) mod gemm;
pub(super) mod lines;
pub(super) mod quads;
