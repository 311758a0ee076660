//! Q5_1.

use bytemuck::{Pod, Zeroable};
use half::f16;

use crate::bits::{field, set_field, unpack, unpack_high};
use crate::formats::rounding::{inverse, range};
use crate::{Block, GgmlType, Values};

/// Q5_1: 32 weights in 24 bytes, 6 bits per weight. `w[i] = d * q[i] + m`.
///
/// Codes lie as in Q5_0; `dmin()` is `-m`. Source: GGUF file format, type 7.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct BlockQ5_1 {
    /// Scale.
    pub d: f16,
    /// The value of code 0.
    pub m: f16,
    /// Bit 4 of the codes, in weight order.
    pub qh: [u8; 4],
    /// Low bits of the codes: 4 bits, 16 lanes.
    pub q: [u8; 16],
}

const _: () = assert!(size_of::<BlockQ5_1>() == 24);

impl Block for BlockQ5_1 {
    const TY: GgmlType = GgmlType::Q5_1;
    const LEN: usize = 32;
    const BITS: u32 = 5;
    const VALUES: Values = Values::Linear { zero: 0 };
    const HAS_MIN: bool = true;
    const QUANTIZE: Option<fn(&[f32]) -> Self> = Some(quantize);

    #[inline]
    fn code(&self, i: usize) -> u8 {
        field::<4, 16>(&self.q, i) | (field::<1, 1>(&self.qh, i) << 4)
    }

    #[inline]
    fn codes(&self, out: &mut [u8]) {
        unpack::<4, 16>(&self.q, out);
        unpack_high::<1, 1>(&self.qh, 4, out);
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
fn quantize(x: &[f32]) -> BlockQ5_1 {
    let (low, high) = range(x);
    let d = (high - low) / 31.0;
    let inverse = inverse(d);
    let mut block =
        BlockQ5_1 { d: f16::from_f32(d), m: f16::from_f32(low), qh: [0; 4], q: [0; 16] };
    for (i, x) in x.iter().enumerate() {
        let code = (((x - low) * inverse + 0.5) as u8).min(31);
        set_field::<4, 16>(&mut block.q, i, code);
        set_field::<1, 1>(&mut block.qh, i, code >> 4);
    }
    block
}
