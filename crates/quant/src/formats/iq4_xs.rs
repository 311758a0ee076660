//! IQ4_XS.

use bytemuck::{Pod, Zeroable};
use half::f16;

use crate::bits::{field, set_field, unpack};
use crate::codebooks::IQ4_NL;
use crate::{Block, GgmlType, Values, search};

/// IQ4_XS: 256 weights in 136 bytes, 4.25 bits per weight. `w[i] = d * (sc[g] - 32) * codebook[q[i]]`, `g = i / 32`.
///
/// The codebook is [`IQ4_NL`]. Source: GGUF file format, type 23.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct BlockIq4Xs {
    /// Scale.
    pub d: f16,
    /// Top two bits of `sc`, in group order.
    pub scales_high: [u8; 2],
    /// Low four bits of `sc`, in group order.
    pub scales_low: [u8; 4],
    /// Codes: 4 bits, 16 lanes.
    pub q: [u8; 128],
}

const _: () = assert!(size_of::<BlockIq4Xs>() == 136);

impl Block for BlockIq4Xs {
    const TY: GgmlType = GgmlType::Iq4Xs;
    const LEN: usize = 256;
    const GROUP: usize = 32;
    const BITS: u32 = 4;
    const VALUES: Values = Values::Table(&IQ4_NL);
    const QUANTIZE: Option<fn(&[f32]) -> Self> = Some(quantize);

    #[inline]
    fn code(&self, i: usize) -> u8 {
        field::<4, 16>(&self.q, i)
    }

    #[inline]
    fn codes(&self, out: &mut [u8]) {
        unpack::<4, 16>(&self.q, out);
    }

    #[inline]
    fn d(&self) -> f32 {
        self.d.to_f32()
    }

    #[inline]
    fn scale_code(&self, g: usize) -> i8 {
        let code = field::<4, 1>(&self.scales_low, g) | (field::<2, 1>(&self.scales_high, g) << 4);
        code.cast_signed() - 32
    }
}

/// Searches the scales, see [`search`].
fn quantize(x: &[f32]) -> BlockIq4Xs {
    let found = search::grouped_table(x, &IQ4_NL, 32);
    let mut block = BlockIq4Xs { d: found.d, scales_high: [0; 2], scales_low: [0; 4], q: [0; 128] };
    for (g, scale) in found.scales.iter().enumerate() {
        let code = (scale + 32).cast_unsigned();
        set_field::<4, 1>(&mut block.scales_low, g, code);
        set_field::<2, 1>(&mut block.scales_high, g, code >> 4);
    }
    for (i, &code) in found.codes.iter().enumerate() {
        set_field::<4, 16>(&mut block.q, i, code);
    }
    block
}
