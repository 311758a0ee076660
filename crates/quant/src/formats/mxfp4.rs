//! MXFP4.

use bytemuck::{Pod, Zeroable};

use crate::bits::{field, set_field, unpack};
use crate::codebooks::E2M1;
use crate::{Block, GgmlType, Values};

/// MXFP4: 32 weights in 17 bytes, 4.25 bits per weight. `w[i] = 2^(e - 127) * f[q[i]]`, `f` the 4-bit floats.
///
/// The codebook [`E2M1`] holds twice `f`, so that it is integers; codes lie as in Q4_0. Source: OCP Microscaling Formats (MX)
/// Specification 1.0, section 5; GGUF file format, type 39.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct BlockMxfp4 {
    /// Exponent of the scale, above 127.
    pub e: u8,
    /// Codes: 4 bits, 16 lanes.
    pub q: [u8; 16],
}

const _: () = assert!(size_of::<BlockMxfp4>() == 17);

impl Block for BlockMxfp4 {
    const TY: GgmlType = GgmlType::Mxfp4;
    const LEN: usize = 32;
    const BITS: u32 = 4;
    const VALUES: Values = Values::Table(&E2M1);
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
        f32::from_bits(half_scale(self.e))
    }
}

/// Bits of `2^(e - 128)` as f32: half the scale, for the codebook is doubled. The least two are no normal numbers.
fn half_scale(e: u8) -> u32 {
    match e {
        0 | 1 => 0x0020_0000 << e,
        _ => u32::from(e - 1) << 23,
    }
}

/// The greatest weight's power of two with the magnitudes 4 and 6 for it, or twice that: whichever is off by less.
fn quantize(x: &[f32]) -> BlockMxfp4 {
    let most = x.iter().fold(0.0f32, |most, x| most.max(x.abs()));
    let exponent = (most.to_bits() >> 23) as u8;
    let mut best = (f32::INFINITY, BlockMxfp4 { e: 0, q: [0; 16] });
    for e in [exponent.saturating_sub(2), exponent.saturating_sub(1)] {
        let mut block = BlockMxfp4 { e, q: [0; 16] };
        let mut error = 0.0;
        for (i, &x) in x.iter().enumerate() {
            let (off, code) = nearest(x, block.d());
            set_field::<4, 16>(&mut block.q, i, code);
            error += off * off;
        }
        if error < best.0 {
            best = (error, block);
        }
    }
    best.1
}

/// How far `x` is from the nearest of the values times `d`, and its code; of equally near ones the lower.
fn nearest(x: f32, d: f32) -> (f32, u8) {
    let off = |code: usize| (x - d * f32::from(E2M1[code])).abs();
    (1..16).fold((off(0), 0), |best, code| {
        let off = off(code);
        if off < best.0 { (off, code as u8) } else { best }
    })
}
