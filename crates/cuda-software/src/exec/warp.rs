//! Control flow of one warp.
//!
//! Lanes that are at the same instruction run together. Of several groups, the one at the lowest
//! address runs first, so that lanes meet again where branches join. Groups that wait for all
//! lanes of the warp are set aside until these arrive.

use super::block::Machine;
use super::{FaultKind, Trouble};
use crate::ptx::{Instr, Kernel, NO_GUARD, Op, Space, special};

/// Lanes of a warp.
pub(super) const LANES: usize = 32;

/// Contents of a register that no instruction wrote: NaN, a large number, no address.
pub(super) const POISON: u32 = 0x7fa5_5aa5;
/// As `POISON`, of 64 bits.
pub(super) const WIDE_POISON: u64 = 0x7fa5_5aa5_7fa5_5aa5;

/// One 32-bit register in all lanes.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub(super) struct Lanes(pub(super) [u32; LANES]);

/// One 64-bit register in all lanes.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub(super) struct WideLanes(pub(super) [u64; LANES]);

/// Why a warp stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// At a barrier of the block.
    Barrier(u32),
    /// All of its threads ended.
    Done,
}

/// Registers and control flow of a warp.
#[derive(Debug)]
pub(super) struct Warp {
    pub(super) w: Vec<Lanes>,
    pub(super) q: Vec<WideLanes>,
    /// Predicates: one bit for each lane.
    pub(super) p: Vec<u32>,
    /// Number of the warp in its block.
    pub(super) index: u32,
    /// Lanes that have threads.
    exists: u32,
    /// Lanes that have not ended.
    pub(super) live: u32,
    active: u32,
    pc: u32,
    /// Other groups that can run: address and lanes, lowest address last.
    waiting: Vec<(u32, u32)>,
    /// Groups that wait for other lanes.
    blocked: Vec<(u32, u32)>,
    /// Lowest address of `waiting`.
    limit: u32,
    /// Instructions executed since the start of the block.
    pub(super) steps: u64,
}

/// Result of an instruction.
pub(super) type Run<T> = Result<T, Box<Trouble>>;

impl Warp {
    /// Warp whose constants are in `w` and `q`.
    pub(super) fn new(
        index: u32,
        exists: u32,
        w: Vec<Lanes>,
        q: Vec<WideLanes>,
        n_p: usize,
    ) -> Self {
        Self {
            w,
            q,
            p: vec![0; n_p],
            index,
            exists,
            live: 0,
            active: 0,
            pc: 0,
            waiting: Vec::new(),
            blocked: Vec::new(),
            limit: u32::MAX,
            steps: 0,
        }
    }

    /// Prepares for a block: all threads at the first instruction. Registers that may be read
    /// before they are written hold poison.
    pub(super) fn start(&mut self, kernel: &Kernel, ctaid: [u32; 3]) {
        for &register in &kernel.unwritten_w {
            self.w[register as usize] = Lanes([POISON; LANES]);
        }
        for &register in &kernel.unwritten_q {
            self.q[register as usize] = WideLanes([WIDE_POISON; LANES]);
        }
        self.p.fill(0xa5a5_a5a5);
        self.p[0] = 0;
        self.p[1] = u32::MAX;
        for (axis, id) in ctaid.into_iter().enumerate() {
            self.w[special::CTAID + axis] = Lanes([id; LANES]);
        }
        self.live = self.exists;
        self.active = self.exists;
        self.pc = 0;
        self.waiting.clear();
        self.blocked.clear();
        self.limit = u32::MAX;
        self.steps = 0;
    }

    /// Instruction that the warp is at.
    pub(super) fn pc(&self) -> u32 {
        self.pc
    }

    /// Number of a lane's thread in the block.
    pub(super) fn thread(&self, lane: u32) -> u32 {
        self.index * LANES as u32 + lane
    }

    /// Adds a group that can run.
    fn wait(&mut self, pc: u32, mask: u32) {
        match self.waiting.binary_search_by(|&(at, _)| pc.cmp(&at)) {
            Ok(i) => self.waiting[i].1 |= mask,
            Err(i) => self.waiting.insert(i, (pc, mask)),
        }
        self.limit = self.waiting.last().map_or(u32::MAX, |g| g.0);
    }

    /// Goes on with the group at the lowest address; false where there is none.
    fn pick(&mut self) -> bool {
        let Some((pc, mask)) = self.waiting.pop() else { return false };
        self.pc = pc;
        self.active = mask;
        self.limit = self.waiting.last().map_or(u32::MAX, |g| g.0);
        true
    }

    /// The current group came to, or went past, the next waiting one.
    #[cold]
    fn meet(&mut self) {
        if self.pc > self.limit {
            self.wait(self.pc, self.active);
            self.pick();
        } else {
            let (pc, active) = (self.pc, self.active);
            self.pick();
            debug_assert_eq!(pc, self.pc);
            self.active |= active;
        }
    }

    /// Lanes that an instruction which gathers lanes needs.
    fn needed(&self, i: &Instr, machine: &Machine<'_>, lane: u32) -> u32 {
        let member = |register: u32| self.w[register as usize].0[lane as usize];
        match i.op {
            Op::WarpBar => member(i.a) & self.live,
            Op::Shfl(_) => member(machine.kernel.exts[i.ext as usize].regs[0]) & self.live,
            Op::Vote(_) => member(i.b) & self.live,
            Op::Bar => self.live,
            _ => u32::MAX,
        }
    }

    /// Lanes arrive at an instruction that gathers. Where all are there, returns them, and they
    /// are the active group; else they are set aside, and `None` tells that another group runs.
    fn gather(&mut self, i: &Instr, machine: &Machine<'_>, mask: u32) -> Run<Option<u32>> {
        let pc = self.pc;
        let before = self.blocked.iter().position(|g| g.0 == pc);
        let total = mask | before.map_or(0, |at| self.blocked[at].1);
        let lane = mask.trailing_zeros();
        let need = self.needed(i, machine, lane);
        if total & need == need && total & !need == 0 {
            if let Some(at) = before {
                self.blocked.swap_remove(at);
            }
            self.resume(pc, total, mask);
            return Ok(Some(total));
        }
        if total & !need & self.live != 0 {
            let lane = (total & !need).trailing_zeros();
            let text = format!("thread is not in the member mask {need:#x}");
            return Err(Trouble::new(FaultKind::Divergent, lane, text));
        }
        match before {
            Some(at) => self.blocked[at].1 = total,
            None => self.blocked.push((pc, total)),
        }
        self.active &= !mask;
        if self.active != 0 {
            // Lanes whose guard is false go on.
            self.pc += 1;
            return Ok(None);
        }
        if self.pick() {
            return Ok(None);
        }
        self.release(machine)
    }

    /// Makes `total` the active group at `pc`; others of the current group go on behind it.
    fn resume(&mut self, pc: u32, total: u32, mask: u32) {
        let others = self.active & !mask;
        if others != 0 {
            self.wait(pc + 1, others);
        }
        self.active = total;
        self.pc = pc;
    }

    /// No group can run: one of the blocked ones must be complete by now, as others ended.
    fn release(&mut self, machine: &Machine<'_>) -> Run<Option<u32>> {
        let complete = self.blocked.iter().position(|&(pc, mask)| {
            let need =
                self.needed(&machine.kernel.code[pc as usize], machine, mask.trailing_zeros());
            mask == need
        });
        let Some(at) = complete else { return Err(self.divergence(machine)) };
        let (pc, mask) = self.blocked.swap_remove(at);
        self.pc = pc;
        self.active = mask;
        Ok(Some(mask))
    }

    #[cold]
    fn divergence(&self, machine: &Machine<'_>) -> Box<Trouble> {
        let mut places: Vec<String> = self
            .blocked
            .iter()
            .map(|&(pc, mask)| format!("{mask:#x} at line {}", machine.kernel.lines[pc as usize]))
            .collect();
        let ended = self.exists & !self.live;
        if ended != 0 {
            places.push(format!("{ended:#x} ended"));
        }
        if self.exists != u32::MAX {
            places.push(format!("{:#x} do not exist", !self.exists));
        }
        let lane = self.blocked.first().map_or(0, |g| g.1.trailing_zeros());
        let text = format!(
            "divergent: threads of the warp wait at different instructions (lanes {})",
            places.join(", ")
        );
        Trouble::new(FaultKind::Divergent, lane, text)
    }

    /// Ends threads; what the warp does next.
    fn exit(&mut self, machine: &mut Machine<'_>, mask: u32) -> Run<Option<Stop>> {
        self.live &= !mask;
        self.active &= !mask;
        if self.active != 0 {
            self.pc += 1;
        } else if self.live == 0 {
            return Ok(Some(Stop::Done));
        } else if !self.pick()
            && let Some(mask) = self.release(machine)?
        {
            return self.collect(machine, mask);
        }
        Ok(None)
    }

    /// Executes the instruction at `pc`, which gathers, for lanes that are all there.
    #[inline(never)]
    fn collect(&mut self, machine: &mut Machine<'_>, mask: u32) -> Run<Option<Stop>> {
        let i = machine.kernel.code[self.pc as usize];
        if i.op == Op::Bar {
            self.pc += 1;
            return Ok(Some(Stop::Barrier(i.d)));
        }
        match i.op {
            Op::Shfl(mode) => self.shuffle(machine, &i, mode, mask)?,
            Op::Vote(mode) => self.vote(&i, mode, mask),
            Op::WmmaMma => self.multiply(machine, &i)?,
            Op::WmmaLoad => self.load_fragment(machine, &i)?,
            Op::WmmaStore => self.store_fragment(machine, &i)?,
            _ => {}
        }
        self.pc += 1;
        Ok(None)
    }

    /// Runs to the next barrier or the end.
    #[inline(always)]
    fn run_loop(&mut self, machine: &mut Machine<'_>) -> Run<Stop> {
        let kernel = machine.kernel;
        loop {
            if self.pc >= self.limit {
                self.meet();
                continue;
            }
            let i = &kernel.code[self.pc as usize];
            self.steps += 1;
            let mask = if i.guard == NO_GUARD {
                self.active
            } else {
                let p = self.p[(i.guard / 2) as usize];
                self.active & if i.guard & 1 == 0 { p } else { !p }
            };
            if mask == 0 {
                self.pc += 1;
                continue;
            }
            match i.op {
                Op::Bra => {
                    if i.d <= self.pc && self.steps > machine.options.steps {
                        let text = format!("{} instructions without an end", self.steps);
                        let lane = mask.trailing_zeros();
                        return Err(Trouble::new(FaultKind::Endless, lane, text));
                    }
                    if mask == self.active {
                        self.pc = i.d;
                    } else {
                        self.active &= !mask;
                        self.wait(i.d, mask);
                        self.pc += 1;
                    }
                }
                Op::Exit => {
                    if let Some(stop) = self.exit(machine, mask)? {
                        return Ok(stop);
                    }
                }
                Op::Bar
                | Op::WarpBar
                | Op::Shfl(_)
                | Op::Vote(_)
                | Op::WmmaMma
                | Op::WmmaLoad
                | Op::WmmaStore => {
                    if let Some(all) = self.gather(i, machine, mask)?
                        && let Some(stop) = self.collect(machine, all)?
                    {
                        return Ok(stop);
                    }
                }
                Op::Ld(space) => {
                    match space {
                        Space::Global => self.load_global(machine, i, mask)?,
                        Space::Shared => self.load_shared(machine, i, mask)?,
                        Space::Local => self.load_local(machine, i, mask)?,
                    }
                    self.pc += 1;
                }
                Op::St(space) => {
                    match space {
                        Space::Global => self.store_global(machine, i, mask)?,
                        Space::Shared => self.store_shared(machine, i, mask)?,
                        Space::Local => self.store_local(machine, i, mask)?,
                    }
                    self.pc += 1;
                }
                Op::LdParam => {
                    self.load_param(machine, i, mask);
                    self.pc += 1;
                }
                Op::ActiveMask => {
                    self.set(i.d, mask, [mask; LANES]);
                    self.pc += 1;
                }
                _ => {
                    self.compute(i, mask);
                    self.pc += 1;
                }
            }
        }
    }

    /// Runs to the next barrier or the end of the warp.
    ///
    /// # Errors
    /// A fault; `pc` is at its instruction.
    pub(super) fn run(&mut self, machine: &mut Machine<'_>) -> Run<Stop> {
        #[cfg(target_arch = "x86_64")]
        if machine.wide {
            // SAFETY: `wide` is true only where `block::wide` found all features that `run_avx2` enables.
            return unsafe { self.run_avx2(machine) };
        }
        self.run_loop(machine)
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,fma,bmi1,bmi2,lzcnt,popcnt")]
    fn run_avx2(&mut self, machine: &mut Machine<'_>) -> Run<Stop> {
        self.run_loop(machine)
    }

    /// Writes a register in the lanes of a mask.
    #[inline(always)]
    pub(super) fn set(&mut self, d: u32, mask: u32, value: [u32; LANES]) {
        let dead = !self.live;
        let register = &mut self.w[d as usize].0;
        if mask | dead == u32::MAX {
            *register = value;
        } else {
            for lane in 0..LANES {
                let keep = (mask >> lane & 1).wrapping_sub(1);
                register[lane] = register[lane] & keep | value[lane] & !keep;
            }
        }
    }

    /// As `set`, of 64 bits.
    #[inline(always)]
    pub(super) fn set_wide(&mut self, d: u32, mask: u32, value: [u64; LANES]) {
        let dead = !self.live;
        let register = &mut self.q[d as usize].0;
        if mask | dead == u32::MAX {
            *register = value;
        } else {
            for lane in 0..LANES {
                let keep = u64::from(mask >> lane & 1).wrapping_sub(1);
                register[lane] = register[lane] & keep | value[lane] & !keep;
            }
        }
    }

    /// Writes a predicate in the lanes of a mask.
    #[inline(always)]
    pub(super) fn set_predicate(&mut self, d: u32, mask: u32, value: u32) {
        let register = &mut self.p[d as usize];
        *register = *register & !mask | value & mask;
    }
}
