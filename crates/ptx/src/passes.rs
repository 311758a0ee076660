//! What is made better when all code is there: sums that take products in, what nobody reads, and jumps to the next line.

use std::collections::{HashMap, HashSet};

use crate::code::{Address, Class, Inst, Kind, Label, Line, Reg, Scalar};
use crate::wide::with_wide_accesses;

/// The same with fewer instructions.
pub(crate) fn improved(lines: Vec<Line>, regs: u32) -> Vec<Line> {
    let lines = without_unread(lines);
    let (lines, regs) = Fusion::new(&lines, regs).run(lines);
    let lines = without_unread(lines);
    let lines = with_narrow_loads(lines);
    let lines = with_wide_accesses(lines, regs);
    without_jumps(&without_jumps(&lines))
}

/// Without instructions whose results nobody reads.
fn without_unread(lines: Vec<Line>) -> Vec<Line> {
    let mut written: HashMap<Reg, Vec<usize>> = HashMap::new();
    let mut wanted = vec![false; lines.len()];
    let mut todo = Vec::new();
    for (i, line) in lines.iter().enumerate() {
        match line {
            Line::Label(_) => wanted[i] = true,
            Line::Inst(inst) => {
                for reg in &inst.dst {
                    written.entry(*reg).or_default().push(i);
                }
                if inst.has_effect() {
                    wanted[i] = true;
                    todo.push(i);
                }
            }
        }
    }
    while let Some(i) = todo.pop() {
        let Line::Inst(inst) = &lines[i] else { continue };
        for reg in inst.uses() {
            for by in written.remove(&reg).unwrap_or_default() {
                if !wanted[by] {
                    wanted[by] = true;
                    todo.push(by);
                }
            }
        }
    }
    lines.into_iter().zip(wanted).filter_map(|(line, is)| is.then_some(line)).collect()
}

/// Puts products and what they are added to into one instruction.
struct Fusion {
    uses: Vec<u32>,
    writes: Vec<u32>,
    regs: u32,
    /// What was written in this block, by the register.
    block: HashMap<Reg, usize>,
    /// Negatives of registers of this block.
    negatives: HashMap<Reg, Reg>,
    done: Vec<Option<Line>>,
}

impl Fusion {
    fn new(lines: &[Line], regs: u32) -> Fusion {
        let mut fusion = Fusion {
            uses: Vec::new(),
            writes: Vec::new(),
            regs,
            block: HashMap::new(),
            negatives: HashMap::new(),
            done: Vec::new(),
        };
        for line in lines {
            if let Line::Inst(inst) = line {
                inst.uses().for_each(|reg| bump(&mut fusion.uses, reg));
                inst.dst.iter().for_each(|reg| bump(&mut fusion.writes, *reg));
            }
        }
        fusion
    }

    fn run(mut self, lines: Vec<Line>) -> (Vec<Line>, u32) {
        for line in lines {
            match line {
                Line::Label(_) => {
                    self.begin_block();
                    self.done.push(Some(line));
                }
                Line::Inst(inst) => self.take(inst),
            }
        }
        (self.done.into_iter().flatten().collect(), self.regs)
    }

    fn begin_block(&mut self) {
        self.block.clear();
        self.negatives.clear();
    }

    fn take(&mut self, inst: Inst) {
        let fused = match (inst.op, inst.src.as_slice()) {
            ("add.rn.f32", &[a, b]) => {
                self.dot(&inst, a, b).or_else(|| self.sum("mul.rn.f32", "fma.rn.f32", &inst))
            }
            ("add.rn.f16", _) => self.sum("mul.rn.f16", "fma.rn.f16", &inst),
            ("add.u32", _) => self
                .sum("mul.lo.u32", "mad.lo.u32", &inst)
                .or_else(|| self.bytes("dp4a.s32.s32", &inst))
                .or_else(|| self.bytes("dp4a.u32.u32", &inst)),
            ("sub.rn.f32", &[a, b]) => self.difference(&inst, a, b),
            _ => None,
        };
        let inst = fused.unwrap_or(inst);
        let is_end = matches!(inst.kind, Kind::Branch(_));
        for reg in &inst.dst {
            self.block.insert(*reg, self.done.len());
        }
        self.done.push(Some(Line::Inst(inst)));
        if is_end {
            self.begin_block();
        }
    }

    /// The instruction of this block that computes a register which is read but once.
    fn only(&self, s: Scalar) -> Option<(usize, &Inst)> {
        let reg = s.reg()?;
        let count = |of: &[u32]| of.get(reg.id as usize).copied().unwrap_or(0);
        if count(&self.uses) != 1 || count(&self.writes) != 1 {
            return None;
        }
        let at = *self.block.get(&reg)?;
        match self.done[at].as_ref()? {
            Line::Inst(inst) if inst.guard.is_none() => Some((at, inst)),
            _ => None,
        }
    }

    /// A sum of which one part is a product.
    fn sum(&mut self, product: &str, op: &'static str, inst: &Inst) -> Option<Inst> {
        let [a, b] = [inst.src[0], inst.src[1]];
        for (part, other) in [(a, b), (b, a)] {
            if let Some((at, by)) = self.only(part).filter(|(_, by)| by.op == product) {
                let src = vec![by.src[0], by.src[1], other];
                self.done[at] = None;
                return Some(Inst { op, src, kind: Kind::Plain, ..inst.clone() });
            }
        }
        None
    }

    /// A sum of which one part is a sum of products of bytes that begins with zero.
    fn bytes(&mut self, op: &'static str, inst: &Inst) -> Option<Inst> {
        let [a, b] = [inst.src[0], inst.src[1]];
        for (part, other) in [(b, a), (a, b)] {
            let begins = |by: &Inst| by.op == op && by.src[2] == Scalar::Bits(0);
            if let Some((at, by)) = self.only(part).filter(|(_, by)| begins(by)) {
                let src = vec![by.src[0], by.src[1], other];
                self.done[at] = None;
                return Some(Inst { op, src, ..inst.clone() });
            }
        }
        None
    }

    /// A sum of which one part is a dot product: that begins with the other part.
    fn dot(&mut self, inst: &Inst, a: Scalar, b: Scalar) -> Option<Inst> {
        let (mut chain, first) = self.chain(b).map(|chain| (chain, a)).or_else(|| {
            let chain = self.chain(a)?;
            Some((chain, b))
        })?;
        let mut sum = first;
        let last = chain.remove(0);
        for at in chain.into_iter().rev() {
            let Some(Line::Inst(mut part)) = self.done[at].take() else { return None };
            part.op = "fma.rn.f32";
            part.src.truncate(2);
            part.src.push(sum);
            sum = Scalar::Reg(part.dst[0]);
            self.block.insert(part.dst[0], self.done.len());
            self.done.push(Some(Line::Inst(part)));
        }
        let Some(Line::Inst(mut part)) = self.done[last].take() else { return None };
        part.src.truncate(2);
        part.src.push(sum);
        part.op = "fma.rn.f32";
        part.dst.clone_from(&inst.dst);
        part.kind = Kind::Plain;
        Some(part)
    }

    /// Where the instructions of a dot product are that is read but once, the last one first.
    fn chain(&self, of: Scalar) -> Option<Vec<usize>> {
        let mut all = Vec::new();
        let mut part = of;
        loop {
            let (at, inst) = self.only(part).filter(|(_, inst)| inst.kind == Kind::Dot)?;
            all.push(at);
            match inst.op {
                "fma.rn.f32" => part = inst.src[2],
                _ => return Some(all),
            }
        }
    }

    /// A difference of which one part is a product.
    fn difference(&mut self, inst: &Inst, a: Scalar, b: Scalar) -> Option<Inst> {
        let product = |it: &Self, s| {
            let (at, by) = it.only(s).filter(|(_, by)| by.op == "mul.rn.f32")?;
            Some((at, by.src[0], by.src[1]))
        };
        let src = if let Some((at, c, d)) = product(self, b) {
            self.done[at] = None;
            vec![self.negative(c), d, a]
        } else {
            let (at, c, d) = product(self, a)?;
            self.done[at] = None;
            vec![c, d, self.negative(b)]
        };
        Some(Inst { op: "fma.rn.f32", src, kind: Kind::Plain, ..inst.clone() })
    }

    fn negative(&mut self, of: Scalar) -> Scalar {
        let reg = match of {
            Scalar::Reg(reg) => reg,
            Scalar::Bits(bits) => return Scalar::Bits(bits ^ 1 << 31),
            Scalar::Bool(_) => return of,
        };
        if let Some(negative) = self.negatives.get(&reg) {
            return Scalar::Reg(*negative);
        }
        let dst = Reg { class: Class::B32, id: self.regs };
        self.regs += 1;
        self.done.push(Some(Line::Inst(Inst::plain("neg.f32", dst, &[of]))));
        self.negatives.insert(reg, dst);
        Scalar::Reg(dst)
    }
}

fn bump(counts: &mut Vec<u32>, reg: Reg) {
    let at = reg.id as usize;
    if counts.len() <= at {
        counts.resize(at + 1, 0);
    }
    counts[at] += 1;
}

/// Loads of several numbers of which one, or one half, is read.
fn with_narrow_loads(mut lines: Vec<Line>) -> Vec<Line> {
    let read: HashSet<Reg> = lines.iter().filter_map(Line::inst).flat_map(Inst::uses).collect();
    for line in &mut lines {
        let Line::Inst(inst) = line else { continue };
        let Kind::Load(Address { base, offset }) = inst.kind else { continue };
        let n = inst.dst.len();
        let used: Vec<_> = (0..n).filter(|i| read.contains(&inst.dst[*i])).collect();
        let (Some(first), Some(last)) = (used.first(), used.last()) else { continue };
        let (from, to) = match (n, last - first) {
            (2 | 4, 0) => (*first, 1),
            (4, 1) if first % 2 == 0 => (*first, 2),
            _ => continue,
        };
        let Some(op) = narrowed(inst.op, to) else { continue };
        let bytes = if inst.dst[0].class == Class::B16 { 2 } else { 4 };
        inst.op = op;
        inst.dst = inst.dst[from..from + to].to_vec();
        inst.kind = Kind::Load(Address { base, offset: offset + bytes * from as i64 });
    }
    lines
}

/// A load of so many numbers, not of four or two.
fn narrowed(op: &str, n: usize) -> Option<&'static str> {
    let ops = match op.split_once(".v")? {
        ("ld.global.nc", ty) if ty.ends_with("b32") => ["ld.global.nc.b32", "ld.global.nc.v2.b32"],
        ("ld.global.nc", _) => ["ld.global.nc.b16", "ld.global.nc.v2.b16"],
        ("ld.global", ty) if ty.ends_with("b32") => ["ld.global.b32", "ld.global.v2.b32"],
        ("ld.global", _) => ["ld.global.b16", "ld.global.v2.b16"],
        ("ld.shared", ty) if ty.ends_with("b32") => ["ld.shared.b32", "ld.shared.v2.b32"],
        ("ld.shared", _) => ["ld.shared.b16", "ld.shared.v2.b16"],
        ("ld.local", ty) if ty.ends_with("b32") => ["ld.local.b32", "ld.local.v2.b32"],
        ("ld.local", _) => ["ld.local.b16", "ld.local.v2.b16"],
        _ => return None,
    };
    Some(ops[n - 1])
}

fn target(line: &Line) -> Option<(Label, Option<(Reg, bool)>)> {
    match line {
        Line::Inst(Inst { kind: Kind::Branch(label), guard, .. }) => Some((*label, *guard)),
        _ => None,
    }
}

/// Without jumps to the next line, jumps over jumps, and labels that nobody jumps to.
fn without_jumps(lines: &[Line]) -> Vec<Line> {
    let labels_behind = |lines: &[Line], at: usize| {
        let behind = lines[at + 1..].iter();
        let labels = behind.map_while(|line| match line {
            Line::Label(label) => Some(*label),
            Line::Inst(_) => None,
        });
        labels.collect::<Vec<_>>()
    };
    let mut kept = Vec::with_capacity(lines.len());
    let mut i = 0;
    while i < lines.len() {
        let here = target(&lines[i]);
        if here.is_some_and(|(label, _)| labels_behind(lines, i).contains(&label)) {
            i += 1;
            continue;
        }
        let next = lines.get(i + 1).and_then(target);
        if let (Some((over, Some((reg, is)))), Some((label, None))) = (here, next)
            && labels_behind(lines, i + 1).contains(&over)
        {
            kept.push(Line::Inst(Inst { guard: Some((reg, !is)), ..Inst::bra(label) }));
            i += 2;
            continue;
        }
        kept.push(lines[i].clone());
        i += 1;
    }
    let used: HashSet<_> = kept.iter().filter_map(target).map(|(label, _)| label).collect();
    kept.retain(|line| !matches!(line, Line::Label(label) if !used.contains(label)));
    kept
}
