//! Packing: from blocks as they lie in the file to the planes of [`crate::formats`].
//!
//! Codes are put so that four neighbouring weights are the bytes of one word after a shift and a mask. In a word of 4-bit
//! codes byte `b` has weight `b` in its low half and weight `4 + b` in its high half; in one of 2-bit codes bits `2f..2f + 2`
//! of byte `b` are weight `4f + b`; in one of single high bits bit `f` of byte `b` is weight `4f + b`.

use half::f16;
use quant::{Block, MAX_LEN, blocks};

use crate::formats::{DeviceFormat, Factor, Low, RowWords, device_format};

/// The planes of one row, all zero before it is packed.
pub(crate) struct RowPlanes<'a> {
    /// Low bits, or plain numbers.
    pub(crate) low: &'a mut [u32],
    /// High bits.
    pub(crate) high: &'a mut [u32],
    /// Factors of blocks.
    pub(crate) factors: &'a mut [u32],
    /// Scales of groups.
    pub(crate) scales: &'a mut [u32],
}

/// Writes a row's bytes, as the file has them, into its planes.
pub(crate) type PackRow = fn(&[u8], &mut RowPlanes<'_>);

pub(crate) fn pack_f32(row: &[u8], to: &mut RowPlanes<'_>) {
    for (word, bytes) in to.low.iter_mut().zip(row.as_chunks().0) {
        *word = u32::from_le_bytes(*bytes);
    }
}

pub(crate) fn pack_f16(row: &[u8], to: &mut RowPlanes<'_>) {
    for (i, bytes) in row.as_chunks().0.iter().enumerate() {
        to.low[i / 2] |= u32::from(u16::from_le_bytes(*bytes)) << (16 * (i % 2));
    }
}

/// As [`pack_f16`]: both are two bytes, which shaders read in their own way.
pub(crate) fn pack_bf16(row: &[u8], to: &mut RowPlanes<'_>) {
    pack_f16(row, to);
}

/// Quantized blocks of any format.
pub(crate) fn pack_blocks<B: Block>(row: &[u8], to: &mut RowPlanes<'_>) {
    let format = device_format(B::TY).expect("a format is listed that packs so");
    let Low::Bits(low_bits) = format.low else { unreachable!("blocks have codes") };
    let mut codes = [0; MAX_LEN];
    for (number, block) in blocks::<B>(row).enumerate() {
        let codes = &mut codes[..B::LEN];
        block.codes(codes);
        for (i, &code) in codes.iter().enumerate() {
            let at = number * B::LEN + i;
            put(to.low, low_bits, at, code);
            if format.high > 0 {
                put(to.high, format.high, at, code >> low_bits);
            }
        }
        put_factor(format, &block, number, to.factors);
        if format.has_scales() {
            let groups = B::LEN / B::GROUP;
            for group in 0..groups {
                let at = number * groups + group;
                let (word, up) = (at / 4 * if B::HAS_MIN { 2 } else { 1 }, 8 * (at % 4));
                let scale = block.scale_code(group).cast_unsigned();
                to.scales[word] |= u32::from(scale) << up;
                if B::HAS_MIN {
                    to.scales[word + 1] |= u32::from(block.min_code(group)) << up;
                }
            }
        }
    }
}

/// A code of `bits` bits where weight `at` of a row lies.
fn put(plane: &mut [u32], bits: u32, at: usize, code: u8) {
    let bits = bits as usize;
    let in_word = 32 / bits;
    let (word, i) = (at / in_word, at % in_word);
    let code = u32::from(code) & ((1u32 << bits) - 1);
    plane[word] |= code << (8 * (i % 4) + bits * (i / 4));
}

fn put_factor<B: Block>(format: &DeviceFormat, block: &B, number: usize, factors: &mut [u32]) {
    let half = |x: f32| u32::from(f16::from_f32(x).to_bits());
    match format.factor {
        Factor::None => {}
        Factor::Half => factors[number / 2] |= half(block.d()) << (16 * (number % 2)),
        Factor::HalfAndMin => factors[number] = half(block.d()) | half(block.dmin()) << 16,
        Factor::Exponent => {
            // a power of two; the least two, which are no normal numbers, become zero on the device
            let exponent = (block.d().to_bits() >> 23) & 0xff;
            let e = if exponent == 0 { 0 } else { exponent + 1 };
            factors[number / 4] |= e.min(255) << (8 * (number % 4));
        }
    }
}

/// The planes of some rows, one row's after another's in each.
#[derive(Debug)]
pub(crate) struct Planes {
    words: RowWords,
    pub(crate) low: Vec<u32>,
    pub(crate) high: Vec<u32>,
    /// Factors of all rows, then the scales of all rows.
    pub(crate) scales: Vec<u32>,
    /// Where the scales begin.
    pub(crate) s_base: usize,
}

impl Planes {
    /// Of `rows` rows, all zero.
    pub(crate) fn new(words: RowWords, rows: usize) -> Planes {
        let zeros = |n: usize| vec![0; n * rows];
        let s_base = words.factors * rows;
        Planes {
            words,
            low: zeros(words.low),
            high: zeros(words.high),
            scales: zeros(words.factors + words.scales),
            s_base,
        }
    }

    /// The planes of row `i`.
    pub(crate) fn row(&mut self, i: usize) -> RowPlanes<'_> {
        let RowWords { low, high, factors, scales, .. } = self.words;
        let (all_factors, all_scales) = self.scales.split_at_mut(self.s_base);
        RowPlanes {
            low: &mut self.low[i * low..(i + 1) * low],
            high: &mut self.high[i * high..(i + 1) * high],
            factors: &mut all_factors[i * factors..(i + 1) * factors],
            scales: &mut all_scales[i * scales..(i + 1) * scales],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The inverse of [`put`], for codes of one weight.
    fn get(plane: &[u32], bits: u32, at: usize) -> u8 {
        let bits = bits as usize;
        let in_word = 32 / bits;
        let i = at % in_word;
        let word = plane[at / in_word] >> (8 * (i % 4) + bits * (i / 4));
        (word & ((1u32 << bits) - 1)) as u8
    }

    /// Codes, factors and scales of every format come back from its planes.
    #[test]
    fn planes_hold_what_blocks_say() {
        fn check<B: Block>() {
            let format = device_format(B::TY).expect("every format is listed");
            let n = 3;
            let mut seed = 7u32;
            let bytes: Vec<u8> = (0..n * size_of::<B>())
                .map(|_| {
                    seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    (seed >> 24) as u8
                })
                .collect();
            let mut planes = Planes::new(format.row_words(n * B::LEN), 2);
            (format.pack)(&bytes, &mut planes.row(1));
            assert!(planes.row(0).low.iter().all(|word| *word == 0), "{}: the other row", B::TY);
            let row = planes.row(1);
            let Low::Bits(low) = format.low else { unreachable!("blocks have codes") };
            for (number, block) in blocks::<B>(&bytes).enumerate() {
                for i in 0..B::LEN {
                    let at = number * B::LEN + i;
                    let high =
                        if format.high > 0 { get(row.high, format.high, at) << low } else { 0 };
                    assert_eq!(get(row.low, low, at) | high, block.code(i), "{} {i}", B::TY);
                }
                if format.has_scales() {
                    let groups = B::LEN / B::GROUP;
                    for group in 0..groups {
                        let at = number * groups + group;
                        let each = if B::HAS_MIN { 2 } else { 1 };
                        let byte = |word: usize| (row.scales[word] >> (8 * (at % 4))) as u8;
                        let scale = byte(at / 4 * each).cast_signed();
                        assert_eq!(scale, block.scale_code(group), "{}: scale {group}", B::TY);
                        if B::HAS_MIN {
                            assert_eq!(byte(at / 4 * 2 + 1), block.min_code(group), "{}", B::TY);
                        }
                    }
                }
            }
        }
        use quant::formats::*;
        check::<BlockQ4_0>();
        check::<BlockQ4_1>();
        check::<BlockQ5_0>();
        check::<BlockQ5_1>();
        check::<BlockQ8_0>();
        check::<BlockQ2K>();
        check::<BlockQ3K>();
        check::<BlockQ4K>();
        check::<BlockQ5K>();
        check::<BlockQ6K>();
        check::<BlockIq4Nl>();
        check::<BlockIq4Xs>();
        check::<BlockIq3S>();
        check::<BlockTq1_0>();
        check::<BlockTq2_0>();
        check::<BlockMxfp4>();
    }
}
