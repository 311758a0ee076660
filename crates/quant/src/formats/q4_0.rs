//! Q4_0.

use bytemuck::{Pod, Zeroable};
use half::f16;

use crate::bits::{field, set_field, unpack};
use crate::formats::rounding::{extreme, inverse};
use crate::{Block, GgmlType, Values};

/// Q4_0: 32 weights in 18 bytes, 4.5 bits per weight. `w[i] = d * (q[i] - 8)`.
///
/// Low nibbles are weights 0..16, high nibbles 16..32. Source: GGUF file format, type 2.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct BlockQ4_0 {
    /// Scale.
    pub d: f16,
    /// Codes: 4 bits, 16 lanes.
    pub q: [u8; 16],
}

const _: () = assert!(size_of::<BlockQ4_0>() == 18);

impl Block for BlockQ4_0 {
    const TY: GgmlType = GgmlType::Q4_0;
    const LEN: usize = 32;
    const BITS: u32 = 4;
    const VALUES: Values = Values::Linear { zero: 8 };
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

/// The weight of largest magnitude becomes code 0, which reaches one step further than code 15.
fn quantize(x: &[f32]) -> BlockQ4_0 {
    let d = extreme(x) / -8.0;
    let inverse = inverse(d);
    let mut block = BlockQ4_0 { d: f16::from_f32(d), q: [0; 16] };
    for (i, x) in x.iter().enumerate() {
        set_field::<4, 16>(&mut block.q, i, ((x * inverse + 8.5) as u8).min(15));
    }
    block
}
