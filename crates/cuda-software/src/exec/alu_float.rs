//! 32-bit floats, comparisons of 16-bit ones, and conversions.

use super::alu_int::{bounds, lanewise};
use super::half;
use super::warp::{LANES, Warp};
use crate::ptx::{Cmp, Instr, Int, Op, Rounding};

impl Warp {
    #[inline(always)]
    fn float1(&mut self, i: &Instr, mask: u32, f: impl Fn(f32) -> f32) {
        self.one(i, mask, |a| bits_of(f(f32::from_bits(a))));
    }

    #[inline(always)]
    fn float2(&mut self, i: &Instr, mask: u32, f: impl Fn(f32, f32) -> f32) {
        self.two(i, mask, |a, b| bits_of(f(f32::from_bits(a), f32::from_bits(b))));
    }

    /// A function that is computed in f64 and rounded.
    #[inline(always)]
    fn approximate(&mut self, i: &Instr, mask: u32, f: impl Fn(f64) -> f64) {
        let a = self.w(i.a);
        let mut out = [0; LANES];
        for lane in super::access::lanes(mask) {
            out[lane] = bits_of(f(f64::from(f32::from_bits(a[lane]))) as f32);
        }
        self.set(i.d, mask, out);
    }

    /// Computes an instruction of floats.
    #[inline(always)]
    pub(super) fn compute_float(&mut self, i: &Instr, mask: u32) {
        match i.op {
            Op::AddF => self.float2(i, mask, |a, b| a + b),
            Op::SubF => self.float2(i, mask, |a, b| a - b),
            Op::MulF => self.float2(i, mask, |a, b| a * b),
            Op::DivF => self.float2(i, mask, |a, b| a / b),
            Op::FmaF => self.three(i, mask, |a, b, c| {
                bits_of(f32::from_bits(a).mul_add(f32::from_bits(b), f32::from_bits(c)))
            }),
            Op::RcpF => self.float1(i, mask, |a| 1.0 / a),
            Op::SqrtF => self.float1(i, mask, f32::sqrt),
            Op::RsqrtF => self.float1(i, mask, |a| (1.0 / f64::from(a).sqrt()) as f32),
            Op::Ex2F => self.approximate(i, mask, f64::exp2),
            Op::Lg2F => self.approximate(i, mask, f64::log2),
            Op::SinF => self.approximate(i, mask, f64::sin),
            Op::CosF => self.approximate(i, mask, f64::cos),
            Op::TanhF => self.approximate(i, mask, f64::tanh),
            Op::MinF => self.two(i, mask, min),
            Op::MaxF => self.two(i, mask, max),
            Op::AbsF => self.one(i, mask, |a| a & 0x7fff_ffff),
            Op::NegF => self.one(i, mask, |a| a ^ 0x8000_0000),
            Op::CopysignF => self.two(i, mask, |a, b| a & 0x8000_0000 | b & 0x7fff_ffff),
            // Comparisons that are false for NaN give 0.
            Op::SatF => {
                self.float1(i, mask, |a| if a > 0.0 { if a < 1.0 { a } else { 1.0 } } else { 0.0 })
            }
            Op::RoundF(rounding) => self.float1(i, mask, |a| round(a, rounding)),
            Op::NegH => self.one(i, mask, |a| a ^ 0x8000),
            Op::AbsH => self.one(i, mask, |a| a & 0x7fff),
            Op::MinH => self.two(i, mask, |a, b| half_of(min(full(a), full(b)))),
            Op::MaxH => self.two(i, mask, |a, b| half_of(max(full(a), full(b)))),
            Op::SetpF(cmp) => {
                let value = compare(cmp, self.w(i.a), self.w(i.b));
                self.set_predicate(i.d, mask, value);
            }
            Op::SetpH(cmp) => {
                let (a, b) = (self.w(i.a), self.w(i.b));
                let value = compare(cmp, lanewise(|l| full(a[l])), lanewise(|l| full(b[l])));
                self.set_predicate(i.d, mask, value);
            }
            Op::F32ToF16 => self.one(i, mask, half_of),
            Op::F16ToF32 => self.one(i, mask, |a| bits_of(half::to_f32(a))),
            Op::IntToF32(true) => self.one(i, mask, |a| (a.cast_signed() as f32).to_bits()),
            Op::IntToF32(false) => self.one(i, mask, |a| (a as f32).to_bits()),
            Op::IntToF16(true) => self.one(i, mask, |a| half::from_f64(f64::from(a.cast_signed()))),
            Op::IntToF16(false) => self.one(i, mask, |a| half::from_f64(f64::from(a))),
            Op::F32ToInt(Int { bits: 32, signed: true }, rounding) => {
                self.one(i, mask, |a| (round(f32::from_bits(a), rounding) as i32).cast_unsigned())
            }
            Op::F32ToInt(Int { bits: 32, signed: false }, rounding) => {
                self.one(i, mask, |a| round(f32::from_bits(a), rounding) as u32);
            }
            Op::F32ToInt(int, rounding) => self.one(i, mask, |a| {
                let (low, high) = bounds(int);
                (round(f32::from_bits(a), rounding) as i64).clamp(low, high) as u32
            }),
            Op::F32ToInt64(s, rounding) => {
                let a = self.w(i.a);
                let out = lanewise(|l| {
                    let value = round(f32::from_bits(a[l]), rounding);
                    if s { (value as i64).cast_unsigned() } else { value as u64 }
                });
                self.set_wide(i.d, mask, out);
            }
            // All others are control flow, memory and integers, which `run_loop` and `compute`
            // execute.
            _ => unreachable!("{:?} computes nothing", i.op),
        }
    }
}

/// Bits of a result: every NaN is the one that a card makes.
#[inline(always)]
fn bits_of(value: f32) -> u32 {
    if value.is_nan() { 0x7fff_ffff } else { value.to_bits() }
}

#[inline(always)]
fn full(half: u32) -> u32 {
    half::to_f32(half).to_bits()
}

#[inline(always)]
fn half_of(bits: u32) -> u32 {
    half::from_f32(f32::from_bits(bits))
}

/// Bits ordered as the floats are, -0 below +0.
#[inline(always)]
fn order(bits: u32) -> i32 {
    let sign = bits.cast_signed() >> 31;
    bits.cast_signed() ^ (sign & 0x7fff_ffff)
}

#[inline(always)]
fn is_nan(bits: u32) -> bool {
    bits & 0x7fff_ffff > 0x7f80_0000
}

/// Lesser operand; the other one where one is NaN, the canonical NaN where both are.
#[inline(always)]
fn min(a: u32, b: u32) -> u32 {
    choose(a, b, order(a) < order(b))
}

/// Greater operand, NaN as in `min`.
#[inline(always)]
fn max(a: u32, b: u32) -> u32 {
    choose(a, b, order(a) > order(b))
}

#[inline(always)]
fn choose(a: u32, b: u32, first: bool) -> u32 {
    let other = if is_nan(b) { 0x7fff_ffff } else { b };
    let chosen = if first { a } else { b };
    if is_nan(a) {
        other
    } else if is_nan(b) {
        a
    } else {
        chosen
    }
}

#[inline(always)]
fn round(value: f32, rounding: Rounding) -> f32 {
    match rounding {
        Rounding::Nearest => value.round_ties_even(),
        Rounding::Zero => value.trunc(),
        Rounding::Down => value.floor(),
        Rounding::Up => value.ceil(),
    }
}

#[inline(always)]
fn compare(cmp: Cmp, a: [u32; LANES], b: [u32; LANES]) -> u32 {
    #[inline(always)]
    fn bits(a: [u32; LANES], b: [u32; LANES], f: impl Fn(f32, f32) -> bool) -> u32 {
        let mut out = 0;
        for lane in 0..LANES {
            out |= u32::from(f(f32::from_bits(a[lane]), f32::from_bits(b[lane]))) << lane;
        }
        out
    }
    match cmp {
        Cmp::Eq => bits(a, b, |x, y| x == y),
        Cmp::Ne => bits(a, b, |x, y| (x < y) | (x > y)),
        Cmp::Lt => bits(a, b, |x, y| x < y),
        Cmp::Le => bits(a, b, |x, y| x <= y),
        Cmp::Gt => bits(a, b, |x, y| x > y),
        Cmp::Ge => bits(a, b, |x, y| x >= y),
        Cmp::Equ => !bits(a, b, |x, y| (x < y) | (x > y)),
        Cmp::Neu => bits(a, b, |x, y| x != y),
        Cmp::Ltu => !bits(a, b, |x, y| x >= y),
        Cmp::Leu => !bits(a, b, |x, y| x > y),
        Cmp::Gtu => !bits(a, b, |x, y| x <= y),
        Cmp::Geu => !bits(a, b, |x, y| x < y),
        Cmp::Num => !bits(a, b, |x, y| x.is_nan() || y.is_nan()),
        Cmp::Nan => bits(a, b, |x, y| x.is_nan() || y.is_nan()),
    }
}
