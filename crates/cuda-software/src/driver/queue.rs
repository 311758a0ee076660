//! Executes the work of streams. It runs only when something waits for it, so that a caller who
//! does not wait sees what was there before.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::{MutexGuard, PoisonError, TryLockError};
use std::time::Instant;

use super::codes::CUDA_ERROR_NOT_READY;
use super::state::{Call, Driver, HostSource, IN_HOST_FUNCTION, Id, LEGACY, State, Work, driver};
use crate::exec::{Fault, FaultKind, Uninitialized};

/// Next action of a stream.
enum Next {
    Nothing,
    Run(Work),
    /// Work up to this number of another stream comes first.
    First(Id, u64),
}

/// Next work of a stream up to a number, with the order that the legacy stream and waits impose.
fn next(state: &mut State, stream: Id, until: u64) -> Next {
    let Some((number, work)) = state.streams.get(&stream).and_then(|s| s.queue.front()) else {
        return Next::Nothing;
    };
    let number = *number;
    if number > until {
        return Next::Nothing;
    }
    let pending = |other: Id, until: u64| {
        let front = state.streams.get(&other).and_then(|s| s.queue.front());
        other != stream && front.is_some_and(|w| w.0 <= until)
    };
    if let Work::Wait(other, until) = *work
        && pending(other, until)
    {
        return Next::First(other, until);
    }
    let blocking = |s: Id| state.streams.get(&s).is_some_and(|s| !s.non_blocking);
    let before = if stream == LEGACY {
        state.streams.keys().copied().find(|&s| blocking(s) && pending(s, number))
    } else if blocking(stream) {
        Some(LEGACY).filter(|&s| pending(s, number))
    } else {
        None
    };
    if let Some(other) = before {
        return Next::First(other, number);
    }
    match state.streams.get_mut(&stream).and_then(|s| s.queue.pop_front()) {
        Some((_, work)) => Next::Run(work),
        None => Next::Nothing,
    }
}

impl Driver {
    /// Executes work of a stream up to a number, and what it waits for.
    ///
    /// # Errors
    /// The context's fault.
    pub(super) fn run_until(&self, stream: Id, until: u64) -> Call<()> {
        let _running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        while self.step(stream, until) {}
        self.lock().sticky.map_or(Ok(()), Err)
    }

    /// Executes all work of all streams.
    ///
    /// # Errors
    /// The context's fault.
    pub(super) fn run_all(&self) -> Call<()> {
        let streams: Vec<Id> = self.lock().streams.keys().copied().collect();
        streams.into_iter().try_for_each(|stream| self.run_until(stream, u64::MAX))
    }

    /// A caller polls: executes one piece of work, if there is any.
    ///
    /// # Errors
    /// `CUDA_ERROR_NOT_READY` where there was work, the context's fault.
    pub(super) fn poll(&self, stream: Id, until: u64) -> Call<()> {
        let _running: MutexGuard<'_, ()> = match self.running.try_lock() {
            Ok(guard) => guard,
            Err(TryLockError::Poisoned(guard)) => guard.into_inner(),
            Err(TryLockError::WouldBlock) => return Err(CUDA_ERROR_NOT_READY),
        };
        let worked = self.step(stream, until);
        self.lock().sticky.map_or(Ok(()), Err)?;
        if worked { Err(CUDA_ERROR_NOT_READY) } else { Ok(()) }
    }

    /// Executes one piece of work; false where there is none.
    fn step(&self, stream: Id, until: u64) -> bool {
        let (mut stream, mut until) = (stream, until);
        loop {
            let mut state = self.lock();
            match next(&mut state, stream, until) {
                Next::Nothing => return false,
                Next::First(other, number) => {
                    stream = other;
                    until = number;
                }
                Next::Run(work) => {
                    drop(state);
                    if let Err(fault) = self.execute(&work) {
                        self.lock().fail(&fault);
                    }
                    return true;
                }
            }
        }
    }

    fn execute(&self, work: &Work) -> Result<(), Fault> {
        match work {
            Work::Kernel { launch, loaded } => {
                if !loaded.load(Relaxed) {
                    let text = format!(
                        "kernel `{}`: its module was unloaded before it ran",
                        launch.kernel.name
                    );
                    return Err(Fault { kind: FaultKind::Gone, text });
                }
                let options = self.lock().options.clone();
                let serial = self.serial.fetch_add(1, Relaxed);
                let memory = self.memory.read().unwrap_or_else(PoisonError::into_inner);
                let outcome = crate::exec::launch(launch, &memory, &options, serial);
                drop(memory);
                let mut state = self.lock();
                state.counters.launches += 1;
                state.counters.instructions += outcome?.steps;
                Ok(())
            }
            Work::Host { function, data } => {
                self.lock().counters.host_functions += 1;
                IN_HOST_FUNCTION.set(true);
                // SAFETY: the caller of `cuLaunchHostFunc` promised that the function may be
                // called with this pointer.
                unsafe { function(std::ptr::with_exposed_provenance_mut(*data)) };
                IN_HOST_FUNCTION.set(false);
                Ok(())
            }
            Work::Record(event, number) => {
                if let Some(event) = self.lock().events.get_mut(event) {
                    event.complete = *number;
                    event.time = Some(Instant::now());
                }
                Ok(())
            }
            Work::Wait(..) => Ok(()),
            _ => self.copy(work),
        }
    }

    fn copy(&self, work: &Work) -> Result<(), Fault> {
        // The state is locked before the memory everywhere: not while `memory` is held.
        match work {
            Work::HostToDevice { from: HostSource::Pinned(address, serial), len, .. } => {
                self.still_pinned(*address, *len, *serial)?;
            }
            Work::DeviceToHost { to, pinned, len, .. } => self.still_pinned(*to, *len, *pinned)?,
            _ => {}
        }
        let check = self.lock().options.uninitialized;
        let memory = self.memory.read().unwrap_or_else(PoisonError::into_inner);
        let device = |address: u64, len: u64, what: &str| {
            memory.range(address, len).ok_or_else(|| {
                let place = memory.describe(address);
                let text = format!("{what} of {len} bytes at {address:#x}: {place}");
                Fault { kind: FaultKind::Address, text }
            })
        };
        let copied = match work {
            Work::HostToDevice { to, from, len } => {
                let (allocation, at) = device(*to, *len, "copy to the device")?;
                match from {
                    HostSource::Staged(bytes) => allocation.write(at, bytes),
                    HostSource::Pinned(address, _) => {
                        // SAFETY: the range is within page-locked memory of this library, which
                        // `still_pinned` found above; the caller promised not to change it meanwhile.
                        let bytes = unsafe { super::host::bytes(*address, *len as usize) };
                        allocation.write(at, bytes);
                    }
                }
                *len
            }
            Work::DeviceToHost { to, from, len, .. } => {
                let (allocation, at) = device(*from, *len, "copy from the device")?;
                super::memory::written_before_copy(&memory, (allocation, at), *len, check)?;
                // SAFETY: as above.
                let bytes = unsafe { super::host::bytes_mut(*to, *len as usize) };
                allocation.read(at, bytes);
                *len
            }
            Work::DeviceToDevice { to, from, len } => {
                let (source, from_at) = device(*from, *len, "copy on the device, its source")?;
                let (target, at) = device(*to, *len, "copy on the device, its target")?;
                target.copy_from(at, source, from_at, *len);
                *len
            }
            Work::Fill { to, len, pattern } => {
                let (allocation, at) = device(*to, *len, "memset")?;
                allocation.fill(at, *len, *pattern);
                0
            }
            _ => 0,
        };
        drop(memory);
        let mut state = self.lock();
        state.counters.copies += u64::from(copied > 0);
        state.counters.copied_bytes += copied;
        Ok(())
    }

    fn still_pinned(&self, address: usize, len: u64, serial: u64) -> Result<(), Fault> {
        if self.lock().pinned(address, len) == Some(serial) {
            return Ok(());
        }
        let text =
            format!("copy: page-locked memory at {address:#x} was freed before the copy ran");
        Err(Fault { kind: FaultKind::Gone, text })
    }
}

/// Executes everything up to now of one stream.
pub(super) fn wait_for(stream: Id) -> Call<()> {
    driver().run_until(stream, u64::MAX)
}

/// Reads of never-written memory by a copy are faults.
pub(super) fn checks_copies(uninitialized: Uninitialized) -> bool {
    uninitialized == Uninitialized::Check
}
