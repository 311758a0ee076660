//! Q3_K.

use bytemuck::{Pod, Zeroable};
use half::f16;

use crate::bits::{field, set_field, unpack, unpack_high};
use crate::{Block, GgmlType, Values, search};

/// Q3_K: 256 weights in 110 bytes, 3.4375 bits per weight. `w[i] = d * (sc[g] - 32) * (q[i] - 4)`, `g = i / 16`.
///
/// Source: GGUF file format, type 11.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct BlockQ3K {
    /// Bit 2 of the codes: 1 bit, 32 lanes.
    pub qh: [u8; 32],
    /// Low bits of the codes: 2 bits, 32 lanes.
    pub q: [u8; 64],
    /// `sc`: low four bits in bytes 0..8 (4 bits, 8 lanes), top two bits in bytes 8..12 (2 bits, 4 lanes).
    pub scales: [u8; 12],
    /// Scale.
    pub d: f16,
}

const _: () = assert!(size_of::<BlockQ3K>() == 110);

impl Block for BlockQ3K {
    const TY: GgmlType = GgmlType::Q3K;
    const LEN: usize = 256;
    const GROUP: usize = 16;
    const BITS: u32 = 3;
    const VALUES: Values = Values::Linear { zero: 4 };
    const QUANTIZE: Option<fn(&[f32]) -> Self> = Some(quantize);

    #[inline]
    fn code(&self, i: usize) -> u8 {
        field::<2, 32>(&self.q, i) | (field::<1, 32>(&self.qh, i) << 2)
    }

    #[inline]
    fn codes(&self, out: &mut [u8]) {
        unpack::<2, 32>(&self.q, out);
        unpack_high::<1, 32>(&self.qh, 2, out);
    }

    #[inline]
    fn d(&self) -> f32 {
        self.d.to_f32()
    }

    #[inline]
    fn scale_code(&self, g: usize) -> i8 {
        let code = field::<4, 8>(&self.scales[..8], g) | (field::<2, 4>(&self.scales[8..], g) << 4);
        code.cast_signed() - 32
    }
}

/// Searches the scales, see [`search`].
fn quantize(x: &[f32]) -> BlockQ3K {
    let found = search::symmetric::<16>(x, 4, 32);
    let mut block = BlockQ3K { qh: [0; 32], q: [0; 64], scales: [0; 12], d: found.d };
    for (g, scale) in found.scales.iter().enumerate() {
        let code = (scale + 32).cast_unsigned();
        set_field::<4, 8>(&mut block.scales[..8], g, code);
        set_field::<2, 4>(&mut block.scales[8..], g, code >> 4);
    }
    for (i, &code) in found.codes.iter().enumerate() {
        set_field::<2, 32>(&mut block.q, i, code);
        set_field::<1, 32>(&mut block.qh, i, code >> 2);
    }
    block
}
