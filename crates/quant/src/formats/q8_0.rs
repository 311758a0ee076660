//! Q8_0.

use bytemuck::{Pod, Zeroable};
use half::f16;

use crate::formats::rounding::{extreme, inverse};
use crate::{Block, GgmlType, Values};

/// Q8_0: 32 weights in 34 bytes, 8.5 bits per weight. `w[i] = d * q[i]`.
///
/// The unsigned code is `q + 128`, the value is `q`. Source: GGUF file format, type 8.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct BlockQ8_0 {
    /// Scale.
    pub d: f16,
    /// The integers, in weight order.
    pub q: [i8; 32],
}

const _: () = assert!(size_of::<BlockQ8_0>() == 34);

impl Block for BlockQ8_0 {
    const TY: GgmlType = GgmlType::Q8_0;
    const LEN: usize = 32;
    const BITS: u32 = 8;
    const VALUES: Values = Values::Linear { zero: 128 };
    const QUANTIZE: Option<fn(&[f32]) -> Self> = Some(quantize);

    #[inline]
    fn code(&self, i: usize) -> u8 {
        self.q[i].cast_unsigned() ^ 0x80
    }

    #[inline]
    fn d(&self) -> f32 {
        self.d.to_f32()
    }
}

/// The largest magnitude becomes 127; halves round away from zero.
fn quantize(x: &[f32]) -> BlockQ8_0 {
    let d = extreme(x).abs() / 127.0;
    let inverse = inverse(d);
    let mut block = BlockQ8_0 { d: f16::from_f32(d), q: [0; 32] };
    for (q, x) in block.q.iter_mut().zip(x) {
        *q = (x * inverse).round() as i8;
    }
    block
}
