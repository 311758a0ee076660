//! TQ2_0.

use bytemuck::{Pod, Zeroable};
use half::f16;

use crate::bits::{field, set_field, unpack};
use crate::formats::rounding::{extreme, inverse, ternary};
use crate::{Block, GgmlType, Values};

/// TQ2_0: 256 weights in 66 bytes, 2.0625 bits per weight. `w[i] = d * (q[i] - 1)`.
///
/// Quantizers write codes 0..=2; code 3 reads as 2. Source: GGUF file format, type 35.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct BlockTq2_0 {
    /// Codes: 2 bits, 32 lanes.
    pub q: [u8; 64],
    /// Scale.
    pub d: f16,
}

const _: () = assert!(size_of::<BlockTq2_0>() == 66);

impl Block for BlockTq2_0 {
    const TY: GgmlType = GgmlType::Tq2_0;
    const LEN: usize = 256;
    const BITS: u32 = 2;
    const VALUES: Values = Values::Linear { zero: 1 };
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
}

/// The largest magnitude becomes the scale; weights round to -1, 0 or 1 of it.
fn quantize(x: &[f32]) -> BlockTq2_0 {
    let d = extreme(x).abs();
    let inverse = inverse(d);
    let mut block = BlockTq2_0 { q: [0; 64], d: f16::from_f32(d) };
    for (i, &x) in x.iter().enumerate() {
        set_field::<2, 32>(&mut block.q, i, ternary(x, inverse));
    }
    block
}
