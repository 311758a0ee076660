//! Accesses to neighbouring numbers in memory become one of up to 16 bytes, where its address is sure to be a multiple of that.

use std::collections::{BTreeMap, HashMap};

use crate::analysis::Analysis;
use crate::code::{Address, Base, Class, Inst, Kind, Line, Reg, Scalar};

/// Bytes of the widest access.
const WIDEST: u32 = 16;

/// A kind of memory, and how it is accessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Space {
    /// A buffer that nobody writes.
    Constant,
    Global,
    Shared,
}

/// The same with wider accesses. Loads move up to the first one of their neighbours, stores down to the last one.
pub(crate) fn with_wide_accesses(lines: Vec<Line>, regs: u32) -> Vec<Line> {
    let analysis = Analysis::new(&lines, regs);
    let mut pass =
        Pass { analysis: &analysis, groups: Vec::new(), changes: HashMap::new(), next_reg: regs };
    for (at, line) in lines.iter().enumerate() {
        match line {
            Line::Inst(inst) => pass.take(at, inst),
            Line::Label(_) => pass.close_all(),
        }
    }
    pass.close_all();
    let mut changes = pass.changes;
    let of = |(at, line)| changes.remove(&at).unwrap_or_else(|| vec![line]);
    lines.into_iter().enumerate().flat_map(of).collect()
}

/// A number that is read or written.
#[derive(Clone, Copy, Debug)]
struct Part {
    /// The line of the instruction.
    at: usize,
    reg: Reg,
}

/// Accesses of one kind, with one register in their addresses, between which nothing hinders that they are one.
struct Group {
    space: Space,
    base: Base,
    is_store: bool,
    /// By their offsets in bytes.
    parts: BTreeMap<i64, Part>,
    /// Of loads: what was written meanwhile.
    written: Vec<(i64, i64)>,
}

/// A load or a store.
struct Access<'a> {
    at: usize,
    space: Space,
    address: Address,
    regs: Vec<Reg>,
    is_store: bool,
    inst: &'a Inst,
}

impl Access<'_> {
    fn of(at: usize, inst: &Inst) -> Option<Access<'_>> {
        let (address, is_store) = match inst.kind {
            Kind::Load(address) => (address, false),
            Kind::Store(address) => (address, true),
            _ => return None,
        };
        let name = inst.op.split_once('.')?.1;
        let space = if name.starts_with("global.nc") {
            Space::Constant
        } else if name.starts_with("global") {
            Space::Global
        } else if name.starts_with("shared") {
            Space::Shared
        } else {
            return None;
        };
        let regs = match is_store {
            true => inst.src.iter().filter_map(|s| s.reg()).collect(),
            false => inst.dst.clone(),
        };
        Some(Access { at, space, address, regs, is_store, inst })
    }

    /// Where it begins and ends behind the register.
    fn range(&self) -> (i64, i64) {
        let bytes: i64 = self.regs.iter().map(|reg| bytes_of(*reg)).sum();
        (self.address.offset, self.address.offset + bytes)
    }
}

fn bytes_of(reg: Reg) -> i64 {
    if reg.class == Class::B16 { 2 } else { 4 }
}

fn overlap(a: (i64, i64), b: (i64, i64)) -> bool {
    a.0 < b.1 && b.0 < a.1
}

impl Group {
    fn has(&self, range: (i64, i64)) -> bool {
        // a number before the range reaches into it by less than its bytes
        let mut near = self.parts.range(range.0 - 3..range.1);
        near.any(|(from, part)| overlap(range, (*from, from + bytes_of(part.reg))))
    }

    /// Whether it ends where so many bytes behind its register are read or written.
    fn ends_at(&self, range: (i64, i64), is_store: bool) -> bool {
        match (self.is_store, is_store) {
            (true, _) => self.has(range),
            // later loads of what is written do not move up
            (false, true) => false,
            (false, false) => {
                self.has(range) || self.written.iter().any(|written| overlap(*written, range))
            }
        }
    }
}

struct Pass<'a> {
    analysis: &'a Analysis,
    groups: Vec<Group>,
    /// What is in the place of lines.
    changes: HashMap<usize, Vec<Line>>,
    next_reg: u32,
}

impl Pass<'_> {
    fn take(&mut self, at: usize, inst: &Inst) {
        let access = Access::of(at, inst);
        match (&access, &inst.kind) {
            (Some(access), _) => self.access(access),
            (None, Kind::Branch(_) | Kind::Bare) => self.close_all(),
            (None, Kind::LoadMatrix(_) | Kind::StoreMatrix(_)) => {
                self.close(|group| group.space == Space::Shared);
            }
            _ => {}
        }
        // what is written later must be what it was, and so must addresses
        for reg in inst.dst.iter().filter(|reg| !self.analysis.is_written_once(**reg)) {
            self.close(|group| {
                let is_stored = |part: &Part| group.is_store && part.reg == *reg;
                group.base == Base::Reg(*reg) || group.parts.values().any(is_stored)
            });
        }
    }

    fn access(&mut self, access: &Access<'_>) {
        let range = access.range();
        let Access { space, address: Address { base, .. }, is_store, .. } = *access;
        let analysis = self.analysis;
        let is_joined = access.inst.guard.is_none()
            && (is_store || access.regs.iter().all(|reg| analysis.is_written_once(*reg)));
        self.close(|group| {
            if group.space != space {
                return false;
            }
            if group.base == base {
                return !is_joined || group.ends_at(range, is_store);
            }
            (group.is_store || is_store) && may_be_same(analysis, space, group.base, base)
        });
        if !is_joined {
            return;
        }
        let mut to = None;
        for (i, group) in self.groups.iter_mut().enumerate() {
            match group.space == space && group.base == base {
                true if group.is_store == is_store => to = Some(i),
                true if is_store => group.written.push(range),
                _ => {}
            }
        }
        let i = to.unwrap_or_else(|| {
            let (parts, written) = (BTreeMap::new(), Vec::new());
            self.groups.push(Group { space, base, is_store, parts, written });
            self.groups.len() - 1
        });
        let mut offset = range.0;
        for reg in &access.regs {
            self.groups[i].parts.insert(offset, Part { at: access.at, reg: *reg });
            offset += bytes_of(*reg);
        }
    }

    fn close_all(&mut self) {
        self.close(|_| true);
    }

    fn close(&mut self, is: impl Fn(&Group) -> bool) {
        let (closed, open) = std::mem::take(&mut self.groups).into_iter().partition(is);
        self.groups = open;
        let closed: Vec<Group> = closed;
        closed.iter().for_each(|group| self.close_one(group));
    }

    /// Makes accesses of a group as wide as can be.
    fn close_one(&mut self, group: &Group) {
        let parts: Vec<_> = group.parts.iter().map(|(offset, part)| (*offset, *part)).collect();
        let mut of_line: HashMap<usize, usize> = HashMap::new();
        for (_, part) in &parts {
            *of_line.entry(part.at).or_default() += 1;
        }
        let mut rest = parts.as_slice();
        while let Some((first, _)) = rest.first() {
            let base = group.base;
            let chunk = [WIDEST, WIDEST / 2, WIDEST / 4].into_iter().find_map(|bytes| {
                let n = neighbours(rest, bytes)?;
                let chunk = &rest[..n];
                let is_whole = chunk.iter().all(|(_, part)| {
                    let inside = chunk.iter().filter(|(_, other)| other.at == part.at).count();
                    inside == of_line[&part.at]
                });
                let is_new = chunk.iter().any(|(_, part)| part.at != chunk[0].1.at);
                let is_aligned = self.analysis.is_aligned(base, *first, bytes);
                (is_whole && is_new && is_aligned).then_some(n)
            });
            let n = chunk.unwrap_or(1);
            if chunk.is_some() {
                self.replace(group, &rest[..n]);
            }
            rest = &rest[n..];
        }
    }

    fn word(&mut self) -> Reg {
        self.next_reg += 1;
        Reg { class: Class::B32, id: self.next_reg - 1 }
    }

    /// Puts one access in the place of others.
    fn replace(&mut self, group: &Group, parts: &[(i64, Part)]) {
        let address = Address { base: group.base, offset: parts[0].0 };
        let regs: Vec<_> = parts.iter().map(|(_, part)| part.reg).collect();
        let at = parts.iter().map(|(_, part)| part.at);
        let at = if group.is_store { at.max() } else { at.min() };
        let is_halves = regs[0].class == Class::B16;
        let mut halves = Vec::new();
        let words = match is_halves {
            false => regs,
            true => {
                let mut words = Vec::new();
                for pair in regs.chunks(2) {
                    let word = self.word();
                    let all: Vec<_> = pair.iter().map(|reg| Scalar::Reg(*reg)).collect();
                    halves.push(match group.is_store {
                        true => Inst::of("mov.b32", vec![word], all, Kind::Pack),
                        false => {
                            let word = vec![Scalar::Reg(word)];
                            Inst::of("mov.b32", pair.to_vec(), word, Kind::Unpack)
                        }
                    });
                    words.push(word);
                }
                words
            }
        };
        let op = op(group.space, group.is_store, words.len());
        let halves = halves.into_iter().map(Line::Inst);
        let lines: Vec<_> = if group.is_store {
            let src = words.iter().map(|reg| Scalar::Reg(*reg)).collect();
            let store = Inst::of(op, Vec::new(), src, Kind::Store(address));
            halves.chain([Line::Inst(store)]).collect()
        } else {
            let load = Inst::of(op, words, Vec::new(), Kind::Load(address));
            [Line::Inst(load)].into_iter().chain(halves).collect()
        };
        for (_, part) in parts {
            self.changes.insert(part.at, Vec::new());
        }
        self.changes.insert(at.expect("there are some"), lines);
    }
}

/// Whether accesses with two registers in their addresses may be to the same numbers. Variables in shared memory lie apart.
fn may_be_same(analysis: &Analysis, space: Space, a: Base, b: Base) -> bool {
    match (space, analysis.root(a), analysis.root(b)) {
        (Space::Shared, Some(a), Some(b)) => a == b,
        _ => true,
    }
}

/// How many numbers of one size, one behind another, have so many bytes.
fn neighbours(parts: &[(i64, Part)], bytes: u32) -> Option<usize> {
    let (first, part) = parts.first()?;
    let size = bytes_of(part.reg);
    let n = (i64::from(bytes) / size) as usize;
    let chunk = parts.get(..n)?;
    let mut offsets = (0..).map(|i| first + i * size);
    let are = chunk.iter().all(|(offset, other)| {
        other.reg.class == part.reg.class && offsets.next() == Some(*offset)
    });
    are.then_some(n)
}

fn op(space: Space, is_store: bool, words: usize) -> &'static str {
    match (space, is_store, words) {
        (Space::Constant | Space::Global, true, 4) => "st.global.v4.b32",
        (Space::Constant | Space::Global, true, 2) => "st.global.v2.b32",
        (Space::Constant | Space::Global, true, _) => "st.global.b32",
        (Space::Constant, false, 4) => "ld.global.nc.v4.b32",
        (Space::Constant, false, 2) => "ld.global.nc.v2.b32",
        (Space::Constant, false, _) => "ld.global.nc.b32",
        (Space::Global, false, 4) => "ld.global.v4.b32",
        (Space::Global, false, 2) => "ld.global.v2.b32",
        (Space::Global, false, _) => "ld.global.b32",
        (Space::Shared, true, 4) => "st.shared.v4.b32",
        (Space::Shared, true, 2) => "st.shared.v2.b32",
        (Space::Shared, true, _) => "st.shared.b32",
        (Space::Shared, false, 4) => "ld.shared.v4.b32",
        (Space::Shared, false, 2) => "ld.shared.v2.b32",
        (Space::Shared, false, _) => "ld.shared.b32",
    }
}
