//! What is known of registers when all code is there: what numbers are multiples of, and where addresses come from.

use std::collections::HashMap;

use crate::code::{Base, Class, Inst, Kind, Line, Reg, Scalar};

/// Variables in shared and local memory, and what bindings begin with, are at multiples of 16 bytes.
const ZEROS_OF_SYMBOLS: u32 = 4;
/// Zeros of a number of which nothing is known yet, and of zero.
const ALL: u32 = 32;

/// What is known of the registers of a kernel.
pub(crate) struct Analysis {
    /// How many of the lowest bits of registers are zero.
    zeros: Vec<u32>,
    /// How many instructions write a register.
    writes: Vec<u32>,
    /// The variables and bindings that addresses are in.
    roots: HashMap<Reg, Base>,
}

impl Analysis {
    pub(crate) fn new(lines: &[Line], regs: u32) -> Analysis {
        let regs = regs as usize;
        let mut it =
            Analysis { zeros: vec![ALL; regs], writes: vec![0; regs], roots: HashMap::new() };
        let insts = || lines.iter().filter_map(Line::inst);
        for reg in insts().flat_map(|inst| &inst.dst) {
            it.writes[reg.id as usize] += 1;
        }
        // registers that loops count in have what all that is written to them has
        let mut changes = true;
        while changes {
            changes = false;
            for inst in insts() {
                let zeros = it.result(inst);
                for reg in &inst.dst {
                    let known = &mut it.zeros[reg.id as usize];
                    changes |= zeros < *known;
                    *known = zeros.min(*known);
                }
            }
        }
        for inst in insts() {
            if let ([dst], Some(root)) = (inst.dst.as_slice(), it.root_of_result(inst))
                && it.is_written_once(*dst)
            {
                it.roots.insert(*dst, root);
            }
        }
        it
    }

    pub(crate) fn is_written_once(&self, reg: Reg) -> bool {
        self.writes[reg.id as usize] == 1
    }

    /// Whether an address so many bytes behind `base` is a multiple of `bytes`, a power of two.
    pub(crate) fn is_aligned(&self, base: Base, offset: i64, bytes: u32) -> bool {
        let zeros = match base {
            Base::Reg(reg) => self.zeros[reg.id as usize],
            Base::Shared(_) | Base::Local(_) | Base::Param(_) => ZEROS_OF_SYMBOLS,
        };
        zeros >= bytes.trailing_zeros() && offset % i64::from(bytes) == 0
    }

    /// The variable or binding that an address is in, if that is plain.
    pub(crate) fn root(&self, base: Base) -> Option<Base> {
        match base {
            Base::Reg(reg) => self.roots.get(&reg).copied(),
            symbol => Some(symbol),
        }
    }

    fn root_of(&self, s: Scalar) -> Option<Base> {
        self.roots.get(&s.reg()?).copied()
    }

    fn root_of_result(&self, inst: &Inst) -> Option<Base> {
        match (inst.op, &inst.kind, inst.src.as_slice()) {
            (_, Kind::Symbol(base), _) => Some(*base),
            ("ld.param.u64", Kind::Load(address), _) => Some(address.base),
            ("cvta.to.global.u64" | "mov.b32" | "mov.b64", Kind::Plain, &[of]) => self.root_of(of),
            ("mad.lo.u32" | "mad.wide.u32", _, &[_, _, base]) => self.root_of(base),
            _ => None,
        }
    }

    fn of(&self, s: Scalar) -> u32 {
        match s {
            Scalar::Reg(reg) => self.zeros[reg.id as usize],
            Scalar::Bits(bits) => bits.trailing_zeros(),
            Scalar::Bool(_) => 0,
        }
    }

    /// Zeros of what an instruction computes, by what is known of what it reads.
    fn result(&self, inst: &Inst) -> u32 {
        let is_number = inst.dst.len() == 1 && matches!(inst.dst[0].class, Class::B32 | Class::B64);
        match &inst.kind {
            _ if !is_number => return 0,
            Kind::Symbol(_) => return ZEROS_OF_SYMBOLS,
            Kind::Load(_) if inst.op == "ld.param.u64" => return ZEROS_OF_SYMBOLS,
            Kind::Plain => {}
            _ => return 0,
        }
        let all = inst.src.iter().map(|s| self.of(*s));
        let zeros = match (inst.op, inst.src.as_slice()) {
            ("mul.lo.u32", &[a, b]) => self.of(a) + self.of(b),
            ("mad.lo.u32" | "mad.wide.u32", &[a, b, c]) => {
                (self.of(a) + self.of(b)).min(self.of(c))
            }
            ("shl.b32", &[a, Scalar::Bits(by)]) => self.of(a) + by.min(ALL),
            ("shl.b32", &[a, _]) => self.of(a),
            ("shr.u32" | "shr.s32", &[a, Scalar::Bits(by)]) => self.of(a).saturating_sub(by),
            // a bit is set if it is in both
            ("and.b32", &[a, b]) => self.of(a).max(self.of(b)),
            ("selp.b32", &[a, b, _]) => self.of(a).min(self.of(b)),
            (
                "mov.b32" | "mov.b64" | "cvta.to.global.u64" | "add.u32" | "sub.u32" | "rem.u32"
                | "or.b32" | "xor.b32" | "min.u32" | "max.u32" | "min.s32" | "max.s32" | "neg.s32",
                _,
            ) => all.min().unwrap_or(0),
            _ => 0,
        };
        zeros.min(ALL)
    }
}
