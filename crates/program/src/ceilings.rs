//! What a machine can do at most, measured: the roof of the roofline.

use std::time::Duration;

/// Read bandwidth of a number of threads over a working set of some size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ReadCeiling {
    /// Threads reading at once, each its own part.
    pub threads: usize,
    /// Bytes that all of them read over and over.
    pub working_set: u64,
    /// Bytes per second, all threads together.
    pub bytes_per_second: f64,
}

/// Arithmetic of a number of threads.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ComputeCeiling {
    /// Threads computing at once.
    pub threads: usize,
    /// f32 fused multiply-adds per second, all threads together; each is 2 FLOP.
    pub f32_macs_per_second: f64,
    /// Products of 8-bit integers added into 32 bits, per second, all threads together.
    pub int8_macs_per_second: f64,
}

/// The ceilings of an executor's machine. Decimal units throughout.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ceilings {
    /// By threads, then by working set, ascending.
    pub read: Vec<ReadCeiling>,
    /// By threads, ascending.
    pub compute: Vec<ComputeCeiling>,
    /// Time in which all threads meet at a barrier; of a device what one dispatch more takes in a submission.
    pub barrier: Duration,
    /// Time of a submission to a device that finds nothing to do there, until it is known to be done; of a processor none.
    pub submission: Duration,
}

impl Ceilings {
    /// Read bandwidth of `threads` over the largest working set measured: memory.
    pub fn memory_bandwidth(&self, threads: usize) -> Option<f64> {
        let of_threads = self.read.iter().filter(|r| r.threads == threads);
        of_threads.max_by_key(|r| r.working_set).map(|r| r.bytes_per_second)
    }

    /// The better of two measurements of one machine, figure by figure: what disturbs a measurement only lowers it.
    /// Figures that `other` lacks stay.
    pub fn best_of(mut self, other: &Ceilings) -> Ceilings {
        for read in &mut self.read {
            let same =
                |o: &&ReadCeiling| (o.threads, o.working_set) == (read.threads, read.working_set);
            let other = other.read.iter().find(same).map_or(0.0, |o| o.bytes_per_second);
            read.bytes_per_second = read.bytes_per_second.max(other);
        }
        for compute in &mut self.compute {
            if let Some(other) = other.compute(compute.threads) {
                compute.f32_macs_per_second =
                    compute.f32_macs_per_second.max(other.f32_macs_per_second);
                compute.int8_macs_per_second =
                    compute.int8_macs_per_second.max(other.int8_macs_per_second);
            }
        }
        self.barrier = self.barrier.min(other.barrier);
        self.submission = self.submission.min(other.submission);
        self
    }

    /// Arithmetic of `threads`.
    pub fn compute(&self, threads: usize) -> Option<ComputeCeiling> {
        self.compute.iter().find(|c| c.threads == threads).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_better_figure_wins() {
        let measured = |rate: f64, barrier| Ceilings {
            read: vec![ReadCeiling { threads: 1, working_set: 8, bytes_per_second: rate }],
            compute: vec![ComputeCeiling {
                threads: 1,
                f32_macs_per_second: 10.0 - rate,
                int8_macs_per_second: rate,
            }],
            barrier: Duration::from_nanos(barrier),
            submission: Duration::ZERO,
        };
        let best = measured(2.0, 50).best_of(&measured(3.0, 70));
        assert_eq!(best.memory_bandwidth(1), Some(3.0));
        let compute = best.compute(1).expect("one thread was measured");
        assert_eq!((compute.f32_macs_per_second, compute.int8_macs_per_second), (8.0, 3.0));
        assert_eq!(best.barrier, Duration::from_nanos(50));
        assert_eq!(measured(2.0, 1).best_of(&Ceilings::default()).memory_bandwidth(1), Some(2.0));
    }
}
