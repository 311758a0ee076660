//! 16 lanes in an array: what an instruction set without kernels of its own gets, and the emulation of those that the
//! CPU at hand lacks. The compiler makes vectors of it where it can.

use half::{bf16, f16};

use super::{Simd, fused};
use crate::attention::{Elem, Order, Product, tile};
use crate::math::{LANES, greater};

/// Lanes in arrays, for any CPU.
#[derive(Clone, Copy)]
pub struct Portable;

type Array = [f32; LANES];

#[inline(always)]
fn zip(a: &Array, b: &Array, f: impl Fn(f32, f32) -> f32) -> Array {
    std::array::from_fn(|i| f(a[i], b[i]))
}

impl Simd for Portable {
    type V = Array;

    const ROWS: usize = 4;

    #[inline(always)]
    unsafe fn columns<E: Elem, A: Order>(
        self,
        product: &mut Product<'_>,
        rows: usize,
        column: usize,
        _left: usize,
    ) -> usize {
        match rows {
            // SAFETY: the caller guarantees the lengths.
            1 => unsafe { tile::<Portable, E, A, 1, 1>(self, product, column) },
            // SAFETY: the caller guarantees the lengths.
            2 => unsafe { tile::<Portable, E, A, 2, 1>(self, product, column) },
            // SAFETY: the caller guarantees the lengths.
            3 => unsafe { tile::<Portable, E, A, 3, 1>(self, product, column) },
            // SAFETY: the caller guarantees the lengths.
            _ => unsafe { tile::<Portable, E, A, 4, 1>(self, product, column) },
        }
    }

    #[inline(always)]
    fn splat(self, x: f32) -> Array {
        [x; LANES]
    }

    #[inline(always)]
    fn load(self, x: &Array) -> Array {
        *x
    }

    #[inline(always)]
    fn load_bytes(self, x: &[u8; 4 * LANES]) -> Array {
        let words = x.as_chunks::<4>().0;
        std::array::from_fn(|i| f32::from_le_bytes(words[i]))
    }

    #[inline(always)]
    fn load_f16(self, x: &[u8; 2 * LANES]) -> Array {
        let words = x.as_chunks::<2>().0;
        std::array::from_fn(|i| f16::from_le_bytes(words[i]).to_f32())
    }

    #[inline(always)]
    fn load_bf16(self, x: &[u8; 2 * LANES]) -> Array {
        let words = x.as_chunks::<2>().0;
        std::array::from_fn(|i| bf16::from_le_bytes(words[i]).to_f32())
    }

    #[inline(always)]
    fn load_i8(self, x: &[u8; LANES]) -> Array {
        x.map(|byte| f32::from(byte.cast_signed()))
    }

    #[inline(always)]
    fn store(self, x: Array, out: &mut Array) {
        *out = x;
    }

    #[inline(always)]
    fn add(self, a: Array, b: Array) -> Array {
        zip(&a, &b, |a, b| a + b)
    }

    #[inline(always)]
    fn sub(self, a: Array, b: Array) -> Array {
        zip(&a, &b, |a, b| a - b)
    }

    #[inline(always)]
    fn mul(self, a: Array, b: Array) -> Array {
        zip(&a, &b, |a, b| a * b)
    }

    #[inline(always)]
    fn div(self, a: Array, b: Array) -> Array {
        zip(&a, &b, |a, b| a / b)
    }

    #[inline(always)]
    fn fma(self, a: Array, b: Array, c: Array) -> Array {
        if cfg!(any(target_feature = "fma", target_arch = "aarch64")) {
            return std::array::from_fn(|i| a[i].mul_add(b[i], c[i]));
        }
        fused::fma(&a, &b, &c)
    }

    #[inline(always)]
    fn fnma(self, a: Array, b: Array, c: Array) -> Array {
        self.fma(a.map(|a| -a), b, c)
    }

    #[inline(always)]
    fn min(self, a: Array, b: Array) -> Array {
        zip(&a, &b, |a, b| if a < b { a } else { b })
    }

    #[inline(always)]
    fn max(self, a: Array, b: Array) -> Array {
        zip(&a, &b, greater)
    }

    #[inline(always)]
    fn less(self, a: Array, b: Array, yes: Array, no: Array) -> Array {
        std::array::from_fn(|i| if a[i] < b[i] { yes[i] } else { no[i] })
    }

    #[inline(always)]
    fn power(self, x: Array) -> Array {
        x.map(|x| f32::from_bits((x.to_bits() << 23).wrapping_add(0x3f80_0000)))
    }

    #[inline(always)]
    fn first(self, x: Array, n: usize, other: Array) -> Array {
        std::array::from_fn(|i| if i < n { x[i] } else { other[i] })
    }
}
