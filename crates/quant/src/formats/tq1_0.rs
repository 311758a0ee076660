//! TQ1_0.

use bytemuck::{Pod, Zeroable};
use half::f16;

use crate::formats::rounding::{extreme, inverse, ternary};
use crate::{Block, GgmlType, Values};

/// TQ1_0: 256 weights in 54 bytes, 1.6875 bits per weight. `w[i] = d * (q[i] - 1)`, `q` in 0..3.
///
/// A byte holds five ternary digits as a fraction: digit `n` of byte `b` is `(b * 3^n mod 256) * 3 / 256`, rounded down.
/// Digits `n` of the first 32 bytes of `q` are weights `32n..32n + 32`; of its last 16 bytes weights `160 + 16n..`;
/// of the 4 bytes of `qh` (four digits each) weights `240 + 4n..`. Source: GGUF file format, type 34.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct BlockTq1_0 {
    /// Five digits per byte: weights 0..240.
    pub q: [u8; 48],
    /// Four digits per byte: weights 240..256.
    pub qh: [u8; 4],
    /// Scale.
    pub d: f16,
}

/// `3^n`: brings digit `n` to the top of a byte.
const POWERS: [u8; 5] = [1, 3, 9, 27, 81];

const _: () = assert!(size_of::<BlockTq1_0>() == 54);

impl Block for BlockTq1_0 {
    const TY: GgmlType = GgmlType::Tq1_0;
    const LEN: usize = 256;
    const BITS: u32 = 2;
    const VALUES: Values = Values::Linear { zero: 1 };
    const QUANTIZE: Option<fn(&[f32]) -> Self> = Some(quantize);

    #[inline]
    fn code(&self, i: usize) -> u8 {
        let (byte, digit) = match i {
            0..160 => (self.q[i % 32], i / 32),
            160..240 => (self.q[32 + i % 16], (i - 160) / 16),
            _ => (self.qh[i % 4], (i - 240) / 4),
        };
        ((u16::from(byte.wrapping_mul(POWERS[digit])) * 3) >> 8) as u8
    }

    #[inline]
    fn d(&self) -> f32 {
        self.d.to_f32()
    }
}

/// The largest magnitude becomes the scale; weights round to -1, 0 or 1 of it.
fn quantize(x: &[f32]) -> BlockTq1_0 {
    let d = extreme(x).abs();
    let inverse = inverse(d);
    let mut block = BlockTq1_0 { q: [0; 48], qh: [0; 4], d: f16::from_f32(d) };
    for (i, byte) in block.q.iter_mut().chain(&mut block.qh).enumerate() {
        // The weights of a byte's digits, first digit first; the fifth digit of `qh` is zero.
        let (first, lanes, digits) = match i {
            0..32 => (i, 32, 5),
            32..48 => (160 + i - 32, 16, 5),
            _ => (240 + i - 48, 4, 4),
        };
        let mut number = 0u32;
        for n in 0..5 {
            let digit = if n < digits { ternary(x[first + n * lanes], inverse) } else { 0 };
            number = number * 3 + u32::from(digit);
        }
        // As a fraction of 256, rounded up, so that the rounding down of `code` meets the digits again.
        *byte = (number * 256).div_ceil(243) as u8;
    }
    block
}
