//! Loops that do nothing but reach a ceiling: read memory, multiply floats, multiply small integers.

#[cfg(target_arch = "x86_64")]
mod x86_64;

use std::hint::black_box;

use crate::lanes::prefetch_in_steps;
use crate::{Isa, Kernel, Level, Slot};

#[cfg(not(target_arch = "x86_64"))]
mod x86_64 {
    use super::{RateFn, ReadFn};
    use crate::Kernel;
    pub(super) const READ: &[Kernel<ReadFn>] = &[];
    pub(super) const FMA: &[Kernel<RateFn>] = &[];
    pub(super) const INT8: &[Kernel<RateFn>] = &[];
}

/// Signature of [`READ`].
pub type ReadFn = unsafe fn(&[u8], bool) -> u64;

/// Adds up all whole runs of 512 bytes as 64-bit words: a plain read of memory.
pub static READ: Slot<ReadFn> = Slot {
    op: "probe_read",
    naive: Kernel { name: "probe_read/naive", isa: Isa::NONE, level: Level::Naive, run: read },
    candidates: x86_64::READ,
};

/// Signature of [`FMA`] and [`INT8`].
pub type RateFn = unsafe fn(usize) -> u64;

/// f32 fused multiply-adds in independent chains; yields how many were done.
pub static FMA: Slot<RateFn> = Slot {
    op: "probe_fma",
    naive: Kernel { name: "probe_fma/naive", isa: Isa::NONE, level: Level::Naive, run: fma },
    candidates: x86_64::FMA,
};

/// Products of 8-bit integers added into 32 bits, as the linear kernels do them; yields how many were done.
pub static INT8: Slot<RateFn> = Slot {
    op: "probe_int8",
    naive: Kernel { name: "probe_int8/naive", isa: Isa::NONE, level: Level::Naive, run: int8 },
    candidates: x86_64::INT8,
};

impl Kernel<ReadFn> {
    /// Read `bytes` once; `ahead`: asking for lines before they are read, which some CPUs need for their full bandwidth.
    pub fn call(&self, bytes: &[u8], ahead: bool) -> u64 {
        // SAFETY: `Slot::available` is the only source of `&Kernel`, so this CPU has `self.isa`.
        unsafe { (self.run)(bytes, ahead) }
    }
}

impl Kernel<RateFn> {
    /// Do `rounds` rounds; returns the multiply-adds in them.
    pub fn call(&self, rounds: usize) -> u64 {
        // SAFETY: `Slot::available` is the only source of `&Kernel`, so this CPU has `self.isa`.
        unsafe { (self.run)(rounds) }
    }
}

#[inline(always)]
fn read(bytes: &[u8], ahead: bool) -> u64 {
    let mut sums = [0u64; 64];
    for line in bytes.as_chunks::<512>().0 {
        if ahead {
            line.as_chunks::<64>().0.iter().for_each(|line| prefetch_in_steps(line.as_ptr()));
        }
        for (sum, word) in sums.iter_mut().zip(line.as_chunks::<8>().0) {
            *sum = sum.wrapping_add(u64::from_le_bytes(*word));
        }
    }
    sums.into_iter().fold(0, u64::wrapping_add)
}

/// Independent chains: enough to hide the latency of a multiply-add.
const CHAINS: usize = 10;

fn fma(rounds: usize) -> u64 {
    let (a, b) = (black_box(0.999_9_f32), black_box(0.5_f32));
    let mut sums = [1.0f32; CHAINS];
    for _ in 0..rounds {
        for sum in &mut sums {
            *sum = sum.mul_add(a, b);
        }
    }
    black_box(sums);
    (rounds * CHAINS) as u64
}

fn int8(rounds: usize) -> u64 {
    let (w, a) = (black_box([7u8; 16]), black_box([3i8; 16]));
    let mut sums = [0i32; 16];
    for _ in 0..rounds {
        for ((sum, w), a) in sums.iter_mut().zip(w).zip(a) {
            *sum = sum.wrapping_add(i32::from(w) * i32::from(a));
        }
        black_box(&mut sums);
    }
    (rounds * 16) as u64
}
