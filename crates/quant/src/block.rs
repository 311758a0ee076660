//! What every quantized block can say about itself.

use bytemuck::Pod;

use crate::GgmlType;

/// How a code becomes the integer that its scale multiplies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Values {
    /// `value = code - zero`.
    Linear {
        /// The code of weight zero (before a min is subtracted).
        zero: u8,
    },
    /// `value = table[code]`; codes have four bits.
    Table(&'static [i8; 16]),
}

impl Values {
    /// The integer that `code` stands for.
    #[inline]
    pub const fn of(self, code: u8) -> i8 {
        match self {
            Values::Linear { zero } => code.wrapping_sub(zero).cast_signed(),
            Values::Table(table) => table[(code & 15) as usize],
        }
    }
}

/// The longest block of any format, in weights.
pub const MAX_LEN: usize = 256;

/// A block of quantized weights as it lies in the file.
///
/// For every format, with `g = i / GROUP` and f32 arithmetic in exactly this order:
/// ```text
/// w[i]     = scale(g) * value(i) - min(g)
/// value(i) = VALUES.of(code(i))          fits i8 in every format
/// scale(g) = d()    * scale_code(g)      scale_code is 1 where the format has one scale per block
/// min(g)   = dmin() * min_code(g)        0 where HAS_MIN is false
/// ```
/// Indices are in natural weight order: `i` in `0..LEN`, `g` in `0..LEN / GROUP`. Accessors panic on larger ones.
///
/// A block struct may need 2-byte alignment, which a file does not promise: bytes become blocks by copy, with
/// [`Block::read`] or [`blocks`], from any address.
pub trait Block: Pod {
    /// The type these blocks belong to.
    const TY: GgmlType;
    /// Weights in a block.
    const LEN: usize;
    /// Consecutive weights that share a scale (and a min).
    const GROUP: usize = Self::LEN;
    /// Codes are below `1 << BITS`.
    const BITS: u32;
    /// How codes become integers.
    const VALUES: Values;
    /// Whether a min is subtracted.
    const HAS_MIN: bool = false;
    /// The reference quantizer, from `LEN` weights; `None` for formats that are only read. Never panics, but the
    /// result means something only for finite weights.
    const QUANTIZE: Option<fn(&[f32]) -> Self> = None;

    /// The code of weight `i` as an unsigned number of [`Block::BITS`] bits.
    fn code(&self, i: usize) -> u8;

    /// Writes all codes to `out`, which has [`Block::LEN`] elements: [`Block::code`] of each weight, only faster.
    #[inline]
    fn codes(&self, out: &mut [u8]) {
        for (i, code) in out.iter_mut().enumerate() {
            *code = self.code(i);
        }
    }

    /// The block's scale.
    fn d(&self) -> f32;

    /// Integer factor of the scale of group `g`.
    #[inline]
    fn scale_code(&self, _g: usize) -> i8 {
        1
    }

    /// The block's factor of all mins.
    #[inline]
    fn dmin(&self) -> f32 {
        0.0
    }

    /// Integer factor of the min of group `g`.
    #[inline]
    fn min_code(&self, _g: usize) -> u8 {
        1
    }

    /// The integer of weight `i`.
    #[inline]
    fn value(&self, i: usize) -> i8 {
        Self::VALUES.of(self.code(i))
    }

    /// What the integers of group `g` are multiplied with.
    #[inline]
    fn scale(&self, g: usize) -> f32 {
        self.d() * f32::from(self.scale_code(g))
    }

    /// What is subtracted in group `g`.
    #[inline]
    fn min(&self, g: usize) -> f32 {
        self.dmin() * f32::from(self.min_code(g))
    }

    /// Writes the weights to `out`, which has [`Block::LEN`] elements.
    #[inline]
    fn dequantize(&self, out: &mut [f32]) {
        let mut codes = [0; MAX_LEN];
        let codes = &mut codes[..Self::LEN];
        self.codes(codes);
        let groups = codes.chunks_exact(Self::GROUP).zip(out.chunks_exact_mut(Self::GROUP));
        for (g, (codes, out)) in groups.enumerate() {
            let (scale, min) = (self.scale(g), self.min(g));
            for (&code, w) in codes.iter().zip(out) {
                *w = scale * f32::from(Self::VALUES.of(code)) - min;
            }
        }
    }

    /// The block in `bytes`, at any alignment.
    ///
    /// # Panics
    /// If `bytes` is not exactly one block long.
    #[inline]
    fn read(bytes: &[u8]) -> Self {
        bytemuck::pod_read_unaligned(bytes)
    }
}

/// The whole blocks of a row or tensor, one by one, from bytes at any alignment. A rest shorter than a block is left out.
pub fn blocks<B: Block>(bytes: &[u8]) -> impl ExactSizeIterator<Item = B> + '_ {
    bytes.chunks_exact(size_of::<B>()).map(B::read)
}
