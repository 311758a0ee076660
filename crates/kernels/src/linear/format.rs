//! What a quantized panel looks like, as constants that one generic kernel body per ISA reads.
//!
//! A panel holds [`PANEL_ROWS`](super::PANEL_ROWS) weight rows. It is a run of panel blocks, each covering
//! [`PanelFormat::BLOCK`] columns of all rows, and read once in ascending order:
//!
//! ```text
//! block  = header, then BLOCK / 32 groups of codes
//! header = f16 or bf16 d [16 rows] | f16 dmin [16], if any | i8 scales [8 or 16][16], if any | i8 mins [8][16], if any
//! group  = low plane (64 * LOW bytes), high plane (64 * HIGH bytes): 32 columns of 16 rows
//! plane  = of b bits: lines of 64 bytes [row][4 columns]; one line covers 8 / b steps of 4 columns,
//!          step j of the line in bits b * j .. b * j + b
//! ```
//!
//! With codes `q`, activation codes `a` with a scale `d_a` per 32 or 256 columns, and sums in integers:
//!
//! ```text
//! blocks of 32:   i = sum (q - ZERO) * a                       j = sum a
//! blocks of 256:  i = sum scale * (q - ZERO) * a               j = sum min * a
//!
//! acc = fma(d * d_a, f32(i), acc)
//! acc = fma(dmin, -(d_a * f32(j)), acc)                        if there are minima
//! ```
//!
//! Integers are exact in any order: below 2^24 in blocks of 32, below 2^31 in blocks of 256 (133 million in Q6_K).

use half::f16;
use quant::{Block, Values};

/// How the scales of a format are stored and applied.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Scales {
    /// One f16 per 32 columns.
    Block,
    /// One f16 and one (negated) f16 minimum per 32 columns.
    BlockMin,
    /// One f16 per 256 columns.
    Super,
    /// One f16 per 256 columns times one i8 per 32.
    Groups,
    /// As `Groups`, with an f16 times an i8 as the minimum.
    GroupsMin,
    /// One f16 per 256 columns times one i8 per 16.
    Halves,
    /// One f16 per 256 columns times 4 bits per 16; the minimum likewise, in the high 4 bits.
    HalvesMin,
}

impl Scales {
    const fn of(block: usize, group: usize, min: bool) -> Scales {
        match (block, group, min) {
            (32, _, false) => Scales::Block,
            (32, _, true) => Scales::BlockMin,
            (_, 256, _) => Scales::Super,
            (_, 32, false) => Scales::Groups,
            (_, 32, true) => Scales::GroupsMin,
            (_, _, false) => Scales::Halves,
            (_, _, true) => Scales::HalvesMin,
        }
    }

    /// Columns that one header serves.
    pub(crate) const fn block(self) -> usize {
        match self {
            Scales::Block | Scales::BlockMin => 32,
            _ => 256,
        }
    }

    /// Bytes of a header, for 16 rows.
    pub(crate) const fn header(self) -> usize {
        match self {
            Scales::Block | Scales::Super => 32,
            Scales::BlockMin => 64,
            Scales::Groups => 32 + 128,
            Scales::GroupsMin => 64 + 256,
            Scales::Halves => 32 + 256,
            Scales::HalvesMin => 64 + 256,
        }
    }

    /// Whether weights have a minimum.
    pub(crate) const fn min(self) -> bool {
        matches!(self, Scales::BlockMin | Scales::GroupsMin | Scales::HalvesMin)
    }

    /// Whether there is one integer scale per 16 columns.
    pub(crate) const fn halves(self) -> bool {
        matches!(self, Scales::Halves | Scales::HalvesMin)
    }

    /// Whether there are integer scales.
    pub(crate) const fn factors(self) -> bool {
        !matches!(self, Scales::Block | Scales::BlockMin | Scales::Super)
    }

    /// Where the integer scales begin in the header.
    pub(crate) const fn small(self) -> usize {
        if self.min() { 64 } else { 32 }
    }
}

/// A quantized weight type, as its panels store it. All but the accessors follows from its file block.
pub(crate) trait PanelFormat: 'static {
    /// Its block in the file.
    type Block: Block;
    /// Names of its naive, portable, AVX2 and AVX-512 kernels.
    const NAMES: [&'static str; 4];

    /// Scales are bf16, not f16.
    const BF16: bool = false;

    /// The block's scale, as the bits of its type.
    fn d(block: &Self::Block) -> u16;

    /// The block's minimum, such that it is subtracted.
    fn min(_block: &Self::Block) -> f16 {
        f16::ZERO
    }

    /// The stored codes in the order of the columns; `out` has [`PanelFormat::BLOCK`] bytes.
    #[inline]
    fn codes(block: &Self::Block, out: &mut [u8]) {
        for (i, code) in out.iter_mut().enumerate() {
            *code = block.code(i);
        }
    }

    /// Its scales.
    const SCALES: Scales = Scales::of(Self::Block::LEN, Self::Block::GROUP, Self::Block::HAS_MIN);
    /// Bits of the low plane.
    const LOW: usize = match Self::Block::BITS {
        2 | 3 => 2,
        4..=6 => 4,
        _ => 8,
    };
    /// Bits of the high plane; 0 if there is none.
    const HIGH: usize = Self::Block::BITS as usize - Self::LOW;
    /// Stored code to unsigned code, where they differ.
    const LUT: Option<[u8; 16]> = match Self::Block::VALUES {
        Values::Linear { .. } => None,
        Values::Table(table) => Some(unsigned(table)),
    };
    /// The unsigned code of the integer 0.
    const ZERO: i32 = match Self::Block::VALUES {
        Values::Linear { zero } => zero as i32,
        Values::Table(table) => -least(table),
    };
    /// Greatest unsigned code.
    const MAX: i32 = match Self::LUT {
        None => (1 << Self::Block::BITS) - 1,
        Some(lut) => greatest(lut),
    };

    /// Columns per panel block and per file block.
    const BLOCK: usize = Self::SCALES.block();
    /// Groups of 32 columns per block.
    const GROUPS: usize = Self::BLOCK / 32;
    /// Whether a block is 256 columns, which activations share a scale in.
    const WHOLE: bool = Self::BLOCK == 256;
    /// Bytes of 32 columns of codes.
    const GROUP_BYTES: usize = 64 * (Self::LOW + Self::HIGH);
    /// Bytes of a panel block.
    const BLOCK_BYTES: usize = Self::SCALES.header() + Self::GROUP_BYTES * Self::GROUPS;
}

const fn least(table: &[i8; 16]) -> i32 {
    let (mut i, mut least) = (0, 0);
    while i < 16 {
        if (table[i] as i32) < least {
            least = table[i] as i32;
        }
        i += 1;
    }
    least
}

const fn unsigned(table: &[i8; 16]) -> [u8; 16] {
    let (mut i, mut out) = (0, [0; 16]);
    while i < 16 {
        out[i] = (table[i] as i32 - least(table)) as u8;
        i += 1;
    }
    out
}

const fn greatest(lut: [u8; 16]) -> i32 {
    let (mut i, mut greatest) = (0, 0);
    while i < 16 {
        if lut[i] as i32 > greatest {
            greatest = lut[i] as i32;
        }
        i += 1;
    }
    greatest
}
