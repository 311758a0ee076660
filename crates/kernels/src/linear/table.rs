//! The table of all kernels.

use quant::GgmlType;

use super::float::{self, Bf16, F16, F32, Plain};
use super::format::PanelFormat;
use super::formats::*;
use super::{Arranging, LinearKernel, kernel, naive, portable};
#[cfg(target_arch = "x86_64")]
use super::{avx2, avx512};
use crate::Isa;

/// One row per weight type: the naive kernel, the portable one, then those of instruction sets, least first.
static TABLE: &[&[LinearKernel]] = &[
    &plain::<F32>(),
    &plain::<F16>(),
    &plain::<Bf16>(),
    &quantized::<Q4_0>(),
    &quantized::<Q4_1>(),
    &quantized::<Q5_0>(),
    &quantized::<Q5_1>(),
    &quantized::<Q8_0>(),
    &quantized::<Q2K>(),
    &quantized::<Q3K>(),
    &quantized::<Q4K>(),
    &quantized::<Q5K>(),
    &quantized::<Q6K>(),
    &quantized::<Iq4Nl>(),
    &quantized::<Mxfp4>(),
    &quantized::<Iq4Xs>(),
    &quantized::<Iq3S>(),
    &quantized::<Tq1_0>(),
    &quantized::<Tq2_0>(),
];

#[cfg(not(target_arch = "x86_64"))]
const fn quantized<F: PanelFormat>() -> [LinearKernel; 2] {
    [
        kernel::<F>(0, Isa::NONE, Arranging::NONE, naive::quantized::<F>),
        kernel::<F>(1, Isa::NONE, portable::arranging::<F>(), portable::quantized::<F>),
    ]
}

#[cfg(not(target_arch = "x86_64"))]
const fn plain<P: Plain>() -> [LinearKernel; 2] {
    [
        float::kernel::<P>(0, Isa::NONE, Arranging::NONE, naive::plain::<P>),
        float::kernel::<P>(1, Isa::NONE, portable::plain_arranging(), portable::plain::<P>),
    ]
}

#[cfg(target_arch = "x86_64")]
const fn quantized<F: PanelFormat>() -> [LinearKernel; 4] {
    [
        kernel::<F>(0, Isa::NONE, Arranging::NONE, naive::quantized::<F>),
        kernel::<F>(1, Isa::NONE, portable::arranging::<F>(), portable::quantized::<F>),
        kernel::<F>(2, Isa::AVX2, avx2::arranging::<F>(), avx2::quantized::<F>),
        kernel::<F>(3, Isa::AVX512, avx512::arranging::<F>(), avx512::quantized::<F>),
    ]
}

#[cfg(target_arch = "x86_64")]
const fn plain<P: Plain>() -> [LinearKernel; 4] {
    [
        float::kernel::<P>(0, Isa::NONE, Arranging::NONE, naive::plain::<P>),
        float::kernel::<P>(1, Isa::NONE, portable::plain_arranging(), portable::plain::<P>),
        float::kernel::<P>(2, Isa::AVX2, avx2::plain_arranging(), avx2::plain::<P>),
        float::kernel::<P>(3, Isa::AVX512, avx512::plain_arranging(), avx512::plain::<P>),
    ]
}

/// The best kernel for weights of type `ty` on a CPU with `isa`, which is cut to what this CPU has; `None` for types
/// that weights cannot have.
pub fn linear(ty: GgmlType, isa: Isa) -> Option<&'static LinearKernel> {
    let isa = isa.and(Isa::detect());
    TABLE.iter().flat_map(|row| row.iter()).rfind(|k| k.ty() == ty && isa.contains(k.isa()))
}

/// Every kernel of every type, those included that this CPU cannot run; the naive kernel of a type comes first.
pub fn linear_kernels() -> impl Iterator<Item = &'static LinearKernel> {
    TABLE.iter().flat_map(|row| row.iter())
}
