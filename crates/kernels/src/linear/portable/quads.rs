//! [`Quads`] in arrays.

use crate::lanes::Portable;
use crate::linear::PANEL_ROWS;
use crate::linear::format::PanelFormat;
use crate::linear::generic::gemm::TileFn;
use crate::linear::generic::quads::{self, Quads, Unpacked};

fn tile<F: PanelFormat, const N: usize>(unpacked: &Unpacked, activations: &[i32], c: &mut [f32]) {
    quads::tile::<Portable, F, N>(Portable, unpacked, activations, c);
}

/// One int32 per weight row.
type Array = [i32; PANEL_ROWS];

#[inline(always)]
fn zip(a: &Array, b: &Array, f: impl Fn(i32, i32) -> i32) -> Array {
    std::array::from_fn(|r| f(a[r], b[r]))
}

/// The two int16 of a word, lower first.
#[inline(always)]
fn int16(word: i32) -> [i32; 2] {
    [i32::from(word as i16), word >> 16]
}

/// Operations on 16 rows of four bytes, of two int16 or of one int32, as `Quads` describes them.
impl Portable {
    /// Shifts the 16-bit lanes by a constant below 16: to the right, or to the left if it is negative.
    #[inline(always)]
    pub fn shift(self, x: Array, right: i32) -> Array {
        // What crosses from one half of a word to the other is cleared.
        let halves = |half: u16| (u32::from(half) * 0x1_0001).cast_signed();
        if right >= 0 {
            x.map(|x| (x.cast_unsigned() >> right).cast_signed() & halves(u16::MAX >> right))
        } else {
            x.map(|x| x << -right & halves(u16::MAX << -right))
        }
    }

    /// Returns the entry `index` of the table for each byte.
    #[inline(always)]
    pub fn lookup(self, table: [u8; 16], index: Array) -> Array {
        index.map(|x| i32::from_le_bytes(x.to_le_bytes().map(|i| table[usize::from(i % 16)])))
    }

    /// Joins the low halves of `a` and of `b` to pairs of int16.
    #[inline(always)]
    pub fn pair(self, a: Array, b: Array) -> Array {
        zip(&a, &b, |a, b| (a & 0xffff) | (b << 16))
    }

    /// Returns `sum` plus four products in each row: unsigned bytes with the signed bytes of `a`. Wraps.
    #[inline(always)]
    pub fn dot_bytes(self, sum: Array, bytes: Array, a: i32) -> Array {
        let a = a.to_le_bytes().map(|a| i32::from(a.cast_signed()));
        zip(&sum, &bytes, |sum, bytes| {
            let q = bytes.to_le_bytes().map(i32::from);
            let products = q[0] * a[0] + q[1] * a[1] + q[2] * a[2] + q[3] * a[3];
            sum.wrapping_add(products)
        })
    }

    /// Returns `sum` plus two products in each row: int16 with the int16 of `a`. Wraps.
    #[inline(always)]
    pub fn dot_pairs(self, sum: Array, pairs: Array, a: i32) -> Array {
        let a = int16(a);
        zip(&sum, &pairs, |sum, pairs| {
            let p = int16(pairs);
            sum.wrapping_add((p[0] * a[0]).wrapping_add(p[1] * a[1]))
        })
    }
}

impl Quads for Portable {
    type I = Array;
    type Lanes = Portable;

    const WIDTH: usize = 4;

    unsafe fn unpack<F: PanelFormat>(blocks: &[u8], out: &mut Unpacked) {
        quads::unpack::<Portable, F>(Portable, blocks, out);
    }

    fn tile<F: PanelFormat>(n: usize) -> TileFn<Unpacked> {
        match n {
            1 => tile::<F, 1>,
            2 => tile::<F, 2>,
            3 => tile::<F, 3>,
            _ => tile::<F, 4>,
        }
    }

    #[inline(always)]
    fn lanes(self) -> Portable {
        self
    }

    #[inline(always)]
    fn load(self, x: &[u8; 64]) -> Array {
        let words = x.as_chunks::<4>().0;
        std::array::from_fn(|r| i32::from_le_bytes(words[r]))
    }

    #[inline(always)]
    fn store(self, x: Array, out: &mut [u8; 64]) {
        for (out, word) in out.as_chunks_mut::<4>().0.iter_mut().zip(x) {
            *out = word.to_le_bytes();
        }
    }

    #[inline(always)]
    fn widen(self, x: &[u8; 16]) -> Array {
        x.map(|byte| i32::from(byte.cast_signed()))
    }

    #[inline(always)]
    fn splat(self, x: i32) -> Array {
        [x; PANEL_ROWS]
    }

    #[inline(always)]
    fn and(self, a: Array, b: Array) -> Array {
        zip(&a, &b, |a, b| a & b)
    }

    #[inline(always)]
    fn or(self, a: Array, b: Array) -> Array {
        zip(&a, &b, |a, b| a | b)
    }

    #[inline(always)]
    fn shift(self, x: Array, right: i32) -> Array {
        Portable::shift(self, x, right)
    }

    #[inline(always)]
    fn lookup(self, table: [u8; 16], index: Array) -> Array {
        Portable::lookup(self, table, index)
    }

    #[inline(always)]
    fn pair(self, a: Array, b: Array) -> Array {
        Portable::pair(self, a, b)
    }

    #[inline(always)]
    fn add(self, a: Array, b: Array) -> Array {
        zip(&a, &b, i32::wrapping_add)
    }

    #[inline(always)]
    fn mul(self, a: Array, b: Array) -> Array {
        zip(&a, &b, i32::wrapping_mul)
    }

    #[inline(always)]
    fn dot_bytes(self, sum: Array, bytes: Array, a: i32) -> Array {
        Portable::dot_bytes(self, sum, bytes, a)
    }

    #[inline(always)]
    fn dot_pairs(self, sum: Array, pairs: Array, a: i32) -> Array {
        Portable::dot_pairs(self, sum, pairs, a)
    }

    #[inline(always)]
    fn float(self, x: Array) -> [f32; PANEL_ROWS] {
        x.map(|x| x as f32)
    }
}
