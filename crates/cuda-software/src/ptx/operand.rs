//! Types, registers and constants of a kernel.

use std::collections::HashMap;

use super::SyntaxError;
use super::instr::special;
use super::parse::Operand;

/// Type of an instruction or register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ty {
    B(u8),
    U(u8),
    S(u8),
    F(u8),
    F16x2,
    Pred,
}

impl Ty {
    /// Reads `u32` (no dot).
    pub(crate) fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "pred" => Self::Pred,
            "f16x2" => Self::F16x2,
            "b8" => Self::B(8),
            "b16" => Self::B(16),
            "b32" => Self::B(32),
            "b64" => Self::B(64),
            "u8" => Self::U(8),
            "u16" => Self::U(16),
            "u32" => Self::U(32),
            "u64" => Self::U(64),
            "s8" => Self::S(8),
            "s16" => Self::S(16),
            "s32" => Self::S(32),
            "s64" => Self::S(64),
            "f16" => Self::F(16),
            "f32" => Self::F(32),
            "f64" => Self::F(64),
            _ => return None,
        })
    }

    /// Bits of a value; 0 for predicates.
    pub(crate) fn bits(self) -> u8 {
        match self {
            Self::B(n) | Self::U(n) | Self::S(n) | Self::F(n) => n,
            Self::F16x2 => 32,
            Self::Pred => 0,
        }
    }

    /// True where one type may be used as the other: of equal size, and not a float as an integer.
    fn agrees(self, other: Self) -> bool {
        let untyped = |t: Self| matches!(t, Self::B(_) | Self::F16x2);
        let float = |t: Self| matches!(t, Self::F(_));
        self.bits() == other.bits()
            && (untyped(self) || untyped(other) || float(self) == float(other))
    }
}

/// Bytes of a type written with its dot; `None` for a type without a size.
pub(crate) fn type_bytes(ty: &str) -> Option<u32> {
    let ty = Ty::parse(ty.strip_prefix('.')?)?;
    (ty != Ty::Pred).then(|| u32::from(ty.bits()) / 8)
}

/// File that a register is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum File {
    W,
    Q,
    P,
}

/// Declared register.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Register {
    pub(crate) ty: Ty,
    pub(crate) index: u32,
    /// Filled by the device.
    pub(crate) special: bool,
}

impl Register {
    pub(crate) fn file(self) -> File {
        match self.ty.bits() {
            0 => File::P,
            64 => File::Q,
            _ => File::W,
        }
    }
}

/// Registers and constants of a kernel.
#[derive(Debug)]
pub(crate) struct Registers<'a> {
    names: HashMap<std::borrow::Cow<'a, str>, Register>,
    pub(crate) n_w: u32,
    pub(crate) n_q: u32,
    pub(crate) n_p: u32,
    consts_w: HashMap<u32, u32>,
    consts_q: HashMap<u64, u32>,
}

type Result<T> = std::result::Result<T, String>;

impl<'a> Registers<'a> {
    pub(crate) fn new() -> Self {
        let mut names = HashMap::new();
        let mut add = |name: String, index: usize| {
            let index = u32::try_from(index).unwrap_or(u32::MAX);
            names.insert(name.into(), Register { ty: Ty::U(32), index, special: true });
        };
        for (axis, letter) in ["x", "y", "z"].into_iter().enumerate() {
            add(format!("%tid.{letter}"), special::TID + axis);
            add(format!("%ntid.{letter}"), special::NTID + axis);
            add(format!("%ctaid.{letter}"), special::CTAID + axis);
            add(format!("%nctaid.{letter}"), special::NCTAID + axis);
        }
        add("%laneid".to_owned(), special::LANE);
        add("%warpid".to_owned(), special::WARP);
        Self {
            names,
            n_w: u32::try_from(special::COUNT).unwrap_or(u32::MAX),
            n_q: 0,
            // Register 0 is always false, register 1 always true.
            n_p: 2,
            consts_w: HashMap::new(),
            consts_q: HashMap::new(),
        }
    }

    /// Declares registers of one `.reg` directive.
    pub(crate) fn declare(
        &mut self,
        line: u32,
        ty: &str,
        names: &[(&'a str, Option<u32>)],
    ) -> std::result::Result<(), SyntaxError> {
        let fail = |reason: String| SyntaxError::new(line, reason);
        let parsed = ty.strip_prefix('.').and_then(Ty::parse);
        let ty = parsed
            .filter(|t| !matches!(t.bits(), 8))
            .ok_or_else(|| fail(format!("registers of type `{ty}` do not exist")))?;
        for &(name, count) in names {
            if count.is_some_and(|n| n > 1 << 20) {
                return Err(fail(format!("too many registers `{name}`")));
            }
            match count {
                None => self.add(name.into(), ty),
                Some(n) => (0..n).try_for_each(|i| self.add(format!("{name}{i}").into(), ty)),
            }
            .map_err(fail)?;
        }
        Ok(())
    }

    fn add(&mut self, name: std::borrow::Cow<'a, str>, ty: Ty) -> Result<()> {
        let index = self.fresh(ty);
        if self.names.contains_key(&name) {
            return Err(format!("register `{name}` is declared twice"));
        }
        self.names.insert(name, Register { ty, index, special: false });
        Ok(())
    }

    /// Register without a name.
    pub(crate) fn fresh(&mut self, ty: Ty) -> u32 {
        let n = match ty.bits() {
            0 => &mut self.n_p,
            64 => &mut self.n_q,
            _ => &mut self.n_w,
        };
        *n += 1;
        *n - 1
    }

    pub(crate) fn get(&self, name: &str) -> Option<Register> {
        self.names.get(name).copied()
    }

    /// Register that always holds these bits.
    pub(crate) fn const_w(&mut self, bits: u32) -> u32 {
        let n = &mut self.n_w;
        *self.consts_w.entry(bits).or_insert_with(|| {
            *n += 1;
            *n - 1
        })
    }

    /// As `const_w`, of 64 bits.
    pub(crate) fn const_q(&mut self, bits: u64) -> u32 {
        let n = &mut self.n_q;
        *self.consts_q.entry(bits).or_insert_with(|| {
            *n += 1;
            *n - 1
        })
    }

    /// 32-bit constants: register and bits.
    pub(crate) fn constants_w(&self) -> Vec<(u32, u32)> {
        self.consts_w.iter().map(|(&bits, &register)| (register, bits)).collect()
    }

    /// 64-bit constants: register and bits.
    pub(crate) fn constants_q(&self) -> Vec<(u32, u64)> {
        self.consts_q.iter().map(|(&bits, &register)| (register, bits)).collect()
    }

    /// Source operand of a type: a register or a literal.
    pub(crate) fn source(&mut self, operand: &Operand<'_>, ty: Ty) -> Result<u32> {
        match *operand {
            Operand::Word(name) => {
                let register = self.known(name)?;
                if !register.ty.agrees(ty) {
                    return Err(mismatch(name, register.ty, ty));
                }
                Ok(register.index)
            }
            Operand::Int(value) => match ty {
                Ty::Pred => Ok(u32::from(value != 0)),
                Ty::F(_) => Err("an integer is no operand of a float instruction".to_owned()),
                _ if ty.bits() == 64 => Ok(self.const_q(value)),
                _ if ty.bits() == 32 => Ok(self.const_w(narrow(value, 32)?)),
                _ => Ok(self.const_w(narrow(value, 16)?)),
            },
            Operand::F32(bits) => match ty {
                Ty::F(32) | Ty::B(32) => Ok(self.const_w(bits)),
                _ => Err(format!("an f32 literal is no operand of type {}", name_of(ty))),
            },
            Operand::F64(value) => match ty {
                Ty::F(32) => Ok(self.const_w((value as f32).to_bits())),
                _ => Err(format!("an f64 literal is no operand of type {}", name_of(ty))),
            },
            _ => Err("operand is neither a register nor a number".to_owned()),
        }
    }

    /// Destination register of a type.
    pub(crate) fn dest(&self, operand: &Operand<'_>, ty: Ty) -> Result<u32> {
        let Operand::Word(name) = *operand else {
            return Err("destination is not a register".to_owned());
        };
        let register = self.known(name)?;
        if register.special {
            return Err(format!("`{name}` cannot be written"));
        }
        if !register.ty.agrees(ty) {
            return Err(mismatch(name, register.ty, ty));
        }
        Ok(register.index)
    }

    pub(crate) fn known(&self, name: &str) -> Result<Register> {
        self.get(name).ok_or_else(|| format!("register `{name}` is not declared"))
    }
}

/// Type as PTX writes it.
pub(crate) fn name_of(ty: Ty) -> String {
    match ty {
        Ty::B(n) => format!(".b{n}"),
        Ty::U(n) => format!(".u{n}"),
        Ty::S(n) => format!(".s{n}"),
        Ty::F(n) => format!(".f{n}"),
        Ty::F16x2 => ".f16x2".to_owned(),
        Ty::Pred => ".pred".to_owned(),
    }
}

fn mismatch(name: &str, found: Ty, wanted: Ty) -> String {
    format!("register `{name}` is {}, the instruction wants {}", name_of(found), name_of(wanted))
}

fn narrow(value: u64, bits: u32) -> Result<u32> {
    let signed = value.cast_signed();
    if value >> bits == 0 || (signed < 0 && signed >= -(1_i64 << (bits - 1))) {
        Ok((value & ((1_u64 << bits) - 1)) as u32)
    } else {
        Err(format!("{signed} does not fit {bits} bits"))
    }
}

impl Registers<'_> {
    /// As `dest`, where the register may be wider than the type (`cvt`, `ld`): of 16 or 32 bits
    /// for narrow types. Also whether it has 16 bits.
    pub(crate) fn wide_dest(&self, operand: &Operand<'_>, ty: Ty) -> Result<(u32, bool)> {
        let Operand::Word(name) = *operand else {
            return Err("destination is not a register".to_owned());
        };
        let register = self.known(name)?;
        let bits = register.ty.bits();
        if ty.bits() > 16 || bits < ty.bits() || !matches!(bits, 16 | 32) {
            return Ok((self.dest(operand, ty)?, false));
        }
        if register.special {
            return Err(format!("`{name}` cannot be written"));
        }
        Ok((register.index, bits == 16))
    }

    /// As `source`, where the register may be wider than the type (`cvt`, `st`).
    pub(crate) fn wide_source(&mut self, operand: &Operand<'_>, ty: Ty) -> Result<u32> {
        if let Operand::Word(name) = *operand {
            let register = self.known(name)?;
            let bits = register.ty.bits();
            if ty.bits() <= 16 && bits >= ty.bits() && matches!(bits, 16 | 32) {
                return Ok(register.index);
            }
        }
        self.source(operand, ty)
    }
}
