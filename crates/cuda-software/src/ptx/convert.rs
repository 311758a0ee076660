//! Moves and conversions.

use super::decode::{Decoder, Reason, Written};
use super::instr::{Int, Op, Rounding};
use super::operand::Ty;
use super::parse::Operand;

impl<'a> Decoder<'a> {
    /// Decodes a move or conversion; false where it is none.
    pub(super) fn convert(&mut self, written: &Written<'_, 'a>) -> Reason<bool> {
        let mut w =
            Written { base: written.base, mods: written.mods.clone(), operands: written.operands };
        match w.base {
            "mov" => self.mov(&mut w)?,
            "cvt" => self.cvt(&mut w)?,
            "cvta" => {
                let to_global = w.take("to") && w.take("global");
                if !to_global || w.ty()? != Ty::U(64) {
                    return Err("`cvta` is known as `cvta.to.global.u64` only".to_owned());
                }
                w.done()?;
                let [d, a] = w.operands()?;
                let d = self.regs.dest(d, Ty::U(64))?;
                let a = self.regs.source(a, Ty::U(64))?;
                self.emit(Op::Mov64, d, a, 0, 0);
            }
            "activemask" => {
                if w.ty()? != Ty::B(32) {
                    return Err("`activemask` is of type .b32".to_owned());
                }
                let [d] = w.operands()?;
                let d = self.regs.dest(d, Ty::B(32))?;
                self.emit(Op::ActiveMask, d, 0, 0, 0);
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn mov(&mut self, w: &mut Written<'_, 'a>) -> Reason<()> {
        let ty = w.ty()?;
        w.done()?;
        if ty.bits() == 8 {
            return w.unknown(ty);
        }
        let [d, a] = w.operands()?;
        if let Operand::Vector(parts) = d {
            let [low, high] = &parts[..] else {
                return Err("`mov` unpacks two parts".to_owned());
            };
            let (part, ops) = unpacking(ty).ok_or("`mov` unpacks .b32 and .b64")?;
            let low = self.regs.dest(low, part)?;
            let high = self.regs.dest(high, part)?;
            let a = self.regs.source(a, ty)?;
            self.emit(ops[0], low, a, 0, 0);
            self.emit(ops[1], high, a, 0, 0);
            return Ok(());
        }
        let d = self.regs.dest(d, ty)?;
        if let Operand::Vector(parts) = a {
            let [low, high] = &parts[..] else {
                return Err("`mov` packs two parts".to_owned());
            };
            let (part, ops) = unpacking(ty).ok_or("`mov` packs .b32 and .b64")?;
            let low = self.regs.source(low, part)?;
            let high = self.regs.source(high, part)?;
            self.emit(ops[2], d, low, high, 0);
            return Ok(());
        }
        let symbol = match *a {
            Operand::Word(name) if self.regs.get(name).is_none() => self.symbol(name),
            _ => None,
        };
        let a = match symbol {
            Some(address) if ty.bits() == 64 => self.regs.const_q(u64::from(address)),
            Some(address) if ty.bits() == 32 => self.regs.const_w(address),
            Some(_) => return Err("an address has 32 or 64 bits".to_owned()),
            None => self.regs.source(a, ty)?,
        };
        let op = match ty.bits() {
            0 => Op::MovP,
            64 => Op::Mov64,
            _ => Op::Mov32,
        };
        self.emit(op, d, a, 0, 0);
        Ok(())
    }

    fn cvt(&mut self, w: &mut Written<'_, 'a>) -> Reason<()> {
        let from = w.ty()?;
        let to = w.ty()?;
        let saturate = w.take("sat");
        let nearest = w.take("rn");
        let rounding = w
            .take_any(&["rni", "rzi", "rmi", "rpi"])
            .map(|i| [Rounding::Nearest, Rounding::Zero, Rounding::Down, Rounding::Up][i]);
        w.done()?;
        let [d, a] = w.operands()?;
        let integer = |ty| match ty {
            Ty::U(bits) => Some(Int { bits, signed: false }),
            Ty::S(bits) => Some(Int { bits, signed: true }),
            _ => None,
        };
        match (integer(from), integer(to)) {
            (Some(from_int), Some(to_int)) => {
                if nearest || rounding.is_some() {
                    return Err("`cvt` between integers has no rounding".to_owned());
                }
                self.cvt_integers(d, a, [from, to], [from_int, to_int], saturate)
            }
            (Some(from_int), None) => {
                if !nearest || saturate {
                    return Err("`cvt` from an integer to a float is known with `.rn`".to_owned());
                }
                let d = self.regs.dest(d, to)?;
                let a = self.cut_source(a, from, from_int)?;
                let op = match (to, from_int.bits) {
                    (Ty::F(32), 64) => Op::Int64ToF32(from_int.signed),
                    (Ty::F(32), _) => Op::IntToF32(from_int.signed),
                    (Ty::F(16), 8 | 16 | 32) => Op::IntToF16(from_int.signed),
                    _ => return w.unknown(to),
                };
                self.emit(op, d, a, 0, 0);
                Ok(())
            }
            (None, Some(to_int)) => {
                let Some(rounding) = rounding else {
                    return Err("`cvt` from a float to an integer has no rounding".to_owned());
                };
                let (d, half) = self.regs.wide_dest(d, to)?;
                let mut a = self.regs.source(a, from)?;
                match from {
                    Ty::F(32) => {}
                    Ty::F(16) => {
                        let wide = self.regs.fresh(Ty::F(32));
                        self.emit(Op::F16ToF32, wide, a, 0, 0);
                        a = wide;
                    }
                    _ => return w.unknown(from),
                }
                if to_int.bits == 64 {
                    self.emit(Op::F32ToInt64(to_int.signed, rounding), d, a, 0, 0);
                } else {
                    self.emit(Op::F32ToInt(to_int, rounding), d, a, 0, 0);
                    if half {
                        self.emit(Op::Cut16(false), d, d, 0, 0);
                    }
                }
                Ok(())
            }
            (None, None) => {
                let d_index = self.regs.dest(d, to)?;
                let a = self.regs.source(a, from)?;
                let op = match (to, from, rounding) {
                    (Ty::F(32), Ty::F(32), Some(rounding)) => Op::RoundF(rounding),
                    (Ty::F(32), Ty::F(32), None) if !nearest => Op::Mov32,
                    (Ty::F(32), Ty::F(16), None) if !nearest => Op::F16ToF32,
                    (Ty::F(16), Ty::F(32), None) if nearest && !saturate => Op::F32ToF16,
                    _ => return w.unknown(from),
                };
                self.emit(op, d_index, a, 0, 0);
                if saturate {
                    self.emit(Op::SatF, d_index, d_index, 0, 0);
                }
                Ok(())
            }
        }
    }

    /// Source in `w` as a 32-bit integer, or in `q`.
    fn cut_source(&mut self, a: &Operand<'a>, from: Ty, int: Int) -> Reason<u32> {
        let a = self.regs.wide_source(a, from)?;
        let op = match int.bits {
            8 => Op::Cut8(int.signed),
            16 => Op::Cut16(int.signed),
            _ => return Ok(a),
        };
        let cut = self.regs.fresh(Ty::B(32));
        self.emit(op, cut, a, 0, 0);
        Ok(cut)
    }

    fn cvt_integers(
        &mut self,
        d: &Operand<'a>,
        a: &Operand<'a>,
        [from, to]: [Ty; 2],
        [from_int, to_int]: [Int; 2],
        saturate: bool,
    ) -> Reason<()> {
        let mut a = self.cut_source(a, from, from_int)?;
        let (d, half) = self.regs.wide_dest(d, to)?;
        if saturate {
            if from_int.bits == 64 || to_int.bits == 64 {
                return Err("`cvt.sat` of 64-bit integers is not known".to_owned());
            }
            self.emit(Op::SatInt(from_int.signed, to_int), d, a, 0, 0);
            if half {
                self.emit(Op::Cut16(false), d, d, 0, 0);
            }
            return Ok(());
        }
        match (from_int.bits, to_int.bits) {
            (64, 64) => self.emit(Op::Mov64, d, a, 0, 0),
            (_, 64) => self.emit(Op::Widen(from_int.signed), d, a, 0, 0),
            (from_bits, to_bits) => {
                if from_bits == 64 {
                    let low = self.regs.fresh(Ty::B(32));
                    self.emit(Op::Low32, low, a, 0, 0);
                    a = low;
                }
                let op = match to_bits {
                    8 => Op::Cut8(to_int.signed),
                    16 => Op::Cut16(to_int.signed),
                    _ => Op::Mov32,
                };
                self.emit(op, d, a, 0, 0);
                if half {
                    self.emit(Op::Cut16(false), d, d, 0, 0);
                }
            }
        }
        Ok(())
    }
}

/// Type of the halves of a register, operations that take its halves, and the one that joins them.
fn unpacking(ty: Ty) -> Option<(Ty, [Op; 3])> {
    match ty {
        Ty::B(32) => Some((Ty::B(16), [Op::Low16, Op::High16, Op::Pack16])),
        Ty::B(64) => Some((Ty::B(32), [Op::Low32, Op::High32, Op::Pack32])),
        _ => None,
    }
}
