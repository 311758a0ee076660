//! Formats of the high and of the low bits of a type's codes: a matrix as the sum of a coarse one and a fine one.
//!
//! ```text
//! code = STEP * high + low                        0 <= low < STEP
//! w    = d * (code - ZERO) = d * (STEP * high + STEP / 2 - ZERO)  +  d * (low - STEP / 2)
//! ```
//!
//! Both have the scales of the whole, so their sum is exact; the coarse one is off by at most half a step. Its codes come
//! from a table, as those of IQ4_NL do.

use std::marker::PhantomData;

use half::f16;

use super::format::Format;
use super::formats::{Q6K, Q8_0, names};

/// A format whose codes are split: the high 4 bits are coarse, the others fine.
pub(super) trait Split: Format {
    /// Names of the kernels of its coarse matrix, as in [`Format::NAMES`].
    const COARSE: [&'static str; 4];
    /// Names of those of its fine one.
    const FINE: [&'static str; 4];
}

impl Split for Q8_0 {
    const COARSE: [&'static str; 4] = names!("q8_0.coarse");
    const FINE: [&'static str; 4] = names!("q8_0.fine");
}

impl Split for Q6K {
    const COARSE: [&'static str; 4] = names!("q6_k.coarse");
    const FINE: [&'static str; 4] = names!("q6_k.fine");
}

/// Fine bits of a code.
const fn fine_bits<F: Format>() -> usize {
    F::LOW + F::HIGH - 4
}

/// The values of coarse codes: steps from half a step on.
const fn middles(step: u8) -> [u8; 16] {
    let (mut i, mut out) = (0, [0; 16]);
    while i < 16 {
        out[i] = step * i as u8 + step / 2;
        i += 1;
    }
    out
}

/// The high 4 bits of the codes of `F`.
pub(super) struct Coarse<F>(PhantomData<F>);
impl<F: Split> Format for Coarse<F> {
    type Block = F::Block;
    const NAMES: [&'static str; 4] = F::COARSE;
    const LOW: usize = 4;
    const HIGH: usize = 0;
    const LUT: Option<[u8; 16]> = Some(middles(1 << fine_bits::<F>()));
    fn d(block: &F::Block) -> f16 {
        F::d(block)
    }
    #[inline]
    fn codes(block: &F::Block, out: &mut [u8]) {
        F::codes(block, out);
        out.iter_mut().for_each(|code| *code >>= fine_bits::<F>());
    }
}

/// The low bits of the codes of `F`.
pub(super) struct Fine<F>(PhantomData<F>);
impl<F: Split> Format for Fine<F> {
    type Block = F::Block;
    const NAMES: [&'static str; 4] = F::FINE;
    const LOW: usize = fine_bits::<F>();
    const HIGH: usize = 0;
    const ZERO: i32 = 1 << (fine_bits::<F>() - 1);
    const MAX: i32 = (1 << fine_bits::<F>()) - 1;
    fn d(block: &F::Block) -> f16 {
        F::d(block)
    }
    #[inline]
    fn codes(block: &F::Block, out: &mut [u8]) {
        F::codes(block, out);
        out.iter_mut().for_each(|code| *code &= Self::MAX as u8);
    }
}
