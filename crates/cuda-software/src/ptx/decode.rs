//! Decodes the body of a kernel; operations are in `numeric`, `convert` and `memory`.

use std::collections::HashMap;

use super::SyntaxError;
use super::instr::{Instr, MemExt, NO_GUARD, Op, Param, WINDOW_SHIFT, Window};
use super::operand::{File, Registers, Ty};
use super::parse::{Entry, Kind, Operand, Parameter, Statement, Variable};

/// Result whose error is a reason without a line.
pub(super) type Reason<T> = std::result::Result<T, String>;

/// State of the decoder within one kernel.
pub(super) struct Decoder<'a> {
    pub(super) regs: Registers<'a>,
    pub(super) code: Vec<Instr>,
    pub(super) lines: Vec<u32>,
    pub(super) exts: Vec<MemExt>,
    pub(super) params: Vec<Param>,
    pub(super) param_bytes: u32,
    pub(super) shared: Vec<Window>,
    pub(super) shared_bytes: u32,
    pub(super) dynamic: Option<usize>,
    pub(super) local: Vec<Window>,
    pub(super) local_bytes: u32,
    /// Narrowest access to shared or local memory, in bytes.
    pub(super) narrowest: u32,
    /// Addresses of variables.
    symbols: HashMap<&'a str, u32>,
    labels: HashMap<&'a str, u32>,
    jumps: Vec<(usize, &'a str, u32)>,
    guard: u32,
    line: u32,
}

/// Instruction as written: base name, modifiers, operands.
pub(super) struct Written<'s, 'a> {
    pub(super) base: &'a str,
    /// What is not yet recognized.
    pub(super) mods: Vec<&'a str>,
    pub(super) operands: &'s [Operand<'a>],
}

impl<'a> Written<'_, 'a> {
    /// Removes a modifier, if it is there.
    pub(super) fn take(&mut self, modifier: &str) -> bool {
        let found = self.mods.iter().position(|&m| m == modifier);
        if let Some(at) = found {
            self.mods.remove(at);
        }
        found.is_some()
    }

    /// Removes the first of these modifiers that is there; its index.
    pub(super) fn take_any(&mut self, modifiers: &[&str]) -> Option<usize> {
        modifiers.iter().position(|m| self.take(m))
    }

    /// Removes the last modifier, which is a type.
    pub(super) fn ty(&mut self) -> Reason<Ty> {
        let last = self.mods.pop().ok_or_else(|| "instruction has no type".to_owned())?;
        Ty::parse(last).ok_or_else(|| format!("`.{last}` is not a type"))
    }

    /// All modifiers are recognized.
    pub(super) fn done(&self) -> Reason<()> {
        match self.mods.first() {
            None => Ok(()),
            Some(m) => Err(format!("modifier `.{m}` of `{}` is not known", self.base)),
        }
    }

    /// Operands, whose number must be `N`.
    pub(super) fn operands<const N: usize>(&self) -> Reason<&[Operand<'a>; N]> {
        self.operands
            .try_into()
            .map_err(|_| format!("`{}` has {} operands, not {N}", self.base, self.operands.len()))
    }

    /// No instruction has this name and these modifiers.
    pub(super) fn unknown<T>(&self, ty: Ty) -> Reason<T> {
        Err(format!("`{}` of type {} is not known", self.base, super::operand::name_of(ty)))
    }
}

impl<'a> Decoder<'a> {
    pub(super) fn new() -> Self {
        Self {
            regs: Registers::new(),
            code: Vec::new(),
            lines: Vec::new(),
            exts: Vec::new(),
            params: Vec::new(),
            param_bytes: 0,
            shared: Vec::new(),
            shared_bytes: 0,
            dynamic: None,
            local: Vec::new(),
            local_bytes: 0,
            narrowest: 4,
            symbols: HashMap::new(),
            labels: HashMap::new(),
            jumps: Vec::new(),
            guard: NO_GUARD,
            line: 0,
        }
    }

    /// Decodes an entry; `variables` are the module's own.
    pub(super) fn entry(
        &mut self,
        entry: &Entry<'a>,
        variables: &[Variable<'a>],
    ) -> Result<(), SyntaxError> {
        for &Parameter { ty, name, align, count } in &entry.params {
            let each = super::operand::type_bytes(ty)
                .ok_or_else(|| SyntaxError::new(entry.line, format!("type `{ty}` is not known")))?;
            let bytes = each.checked_mul(count).filter(|bytes| *bytes <= 4096);
            let bytes = bytes.filter(|bytes| *bytes > 0 && align.is_power_of_two());
            let bytes = bytes.ok_or_else(|| {
                let reason = format!("parameter `{name}` has no size that parameters have");
                SyntaxError::new(entry.line, reason)
            })?;
            let offset = self.param_bytes.next_multiple_of(each.max(align));
            if self.params.iter().any(|p| p.name == name) {
                let reason = format!("parameter `{name}` is declared twice");
                return Err(SyntaxError::new(entry.line, reason));
            }
            self.params.push(Param { name: name.to_owned(), offset, bytes });
            self.param_bytes = offset + bytes;
        }
        if self.param_bytes > 4096 {
            let reason = format!("{} bytes of parameters, at most 4096", self.param_bytes);
            return Err(SyntaxError::new(entry.line, reason));
        }
        for variable in variables {
            self.variable(variable)?;
        }
        for statement in &entry.body {
            self.statement(statement)?;
        }
        self.emit(Op::Exit, 0, 0, 0, 0);
        for (at, label, line) in std::mem::take(&mut self.jumps) {
            let target = self.labels.get(label).copied();
            self.code[at].d = target
                .ok_or_else(|| SyntaxError::new(line, format!("label `{label}` does not exist")))?;
        }
        let (shared, local) = (self.shared_bytes, self.local_bytes);
        if local > 512 << 10 {
            let reason = format!("{local} bytes of local memory, at most 524288");
            return Err(SyntaxError::new(entry.line, reason));
        }
        if shared > 49152 {
            let reason = format!("{shared} bytes of shared memory, at most 49152");
            return Err(SyntaxError::new(entry.line, reason));
        }
        Ok(())
    }

    fn statement(&mut self, statement: &Statement<'a>) -> Result<(), SyntaxError> {
        let line = statement.line;
        match &statement.kind {
            Kind::Label(label) => {
                let at = self.here();
                match self.labels.insert(label, at) {
                    None => Ok(()),
                    Some(_) => Err(SyntaxError::new(line, format!("label `{label}` exists twice"))),
                }
            }
            Kind::Registers(ty, names) => self.regs.declare(line, ty, names),
            Kind::Variable(variable) => self.variable(variable),
            Kind::Instruction { guard, mnemonic, operands } => {
                self.line = line;
                self.guarded(*guard, mnemonic, operands).map_err(|r| SyntaxError::new(line, r))
            }
        }
    }

    fn variable(&mut self, variable: &Variable<'a>) -> Result<(), SyntaxError> {
        let fail = |reason: String| SyntaxError::new(variable.line, reason);
        let name = variable.name;
        let shared = match variable.space {
            ".shared" => true,
            ".local" => false,
            other => return Err(fail(format!("variables in `{other}` are not known"))),
        };
        let (windows, used) = if shared {
            (&mut self.shared, &mut self.shared_bytes)
        } else {
            (&mut self.local, &mut self.local_bytes)
        };
        let element = u64::from(super::operand::type_bytes(variable.ty).unwrap_or(1));
        let bytes = element.saturating_mul(variable.count.unwrap_or(0));
        let bytes = u32::try_from(bytes)
            .ok()
            .filter(|&b| b <= 512 << 10)
            .ok_or_else(|| fail(format!("variable `{name}` has {bytes} bytes")))?;
        if windows.len() >= 4000 {
            return Err(fail("too many variables".to_owned()));
        }
        // The memory itself is aligned to 128 bytes.
        let offset = used.next_multiple_of(variable.align);
        if variable.count.is_none() {
            if !shared || self.dynamic.is_some() {
                return Err(fail(format!("variable `{name}` has no size")));
            }
            self.dynamic = Some(windows.len());
        }
        *used = offset + bytes;
        windows.push(Window { name: name.to_owned(), offset, bytes, align: variable.align });
        let address = u32::try_from(windows.len()).unwrap_or(u32::MAX) << WINDOW_SHIFT;
        match self.symbols.insert(name, address) {
            None => Ok(()),
            Some(_) => Err(fail(format!("variable `{name}` is declared twice"))),
        }
    }

    fn here(&self) -> u32 {
        u32::try_from(self.code.len()).unwrap_or(u32::MAX)
    }

    /// Address of a variable.
    pub(super) fn symbol(&self, name: &str) -> Option<u32> {
        self.symbols.get(name).copied()
    }

    pub(super) fn emit(&mut self, op: Op, d: u32, a: u32, b: u32, c: u32) {
        self.emit_ext(op, [d, a, b, c], 0);
    }

    pub(super) fn emit_ext(&mut self, op: Op, [d, a, b, c]: [u32; 4], ext: u32) {
        self.code.push(Instr { op, guard: self.guard, d, a, b, c, ext });
        self.lines.push(self.line);
    }

    pub(super) fn push_ext(&mut self, ext: MemExt) -> u32 {
        self.exts.push(ext);
        u32::try_from(self.exts.len() - 1).unwrap_or(u32::MAX)
    }

    fn guarded(
        &mut self,
        guard: Option<(&'a str, bool)>,
        mnemonic: &'a str,
        operands: &[Operand<'a>],
    ) -> Reason<()> {
        self.guard = match guard {
            None => NO_GUARD,
            Some((name, negated)) => {
                let register = self.regs.known(name)?;
                if register.file() != File::P {
                    return Err(format!("guard `{name}` is not a predicate"));
                }
                register.index * 2 + u32::from(negated)
            }
        };
        let mut parts = mnemonic.split('.');
        let base = parts.next().unwrap_or_default();
        let written = Written { base, mods: parts.collect(), operands };
        let known = self.control(&written, mnemonic)?
            || self.numeric(&written)?
            || self.convert(&written)?
            || self.memory(&written)?;
        self.guard = NO_GUARD;
        if known { Ok(()) } else { Err(format!("instruction `{mnemonic}` is not known")) }
    }

    fn control(&mut self, written: &Written<'_, 'a>, mnemonic: &str) -> Reason<bool> {
        match mnemonic {
            "bra" | "bra.uni" => {
                let [target] = written.operands()?;
                let Operand::Word(label) = *target else {
                    return Err("target of a jump is not a label".to_owned());
                };
                self.jumps.push((self.code.len(), label, self.line));
                self.emit(Op::Bra, 0, 0, 0, 0);
            }
            "ret" | "exit" | "ret.uni" => {
                let [] = written.operands()?;
                self.emit(Op::Exit, 0, 0, 0, 0);
            }
            "bar.sync" | "barrier.sync" | "barrier.sync.aligned" | "bar.cta.sync" => {
                let [Operand::Int(id @ 0..16)] = *written.operands()? else {
                    return Err("barrier is not a number under 16".to_owned());
                };
                self.emit(Op::Bar, id as u32, 0, 0, 0);
            }
            // Stores of a warp are seen at once by all: nothing to do.
            "membar.cta" | "membar.gl" | "membar.sys" | "fence.acq_rel.cta" | "fence.sc.cta"
            | "fence.acq_rel.gpu" | "fence.sc.gpu" => {
                let [] = written.operands()?;
            }
            "bar.warp.sync" => {
                let [mask] = written.operands()?;
                let mask = self.regs.source(mask, Ty::B(32))?;
                self.emit(Op::WarpBar, 0, mask, 0, 0);
            }
            _ => return Ok(false),
        }
        Ok(true)
    }
}
