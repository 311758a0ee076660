//! Arithmetic, logic and comparisons.

use super::decode::{Decoder, Reason, Written};
use super::instr::{Cmp, Op};
use super::operand::Ty;
use super::parse::Operand;

impl<'a> Decoder<'a> {
    /// Decodes an arithmetic instruction; false where it is none.
    pub(super) fn numeric(&mut self, written: &Written<'_, 'a>) -> Reason<bool> {
        let mut w =
            Written { base: written.base, mods: written.mods.clone(), operands: written.operands };
        match w.base {
            "add" | "sub" | "mul" | "div" | "rem" | "min" | "max" | "and" | "or" | "xor"
            | "shl" | "shr" | "copysign" => self.binary(&mut w)?,
            "abs" | "neg" | "not" | "popc" | "clz" | "brev" | "bfind" | "rcp" | "sqrt"
            | "rsqrt" | "ex2" | "lg2" | "sin" | "cos" | "tanh" => self.unary(&mut w)?,
            "mad" | "fma" => self.ternary(&mut w)?,
            "dp4a" => self.dp4a(&mut w)?,
            "bfe" | "bfi" | "prmt" | "lop3" | "shf" => self.bits(&mut w)?,
            "selp" => self.selp(&mut w)?,
            "setp" => self.setp(&mut w)?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn binary(&mut self, w: &mut Written<'_, 'a>) -> Reason<()> {
        let ty = w.ty()?;
        let float = matches!(ty, Ty::F(_) | Ty::F16x2);
        let arithmetic = matches!(w.base, "add" | "sub" | "mul" | "div");
        let mut saturate = false;
        let (mut hi, mut wide) = (false, false);
        if float && arithmetic {
            let rounded = w.take("rn");
            if w.base == "div" && !rounded && w.take_any(&["full", "approx"]).is_none() {
                return Err("`div` of floats has no rounding".to_owned());
            }
            saturate = w.take("sat");
        } else if w.base == "mul" {
            let kind = w.take_any(&["lo", "hi", "wide"]);
            (hi, wide) = (kind == Some(1), kind == Some(2));
            if kind.is_none() {
                return Err("`mul` of integers is none of .lo, .hi, .wide".to_owned());
            }
        }
        w.done()?;
        let [d, a, b] = w.operands()?;
        let shift = matches!(w.base, "shl" | "shr");
        let d_ty = if wide {
            match ty {
                Ty::U(32) => Ty::U(64),
                Ty::S(32) => Ty::S(64),
                Ty::U(16) => Ty::U(32),
                _ => return w.unknown(ty),
            }
        } else {
            ty
        };
        let d = self.regs.dest(d, d_ty)?;
        let a = self.regs.source(a, ty)?;
        let b = self.regs.source(b, if shift { Ty::B(32) } else { ty })?;
        let Some((op, cut)) = binary_op(w.base, ty, hi, wide) else { return w.unknown(ty) };
        self.emit(op, d, a, b, 0);
        if cut {
            self.emit(Op::Cut16(false), d, d, 0, 0);
        }
        if saturate {
            self.saturate(d, ty)?;
        }
        Ok(())
    }

    fn saturate(&mut self, d: u32, ty: Ty) -> Reason<()> {
        if ty != Ty::F(32) {
            return Err("`.sat` is known for .f32 only".to_owned());
        }
        self.emit(Op::SatF, d, d, 0, 0);
        Ok(())
    }

    fn unary(&mut self, w: &mut Written<'_, 'a>) -> Reason<()> {
        let ty = w.ty()?;
        let shift_amount = w.base == "bfind" && w.take("shiftamt");
        let special = matches!(w.base, "rsqrt" | "ex2" | "lg2" | "sin" | "cos" | "tanh");
        if special && !w.take("approx") {
            return Err(format!("`{}` has no `.approx`", w.base));
        }
        let rounded = matches!(w.base, "rcp" | "sqrt");
        if rounded && w.take_any(&["rn", "approx"]).is_none() {
            return Err(format!("`{}` has no rounding", w.base));
        }
        w.done()?;
        let [d, a] = w.operands()?;
        let counts = matches!(w.base, "popc" | "clz" | "bfind");
        let d = self.regs.dest(d, if counts { Ty::U(32) } else { ty })?;
        let a = self.regs.source(a, ty)?;
        let op = match (w.base, ty) {
            ("abs", Ty::S(32)) => Op::AbsS,
            ("abs", Ty::F(32)) => Op::AbsF,
            ("abs", Ty::F(16)) => Op::AbsH,
            ("neg", Ty::S(32)) => Op::Neg32,
            ("neg", Ty::S(64)) => Op::Neg64,
            ("neg", Ty::F(32)) => Op::NegF,
            ("neg", Ty::F(16)) => Op::NegH,
            ("not", Ty::B(32)) => Op::Not32,
            ("not", Ty::B(64)) => Op::Not64,
            ("not", Ty::Pred) => Op::NotP,
            ("not", Ty::B(16)) => {
                let ones = self.regs.const_w(0xffff);
                self.emit(Op::Xor32, d, a, ones, 0);
                return Ok(());
            }
            ("popc", Ty::B(32)) => Op::Popc,
            ("clz", Ty::B(32)) => Op::Clz,
            ("brev", Ty::B(32)) => Op::Brev,
            ("bfind", Ty::U(32)) if shift_amount => Op::BfindShift(false),
            ("bfind", Ty::S(32)) if shift_amount => Op::BfindShift(true),
            ("bfind", Ty::U(32)) => Op::Bfind(false),
            ("bfind", Ty::S(32)) => Op::Bfind(true),
            ("rcp", Ty::F(32)) => Op::RcpF,
            ("sqrt", Ty::F(32)) => Op::SqrtF,
            ("rsqrt", Ty::F(32)) => Op::RsqrtF,
            ("ex2", Ty::F(32)) => Op::Ex2F,
            ("lg2", Ty::F(32)) => Op::Lg2F,
            ("sin", Ty::F(32)) => Op::SinF,
            ("cos", Ty::F(32)) => Op::CosF,
            ("tanh", Ty::F(32)) => Op::TanhF,
            _ => return w.unknown(ty),
        };
        self.emit(op, d, a, 0, 0);
        Ok(())
    }

    fn ternary(&mut self, w: &mut Written<'_, 'a>) -> Reason<()> {
        let ty = w.ty()?;
        let float = matches!(ty, Ty::F(_) | Ty::F16x2);
        let mut kind = None;
        let mut saturate = false;
        if float {
            if !w.take("rn") {
                return Err(format!("`{}` of floats has no `.rn`", w.base));
            }
            saturate = w.take("sat");
        } else {
            kind = w.take_any(&["lo", "hi", "wide"]);
        }
        w.done()?;
        let [d, a, b, c] = w.operands()?;
        let (op, sum_ty) = match (w.base, ty, kind) {
            ("fma" | "mad", Ty::F(32), None) => (Op::FmaF, ty),
            ("fma", Ty::F(16), None) => (Op::FmaH, ty),
            ("fma", Ty::F16x2, None) => (Op::FmaH2, ty),
            ("mad", Ty::U(32) | Ty::S(32), Some(0)) => (Op::Mad32, ty),
            ("mad", Ty::U(32) | Ty::S(32), Some(1)) => (Op::MadHi(ty == Ty::S(32)), ty),
            ("mad", Ty::U(64) | Ty::S(64), Some(0)) => (Op::Mad64, ty),
            ("mad", Ty::U(32), Some(2)) => (Op::MadWide(false), Ty::U(64)),
            ("mad", Ty::S(32), Some(2)) => (Op::MadWide(true), Ty::S(64)),
            _ => return w.unknown(ty),
        };
        let d = self.regs.dest(d, sum_ty)?;
        let a = self.regs.source(a, ty)?;
        let b = self.regs.source(b, ty)?;
        let c = self.regs.source(c, sum_ty)?;
        self.emit(op, d, a, b, c);
        if saturate {
            self.saturate(d, ty)?;
        }
        Ok(())
    }

    fn dp4a(&mut self, w: &mut Written<'_, 'a>) -> Reason<()> {
        let b_ty = w.ty()?;
        let a_ty = w.ty()?;
        w.done()?;
        let signed = |ty| match ty {
            Ty::S(32) => Ok(true),
            Ty::U(32) => Ok(false),
            _ => Err("`dp4a` is known for .u32 and .s32".to_owned()),
        };
        let op = Op::Dp4a(signed(a_ty)?, signed(b_ty)?);
        let [d, a, b, c] = w.operands()?;
        let d = self.regs.dest(d, Ty::B(32))?;
        let a = self.regs.source(a, a_ty)?;
        let b = self.regs.source(b, b_ty)?;
        let c = self.regs.source(c, Ty::B(32))?;
        self.emit(op, d, a, b, c);
        Ok(())
    }

    fn bits(&mut self, w: &mut Written<'_, 'a>) -> Reason<()> {
        let ty = w.ty()?;
        let b32 = Ty::B(32);
        match (w.base, ty) {
            ("bfe", Ty::U(32) | Ty::S(32)) => {
                w.done()?;
                let [d, a, b, c] = w.operands()?;
                let d = self.regs.dest(d, ty)?;
                let a = self.regs.source(a, ty)?;
                let b = self.regs.source(b, Ty::U(32))?;
                let c = self.regs.source(c, Ty::U(32))?;
                self.emit(Op::Bfe(ty == Ty::S(32)), d, a, b, c);
            }
            ("bfi", Ty::B(32)) => {
                w.done()?;
                let [d, a, b, c, e] = w.operands()?;
                let d = self.regs.dest(d, b32)?;
                let a = self.regs.source(a, b32)?;
                let b = self.regs.source(b, b32)?;
                let c = self.regs.source(c, Ty::U(32))?;
                let e = self.regs.source(e, Ty::U(32))?;
                self.emit_ext(Op::Bfi, [d, a, b, c], e);
            }
            ("prmt", Ty::B(32)) => {
                w.done()?;
                let [d, a, b, c] = w.operands()?;
                let d = self.regs.dest(d, b32)?;
                let a = self.regs.source(a, b32)?;
                let b = self.regs.source(b, b32)?;
                let c = self.regs.source(c, b32)?;
                self.emit(Op::Prmt, d, a, b, c);
            }
            ("lop3", Ty::B(32)) => {
                w.done()?;
                let [d, a, b, c, Operand::Int(table @ 0..256)] = w.operands()? else {
                    return Err("table of `lop3` is not a number under 256".to_owned());
                };
                let table = *table as u32;
                let d = self.regs.dest(d, b32)?;
                let a = self.regs.source(a, b32)?;
                let b = self.regs.source(b, b32)?;
                let c = self.regs.source(c, b32)?;
                self.emit_ext(Op::Lop3, [d, a, b, c], table);
            }
            ("shf", Ty::B(32)) => {
                let left = w.take_any(&["l", "r"]);
                let wrap = w.take_any(&["wrap", "clamp"]);
                w.done()?;
                let [d, a, b, c] = w.operands()?;
                let d = self.regs.dest(d, b32)?;
                let a = self.regs.source(a, b32)?;
                let b = self.regs.source(b, b32)?;
                let c = self.regs.source(c, Ty::U(32))?;
                let op = match (left, wrap) {
                    (Some(0), Some(m)) => Op::ShfL(m == 0),
                    (Some(_), Some(m)) => Op::ShfR(m == 0),
                    _ => return w.unknown(ty),
                };
                self.emit(op, d, a, b, c);
            }
            _ => return w.unknown(ty),
        }
        Ok(())
    }

    fn selp(&mut self, w: &mut Written<'_, 'a>) -> Reason<()> {
        let ty = w.ty()?;
        w.done()?;
        if matches!(ty.bits(), 0 | 8) {
            return w.unknown(ty);
        }
        let [d, a, b, c] = w.operands()?;
        let d = self.regs.dest(d, ty)?;
        let a = self.regs.source(a, ty)?;
        let b = self.regs.source(b, ty)?;
        let c = self.regs.source(c, Ty::Pred)?;
        self.emit(if ty.bits() == 64 { Op::Selp64 } else { Op::Selp32 }, d, a, b, c);
        Ok(())
    }

    fn setp(&mut self, w: &mut Written<'_, 'a>) -> Reason<()> {
        let ty = w.ty()?;
        let combine = w.take_any(&["and", "or", "xor"]);
        let Some(compare) = w.mods.pop() else { return Err("`setp` has no comparison".to_owned()) };
        w.done()?;
        let Some(op) = setp_op(compare, ty) else {
            return Err(format!("`setp.{compare}` is not known for this type"));
        };
        let (d, a, b, c) = match (w.operands, combine) {
            ([d, a, b], None) => (d, a, b, None),
            ([d, a, b, c], Some(kind)) => (d, a, b, Some((kind, c))),
            _ => return Err("`setp` has another number of operands".to_owned()),
        };
        let a = self.regs.source(a, ty)?;
        let b = self.regs.source(b, ty)?;
        let (first, second) = match *d {
            Operand::Pair(p, q) => {
                let p = self.regs.dest(&Operand::Word(p), Ty::Pred)?;
                (p, Some(self.regs.dest(&Operand::Word(q), Ty::Pred)?))
            }
            _ => (self.regs.dest(d, Ty::Pred)?, None),
        };
        if c.is_none() && second.is_none() {
            self.emit(op, first, a, b, 0);
            return Ok(());
        }
        let truth = self.regs.fresh(Ty::Pred);
        let falsity = self.regs.fresh(Ty::Pred);
        let result = self.regs.fresh(Ty::Pred);
        self.emit(op, truth, a, b, 0);
        self.emit(Op::NotP, falsity, truth, 0, 0);
        let joined = match c {
            None => None,
            Some((kind, operand)) => {
                let other = match *operand {
                    Operand::Not(name) => {
                        let source = self.regs.source(&Operand::Word(name), Ty::Pred)?;
                        let other = self.regs.fresh(Ty::Pred);
                        self.emit(Op::NotP, other, source, 0, 0);
                        other
                    }
                    _ => self.regs.source(operand, Ty::Pred)?,
                };
                Some(([Op::AndP, Op::OrP, Op::XorP][kind], other))
            }
        };
        let (op, other) = joined.unwrap_or((Op::AndP, 1));
        self.emit(op, result, truth, other, 0);
        if let Some(second) = second {
            self.emit(op, second, falsity, other, 0);
        }
        self.emit(Op::MovP, first, result, 0, 0);
        Ok(())
    }
}

/// Operation, and whether its result is cut to 16 bits.
fn binary_op(base: &str, ty: Ty, hi: bool, wide: bool) -> Option<(Op, bool)> {
    let cut = matches!(ty, Ty::U(16) | Ty::S(16) | Ty::B(16));
    let op = match (base, ty) {
        ("add", Ty::U(32) | Ty::S(32) | Ty::U(16) | Ty::S(16)) => Op::Add32,
        ("sub", Ty::U(32) | Ty::S(32) | Ty::U(16) | Ty::S(16)) => Op::Sub32,
        ("mul", Ty::U(16)) if wide => return Some((Op::Mul32, false)),
        ("mul", Ty::U(32)) if wide => Op::MulWide(false),
        ("mul", Ty::S(32)) if wide => Op::MulWide(true),
        ("mul", Ty::U(32)) if hi => Op::MulHi(false),
        ("mul", Ty::S(32)) if hi => Op::MulHi(true),
        ("mul", Ty::U(32) | Ty::S(32) | Ty::U(16) | Ty::S(16)) if !hi => Op::Mul32,
        ("mul", Ty::U(64) | Ty::S(64)) if !hi => Op::Mul64,
        ("add", Ty::U(64) | Ty::S(64)) => Op::Add64,
        ("sub", Ty::U(64) | Ty::S(64)) => Op::Sub64,
        ("div", Ty::U(32)) => Op::DivU,
        ("div", Ty::S(32)) => Op::DivS,
        ("rem", Ty::U(32)) => Op::RemU,
        ("rem", Ty::S(32)) => Op::RemS,
        ("div", Ty::U(64) | Ty::S(64)) => Op::Div64(ty == Ty::S(64)),
        ("rem", Ty::U(64) | Ty::S(64)) => Op::Rem64(ty == Ty::S(64)),
        ("min", Ty::U(32) | Ty::U(16)) => Op::MinU,
        ("min", Ty::S(32)) => Op::MinS,
        ("max", Ty::U(32) | Ty::U(16)) => Op::MaxU,
        ("max", Ty::S(32)) => Op::MaxS,
        ("min", Ty::U(64) | Ty::S(64)) => Op::Min64(ty == Ty::S(64)),
        ("max", Ty::U(64) | Ty::S(64)) => Op::Max64(ty == Ty::S(64)),
        ("and", Ty::B(32) | Ty::B(16)) => Op::And32,
        ("or", Ty::B(32) | Ty::B(16)) => Op::Or32,
        ("xor", Ty::B(32) | Ty::B(16)) => Op::Xor32,
        ("and", Ty::B(64)) => Op::And64,
        ("or", Ty::B(64)) => Op::Or64,
        ("xor", Ty::B(64)) => Op::Xor64,
        ("and", Ty::Pred) => Op::AndP,
        ("or", Ty::Pred) => Op::OrP,
        ("xor", Ty::Pred) => Op::XorP,
        ("shl", Ty::B(32) | Ty::B(16)) => Op::Shl32,
        ("shr", Ty::U(32) | Ty::B(32) | Ty::U(16) | Ty::B(16)) => Op::ShrU,
        ("shr", Ty::S(32)) => Op::ShrS,
        ("shl", Ty::B(64)) => Op::Shl64,
        ("shr", Ty::U(64) | Ty::B(64)) => Op::Shr64(false),
        ("shr", Ty::S(64)) => Op::Shr64(true),
        ("add", Ty::F(32)) => Op::AddF,
        ("sub", Ty::F(32)) => Op::SubF,
        ("mul", Ty::F(32)) => Op::MulF,
        ("div", Ty::F(32)) => Op::DivF,
        ("min", Ty::F(32)) => Op::MinF,
        ("max", Ty::F(32)) => Op::MaxF,
        ("copysign", Ty::F(32)) => Op::CopysignF,
        ("add", Ty::F(16)) => Op::AddH,
        ("sub", Ty::F(16)) => Op::SubH,
        ("mul", Ty::F(16)) => Op::MulH,
        ("min", Ty::F(16)) => Op::MinH,
        ("max", Ty::F(16)) => Op::MaxH,
        ("add", Ty::F16x2) => Op::AddH2,
        ("sub", Ty::F16x2) => Op::SubH2,
        ("mul", Ty::F16x2) => Op::MulH2,
        _ => return None,
    };
    Some((op, cut))
}

fn setp_op(compare: &str, ty: Ty) -> Option<Op> {
    let cmp = match compare {
        "eq" => Cmp::Eq,
        "ne" => Cmp::Ne,
        "lt" | "lo" => Cmp::Lt,
        "le" | "ls" => Cmp::Le,
        "gt" | "hi" => Cmp::Gt,
        "ge" | "hs" => Cmp::Ge,
        "equ" => Cmp::Equ,
        "neu" => Cmp::Neu,
        "ltu" => Cmp::Ltu,
        "leu" => Cmp::Leu,
        "gtu" => Cmp::Gtu,
        "geu" => Cmp::Geu,
        "num" => Cmp::Num,
        "nan" => Cmp::Nan,
        _ => return None,
    };
    let simple = matches!(cmp, Cmp::Eq | Cmp::Ne | Cmp::Lt | Cmp::Le | Cmp::Gt | Cmp::Ge);
    let equality = matches!(cmp, Cmp::Eq | Cmp::Ne);
    let unsigned_name = matches!(compare, "lo" | "ls" | "hi" | "hs");
    Some(match ty {
        Ty::B(16 | 32) if equality => Op::SetpU(cmp),
        Ty::B(64) if equality => Op::Setp64(cmp, false),
        Ty::U(16 | 32) if simple => Op::SetpU(cmp),
        Ty::U(64) if simple => Op::Setp64(cmp, false),
        Ty::S(32) if simple && !unsigned_name => Op::SetpS(cmp),
        Ty::S(64) if simple && !unsigned_name => Op::Setp64(cmp, true),
        Ty::F(32) if !unsigned_name => Op::SetpF(cmp),
        Ty::F(16) if !unsigned_name => Op::SetpH(cmp),
        _ => return None,
    })
}
