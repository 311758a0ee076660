//! What is known at translation time.

use crate::code::Scalar;

fn float(f: impl Fn(f32, f32) -> f32, a: u32, b: u32) -> Scalar {
    Scalar::Bits(f(f32::from_bits(a), f32::from_bits(b)).to_bits())
}

fn signed(f: impl Fn(i32, i32) -> i32, a: u32, b: u32) -> Scalar {
    Scalar::Bits(f(a.cast_signed(), b.cast_signed()).cast_unsigned())
}

fn compare_floats(f: impl Fn(&f32, &f32) -> bool, a: u32, b: u32) -> Scalar {
    Scalar::Bool(f(&f32::from_bits(a), &f32::from_bits(b)))
}

fn compare_signed(f: impl Fn(&i32, &i32) -> bool, a: u32, b: u32) -> Scalar {
    Scalar::Bool(f(&a.cast_signed(), &b.cast_signed()))
}

/// The result of an instruction, if it is one of its operands or known.
pub(crate) fn fold(op: &str, src: &[Scalar]) -> Option<Scalar> {
    match *src {
        [a] => unary(op, a),
        [Scalar::Bits(a), Scalar::Bits(b)] => binary(op, a, b),
        [a, b] => truths(op, a, b).or_else(|| identity(op, a, b)),
        [a, b, Scalar::Bool(is)] if op.starts_with("selp") => Some(if is { a } else { b }),
        [a, b, _] if op.starts_with("selp") && a == b => Some(a),
        [Scalar::Bits(a), Scalar::Bits(b), Scalar::Bits(c)] => ternary(op, a, b, c),
        _ => None,
    }
}

fn unary(op: &str, a: Scalar) -> Option<Scalar> {
    if let Scalar::Bool(a) = a {
        return (op == "not.pred").then_some(Scalar::Bool(!a));
    }
    let a = a.bits()?;
    let f = f32::from_bits(a);
    let bits = match op {
        "not.b32" => !a,
        "neg.s32" => a.wrapping_neg(),
        "abs.s32" => a.cast_signed().wrapping_abs().cast_unsigned(),
        "neg.f32" => (-f).to_bits(),
        "abs.f32" => f.abs().to_bits(),
        "cvt.rmi.f32.f32" => f.floor().to_bits(),
        "cvt.rpi.f32.f32" => f.ceil().to_bits(),
        "cvt.rzi.f32.f32" => f.trunc().to_bits(),
        "cvt.rni.f32.f32" => f.round_ties_even().to_bits(),
        "cvt.rn.f32.u32" => (a as f32).to_bits(),
        "cvt.rn.f32.s32" => (a.cast_signed() as f32).to_bits(),
        "cvt.rzi.u32.f32" => f as u32,
        "cvt.rzi.s32.f32" => (f as i32).cast_unsigned(),
        "cvt.f32.f16" => to_f32(a as u16).to_bits(),
        "sqrt.rn.f32" => f.sqrt().to_bits(),
        "rcp.rn.f32" => (1.0 / f).to_bits(),
        "popc.b32" => a.count_ones(),
        "clz.b32" => a.leading_zeros(),
        "brev.b32" => a.reverse_bits(),
        _ => return None,
    };
    Some(Scalar::Bits(bits))
}

fn binary(op: &str, a: u32, b: u32) -> Option<Scalar> {
    let bits = match op {
        "add.u32" => a.wrapping_add(b),
        "sub.u32" => a.wrapping_sub(b),
        "mul.lo.u32" => a.wrapping_mul(b),
        "div.u32" => a.checked_div(b)?,
        "rem.u32" => a.checked_rem(b)?,
        "and.b32" => a & b,
        "or.b32" => a | b,
        "xor.b32" => a ^ b,
        "shl.b32" => a.checked_shl(b).unwrap_or(0),
        "shr.u32" => a.checked_shr(b).unwrap_or(0),
        "min.u32" => a.min(b),
        "max.u32" => a.max(b),
        "setp.eq.u32" => return Some(Scalar::Bool(a == b)),
        "setp.ne.u32" => return Some(Scalar::Bool(a != b)),
        "setp.lt.u32" => return Some(Scalar::Bool(a < b)),
        "setp.le.u32" => return Some(Scalar::Bool(a <= b)),
        "setp.gt.u32" => return Some(Scalar::Bool(a > b)),
        "setp.ge.u32" => return Some(Scalar::Bool(a >= b)),
        _ => return signs(op, a, b).or_else(|| floats(op, a, b)),
    };
    Some(Scalar::Bits(bits))
}

fn signs(op: &str, a: u32, b: u32) -> Option<Scalar> {
    Some(match op {
        "div.s32" if b != 0 => signed(i32::wrapping_div, a, b),
        "rem.s32" if b != 0 => signed(i32::wrapping_rem, a, b),
        "shr.s32" => signed(|a, b| a >> b.clamp(0, 31), a, b),
        "min.s32" => signed(i32::min, a, b),
        "max.s32" => signed(i32::max, a, b),
        "setp.lt.s32" => compare_signed(i32::lt, a, b),
        "setp.le.s32" => compare_signed(i32::le, a, b),
        "setp.gt.s32" => compare_signed(i32::gt, a, b),
        "setp.ge.s32" => compare_signed(i32::ge, a, b),
        _ => return None,
    })
}

fn floats(op: &str, a: u32, b: u32) -> Option<Scalar> {
    Some(match op {
        "add.rn.f32" => float(|a, b| a + b, a, b),
        "sub.rn.f32" => float(|a, b| a - b, a, b),
        "mul.rn.f32" => float(|a, b| a * b, a, b),
        "div.rn.f32" => float(|a, b| a / b, a, b),
        "min.f32" => float(f32::min, a, b),
        "max.f32" => float(f32::max, a, b),
        "setp.eq.f32" => compare_floats(f32::eq, a, b),
        "setp.neu.f32" => compare_floats(f32::ne, a, b),
        "setp.lt.f32" => compare_floats(f32::lt, a, b),
        "setp.le.f32" => compare_floats(f32::le, a, b),
        "setp.gt.f32" => compare_floats(f32::gt, a, b),
        "setp.ge.f32" => compare_floats(f32::ge, a, b),
        _ => return None,
    })
}

fn ternary(op: &str, a: u32, b: u32, c: u32) -> Option<Scalar> {
    let below = |bits: u32| 1u32.checked_shl(bits).map_or(u32::MAX, |one| one - 1);
    let bits = match op {
        "mad.lo.u32" => a.wrapping_mul(b).wrapping_add(c),
        "fma.rn.f32" => {
            let [a, b, c] = [a, b, c].map(f32::from_bits);
            a.mul_add(b, c).to_bits()
        }
        "bfe.u32" => a.checked_shr(b).unwrap_or(0) & below(c),
        _ => return None,
    };
    Some(Scalar::Bits(bits))
}

fn truths(op: &str, a: Scalar, b: Scalar) -> Option<Scalar> {
    match (op, a, b) {
        ("and.pred", Scalar::Bool(true), x) | ("and.pred", x, Scalar::Bool(true)) => Some(x),
        ("or.pred", Scalar::Bool(false), x) | ("or.pred", x, Scalar::Bool(false)) => Some(x),
        ("xor.pred", Scalar::Bool(false), x) | ("xor.pred", x, Scalar::Bool(false)) => Some(x),
        ("xor.pred", Scalar::Bool(a), Scalar::Bool(b)) => Some(Scalar::Bool(a != b)),
        ("and.pred", Scalar::Bool(false), _) | ("and.pred", _, Scalar::Bool(false)) => {
            Some(Scalar::Bool(false))
        }
        ("or.pred", Scalar::Bool(true), _) | ("or.pred", _, Scalar::Bool(true)) => {
            Some(Scalar::Bool(true))
        }
        ("and.pred" | "or.pred", a, b) if a == b => Some(a),
        _ => None,
    }
}

fn identity(op: &str, a: Scalar, b: Scalar) -> Option<Scalar> {
    const ONE: u32 = 1.0f32.to_bits();
    let zero = Scalar::Bits(0);
    match (op, b) {
        (
            "add.u32" | "sub.u32" | "or.b32" | "xor.b32" | "shl.b32" | "shr.u32" | "shr.s32"
            | "max.u32",
            Scalar::Bits(0),
        )
        | ("mul.lo.u32" | "div.u32" | "div.s32", Scalar::Bits(1))
        | ("and.b32", Scalar::Bits(u32::MAX))
        | ("sub.rn.f32", Scalar::Bits(0))
        | ("mul.rn.f32" | "div.rn.f32", Scalar::Bits(ONE)) => Some(a),
        ("mul.lo.u32" | "and.b32" | "min.u32", Scalar::Bits(0)) | ("rem.u32", Scalar::Bits(1)) => {
            Some(zero)
        }
        ("sub.u32" | "xor.b32", b) if a == b => Some(zero),
        ("and.b32" | "or.b32" | "min.u32" | "max.u32" | "min.s32" | "max.s32", b) if a == b => {
            Some(a)
        }
        ("shl.b32" | "shr.u32" | "div.u32" | "mul.lo.u32", _) if a == zero => Some(zero),
        _ => None,
    }
}

/// Whether operands may change places.
pub(crate) fn is_commutative(op: &str) -> bool {
    let name = op.split('.').next().unwrap_or(op);
    matches!(name, "add" | "mul" | "and" | "or" | "xor" | "min" | "max")
        || op.starts_with("setp.eq")
        || op.starts_with("setp.ne")
}

/// Whether operands are integers of 32 bits.
pub(crate) fn is_of_integers(op: &str) -> bool {
    [".u32", ".s32", ".b32"].iter().any(|ty| op.ends_with(ty))
}

/// A 16-bit float as one of 32 bits.
pub(crate) fn to_f32(bits: u16) -> f32 {
    let sign = u32::from(bits >> 15) << 31;
    let exponent = u32::from(bits >> 10) & 31;
    let fraction = u32::from(bits) & 0x3ff;
    let size = match exponent {
        0 => fraction as f32 / 16_777_216.0,
        31 => f32::from_bits(0x7f80_0000 | fraction << 13),
        _ => f32::from_bits((exponent + 112) << 23 | fraction << 13),
    };
    f32::from_bits(size.to_bits() | sign)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_are_what_they_are() {
        let cases = [
            (0x3c00, 1.0),
            (0xc000, -2.0),
            (0x7bff, 65504.0),
            (0x0001, 5.960_464_5e-8),
            (0x0400, 6.103_515_6e-5),
            (0x7c00, f32::INFINITY),
            (0x8000, -0.0),
        ];
        for (bits, want) in cases {
            assert_eq!(to_f32(bits).to_bits(), f32::to_bits(want), "{bits:#x}");
        }
        assert!(to_f32(0x7e00).is_nan());
    }

    #[test]
    fn operations_are_folded_as_devices_compute_them() {
        let bits = |x: f32| Scalar::Bits(x.to_bits());
        let reg = Scalar::Reg(crate::code::Reg { class: crate::code::Class::B32, id: 0 });
        let cases: [(&str, &[Scalar], Option<Scalar>); 10] = [
            ("add.u32", &[Scalar::Bits(u32::MAX), Scalar::Bits(2)], Some(Scalar::Bits(1))),
            ("div.u32", &[Scalar::Bits(7), Scalar::Bits(0)], None),
            (
                "div.s32",
                &[Scalar::Bits(u32::MAX - 6), Scalar::Bits(2)],
                Some(Scalar::Bits(-3i32 as u32)),
            ),
            ("shr.s32", &[Scalar::Bits(1 << 31), Scalar::Bits(31)], Some(Scalar::Bits(u32::MAX))),
            ("max.f32", &[bits(f32::NAN), bits(2.0)], Some(bits(2.0))),
            ("setp.neu.f32", &[bits(f32::NAN), bits(f32::NAN)], Some(Scalar::Bool(true))),
            ("cvt.rzi.u32.f32", &[bits(-3.5)], Some(Scalar::Bits(0))),
            ("cvt.rni.f32.f32", &[bits(2.5)], Some(bits(2.0))),
            ("add.rn.f32", &[reg, Scalar::Bits(0)], None),
            ("selp.b32", &[reg, Scalar::Bits(3), Scalar::Bool(false)], Some(Scalar::Bits(3))),
        ];
        for (op, src, want) in cases {
            assert_eq!(fold(op, src), want, "{op}");
        }
    }
}
