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
    /// Time in which all threads meet at a barrier.
    pub barrier: Duration,
}

impl Ceilings {
    /// Read bandwidth of `threads` over the largest working set measured: memory.
    pub fn memory_bandwidth(&self, threads: usize) -> Option<f64> {
        let of_threads = self.read.iter().filter(|r| r.threads == threads);
        of_threads.max_by_key(|r| r.working_set).map(|r| r.bytes_per_second)
    }

    /// Arithmetic of `threads`.
    pub fn compute(&self, threads: usize) -> Option<ComputeCeiling> {
        self.compute.iter().find(|c| c.threads == threads).copied()
    }
}
