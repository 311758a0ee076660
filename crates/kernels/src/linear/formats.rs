//! The quantized weight types. A new one is an entry here and a line in the table.

use half::{bf16, f16};
use quant::Block;
use quant::formats::{
    BlockIq3S, BlockIq4Nl, BlockIq4Xs, BlockMxfp4, BlockQ2K, BlockQ3K, BlockQ4_0, BlockQ4_1,
    BlockQ4K, BlockQ5_0, BlockQ5_1, BlockQ5K, BlockQ6K, BlockQ8_0, BlockTq1_0, BlockTq2_0,
};

use super::format::PanelFormat;

/// Names of the kernels of a type.
macro_rules! names {
    ($ty:literal) => {
        [
            concat!("linear/naive/", $ty),
            concat!("linear/portable/", $ty),
            concat!("linear/avx2/", $ty),
            concat!("linear/avx512/", $ty),
        ]
    };
}
pub(super) use names;

/// Low nibbles, then high nibbles, of runs of `LANES` bytes.
#[inline(always)]
fn nibbles<const LANES: usize>(bytes: &[u8], out: &mut [u8]) {
    for (run, bytes) in out.chunks_exact_mut(2 * LANES).zip(bytes.as_chunks::<LANES>().0) {
        let (low, high) = run.split_at_mut(LANES);
        for ((low, high), byte) in low.iter_mut().zip(high).zip(bytes) {
            *low = byte & 15;
            *high = byte >> 4;
        }
    }
}

/// Adds one bit per code, lowest first, as bit 4.
#[inline(always)]
fn fifth_bits(bits: [u8; 4], out: &mut [u8]) {
    let bits = u32::from_le_bytes(bits);
    for (i, code) in out.iter_mut().enumerate() {
        *code |= ((bits >> i & 1) << 4) as u8;
    }
}

/// Fields of 2 bits of runs of 32 bytes.
#[inline(always)]
fn quarters(bytes: &[u8], out: &mut [u8]) {
    for (run, bytes) in out.chunks_exact_mut(128).zip(bytes.as_chunks::<32>().0) {
        for (j, quarter) in run.chunks_exact_mut(32).enumerate() {
            for (code, byte) in quarter.iter_mut().zip(bytes) {
                *code = byte >> (2 * j) & 3;
            }
        }
    }
}

pub(super) struct Q4_0;
impl PanelFormat for Q4_0 {
    type Block = BlockQ4_0;
    const NAMES: [&'static str; 4] = names!("q4_0");
    fn d(block: &BlockQ4_0) -> u16 {
        block.d.to_bits()
    }
    #[inline]
    fn codes(block: &BlockQ4_0, out: &mut [u8]) {
        nibbles::<16>(&block.q, out);
    }
}

pub(super) struct Q4_1;
impl PanelFormat for Q4_1 {
    type Block = BlockQ4_1;
    const NAMES: [&'static str; 4] = names!("q4_1");
    fn d(block: &BlockQ4_1) -> u16 {
        block.d.to_bits()
    }
    fn min(block: &BlockQ4_1) -> f16 {
        -block.m
    }
    #[inline]
    fn codes(block: &BlockQ4_1, out: &mut [u8]) {
        nibbles::<16>(&block.q, out);
    }
}

pub(super) struct Q5_0;
impl PanelFormat for Q5_0 {
    type Block = BlockQ5_0;
    const NAMES: [&'static str; 4] = names!("q5_0");
    fn d(block: &BlockQ5_0) -> u16 {
        block.d.to_bits()
    }
    #[inline]
    fn codes(block: &BlockQ5_0, out: &mut [u8]) {
        nibbles::<16>(&block.q, out);
        fifth_bits(block.qh, out);
    }
}

pub(super) struct Q5_1;
impl PanelFormat for Q5_1 {
    type Block = BlockQ5_1;
    const NAMES: [&'static str; 4] = names!("q5_1");
    fn d(block: &BlockQ5_1) -> u16 {
        block.d.to_bits()
    }
    fn min(block: &BlockQ5_1) -> f16 {
        -block.m
    }
    #[inline]
    fn codes(block: &BlockQ5_1, out: &mut [u8]) {
        nibbles::<16>(&block.q, out);
        fifth_bits(block.qh, out);
    }
}

pub(super) struct Q8_0;
impl PanelFormat for Q8_0 {
    type Block = BlockQ8_0;
    const NAMES: [&'static str; 4] = names!("q8_0");
    fn d(block: &BlockQ8_0) -> u16 {
        block.d.to_bits()
    }
    #[inline]
    fn codes(block: &BlockQ8_0, out: &mut [u8]) {
        for (code, q) in out.iter_mut().zip(&block.q) {
            *code = q.cast_unsigned() ^ 0x80;
        }
    }
}

pub(super) struct Q2K;
impl PanelFormat for Q2K {
    type Block = BlockQ2K;
    const NAMES: [&'static str; 4] = names!("q2_k");
    fn d(block: &BlockQ2K) -> u16 {
        block.d.to_bits()
    }
    fn min(block: &BlockQ2K) -> f16 {
        block.dmin
    }
    #[inline]
    fn codes(block: &BlockQ2K, out: &mut [u8]) {
        quarters(&block.q, out);
    }
}

pub(super) struct Q3K;
impl PanelFormat for Q3K {
    type Block = BlockQ3K;
    const NAMES: [&'static str; 4] = names!("q3_k");
    fn d(block: &BlockQ3K) -> u16 {
        block.d.to_bits()
    }
    #[inline]
    fn codes(block: &BlockQ3K, out: &mut [u8]) {
        quarters(&block.q, out);
        for (g, group) in out.chunks_exact_mut(32).enumerate() {
            for (code, high) in group.iter_mut().zip(&block.qh) {
                *code |= (high >> g & 1) << 2;
            }
        }
    }
}

pub(super) struct Q4K;
impl PanelFormat for Q4K {
    type Block = BlockQ4K;
    const NAMES: [&'static str; 4] = names!("q4_k");
    fn d(block: &BlockQ4K) -> u16 {
        block.d.to_bits()
    }
    fn min(block: &BlockQ4K) -> f16 {
        block.dmin
    }
    #[inline]
    fn codes(block: &BlockQ4K, out: &mut [u8]) {
        nibbles::<32>(&block.q, out);
    }
}

pub(super) struct Q5K;
impl PanelFormat for Q5K {
    type Block = BlockQ5K;
    const NAMES: [&'static str; 4] = names!("q5_k");
    fn d(block: &BlockQ5K) -> u16 {
        block.d.to_bits()
    }
    fn min(block: &BlockQ5K) -> f16 {
        block.dmin
    }
    #[inline]
    fn codes(block: &BlockQ5K, out: &mut [u8]) {
        nibbles::<32>(&block.q, out);
        for (g, group) in out.chunks_exact_mut(32).enumerate() {
            for (code, high) in group.iter_mut().zip(&block.qh) {
                *code |= (high >> g & 1) << 4;
            }
        }
    }
}

pub(super) struct Q6K;
impl PanelFormat for Q6K {
    type Block = BlockQ6K;
    const NAMES: [&'static str; 4] = names!("q6_k");
    fn d(block: &BlockQ6K) -> u16 {
        block.d.to_bits()
    }
    #[inline]
    fn codes(block: &BlockQ6K, out: &mut [u8]) {
        nibbles::<64>(&block.q, out);
        for (half, high) in out.chunks_exact_mut(128).zip(block.qh.as_chunks::<32>().0) {
            for (j, quarter) in half.chunks_exact_mut(32).enumerate() {
                for (code, high) in quarter.iter_mut().zip(high) {
                    *code |= (high >> (2 * j) & 3) << 4;
                }
            }
        }
    }
}

pub(super) struct Iq4Nl;
impl PanelFormat for Iq4Nl {
    type Block = BlockIq4Nl;
    const NAMES: [&'static str; 4] = names!("iq4_nl");
    fn d(block: &BlockIq4Nl) -> u16 {
        block.d.to_bits()
    }
    #[inline]
    fn codes(block: &BlockIq4Nl, out: &mut [u8]) {
        nibbles::<16>(&block.q, out);
    }
}

/// A power of two needs the range of f32, not its precision.
pub(super) struct Mxfp4;
impl PanelFormat for Mxfp4 {
    type Block = BlockMxfp4;
    const NAMES: [&'static str; 4] = names!("mxfp4");
    const BF16: bool = true;
    fn d(block: &BlockMxfp4) -> u16 {
        bf16::from_f32(block.d()).to_bits()
    }
    #[inline]
    fn codes(block: &BlockMxfp4, out: &mut [u8]) {
        nibbles::<16>(&block.q, out);
    }
}

pub(super) struct Iq4Xs;
impl PanelFormat for Iq4Xs {
    type Block = BlockIq4Xs;
    const NAMES: [&'static str; 4] = names!("iq4_xs");
    fn d(block: &BlockIq4Xs) -> u16 {
        block.d.to_bits()
    }
    #[inline]
    fn codes(block: &BlockIq4Xs, out: &mut [u8]) {
        nibbles::<16>(&block.q, out);
    }
}

/// Grid indices and signs are resolved when packing: a panel holds 4 bits per weight, the file 3.25.
pub(super) struct Iq3S;
impl PanelFormat for Iq3S {
    type Block = BlockIq3S;
    const NAMES: [&'static str; 4] = names!("iq3_s");
    fn d(block: &BlockIq3S) -> u16 {
        block.d.to_bits()
    }
}

/// Base-3 digits are resolved when packing: a panel holds 2 bits per weight, the file 1.6.
pub(super) struct Tq1_0;
impl PanelFormat for Tq1_0 {
    type Block = BlockTq1_0;
    const NAMES: [&'static str; 4] = names!("tq1_0");
    fn d(block: &BlockTq1_0) -> u16 {
        block.d.to_bits()
    }
}

pub(super) struct Tq2_0;
impl PanelFormat for Tq2_0 {
    type Block = BlockTq2_0;
    const NAMES: [&'static str; 4] = names!("tq2_0");
    fn d(block: &BlockTq2_0) -> u16 {
        block.d.to_bits()
    }
    #[inline]
    fn codes(block: &BlockTq2_0, out: &mut [u8]) {
        quarters(&block.q, out);
    }
}
