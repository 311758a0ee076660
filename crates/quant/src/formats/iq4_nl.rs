//! IQ4_NL.

use bytemuck::{Pod, Zeroable};
use half::f16;

use crate::bits::{field, set_field, unpack};
use crate::codebooks::IQ4_NL;
use crate::{Block, GgmlType, Values, search};

/// IQ4_NL: 32 weights in 18 bytes, 4.5 bits per weight. `w[i] = d * codebook[q[i]]`.
///
/// The codebook is [`IQ4_NL`]; codes lie as in Q4_0. Source: GGUF file format, type 20.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct BlockIq4Nl {
    /// Scale.
    pub d: f16,
    /// Codes: 4 bits, 16 lanes.
    pub q: [u8; 16],
}

const _: () = assert!(size_of::<BlockIq4Nl>() == 18);

impl Block for BlockIq4Nl {
    const TY: GgmlType = GgmlType::Iq4Nl;
    const LEN: usize = 32;
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
}

/// Searches the scale, see [`search`].
fn quantize(x: &[f32]) -> BlockIq4Nl {
    let (d, codes) = search::table(x, &IQ4_NL);
    let mut block = BlockIq4Nl { d, q: [0; 16] };
    for (i, &code) in codes.iter().enumerate() {
        set_field::<4, 16>(&mut block.q, i, code);
    }
    block
}
