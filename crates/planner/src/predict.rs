//! [`Prediction`]: the least time of some work on a [`Machine`]. What is to be expected: [`crate::Expected`].

use std::ops::Range;

use program::Ceilings;

use crate::cost::{Cost, CostKind, Load, Work};
use crate::formula::Head;

/// What binds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Resource {
    /// Reading weights and cache.
    Memory,
    /// 8-bit integer multiply-adds.
    Int8,
    /// Floating-point multiply-adds.
    F32,
    /// Threads waiting for each other.
    Barriers,
}

impl Resource {
    /// Name for tables.
    pub fn name(self) -> &'static str {
        match self {
            Resource::Memory => "memory",
            Resource::Int8 => "int8",
            Resource::F32 => "f32",
            Resource::Barriers => "barriers",
        }
    }
}

/// What a machine can do at most: measured, or by its maker's word. Decimal units.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Machine {
    /// Read bandwidth of memory, in bytes per second.
    pub bandwidth: f64,
    /// 8-bit multiply-adds per second.
    pub int8_macs: f64,
    /// Floating-point multiply-adds per second; each is 2 FLOP.
    pub f32_macs: f64,
    /// Seconds in which all threads meet.
    pub barrier: f64,
}

impl Machine {
    /// The measured ceilings of `threads`, reading `working_set` bytes over and over: bandwidth is that of the smallest
    /// working set measured that is no smaller, or of the largest one. `None` if these threads were not measured.
    pub fn measured(ceilings: &Ceilings, threads: usize, working_set: u64) -> Option<Machine> {
        let compute = ceilings.compute(threads)?;
        let of_threads = || ceilings.read.iter().filter(|read| read.threads == threads);
        let held = of_threads().filter(|read| read.working_set >= working_set);
        let bandwidth = match held.min_by_key(|read| read.working_set) {
            Some(read) => read.bytes_per_second,
            None => ceilings.memory_bandwidth(threads)?,
        };
        Some(Machine {
            bandwidth,
            int8_macs: compute.int8_macs_per_second,
            f32_macs: compute.f32_macs_per_second,
            barrier: ceilings.barrier.as_secs_f64(),
        })
    }
}

/// Seconds that each resource is needed for some work, and what follows.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Prediction {
    /// Moving weights and cache.
    pub memory: f64,
    /// 8-bit multiply-adds.
    pub int8: f64,
    /// Floating-point multiply-adds.
    pub f32: f64,
    /// Waiting at barriers.
    pub barriers: f64,
}

impl Prediction {
    /// Any work, all of it overlapping.
    pub fn of_work(work: &Work, machine: &Machine) -> Prediction {
        // What is not there takes no time, whatever the rate.
        let time = |amount: u64, rate: f64| if amount == 0 { 0.0 } else { amount as f64 / rate };
        Prediction {
            memory: time(work.bytes(), machine.bandwidth),
            int8: time(work.int8_macs, machine.int8_macs),
            f32: time(work.f32_macs, machine.f32_macs),
            barriers: work.barriers as f64 * machine.barrier,
        }
    }

    /// A pass.
    pub fn of_pass(cost: &Cost, load: &Load, machine: &Machine) -> Prediction {
        Prediction::of_work(&cost.pass(load).total(), machine)
    }

    /// Those ops of a pass that belong to one part of the model.
    pub fn of_kind(cost: &Cost, load: &Load, kind: CostKind, machine: &Machine) -> Prediction {
        Prediction::of_work(&cost.pass(load).of_kind(kind), machine)
    }

    /// The step of one token on a cache of `depth` positions.
    pub fn of_step(cost: &Cost, depth: u64, machine: &Machine) -> Prediction {
        Self::of_pass(cost, &Load { past: depth, tokens: 1, outputs: 1 }, machine)
    }

    /// The tokens of a prompt at these positions, those before them being cached, in passes of `chunk` tokens, to the
    /// logits of the last one.
    pub fn of_prefill(
        cost: &Cost,
        positions: Range<u64>,
        chunk: u64,
        machine: &Machine,
    ) -> Prediction {
        Prediction::of_work(&cost.prefill_in_chunks(positions, chunk), machine)
    }

    /// One after the other.
    #[must_use]
    pub fn plus(&self, other: &Prediction) -> Prediction {
        Prediction {
            memory: self.memory + other.memory,
            int8: self.int8 + other.int8,
            f32: self.f32 + other.f32,
            barriers: self.barriers + other.barriers,
        }
    }

    fn by_resource(&self) -> [(Resource, f64); 4] {
        [
            (Resource::Memory, self.memory),
            (Resource::Int8, self.int8),
            (Resource::F32, self.f32),
            (Resource::Barriers, self.barriers),
        ]
    }

    /// Arithmetic: the longer of both kinds, since they overlap as all else does.
    pub fn compute(&self) -> f64 {
        self.int8.max(self.f32)
    }

    /// The least time, in seconds, even if everything overlaps: that of the resource that binds.
    pub fn limit(&self) -> f64 {
        self.by_resource().iter().fold(0.0, |most, (_, time)| time.max(most))
    }

    /// The resource that takes longest.
    pub fn binds(&self) -> Resource {
        let longest = self.by_resource().into_iter().max_by(|a, b| a.1.total_cmp(&b.1));
        longest.map_or(Resource::Memory, |(resource, _)| resource)
    }
}

/// The shortest prompt, of at most `longest` tokens in one pass, whose arithmetic takes longer than its reading: the
/// first inflection, counted, with each tensor's own format. `None` if there is no such prompt among the lengths tried:
/// powers of two, then the exact length below the first that qualifies.
pub fn first_inflection(cost: &Cost, machine: &Machine, longest: u64) -> Option<u64> {
    let computes = |n: u64| {
        let work = cost.prefill(n, Head::LastToken).total();
        let p = Prediction::of_work(&work, machine);
        p.compute() > p.memory
    };
    let powers = std::iter::successors(Some(1u64), |n| n.checked_mul(2));
    let above = powers.take_while(|n| *n < longest).chain([longest]).find(|n| computes(*n))?;
    // Reading binds at `low` or `low` is 0; arithmetic binds at `high`.
    let (mut low, mut high) = (above.next_power_of_two() / 2, above);
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if computes(middle) { high = middle } else { low = middle }
    }
    Some(high)
}

/// `limit / measured`: 1 is a machine at its limit. More than 1 says that a ceiling is wrong, and is to be shown as
/// that. `None` unless both times, in seconds, are positive.
pub fn share(limit: f64, measured: f64) -> Option<f64> {
    (limit > 0.0 && measured > 0.0).then(|| limit / measured)
}
