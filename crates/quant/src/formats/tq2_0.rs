//! TQ2_0.

use bytemuck::{Pod, Zeroable};
use half::f16;

use crate::{Block, GgmlType, Values, bits::field};

/// TQ2_0: 256 weights in 66 bytes, 2.0625 bits per weight. `w[i] = d * (q[i] - 1)`.
///
/// Quantizers write codes 0..=2; code 3 reads as 2. Source: GGUF file format, type 35.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct BlockTq2_0 {
    /// Codes: 2 bits, 32 lanes.
    pub q: [u8; 64],
    /// Scale.
    pub d: f16,
}

const _: () = assert!(size_of::<BlockTq2_0>() == 66);

impl Block for BlockTq2_0 {
    const TY: GgmlType = GgmlType::Tq2_0;
    const LEN: usize = 256;
    const BITS: u32 = 2;
    const VALUES: Values = Values::Linear { zero: 1 };

    #[inline]
    fn code(&self, i: usize) -> u8 {
        field::<2, 32>(&self.q, i)
    }

    #[inline]
    fn d(&self) -> f32 {
        self.d.to_f32()
    }
}
