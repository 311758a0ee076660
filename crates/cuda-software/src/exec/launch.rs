//! Launches: blocks in shuffled order on several threads.

use std::num::NonZero;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use super::Fault;
use super::block::Worker;
use crate::device_memory::DeviceMemory;
use crate::ptx::Kernel;

/// Kernel with its grid and parameters.
#[derive(Debug)]
pub(crate) struct Launch {
    pub(crate) kernel: Arc<Kernel>,
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    /// Bytes of `.extern .shared` memory.
    pub(crate) dynamic_shared: u32,
    pub(crate) params: Vec<u8>,
}

/// What is done about reads of memory that was never written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Uninitialized {
    /// Faults in kernels and in copies to the host.
    Check,
    /// Faults in kernels only.
    Kernels,
    Allow,
}

/// How kernels are executed.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) seed: u64,
    pub(crate) uninitialized: Uninitialized,
    /// Races on shared memory are faults.
    pub(crate) races: bool,
    /// Conflicts between blocks of a launch on global memory are faults.
    pub(crate) global_races: bool,
    /// Threads that execute blocks.
    pub(crate) threads: usize,
    /// Instructions of a warp after which a kernel counts as endless.
    pub(crate) steps: u64,
    /// Use no vector instructions beyond the target's own: results are the same.
    pub(crate) portable: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            seed: 1,
            uninitialized: Uninitialized::Check,
            races: true,
            global_races: true,
            threads: std::thread::available_parallelism().map_or(1, NonZero::get),
            steps: 1 << 31,
            portable: false,
        }
    }
}

/// Counts of a launch.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Outcome {
    /// Instructions executed, each by up to 32 lanes.
    pub(crate) steps: u64,
}

/// Small generator of random numbers (`splitmix64`).
#[derive(Clone, Debug)]
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    /// Random order.
    pub(super) fn shuffle<T>(&mut self, values: &mut [T]) {
        for at in (1..values.len()).rev() {
            let other = (self.next() % (at as u64 + 1)) as usize;
            values.swap(at, other);
        }
    }
}

/// Time after which further threads help with a launch.
const PATIENCE: Duration = Duration::from_micros(60);

/// Blocks that are left, shared by all threads of a launch.
struct Queue {
    order: Vec<u32>,
    next: AtomicUsize,
    seed: u64,
    stop: AtomicBool,
    steps: AtomicU64,
    fault: Mutex<Option<Fault>>,
}

impl Queue {
    /// Executes blocks until none is left, or until `deadline`; false where some are left.
    fn work(&self, worker: &mut Worker<'_>, deadline: Option<Instant>) -> bool {
        loop {
            if self.stop.load(Relaxed) {
                return true;
            }
            if deadline.is_some_and(|d| Instant::now() >= d) {
                return false;
            }
            let Some(&block) = self.order.get(self.next.fetch_add(1, Relaxed)) else {
                return true;
            };
            if let Err(fault) = worker.run(block, self.seed ^ u64::from(block) << 20) {
                self.stop.store(true, Relaxed);
                let mut first = self.fault.lock().unwrap_or_else(PoisonError::into_inner);
                first.get_or_insert(fault);
                return true;
            }
        }
    }
}

/// Executes a launch; `serial` tells it from others with the same seed.
///
/// # Errors
/// The first fault.
pub(crate) fn launch(
    launch: &Launch,
    memory: &DeviceMemory,
    options: &Options,
    serial: u64,
) -> Result<Outcome, Fault> {
    let [x, y, z] = launch.grid;
    let mut order: Vec<u32> = (0..x * y * z).collect();
    let mut random = Random::new(options.seed ^ serial.rotate_left(32));
    random.shuffle(&mut order);
    let blocks = order.len();
    let queue = Queue {
        order,
        next: AtomicUsize::new(0),
        seed: random.next(),
        stop: AtomicBool::new(false),
        steps: AtomicU64::new(0),
        fault: Mutex::new(None),
    };
    let number = (serial as u32).wrapping_add(1);
    if options.global_races && blocks > 0 {
        watch(launch, memory, number);
    }
    let mut worker = Worker::new(launch, memory, options, number);
    let helpers = options.threads.min(blocks).saturating_sub(1);
    let deadline = (helpers > 0).then(|| Instant::now() + PATIENCE);
    if !queue.work(&mut worker, deadline) {
        std::thread::scope(|scope| {
            for _ in 0..helpers {
                scope.spawn(|| {
                    let mut worker = Worker::new(launch, memory, options, number);
                    queue.work(&mut worker, None);
                    queue.steps.fetch_add(worker.steps, Relaxed);
                });
            }
            queue.work(&mut worker, None);
        });
    }
    queue.steps.fetch_add(worker.steps, Relaxed);
    match queue.fault.into_inner().unwrap_or_else(PoisonError::into_inner) {
        Some(fault) => Err(fault),
        None => Ok(Outcome { steps: queue.steps.into_inner() }),
    }
}

/// Watches allocations that the kernel may store to.
fn watch(launch: &Launch, memory: &DeviceMemory, number: u32) {
    for (at, word) in launch.params.as_chunks::<8>().0.iter().enumerate() {
        if crate::ptx::contains(launch.kernel.stored_params, at)
            && let Some(allocation) = memory.find(u64::from_le_bytes(*word))
        {
            allocation.watch(number);
        }
    }
}
