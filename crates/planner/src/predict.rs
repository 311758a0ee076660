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
    /// Multiply-adds in 8 bits.
    Int8,
    /// Multiply-adds in half precision.
    F16,
    /// Multiply-adds in bfloat16.
    Bf16,
    /// Multiply-adds in single precision.
    F32,
    /// Threads waiting for each other: never a limit, for another program may wait less often.
    Barriers,
}

impl Resource {
    /// Name for tables.
    pub fn name(self) -> &'static str {
        match self {
            Resource::Memory => "memory",
            Resource::Int8 => "int8",
            Resource::F16 => "f16",
            Resource::Bf16 => "bf16",
            Resource::F32 => "f32",
            Resource::Barriers => "barriers",
        }
    }
}

/// What a machine can do at most: measured, or by its maker's word. Decimal units; a multiply-add is 2 FLOP.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Machine {
    /// Read bandwidth of memory, in bytes per second.
    pub bandwidth: f64,
    /// 8-bit multiply-adds per second.
    pub int8_macs: f64,
    /// Multiply-adds per second of half precision.
    pub f16_macs: f64,
    /// Multiply-adds per second of bfloat16.
    pub bf16_macs: f64,
    /// Multiply-adds per second of single precision, in matrix units that round it (TF32) where there are any.
    pub f32_macs: f64,
    /// Seconds in which all threads meet.
    pub barrier: f64,
}

impl Machine {
    /// The measured ceilings of `threads`, reading `working_set` bytes over and over: bandwidth is that of the smallest
    /// working set measured that is no smaller. The largest set that caches hold is the second largest one measured: of a
    /// larger working set, at best that many bytes come from caches, and the rest from memory. `None` if these threads
    /// were not measured.
    pub fn measured(ceilings: &Ceilings, threads: usize, working_set: u64) -> Option<Machine> {
        let compute = ceilings.compute(threads)?;
        let mut read: Vec<_> = ceilings.read.iter().filter(|r| r.threads == threads).collect();
        read.sort_by_key(|read| read.working_set);
        let held = read.iter().find(|read| read.working_set >= working_set);
        let bandwidth = match (&read[..], held) {
            ([.., cache, memory], held) if held.is_none_or(|held| std::ptr::eq(*held, *memory)) => {
                let cached = cache.working_set as f64;
                let rest = (working_set as f64 - cached).max(0.0);
                let seconds = cached / cache.bytes_per_second + rest / memory.bytes_per_second;
                (working_set as f64 / seconds).max(memory.bytes_per_second)
            }
            (_, Some(held)) => held.bytes_per_second,
            (_, None) => ceilings.memory_bandwidth(threads)?,
        };
        let float = compute.f32_macs_per_second;
        Some(Machine {
            bandwidth,
            int8_macs: compute.int8_macs_per_second,
            // halves are widened before they are multiplied
            f16_macs: float,
            bf16_macs: float,
            f32_macs: float,
            barrier: ceilings.barrier.as_secs_f64(),
        })
    }

    /// With this rate for every kind of number.
    pub fn uniform(bandwidth: f64, macs: f64) -> Machine {
        Machine {
            bandwidth,
            int8_macs: macs,
            f16_macs: macs,
            bf16_macs: macs,
            f32_macs: macs,
            barrier: 0.0,
        }
    }

    /// The rates of arithmetic: multiply-adds per second.
    pub fn rates(&self) -> [(Resource, f64); 4] {
        [
            (Resource::Int8, self.int8_macs),
            (Resource::F16, self.f16_macs),
            (Resource::Bf16, self.bf16_macs),
            (Resource::F32, self.f32_macs),
        ]
    }

    /// FLOP for each byte that memory yields, by kind of number: work that needs fewer waits for memory.
    pub fn balance(&self) -> [(Resource, f64); 4] {
        self.rates().map(|(resource, macs)| (resource, 2.0 * macs / self.bandwidth))
    }
}

/// Seconds that each resource is needed for some work, and what follows.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Prediction {
    /// Moving weights and cache at least: all rows use the same experts.
    pub memory: f64,
    /// The same at most: every row uses other experts, until there are no more.
    pub memory_most: f64,
    /// 8-bit multiply-adds.
    pub int8: f64,
    /// Multiply-adds in half precision.
    pub f16: f64,
    /// Multiply-adds in bfloat16.
    pub bf16: f64,
    /// Multiply-adds in single precision.
    pub f32: f64,
    /// Waiting at barriers: what our phases cost with ones that are free of waiting. Part of no limit.
    pub barriers: f64,
}

impl Prediction {
    /// Any work, all of it overlapping.
    pub fn of_work(work: &Work, machine: &Machine) -> Prediction {
        // What is not there takes no time, whatever the rate.
        let time = |amount: u64, rate: f64| if amount == 0 { 0.0 } else { amount as f64 / rate };
        Prediction {
            memory: time(work.bytes(), machine.bandwidth),
            memory_most: time(work.most_bytes(), machine.bandwidth),
            int8: time(work.int8_macs, machine.int8_macs),
            f16: time(work.f16_macs, machine.f16_macs),
            bf16: time(work.bf16_macs, machine.bf16_macs),
            f32: time(work.f32_macs, machine.f32_macs),
            barriers: work.barriers as f64 * machine.barrier,
        }
    }

    /// A pass.
    pub fn of_pass(cost: &Cost, load: &Load, machine: &Machine) -> Prediction {
        Prediction::of_work(&cost.total(load), machine)
    }

    /// Those ops of a pass that belong to one part of the model.
    pub fn of_kind(cost: &Cost, load: &Load, kind: CostKind, machine: &Machine) -> Prediction {
        Prediction::of_work(&cost.pass(load).of_kind(kind), machine)
    }

    /// The step of one token on a cache of `depth` positions.
    pub fn of_step(cost: &Cost, depth: u64, machine: &Machine) -> Prediction {
        Self::of_pass(cost, &Load::step(depth), machine)
    }

    /// The tokens of a prompt at these positions, those before them being cached, to the logits of the last one: in one
    /// pass, for how an executor cuts a prompt is no limit.
    pub fn of_prefill(cost: &Cost, positions: Range<u64>, machine: &Machine) -> Prediction {
        let tokens = positions.end.saturating_sub(positions.start);
        let load = Load { past: positions.start, tokens, outputs: tokens.min(1) };
        match tokens {
            0 => Prediction::default(),
            _ => Prediction::of_pass(cost, &load, machine),
        }
    }

    /// One after the other.
    #[must_use]
    pub fn plus(&self, other: &Prediction) -> Prediction {
        Prediction {
            memory: self.memory + other.memory,
            memory_most: self.memory_most + other.memory_most,
            int8: self.int8 + other.int8,
            f16: self.f16 + other.f16,
            bf16: self.bf16 + other.bf16,
            f32: self.f32 + other.f32,
            barriers: self.barriers + other.barriers,
        }
    }

    /// `n` times the same.
    #[must_use]
    pub fn times(&self, n: usize) -> Prediction {
        let n = n as f64;
        Prediction {
            memory: self.memory * n,
            memory_most: self.memory_most * n,
            int8: self.int8 * n,
            f16: self.f16 * n,
            bf16: self.bf16 * n,
            f32: self.f32 * n,
            barriers: self.barriers * n,
        }
    }

    fn by_resource(&self) -> [(Resource, f64); 5] {
        [
            (Resource::Memory, self.memory),
            (Resource::Int8, self.int8),
            (Resource::F16, self.f16),
            (Resource::Bf16, self.bf16),
            (Resource::F32, self.f32),
        ]
    }

    /// Arithmetic: the longest of all kinds, since they overlap as all else does.
    pub fn compute(&self) -> f64 {
        self.int8.max(self.f16).max(self.bf16).max(self.f32)
    }

    /// The least time, in seconds, even if everything overlaps: that of the resource that binds.
    pub fn limit(&self) -> f64 {
        self.memory.max(self.compute())
    }

    /// The resource that takes longest.
    pub fn binds(&self) -> Resource {
        let longest = self.by_resource().into_iter().max_by(|a, b| a.1.total_cmp(&b.1));
        let Some((resource, time)) = longest else { return Resource::Memory };
        // of equals the first
        if time > self.memory { resource } else { Resource::Memory }
    }
}

/// The shortest prompt, of at most `longest` tokens in one pass, whose arithmetic takes longer than its reading, whatever
/// its experts: the first inflection, counted, with each tensor's own format. `None` if there is no such prompt among the lengths tried:
/// powers of two, then the exact length below the first that qualifies.
pub fn first_inflection(cost: &Cost, machine: &Machine, longest: u64) -> Option<u64> {
    let computes = |n: u64| {
        let work = cost.total(&Load::prompt(n, Head::LastToken));
        let p = Prediction::of_work(&work, machine);
        p.compute() > p.memory_most
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
