//! Asking for the lines of a panel before they are used.
//!
//! A loop that unpacks codes covers too little of a panel by its reorder window, and how much of the rest the hardware
//! fetches on its own differs between makers:
//!
//! - Intel (measured on a Xeon with AMX, both kernels of two planes and of one): what is asked for into the first-level
//!   cache waits in its few line-fill buffers, at 9 GB/s a core. Asked for into the second-level cache first and from
//!   there into the first: 14 GB/s, as a plain read.
//! - AMD (measured on Zen 3 and Zen 4): one distance does, 2 to 4 KB are level. One row of a single plane of few bits is
//!   so fast with AVX-512 that the hardware does better alone; two planes gain 6 to 8 % of a step; 8-bit codes (0.73 of a
//!   plain read at a distance, 0.95 so) gain from asking for the lines of their block at once.

use std::sync::LazyLock;

use super::format::PanelFormat;
use crate::lanes::{AHEAD, prefetch, prefetch_in_steps};

/// When lines are asked for on this CPU.
#[derive(Clone, Copy)]
pub(super) struct Fetch {
    two_steps: bool,
}

impl Fetch {
    /// As is best on this CPU.
    pub(super) fn best() -> Fetch {
        static TWO_STEPS: LazyLock<bool> = LazyLock::new(is_intel);
        Fetch { two_steps: *TWO_STEPS }
    }

    /// For what a group takes, and its part of the header, in AVX-512's and like kernels of `rows` rows.
    #[inline(always)]
    pub(super) fn quads<F: PanelFormat>(self, group: &[u8], rows: usize) {
        if self.two_steps {
            in_steps::<F>(group);
        } else if rows > 1 || F::HIGH > 0 {
            lines::<F>(group, AHEAD);
        } else if F::LOW == 8 {
            lines::<F>(group, 0);
        }
    }

    /// For what a group takes, and its part of the header, in AVX2's kernels.
    #[inline(always)]
    #[cfg_attr(not(target_arch = "x86_64"), expect(dead_code, reason = "no kernels of AVX2"))]
    pub(super) fn pairs<F: PanelFormat>(self, group: &[u8]) {
        if self.two_steps {
            in_steps::<F>(group);
        } else {
            lines::<F>(group, AHEAD);
        }
    }

    /// For a line of plain weights that `rows` rows are multiplied with.
    #[inline(always)]
    pub(super) fn line(self, bytes: &[u8], rows: usize) {
        let at = bytes.as_ptr();
        if self.two_steps {
            prefetch_in_steps(at);
        } else if rows > 2 {
            prefetch(at.wrapping_add(AHEAD));
        }
    }
}

#[inline(always)]
fn lines<F: PanelFormat>(group: &[u8], ahead: usize) {
    for line in 0..(F::BLOCK_BYTES / F::GROUPS).div_ceil(64) {
        prefetch(group.as_ptr().wrapping_add(ahead + 64 * line));
    }
}

#[inline(always)]
fn in_steps<F: PanelFormat>(group: &[u8]) {
    for line in 0..(F::BLOCK_BYTES / F::GROUPS).div_ceil(64) {
        prefetch_in_steps(group.as_ptr().wrapping_add(64 * line));
    }
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
fn is_intel() -> bool {
    // leaf 0 exists on every x86-64; the maker's name stands in ebx, edx, ecx
    let name = std::arch::x86_64::__cpuid(0);
    [name.ebx, name.edx, name.ecx].map(u32::to_le_bytes).as_flattened() == b"GenuineIntel"
}

// Miri has no instruction that asks a CPU for its name
#[cfg(not(all(target_arch = "x86_64", not(miri))))]
fn is_intel() -> bool {
    false
}
