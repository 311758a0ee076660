//! One file per format, and the registry of them all.

mod iq3_s;
mod iq4_nl;
mod iq4_xs;
mod mxfp4;
mod plain;
mod q2_k;
mod q3_k;
mod q4_0;
mod q4_1;
mod q4_k;
mod q5_0;
mod q5_1;
mod q5_k;
mod q6_k;
mod q8_0;
pub(crate) mod rounding;
mod tq1_0;
mod tq2_0;

use std::marker::PhantomData;

pub use iq3_s::BlockIq3S;
pub use iq4_nl::BlockIq4Nl;
pub use iq4_xs::BlockIq4Xs;
pub use mxfp4::BlockMxfp4;
pub use q2_k::BlockQ2K;
pub use q3_k::BlockQ3K;
pub use q4_0::BlockQ4_0;
pub use q4_1::BlockQ4_1;
pub use q4_k::BlockQ4K;
pub use q5_0::BlockQ5_0;
pub use q5_1::BlockQ5_1;
pub use q5_k::BlockQ5K;
pub use q6_k::BlockQ6K;
pub use q8_0::BlockQ8_0;
pub use tq1_0::BlockTq1_0;
pub use tq2_0::BlockTq2_0;

use crate::{Block, GgmlType, blocks};

/// A type that weights can have, over bytes.
pub trait Format: Sync {
    /// The type.
    fn ty(&self) -> GgmlType;

    /// Writes the weights of whole blocks to `out`. Any byte pattern is accepted; the bytes may lie at any address.
    ///
    /// # Panics
    /// If `blocks` does not hold exactly `out.len()` weights.
    fn dequantize(&self, blocks: &[u8], out: &mut [f32]);

    /// Quantizes `x` into whole blocks; `false`, with `out` untouched, if this format has no quantizer.
    ///
    /// # Panics
    /// If `out` is not exactly as long as `x.len()` weights take.
    fn quantize(&self, x: &[f32], out: &mut [u8]) -> bool;

    /// Whether [`Format::quantize`] does anything.
    fn can_quantize(&self) -> bool;
}

/// The format of a block type.
struct Of<B>(PhantomData<fn() -> B>);

impl<B: Block> Of<B> {
    const FORMAT: &'static dyn Format = &Self(PhantomData);

    fn check(weights: usize, bytes: usize) {
        assert_eq!(B::TY.row_bytes(weights), Some(bytes), "{}: bytes of {weights} weights", B::TY);
    }
}

impl<B: Block> Format for Of<B> {
    fn ty(&self) -> GgmlType {
        B::TY
    }

    fn dequantize(&self, bytes: &[u8], out: &mut [f32]) {
        Self::check(out.len(), bytes.len());
        for (block, w) in blocks::<B>(bytes).zip(out.chunks_exact_mut(B::LEN)) {
            block.dequantize(w);
        }
    }

    fn quantize(&self, x: &[f32], out: &mut [u8]) -> bool {
        Self::check(x.len(), out.len());
        let Some(quantize) = B::QUANTIZE else { return false };
        for (w, bytes) in x.chunks_exact(B::LEN).zip(out.chunks_exact_mut(size_of::<B>())) {
            bytes.copy_from_slice(bytemuck::bytes_of(&quantize(w)));
        }
        true
    }

    fn can_quantize(&self) -> bool {
        B::QUANTIZE.is_some()
    }
}

/// Every type that weights can have.
pub static FORMATS: &[&dyn Format] = &[
    plain::F32,
    plain::F16,
    plain::BF16,
    Of::<BlockQ4_0>::FORMAT,
    Of::<BlockQ4_1>::FORMAT,
    Of::<BlockQ5_0>::FORMAT,
    Of::<BlockQ5_1>::FORMAT,
    Of::<BlockQ8_0>::FORMAT,
    Of::<BlockQ2K>::FORMAT,
    Of::<BlockQ3K>::FORMAT,
    Of::<BlockQ4K>::FORMAT,
    Of::<BlockQ5K>::FORMAT,
    Of::<BlockQ6K>::FORMAT,
    Of::<BlockIq4Nl>::FORMAT,
    Of::<BlockIq4Xs>::FORMAT,
    Of::<BlockIq3S>::FORMAT,
    Of::<BlockTq1_0>::FORMAT,
    Of::<BlockTq2_0>::FORMAT,
    Of::<BlockMxfp4>::FORMAT,
];

/// The format of a type; `None` for types that weights cannot have (integers and F64).
pub fn format(ty: GgmlType) -> Option<&'static dyn Format> {
    FORMATS.iter().copied().find(|format| format.ty() == ty)
}
