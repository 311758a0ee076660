//! Which registers an instruction reads and writes.

use super::instr::{Instr, MemExt, Op, Vote};

/// File of a register and what is done with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    ReadW,
    WriteW,
    ReadQ,
    WriteQ,
}

use Access::{ReadQ, ReadW, WriteQ, WriteW};

/// Calls `f` for each 32-bit and 64-bit register of an instruction; it may rename them.
pub(super) fn visit(i: &mut Instr, exts: &mut [MemExt], f: &mut impl FnMut(Access, &mut u32)) {
    match i.op {
        Op::Bra | Op::Exit | Op::Bar | Op::MovP | Op::AndP | Op::OrP | Op::XorP | Op::NotP => {}
        Op::WarpBar => f(ReadW, &mut i.a),
        Op::Vote(mode) => {
            f(ReadW, &mut i.b);
            if mode == Vote::Ballot {
                f(WriteW, &mut i.d);
            }
        }
        Op::Shfl(_) => {
            f(ReadW, &mut exts[i.ext as usize].regs[0]);
            three(i, f);
        }
        Op::Ld(_) | Op::St(_) | Op::WmmaLoad | Op::WmmaStore | Op::WmmaMma => memory(i, exts, f),
        Op::LdParam => f(if i.c == 8 { WriteQ } else { WriteW }, &mut i.d),
        Op::ActiveMask => f(WriteW, &mut i.d),
        Op::Mad32
        | Op::MadHi(_)
        | Op::Bfe(_)
        | Op::Prmt
        | Op::Lop3
        | Op::ShfL(_)
        | Op::ShfR(_)
        | Op::Dp4a(..)
        | Op::FmaF
        | Op::FmaH
        | Op::FmaH2 => three(i, f),
        Op::Bfi => {
            f(ReadW, &mut i.ext);
            three(i, f);
        }
        Op::Pack32 | Op::MulWide(_) => {
            f(ReadW, &mut i.a);
            f(ReadW, &mut i.b);
            f(WriteQ, &mut i.d);
        }
        Op::MadWide(_) => {
            f(ReadW, &mut i.a);
            f(ReadW, &mut i.b);
            f(ReadQ, &mut i.c);
            f(WriteQ, &mut i.d);
        }
        Op::Low32 | Op::High32 | Op::Int64ToF32(_) => {
            f(ReadQ, &mut i.a);
            f(WriteW, &mut i.d);
        }
        Op::Widen(_) | Op::F32ToInt64(..) => {
            f(ReadW, &mut i.a);
            f(WriteQ, &mut i.d);
        }
        Op::SetpU(_) | Op::SetpS(_) | Op::SetpF(_) | Op::SetpH(_) => {
            f(ReadW, &mut i.a);
            f(ReadW, &mut i.b);
        }
        Op::Setp64(..) => {
            f(ReadQ, &mut i.a);
            f(ReadQ, &mut i.b);
        }
        Op::Mov64 | Op::Neg64 | Op::Not64 => {
            f(ReadQ, &mut i.a);
            f(WriteQ, &mut i.d);
        }
        Op::Shl64 | Op::Shr64(_) => {
            f(ReadQ, &mut i.a);
            f(ReadW, &mut i.b);
            f(WriteQ, &mut i.d);
        }
        Op::Mad64 => {
            f(ReadQ, &mut i.c);
            two_wide(i, f);
        }
        Op::Selp64
        | Op::Add64
        | Op::Sub64
        | Op::Mul64
        | Op::And64
        | Op::Or64
        | Op::Xor64
        | Op::Min64(_)
        | Op::Max64(_)
        | Op::Div64(_)
        | Op::Rem64(_) => two_wide(i, f),
        _ if is_unary(i.op) => {
            f(ReadW, &mut i.a);
            f(WriteW, &mut i.d);
        }
        // All others have two sources.
        _ => two(i, f),
    }
}

fn two(i: &mut Instr, f: &mut impl FnMut(Access, &mut u32)) {
    f(ReadW, &mut i.a);
    f(ReadW, &mut i.b);
    f(WriteW, &mut i.d);
}

fn three(i: &mut Instr, f: &mut impl FnMut(Access, &mut u32)) {
    f(ReadW, &mut i.c);
    two(i, f);
}

fn two_wide(i: &mut Instr, f: &mut impl FnMut(Access, &mut u32)) {
    f(ReadQ, &mut i.a);
    f(ReadQ, &mut i.b);
    f(WriteQ, &mut i.d);
}

fn memory(i: &mut Instr, exts: &mut [MemExt], f: &mut impl FnMut(Access, &mut u32)) {
    let ext = &mut exts[i.ext as usize];
    if i.op == Op::WmmaMma {
        // Sources first: they may be the destinations.
        let (results, sources) = ext.regs.split_at_mut(8);
        sources.iter_mut().for_each(|r| f(ReadW, r));
        results.iter_mut().for_each(|r| f(WriteW, r));
        return;
    }
    f(if ext.narrow { ReadW } else { ReadQ }, &mut i.a);
    if ext.tile.is_some() {
        f(ReadW, &mut i.b);
    }
    let access = match (matches!(i.op, Op::St(_) | Op::WmmaStore), ext.width == 8) {
        (true, true) => ReadQ,
        (true, false) => ReadW,
        (false, true) => WriteQ,
        (false, false) => WriteW,
    };
    ext.regs.iter_mut().for_each(|r| f(access, r));
}

fn is_unary(op: Op) -> bool {
    matches!(
        op,
        Op::Mov32
            | Op::Low16
            | Op::High16
            | Op::Cut8(_)
            | Op::Cut16(_)
            | Op::AbsS
            | Op::Neg32
            | Op::Not32
            | Op::Popc
            | Op::Clz
            | Op::Brev
            | Op::Bfind(_)
            | Op::BfindShift(_)
            | Op::RcpF
            | Op::SqrtF
            | Op::RsqrtF
            | Op::Ex2F
            | Op::Lg2F
            | Op::SinF
            | Op::CosF
            | Op::TanhF
            | Op::AbsF
            | Op::NegF
            | Op::SatF
            | Op::RoundF(_)
            | Op::NegH
            | Op::AbsH
            | Op::F32ToF16
            | Op::F16ToF32
            | Op::IntToF32(_)
            | Op::IntToF16(_)
            | Op::F32ToInt(..)
            | Op::SatInt(..)
    )
}
