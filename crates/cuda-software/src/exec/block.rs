//! Blocks: warps in shuffled order between barriers.

use super::launch::{Launch, Options, Random, Uninitialized};
use super::scratch::{Local, Scratch};
use super::warp::{LANES, Lanes, POISON, Stop, WIDE_POISON, Warp, WideLanes};
use super::{Fault, FaultKind, Trouble};
use crate::device_memory::DeviceMemory;
use crate::ptx::{Kernel, special};
use crate::stamps::Stamp;

/// Least distance of `.extern .shared` memory from other variables, in bytes.
const DYNAMIC_ALIGN: u32 = 16;

/// State that the instructions of a block access: kernel, launch, memories.
pub(super) struct Machine<'k> {
    pub(super) kernel: &'k Kernel,
    pub(super) launch: &'k Launch,
    pub(super) memory: &'k DeviceMemory,
    pub(super) options: &'k Options,
    pub(super) shared: Scratch,
    /// Local memory of each warp.
    pub(super) local: Vec<Local>,
    /// Vector instructions of `Warp::run_avx2` are used.
    #[cfg_attr(not(target_arch = "x86_64"), expect(dead_code, reason = "only x86-64 has them"))]
    pub(super) wide: bool,
    /// Launch and block that run.
    pub(super) stamp: Stamp,
}

impl Machine<'_> {
    /// Reads of what was never written are faults.
    pub(super) fn watch_unwritten(&self) -> bool {
        self.options.uninitialized != Uninitialized::Allow
    }
}

/// Executes blocks of one launch, one after another.
pub(super) struct Worker<'k> {
    machine: Machine<'k>,
    warps: Vec<Warp>,
    random: Random,
    /// Instructions executed, each by up to 32 lanes.
    pub(super) steps: u64,
}

impl<'k> Worker<'k> {
    /// Prepares registers and memory of one block.
    pub(super) fn new(
        launch: &'k Launch,
        memory: &'k DeviceMemory,
        options: &'k Options,
        number: u32,
    ) -> Self {
        let stamp = Stamp { launch: number, block: 0 };
        let kernel = &*launch.kernel;
        let [x, y, z] = launch.block;
        let threads = x * y * z;
        let count = threads.div_ceil(LANES as u32);
        let mut w = vec![Lanes([POISON; LANES]); kernel.n_w];
        let mut q = vec![WideLanes([WIDE_POISON; LANES]); kernel.n_q];
        for &(register, bits) in &kernel.consts_w {
            w[register as usize] = Lanes([bits; LANES]);
        }
        for &(register, bits) in &kernel.consts_q {
            q[register as usize] = WideLanes([bits; LANES]);
        }
        for axis in 0..3 {
            w[special::NTID + axis] = Lanes([launch.block[axis]; LANES]);
            w[special::NCTAID + axis] = Lanes([launch.grid[axis]; LANES]);
        }
        w[special::LANE] = Lanes(std::array::from_fn(|l| l as u32));
        let warps = (0..count).map(|index| {
            let first = index * LANES as u32;
            let left = threads - first;
            let exists = if left >= 32 { u32::MAX } else { (1 << left) - 1 };
            let at = |l: usize| first + l as u32;
            let mut w = w.clone();
            w[special::TID] = Lanes(std::array::from_fn(|l| at(l) % x));
            w[special::TID + 1] = Lanes(std::array::from_fn(|l| at(l) / x % y));
            w[special::TID + 2] = Lanes(std::array::from_fn(|l| at(l) / x / y));
            w[special::WARP] = Lanes([index; LANES]);
            Warp::new(index, exists, w, q.clone(), kernel.n_p)
        });
        let warps = warps.collect();
        let mut windows = kernel.shared.clone();
        let mut shared_bytes = kernel.shared_bytes;
        if let Some(dynamic) = kernel.dynamic {
            let offset = shared_bytes.next_multiple_of(DYNAMIC_ALIGN);
            windows[dynamic].offset = offset;
            windows[dynamic].bytes = launch.dynamic_shared;
            windows[dynamic].align = DYNAMIC_ALIGN;
            shared_bytes = offset + launch.dynamic_shared;
        }
        let watch = options.uninitialized != Uninitialized::Allow;
        let shared =
            Scratch::new(windows, shared_bytes as usize, kernel.granule, [watch, options.races]);
        let locals = if kernel.local_bytes == 0 { 0 } else { count };
        let local = (0..locals)
            .map(|_| Local::new(kernel.local_bytes as usize, kernel.granule, watch))
            .collect();
        let wide = !options.portable && wide();
        Self {
            machine: Machine { kernel, launch, memory, options, shared, local, wide, stamp },
            warps,
            random: Random::new(options.seed),
            steps: 0,
        }
    }

    /// Executes one block.
    ///
    /// # Errors
    /// Its first fault.
    pub(super) fn run(&mut self, block: u32, seed: u64) -> Result<(), Fault> {
        let [x, y, _] = self.machine.launch.grid;
        let ctaid = [block % x, block / x % y, block / x / y];
        self.machine.stamp.block = block;
        self.random = Random::new(seed);
        self.machine.shared.begin();
        self.machine.local.iter_mut().for_each(Local::begin);
        for warp in &mut self.warps {
            warp.start(self.machine.kernel, ctaid);
        }
        let mut order: Vec<usize> = (0..self.warps.len()).collect();
        loop {
            self.random.shuffle(&mut order);
            let mut barrier = None;
            let mut at_barrier = Vec::with_capacity(order.len());
            for &index in &order {
                let warp = &mut self.warps[index];
                let stop = warp.run(&mut self.machine);
                match stop {
                    Ok(Stop::Done) => self.steps += warp.steps,
                    Ok(Stop::Barrier(id)) => {
                        if *barrier.get_or_insert(id) != id {
                            return Err(self.deadlock(index, ctaid));
                        }
                        at_barrier.push(index);
                    }
                    Err(trouble) => return Err(self.describe(&trouble, index, ctaid)),
                }
            }
            if at_barrier.is_empty() {
                return Ok(());
            }
            self.machine.shared.barrier();
            order = at_barrier;
            order.sort_unstable();
        }
    }

    #[cold]
    fn deadlock(&self, index: usize, ctaid: [u32; 3]) -> Fault {
        let places: Vec<String> = (self.warps.iter())
            .filter(|warp| warp.live != 0)
            .map(|warp| {
                let at = warp.pc().saturating_sub(1) as usize;
                format!("warp {} at line {}", warp.index, self.machine.kernel.lines[at])
            })
            .collect();
        let detail = format!("deadlock: warps wait at different barriers ({})", places.join(", "));
        let trouble = Trouble { kind: FaultKind::Deadlock, lane: 0, detail };
        self.describe(&trouble, index, ctaid)
    }

    #[cold]
    fn describe(&self, trouble: &Trouble, index: usize, ctaid: [u32; 3]) -> Fault {
        let kernel = self.machine.kernel;
        let warp = &self.warps[index];
        let pc = (warp.pc() as usize).min(kernel.lines.len() - 1);
        let lane = trouble.lane as usize % LANES;
        let [x, y, z] = [0, 1, 2].map(|axis| warp.w[special::TID + axis].0[lane]);
        let text = format!(
            "kernel `{}`, PTX line {}, block ({}, {}, {}), thread ({x}, {y}, {z}): {}",
            kernel.name, kernel.lines[pc], ctaid[0], ctaid[1], ctaid[2], trouble.detail
        );
        Fault { kind: trouble.kind, text }
    }
}

#[cfg(target_arch = "x86_64")]
fn wide() -> bool {
    is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("fma")
        && is_x86_feature_detected!("bmi1")
        && is_x86_feature_detected!("bmi2")
        && is_x86_feature_detected!("lzcnt")
        && is_x86_feature_detected!("popcnt")
}

#[cfg(not(target_arch = "x86_64"))]
fn wide() -> bool {
    false
}
