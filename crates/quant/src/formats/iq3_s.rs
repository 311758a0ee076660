//! IQ3_S.

use bytemuck::{Pod, Zeroable};
use half::f16;

use crate::{
    Block, GgmlType, Values,
    bits::field,
    codebooks::{IQ3_S, IQ3_S_GRID},
};

/// IQ3_S: 256 weights in 110 bytes, 3.4375 bits per weight. `w[i] = d * (2 sc[g] + 1) * sign[i] * grid[i]`, `g = i / 32`.
///
/// Four weights at a time take their magnitudes from one entry of [`IQ3_S_GRID`]. The code of a weight joins its
/// sign and its magnitude, so that [`IQ3_S`] is a table of 16 values. Source: GGUF file format, type 21.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct BlockIq3S {
    /// Scale.
    pub d: f16,
    /// Low eight bits of the grid index of weights `4j..4j + 4`.
    pub q: [u8; 64],
    /// Bit 8 of the grid indices, in order.
    pub qh: [u8; 8],
    /// One bit per weight, in order; 1 is negative.
    pub signs: [u8; 32],
    /// `sc`: 4 bits, in group order.
    pub scales: [u8; 4],
}

const _: () = assert!(size_of::<BlockIq3S>() == 110);

impl Block for BlockIq3S {
    const TY: GgmlType = GgmlType::Iq3S;
    const LEN: usize = 256;
    const GROUP: usize = 32;
    const BITS: u32 = 4;
    const VALUES: Values = Values::Table(&IQ3_S);

    #[inline]
    fn code(&self, i: usize) -> u8 {
        let quad = i / 4;
        let index = usize::from(self.q[quad]) | (usize::from(field::<1, 1>(&self.qh, quad)) << 8);
        let magnitude = (IQ3_S_GRID[index] >> (i % 4 * 4)) & 7;
        magnitude as u8 | (field::<1, 1>(&self.signs, i) << 3)
    }

    #[inline]
    fn d(&self) -> f32 {
        self.d.to_f32()
    }

    #[inline]
    fn scale_code(&self, g: usize) -> i8 {
        (2 * field::<4, 1>(&self.scales, g) + 1).cast_signed()
    }
}
