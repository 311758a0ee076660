//! Quantized panels multiplied four columns at a time, written once over [`Quads`].
//!
//! An instruction set that adds four products of 8-bit codes to each of 16 rows at once (AVX-512 VNNI, and others that
//! have such a product) implements the operations of [`Quads`] and the functions from where the kernels here are compiled
//! for it. [`Portable`](crate::lanes::Portable) does them in arrays (`portable/quads.rs`): it serves where there is nothing better, and shows on
//! any CPU that the code over the operations is right.
//!
//! Whoever holds a token of the set may use its operations, as in [`crate::lanes`]: all from there down is
//! `#[inline(always)]`.

mod stream;
mod tile;

pub(in crate::linear) use stream::panels;
pub(in crate::linear) use tile::{Tiles, Unpacked, tile, unpack};

use super::gemm::TileFn;
use crate::lanes::Simd;
use crate::linear::format::{PanelFormat, Scales};

/// Operations on 64 bytes: 16 rows of four bytes, of two int16 or of one int32.
pub(in crate::linear) trait Quads: Copy + 'static {
    /// 64 bytes.
    type I: Copy;
    /// 16 lanes of f32 on the same instruction set.
    type Lanes: Simd;

    /// Columns of the widest tile.
    const WIDTH: usize;

    /// [`unpack`], compiled for the instruction set.
    ///
    /// # Safety
    /// The CPU has it.
    unsafe fn unpack<F: PanelFormat>(blocks: &[u8], out: &mut Unpacked);

    /// [`tile`] of `n` columns, at most [`WIDTH`](Self::WIDTH), compiled for the instruction set.
    fn tile<F: PanelFormat>(n: usize) -> TileFn<Unpacked>;

    /// The token of the lanes.
    fn lanes(self) -> Self::Lanes;

    fn load(self, x: &[u8; 64]) -> Self::I;
    fn store(self, x: Self::I, out: &mut [u8; 64]);
    /// 16 int8 as int32.
    fn widen(self, x: &[u8; 16]) -> Self::I;
    /// The same int32 in every row.
    fn splat(self, x: i32) -> Self::I;
    fn and(self, a: Self::I, b: Self::I) -> Self::I;
    fn or(self, a: Self::I, b: Self::I) -> Self::I;
    /// Logical shift of the 16-bit lanes by a constant below 16: left if it is negative.
    fn shift(self, x: Self::I, right: i32) -> Self::I;
    /// Entry `index` of the table for each byte; indices are below 16.
    fn lookup(self, table: [u8; 16], index: Self::I) -> Self::I;
    /// The low halves of `a` and of `b` as pairs of int16.
    fn pair(self, a: Self::I, b: Self::I) -> Self::I;
    /// Sum of int32, wrapping.
    fn add(self, a: Self::I, b: Self::I) -> Self::I;
    /// Product of int32, wrapping.
    fn mul(self, a: Self::I, b: Self::I) -> Self::I;
    /// `sum` plus four products in each row: unsigned bytes with the signed bytes of `a`. Wraps, as int32.
    fn dot_bytes(self, sum: Self::I, bytes: Self::I, a: i32) -> Self::I;
    /// `sum` plus two products in each row: int16 with the int16 of `a`. Wraps, as int32.
    fn dot_pairs(self, sum: Self::I, pairs: Self::I, a: i32) -> Self::I;
    /// int32 to the nearest f32.
    fn float(self, x: Self::I) -> V<Self>;
}

/// 16 lanes of f32.
type V<Q> = <<Q as Quads>::Lanes as Simd>::V;

/// The 16 rows' values that begin at byte `at` of a header.
#[inline(always)]
fn halves<Q: Quads>(quads: Q, header: &[u8], at: usize) -> V<Q> {
    quads.lanes().load_f16(header[at..].first_chunk().expect("a header holds 16 halves from here"))
}

/// The 16 rows' scales.
#[inline(always)]
fn scales<Q: Quads, F: PanelFormat>(quads: Q, header: &[u8]) -> V<Q> {
    if F::BF16 {
        quads.lanes().load_bf16(header.first_chunk().expect("a header begins with 16 scales"))
    } else {
        halves(quads, header, 0)
    }
}

/// The 16 rows' small integers that begin at byte `at` of a header.
#[inline(always)]
fn small<Q: Quads>(quads: Q, header: &[u8], at: usize) -> Q::I {
    quads.widen(header[at..].first_chunk().expect("a header holds 16 integers from here"))
}

/// The fields of `bits` bits of step `J` of a plane, at bit `to` of each byte.
#[inline(always)]
fn plane<Q: Quads, const J: usize>(quads: Q, plane: &[u8], bits: usize, to: usize) -> Q::I {
    let steps = 8 / bits;
    let line = quads.load(plane[J / steps * 64..].first_chunk().expect("a plane has this line"));
    if bits == 8 {
        return line;
    }
    let field = quads.shift(line, (bits * (J % steps)) as i32 - to as i32);
    let mask = (((1 << bits) - 1) << to) as u8;
    quads.and(field, quads.splat(i32::from_ne_bytes([mask; 4])))
}

/// The unsigned codes of step `J` of a group.
#[inline(always)]
fn step<Q: Quads, F: PanelFormat, const J: usize>(quads: Q, group: &[u8]) -> Q::I {
    let (low, high) = group.split_at(64 * F::LOW);
    let mut codes = plane::<Q, J>(quads, low, F::LOW, 0);
    if F::HIGH > 0 {
        codes = quads.or(codes, plane::<Q, J>(quads, high, F::HIGH, F::LOW));
    }
    match F::LUT {
        Some(lut) => quads.lookup(lut, codes),
        None => codes,
    }
}

/// The unsigned codes of all 8 steps of a group.
#[inline(always)]
fn steps<Q: Quads, F: PanelFormat>(quads: Q, group: &[u8]) -> [Q::I; 8] {
    [
        step::<Q, F, 0>(quads, group),
        step::<Q, F, 1>(quads, group),
        step::<Q, F, 2>(quads, group),
        step::<Q, F, 3>(quads, group),
        step::<Q, F, 4>(quads, group),
        step::<Q, F, 5>(quads, group),
        step::<Q, F, 6>(quads, group),
        step::<Q, F, 7>(quads, group),
    ]
}

/// The integer scales and minima of 32 columns, of each half if they have their own.
struct Factors<Q: Quads> {
    scale: [Q::I; 2],
    min: [Q::I; 2],
}

impl<Q: Quads> Factors<Q> {
    /// Of group `g`.
    #[inline(always)]
    fn new<F: PanelFormat>(quads: Q, header: &[u8], g: usize) -> Factors<Q> {
        let one = [quads.splat(1); 2];
        let at = F::SCALES.small();
        match F::SCALES {
            Scales::Block | Scales::BlockMin | Scales::Super => Factors { scale: one, min: one },
            Scales::Groups => Factors { scale: [small(quads, header, at + 16 * g); 2], min: one },
            Scales::GroupsMin => Factors {
                scale: [small(quads, header, at + 16 * g); 2],
                min: [small(quads, header, at + 128 + 16 * g); 2],
            },
            Scales::Halves => {
                let at = at + 32 * g;
                let scale = [small(quads, header, at), small(quads, header, at + 16)];
                Factors { scale, min: one }
            }
            Scales::HalvesMin => {
                let at = at + 32 * g;
                let (a, b) = (small(quads, header, at), small(quads, header, at + 16));
                let low = quads.splat(15);
                Factors {
                    scale: [quads.and(a, low), quads.and(b, low)],
                    min: [quads.and(quads.shift(a, 4), low), quads.and(quads.shift(b, 4), low)],
                }
            }
        }
    }
}
