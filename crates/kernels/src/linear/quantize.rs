//! f32 rows to 8-bit blocks of 32 or 256 columns.

use super::{Q8_BLOCK, Q8_WHOLE};
use crate::{Isa, Kernel, Level, Slot};

type Quantize = unsafe fn(&[f32], usize, &mut [i8], &mut [f32], &mut [i32]);

/// Quantizes one row: `(x, block, codes, scales, sums)`, lengths `cols`, a number, `cols`, `cols / 32`, `cols / 16`.
#[derive(Clone, Copy, Debug)]
pub struct QuantizeQ8(Quantize);

/// Quantizes a row of activations in blocks of 32 or 256.
///
/// `d = max |x| / 127`, `code = round(x * (127 / max |x|))`, ties to even, and the sum of each 16 codes. A block whose
/// maximum is 0, or so small that `127 / max` overflows, becomes zeros with `d = 0`. A NaN gives `d` = NaN and an
/// infinity `d` = infinity, so that products show them. Scales are written per 32 columns, sums per 16, whatever the block.
pub static QUANTIZE_Q8: Slot<QuantizeQ8> = Slot {
    op: "quantize_q8",
    naive: Kernel {
        name: "quantize_q8/naive",
        isa: Isa::NONE,
        level: Level::Naive,
        run: QuantizeQ8(scalar),
    },
    candidates: CANDIDATES,
};

#[cfg(target_arch = "x86_64")]
const CANDIDATES: &[Kernel<QuantizeQ8>] = &[Kernel {
    name: "quantize_q8/avx2",
    isa: Isa::AVX2,
    level: Level::Full,
    run: QuantizeQ8(super::avx2::quantize_q8),
}];
#[cfg(not(target_arch = "x86_64"))]
const CANDIDATES: &[Kernel<QuantizeQ8>] = &[];

impl Kernel<QuantizeQ8> {
    /// Quantizes `x` in blocks of `block` columns.
    ///
    /// # Panics
    /// If `block` is neither 32 nor 256, `x` is not whole blocks, or lengths do not agree: `codes` as `x`, one scale
    /// per 32, one sum per 16.
    pub fn call(
        &self,
        x: &[f32],
        block: usize,
        codes: &mut [i8],
        scales: &mut [f32],
        sums: &mut [i32],
    ) {
        assert!([Q8_BLOCK, Q8_WHOLE].contains(&block), "blocks of {block}");
        assert!(x.len().is_multiple_of(block), "{} columns are not whole blocks", x.len());
        assert_eq!(codes.len(), x.len(), "codes of a row");
        assert_eq!(scales.len(), x.len() / 32, "scales of a row");
        assert_eq!(sums.len(), x.len() / 16, "sums of a row");
        // SAFETY: `Slot` hands out only kernels whose features this CPU has.
        unsafe { (self.run.0)(x, block, codes, scales, sums) }
    }
}

/// Scale and its inverse for a block, from the bits of the greatest magnitude.
#[inline]
pub(super) fn scale(max: f32) -> (f32, f32) {
    let inverse = 127.0 / max;
    if inverse == f32::INFINITY { (0.0, 0.0) } else { (max / 127.0, inverse) }
}

fn scalar(x: &[f32], block: usize, codes: &mut [i8], scales: &mut [f32], sums: &mut [i32]) {
    let blocks = x.chunks_exact(block).zip(codes.chunks_exact_mut(block));
    for ((x, codes), scales) in blocks.zip(scales.chunks_exact_mut(block / 32)) {
        // Compared as integers, NaN lies above infinity.
        let bits = x.iter().map(|x| x.to_bits() & 0x7fff_ffff).max().unwrap_or(0);
        let (d, inverse) = scale(f32::from_bits(bits));
        scales.fill(d);
        for (code, x) in codes.iter_mut().zip(x) {
            let v = x * inverse;
            *code = if v > -127.0 { v.round_ties_even() as i8 } else { -127 };
        }
    }
    for (sum, half) in sums.iter_mut().zip(codes.as_chunks::<16>().0) {
        *sum = half.iter().map(|c| i32::from(*c)).sum();
    }
}
