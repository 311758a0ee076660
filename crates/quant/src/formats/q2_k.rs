//! Q2_K.

use bytemuck::{Pod, Zeroable};
use half::f16;

use crate::bits::{field, set_field, unpack};
use crate::{Block, GgmlType, Values, search};

/// Q2_K: 256 weights in 84 bytes, 2.625 bits per weight. `w[i] = d * sc[g] * q[i] - dmin * m[g]`, `g = i / 16`.
///
/// Byte `g` of `scales` is `sc[g]` (low nibble) and `m[g]` (high nibble). Source: GGUF file format, type 10.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct BlockQ2K {
    /// 4-bit scale (low) and min (high) of each group.
    pub scales: [u8; 16],
    /// Codes: 2 bits, 32 lanes.
    pub q: [u8; 64],
    /// Factor of the scales.
    pub d: f16,
    /// Factor of the mins.
    pub dmin: f16,
}

const _: () = assert!(size_of::<BlockQ2K>() == 84);

impl Block for BlockQ2K {
    const TY: GgmlType = GgmlType::Q2K;
    const LEN: usize = 256;
    const GROUP: usize = 16;
    const BITS: u32 = 2;
    const VALUES: Values = Values::Linear { zero: 0 };
    const HAS_MIN: bool = true;
    const QUANTIZE: Option<fn(&[f32]) -> Self> = Some(quantize);

    #[inline]
    fn code(&self, i: usize) -> u8 {
        field::<2, 32>(&self.q, i)
    }

    #[inline]
    fn codes(&self, out: &mut [u8]) {
        unpack::<2, 32>(&self.q, out);
    }

    #[inline]
    fn d(&self) -> f32 {
        self.d.to_f32()
    }

    #[inline]
    fn scale_code(&self, g: usize) -> i8 {
        (self.scales[g] & 15).cast_signed()
    }

    #[inline]
    fn dmin(&self) -> f32 {
        self.dmin.to_f32()
    }

    #[inline]
    fn min_code(&self, g: usize) -> u8 {
        self.scales[g] >> 4
    }
}

/// Searches scales and mins, see [`search`].
fn quantize(x: &[f32]) -> BlockQ2K {
    let found = search::affine::<16>(x, 3, 15);
    let mut block = BlockQ2K { scales: [0; 16], q: [0; 64], d: found.d, dmin: found.dmin };
    for (byte, (scale, min)) in block.scales.iter_mut().zip(found.scales.iter().zip(found.mins)) {
        *byte = scale | (min << 4);
    }
    for (i, &code) in found.codes.iter().enumerate() {
        set_field::<2, 32>(&mut block.q, i, code);
    }
    block
}
