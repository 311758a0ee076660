//! The back end by CUDA: shaders become PTX, which NVIDIA's driver compiles; submissions that come again are replayed as
//! graphs, so that the host does no more for a step than to tell the device once.

mod graphs;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use cuda::{
    Context, DeviceInfo, DeviceMemory, Driver, Event, Function, HostMemory, Launch, Module, Shape,
    Stream,
};
use program::{Error, Result};

use crate::GpuOptions;
use crate::backend::{
    Backend, Binding, Buffer, Command, DeviceFacts, Handle, Stamping, Ticket, Usage, Work, Write,
    part,
};
use crate::device::{Gpu, find_device};
use crate::kernels::{Abilities, Matrices, Shader, ShaderKernel};
use crate::nvidia::graphs::Graphs;
use crate::timing::Stamps;

/// Environment variable; `off` or `0` enqueues every submission command by command, for comparison.
const GRAPHS_VARIABLE: &str = "ROOFLIGHT_CUDA_GRAPHS";
/// Size in bytes of the page-locked buffer through which data is copied to the device.
const STAGING_BYTES: usize = 16 << 20;
/// Threads of a warp; rows and columns of the matrices that a warp multiplies (`wmma`).
const WARP: u32 = 32;
const SIDE: u32 = 16;

/// The back end: an NVIDIA device, its stream and the graphs of repeated submissions.
struct Nvidia {
    context: Arc<Context>,
    queue: Arc<Queue>,
    facts: DeviceFacts,
    graphs: Mutex<Graphs>,
    /// The first failure of the device. Every later call returns it.
    failed: Mutex<Option<Error>>,
}

/// The device's stream. Every use of the stream holds the lock of `staging`: while one thread captures a graph, no other may
/// enqueue, wait or free memory.
struct Queue {
    stream: Stream,
    staging: Mutex<Staging>,
}

/// Device memory. It is freed only after all enqueued work has finished.
struct DeviceBuffer {
    memory: DeviceMemory,
    queue: Arc<Queue>,
}

impl Drop for DeviceBuffer {
    fn drop(&mut self) {
        let _exclusive = lock(&self.queue.staging);
        // the next call that uses the device reports a failure
        let _ = self.queue.stream.wait();
    }
}

/// The memory of a buffer.
enum Memory {
    Device(DeviceBuffer),
    /// Page-locked memory of the host, to which the device copies.
    Results(Mutex<HostMemory>),
    /// Memory of the host. Bindings copy from it, and launches pass the copy by value.
    Constants(Mutex<Vec<u8>>),
}

/// A compiled kernel.
struct Kernel {
    function: Function,
}

/// Arguments of a kernel: constants by value, and device addresses of buffers.
struct Bindings {
    constants: Vec<u8>,
    addresses: Vec<u64>,
    /// Keeps the buffers alive.
    _buffers: Vec<Handle>,
}

/// Events before the first dispatch and after each one.
struct Events(Vec<Event>);

/// Data on its way to the device, and timestamps that are read after the next wait.
struct Staging {
    memory: HostMemory,
    used: usize,
    stamps: Vec<PendingStamps>,
}

/// Timestamps of a submission that has not been waited for.
struct PendingStamps {
    clock: Handle,
    stamps: Stamps,
    dispatches: usize,
    to: Handle,
    at: u64,
}

/// Lists the devices of this machine, one line each: `NVIDIA GeForce RTX 4090, cuda, discrete`.
pub(crate) fn list() -> Vec<String> {
    let Ok(driver) = Driver::load(None) else { return Vec::new() };
    let all = 0..driver.count().unwrap_or(0);
    all.filter_map(|i| DeviceInfo::of(&driver, i).ok()).map(|info| line(&info)).collect()
}

/// Whether the driver finds a device with the instructions that kernels use. The software device does not count.
pub(crate) fn has_card() -> bool {
    let Ok(driver) = Driver::load(None) else { return false };
    let mut all = (0..driver.count().unwrap_or(0)).filter_map(|i| DeviceInfo::of(&driver, i).ok());
    all.any(|info| !is_software(&info) && info.capability >= LEAST_CAPABILITY)
}

fn line(info: &DeviceInfo) -> String {
    let kind = match (is_software(info), info.is_integrated) {
        (true, _) => "software",
        (false, true) => "integrated",
        (false, false) => "discrete",
    };
    format!("{}, cuda, {kind}", info.name)
}

fn is_software(info: &DeviceInfo) -> bool {
    info.name.contains("Software")
}

/// Lowest compute capability with the instructions that kernels use (`dp4a`, `wmma`, `shfl.sync`).
const LEAST_CAPABILITY: [i32; 2] = [7, 5];

/// Opens the first device, or the first one whose line contains the wanted name, ignoring case.
///
/// # Errors
/// [`Error::Device`].
pub(crate) fn open(options: &GpuOptions) -> Result<Gpu> {
    let device = |e: cuda::Error| Error::Device { problem: e.to_string() };
    let wanted = options.adapter.as_deref();
    let driver = Driver::load(options.driver.as_deref()).map_err(device)?;
    let all = (0..driver.count().map_err(device)?).map(|i| (i, DeviceInfo::of(&driver, i)));
    let mut infos: Vec<_> = all.filter_map(|(i, info)| Some((i, info.ok()?))).collect();
    // devices that can run kernels come first
    infos.sort_by_key(|(_, info)| info.capability < LEAST_CAPABILITY);
    let lines: Vec<_> = infos.iter().map(|(_, info)| line(info)).collect();
    let found = find_device(&lines, wanted, "card", "NVIDIA's driver finds no card")?;
    let (ordinal, info) = &infos[found];
    if info.capability < LEAST_CAPABILITY {
        let [[major, minor], [of_major, of_minor]] = [info.capability, LEAST_CAPABILITY];
        let problem = format!(
            "{} has compute capability {major}.{minor}, at least {of_major}.{of_minor} is needed: \
             use --executor wgpu",
            info.name
        );
        return Err(Error::Device { problem });
    }
    let context = Context::open(&driver, *ordinal).map_err(device)?;
    let stream = Stream::new(&context).map_err(device)?;
    let memory = HostMemory::new(&context, STAGING_BYTES).map_err(device)?;
    let version = driver.version();
    let matrices = [None, Some(Matrices::new(SIDE, WARP))];
    let facts = DeviceFacts {
        interface: "cuda",
        name: info.name.clone(),
        line: line(info),
        driver: format!("CUDA {}.{}", version / 1000, version % 1000 / 10),
        is_software: is_software(info),
        shares_memory: info.is_integrated,
        bus: info.bus.clone(),
        most_buffer: info.memory,
        // kernels index words with 32 bits
        most_seen: info.memory.min(u64::from(u32::MAX)),
        able: Abilities { f16: true, subgroups: true, matrices, roomy: true },
        stamps: Some(Stamps::Between),
        tick: 1.0,
    };
    let staging = Mutex::new(Staging { memory, used: 0, stamps: Vec::new() });
    let queue = Arc::new(Queue { stream, staging });
    let is_off = std::env::var(GRAPHS_VARIABLE).is_ok_and(|value| value == "off" || value == "0");
    let graphs = Graphs::new(!is_off && !options.plain_submissions);
    let (graphs, failed) = (Mutex::new(graphs), Mutex::default());
    let nvidia = Nvidia { context, queue, facts, graphs, failed };
    Ok(Gpu::new(Box::new(nvidia), options.most_bytes))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // no panic leaves a value half changed
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn memory(buffer: &Buffer) -> &Memory {
    buffer.of()
}

impl Memory {
    fn on_device(&self) -> cuda::Result<&DeviceMemory> {
        match self {
            Memory::Device(buffer) => Ok(&buffer.memory),
            Memory::Results(_) | Memory::Constants(_) => {
                unreachable!("this buffer is in memory of the host")
            }
        }
    }
}

impl Nvidia {
    /// Converts an error of the driver.
    fn error(&self, what: &'static str, bytes: u64, error: &cuda::Error) -> Error {
        if error.is_out_of_memory() {
            return Error::Memory { what, bytes };
        }
        Error::Device { problem: format!("{}: {what}: {error}", self.facts.name) }
    }

    /// Converts an error of enqueued work. Unless memory ran out, the device is unusable afterwards.
    fn lost(&self, what: &'static str, error: &cuda::Error) -> Error {
        let lost = self.error(what, 0, error);
        if !error.is_out_of_memory() {
            lock(&self.failed).get_or_insert_with(|| lost.clone());
        }
        lost
    }

    /// Enqueues writes. The bytes are copied before this returns.
    fn write_all(&self, staging: &mut Staging, writes: &[Write<'_>]) -> cuda::Result<()> {
        for Write { to, at, bytes } in writes {
            if let Memory::Constants(kept) = memory(to) {
                let begin = *at as usize;
                lock(kept)[begin..begin + bytes.len()].copy_from_slice(bytes);
                continue;
            }
            let to = memory(to).on_device()?;
            let mut at = *at;
            for piece in bytes.chunks(STAGING_BYTES) {
                let room = piece.len().next_multiple_of(16);
                if staging.used + room > STAGING_BYTES {
                    self.settle(staging)?;
                }
                staging.memory.write(staging.used, piece);
                let from = (&staging.memory, staging.used as u64);
                self.queue.stream.to_device(from, (to, at), piece.len() as u64)?;
                staging.used += room;
                at += piece.len() as u64;
            }
        }
        Ok(())
    }

    /// Waits until all enqueued work has finished, empties the staging buffer and stores pending timestamps.
    fn settle(&self, staging: &mut Staging) -> cuda::Result<()> {
        self.queue.stream.wait()?;
        staging.used = 0;
        for stamps in std::mem::take(&mut staging.stamps) {
            let events = &part::<Events>(&stamps.clock).0;
            let Memory::Results(to) = part::<Memory>(&stamps.to) else { continue };
            let moments = events[..=stamps.dispatches].iter().map(|event| event.since(&events[0]));
            let moments = moments.collect::<cuda::Result<Vec<_>>>()?;
            let ticks = match stamps.stamps {
                Stamps::Between => moments,
                Stamps::OfPasses => moments.windows(2).flatten().copied().collect(),
            };
            lock(to).write(stamps.at as usize, bytemuck::cast_slice(&ticks));
        }
        Ok(())
    }

    /// Enqueues commands; with `stamping` records an event after each dispatch. Returns the number of dispatches.
    fn enqueue(&self, commands: &[Command<'_>], stamping: Option<&Events>) -> cuda::Result<usize> {
        let mut dispatches = 0;
        if let Some(events) = stamping {
            self.queue.stream.record(&events.0[0])?;
        }
        for command in commands {
            match *command {
                Command::Dispatch { kernel, bindings, groups: grid } => {
                    let Bindings { constants, addresses, .. } = part(bindings);
                    let launch = Launch { grid, constants, addresses };
                    self.queue.stream.launch(&part::<Kernel>(kernel).function, &launch)?;
                    dispatches += 1;
                    if let Some(events) = stamping {
                        self.queue.stream.record(&events.0[dispatches])?;
                    }
                }
                Command::Copy { from, from_at, to, to_at, bytes } => {
                    let from = memory(from).on_device()?;
                    match memory(to) {
                        Memory::Device(to) => {
                            let to = (&to.memory, to_at);
                            self.queue.stream.on_device((from, from_at), to, bytes)?;
                        }
                        Memory::Results(to) => {
                            let to = &*lock(to);
                            self.queue.stream.to_host((from, from_at), (to, to_at), bytes)?;
                        }
                        Memory::Constants(_) => unreachable!("no kernel makes constants"),
                    }
                }
                Command::Clear { buffer, at, bytes } => {
                    self.queue.stream.clear(memory(buffer).on_device()?, at, bytes)?;
                }
            }
        }
        Ok(dispatches)
    }

    /// Runs commands, as a graph if they are repeated. Returns whether an existing graph was replayed.
    fn run(&self, commands: &[Command<'_>]) -> cuda::Result<bool> {
        let mut graphs = lock(&self.graphs);
        let capture = || self.queue.stream.capture(|_| self.enqueue(commands, None).map(|_| ()));
        if let Some((graph, existed)) = graphs.find(commands, capture) {
            self.queue.stream.replay(graph)?;
            return Ok(existed);
        }
        drop(graphs);
        self.enqueue(commands, None)?;
        Ok(false)
    }

    /// Runs commands with timestamps.
    fn run_stamped(
        &self,
        staging: &mut Staging,
        work: &Work<'_>,
        to: &Stamping<'_>,
    ) -> cuda::Result<()> {
        let dispatches = self.enqueue(work.commands, Some(part::<Events>(to.clock)))?;
        if dispatches > 0 {
            let (clock, stamps, at) = (to.clock.clone(), to.stamps, to.at);
            let to = to.to.handle.clone();
            staging.stamps.push(PendingStamps { clock, stamps, dispatches, to, at });
        }
        Ok(())
    }
}

impl Backend for Nvidia {
    fn facts(&self) -> &DeviceFacts {
        &self.facts
    }

    fn check(&self) -> Result<()> {
        lock(&self.failed).clone().map_or(Ok(()), Err)
    }

    fn buffer(&self, what: &'static str, bytes: u64, usage: Usage) -> Result<Handle> {
        self.check()?;
        let _exclusive = lock(&self.queue.staging);
        let made = || -> cuda::Result<Memory> {
            Ok(match usage {
                Usage::Results => {
                    let memory = HostMemory::new(&self.context, bytes as usize)?;
                    Memory::Results(Mutex::new(memory))
                }
                Usage::Constants => Memory::Constants(Mutex::new(vec![0; bytes as usize])),
                Usage::Storage | Usage::Copies => {
                    let memory = DeviceMemory::new(&self.context, bytes)?;
                    self.queue.stream.clear(&memory, 0, bytes)?;
                    Memory::Device(DeviceBuffer { memory, queue: Arc::clone(&self.queue) })
                }
            })
        };
        Ok(Arc::new(made().map_err(|e| self.error(what, bytes, &e))?))
    }

    fn write(&self, what: &'static str, writes: &[Write<'_>]) -> Result<()> {
        self.check()?;
        self.write_all(&mut lock(&self.queue.staging), writes).map_err(|e| self.lost(what, &e))
    }

    fn kernel(&self, shader: &Shader) -> Result<Handle> {
        self.check()?;
        let problem = |e: &dyn std::fmt::Display| Error::Device {
            problem: format!("{}: kernel {}: {e}", self.facts.name, shader.kernel.name),
        };
        let translated = ptx::translate(&shader.text(false)).map_err(|e| problem(&e))?;
        let ptx::PtxKernel { text, workgroup_size: block, n_bindings, constant_bytes, .. } =
            translated;
        let constant_bytes = constant_bytes as usize;
        // the first binding is passed by value
        let addresses = (n_bindings as usize).saturating_sub(1);
        let shape = Shape { constant_bytes, addresses, block };
        let made = || Module::load(&self.context, &text)?.function("main", shape);
        Ok(Arc::new(Kernel { function: made().map_err(|e| problem(&e))? }))
    }

    fn bindings(&self, of: &[(&'static ShaderKernel, Vec<Binding<'_>>)]) -> Result<Vec<Handle>> {
        let made = of.iter().map(|(kernel, bound)| -> cuda::Result<Handle> {
            debug_assert_eq!(bound.len() as u32, 2 + kernel.reads + kernel.writes);
            let (first, others) = bound.split_first().expect("every kernel has constants");
            let Memory::Constants(kept) = memory(first.buffer) else {
                unreachable!("constants come first")
            };
            let (at, bytes) = first.part.unwrap_or((0, first.buffer.size()));
            let constants = lock(kept)[at as usize..(at + bytes) as usize].to_vec();
            let address = |its: &Binding<'_>| {
                let begin = memory(its.buffer).on_device()?.address();
                Ok(begin + its.part.map_or(0, |(at, _)| at))
            };
            let addresses = others.iter().map(address).collect::<cuda::Result<_>>()?;
            let buffers = others.iter().map(|its| its.buffer.handle.clone()).collect();
            Ok(Arc::new(Bindings { constants, addresses, _buffers: buffers }))
        });
        made.collect::<cuda::Result<_>>().map_err(|e| self.error("bindings", 0, &e))
    }

    fn clock(&self, _: Stamps, dispatches: usize) -> Result<Option<Handle>> {
        if dispatches == 0 {
            return Ok(None);
        }
        // one event more than dispatches, for both kinds of timestamps
        let made: cuda::Result<Vec<_>> =
            (0..=dispatches).map(|_| Event::new(&self.context)).collect();
        let events = made.map_err(|e| self.error("times of a step", 0, &e))?;
        Ok(Some(Arc::new(Events(events))))
    }

    fn submit(&self, work: &Work<'_>) -> Result<Ticket> {
        self.check()?;
        let begun = Instant::now();
        let mut staging = lock(&self.queue.staging);
        let mut enqueue = || -> cuda::Result<bool> {
            self.write_all(&mut staging, work.writes)?;
            match &work.stamping {
                Some(stamping) => self.run_stamped(&mut staging, work, stamping).map(|()| false),
                None => self.run(work.commands),
            }
        };
        let replayed = enqueue().map_err(|e| self.lost(work.what, &e))?;
        let recording = if replayed { Duration::ZERO } else { begun.elapsed() };
        Ok(Ticket { handle: Arc::new(()), recording, replayed })
    }

    fn wait(&self, _: &Ticket) -> Result<()> {
        self.settle(&mut lock(&self.queue.staging)).map_err(|e| self.lost("a submission", &e))
    }

    fn read(&self, ticket: &Ticket, from: &Buffer, bytes: u64) -> Result<Vec<f32>> {
        self.wait(ticket)?;
        let mut found = vec![0.0; bytes as usize / 4];
        match memory(from) {
            Memory::Results(from) => lock(from).read(0, bytemuck::cast_slice_mut(&mut found)),
            Memory::Device(_) | Memory::Constants(_) => {
                unreachable!("the host reads buffers of results alone")
            }
        }
        Ok(found)
    }

    fn allocated(&self) -> Option<u64> {
        let [free, all] = self.context.memory().ok()?;
        Some(all - free)
    }
}
