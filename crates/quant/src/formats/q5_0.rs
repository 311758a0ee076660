//! Q5_0.

use bytemuck::{Pod, Zeroable};
use half::f16;

use crate::{Block, GgmlType, Values, bits::field};

/// Q5_0: 32 weights in 22 bytes, 5.5 bits per weight. `w[i] = d * (q[i] - 16)`.
///
/// Low nibbles of `q` are weights 0..16, high nibbles 16..32; bit `i` of `qh` (a 32-bit number) is bit 4 of code `i`.
/// Source: GGUF file format, type 6.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct BlockQ5_0 {
    /// Scale.
    pub d: f16,
    /// Bit 4 of the codes, in weight order.
    pub qh: [u8; 4],
    /// Low bits of the codes: 4 bits, 16 lanes.
    pub q: [u8; 16],
}

const _: () = assert!(size_of::<BlockQ5_0>() == 22);

impl Block for BlockQ5_0 {
    const TY: GgmlType = GgmlType::Q5_0;
    const LEN: usize = 32;
    const BITS: u32 = 5;
    const VALUES: Values = Values::Linear { zero: 16 };

    #[inline]
    fn code(&self, i: usize) -> u8 {
        field::<4, 16>(&self.q, i) | (field::<1, 1>(&self.qh, i) << 4)
    }

    #[inline]
    fn d(&self) -> f32 {
        self.d.to_f32()
    }
}
