//! Loads, stores, shuffles, votes and matrices.

use super::decode::{Decoder, Reason, Written};
use super::instr::{MemExt, Op, Shuffle, Space, Tile, TileRole, Vote};
use super::operand::{File, Ty};
use super::parse::Operand;

/// Address register, and what the instruction adds to it.
struct Address {
    register: u32,
    narrow: bool,
    offset: i64,
}

impl MemExt {
    /// Registers of `width` bytes, loaded from or stored to an address.
    fn at(address: &Address, regs: Vec<u32>, width: u32) -> MemExt {
        MemExt { narrow: address.narrow, offset: address.offset, ..MemExt::of(regs, width) }
    }
}

impl<'a> Decoder<'a> {
    /// Decodes a memory instruction; false where it is none.
    pub(super) fn memory(&mut self, written: &Written<'_, 'a>) -> Reason<bool> {
        let mut w =
            Written { base: written.base, mods: written.mods.clone(), operands: written.operands };
        match w.base {
            "ld" | "ldu" => self.load(&mut w)?,
            "st" => self.store(&mut w)?,
            "shfl" => self.shuffle(&mut w)?,
            "vote" => self.vote(&mut w)?,
            "wmma" => self.wmma(&mut w)?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn address(&mut self, operand: &Operand<'a>, space: Space) -> Reason<Address> {
        let Operand::Address(base, offset) = *operand else {
            return Err("operand is not an address".to_owned());
        };
        if base.is_empty() {
            return Ok(Address { register: self.regs.const_q(0), narrow: false, offset });
        }
        if let Some(register) = self.regs.get(base) {
            return match register.file() {
                File::Q => Ok(Address { register: register.index, narrow: false, offset }),
                File::W if register.ty.bits() == 32 && space != Space::Global => {
                    Ok(Address { register: register.index, narrow: true, offset })
                }
                _ => Err(format!("register `{base}` is no address")),
            };
        }
        let Some(address) = self.symbol(base) else {
            return Err(format!("`{base}` is not declared"));
        };
        if space == Space::Global {
            return Err(format!("`{base}` is not in global memory"));
        }
        Ok(Address { register: self.regs.const_w(address), narrow: true, offset })
    }

    fn space(w: &mut Written<'_, 'a>) -> Reason<Space> {
        w.take_any(&["global", "shared", "local"])
            .map(|i| [Space::Global, Space::Shared, Space::Local][i])
            .ok_or_else(|| format!("`{}` names no state space", w.base))
    }

    fn vector(w: &mut Written<'_, 'a>) -> usize {
        w.take_any(&["v2", "v4"]).map_or(1, |i| [2, 4][i])
    }

    /// Notes the width of an access to shared or local memory.
    fn note_width(&mut self, space: Space, width: u32) {
        if space != Space::Global {
            self.narrowest = self.narrowest.min(width);
        }
    }

    fn load(&mut self, w: &mut Written<'_, 'a>) -> Reason<()> {
        let ty = w.ty()?;
        if w.take("param") {
            return self.load_param(w, ty);
        }
        let space = Self::space(w)?;
        let constant = w.take("nc");
        if constant && space != Space::Global {
            return Err("`.nc` loads from global memory only".to_owned());
        }
        w.take_any(&["volatile", "ca", "cg", "cs", "lu", "cv"]);
        let count = Self::vector(w);
        w.done()?;
        let [d, a] = w.operands()?;
        let width = memory_width(w, ty, count)?;
        let address = self.address(a, space)?;
        let parts = parts(d, count)?;
        let mut regs = Vec::new();
        let mut halves = Vec::new();
        for part in parts {
            let (register, half) = self.regs.wide_dest(part, ty)?;
            if regs.contains(&register) {
                return Err("a register is loaded twice".to_owned());
            }
            regs.push(register);
            if half && matches!(ty, Ty::S(_)) {
                halves.push(register);
            }
        }
        self.note_width(space, width);
        let ext = self.push_ext(MemExt {
            signed: matches!(ty, Ty::S(_)),
            constant,
            ..MemExt::at(&address, regs, width)
        });
        self.emit_ext(Op::Ld(space), [0, address.register, 0, 0], ext);
        for register in halves {
            self.emit(Op::Cut16(false), register, register, 0, 0);
        }
        Ok(())
    }

    fn load_param(&mut self, w: &mut Written<'_, 'a>, ty: Ty) -> Reason<()> {
        w.done()?;
        let [d, a] = w.operands()?;
        let Operand::Address(name, offset) = *a else {
            return Err("operand is not an address".to_owned());
        };
        let param = self.params.iter().find(|p| p.name == name);
        let param = param.ok_or_else(|| format!("parameter `{name}` is not declared"))?;
        let bytes = i64::from(ty.bits() / 8);
        let start = i64::from(param.offset) + offset;
        if bytes == 0 || offset < 0 || offset + bytes > i64::from(param.bytes) || start % bytes != 0
        {
            return Err(format!("load is not within parameter `{name}`"));
        }
        let d = self.regs.wide_dest(d, ty)?.0;
        self.emit(Op::LdParam, d, start as u32, 0, bytes as u32);
        Ok(())
    }

    fn store(&mut self, w: &mut Written<'_, 'a>) -> Reason<()> {
        let ty = w.ty()?;
        let space = Self::space(w)?;
        w.take_any(&["volatile", "wb", "cg", "cs", "wt"]);
        let count = Self::vector(w);
        w.done()?;
        let [a, s] = w.operands()?;
        let width = memory_width(w, ty, count)?;
        let address = self.address(a, space)?;
        let mut regs = Vec::new();
        for part in parts(s, count)? {
            regs.push(self.regs.wide_source(part, ty)?);
        }
        self.note_width(space, width);
        let ext = self.push_ext(MemExt::at(&address, regs, width));
        self.emit_ext(Op::St(space), [0, address.register, 0, 0], ext);
        Ok(())
    }

    fn shuffle(&mut self, w: &mut Written<'_, 'a>) -> Reason<()> {
        let ty = w.ty()?;
        let synchronous = w.take("sync");
        let mode = w
            .take_any(&["bfly", "up", "down", "idx"])
            .map(|i| [Shuffle::Bfly, Shuffle::Up, Shuffle::Down, Shuffle::Idx][i]);
        w.done()?;
        let (Some(mode), true, Ty::B(32)) = (mode, synchronous, ty) else {
            return Err("shuffles are known as `shfl.sync.MODE.b32`".to_owned());
        };
        let [d, a, b, c, mask] = w.operands()?;
        let (d, found) = match *d {
            Operand::Pair(d, p) => {
                let p = self.regs.dest(&Operand::Word(p), Ty::Pred)?;
                (self.regs.dest(&Operand::Word(d), ty)?, p)
            }
            _ => (self.regs.dest(d, ty)?, self.regs.fresh(Ty::Pred)),
        };
        let a = self.regs.source(a, ty)?;
        let b = self.regs.source(b, ty)?;
        let c = self.regs.source(c, ty)?;
        let mask = self.regs.source(mask, ty)?;
        let ext = self.push_ext(MemExt::of(vec![mask, found], 4));
        self.emit_ext(Op::Shfl(mode), [d, a, b, c], ext);
        Ok(())
    }

    fn vote(&mut self, w: &mut Written<'_, 'a>) -> Reason<()> {
        let ty = w.ty()?;
        let synchronous = w.take("sync");
        let mode = w
            .take_any(&["all", "any", "uni", "ballot"])
            .map(|i| [Vote::All, Vote::Any, Vote::Uni, Vote::Ballot][i]);
        w.done()?;
        let wanted = if mode == Some(Vote::Ballot) { Ty::B(32) } else { Ty::Pred };
        let (Some(mode), true) = (mode, synchronous && ty == wanted) else {
            return Err("votes are known as `vote.sync.MODE.pred` and `.ballot.b32`".to_owned());
        };
        let [d, a, mask] = w.operands()?;
        let d = self.regs.dest(d, ty)?;
        let (a, negated) = match *a {
            Operand::Not(name) => (self.regs.source(&Operand::Word(name), Ty::Pred)?, 1),
            _ => (self.regs.source(a, Ty::Pred)?, 0),
        };
        let mask = self.regs.source(mask, Ty::B(32))?;
        self.emit(Op::Vote(mode), d, a, mask, negated);
        Ok(())
    }

    fn wmma(&mut self, w: &mut Written<'_, 'a>) -> Reason<()> {
        let mods = std::mem::take(&mut w.mods);
        match mods[..] {
            [
                "load",
                role @ ("a" | "b" | "c"),
                "sync",
                "aligned",
                layout,
                "m16n16k16",
                space,
                ty,
            ] => {
                let role = match role {
                    "a" => TileRole::A,
                    "b" => TileRole::B,
                    _ => TileRole::C,
                };
                let (d, rest) = w.operands.split_first().ok_or("`wmma.load` has no operands")?;
                let tile = tile(role, layout, space, ty)?;
                let regs = self.fragment(d, tile.half, true)?;
                self.fragment_access(Op::WmmaLoad, rest, tile, regs)
            }
            ["store", "d", "sync", "aligned", layout, "m16n16k16", space, ty] => {
                let [a, s, rest @ ..] = w.operands else {
                    return Err("`wmma.store` has too few operands".to_owned());
                };
                let tile = tile(TileRole::C, layout, space, ty)?;
                let regs = self.fragment(s, tile.half, false)?;
                let mut operands = vec![a.clone()];
                operands.extend_from_slice(rest);
                self.fragment_access(Op::WmmaStore, &operands, tile, regs)
            }
            ["mma", "sync", "aligned", a_layout, b_layout, "m16n16k16", "f32", "f32"] => {
                let layouts = [is_col(a_layout)?, is_col(b_layout)?];
                let [d, a, b, c] = w.operands()?;
                let mut regs = self.fragment(d, false, true)?;
                regs.extend(self.fragment(a, true, false)?);
                regs.extend(self.fragment(b, true, false)?);
                regs.extend(self.fragment(c, false, false)?);
                let ext = self.push_ext(MemExt { layouts, ..MemExt::of(regs, 4) });
                self.emit_ext(Op::WmmaMma, [0; 4], ext);
                Ok(())
            }
            _ => Err(format!("`wmma.{}` is not known", mods.join("."))),
        }
    }

    /// Eight registers of a fragment.
    fn fragment(&mut self, operand: &Operand<'a>, half: bool, write: bool) -> Reason<Vec<u32>> {
        let ty = if half { Ty::B(32) } else { Ty::F(32) };
        let parts = parts(operand, 8)?;
        parts
            .iter()
            .map(|part| if write { self.regs.dest(part, ty) } else { self.regs.source(part, ty) })
            .collect()
    }

    fn fragment_access(
        &mut self,
        op: Op,
        operands: &[Operand<'a>],
        tile: Tile,
        regs: Vec<u32>,
    ) -> Reason<()> {
        let (address, stride) = match operands {
            [address] => (address, self.regs.const_w(16)),
            [address, stride] => (address, self.regs.source(stride, Ty::U(32))?),
            _ => return Err("`wmma` has another number of operands".to_owned()),
        };
        let address = self.address(address, tile.space)?;
        let width = if tile.half { 2 } else { 4 };
        self.note_width(tile.space, width);
        let ext = self.push_ext(MemExt { tile: Some(tile), ..MemExt::at(&address, regs, width) });
        self.emit_ext(op, [0, address.register, stride, 0], ext);
        Ok(())
    }
}

fn parts<'s, 'a>(operand: &'s Operand<'a>, count: usize) -> Reason<&'s [Operand<'a>]> {
    match operand {
        Operand::Vector(parts) if parts.len() == count => Ok(parts),
        Operand::Vector(parts) => Err(format!("vector has {} parts, not {count}", parts.len())),
        _ if count == 1 => Ok(std::slice::from_ref(operand)),
        _ => Err("operand is not a vector".to_owned()),
    }
}

fn memory_width(w: &Written<'_, '_>, ty: Ty, count: usize) -> Reason<u32> {
    let width = u32::from(ty.bits()) / 8;
    if width == 0 || ty == Ty::F16x2 {
        return w.unknown(ty);
    }
    if width as usize * count > 16 {
        return Err("a vector has at most 16 bytes".to_owned());
    }
    Ok(width)
}

fn is_col(layout: &str) -> Reason<bool> {
    match layout {
        "row" => Ok(false),
        "col" => Ok(true),
        _ => Err(format!("layout `.{layout}` is not known")),
    }
}

fn tile(role: TileRole, layout: &str, space: &str, ty: &str) -> Reason<Tile> {
    let space = match space {
        "shared" => Space::Shared,
        "global" => Space::Global,
        _ => return Err(format!("state space `.{space}` is not known for matrices")),
    };
    let half = role != TileRole::C;
    if ty != if half { "f16" } else { "f32" } {
        return Err(format!("matrices `{role:?}` of .{ty} are not known"));
    }
    Ok(Tile { role, col: is_col(layout)?, half, space })
}
