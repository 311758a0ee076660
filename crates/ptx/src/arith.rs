//! Operations on scalars.

use naga::{BinaryOperator, UnaryOperator};

use crate::Error;
use crate::code::{Class, Scalar};
use crate::layout::Ty;
use crate::translator::{Result, Translator};

/// A float of which integers below 2^23 are the lowest bits: what is added to it is in the word as it is.
const BESIDE: u32 = 8_388_608.0f32.to_bits();

/// The bits of a float.
pub(crate) const fn float(x: f32) -> Scalar {
    Scalar::Bits(x.to_bits())
}

fn no_operation(op: impl std::fmt::Debug, ty: Ty) -> crate::translator::Stop {
    Error::unsupported(format!("{op:?} of {ty:?}")).into()
}

impl Translator<'_> {
    /// An operation on 32-bit numbers.
    pub(crate) fn word(&mut self, op: &'static str, src: &[Scalar]) -> Scalar {
        self.b.op(op, Class::B32, src)
    }

    /// One with a truth value for result.
    pub(crate) fn truth(&mut self, op: &'static str, src: &[Scalar]) -> Scalar {
        self.b.op(op, Class::Pred, src)
    }

    /// `a * b + c` of integers.
    pub(crate) fn mad(&mut self, a: Scalar, b: Scalar, c: Scalar) -> Scalar {
        let product = self.multiply(a, b);
        self.add(product, c)
    }

    fn multiply(&mut self, a: Scalar, b: Scalar) -> Scalar {
        let (a, b) = if a.bits().is_some() { (b, a) } else { (a, b) };
        let Some(n) = b.bits().filter(|_| a.bits().is_none()) else {
            return self.word("mul.lo.u32", &[a, b]);
        };
        if let Some(("add.u32", &[rest, Scalar::Bits(more)])) = self.b.def(a) {
            let product = self.multiply(rest, b);
            return self.add(product, Scalar::Bits(more.wrapping_mul(n)));
        }
        match n.is_power_of_two() {
            true => self.word("shl.b32", &[a, Scalar::Bits(n.trailing_zeros())]),
            false => self.word("mul.lo.u32", &[a, b]),
        }
    }

    /// A sum of integers, whose known part is added last.
    pub(crate) fn add(&mut self, a: Scalar, b: Scalar) -> Scalar {
        let (a, b) = if a.bits().is_some() { (b, a) } else { (a, b) };
        if let Some(more) = b.bits() {
            if let Some(("add.u32", &[rest, Scalar::Bits(n)])) = self.b.def(a) {
                return self.word("add.u32", &[rest, Scalar::Bits(n.wrapping_add(more))]);
            }
            return self.word("add.u32", &[a, b]);
        }
        for (a, b) in [(a, b), (b, a)] {
            if let Some(("add.u32", &[rest, Scalar::Bits(n)])) = self.b.def(a)
                && !matches!(self.b.def(rest), Some(("sub.u32", _)))
            {
                let sum = self.add(rest, b);
                return self.add(sum, Scalar::Bits(n));
            }
        }
        self.word("add.u32", &[a, b])
    }

    pub(crate) fn subtract(&mut self, a: Scalar, b: Scalar) -> Scalar {
        match b.bits() {
            Some(n) => self.add(a, Scalar::Bits(n.wrapping_neg())),
            None => self.word("sub.u32", &[a, b]),
        }
    }

    /// `accept` if `is`, else `reject`.
    pub(crate) fn pick(&mut self, is: Scalar, accept: Scalar, reject: Scalar, ty: Ty) -> Scalar {
        match (is, ty.class()) {
            (Scalar::Bool(is), _) => {
                if is {
                    accept
                } else {
                    reject
                }
            }
            _ if accept == reject => accept,
            (is, Class::Pred) => {
                let isnt = self.truth("not.pred", &[is]);
                let one = self.truth("and.pred", &[is, accept]);
                let other = self.truth("and.pred", &[isnt, reject]);
                self.truth("or.pred", &[one, other])
            }
            (is, Class::B16) => self.b.op("selp.b16", Class::B16, &[accept, reject, is]),
            (is, class) => self.b.op("selp.b32", class, &[accept, reject, is]),
        }
    }

    pub(crate) fn unary(&mut self, op: UnaryOperator, ty: Ty, a: Scalar) -> Result<Scalar> {
        Ok(match (op, ty) {
            (UnaryOperator::Negate, Ty::F32) => self.word("neg.f32", &[a]),
            (UnaryOperator::Negate, Ty::I32) => self.word("neg.s32", &[a]),
            (UnaryOperator::Negate, Ty::F16) => self.by_f32(a, |it, a| it.word("neg.f32", &[a])),
            (UnaryOperator::LogicalNot, Ty::Bool) => self.truth("not.pred", &[a]),
            (UnaryOperator::BitwiseNot, Ty::I32 | Ty::U32) => self.word("not.b32", &[a]),
            _ => return Err(no_operation(op, ty)),
        })
    }

    /// An operation on a 16-bit float that is done in 32 bits.
    pub(crate) fn by_f32(
        &mut self,
        a: Scalar,
        operation: impl FnOnce(&mut Self, Scalar) -> Scalar,
    ) -> Scalar {
        let a = self.widened(a);
        let result = operation(self, a);
        self.narrowed(result)
    }

    pub(crate) fn widened(&mut self, a: Scalar) -> Scalar {
        self.word("cvt.f32.f16", &[a])
    }

    pub(crate) fn narrowed(&mut self, a: Scalar) -> Scalar {
        if let Some(("cvt.f32.f16", &[half])) = self.b.def(a) {
            return half;
        }
        self.b.op("cvt.rn.f16.f32", Class::B16, &[a])
    }

    pub(crate) fn binary(
        &mut self,
        op: BinaryOperator,
        ty: Ty,
        a: Scalar,
        b: Scalar,
    ) -> Result<Scalar> {
        use BinaryOperator as Op;
        if matches!(
            op,
            Op::Equal | Op::NotEqual | Op::Less | Op::LessEqual | Op::Greater | Op::GreaterEqual
        ) {
            return self.compare(op, ty, a, b);
        }
        match ty {
            Ty::F32 => self.floats(op, a, b),
            Ty::F16 => self.halves(op, a, b),
            Ty::I32 | Ty::U32 => self.integers(op, ty, a, b),
            Ty::Bool => Ok(match op {
                Op::And | Op::LogicalAnd => self.truth("and.pred", &[a, b]),
                Op::InclusiveOr | Op::LogicalOr => self.truth("or.pred", &[a, b]),
                Op::ExclusiveOr => self.truth("xor.pred", &[a, b]),
                _ => return Err(no_operation(op, ty)),
            }),
            Ty::Part => Err(no_operation(op, ty)),
        }
    }

    fn floats(&mut self, op: BinaryOperator, a: Scalar, b: Scalar) -> Result<Scalar> {
        Ok(match op {
            BinaryOperator::Add => self.word("add.rn.f32", &[a, b]),
            BinaryOperator::Subtract => self.difference(a, b),
            BinaryOperator::Multiply => self.word("mul.rn.f32", &[a, b]),
            BinaryOperator::Divide => self.quotient(a, b),
            BinaryOperator::Modulo => {
                let quotient = self.quotient(a, b);
                let whole = self.word("cvt.rzi.f32.f32", &[quotient]);
                let taken = self.word("mul.rn.f32", &[whole, b]);
                self.word("sub.rn.f32", &[a, taken])
            }
            _ => return Err(no_operation(op, Ty::F32)),
        })
    }

    pub(crate) fn quotient(&mut self, a: Scalar, b: Scalar) -> Scalar {
        if let (None, Some(by)) = (a.bits(), b.bits()) {
            let inverse = 1.0 / f32::from_bits(by);
            // of a power of two
            if by & 0x7f_ffff == 0 && inverse.is_normal() {
                return self.word("mul.rn.f32", &[a, float(inverse)]);
            }
        }
        if a == float(1.0) {
            return self.word("rcp.rn.f32", &[b]);
        }
        self.word("div.rn.f32", &[a, b])
    }

    fn difference(&mut self, a: Scalar, b: Scalar) -> Scalar {
        if let Some(n) = b.bits()
            && let Some(("sub.rn.f32", &[word, Scalar::Bits(BESIDE)])) = self.b.def(a)
        {
            let n = f32::from_bits(n);
            let is_small_integer = (0.0..=65536.0).contains(&n) && n.fract() == 0.0;
            if is_small_integer && self.is_beside(word) {
                return self.word("sub.rn.f32", &[word, float(f32::from_bits(BESIDE) + n)]);
            }
        }
        self.word("sub.rn.f32", &[a, b])
    }

    /// Whether a word is an integer beside the number for that.
    fn is_beside(&self, word: Scalar) -> bool {
        match self.b.def(word) {
            Some(("prmt.b32", [_, b, _])) => *b == Scalar::Bits(BESIDE),
            Some(("or.b32", [_, b])) => *b == Scalar::Bits(BESIDE),
            _ => false,
        }
    }

    fn halves(&mut self, op: BinaryOperator, a: Scalar, b: Scalar) -> Result<Scalar> {
        Ok(match op {
            BinaryOperator::Add => self.b.op("add.rn.f16", Class::B16, &[a, b]),
            BinaryOperator::Subtract => self.b.op("sub.rn.f16", Class::B16, &[a, b]),
            BinaryOperator::Multiply => self.b.op("mul.rn.f16", Class::B16, &[a, b]),
            BinaryOperator::Divide | BinaryOperator::Modulo => {
                let (a, b) = (self.widened(a), self.widened(b));
                let result = self.floats(op, a, b)?;
                self.narrowed(result)
            }
            _ => return Err(no_operation(op, Ty::F16)),
        })
    }

    fn integers(&mut self, op: BinaryOperator, ty: Ty, a: Scalar, b: Scalar) -> Result<Scalar> {
        use BinaryOperator as Op;
        let is_signed = ty == Ty::I32;
        let power = b.bits().filter(|n| n.is_power_of_two() && !is_signed);
        let count = |it: &mut Self| match b.bits() {
            Some(n) => Scalar::Bits(n & 31),
            None => it.word("and.b32", &[b, Scalar::Bits(31)]),
        };
        Ok(match (op, power) {
            (Op::Add, _) => self.add(a, b),
            (Op::Subtract, _) => self.subtract(a, b),
            (Op::Multiply, _) => self.multiply(a, b),
            (Op::Divide, Some(n)) => self.word("shr.u32", &[a, Scalar::Bits(n.trailing_zeros())]),
            (Op::Modulo, Some(n)) => self.word("and.b32", &[a, Scalar::Bits(n - 1)]),
            (Op::Divide, None) => self.word(if is_signed { "div.s32" } else { "div.u32" }, &[a, b]),
            (Op::Modulo, None) => self.word(if is_signed { "rem.s32" } else { "rem.u32" }, &[a, b]),
            (Op::And, _) => self.word("and.b32", &[a, b]),
            (Op::InclusiveOr, _) => self.word("or.b32", &[a, b]),
            (Op::ExclusiveOr, _) => self.word("xor.b32", &[a, b]),
            (Op::ShiftLeft, _) => match count(self) {
                Scalar::Bits(n) => self.multiply(a, Scalar::Bits(1 << n)),
                by => self.word("shl.b32", &[a, by]),
            },
            (Op::ShiftRight, _) => {
                let by = count(self);
                self.word(if is_signed { "shr.s32" } else { "shr.u32" }, &[a, by])
            }
            _ => return Err(no_operation(op, ty)),
        })
    }

    fn compare(&mut self, op: BinaryOperator, ty: Ty, a: Scalar, b: Scalar) -> Result<Scalar> {
        use BinaryOperator as Op;
        let (a, b, ty) = match ty {
            Ty::F16 => (self.widened(a), self.widened(b), Ty::F32),
            other => (a, b, other),
        };
        let op = match (op, ty) {
            (Op::Equal, Ty::F32) => "setp.eq.f32",
            (Op::NotEqual, Ty::F32) => "setp.neu.f32",
            (Op::Less, Ty::F32) => "setp.lt.f32",
            (Op::LessEqual, Ty::F32) => "setp.le.f32",
            (Op::Greater, Ty::F32) => "setp.gt.f32",
            (Op::GreaterEqual, Ty::F32) => "setp.ge.f32",
            (Op::Equal, Ty::I32 | Ty::U32) => "setp.eq.u32",
            (Op::NotEqual, Ty::I32 | Ty::U32) => "setp.ne.u32",
            (Op::Less, Ty::I32) => "setp.lt.s32",
            (Op::LessEqual, Ty::I32) => "setp.le.s32",
            (Op::Greater, Ty::I32) => "setp.gt.s32",
            (Op::GreaterEqual, Ty::I32) => "setp.ge.s32",
            (Op::Less, Ty::U32) => "setp.lt.u32",
            (Op::LessEqual, Ty::U32) => "setp.le.u32",
            (Op::Greater, Ty::U32) => "setp.gt.u32",
            (Op::GreaterEqual, Ty::U32) => "setp.ge.u32",
            (Op::NotEqual, Ty::Bool) => "xor.pred",
            (Op::Equal, Ty::Bool) => {
                let differ = self.truth("xor.pred", &[a, b]);
                return Ok(self.truth("not.pred", &[differ]));
            }
            _ => return Err(no_operation(op, ty)),
        };
        Ok(self.truth(op, &[a, b]))
    }

    /// A number as another type has it.
    pub(crate) fn convert(&mut self, a: Scalar, from: Ty, to: Ty) -> Result<Scalar> {
        let one = if to == Ty::F32 { float(1.0) } else { Scalar::Bits(1) };
        Ok(match (from, to) {
            (from, to) if from == to => a,
            (Ty::I32, Ty::U32) | (Ty::U32, Ty::I32) => a,
            (Ty::Bool, Ty::F32 | Ty::I32 | Ty::U32) => {
                self.word("selp.b32", &[one, Scalar::Bits(0), a])
            }
            (Ty::F32, Ty::Bool) => self.truth("setp.neu.f32", &[a, float(0.0)]),
            (Ty::I32 | Ty::U32, Ty::Bool) => self.truth("setp.ne.u32", &[a, Scalar::Bits(0)]),
            (Ty::U32, Ty::F32) => self.float_of(a),
            (Ty::I32, Ty::F32) => self.word("cvt.rn.f32.s32", &[a]),
            (Ty::F32, Ty::U32) => self.word("cvt.rzi.u32.f32", &[a]),
            (Ty::F32, Ty::I32) => self.word("cvt.rzi.s32.f32", &[a]),
            (Ty::F16, Ty::F32) => self.widened(a),
            (Ty::F32, Ty::F16) => self.narrowed(a),
            (Ty::F16, to) => {
                let wide = self.widened(a);
                self.convert(wide, Ty::F32, to)?
            }
            // integers that f32 rounds are infinite in f16
            (from, Ty::F16) => {
                let wide = self.convert(a, from, Ty::F32)?;
                self.narrowed(wide)
            }
            (from, to) => {
                return Err(Error::unsupported(format!("{from:?} as {to:?}")).into());
            }
        })
    }

    /// An integer as a float: small ones by bits, which is faster than conversions.
    fn float_of(&mut self, a: Scalar) -> Scalar {
        let beside = match self.b.def(a) {
            Some(("bfe.u32", &[word, Scalar::Bits(at), Scalar::Bits(8)])) if at % 8 == 0 => {
                // bytes of the word, zeros, and the highest byte of the number
                let selector = Scalar::Bits(0x7440 | (at / 8));
                self.word("prmt.b32", &[word, Scalar::Bits(BESIDE), selector])
            }
            Some(("and.b32", &[_, Scalar::Bits(mask)])) if mask < 1 << 23 => {
                self.word("or.b32", &[a, Scalar::Bits(BESIDE)])
            }
            _ => return self.word("cvt.rn.f32.u32", &[a]),
        };
        self.word("sub.rn.f32", &[beside, Scalar::Bits(BESIDE)])
    }

    /// The value of a literal.
    pub(crate) fn literal(literal: naga::Literal) -> Result<Scalar> {
        use naga::Literal;
        Ok(match literal {
            Literal::F32(x) => float(x),
            Literal::F16(x) => Scalar::Bits(u32::from(x.to_bits())),
            Literal::U32(n) => Scalar::Bits(n),
            Literal::I32(n) => Scalar::Bits(n.cast_unsigned()),
            Literal::Bool(is) => Scalar::Bool(is),
            other => return Err(Error::unsupported(format!("the literal {other:?}")).into()),
        })
    }
}
