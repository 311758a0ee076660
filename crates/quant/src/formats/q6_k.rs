//! Q6_K.

use bytemuck::{Pod, Zeroable};
use half::f16;

use crate::bits::{field, set_field, unpack, unpack_high};
use crate::{Block, GgmlType, Values, search};

/// Q6_K: 256 weights in 210 bytes, 6.5625 bits per weight. `w[i] = d * sc[g] * (q[i] - 32)`, `g = i / 16`.
///
/// Source: GGUF file format, type 14.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct BlockQ6K {
    /// Low bits of the codes: 4 bits, 64 lanes.
    pub q: [u8; 128],
    /// Bits 4 and 5 of the codes: 2 bits, 32 lanes.
    pub qh: [u8; 64],
    /// `sc`, one per group.
    pub scales: [i8; 16],
    /// Scale.
    pub d: f16,
}

const _: () = assert!(size_of::<BlockQ6K>() == 210);

impl Block for BlockQ6K {
    const TY: GgmlType = GgmlType::Q6K;
    const LEN: usize = 256;
    const GROUP: usize = 16;
    const BITS: u32 = 6;
    const VALUES: Values = Values::Linear { zero: 32 };
    const QUANTIZE: Option<fn(&[f32]) -> Self> = Some(quantize);

    #[inline]
    fn code(&self, i: usize) -> u8 {
        field::<4, 64>(&self.q, i) | (field::<2, 32>(&self.qh, i) << 4)
    }

    #[inline]
    fn codes(&self, out: &mut [u8]) {
        unpack::<4, 64>(&self.q, out);
        unpack_high::<2, 32>(&self.qh, 4, out);
    }

    #[inline]
    fn d(&self) -> f32 {
        self.d.to_f32()
    }

    #[inline]
    fn scale_code(&self, g: usize) -> i8 {
        self.scales[g]
    }
}

/// Searches the scales, see [`search`].
fn quantize(x: &[f32]) -> BlockQ6K {
    let found = search::symmetric::<16>(x, 32, 128);
    let mut block = BlockQ6K { q: [0; 128], qh: [0; 64], scales: found.scales, d: found.d };
    for (i, &code) in found.codes.iter().enumerate() {
        set_field::<4, 64>(&mut block.q, i, code);
        set_field::<2, 32>(&mut block.qh, i, code >> 4);
    }
    block
}
