//! `wmma`: products of 16 x 16 matrices.
//!
//! PTX leaves open which lane holds which element. Here element `e = row * 16 + column` is in
//! register `e / 32` of lane `e % 32`; f16 fragments keep, in the upper half, which operand and
//! layout they were loaded as, so that a fragment used as another operand is a fault. Products are
//! exact, and sums are rounded to f32 after each k in ascending order.

use super::block::Machine;
use super::half;
use super::scratch::{at_lane, whole_warp};
use super::warp::{LANES, Run, Warp};
use super::{FaultKind, Trouble};
use crate::ptx::{Instr, MemExt, Space, Tile, TileRole};

/// Rows and columns of a matrix.
const SIDE: usize = 16;

/// Upper half of the registers of an f16 fragment.
fn tag(role: TileRole, col: bool) -> u32 {
    let role = if role == TileRole::A { 0xa000 } else { 0xb000 };
    (role | u32::from(col)) << 16
}

/// Where a fragment is in memory.
struct Place {
    address: u64,
    /// Elements from one row (or column) to the next.
    stride: u64,
}

impl Warp {
    /// Address and stride, which all lanes must agree on.
    fn fragment_place(&self, i: &Instr, ext: &MemExt, tile: Tile) -> Run<Place> {
        let addresses = self.addresses(i, ext);
        let strides = self.w[i.b as usize].0;
        let differs =
            (0..LANES).find(|&l| addresses[l] != addresses[0] || strides[l] != strides[0]);
        if let Some(lane) = differs {
            let text = "lanes of the warp give different addresses or strides".to_owned();
            return Err(Trouble::new(FaultKind::Divergent, lane as u32, text));
        }
        let unit = if tile.half { 8 } else { 4 };
        if !addresses[0].is_multiple_of(32) || !strides[0].is_multiple_of(unit) {
            let text = format!(
                "matrix at {:#x} with a stride of {}: the address must be a multiple of 32 bytes, \
                 the stride of 16 bytes",
                addresses[0], strides[0]
            );
            return Err(Trouble::new(FaultKind::Alignment, 0, text));
        }
        Ok(Place { address: addresses[0], stride: u64::from(strides[0]) })
    }

    pub(super) fn load_fragment(&mut self, machine: &mut Machine<'_>, i: &Instr) -> Run<()> {
        let ext = &machine.kernel.exts[i.ext as usize];
        let Some(tile) = ext.tile else { return Ok(()) };
        let place = self.fragment_place(i, ext, tile)?;
        let width = ext.width as usize;
        let who = whole_warp(self.index);
        for line in 0..SIDE {
            let address = place.address + line as u64 * place.stride * width as u64;
            let mut bytes = [0; SIDE * 4];
            let bytes = &mut bytes[..SIDE * width];
            read_line(machine, tile.space, address, who, bytes)?;
            for (other, element) in bytes.chunks_exact(width).enumerate() {
                let value = match *element {
                    [a, b] => tag(tile.role, tile.col) | u32::from(u16::from_le_bytes([a, b])),
                    [a, b, c, d] => u32::from_le_bytes([a, b, c, d]),
                    _ => 0,
                };
                let e = if tile.col { other * SIDE + line } else { line * SIDE + other };
                self.w[ext.regs[e / LANES] as usize].0[e % LANES] = value;
            }
        }
        Ok(())
    }

    pub(super) fn store_fragment(&mut self, machine: &mut Machine<'_>, i: &Instr) -> Run<()> {
        let ext = &machine.kernel.exts[i.ext as usize];
        let Some(tile) = ext.tile else { return Ok(()) };
        let place = self.fragment_place(i, ext, tile)?;
        let who = whole_warp(self.index);
        for line in 0..SIDE {
            let address = place.address + line as u64 * place.stride * 4;
            let mut bytes = [0; SIDE * 4];
            for (other, part) in bytes.as_chunks_mut::<4>().0.iter_mut().enumerate() {
                let e = if tile.col { other * SIDE + line } else { line * SIDE + other };
                *part = self.w[ext.regs[e / LANES] as usize].0[e % LANES].to_le_bytes();
            }
            write_line(machine, tile.space, address, who, &bytes)?;
        }
        Ok(())
    }

    /// Values of an f16 fragment.
    fn half_fragment(&self, regs: &[u32], role: TileRole, col: bool) -> Run<[[f32; SIDE]; SIDE]> {
        let wanted = tag(role, col);
        let mut out = [[0.0; SIDE]; SIDE];
        for (e, out) in out.as_flattened_mut().iter_mut().enumerate() {
            let word = self.w[regs[e / LANES] as usize].0[e % LANES];
            if word & 0xffff_0000 != wanted && word != 0 {
                let text = format!(
                    "operand {role:?} of wmma.mma was not loaded as {role:?} with layout {}",
                    if col { "col" } else { "row" }
                );
                return Err(Trouble::new(FaultKind::Divergent, (e % LANES) as u32, text));
            }
            *out = half::to_f32(word & 0xffff);
        }
        Ok(out)
    }

    /// `wmma.mma`: `d = a * b + c`.
    pub(super) fn multiply(&mut self, machine: &Machine<'_>, i: &Instr) -> Run<()> {
        let ext = &machine.kernel.exts[i.ext as usize];
        let [d, a, b, c] = [0, 8, 16, 24].map(|at| &ext.regs[at..at + 8]);
        let a = self.half_fragment(a, TileRole::A, ext.layouts[0])?;
        let b = self.half_fragment(b, TileRole::B, ext.layouts[1])?;
        let mut sums = [[0.0_f32; SIDE]; SIDE];
        for (e, sum) in sums.as_flattened_mut().iter_mut().enumerate() {
            *sum = f32::from_bits(self.w[c[e / LANES] as usize].0[e % LANES]);
        }
        for (sums, a) in sums.iter_mut().zip(&a) {
            for (a, b) in a.iter().zip(&b) {
                for (sum, b) in sums.iter_mut().zip(b) {
                    *sum += a * b;
                }
            }
        }
        for (e, sum) in sums.as_flattened().iter().enumerate() {
            self.w[d[e / LANES] as usize].0[e % LANES] = sum.to_bits();
        }
        Ok(())
    }
}

fn read_line(
    machine: &mut Machine<'_>,
    space: Space,
    address: u64,
    who: u32,
    bytes: &mut [u8],
) -> Run<()> {
    let len = bytes.len() as u32;
    if space == Space::Global {
        let (allocation, at) = global_line(machine, address, len, "read")?;
        if let Some(first) = allocation.first_unwritten(at, u64::from(len))
            && machine.watch_unwritten()
        {
            let place = machine.memory.describe(allocation.base() + first);
            let text = format!("wmma reads what was never written: {place}");
            return Err(Trouble::new(FaultKind::Uninitialized, 0, text));
        }
        allocation.read(at, bytes);
        return Ok(());
    }
    let shared = &mut machine.shared;
    let read = shared
        .place(address, len, 16)
        .and_then(|at| shared.read(who, at, len as usize))
        .map_err(|wrong| at_lane(wrong, 0))?;
    bytes.copy_from_slice(read);
    Ok(())
}

fn write_line(
    machine: &mut Machine<'_>,
    space: Space,
    address: u64,
    who: u32,
    bytes: &[u8],
) -> Run<()> {
    let len = bytes.len() as u32;
    if space == Space::Global {
        let (allocation, at) = global_line(machine, address, len, "write")?;
        allocation.write(at, bytes);
        return Ok(());
    }
    let shared = &mut machine.shared;
    shared
        .place(address, len, 16)
        .and_then(|at| shared.write(who, at, bytes))
        .map_err(|wrong| at_lane(wrong, 0))
}

fn global_line<'m>(
    machine: &Machine<'m>,
    address: u64,
    len: u32,
    verb: &str,
) -> Run<(&'m crate::device_memory::Allocation, u64)> {
    machine.memory.range(address, u64::from(len)).ok_or_else(|| {
        let place = machine.memory.describe(address);
        let text = format!("wmma: {verb} of {len} bytes at {address:#x}: {place}");
        Trouble::new(FaultKind::Address, 0, text)
    })
}
