//! Q4_1.

use bytemuck::{Pod, Zeroable};
use half::f16;

use crate::bits::{field, set_field, unpack};
use crate::formats::rounding::{inverse, range};
use crate::{Block, GgmlType, Values};

/// Q4_1: 32 weights in 20 bytes, 5 bits per weight. `w[i] = d * q[i] + m`.
///
/// Low nibbles are weights 0..16, high nibbles 16..32; `dmin()` is `-m`. Source: GGUF file format, type 3.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct BlockQ4_1 {
    /// Scale.
    pub d: f16,
    /// The value of code 0.
    pub m: f16,
    /// Codes: 4 bits, 16 lanes.
    pub q: [u8; 16],
}

const _: () = assert!(size_of::<BlockQ4_1>() == 20);

impl Block for BlockQ4_1 {
    const TY: GgmlType = GgmlType::Q4_1;
    const LEN: usize = 32;
    const BITS: u32 = 4;
    const VALUES: Values = Values::Linear { zero: 0 };
    const HAS_MIN: bool = true;
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
    fn dmin(&self) -> f32 {
        -self.m.to_f32()
    }
}

/// The codes span the block's range.
fn quantize(x: &[f32]) -> BlockQ4_1 {
    let (low, high) = range(x);
    let d = (high - low) / 15.0;
    let inverse = inverse(d);
    let mut block = BlockQ4_1 { d: f16::from_f32(d), m: f16::from_f32(low), q: [0; 16] };
    for (i, x) in x.iter().enumerate() {
        set_field::<4, 16>(&mut block.q, i, (((x - low) * inverse + 0.5) as u8).min(15));
    }
    block
}
