//! Loads and stores of global memory and parameters.

use super::alu_int::lanewise;
use super::block::Machine;
use super::launch::Uninitialized;
use super::warp::{LANES, Run, Warp};
use super::{FaultKind, Trouble};
use crate::device_memory::Allocation;
use crate::ptx::{Instr, MemExt};
use crate::stamps::Conflict;

/// Lanes of a mask.
pub(super) fn lanes(mut mask: u32) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let lane = mask.trailing_zeros() as usize;
        mask &= mask.wrapping_sub(1);
        (lane < LANES).then_some(lane)
    })
}

/// Address of all lanes of a mask, where they are several and have the same.
#[inline(always)]
pub(super) fn one_address(addresses: &[u64; LANES], mask: u32) -> Option<u64> {
    let first = addresses[mask.trailing_zeros() as usize % LANES];
    let mut differs = 0;
    for (lane, &address) in addresses.iter().enumerate() {
        differs |= (address ^ first) & u64::from(mask >> lane & 1).wrapping_neg();
    }
    (differs == 0 && mask & mask.wrapping_sub(1) != 0).then_some(first)
}

/// Extends a value of 1 or 2 bytes.
#[inline(always)]
pub(super) fn extend(value: u32, bytes: u32, signed: bool) -> u32 {
    let shift = 32 - bytes * 8;
    if signed { ((value << shift).cast_signed() >> shift).cast_unsigned() } else { value }
}

impl Warp {
    /// Addresses of all lanes.
    #[inline(always)]
    pub(super) fn addresses(&self, i: &Instr, ext: &MemExt) -> [u64; LANES] {
        let offset = ext.offset.cast_unsigned();
        if ext.narrow {
            let base = &self.w[i.a as usize].0;
            lanewise(|l| u64::from(base[l]).wrapping_add(offset))
        } else {
            let base = &self.q[i.a as usize].0;
            lanewise(|l| base[l].wrapping_add(offset))
        }
    }

    pub(super) fn load_global(&mut self, machine: &Machine<'_>, i: &Instr, mask: u32) -> Run<()> {
        let ext = &machine.kernel.exts[i.ext as usize];
        let addresses = self.addresses(i, ext);
        let bytes = ext.width * ext.regs.len() as u32;
        if ext.width == 4
            && let Some(address) = one_address(&addresses, mask)
        {
            // One lane loads for all.
            let lane = mask.trailing_zeros();
            let allocation = check(machine, address, bytes, lane as usize, "read")?;
            self.load_from(machine, allocation, ext, &addresses, 1 << lane)?;
            for &register in &ext.regs {
                let value = self.w[register as usize].0[lane as usize];
                self.set(register, mask, [value; LANES]);
            }
            return Ok(());
        }
        let first = addresses[mask.trailing_zeros() as usize];
        if let Some(allocation) = machine.memory.find(first)
            && fits(allocation, &addresses, mask, bytes)
        {
            return self.load_from(machine, allocation, ext, &addresses, mask);
        }
        for lane in lanes(mask) {
            let allocation = check(machine, addresses[lane], bytes, lane, "read")?;
            self.load_from(machine, allocation, ext, &addresses, 1 << lane)?;
        }
        Ok(())
    }

    /// Loads lanes that are all within one allocation and aligned.
    fn load_from(
        &mut self,
        machine: &Machine<'_>,
        allocation: &Allocation,
        ext: &MemExt,
        addresses: &[u64; LANES],
        mask: u32,
    ) -> Run<()> {
        let base = allocation.base();
        let bytes = ext.width * ext.regs.len() as u32;
        if !allocation.is_complete() && machine.options.uninitialized != Uninitialized::Allow {
            for lane in lanes(mask) {
                let at = addresses[lane] - base;
                if !allocation.is_written(at, bytes) {
                    let address = addresses[lane];
                    let place = machine.memory.describe(address);
                    let text = format!(
                        "read of {bytes} bytes at {address:#x}, which were never written: {place}"
                    );
                    return Err(Trouble::new(FaultKind::Uninitialized, lane as u32, text));
                }
            }
        }
        if ext.width >= 4
            && let Some(stamps) = allocation.stamps(machine.stamp.launch)
        {
            for lane in lanes(mask) {
                let first = ((addresses[lane] - base) / 4) as usize;
                for word in first..first + bytes as usize / 4 {
                    stamps
                        .read(word, machine.stamp, ext.constant)
                        .map_err(|c| conflict(machine, c, addresses[lane], lane, "reads"))?;
                }
            }
        }
        match ext.width {
            4 if mask == u32::MAX => {
                for (part, &register) in (0..).zip(&ext.regs) {
                    let out = &mut self.w[register as usize].0;
                    for lane in 0..LANES {
                        out[lane] = allocation.word(addresses[lane] - base + part * 4);
                    }
                }
            }
            4 => {
                for (part, &register) in (0..).zip(&ext.regs) {
                    for lane in lanes(mask) {
                        let value = allocation.word(addresses[lane] - base + part * 4);
                        self.w[register as usize].0[lane] = value;
                    }
                }
            }
            8 => {
                for (part, &register) in (0..).zip(&ext.regs) {
                    for lane in lanes(mask) {
                        let at = addresses[lane] - base + part * 8;
                        let [low, high] = [allocation.word(at), allocation.word(at + 4)];
                        let value = u64::from(low) | u64::from(high) << 32;
                        self.q[register as usize].0[lane] = value;
                    }
                }
            }
            width => {
                for (part, &register) in (0..).zip(&ext.regs) {
                    for lane in lanes(mask) {
                        let at = addresses[lane] - base + part * u64::from(width);
                        let value = extend(allocation.part(at, width), width, ext.signed);
                        self.w[register as usize].0[lane] = value;
                    }
                }
            }
        }
        Ok(())
    }

    pub(super) fn store_global(&mut self, machine: &Machine<'_>, i: &Instr, mask: u32) -> Run<()> {
        let ext = &machine.kernel.exts[i.ext as usize];
        let addresses = self.addresses(i, ext);
        let bytes = ext.width * ext.regs.len() as u32;
        let first = addresses[mask.trailing_zeros() as usize];
        if let Some(allocation) = machine.memory.find(first)
            && fits(allocation, &addresses, mask, bytes)
        {
            return self.store_to(machine, allocation, ext, &addresses, mask);
        }
        for lane in lanes(mask) {
            let allocation = check(machine, addresses[lane], bytes, lane, "write")?;
            self.store_to(machine, allocation, ext, &addresses, 1 << lane)?;
        }
        Ok(())
    }

    /// Stores lanes that are all within one allocation and aligned.
    fn store_to(
        &self,
        machine: &Machine<'_>,
        allocation: &Allocation,
        ext: &MemExt,
        addresses: &[u64; LANES],
        mask: u32,
    ) -> Run<()> {
        let base = allocation.base();
        let bytes = ext.width * ext.regs.len() as u32;
        let complete = allocation.is_complete();
        let stamps = allocation.stamps(machine.stamp.launch);
        for lane in lanes(mask) {
            let start = addresses[lane] - base;
            let set = |at: u64, value: u32| -> Run<()> {
                if let Some(stamps) = stamps {
                    let changes = allocation.word(at) != value;
                    stamps
                        .write((at / 4) as usize, machine.stamp, changes)
                        .map_err(|c| conflict(machine, c, addresses[lane], lane, "writes"))?;
                }
                allocation.set_word(at, value);
                Ok(())
            };
            for (part, &register) in (0..).zip(&ext.regs) {
                match ext.width {
                    4 => set(start + part * 4, self.w[register as usize].0[lane])?,
                    8 => {
                        let value = self.q[register as usize].0[lane];
                        set(start + part * 8, value as u32)?;
                        set(start + part * 8 + 4, (value >> 32) as u32)?;
                    }
                    width => {
                        let at = start + part * u64::from(width);
                        allocation.set_part(at, width, self.w[register as usize].0[lane]);
                    }
                }
            }
            if !complete {
                allocation.mark(start, bytes);
            }
        }
        Ok(())
    }

    pub(super) fn load_param(&mut self, machine: &Machine<'_>, i: &Instr, mask: u32) {
        let mut bytes = [0; 8];
        let at = i.a as usize;
        bytes[..i.c as usize].copy_from_slice(&machine.launch.params[at..at + i.c as usize]);
        let value = u64::from_le_bytes(bytes);
        if i.c == 8 {
            self.set_wide(i.d, mask, [value; LANES]);
        } else {
            self.set(i.d, mask, [value as u32; LANES]);
        }
    }
}

/// All lanes are within one allocation and aligned.
#[inline(always)]
fn fits(allocation: &Allocation, addresses: &[u64; LANES], mask: u32, bytes: u32) -> bool {
    let bytes = u64::from(bytes);
    let Some(last) = allocation.size().checked_sub(bytes) else { return false };
    let base = allocation.base();
    let mut bad = false;
    if mask == u32::MAX {
        for &address in addresses {
            let at = address.wrapping_sub(base);
            bad |= (at > last) | (at & (bytes - 1) != 0);
        }
    } else {
        for lane in lanes(mask) {
            let at = addresses[lane].wrapping_sub(base);
            bad |= (at > last) | (at & (bytes - 1) != 0);
        }
    }
    !bad
}

/// Allocation of one lane's access.
fn check<'m>(
    machine: &Machine<'m>,
    address: u64,
    bytes: u32,
    lane: usize,
    verb: &str,
) -> Run<&'m Allocation> {
    let Some((allocation, _)) = machine.memory.range(address, u64::from(bytes)) else {
        let place = machine.memory.describe(address);
        let text = format!("{verb} of {bytes} bytes at {address:#x}: {place}");
        return Err(Trouble::new(FaultKind::Address, lane as u32, text));
    };
    if !address.is_multiple_of(u64::from(bytes)) {
        let place = machine.memory.describe(address);
        let text = format!("{verb} of {bytes} bytes at {address:#x} is not aligned: {place}");
        return Err(Trouble::new(FaultKind::Alignment, lane as u32, text));
    }
    Ok(allocation)
}

/// Fault of two blocks of a launch on one word.
#[cold]
fn conflict(
    machine: &Machine<'_>,
    conflict: Conflict,
    address: u64,
    lane: usize,
    verb: &str,
) -> Box<Trouble> {
    let place = machine.memory.describe(address);
    let verb_before = if conflict.wrote { "wrote" } else { "read" };
    let before = match conflict.block {
        None => "several blocks".to_owned(),
        Some(block) => {
            let [x, y, _] = machine.launch.grid;
            format!("block ({}, {}, {})", block % x, block / x % y, block / x / y)
        }
    };
    let constant = if conflict.constant { " (ld.global.nc of what the launch writes)" } else { "" };
    let text = format!(
        "race on global memory: {before} {verb_before} in the same launch what this block {verb} \
         at {address:#x}{constant}: {place}"
    );
    Trouble::new(FaultKind::Race, lane as u32, text)
}
