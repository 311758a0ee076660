//! Functions of numbers.

use std::rc::Rc;

use naga::{Expression, Handle, MathFunction as Fun};

use crate::Error;
use crate::arith::float;
use crate::code::{Class, Kind, Scalar};
use crate::layout::Ty;
use crate::translator::{Result, Translator};

const ZERO: Scalar = Scalar::Bits(0);
const ONE: Scalar = float(1.0);
/// Sums of it and of floats up to 2^22 are integers.
const BESIDE: f32 = 12_582_912.0;
/// The logarithm of e to base 2, and what f32 loses of it.
const LOG2_E: f32 = std::f32::consts::LOG2_E;
const LOG2_E_REST: f32 = 1.925_963e-8;

fn no_function(fun: Fun, ty: Ty) -> crate::translator::Stop {
    Error::unsupported(format!("{fun:?} of {ty:?}")).into()
}

impl Translator<'_> {
    pub(crate) fn math(
        &mut self,
        fun: Fun,
        arguments: &[Handle<Expression>],
    ) -> Result<Rc<[Scalar]>> {
        let ty = self.ty(arguments[0])?;
        let all = arguments.iter().map(|argument| self.scalars(*argument));
        let all: Vec<Rc<[Scalar]>> = all.collect::<Result<_>>()?;
        let one = |s: Scalar| Ok(Rc::from([s]));
        match fun {
            Fun::Dot => one(self.dot(ty, &all[0], &all[1])?),
            Fun::Dot4I8Packed | Fun::Dot4U8Packed => {
                let is_signed = fun == Fun::Dot4I8Packed;
                let op = if is_signed { "dp4a.s32.s32" } else { "dp4a.u32.u32" };
                one(self.word(op, &[all[0][0], all[1][0], ZERO]))
            }
            Fun::Length | Fun::Distance | Fun::Normalize | Fun::Cross if ty == Ty::F32 => {
                self.geometry(fun, &all)
            }
            Fun::Unpack2x16float => Ok(self.unpacked_halves(all[0][0]).into()),
            Fun::Pack2x16float => {
                let halves = [0, 1].map(|i| {
                    Scalar::Reg({
                        let half = self.narrowed(all[0][i]);
                        self.b.in_reg(half, Class::B16)
                    })
                });
                one(self.b.op_of("mov.b32", Class::B32, &halves, Kind::Pack))
            }
            Fun::Unpack4xU8 | Fun::Unpack4xI8 => {
                let op = if fun == Fun::Unpack4xU8 { "bfe.u32" } else { "bfe.s32" };
                let at = [0, 8, 16, 24].map(Scalar::Bits);
                Ok(at.map(|at| self.word(op, &[all[0][0], at, Scalar::Bits(8)])).into())
            }
            Fun::Pack4xU8 | Fun::Pack4xI8 => one(self.packed_bytes(&all[0])),
            Fun::Pack4xU8Clamp | Fun::Pack4xI8Clamp => {
                let (low, high, op) = match fun {
                    Fun::Pack4xU8Clamp => (0, 255, ["max.u32", "min.u32"]),
                    _ => ((-128i32).cast_unsigned(), 127, ["max.s32", "min.s32"]),
                };
                let each = all[0].iter().map(|s| {
                    let above = self.word(op[0], &[*s, Scalar::Bits(low)]);
                    self.word(op[1], &[above, Scalar::Bits(high)])
                });
                let each: Vec<_> = each.collect();
                one(self.packed_bytes(&each))
            }
            _ => {
                let n = all.iter().map(|argument| argument.len()).max().unwrap_or(1);
                let each = (0..n).map(|i| {
                    let of =
                        |argument: &Rc<[Scalar]>| argument[if argument.len() == 1 { 0 } else { i }];
                    let operands: Vec<_> = all.iter().map(of).collect();
                    self.each(fun, ty, &operands)
                });
                each.collect()
            }
        }
    }

    /// A function of each number of vectors.
    fn each(&mut self, fun: Fun, ty: Ty, x: &[Scalar]) -> Result<Scalar> {
        match ty {
            Ty::F32 => self.of_float(fun, x),
            Ty::F16 => {
                if fun == Fun::Fma {
                    return Ok(self.b.op("fma.rn.f16", Class::B16, x));
                }
                let wide: Vec<_> = x.iter().map(|x| self.widened(*x)).collect();
                let result = self.of_float(fun, &wide)?;
                Ok(self.narrowed(result))
            }
            Ty::I32 | Ty::U32 => self.of_integer(fun, ty, x),
            Ty::Bool | Ty::Part => Err(no_function(fun, ty)),
        }
    }

    fn of_float(&mut self, fun: Fun, x: &[Scalar]) -> Result<Scalar> {
        Ok(match fun {
            Fun::Abs => self.word("abs.f32", &[x[0]]),
            Fun::Min => self.word("min.f32", &[x[0], x[1]]),
            Fun::Max => self.word("max.f32", &[x[0], x[1]]),
            Fun::Clamp => {
                let above = self.word("max.f32", &[x[0], x[1]]);
                self.word("min.f32", &[above, x[2]])
            }
            Fun::Saturate => {
                let above = self.word("max.f32", &[x[0], ZERO]);
                self.word("min.f32", &[above, ONE])
            }
            Fun::Floor => self.word("cvt.rmi.f32.f32", &[x[0]]),
            Fun::Ceil => self.word("cvt.rpi.f32.f32", &[x[0]]),
            Fun::Trunc => self.word("cvt.rzi.f32.f32", &[x[0]]),
            Fun::Round => self.word("cvt.rni.f32.f32", &[x[0]]),
            Fun::Fract => {
                let floor = self.word("cvt.rmi.f32.f32", &[x[0]]);
                self.word("sub.rn.f32", &[x[0], floor])
            }
            Fun::Fma => self.word("fma.rn.f32", x),
            Fun::Sqrt => self.word("sqrt.rn.f32", &[x[0]]),
            Fun::InverseSqrt => self.word("rsqrt.approx.f32", &[x[0]]),
            Fun::Exp => self.exp(x[0]),
            Fun::Exp2 => self.word("ex2.approx.f32", &[x[0]]),
            Fun::Log2 => self.word("lg2.approx.f32", &[x[0]]),
            Fun::Log => {
                let log = self.word("lg2.approx.f32", &[x[0]]);
                self.word("mul.rn.f32", &[log, float(std::f32::consts::LN_2)])
            }
            Fun::Pow => {
                let log = self.word("lg2.approx.f32", &[x[0]]);
                let power = self.word("mul.rn.f32", &[log, x[1]]);
                self.word("ex2.approx.f32", &[power])
            }
            Fun::Tanh => self.tanh(x[0]),
            Fun::Sign => {
                let is_above = self.truth("setp.gt.f32", &[x[0], ZERO]);
                let is_below = self.truth("setp.lt.f32", &[x[0], ZERO]);
                let below = self.word("selp.b32", &[float(-1.0), ZERO, is_below]);
                self.word("selp.b32", &[ONE, below, is_above])
            }
            Fun::Step => {
                let is_in = self.truth("setp.ge.f32", &[x[1], x[0]]);
                self.word("selp.b32", &[ONE, ZERO, is_in])
            }
            Fun::Mix => {
                let rest = self.word("sub.rn.f32", &[ONE, x[2]]);
                let one = self.word("mul.rn.f32", &[x[0], rest]);
                self.word("fma.rn.f32", &[x[1], x[2], one])
            }
            Fun::SmoothStep => {
                let width = self.word("sub.rn.f32", &[x[1], x[0]]);
                let at = self.word("sub.rn.f32", &[x[2], x[0]]);
                let at = self.quotient(at, width);
                let at = self.of_float(Fun::Saturate, &[at])?;
                let factor = self.word("fma.rn.f32", &[at, float(-2.0), float(3.0)]);
                let square = self.word("mul.rn.f32", &[at, at]);
                self.word("mul.rn.f32", &[square, factor])
            }
            Fun::Degrees => self.word("mul.rn.f32", &[x[0], float(180.0 / std::f32::consts::PI)]),
            Fun::Radians => self.word("mul.rn.f32", &[x[0], float(std::f32::consts::PI / 180.0)]),
            Fun::QuantizeToF16 => {
                let half = self.narrowed(x[0]);
                self.widened(half)
            }
            _ => return Err(no_function(fun, Ty::F32)),
        })
    }

    /// e to a power: 2 to the nearest integer of its product with log2 e, times 2 to the rest.
    fn exp(&mut self, x: Scalar) -> Scalar {
        // what is beyond is 0 or infinite anyway; what is no number stays none by the rest
        let bounded = self.word("max.f32", &[x, float(-200.0)]);
        let bounded = self.word("min.f32", &[bounded, float(200.0)]);
        let beside = self.word("fma.rn.f32", &[bounded, float(LOG2_E), float(BESIDE)]);
        let whole = self.word("sub.rn.f32", &[beside, float(BESIDE)]);
        let negative = self.word("neg.f32", &[whole]);
        let rest = self.word("fma.rn.f32", &[x, float(LOG2_E), negative]);
        let rest = self.word("fma.rn.f32", &[x, float(LOG2_E_REST), rest]);
        let of_rest = self.word("ex2.approx.f32", &[rest]);
        // one power less and twice the rest, so that the largest numbers have room
        let less = self.word("add.rn.f32", &[whole, float(-1.0)]);
        let power = self.word("ex2.approx.f32", &[less]);
        let twice = self.word("add.rn.f32", &[of_rest, of_rest]);
        self.word("mul.rn.f32", &[twice, power])
    }

    fn tanh(&mut self, x: Scalar) -> Scalar {
        let size = self.word("abs.f32", &[x]);
        let twice = self.word("mul.rn.f32", &[size, float(-2.0)]);
        let e = self.exp(twice);
        let above = self.word("sub.rn.f32", &[ONE, e]);
        let below = self.word("add.rn.f32", &[ONE, e]);
        let far = self.quotient(above, below);
        // near 0 that cancels: the first terms of the series
        let square = self.word("mul.rn.f32", &[x, x]);
        let terms = [62.0 / 2835.0, -17.0 / 315.0, 2.0 / 15.0, -1.0 / 3.0];
        let sum = terms[1..].iter().fold(float(terms[0]), |sum, term| {
            self.word("fma.rn.f32", &[sum, square, float(*term)])
        });
        let cube = self.word("mul.rn.f32", &[square, size]);
        let near = self.word("fma.rn.f32", &[sum, cube, size]);
        let is_near = self.truth("setp.lt.f32", &[size, float(0.25)]);
        let found = self.word("selp.b32", &[near, far, is_near]);
        let sign = self.word("and.b32", &[x, Scalar::Bits(1 << 31)]);
        self.word("or.b32", &[found, sign])
    }

    fn of_integer(&mut self, fun: Fun, ty: Ty, x: &[Scalar]) -> Result<Scalar> {
        let is_signed = ty == Ty::I32;
        let min = if is_signed { "min.s32" } else { "min.u32" };
        let max = if is_signed { "max.s32" } else { "max.u32" };
        Ok(match fun {
            Fun::Abs if is_signed => self.word("abs.s32", &[x[0]]),
            Fun::Abs => x[0],
            Fun::Min => self.word(min, &[x[0], x[1]]),
            Fun::Max => self.word(max, &[x[0], x[1]]),
            Fun::Clamp => {
                let above = self.word(max, &[x[0], x[1]]);
                self.word(min, &[above, x[2]])
            }
            Fun::Sign => {
                let above = self.word("max.s32", &[x[0], Scalar::Bits(u32::MAX)]);
                self.word("min.s32", &[above, Scalar::Bits(1)])
            }
            Fun::CountOneBits => self.word("popc.b32", &[x[0]]),
            Fun::CountLeadingZeros => self.word("clz.b32", &[x[0]]),
            Fun::CountTrailingZeros => {
                let turned = self.word("brev.b32", &[x[0]]);
                self.word("clz.b32", &[turned])
            }
            Fun::ReverseBits => self.word("brev.b32", &[x[0]]),
            Fun::FirstTrailingBit => {
                // none is all ones
                let turned = self.word("brev.b32", &[x[0]]);
                let zeros = self.word("clz.b32", &[turned]);
                let is_none = self.truth("setp.eq.u32", &[x[0], ZERO]);
                self.word("selp.b32", &[Scalar::Bits(u32::MAX), zeros, is_none])
            }
            Fun::FirstLeadingBit => {
                let op = if is_signed { "bfind.s32" } else { "bfind.u32" };
                self.word(op, &[x[0]])
            }
            Fun::ExtractBits => {
                let op = if is_signed { "bfe.s32" } else { "bfe.u32" };
                self.word(op, x)
            }
            // what is put comes first here
            Fun::InsertBits => self.word("bfi.b32", &[x[1], x[0], x[2], x[3]]),
            _ => return Err(no_function(fun, ty)),
        })
    }

    fn dot(&mut self, ty: Ty, a: &[Scalar], b: &[Scalar]) -> Result<Scalar> {
        let pairs = a.iter().zip(b);
        let sum = match ty {
            Ty::F32 => pairs.fold(None, |sum, (a, b)| {
                Some(match sum {
                    None => self.b.op_of("mul.rn.f32", Class::B32, &[*a, *b], Kind::Dot),
                    Some(sum) => self.b.op_of("fma.rn.f32", Class::B32, &[*a, *b, sum], Kind::Dot),
                })
            }),
            Ty::F16 => pairs.fold(None, |sum, (a, b)| {
                Some(match sum {
                    None => self.b.op("mul.rn.f16", Class::B16, &[*a, *b]),
                    Some(sum) => self.b.op("fma.rn.f16", Class::B16, &[*a, *b, sum]),
                })
            }),
            Ty::I32 | Ty::U32 => Some(pairs.fold(ZERO, |sum, (a, b)| self.mad(*a, *b, sum))),
            Ty::Bool | Ty::Part => None,
        };
        sum.ok_or_else(|| no_function(Fun::Dot, ty))
    }

    fn geometry(&mut self, fun: Fun, x: &[Rc<[Scalar]>]) -> Result<Rc<[Scalar]>> {
        if fun == Fun::Cross {
            let (a, b) = (&x[0], &x[1]);
            let each = [(1, 2), (2, 0), (0, 1)].map(|(i, j)| {
                let one = self.word("mul.rn.f32", &[a[i], b[j]]);
                let other = self.word("mul.rn.f32", &[a[j], b[i]]);
                self.word("sub.rn.f32", &[one, other])
            });
            return Ok(each.into());
        }
        let vector = match fun {
            Fun::Distance => {
                let pairs = x[0].iter().zip(x[1].iter());
                pairs.map(|(a, b)| self.word("sub.rn.f32", &[*a, *b])).collect()
            }
            _ => x[0].clone(),
        };
        let square = self.dot(Ty::F32, &vector, &vector)?;
        let length = self.word("sqrt.rn.f32", &[square]);
        Ok(match fun {
            Fun::Normalize => vector.iter().map(|s| self.quotient(*s, length)).collect(),
            _ => Rc::from([length]),
        })
    }

    /// The two halves of a word as floats.
    fn unpacked_halves(&mut self, word: Scalar) -> [Scalar; 2] {
        let word = Scalar::Reg(self.b.in_reg(word, Class::B32));
        let halves = self.b.unpack(word);
        halves.map(|half| self.widened(half))
    }

    /// The lowest bytes of four words in one.
    fn packed_bytes(&mut self, x: &[Scalar]) -> Scalar {
        let selector = Scalar::Bits(0x0040);
        let low = self.word("prmt.b32", &[x[0], x[1], selector]);
        let high = self.word("prmt.b32", &[x[2], x[3], selector]);
        self.word("prmt.b32", &[low, high, Scalar::Bits(0x5410)])
    }
}
