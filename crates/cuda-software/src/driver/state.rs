//! Objects of the driver, and the rules that every call obeys.

use std::cell::Cell;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::thread::ThreadId;
use std::time::Instant;

use super::codes::*;
use crate::device_memory::DeviceMemory;
use crate::exec::{Fault, FaultKind, Launch, Options, Uninitialized};
use crate::ptx::Kernel;

/// Handle of an object; 0 is none.
pub(super) type Id = usize;

/// Function of the caller that a stream calls.
pub type CUhostFn = unsafe extern "C" fn(*mut c_void);

/// Handle of the primary context.
pub(super) const PRIMARY: Id = 0x100;
/// Handle of the legacy stream.
pub(super) const LEGACY: Id = 0;

/// Where a copy to the device reads from.
#[derive(Clone, Debug)]
pub(super) enum HostSource {
    /// Pageable memory, copied when the call was made, as a card's driver does.
    Staged(Arc<[u8]>),
    /// Page-locked memory: address and allocation. Read when the copy runs.
    Pinned(usize, u64),
}

/// Work of a stream or node of a graph.
#[derive(Clone, Debug)]
pub(super) enum Work {
    HostToDevice {
        to: u64,
        from: HostSource,
        len: u64,
    },
    /// To page-locked memory: address and allocation.
    DeviceToHost {
        to: usize,
        pinned: u64,
        from: u64,
        len: u64,
    },
    DeviceToDevice {
        to: u64,
        from: u64,
        len: u64,
    },
    Fill {
        to: u64,
        len: u64,
        pattern: [u8; 4],
    },
    Kernel {
        launch: Arc<Launch>,
        loaded: Arc<AtomicBool>,
    },
    Host {
        function: CUhostFn,
        data: usize,
    },
    /// Event and the number of this recording.
    Record(Id, u64),
    /// Stream and number of the work to wait for.
    Wait(Id, u64),
}

/// Capture of a stream in progress.
#[derive(Debug)]
pub(super) struct Capture {
    /// `CU_STREAM_CAPTURE_MODE_*`.
    pub(super) mode: u32,
    pub(super) thread: ThreadId,
    pub(super) nodes: Vec<Work>,
    pub(super) valid: bool,
}

/// Stream: numbered work that is not yet done.
#[derive(Debug, Default)]
pub(super) struct Stream {
    pub(super) queue: VecDeque<(u64, Work)>,
    /// Does not synchronize with the legacy stream.
    pub(super) non_blocking: bool,
    pub(super) capture: Option<Capture>,
}

/// Event: its recordings are numbered.
#[derive(Debug, Default)]
pub(super) struct Event {
    pub(super) timed: bool,
    pub(super) recorded: u64,
    /// Stream and number of the work that records it.
    pub(super) place: Option<(Id, u64)>,
    /// Last recording that is complete, and its time.
    pub(super) complete: u64,
    pub(super) time: Option<Instant>,
    /// Last recorded in a capture.
    pub(super) captured: bool,
}

/// Module: its kernels.
#[derive(Debug)]
pub(super) struct Module {
    pub(super) kernels: Vec<Arc<Kernel>>,
    pub(super) loaded: Arc<AtomicBool>,
}

/// Kernel of a module.
#[derive(Clone, Debug)]
pub(super) struct Function {
    pub(super) kernel: Arc<Kernel>,
    pub(super) module: Id,
    pub(super) loaded: Arc<AtomicBool>,
}

/// Graph: its nodes, each with a handle.
#[derive(Debug)]
pub(super) struct Graph {
    pub(super) nodes: Vec<(Id, Work)>,
}

/// Page-locked host memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pinned {
    pub(super) len: usize,
    pub(super) serial: u64,
}

/// Counters of `cuda_software_report` since the last reset.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) launches: u64,
    pub(super) graph_launches: u64,
    pub(super) graph_nodes: u64,
    pub(super) copies: u64,
    pub(super) copied_bytes: u64,
    pub(super) host_functions: u64,
    pub(super) instructions: u64,
    pub(super) faults: u64,
}

/// Everything but device memory.
#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) initialized: bool,
    /// Retained this many times; 0: it does not exist.
    pub(super) retained: u32,
    /// Error of every call since the first fault.
    pub(super) sticky: Option<CUresult>,
    pub(super) first_fault: Option<String>,
    pub(super) streams: HashMap<Id, Stream>,
    pub(super) events: HashMap<Id, Event>,
    pub(super) modules: HashMap<Id, Module>,
    pub(super) functions: HashMap<Id, Function>,
    pub(super) graphs: HashMap<Id, Graph>,
    pub(super) executables: HashMap<Id, Arc<[Work]>>,
    pub(super) pinned: BTreeMap<usize, Pinned>,
    pub(super) counters: Counters,
    pub(super) options: Options,
    last_id: Id,
    pub(super) last_number: u64,
}

/// The driver of this process.
pub(super) struct Driver {
    state: Mutex<State>,
    pub(super) memory: RwLock<DeviceMemory>,
    /// Held while work runs: one thread runs it at a time.
    pub(super) running: Mutex<()>,
    /// Launches so far; they shuffle differently.
    pub(super) serial: AtomicU64,
}

/// Result of a call's body.
pub(super) type Call<T> = Result<T, CUresult>;

thread_local! {
    /// Context current to the thread.
    pub(super) static CURRENT: Cell<Id> = const { Cell::new(0) };
    /// Mode of `cuThreadExchangeStreamCaptureMode`.
    pub(super) static INTERACTION: Cell<u32> = const { Cell::new(0) };
    /// The thread is in a host function of a stream.
    pub(super) static IN_HOST_FUNCTION: Cell<bool> = const { Cell::new(false) };
}

/// The only driver.
pub(super) fn driver() -> &'static Driver {
    static DRIVER: std::sync::LazyLock<Driver> = std::sync::LazyLock::new(|| Driver {
        state: Mutex::default(),
        memory: RwLock::new(DeviceMemory::new(capacity())),
        running: Mutex::new(()),
        serial: AtomicU64::new(0),
    });
    &DRIVER
}

impl Driver {
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn variable<T: std::str::FromStr>(name: &str) -> Option<T> {
    let value = std::env::var(name).ok()?;
    let parsed = value.parse().ok();
    if parsed.is_none() {
        eprintln!("cuda-software: {name}={value} is not understood");
    }
    parsed
}

/// Bytes of device memory.
pub(super) fn capacity() -> u64 {
    variable("ROOFLIGHT_CUDA_SOFTWARE_MEMORY").unwrap_or(4 << 30)
}

/// Options by environment variables.
pub(super) fn options() -> Options {
    let mut options = Options::default();
    if let Some(seed) = variable("ROOFLIGHT_CUDA_SOFTWARE_SEED") {
        options.seed = seed;
    }
    if let Some(threads) = variable("ROOFLIGHT_CUDA_SOFTWARE_THREADS") {
        options.threads = threads;
    }
    if let Some(steps) = variable("ROOFLIGHT_CUDA_SOFTWARE_STEPS") {
        options.steps = steps;
    }
    match variable::<String>("ROOFLIGHT_CUDA_SOFTWARE_UNINITIALIZED").as_deref() {
        None | Some("check") => {}
        Some("kernels") => options.uninitialized = Uninitialized::Kernels,
        Some("allow") => options.uninitialized = Uninitialized::Allow,
        Some(other) => {
            eprintln!("cuda-software: ROOFLIGHT_CUDA_SOFTWARE_UNINITIALIZED={other} is not known");
        }
    }
    match variable::<String>("ROOFLIGHT_CUDA_SOFTWARE_RACES").as_deref() {
        None | Some("check") => {}
        Some("shared") => options.global_races = false,
        Some("allow") => (options.races, options.global_races) = (false, false),
        Some(other) => {
            eprintln!("cuda-software: ROOFLIGHT_CUDA_SOFTWARE_RACES={other} is not known");
        }
    }
    options
}

/// Code of a fault.
pub(super) fn code_of(kind: FaultKind) -> CUresult {
    match kind {
        FaultKind::Address | FaultKind::Gone => CUDA_ERROR_ILLEGAL_ADDRESS,
        FaultKind::Alignment => CUDA_ERROR_MISALIGNED_ADDRESS,
        FaultKind::Endless => CUDA_ERROR_LAUNCH_TIMEOUT,
        FaultKind::Uninitialized | FaultKind::Race | FaultKind::Divergent | FaultKind::Deadlock => {
            CUDA_ERROR_LAUNCH_FAILED
        }
    }
}

impl State {
    /// Handle that was never used.
    pub(super) fn new_id(&mut self) -> Id {
        self.last_id = self.last_id.max(PRIMARY) + 0x10;
        self.last_id
    }

    /// Marks the context as failed; the first fault is described on stderr.
    pub(super) fn fail(&mut self, fault: &Fault) {
        self.counters.faults += 1;
        if self.sticky.is_none() {
            eprintln!("cuda-software: {}", fault.text);
            self.sticky = Some(code_of(fault.kind));
            self.first_fault = Some(fault.text.clone());
        }
        self.streams.values_mut().for_each(|s| s.queue.clear());
    }

    /// Stream of a handle.
    pub(super) fn stream(&mut self, stream: Id) -> Call<&mut Stream> {
        self.streams.get_mut(&stream).ok_or(CUDA_ERROR_INVALID_HANDLE)
    }

    /// Adds work to a stream or to its capture.
    pub(super) fn enqueue(&mut self, stream: Id, work: Work) -> Call<()> {
        let number = self.last_number + 1;
        if stream == LEGACY {
            self.no_implicit_capture()?;
        }
        let target = self.stream(stream)?;
        if let Some(capture) = &mut target.capture {
            if !capture.valid {
                return Err(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
            }
            capture.nodes.push(work);
            return Ok(());
        }
        target.queue.push_back((number, work));
        self.last_number = number;
        Ok(())
    }

    /// Work of the legacy stream would join a capture.
    fn no_implicit_capture(&mut self) -> Call<()> {
        let mut result = Ok(());
        for stream in self.streams.values_mut().filter(|s| !s.non_blocking) {
            if let Some(capture) = &mut stream.capture {
                capture.valid = false;
                result = Err(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
            }
        }
        result
    }

    /// A stream is capturing.
    pub(super) fn is_capturing(&mut self, stream: Id) -> Call<bool> {
        Ok(self.stream(stream)?.capture.is_some())
    }

    /// A call that waits for a stream, which a capture does not allow.
    pub(super) fn no_capture_of(&mut self, stream: Id) -> Call<()> {
        if stream == LEGACY {
            self.no_implicit_capture()?;
        }
        match &mut self.stream(stream)?.capture {
            None => Ok(()),
            Some(capture) => {
                capture.valid = false;
                Err(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)
            }
        }
    }

    /// A call that may wait in secret, such as an allocation: forbidden to the thread of a capture
    /// whose mode is not relaxed, and to all threads where its mode is global.
    pub(super) fn no_unsafe_capture(&mut self) -> Call<()> {
        let interaction = INTERACTION.get();
        if interaction == 2 {
            return Ok(());
        }
        let me = std::thread::current().id();
        let mut result = Ok(());
        for stream in self.streams.values_mut() {
            if let Some(capture) = &mut stream.capture {
                let mine = capture.thread == me && capture.mode != 2;
                let global = capture.mode == 0 && interaction == 0;
                if mine || global {
                    capture.valid = false;
                    result = Err(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
                }
            }
        }
        result
    }

    /// Page-locked allocation that holds a range.
    pub(super) fn pinned(&self, address: usize, len: u64) -> Option<u64> {
        let (&start, pinned) = self.pinned.range(..=address).next_back()?;
        let at = address - start;
        (at as u64 + len <= pinned.len as u64).then_some(pinned.serial)
    }
}

/// Runs a call: after `cuInit`, and not in a host function.
pub(super) fn call(body: impl FnOnce(&mut State) -> Call<()>) -> CUresult {
    if IN_HOST_FUNCTION.get() {
        return CUDA_ERROR_NOT_PERMITTED;
    }
    let mut state = driver().lock();
    if !state.initialized {
        return CUDA_ERROR_NOT_INITIALIZED;
    }
    body(&mut state).err().unwrap_or(CUDA_SUCCESS)
}

/// Runs a call that needs a current context without a fault.
pub(super) fn in_context(body: impl FnOnce(&mut State) -> Call<()>) -> CUresult {
    call(|state| {
        check_context(state)?;
        body(state)
    })
}

/// The current context exists and has no fault.
pub(super) fn check_context(state: &State) -> Call<()> {
    if CURRENT.get() != PRIMARY {
        return Err(CUDA_ERROR_INVALID_CONTEXT);
    }
    if state.retained == 0 {
        return Err(CUDA_ERROR_CONTEXT_IS_DESTROYED);
    }
    state.sticky.map_or(Ok(()), Err)
}

/// Creates the primary context's objects.
pub(super) fn create_context(state: &mut State) {
    state.options = options();
    driver().memory.write().unwrap_or_else(PoisonError::into_inner).set_capacity(capacity());
    state.streams.insert(LEGACY, Stream::default());
}

/// Destroys the primary context: memory, streams, modules and the fault.
pub(super) fn destroy_context(state: &mut State) {
    let mut memory = driver().memory.write().unwrap_or_else(PoisonError::into_inner);
    if memory.live() > 0 || !state.pinned.is_empty() {
        eprintln!(
            "cuda-software: {} device allocations ({} bytes) and {} page-locked ones live at the end of the context",
            memory.live(),
            memory.used(),
            state.pinned.len()
        );
    }
    memory.clear();
    drop(memory);
    for module in state.modules.values() {
        module.loaded.store(false, Relaxed);
    }
    for (&start, pinned) in &state.pinned {
        super::host::release(start, pinned.len);
    }
    state.pinned.clear();
    state.streams.clear();
    state.events.clear();
    state.modules.clear();
    state.functions.clear();
    state.graphs.clear();
    state.executables.clear();
    state.sticky = None;
    state.first_fault = None;
}
