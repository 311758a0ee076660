//! A persistent team of threads for fork-join work of microseconds.
//!
//! The caller is worker 0. Workers spin briefly between jobs, then sleep; inside a job they meet at a [`Barrier`] that
//! yields after a while, so that a core taken by another process costs a time slice, not a stall.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// Polls of a flag before a waiter yields its core: some tens of microseconds.
const SPINS_BEFORE_YIELD: u32 = 2_000;
/// Polls before an idle worker sleeps: long enough to stay awake across sampling and printing a token.
const SPINS_BEFORE_SLEEP: u32 = 30_000;

/// What a worker knows inside a job.
#[derive(Clone, Copy)]
pub(crate) struct Worker<'a> {
    /// This worker's number, `0..n`.
    pub(crate) index: usize,
    /// Workers in the team.
    pub(crate) n: usize,
    barrier: &'a Barrier,
}

impl Worker<'_> {
    /// Wait for every worker of the job to come here. What they wrote before is visible after.
    pub(crate) fn sync(&self) {
        self.barrier.wait();
    }
}

/// Counts arrivals; the last one opens the gate for its generation.
struct Barrier {
    n: usize,
    arrived: AtomicUsize,
    generation: AtomicU32,
    broken: AtomicBool,
}

impl Barrier {
    fn wait(&self) {
        if self.n == 1 {
            return;
        }
        let generation = self.generation.load(Ordering::Acquire);
        if self.arrived.fetch_add(1, Ordering::AcqRel) + 1 == self.n {
            self.arrived.store(0, Ordering::Relaxed);
            self.generation.store(generation.wrapping_add(1), Ordering::Release);
            return;
        }
        let mut spins = 0;
        while self.generation.load(Ordering::Acquire) == generation {
            // a worker that panicked never arrives: unwind too rather than wait for ever
            assert!(!self.broken.load(Ordering::Relaxed), "another worker panicked");
            pause(&mut spins);
        }
    }
}

/// One poll's rest: a pause instruction, or after many of them the rest of the time slice.
fn pause(spins: &mut u32) {
    if *spins < SPINS_BEFORE_YIELD {
        *spins += 1;
        std::hint::spin_loop();
    } else {
        std::thread::yield_now();
    }
}

/// The job's address, erased for the workers. Valid until every worker has counted itself done.
#[derive(Clone, Copy)]
struct Job(*const (dyn Fn(Worker<'_>) + Sync));

// SAFETY: the pointee is `Sync`, and `Pool::run` outlives every use of the pointer.
unsafe impl Send for Job {}

struct Shared {
    barrier: Barrier,
    /// Number of the newest job; workers compare it with the last they ran.
    epoch: AtomicU32,
    done: AtomicUsize,
    slot: Mutex<Slot>,
    wake: Condvar,
}

struct Slot {
    job: Option<Job>,
    stop: bool,
    panic: Option<Box<dyn Any + Send>>,
}

impl Shared {
    fn slot(&self) -> MutexGuard<'_, Slot> {
        // no code that can panic runs under this lock
        self.slot.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Run `job` as worker `index`, keeping the first panic for the caller.
    fn work(&self, job: &(dyn Fn(Worker<'_>) + Sync), index: usize) {
        let worker = Worker { index, n: self.barrier.n, barrier: &self.barrier };
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| job(worker))) {
            // first the cause, then the alarm: those who wait panic too, and must not be told as the cause
            self.slot().panic.get_or_insert(panic);
            self.barrier.broken.store(true, Ordering::Relaxed);
        }
    }
}

/// The team. Dropping it ends the threads.
pub(crate) struct Team {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    running: Mutex<()>,
}

impl Team {
    /// A team of `n` workers, the caller among them. Fewer if the system refuses threads.
    pub(crate) fn new(n: usize) -> Team {
        let mut n = n.max(1);
        loop {
            let pool = Team::spawn(n);
            let started = pool.threads.len() + 1;
            if started == n {
                return pool;
            }
            // its threads must be gone before fewer are asked for
            drop(pool);
            n = started;
        }
    }

    /// A team whose barrier counts `n`, with as many threads as could be had.
    fn spawn(n: usize) -> Team {
        let shared = Arc::new(Shared {
            barrier: Barrier {
                n,
                arrived: AtomicUsize::new(0),
                generation: AtomicU32::new(0),
                broken: AtomicBool::new(false),
            },
            epoch: AtomicU32::new(0),
            done: AtomicUsize::new(0),
            slot: Mutex::new(Slot { job: None, stop: false, panic: None }),
            wake: Condvar::new(),
        });
        let threads = (1..n)
            .map_while(|index| {
                let shared = Arc::clone(&shared);
                let name = format!("rooflight-{index}");
                std::thread::Builder::new().name(name).spawn(move || worker(&shared, index)).ok()
            })
            .collect();
        Team { shared, threads, running: Mutex::new(()) }
    }

    /// Workers in the team.
    pub(crate) fn n(&self) -> usize {
        self.shared.barrier.n
    }

    /// Run `job` once on every worker and return when all are done. A worker's panic is raised again here.
    pub(crate) fn run(&self, job: &(dyn Fn(Worker<'_>) + Sync)) {
        let _one_at_a_time = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        let shared = &*self.shared;
        if shared.barrier.n > 1 {
            let mut slot = shared.slot();
            shared.done.store(0, Ordering::Relaxed);
            slot.job = Some(erase(job));
            shared.epoch.fetch_add(1, Ordering::Release);
            shared.wake.notify_all();
        }
        shared.work(job, 0);
        let mut spins = 0;
        while shared.done.load(Ordering::Acquire) + 1 < shared.barrier.n {
            pause(&mut spins);
        }
        let mut slot = shared.slot();
        slot.job = None;
        if let Some(panic) = slot.panic.take() {
            shared.barrier.broken.store(false, Ordering::Relaxed);
            shared.barrier.arrived.store(0, Ordering::Relaxed);
            drop(slot);
            resume_unwind(panic);
        }
    }
}

/// Forget how long `job` lives.
fn erase<'a>(job: &'a (dyn Fn(Worker<'_>) + Sync + 'a)) -> Job {
    let job: *const (dyn Fn(Worker<'_>) + Sync + 'a) = job;
    // SAFETY: only the lifetime changes; `Pool::run` returns after the last use.
    Job(unsafe {
        std::mem::transmute::<
            *const (dyn Fn(Worker<'_>) + Sync + 'a),
            *const (dyn Fn(Worker<'_>) + Sync + 'static),
        >(job)
    })
}

fn worker(shared: &Shared, index: usize) {
    let mut seen = 0;
    loop {
        let mut spins = 0;
        while shared.epoch.load(Ordering::Acquire) == seen && spins < SPINS_BEFORE_SLEEP {
            spins += 1;
            std::hint::spin_loop();
        }
        let mut slot = shared.slot();
        while shared.epoch.load(Ordering::Acquire) == seen && !slot.stop {
            slot = shared.wake.wait(slot).unwrap_or_else(PoisonError::into_inner);
        }
        if slot.stop {
            return;
        }
        seen = shared.epoch.load(Ordering::Acquire);
        let job = slot.job;
        drop(slot);
        if let Some(Job(job)) = job {
            // SAFETY: `Pool::run` keeps the job alive until `done` counts this worker.
            let job = unsafe { &*job };
            shared.work(job, index);
        }
        shared.done.fetch_add(1, Ordering::Release);
    }
}

impl Drop for Team {
    fn drop(&mut self) {
        self.shared.slot().stop = true;
        self.shared.wake.notify_all();
        for thread in self.threads.drain(..) {
            // a worker's panic was raised in `run` already
            let _ = thread.join();
        }
    }
}

/// A work list dealt evenly to the workers, who steal from one another when their share is done.
pub(crate) struct Shares {
    cursors: Vec<Cursor>,
}

#[repr(align(128))]
struct Cursor(AtomicUsize);

impl Shares {
    /// Cursors for a team of `n`.
    pub(crate) fn new(n: usize) -> Shares {
        Shares { cursors: (0..n).map(|_| Cursor(AtomicUsize::new(0))).collect() }
    }

    /// Start again. Call while no worker is taking.
    pub(crate) fn reset(&self) {
        for cursor in &self.cursors {
            cursor.0.store(0, Ordering::Relaxed);
        }
    }

    /// Items of `0..len` for `worker`, its own share first, then what the others have not taken.
    pub(crate) fn take<'a>(
        &'a self,
        worker: &Worker<'_>,
        len: usize,
    ) -> impl Iterator<Item = usize> + 'a {
        let (me, n) = (worker.index, worker.n);
        (0..n).flat_map(move |k| {
            let owner = (me + k) % n;
            let share = owner * len / n..(owner + 1) * len / n;
            std::iter::from_fn(move || {
                let item = share.start + self.cursors[owner].0.fetch_add(1, Ordering::Relaxed);
                (item < share.end).then_some(item)
            })
        })
    }
}

/// Work lists of one phase.
pub(crate) struct PhaseShares {
    /// Its units or tiles.
    pub(crate) main: Shares,
    /// What comes before or after them, beyond an inner barrier.
    pub(crate) side: Shares,
    /// What comes last, beyond another.
    pub(crate) last: Shares,
}

impl PhaseShares {
    /// For a team of `n`.
    pub(crate) fn new(n: usize) -> PhaseShares {
        PhaseShares { main: Shares::new(n), side: Shares::new(n), last: Shares::new(n) }
    }

    /// Start again. Call while no worker is taking.
    pub(crate) fn reset(&self) {
        self.main.reset();
        self.side.reset();
        self.last.reset();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_worker_runs_every_job() {
        for n in [1, 2, 3, 5] {
            let pool = Team::new(n);
            let sum = AtomicUsize::new(0);
            for _ in 0..200 {
                pool.run(&|worker| {
                    sum.fetch_add(worker.index + 1, Ordering::Relaxed);
                });
            }
            assert_eq!(sum.into_inner(), 200 * n * (n + 1) / 2);
        }
    }

    #[test]
    fn barrier_separates_phases() {
        let pool = Team::new(4);
        let counts: Vec<AtomicUsize> = (0..50).map(|_| AtomicUsize::new(0)).collect();
        pool.run(&|worker| {
            for count in &counts {
                count.fetch_add(1, Ordering::Relaxed);
                worker.sync();
                assert_eq!(count.load(Ordering::Relaxed), 4);
            }
        });
    }

    #[test]
    fn shares_cover_the_list_once() {
        let pool = Team::new(3);
        let shares = Shares::new(3);
        for len in [0, 1, 2, 7, 100] {
            shares.reset();
            let taken: Vec<AtomicUsize> = (0..len).map(|_| AtomicUsize::new(0)).collect();
            pool.run(&|worker| {
                for item in shares.take(&worker, len) {
                    taken[item].fetch_add(1, Ordering::Relaxed);
                }
            });
            assert!(taken.iter().all(|t| t.load(Ordering::Relaxed) == 1));
        }
    }

    #[test]
    fn a_panic_reaches_the_caller_and_the_pool_goes_on() {
        let pool = Team::new(3);
        let caught = catch_unwind(AssertUnwindSafe(|| {
            pool.run(&|worker| {
                assert!(worker.index != 1, "worker one gives up");
                worker.sync();
            });
        }));
        assert!(caught.is_err());
        let sum = AtomicUsize::new(0);
        pool.run(&|worker| {
            worker.sync();
            sum.fetch_add(1, Ordering::Relaxed);
        });
        assert_eq!(sum.into_inner(), 3);
    }
}
