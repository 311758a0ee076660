//! Q4_K.

use bytemuck::{Pod, Zeroable};
use half::f16;

use crate::bits::{field, pack_scale_min, scale_min, set_field, unpack};
use crate::{Block, GgmlType, Values, search};

/// Q4_K: 256 weights in 144 bytes, 4.5 bits per weight. `w[i] = d * sc[g] * q[i] - dmin * m[g]`, `g = i / 32`.
///
/// Source: GGUF file format, type 12.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct BlockQ4K {
    /// Factor of the scales.
    pub d: f16,
    /// Factor of the mins.
    pub dmin: f16,
    /// 6-bit scales and mins, see [`scale_min`].
    pub scales: [u8; 12],
    /// Codes: 4 bits, 32 lanes.
    pub q: [u8; 128],
}

const _: () = assert!(size_of::<BlockQ4K>() == 144);

impl Block for BlockQ4K {
    const TY: GgmlType = GgmlType::Q4K;
    const LEN: usize = 256;
    const GROUP: usize = 32;
    const BITS: u32 = 4;
    const VALUES: Values = Values::Linear { zero: 0 };
    const HAS_MIN: bool = true;
    const QUANTIZE: Option<fn(&[f32]) -> Self> = Some(quantize);

    #[inline]
    fn code(&self, i: usize) -> u8 {
        field::<4, 32>(&self.q, i)
    }

    #[inline]
    fn codes(&self, out: &mut [u8]) {
        unpack::<4, 32>(&self.q, out);
    }

    #[inline]
    fn d(&self) -> f32 {
        self.d.to_f32()
    }

    #[inline]
    fn scale_code(&self, g: usize) -> i8 {
        scale_min(&self.scales, g).0.cast_signed()
    }

    #[inline]
    fn dmin(&self) -> f32 {
        self.dmin.to_f32()
    }

    #[inline]
    fn min_code(&self, g: usize) -> u8 {
        scale_min(&self.scales, g).1
    }
}

/// Searches scales and mins, see [`search`].
fn quantize(x: &[f32]) -> BlockQ4K {
    let found = search::affine::<8>(x, 15, 63);
    let scales = pack_scale_min(&found.scales, &found.mins);
    let mut block = BlockQ4K { d: found.d, dmin: found.dmin, scales, q: [0; 128] };
    for (i, &code) in found.codes.iter().enumerate() {
        set_field::<4, 32>(&mut block.q, i, code);
    }
    block
}
