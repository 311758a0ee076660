//! Q5_0.

use bytemuck::{Pod, Zeroable};
use half::f16;

use crate::bits::{field, set_field, unpack, unpack_high};
use crate::formats::rounding::{extreme, inverse};
use crate::{Block, GgmlType, Values};

/// Q5_0: 32 weights in 22 bytes, 5.5 bits per weight. `w[i] = d * (q[i] - 16)`.
///
/// Low nibbles of `q` are weights 0..16, high nibbles 16..32; bit `i` of `qh` (a 32-bit number) is bit 4 of code `i`.
/// Source: GGUF file format, type 6.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct BlockQ5_0 {
    /// Scale.
    pub d: f16,
    /// Bit 4 of the codes, in weight order.
    pub qh: [u8; 4],
    /// Low bits of the codes: 4 bits, 16 lanes.
    pub q: [u8; 16],
}

const _: () = assert!(size_of::<BlockQ5_0>() == 22);

impl Block for BlockQ5_0 {
    const TY: GgmlType = GgmlType::Q5_0;
    const LEN: usize = 32;
    const BITS: u32 = 5;
    const VALUES: Values = Values::Linear { zero: 16 };
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
}

/// The weight of largest magnitude becomes code 0, which reaches one step further than code 31.
fn quantize(x: &[f32]) -> BlockQ5_0 {
    let d = extreme(x) / -16.0;
    let inverse = inverse(d);
    let mut block = BlockQ5_0 { d: f16::from_f32(d), qh: [0; 4], q: [0; 16] };
    for (i, x) in x.iter().enumerate() {
        let code = ((x * inverse + 16.5) as u8).min(31);
        set_field::<4, 16>(&mut block.q, i, code);
        set_field::<1, 1>(&mut block.qh, i, code >> 4);
    }
    block
}
