//! What the pool is made of. Under `--cfg loom` these are loom's, which tries every order in which threads can run.

#[cfg(loom)]
pub(super) use loom::{
    hint::spin_loop,
    sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering},
    sync::{Arc, Condvar, Mutex, MutexGuard},
    thread::{Builder, JoinHandle, yield_now},
};
#[cfg(not(loom))]
pub(super) use std::{
    hint::spin_loop,
    sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering},
    sync::{Arc, Condvar, Mutex, MutexGuard},
    thread::{Builder, JoinHandle, yield_now},
};

pub(super) use std::sync::PoisonError;

/// How long who waits polls a flag.
#[derive(Clone, Copy)]
pub(super) struct Patience {
    /// Polls before a waiter gives its core to whoever wants it.
    pub(super) before_yield: u32,
    /// Polls before an idle worker sleeps.
    pub(super) before_sleep: u32,
}

impl Patience {
    /// Of `n` workers. Where each has a core: some tens of microseconds, and long enough to stay awake across sampling and
    /// printing a token. Where cores are fewer, who polls has the core that another needs to come.
    pub(super) fn of(n: usize) -> Patience {
        let cores = std::thread::available_parallelism().map_or(usize::MAX, usize::from);
        match cfg!(loom) || n > cores {
            true => Patience { before_yield: 0, before_sleep: 0 },
            false => Patience { before_yield: 2_000, before_sleep: 30_000 },
        }
    }
}
