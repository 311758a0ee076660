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
/// Working set of all threads that fits no cache.
const FAR: usize = 256 << 20;
/// Tries of each figure.
const TRIES: usize = 5;
/// Least time of a try.
const TRY: Duration = Duration::from_millis(12);

/// Measure with up to the pool's threads. `progress` is told what part is done, from 0 to 1.
///
/// # Errors
/// [`program::Error::Memory`] if the working set cannot be had.
pub(crate) fn probe(pool: &Team, isa: Isa, progress: &mut dyn FnMut(f64)) -> Result<Ceilings> {
    let mut buffer = Buffer::new(FAR, "the probe of memory")?;
    fill(pool, &mut buffer);
    let counts = thread_counts(pool.n());
    let parts = (counts.len() * 5 + 1) as f64;
    let mut done = 0.0;
    let mut advance = || {
        done += 1.0;
        progress(done / parts);
    };
    let mut ceilings = Ceilings::default();
    for &threads in &counts {
        for working_set in [NEAR * threads, SHARED, FAR] {
            let bytes_per_second = read_rate(pool, isa, threads, &buffer.bytes()[..working_set]);
            let working_set = working_set as u64;
            ceilings.read.push(ReadCeiling { threads, working_set, bytes_per_second });
            advance();
        }
        let f32_macs_per_second = compute_rate(pool, threads, FMA.pick(isa));
        advance();
        let int8_macs_per_second = compute_rate(pool, threads, INT8.pick(isa));
        advance();
        ceilings.compute.push(ComputeCeiling {
            threads,
            f32_macs_per_second,
            int8_macs_per_second,
        });
    }
    ceilings.barrier = barrier(pool);
    advance();
    Ok(ceilings)
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
        })
        .expect("a quarter of a gigabyte");
        assert!((last - 1.0).abs() < 1e-9);
        assert_eq!(ceilings.read.len(), 6);
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

    #[test]
    fn thread_counts_end_with_all() {
        assert_eq!(thread_counts(1), [1]);
        assert_eq!(thread_counts(6), [1, 2, 4, 6]);
    }
}
