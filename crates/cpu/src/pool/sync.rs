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

/// Polls of a flag before a waiter gives its core to whoever wants it: some tens of microseconds.
pub(super) const SPINS_BEFORE_YIELD: u32 = if cfg!(loom) { 0 } else { 2_000 };
/// Polls before an idle worker sleeps: long enough to stay awake across sampling and printing a token.
pub(super) const SPINS_BEFORE_SLEEP: u32 = if cfg!(loom) { 0 } else { 30_000 };
