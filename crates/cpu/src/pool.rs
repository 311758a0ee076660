//! A persistent team of threads for fork-join work of microseconds.
//!
//! The caller is worker 0. Workers spin briefly between jobs, then sleep. A job is a sequence of [sections](sections),
//! which whoever is there goes through; who waits spins, then yields its core.
//!
//! When another program takes turns on our cores, a worker that is stopped in the middle of an item stops all. It shows
//! by a wait that is too long for any item; workers then offer their cores between items, at most once a millisecond, so
//! that the other program's turns fall where nobody waits for us. See docs/speed.md.

#[cfg(all(test, loom))]
mod orders;
pub(crate) mod record;
mod sections;
mod sync;

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::{Duration, Instant};

use record::Record;
use sections::{Items, Sections};
use sync::{
    Arc, AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Builder, Condvar, JoinHandle, Mutex,
    MutexGuard, Ordering, Patience, PoisonError, spin_loop, yield_now,
};

/// A wait at the end of a section that is longer than an item takes: somebody has lost its core.
const LATE: Duration = Duration::from_micros(300);
/// Sections for which workers give way after such a wait: some tenths of a second.
const PRESSED_SECTIONS: u64 = 2_000;
/// Less than any scheduler's turn.
const GIVE_WAY_EVERY: Duration = Duration::from_millis(1);

/// What a worker knows inside a job.
pub(crate) struct Worker<'a> {
    /// This worker's number, `0..n`.
    pub(crate) index: usize,
    /// Workers in the team.
    pub(crate) n: usize,
    meeting: &'a Meeting,
    /// Number of its next section.
    next: Cell<u64>,
    /// Whether it is in the section before that.
    inside: Cell<bool>,
    /// When it last gave way.
    gave_way: Cell<Option<Instant>>,
}

impl Worker<'_> {
    /// Wait for every worker of the job to come here. What they wrote before is visible after.
    pub(crate) fn sync(&self) {
        self.meeting.barrier.wait(&self.meeting.broken, self.meeting.patience);
    }

    /// Do this worker's part of the next section, unless the others have ended it already; return when it has ended. All
    /// workers of a job must go through the same sections.
    pub(crate) fn section(&self, work: impl FnOnce(Section<'_>)) {
        let Meeting { sections, broken, .. } = self.meeting;
        let number = self.next.get();
        self.next.set(number + 1);
        if self.enter(number) {
            work(Section { worker: self, number });
            if self.inside.replace(false) {
                self.compare(number);
                sections.leave(number);
            }
        }
        let mut wait = Wait::new(self.meeting.patience);
        while sections.open() == number {
            assert_whole(broken);
            if wait.pause() {
                self.meeting.pressed_until.store(number + PRESSED_SECTIONS, Ordering::Relaxed);
            }
        }
        if self.should_give_way(number) {
            self.give_way();
        }
    }

    /// Go into section `number`, if it is open.
    fn enter(&self, number: u64) -> bool {
        let inside = self.meeting.sections.enter(number);
        self.inside.set(inside);
        if cfg!(debug_assertions) {
            if inside { Record::enter() } else { Record::pass() }
        }
        inside
    }

    /// In debug builds: compare what this worker used in section `number` with what others did.
    fn compare(&self, number: u64) {
        if cfg!(debug_assertions) {
            self.meeting.record.leave(number, self.index);
        }
    }

    /// Whether another program wants our cores, and has not been offered this one lately.
    fn should_give_way(&self, number: u64) -> bool {
        number < self.meeting.pressed_until.load(Ordering::Relaxed)
            && self.gave_way.get().is_none_or(|last| last.elapsed() >= GIVE_WAY_EVERY)
    }

    /// Offer this worker's core, where nobody waits for it, often enough that it is not taken in the middle of an item.
    fn give_way(&self) {
        yield_now();
        self.gave_way.set(Some(Instant::now()));
    }
}

/// A section that a worker is in.
pub(crate) struct Section<'a> {
    worker: &'a Worker<'a>,
    number: u64,
}

impl<'a> Section<'a> {
    /// Items of the section's list `0..len`, the same `len` for every worker: first this worker's share, then what the
    /// others have not taken. Afterwards the section may be over: what it does is done in its items.
    pub(crate) fn take(self, len: usize) -> impl Iterator<Item = usize> + 'a {
        let Section { worker, number } = self;
        let (index, n, sections) = (worker.index, worker.n, &worker.meeting.sections);
        let mut items = Items { sections, number, index, n, len, done: 0 };
        std::iter::from_fn(move || {
            if worker.should_give_way(number) && sections.step_out(number) {
                worker.compare(number);
                worker.give_way();
                if !worker.enter(number) {
                    return None;
                }
            }
            items.next()
        })
    }
}

/// Where the workers of a team meet.
struct Meeting {
    barrier: Barrier,
    sections: Sections,
    /// Of debug builds.
    record: Record,
    /// A worker panicked: those who wait for it must not.
    broken: AtomicBool,
    /// The section up to which workers give way.
    pressed_until: AtomicU64,
    patience: Patience,
}

/// Counts arrivals; the last one opens the gate for its generation.
struct Barrier {
    n: usize,
    arrived: AtomicUsize,
    generation: AtomicU32,
}

impl Barrier {
    fn wait(&self, broken: &AtomicBool, patience: Patience) {
        if self.n == 1 {
            return;
        }
        let generation = self.generation.load(Ordering::Acquire);
        if self.arrived.fetch_add(1, Ordering::AcqRel) + 1 == self.n {
            self.arrived.store(0, Ordering::Relaxed);
            self.generation.store(generation.wrapping_add(1), Ordering::Release);
            return;
        }
        let mut wait = Wait::new(patience);
        while self.generation.load(Ordering::Acquire) == generation {
            assert_whole(broken);
            wait.pause();
        }
    }
}

/// A worker that panicked never comes: unwind too rather than wait for ever.
fn assert_whole(broken: &AtomicBool) {
    assert!(!broken.load(Ordering::Relaxed), "another worker panicked");
}

/// A wait for another worker: polls, then time slices.
struct Wait {
    /// Polls left before it yields.
    spins: u32,
    since: Option<Instant>,
}

impl Wait {
    fn new(patience: Patience) -> Wait {
        Wait { spins: patience.before_yield, since: None }
    }

    /// One poll's rest: a pause instruction, or after many of them the rest of the time slice. True once it has become
    /// [`LATE`].
    fn pause(&mut self) -> bool {
        if self.spins > 0 {
            self.spins -= 1;
            spin_loop();
            return false;
        }
        let since = *self.since.get_or_insert_with(Instant::now);
        yield_now();
        // loom knows no time
        !cfg!(loom) && since.elapsed() >= LATE
    }
}

/// The job's address, erased for the workers. Valid until every worker has counted itself done.
#[derive(Clone, Copy)]
struct Job(*const (dyn Fn(Worker<'_>) + Sync));

// SAFETY: the pointee is `Sync`, and `Pool::run` outlives every use of the pointer.
unsafe impl Send for Job {}

struct TeamState {
    meeting: Meeting,
    /// Number of the newest job; workers compare it with the last they ran.
    epoch: AtomicU32,
    done: AtomicUsize,
    slot: Mutex<Slot>,
    wake: Condvar,
}

struct Slot {
    /// The job, and the number of its first section.
    job: Option<(Job, u64)>,
    stop: bool,
    panic: Option<Box<dyn Any + Send>>,
}

impl TeamState {
    fn slot(&self) -> MutexGuard<'_, Slot> {
        // no code that can panic runs under this lock
        self.slot.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Run `job`, whose first section is `first`, as worker `index`, keeping the first panic for the caller.
    fn work(&self, job: &(dyn Fn(Worker<'_>) + Sync), first: u64, index: usize) {
        let (next, inside, gave_way) = (Cell::new(first), Cell::new(false), Cell::new(None));
        let meeting = &self.meeting;
        let worker = Worker { index, n: meeting.barrier.n, meeting, next, inside, gave_way };
        if cfg!(debug_assertions) {
            Record::begin();
        }
        let done = catch_unwind(AssertUnwindSafe(|| job(worker)));
        if cfg!(debug_assertions) {
            Record::begin();
        }
        if let Err(panic) = done {
            // first the cause, then the alarm: those who wait panic too, and must not be told as the cause
            self.slot().panic.get_or_insert(panic);
            self.meeting.broken.store(true, Ordering::Relaxed);
        }
    }
}

/// The team. Dropping it ends the threads.
pub(crate) struct Team {
    shared: Arc<TeamState>,
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
        let shared = Arc::new(TeamState {
            meeting: Meeting {
                barrier: Barrier { n, arrived: AtomicUsize::new(0), generation: AtomicU32::new(0) },
                sections: Sections::new(n),
                record: Record::new(),
                broken: AtomicBool::new(false),
                pressed_until: AtomicU64::new(0),
                patience: Patience::of(n),
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
                Builder::new().name(name).spawn(move || worker(&shared, index)).ok()
            })
            .collect();
        Team { shared, threads, running: Mutex::new(()) }
    }

    /// Workers in the team.
    pub(crate) fn n(&self) -> usize {
        self.shared.meeting.barrier.n
    }

    /// Run `job` once on every worker and return when all are done. A worker's panic is raised again here.
    pub(crate) fn run(&self, job: &(dyn Fn(Worker<'_>) + Sync)) {
        let one_at_a_time = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        let shared = &*self.shared;
        let first = shared.meeting.sections.open();
        if self.n() > 1 {
            let mut slot = shared.slot();
            shared.done.store(0, Ordering::Relaxed);
            slot.job = Some((erase(job), first));
            shared.epoch.fetch_add(1, Ordering::Release);
            shared.wake.notify_all();
        }
        shared.work(job, first, 0);
        // who panicked is done as well
        let mut wait = Wait::new(shared.meeting.patience);
        while shared.done.load(Ordering::Acquire) + 1 < self.n() {
            wait.pause();
        }
        let mut slot = shared.slot();
        slot.job = None;
        if let Some(panic) = slot.panic.take() {
            shared.meeting.broken.store(false, Ordering::Relaxed);
            shared.meeting.barrier.arrived.store(0, Ordering::Relaxed);
            shared.meeting.sections.reset();
            drop((slot, one_at_a_time));
            resume_unwind(panic);
        }
    }
}

impl Team {
    /// Do `work` once for each item of `0..len`, and return when all are done.
    pub(crate) fn deal(&self, len: usize, work: &(dyn Fn(usize) + Sync)) {
        self.run(&|worker| worker.section(|section| section.take(len).for_each(work)));
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

fn worker(shared: &TeamState, index: usize) {
    let before_sleep = shared.meeting.patience.before_sleep;
    let mut seen = 0;
    loop {
        let mut spins = 0;
        while shared.epoch.load(Ordering::Acquire) == seen && spins < before_sleep {
            spins += 1;
            spin_loop();
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
        if let Some((Job(job), first)) = job {
            // SAFETY: `Pool::run` keeps the job alive until `done` counts this worker.
            let job = unsafe { &*job };
            shared.work(job, first, index);
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

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// How often a team does the same again; Miri takes a thousand times as long.
    const ROUNDS: usize = if cfg!(miri) { 4 } else { 50 };

    #[test]
    fn every_worker_runs_every_job() {
        for n in [1, 2, 3, 5] {
            let pool = Team::new(n);
            let sum = AtomicUsize::new(0);
            for _ in 0..4 * ROUNDS {
                pool.run(&|worker| {
                    sum.fetch_add(worker.index + 1, Ordering::Relaxed);
                });
            }
            assert_eq!(sum.into_inner(), 4 * ROUNDS * n * (n + 1) / 2);
        }
    }

    #[test]
    fn barrier_separates_phases() {
        let pool = Team::new(4);
        let counts: Vec<AtomicUsize> = (0..ROUNDS).map(|_| AtomicUsize::new(0)).collect();
        pool.run(&|worker| {
            for count in &counts {
                count.fetch_add(1, Ordering::Relaxed);
                worker.sync();
                assert_eq!(count.load(Ordering::Relaxed), 4);
            }
        });
    }

    #[test]
    fn sections_cover_their_lists_once_and_in_order() {
        for n in [1, 2, 3, 8] {
            let pool = Team::new(n);
            let lens = [0, 1, 2, 7, 100, 0, 3];
            let zeros = |len: &usize| (0..*len).map(|_| AtomicUsize::new(0)).collect::<Vec<_>>();
            let taken: Vec<_> = lens.iter().map(zeros).collect();
            for round in 0..ROUNDS {
                pool.run(&|worker| {
                    for (i, list) in taken.iter().enumerate() {
                        worker.section(|section| {
                            for item in section.take(list.len()) {
                                assert_eq!(list[item].fetch_add(1, Ordering::Relaxed), round);
                                let before = taken[..i].iter().flatten();
                                assert!(before.clone().all(|t| t.load(Ordering::Relaxed) > round));
                            }
                        });
                        assert!(list.iter().all(|t| t.load(Ordering::Relaxed) > round));
                    }
                });
            }
        }
    }

    #[test]
    fn who_is_not_there_holds_up_nobody() {
        let pool = Team::new(2);
        let sections = AtomicUsize::new(0);
        pool.run(&|worker| {
            if worker.index == 1 {
                // as if its core had gone to another program between two sections
                while sections.load(Ordering::Relaxed) < 100 {
                    std::thread::yield_now();
                }
            }
            for number in 0..100 {
                worker.section(|section| {
                    for _ in section.take(4) {
                        sections.store(number + 1, Ordering::Relaxed);
                    }
                });
            }
        });
    }

    #[test]
    #[cfg(debug_assertions)]
    #[cfg_attr(miri, ignore = "Miri catches them too, as a data race, and ends")]
    fn workers_that_use_the_same_memory_in_a_section_are_caught() {
        use crate::memory::Shared;
        // (what item 0 writes, what item 1 writes, what item 1 reads)
        let cases = [
            (0..6, 6..12, 6..12, None),
            (0..6, 5..12, 6..12, Some("writes at")),
            (0..6, 6..12, 5..6, Some("reads at")),
        ];
        for (first, second, read, problem) in cases {
            let pool = Team::new(2);
            let mut numbers = [0.0f32; 12];
            let shared = Shared::new(&mut numbers);
            let both = AtomicUsize::new(0);
            let caught = catch_unwind(AssertUnwindSafe(|| {
                pool.run(&|worker| {
                    worker.section(|section| {
                        for item in section.take(2) {
                            // no worker takes both
                            both.fetch_add(1, Ordering::Relaxed);
                            while both.load(Ordering::Relaxed) < 2 {
                                std::thread::yield_now();
                            }
                            let range = if item == 0 { first.clone() } else { second.clone() };
                            // SAFETY: nothing is written through it.
                            let _ = unsafe { shared.slice_mut(range) };
                            if item == 1 {
                                // SAFETY: nothing is read through it.
                                let _ = unsafe { shared.slice(read.clone()) };
                            }
                        }
                    });
                });
            }));
            let said = caught.err().map(|panic| *panic.downcast::<String>().expect("a message"));
            assert_eq!(said.is_some(), problem.is_some(), "{said:?}");
            if let (Some(said), Some(problem)) = (said, problem) {
                assert!(said.contains("in the same section"), "{said}");
                assert!(said.contains(problem), "{said}");
            }
        }
    }

    /// Before its first section a worker takes its own parts; between sections others may be anywhere.
    #[test]
    #[cfg(debug_assertions)]
    fn who_uses_memory_between_sections_is_caught() {
        use crate::memory::Shared;
        let pool = Team::new(2);
        let mut numbers = [0.0f32; 2];
        let shared = Shared::new(&mut numbers);
        let part = |worker: &Worker<'_>| worker.index..worker.index + 1;
        for is_between in [false, true] {
            let caught = catch_unwind(AssertUnwindSafe(|| {
                pool.run(&|worker| {
                    // SAFETY: each worker has its own.
                    let _ = unsafe { shared.slice_mut(part(&worker)) };
                    worker.section(|section| section.take(2).for_each(|_| ()));
                    if is_between && worker.index == 0 {
                        // SAFETY: nothing is read through it.
                        let _ = unsafe { shared.slice(part(&worker)) };
                    }
                    worker.section(|section| section.take(2).for_each(|_| ()));
                });
            }));
            let said = caught.err().map(|panic| *panic.downcast::<String>().expect("a message"));
            assert_eq!(said.is_some(), is_between, "{said:?}");
            assert!(said.is_none_or(|said| said.contains("between sections")));
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
