//! Formats of the high and of the low bits of a type's codes: a matrix as the sum of a coarse one and a fine one.
//!
//! ```text
//! code = STEP * high + low                        0 <= low < STEP
//! w    = d * (code - ZERO) = d * (STEP * high + STEP / 2 - ZERO)  +  d * (low - STEP / 2)
//! ```
//!
//! Both have the scales of the whole, so their sum is exact; the coarse one is off by at most half a step. Its codes come
//! from a table, as those of IQ4_NL do.

use half::f16;
use quant::formats::{BlockQ6K, BlockQ8_0};

use super::format::Format;
use super::formats::{Q6K, Q8_0, names};

/// The values of coarse codes: steps from half a step on.
const fn middles(step: u8) -> [u8; 16] {
    let (mut i, mut out) = (0, [0; 16]);
    while i < 16 {
        out[i] = step * i as u8 + step / 2;
        i += 1;
    }
    out
}

/// The high 4 of 8 bits.
pub(super) struct Q8_0Coarse;
impl Format for Q8_0Coarse {
    type Block = BlockQ8_0;
    const NAMES: [&'static str; 4] = names!("q8_0.coarse");
    const LOW: usize = 4;
    const HIGH: usize = 0;
    const LUT: Option<[u8; 16]> = Some(middles(16));
    fn d(block: &BlockQ8_0) -> f16 {
        block.d
    }
    #[inline]
    fn codes(block: &BlockQ8_0, out: &mut [u8]) {
        Q8_0::codes(block, out);
        out.iter_mut().for_each(|code| *code >>= 4);
    }
}

/// The low 4 of 8 bits.
pub(super) struct Q8_0Fine;
impl Format for Q8_0Fine {
    type Block = BlockQ8_0;
    const NAMES: [&'static str; 4] = names!("q8_0.fine");
    const LOW: usize = 4;
    const HIGH: usize = 0;
    const ZERO: i32 = 8;
    const MAX: i32 = 15;
    fn d(block: &BlockQ8_0) -> f16 {
        block.d
    }
    #[inline]
    fn codes(block: &BlockQ8_0, out: &mut [u8]) {
        Q8_0::codes(block, out);
        out.iter_mut().for_each(|code| *code &= 15);
    }
}

/// The high 4 of 6 bits.
pub(super) struct Q6KCoarse;
impl Format for Q6KCoarse {
    type Block = BlockQ6K;
    const NAMES: [&'static str; 4] = names!("q6_k.coarse");
    const LOW: usize = 4;
    const HIGH: usize = 0;
    const LUT: Option<[u8; 16]> = Some(middles(4));
    fn d(block: &BlockQ6K) -> f16 {
        block.d
    }
    #[inline]
    fn codes(block: &BlockQ6K, out: &mut [u8]) {
        Q6K::codes(block, out);
        out.iter_mut().for_each(|code| *code >>= 2);
    }
}

/// The low 2 of 6 bits.
pub(super) struct Q6KFine;
impl Format for Q6KFine {
    type Block = BlockQ6K;
    const NAMES: [&'static str; 4] = names!("q6_k.fine");
    const LOW: usize = 2;
    const HIGH: usize = 0;
    const ZERO: i32 = 2;
    const MAX: i32 = 3;
    fn d(block: &BlockQ6K) -> f16 {
        block.d
    }
    #[inline]
    fn codes(block: &BlockQ6K, out: &mut [u8]) {
        Q6K::codes(block, out);
        out.iter_mut().for_each(|code| *code &= 3);
    }
}
