//! Measures the machine's ceilings: read bandwidth by threads and working set, arithmetic, the cost of a barrier.
//!
//! Each figure is the best of several tries, since other processes can only make it worse.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use kernels::Isa;
use kernels::Kernel;
use kernels::probe::{FMA, INT8, READ, RateFn};
use program::{Ceilings, ComputeCeiling, ReadCeiling, Result};

use crate::memory::Buffer;
use crate::pool::{Team, Worker};

/// Working sets per thread that fit the second-level cache of most machines.
const NEAR: usize = 256 << 10;
/// Working set of all threads that fits a shared cache.
const SHARED: usize = 8 << 20;
/// Working set of all threads that fits no cache, except last-level caches that hold more than half of it.
const FAR: usize = 256 << 20;
/// Maximum number of bytes that are read to measure memory.
const FARTHEST: usize = 1 << 30;
/// Tries of each figure.
const TRIES: usize = 5;
/// Least time of a try.
const TRY: Duration = Duration::from_millis(12);

/// Measures with up to the pool's threads. `progress` receives the completed part, from 0 to 1, and stops the measurement
/// by returning false; numbers of threads without all their figures are left out.
///
/// # Errors
/// [`program::Error::Memory`] if the working set cannot be allocated; [`program::Error::Cancelled`] if no number of
/// threads is complete.
pub(crate) fn probe(
    pool: &Team,
    isa: Isa,
    progress: &mut dyn FnMut(f64) -> bool,
) -> Result<Ceilings> {
    let sets = WorkingSets::new(last_level_cache());
    let mut buffer = Buffer::new(sets.far, "the probe of memory")?;
    fill(pool, &mut buffer);
    let mut counts = thread_counts(pool.n());
    // the number of threads that models run with comes first
    counts.rotate_right(1);
    let parts = (counts.len() * (sets.of(1).len() + 2) + 1) as f64;
    let mut done = 0.0;
    let mut goes_on = true;
    let mut advance = || {
        done += 1.0;
        goes_on = goes_on && progress(done / parts);
        goes_on
    };
    let mut ceilings = Ceilings { barrier: barrier(pool), ..Ceilings::default() };
    advance();
    for &threads in &counts {
        let Some((read, compute)) = of_threads(pool, isa, threads, (&sets, &buffer), &mut advance)
        else {
            break;
        };
        ceilings.read.extend(read);
        ceilings.compute.push(compute);
    }
    if ceilings.compute.is_empty() {
        return Err(program::Error::Cancelled);
    }
    ceilings.read.sort_by_key(|read| (read.threads, read.working_set));
    ceilings.compute.sort_by_key(|compute| compute.threads);
    Ok(ceilings)
}

/// Measures all figures of a number of threads; `None` if measuring was stopped before the last of them.
fn of_threads(
    pool: &Team,
    isa: Isa,
    threads: usize,
    (sets, buffer): (&WorkingSets, &Buffer),
    advance: &mut dyn FnMut() -> bool,
) -> Option<(Vec<ReadCeiling>, ComputeCeiling)> {
    let mut read = Vec::new();
    for (measured, holds) in sets.of(threads) {
        let bytes_per_second = read_rate(pool, isa, threads, &buffer.bytes()[..measured]);
        let working_set = holds as u64;
        read.push(ReadCeiling { threads, working_set, bytes_per_second });
        advance().then_some(())?;
    }
    let f32_macs_per_second = compute_rate(pool, threads, FMA.pick(isa));
    advance().then_some(())?;
    let int8_macs_per_second = compute_rate(pool, threads, INT8.pick(isa));
    // the figures are complete: a stop at this point does not discard them
    advance();
    Some((read, ComputeCeiling { threads, f32_macs_per_second, int8_macs_per_second }))
}

/// Sizes of the working sets that are read repeatedly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct WorkingSets {
    /// Capacity in bytes of all last-level caches of these cores, if the system reports it and it is more than
    /// [`SHARED`].
    last_level: Option<usize>,
    /// Bytes that no cache holds.
    far: usize,
}

impl WorkingSets {
    fn new(last_level: Option<usize>) -> WorkingSets {
        let last_level = last_level.filter(|bytes| (SHARED + 1..=FARTHEST / 2).contains(bytes));
        let far = last_level.map_or(FAR, |bytes| (4 * bytes).clamp(FAR, FARTHEST));
        WorkingSets { last_level, far }
    }

    /// Returns, in ascending order, the bytes to read with a number of threads and the largest working set that this
    /// represents. Of a last-level cache, half is read, since other data is in it too.
    fn of(self, threads: usize) -> Vec<(usize, usize)> {
        let near = NEAR * threads;
        let mut sets = vec![(near, near), (SHARED, SHARED)];
        sets.extend(self.last_level.map(|bytes| (bytes / 2, bytes)));
        sets.push((self.far, self.far));
        sets.sort_by_key(|(_, holds)| *holds);
        sets.dedup_by_key(|(_, holds)| *holds);
        sets
    }
}

/// Returns the bytes of all last-level caches that the cores of this process share, if the system reports them.
#[cfg(target_os = "linux")]
fn last_level_cache() -> Option<usize> {
    let mask = rustix::thread::sched_getaffinity(None).ok()?;
    let mut caches = std::collections::BTreeMap::new();
    for cpu in (0..rustix::thread::CpuSet::MAX_CPU).filter(|&cpu| mask.is_set(cpu)) {
        let folder = format!("/sys/devices/system/cpu/cpu{cpu}/cache");
        // level, list of the cores that share it, bytes
        let cache = |index: usize| -> Option<(usize, String, usize)> {
            let read =
                |name: &str| std::fs::read_to_string(format!("{folder}/index{index}/{name}")).ok();
            let level = read("level")?.trim().parse().ok()?;
            Some((level, read("shared_cpu_list")?, cache_bytes(&read("size")?)?))
        };
        let (_, shared, bytes) = (0..CACHES).filter_map(cache).max()?;
        caches.insert(shared, bytes);
    }
    Some(caches.values().sum()).filter(|bytes| *bytes > 0)
}

#[cfg(not(target_os = "linux"))]
fn last_level_cache() -> Option<usize> {
    None
}

/// Maximum number of caches of a core that the system lists.
#[cfg(target_os = "linux")]
const CACHES: usize = 8;

/// Parses sizes such as `32768K` and `32M` into bytes.
#[cfg(any(target_os = "linux", test))]
fn cache_bytes(text: &str) -> Option<usize> {
    let text = text.trim();
    let unit = match text.chars().last()? {
        'K' => 10,
        'M' => 20,
        'G' => 30,
        _ => return text.parse().ok(),
    };
    text[..text.len() - 1].parse::<usize>().ok()?.checked_mul(1 << unit)
}

/// 1, 2, 4 … and `n`.
fn thread_counts(n: usize) -> Vec<usize> {
    let mut counts: Vec<usize> =
        std::iter::successors(Some(1), |c| Some(c * 2)).take_while(|c| *c < n).collect();
    counts.push(n);
    counts
}

/// Touch every page, so that reads find memory and not the page of zeros.
fn fill(pool: &Team, buffer: &mut Buffer) {
    let bytes = buffer.shared_as::<u8>();
    let len = bytes.len();
    pool.run(&|worker| {
        // SAFETY: each worker writes its own part.
        let part = unsafe {
            bytes.slice_mut(worker.index * len / worker.n..(worker.index + 1) * len / worker.n)
        };
        part.fill(1);
    });
}

/// The best rate of several tries in which `threads` workers each call `work` (which returns how much it did) for at
/// least [`TRY`].
fn rate(pool: &Team, threads: usize, work: &(dyn Fn(&Worker<'_>) -> u64 + Sync)) -> f64 {
    let tries = (0..TRIES).map(|_| {
        let total = Mutex::new((0u64, Duration::ZERO));
        pool.run(&|worker| {
            worker.sync();
            if worker.index >= threads {
                return;
            }
            let start = Instant::now();
            let mut did = 0;
            while start.elapsed() < TRY {
                did += work(&worker);
            }
            let elapsed = start.elapsed();
            let mut total = total.lock().expect("no worker panics under this lock");
            *total = (total.0 + did, total.1.max(elapsed));
        });
        let (did, elapsed) = total.into_inner().expect("no worker panics under this lock");
        did as f64 / elapsed.as_secs_f64()
    });
    tries.fold(0.0, f64::max)
}

fn read_rate(pool: &Team, isa: Isa, threads: usize, bytes: &[u8]) -> f64 {
    let kernel = READ.pick(isa);
    let rates = [false, true].map(|ahead| {
        rate(pool, threads, &|worker| {
            let part =
                worker.index * bytes.len() / threads..(worker.index + 1) * bytes.len() / threads;
            std::hint::black_box(kernel.call(&bytes[part.clone()], ahead));
            part.len() as u64
        })
    });
    rates[0].max(rates[1])
}

fn compute_rate(pool: &Team, threads: usize, kernel: &Kernel<RateFn>) -> f64 {
    rate(pool, threads, &|_| kernel.call(2000))
}

fn barrier(pool: &Team) -> Duration {
    const MEETINGS: u32 = 2000;
    let tries = (0..TRIES).map(|_| {
        let time = Mutex::new(Duration::MAX);
        pool.run(&|worker| {
            worker.sync();
            let start = Instant::now();
            for _ in 0..MEETINGS {
                worker.sync();
            }
            if worker.index == 0 {
                *time.lock().expect("no worker panics under this lock") =
                    start.elapsed() / MEETINGS;
            }
        });
        time.into_inner().expect("no worker panics under this lock")
    });
    tries.min().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_figure_is_positive_and_named() {
        let pool = Team::new(2);
        let mut last = 0.0;
        let ceilings = probe(&pool, Isa::detect(), &mut |part| {
            assert!(part > last);
            last = part;
            true
        })
        .expect("a quarter of a gigabyte");
        assert!((last - 1.0).abs() < 1e-9);
        let sets = WorkingSets::new(last_level_cache());
        assert_eq!(ceilings.read.len(), 2 * sets.of(1).len());
        let order = |read: &ReadCeiling| (read.threads, read.working_set);
        assert!(ceilings.read.is_sorted_by_key(order), "{ceilings:?}");
        let stopped = |at: usize| {
            let mut told = 0;
            probe(&pool, Isa::detect(), &mut |_| {
                told += 1;
                told < at
            })
        };
        assert!(matches!(stopped(1), Err(program::Error::Cancelled)));
        // the barrier, and all figures of two threads
        let half = stopped(1 + sets.of(2).len() + 2).expect("two threads are whole");
        assert_eq!(half.compute.iter().map(|c| c.threads).collect::<Vec<_>>(), [2]);
        assert_eq!(half.read.len(), sets.of(2).len());
        assert!(ceilings.read.iter().all(|r| r.bytes_per_second > 1e8));
        let compute = ceilings.compute(2).expect("two threads were measured");
        assert!(compute.f32_macs_per_second > 1e7 && compute.int8_macs_per_second > 1e7);
        assert!(ceilings.memory_bandwidth(1).is_some() && ceilings.memory_bandwidth(3).is_none());
    }

    /// An instruction does four times as many products of bytes as of floats, at most: much more is a loop that the
    /// compiler emptied.
    #[test]
    fn loops_do_what_they_count() {
        let pool = Team::new(1);
        for isa in [Isa::AVX2, Isa::AVX512].into_iter().filter(|isa| Isa::detect().contains(*isa)) {
            let [float, int8] =
                [FMA.pick(isa), INT8.pick(isa)].map(|kernel| compute_rate(&pool, 1, kernel));
            let bytes: Vec<u8> = (0..99_999).map(|i| (i * 7) as u8).collect();
            let sums = [false, true].map(|ahead| READ.pick(isa).call(&bytes, ahead));
            assert!(sums[0] == sums[1] && sums[0] != 0, "{}: what is read", isa.name());
            assert!(int8 < 16.0 * float, "{}: {int8:e} and {float:e}", isa.name());
        }
    }

    /// Caches are measured with a set that they hold, and memory with a set that they do not hold.
    #[test]
    fn working_sets_follow_the_cache() {
        let plain = WorkingSets::new(None);
        assert_eq!(plain.of(1), [(NEAR, NEAR), (SHARED, SHARED), (FAR, FAR)]);
        let desk = WorkingSets::new(Some(32 << 20));
        assert_eq!(desk.of(2)[2..], [(16 << 20, 32 << 20), (FAR, FAR)]);
        let server = WorkingSets::new(Some(256 << 20));
        assert_eq!(server.of(1)[2..], [(128 << 20, 256 << 20), (FARTHEST, FARTHEST)]);
        assert_eq!(WorkingSets::new(Some(4 << 20)), plain, "no more than what is read anyway");
        // the near caches of many cores hold more than one shared cache
        assert!(desk.of(128).is_sorted(), "{:?}", desk.of(128));
        for (text, bytes) in [
            ("32768K\n", Some(32 << 20)),
            ("96M", Some(96 << 20)),
            ("512", Some(512)),
            ("K", None),
            ("", None),
        ] {
            assert_eq!(cache_bytes(text), bytes, "{text:?}");
        }
    }

    #[test]
    fn thread_counts_end_with_all() {
        assert_eq!(thread_counts(1), [1]);
        assert_eq!(thread_counts(6), [1, 2, 4, 6]);
    }
}
