//! Instructions of PTX before they are text.

use std::fmt::{self, Write as _};

/// What a register holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Class {
    /// A truth value.
    Pred,
    /// A 16-bit float.
    B16,
    /// A 32-bit number of any kind, or an address in shared or local memory.
    B32,
    /// An address in global memory.
    B64,
}

/// A virtual register; ids are unique over all classes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Reg {
    pub(crate) class: Class,
    pub(crate) id: u32,
}

/// A scalar: in a register or known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Scalar {
    /// In a register.
    Reg(Reg),
    /// The bits of a number of 32 or 16 bits.
    Bits(u32),
    /// A known truth value.
    Bool(bool),
}

impl Scalar {
    pub(crate) fn bits(self) -> Option<u32> {
        match self {
            Scalar::Bits(bits) => Some(bits),
            _ => None,
        }
    }

    pub(crate) fn reg(self) -> Option<Reg> {
        match self {
            Scalar::Reg(reg) => Some(reg),
            _ => None,
        }
    }
}

/// A place in a text that is jumped to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Label(pub(crate) u32);

/// What an address begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Base {
    /// An address in a register.
    Reg(Reg),
    /// A variable in shared memory, by its number.
    Shared(u32),
    /// A variable in local memory, by its number.
    Local(u32),
    /// A parameter of the kernel.
    Param(u32),
}

/// Where memory is read or written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Address {
    pub(crate) base: Base,
    pub(crate) offset: i64,
}

/// How an instruction is written, and what it does beside computing.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Kind {
    /// `op dst, src, ...`.
    Plain,
    /// The same, of a dot product: sums may begin with what it is added to.
    Dot,
    /// `op dst, name`.
    Name(&'static str),
    /// `op dst, symbol`.
    Symbol(Base),
    /// `op {dst, ...}, src`.
    Unpack,
    /// `op dst, {src, ...}`.
    Pack,
    /// `op dst, [address]`.
    Load(Address),
    /// `op [address], src`.
    Store(Address),
    /// `op label`.
    Branch(Label),
    /// `op`: barriers and the end.
    Bare,
    /// `op {dst}, [address], stride`.
    LoadMatrix(Address),
    /// `op [address], {src}, stride`.
    StoreMatrix(Address),
    /// `op {dst}, {a}, {b}, {c}`, of 8 registers each.
    Matrices,
}

/// An instruction.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Inst {
    /// The predicate that it depends on, and the value that this must have.
    pub(crate) guard: Option<(Reg, bool)>,
    pub(crate) op: &'static str,
    pub(crate) dst: Vec<Reg>,
    pub(crate) src: Vec<Scalar>,
    pub(crate) kind: Kind,
}

impl Inst {
    pub(crate) fn plain(op: &'static str, dst: Reg, src: &[Scalar]) -> Inst {
        Inst::of(op, vec![dst], src.to_vec(), Kind::Plain)
    }

    pub(crate) fn of(op: &'static str, dst: Vec<Reg>, src: Vec<Scalar>, kind: Kind) -> Inst {
        Inst { guard: None, op, dst, src, kind }
    }

    /// `dst` becomes `src`.
    pub(crate) fn mov(dst: Reg, src: Scalar) -> Inst {
        let op = match dst.class {
            Class::Pred => "mov.pred",
            Class::B16 => "mov.b16",
            Class::B32 => "mov.b32",
            Class::B64 => "mov.b64",
        };
        Inst::plain(op, dst, &[src])
    }

    pub(crate) fn bra(label: Label) -> Inst {
        Inst::of("bra", Vec::new(), Vec::new(), Kind::Branch(label))
    }

    /// Whether it counts even if nobody reads what it computes.
    pub(crate) fn has_effect(&self) -> bool {
        matches!(self.kind, Kind::Store(_) | Kind::Branch(_) | Kind::Bare | Kind::StoreMatrix(_))
    }

    /// Registers that it reads.
    pub(crate) fn uses(&self) -> impl Iterator<Item = Reg> {
        let address = match self.kind {
            Kind::Load(a) | Kind::Store(a) | Kind::LoadMatrix(a) | Kind::StoreMatrix(a) => {
                Some(a.base)
            }
            _ => None,
        };
        let base = address.and_then(|base| match base {
            Base::Reg(reg) => Some(reg),
            _ => None,
        });
        let guard = self.guard.map(|(reg, _)| reg);
        self.src.iter().filter_map(|s| s.reg()).chain(base).chain(guard)
    }
}

/// A line of code.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Line {
    Inst(Inst),
    Label(Label),
}

impl Line {
    pub(crate) fn inst(&self) -> Option<&Inst> {
        match self {
            Line::Inst(inst) => Some(inst),
            Line::Label(_) => None,
        }
    }
}

/// A variable in shared or local memory.
#[derive(Clone, Debug)]
pub(crate) struct Memory {
    pub(crate) name: String,
    pub(crate) bytes: u32,
    pub(crate) align: u32,
}

/// All that is written between the braces of a kernel.
pub(crate) struct Body {
    pub(crate) lines: Vec<Line>,
    pub(crate) shared: Vec<Memory>,
    pub(crate) local: Vec<Memory>,
}

/// Registers have numbers of their own in each class.
struct Names {
    numbers: Vec<Option<u32>>,
    counts: [u32; 4],
}

impl Names {
    fn number(&mut self, reg: Reg) -> u32 {
        let at = reg.id as usize;
        if self.numbers.len() <= at {
            self.numbers.resize(at + 1, None);
        }
        let count = &mut self.counts[reg.class as usize];
        *self.numbers[at].get_or_insert_with(|| {
            *count += 1;
            *count - 1
        })
    }

    fn reg(&mut self, reg: Reg) -> String {
        let letter = match reg.class {
            Class::Pred => 'p',
            Class::B16 => 'h',
            Class::B32 => 'r',
            Class::B64 => 'd',
        };
        format!("%{letter}{}", self.number(reg))
    }

    fn regs(&mut self, regs: &[Reg]) -> String {
        match regs {
            [one] => self.reg(*one),
            all => {
                let names: Vec<_> = all.iter().map(|reg| self.reg(*reg)).collect();
                format!("{{{}}}", names.join(", "))
            }
        }
    }

    fn scalar(&mut self, scalar: Scalar, is_float: bool) -> String {
        match scalar {
            Scalar::Reg(reg) => self.reg(reg),
            Scalar::Bits(bits) if is_float => format!("0f{bits:08X}"),
            Scalar::Bits(bits) => bits.to_string(),
            Scalar::Bool(false) => "0".into(),
            Scalar::Bool(true) => "-1".into(),
        }
    }

    fn scalars(&mut self, all: &[Scalar], is_float: bool) -> String {
        let names: Vec<_> = all.iter().map(|s| self.scalar(*s, is_float)).collect();
        names.join(", ")
    }

    fn braced(&mut self, all: &[Scalar]) -> String {
        match all {
            [one] => self.scalar(*one, false),
            _ => format!("{{{}}}", self.scalars(all, false)),
        }
    }

    fn base(&mut self, base: Base, body: &Body) -> String {
        match base {
            Base::Reg(reg) => self.reg(reg),
            Base::Shared(i) => body.shared[i as usize].name.clone(),
            Base::Local(i) => body.local[i as usize].name.clone(),
            Base::Param(i) => format!("b{i}"),
        }
    }

    fn address(&mut self, address: Address, body: &Body) -> String {
        let base = self.base(address.base, body);
        match address.offset {
            0 => format!("[{base}]"),
            offset => format!("[{base}+{offset}]"),
        }
    }

    fn inst(&mut self, inst: &Inst, body: &Body) -> String {
        let is_float = inst.op.ends_with("f32") && !inst.op.starts_with("wmma");
        let guard = inst.guard.map(|(reg, is)| {
            let mark = if is { "" } else { "!" };
            format!("@{mark}{} ", self.reg(reg))
        });
        let operands = match &inst.kind {
            Kind::Plain | Kind::Dot => {
                let src = self.scalars(&inst.src, is_float);
                format!("{}, {src}", self.regs(&inst.dst))
            }
            Kind::Name(name) => format!("{}, {name}", self.regs(&inst.dst)),
            Kind::Symbol(base) => {
                let base = self.base(*base, body);
                format!("{}, {base}", self.regs(&inst.dst))
            }
            Kind::Unpack => {
                let src = self.scalars(&inst.src, false);
                format!("{}, {src}", self.regs(&inst.dst))
            }
            Kind::Pack => {
                let src = self.braced(&inst.src);
                format!("{}, {src}", self.regs(&inst.dst))
            }
            Kind::Load(address) => {
                let address = self.address(*address, body);
                format!("{}, {address}", self.regs(&inst.dst))
            }
            Kind::Store(address) => {
                let src = self.braced(&inst.src);
                format!("{}, {src}", self.address(*address, body))
            }
            Kind::Branch(label) => format!("L{}", label.0),
            Kind::Bare => String::new(),
            Kind::LoadMatrix(address) => {
                let stride = self.scalars(&inst.src, false);
                let address = self.address(*address, body);
                format!("{}, {address}, {stride}", self.regs(&inst.dst))
            }
            Kind::StoreMatrix(address) => {
                let (stride, numbers) = inst.src.split_last().expect("a stride is behind them");
                let stride = self.scalar(*stride, false);
                let numbers = self.braced(numbers);
                format!("{}, {numbers}, {stride}", self.address(*address, body))
            }
            Kind::Matrices => {
                let sides: Vec<_> = inst.src.chunks(8).map(|side| self.braced(side)).collect();
                format!("{}, {}", self.regs(&inst.dst), sides.join(", "))
            }
        };
        let space = if operands.is_empty() { "" } else { " " };
        format!("{}{}{space}{operands};", guard.unwrap_or_default(), inst.op)
    }
}

/// The text of a module with one kernel of so many bindings.
pub(crate) fn write(
    body: &Body,
    (n_bindings, uniform): (u32, Option<(u32, u32)>),
    workgroup: [u32; 3],
) -> Result<String, fmt::Error> {
    let mut names = Names { numbers: Vec::new(), counts: [0; 4] };
    let mut lines = String::new();
    for line in &body.lines {
        match line {
            Line::Inst(inst) => writeln!(lines, "\t{}", names.inst(inst, body))?,
            Line::Label(label) => writeln!(lines, "L{}:", label.0)?,
        }
    }
    let param = |i| match uniform {
        Some((number, bytes)) if number == i => format!("\t.param .align 16 .b8 b{i}[{bytes}]"),
        _ => format!("\t.param .u64 b{i}"),
    };
    let params: Vec<_> = (0..n_bindings).map(param).collect();
    let [x, y, z] = workgroup;
    let mut text = String::from(".version 6.4\n.target sm_75\n.address_size 64\n\n");
    writeln!(text, ".visible .entry main(\n{}\n)", params.join(",\n"))?;
    writeln!(text, ".reqntid {x}, {y}, {z}\n{{")?;
    let types = [".pred %p", ".b16 %h", ".b32 %r", ".b64 %d"];
    for (ty, count) in types.iter().zip(names.counts).filter(|(_, count)| *count > 0) {
        writeln!(text, "\t.reg {ty}<{count}>;")?;
    }
    for (space, all) in [(".shared", &body.shared), (".local", &body.local)] {
        for Memory { name, bytes, align } in all {
            writeln!(text, "\t{space} .align {align} .b8 {name}[{bytes}];")?;
        }
    }
    text.push_str(&lines);
    text.push_str("}\n");
    Ok(text)
}
