//! Shared and local memory: variables in windows of their own, watched for reads before writes
//! and, shared ones, for races.

use super::access::{extend, lanes, one_address};
use super::block::Machine;
use super::warp::{LANES, Run, Warp};
use super::{FaultKind, Trouble};
use crate::ptx::{Instr, MemExt, WINDOW_SHIFT, Window};

/// Reader of a granule: several threads.
const MANY: u32 = u32::MAX;

/// Last accesses of one granule. Times are epochs, which count blocks and barriers.
#[derive(Clone, Copy, Debug, Default)]
struct Shadow {
    writer: u32,
    written: u32,
    reader: u32,
    read: u32,
}

/// Kind and description of what is wrong with an access.
pub(super) type Wrong = (FaultKind, String);

/// Memory of variables.
#[derive(Debug)]
pub(super) struct Scratch {
    windows: Vec<Window>,
    data: Vec<u8>,
    shadow: Vec<Shadow>,
    /// log2 of a granule's bytes.
    granule: u32,
    epoch: u32,
    /// Epoch at the start of the block.
    first: u32,
    watch_unwritten: bool,
    watch_races: bool,
}

impl Scratch {
    /// Memory of `bytes`, rounded up to whole granules.
    pub(super) fn new(windows: Vec<Window>, bytes: usize, granule: u32, watch: [bool; 2]) -> Self {
        let bytes = bytes.next_multiple_of(16);
        Self {
            windows,
            data: vec![0; bytes],
            shadow: vec![Shadow::default(); bytes >> granule],
            granule,
            epoch: 0,
            first: 1,
            watch_unwritten: watch[0],
            watch_races: watch[1],
        }
    }

    /// A block begins: nothing is written.
    pub(super) fn begin(&mut self) {
        self.epoch += 1;
        self.first = self.epoch;
    }

    /// All threads met at a barrier.
    pub(super) fn barrier(&mut self) {
        self.epoch += 1;
    }

    /// Offset of an access in the memory.
    #[inline(always)]
    pub(super) fn place(&self, address: u64, bytes: u32, align: u32) -> Result<usize, Wrong> {
        place(&self.windows, address, bytes, align)
    }

    /// Every access is one word of 4 bytes, or several: `read_word` and `write_word` can be used.
    #[inline(always)]
    fn has_words(&self) -> bool {
        self.granule == 2
    }

    /// As `read` by several threads at once, where nothing is wrong; else `None`.
    #[inline(always)]
    fn read_by_many(&mut self, at: usize, bytes: usize) -> Option<&[u8]> {
        let (epoch, first) = (self.epoch, self.first);
        let entries = &mut self.shadow[at >> self.granule..=(at + bytes - 1) >> self.granule];
        for s in entries {
            let unwritten = self.watch_unwritten & (s.written < first);
            let race = self.watch_races & (s.written == epoch);
            if unwritten | race {
                return None;
            }
            s.reader = MANY;
            s.read = epoch;
        }
        Some(&self.data[at..at + bytes])
    }

    /// As `read` of words by the threads from `who` on that `mask` names, up to the first at which
    /// something is wrong: its lane, or 32. Memory is watched by words.
    #[inline(always)]
    fn read_words(
        &mut self,
        [who, mask, parts]: [u32; 3],
        addresses: &[u64; LANES],
        out: &mut [[u32; LANES]; 4],
    ) -> usize {
        let (epoch, first) = (self.epoch, self.first);
        let (watch_unwritten, watch_races) = (self.watch_unwritten, self.watch_races);
        let windows = &self.windows[..];
        let shadow = &mut self.shadow[..];
        let data = &self.data[..];
        for lane in lanes(mask) {
            let Ok(at) = place(windows, addresses[lane], parts * 4, parts * 4) else { return lane };
            let reader = who + lane as u32;
            for (part, out) in out[..parts as usize].iter_mut().enumerate() {
                let at = at + part * 4;
                let s = &mut shadow[at / 4];
                let unwritten = watch_unwritten & (s.written < first);
                let race = watch_races & (s.written == epoch) & (s.writer != reader);
                if unwritten | race {
                    return lane;
                }
                s.reader = if (s.read == epoch) & (s.reader != reader) { MANY } else { reader };
                s.read = epoch;
                out[lane] = word(&data[at..at + 4]);
            }
        }
        LANES
    }

    /// As `write`, one word of memory that is watched by words.
    #[inline(always)]
    fn write_word(&mut self, who: u32, at: usize, value: u32) -> Result<(), Wrong> {
        let s = &mut self.shadow[at / 4];
        let touched = (s.read == self.epoch) & (s.reader != who)
            | (s.written == self.epoch) & (s.writer != who);
        if touched {
            return self.write(who, at, &value.to_le_bytes());
        }
        s.writer = who;
        s.written = self.epoch;
        self.data[at..at + 4].copy_from_slice(&value.to_le_bytes());
        Ok(())
    }

    /// Bytes read by a thread.
    #[inline(always)]
    pub(super) fn read(&mut self, who: u32, at: usize, bytes: usize) -> Result<&[u8], Wrong> {
        if self.watch_unwritten || self.watch_races {
            for g in at >> self.granule..=(at + bytes - 1) >> self.granule {
                let s = &mut self.shadow[g];
                if self.watch_unwritten && s.written < self.first {
                    return Err(self.unwritten(g));
                }
                if self.watch_races {
                    if s.written == self.epoch && s.writer != who {
                        let writer = s.writer;
                        return Err(self.race(g, [("writes", writer), ("reads", who)]));
                    }
                    s.reader = if s.read == self.epoch && s.reader != who { MANY } else { who };
                    s.read = self.epoch;
                }
            }
        }
        Ok(&self.data[at..at + bytes])
    }

    /// Bytes written by a thread.
    #[inline(always)]
    pub(super) fn write(&mut self, who: u32, at: usize, bytes: &[u8]) -> Result<(), Wrong> {
        if self.watch_unwritten || self.watch_races {
            let size = 1 << self.granule;
            for g in at >> self.granule..=(at + bytes.len() - 1) >> self.granule {
                let s = &mut self.shadow[g];
                if self.watch_races {
                    if s.read == self.epoch && s.reader != who {
                        let reader = s.reader;
                        return Err(self.race(g, [("reads", reader), ("writes", who)]));
                    }
                    if s.written == self.epoch && s.writer != who {
                        let start = (g * size).max(at);
                        let end = ((g + 1) * size).min(at + bytes.len());
                        if self.data[start..end] != bytes[start - at..end - at] {
                            let writer = s.writer;
                            return Err(self.race(g, [("writes", writer), ("writes", who)]));
                        }
                    }
                }
                s.writer = who;
                s.written = self.epoch;
            }
        }
        self.data[at..at + bytes.len()].copy_from_slice(bytes);
        Ok(())
    }

    #[cold]
    fn unwritten(&self, granule: usize) -> Wrong {
        let place = self.name(granule << self.granule);
        let text = format!("read of {place}, which was never written in this block");
        (FaultKind::Uninitialized, text)
    }

    #[cold]
    fn race(&self, granule: usize, parts: [(&str, u32); 2]) -> Wrong {
        let place = self.name(granule << self.granule);
        let [first, second] = parts.map(|(verb, who)| format!("{} {verb}", accessor(who)));
        let text = format!("race on {place}: {first}, then {second} without a barrier between");
        (FaultKind::Race, text)
    }

    /// Variable and offset in words.
    fn name(&self, at: usize) -> String {
        let window = self.windows.iter().rev().find(|w| w.offset as usize <= at);
        window.map_or_else(
            || format!("byte {at}"),
            |w| format!("`{}` at byte {}", w.name, at - w.offset as usize),
        )
    }
}

/// First word of bytes.
#[inline(always)]
fn word(bytes: &[u8]) -> u32 {
    bytes.first_chunk().map_or(0, |word| u32::from_le_bytes(*word))
}

/// Accessor of a whole warp: `wmma`.
pub(super) fn whole_warp(index: u32) -> u32 {
    1 << 24 | index
}

fn accessor(who: u32) -> String {
    if who == MANY {
        "several threads".to_owned()
    } else if who >> 24 == 1 {
        format!("wmma of warp {}", who & 0xff_ffff)
    } else {
        format!("thread {who}")
    }
}

#[inline(always)]
fn place(windows: &[Window], address: u64, bytes: u32, align: u32) -> Result<usize, Wrong> {
    let index = (address >> WINDOW_SHIFT).wrapping_sub(1) as usize;
    let at = (address & ((1 << WINDOW_SHIFT) - 1)) as u32;
    match windows.get(index) {
        Some(w) if at <= w.bytes && bytes <= w.bytes - at => {
            if at & (align - 1) != 0 || align > w.align {
                let text = format!(
                    "access of {bytes} bytes to `{}` at byte {at} is not aligned to {align} \
                     (the variable is aligned to {})",
                    w.name, w.align
                );
                return Err((FaultKind::Alignment, text));
            }
            Ok((w.offset + at) as usize)
        }
        _ => Err(outside(windows, address, bytes)),
    }
}

#[cold]
fn outside(windows: &[Window], address: u64, bytes: u32) -> Wrong {
    // The nearest variable: addresses before a window belong to the end of the previous one.
    let half = 1_u64 << (WINDOW_SHIFT - 1);
    let index = (address.wrapping_add(half) >> WINDOW_SHIFT).wrapping_sub(1) as usize;
    let text = match windows.get(index) {
        None => format!("access of {bytes} bytes at {address:#x}, which is in no variable"),
        Some(w) => {
            let base = (index as u64 + 1) << WINDOW_SHIFT;
            let at = address.cast_signed() - base.cast_signed();
            format!("access of {bytes} bytes to `{}` at byte {at} of {}", w.name, w.bytes)
        }
    };
    (FaultKind::Address, text)
}

/// Local memory of one warp.
#[derive(Debug)]
pub(super) struct Local {
    /// Bytes of one thread.
    stride: usize,
    data: Vec<u8>,
    /// Epoch in which each granule was written.
    written: Vec<u32>,
    granule: u32,
    epoch: u32,
    watch: bool,
}

impl Local {
    /// Memory of 32 threads.
    pub(super) fn new(bytes: usize, granule: u32, watch: bool) -> Self {
        let stride = bytes.next_multiple_of(16);
        Self {
            stride,
            data: vec![0; stride * LANES],
            written: vec![0; (stride * LANES) >> granule],
            granule,
            epoch: 0,
            watch,
        }
    }

    /// A block begins: nothing is written.
    pub(super) fn begin(&mut self) {
        self.epoch += 1;
    }

    fn check(&self, at: usize, bytes: usize) -> bool {
        let end = (at + bytes - 1) >> self.granule;
        !self.watch || self.written[at >> self.granule..=end].iter().all(|&e| e == self.epoch)
    }

    fn mark(&mut self, at: usize, bytes: usize) {
        let end = (at + bytes - 1) >> self.granule;
        self.written[at >> self.granule..=end].fill(self.epoch);
    }
}

impl Warp {
    /// Puts loaded bytes into the registers of a lane.
    #[inline(always)]
    fn put(&mut self, ext: &MemExt, lane: usize, bytes: &[u8]) {
        if ext.width == 4 {
            for (&register, part) in ext.regs.iter().zip(bytes.as_chunks::<4>().0) {
                self.w[register as usize].0[lane] = u32::from_le_bytes(*part);
            }
            return;
        }
        for (&register, part) in ext.regs.iter().zip(bytes.chunks_exact(ext.width as usize)) {
            let mut wide = [0; 8];
            wide[..part.len()].copy_from_slice(part);
            let value = u64::from_le_bytes(wide);
            if ext.width == 8 {
                self.q[register as usize].0[lane] = value;
            } else {
                self.w[register as usize].0[lane] = extend(value as u32, ext.width, ext.signed);
            }
        }
    }

    /// Puts the same loaded bytes into the registers of all lanes of a mask.
    #[inline(always)]
    fn put_all(&mut self, ext: &MemExt, mask: u32, bytes: &[u8]) {
        for (&register, part) in ext.regs.iter().zip(bytes.chunks_exact(ext.width as usize)) {
            let mut wide = [0; 8];
            wide[..part.len()].copy_from_slice(part);
            let value = u64::from_le_bytes(wide);
            if ext.width == 8 {
                self.set_wide(register, mask, [value; LANES]);
            } else {
                let value = extend(value as u32, ext.width.min(4), ext.signed && ext.width < 4);
                self.set(register, mask, [value; LANES]);
            }
        }
    }

    /// Bytes of the registers of a lane, and their number.
    #[inline(always)]
    fn take(&self, ext: &MemExt, lane: usize) -> ([u8; 16], usize) {
        let mut out = [0; 16];
        let width = ext.width as usize;
        for (&register, part) in ext.regs.iter().zip(out.chunks_exact_mut(width)) {
            match ext.width {
                4 => part.copy_from_slice(&self.w[register as usize].0[lane].to_le_bytes()),
                8 => part.copy_from_slice(&self.q[register as usize].0[lane].to_le_bytes()),
                _ => {
                    let value = self.w[register as usize].0[lane].to_le_bytes();
                    part.copy_from_slice(&value[..width]);
                }
            }
        }
        (out, width * ext.regs.len())
    }

    pub(super) fn load_shared(
        &mut self,
        machine: &mut Machine<'_>,
        i: &Instr,
        mask: u32,
    ) -> Run<()> {
        let ext = &machine.kernel.exts[i.ext as usize];
        let addresses = self.addresses(i, ext);
        let bytes = ext.width * ext.regs.len() as u32;
        let mut mask = mask;
        if let Some(address) = one_address(&addresses, mask)
            && let Ok(at) = machine.shared.place(address, bytes, bytes)
            && let Some(read) = machine.shared.read_by_many(at, bytes as usize)
        {
            self.put_all(ext, mask, read);
            return Ok(());
        }
        if ext.width == 4 && machine.shared.has_words() {
            let mut out = [[0; LANES]; 4];
            let parts = ext.regs.len();
            let wanted = [self.thread(0), mask, parts as u32];
            let stop = machine.shared.read_words(wanted, &addresses, &mut out);
            if stop == LANES {
                for (&register, out) in ext.regs.iter().zip(&out) {
                    self.set(register, mask, *out);
                }
                return Ok(());
            }
            // The slow way says what is wrong.
            mask = 1 << stop;
        }
        for lane in lanes(mask) {
            let who = self.thread(lane as u32);
            let shared = &mut machine.shared;
            let at = shared.place(addresses[lane], bytes, bytes);
            let read = at.and_then(|at| shared.read(who, at, bytes as usize));
            match read {
                Ok(bytes) => self.put(ext, lane, bytes),
                Err(wrong) => return Err(at_lane(wrong, lane)),
            }
        }
        Ok(())
    }

    pub(super) fn store_shared(
        &mut self,
        machine: &mut Machine<'_>,
        i: &Instr,
        mask: u32,
    ) -> Run<()> {
        let ext = &machine.kernel.exts[i.ext as usize];
        let addresses = self.addresses(i, ext);
        if ext.width == 4 && machine.shared.has_words() {
            let bytes = 4 * ext.regs.len() as u32;
            let first = self.thread(0);
            let shared = &mut machine.shared;
            for lane in lanes(mask) {
                let at = shared.place(addresses[lane], bytes, bytes);
                let mut at = at.map_err(|wrong| at_lane(wrong, lane))?;
                for &register in &ext.regs {
                    let value = self.w[register as usize].0[lane];
                    let written = shared.write_word(first + lane as u32, at, value);
                    written.map_err(|wrong| at_lane(wrong, lane))?;
                    at += 4;
                }
            }
            return Ok(());
        }
        for lane in lanes(mask) {
            let who = self.thread(lane as u32);
            let (bytes, len) = self.take(ext, lane);
            let shared = &mut machine.shared;
            shared
                .place(addresses[lane], len as u32, len as u32)
                .and_then(|at| shared.write(who, at, &bytes[..len]))
                .map_err(|wrong| at_lane(wrong, lane))?;
        }
        Ok(())
    }

    pub(super) fn load_local(
        &mut self,
        machine: &mut Machine<'_>,
        i: &Instr,
        mask: u32,
    ) -> Run<()> {
        let ext = &machine.kernel.exts[i.ext as usize];
        let addresses = self.addresses(i, ext);
        let bytes = ext.width * ext.regs.len() as u32;
        let local = &machine.local[self.index as usize];
        for lane in lanes(mask) {
            let at = place(&machine.kernel.local, addresses[lane], bytes, bytes)
                .map_err(|wrong| at_lane(wrong, lane))?;
            let at = at + lane * local.stride;
            if !local.check(at, bytes as usize) {
                let text = format!("read of local memory at {:#x}, never written", addresses[lane]);
                return Err(Trouble::new(FaultKind::Uninitialized, lane as u32, text));
            }
            self.put(ext, lane, &local.data[at..at + bytes as usize]);
        }
        Ok(())
    }

    pub(super) fn store_local(
        &mut self,
        machine: &mut Machine<'_>,
        i: &Instr,
        mask: u32,
    ) -> Run<()> {
        let ext = &machine.kernel.exts[i.ext as usize];
        let addresses = self.addresses(i, ext);
        let local = &mut machine.local[self.index as usize];
        for lane in lanes(mask) {
            let (bytes, len) = self.take(ext, lane);
            let at = place(&machine.kernel.local, addresses[lane], len as u32, len as u32)
                .map_err(|wrong| at_lane(wrong, lane))?;
            let at = at + lane * local.stride;
            local.data[at..at + len].copy_from_slice(&bytes[..len]);
            local.mark(at, len);
        }
        Ok(())
    }
}

#[cold]
pub(super) fn at_lane((kind, text): Wrong, lane: usize) -> Box<Trouble> {
    Trouble::new(kind, lane as u32, text)
}
