//! The back end by wgpu: an adapter of Vulkan, Metal or Direct3D 12, its device and queue, and what is made on them.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};

use program::{Error, Result};

use crate::backend::{
    Backend, Binding, Buffer, Command, DeviceFacts, Handle, Stamping, Ticket, Usage, Work, Write,
    part,
};
use crate::device::{Gpu, find_device};
use crate::experimental;
use crate::kernels::{Abilities, Matrices, Shader, ShaderKernel};
use crate::timing::Stamps;

/// Sizes of matrices that there is a kernel for, the larger first.
const SIDES: [u32; 2] = [16, 8];
/// What must be there: kernels use so many storage buffers at once, and so much memory of a workgroup.
const STORAGE_BUFFERS: u32 = 8;
const WORKGROUP_BYTES: u32 = 16 << 10;
/// So much memory of a workgroup makes larger tiles possible.
const ROOMY_BYTES: u32 = 32 << 10;

/// A device of wgpu's.
struct WebGpu {
    device: wgpu::Device,
    queue: wgpu::Queue,
    facts: DeviceFacts,
    /// Layouts of bindings, by buffers read and written.
    layouts: Mutex<HashMap<(u32, u32), Layouts>>,
    /// What failed outside all scopes, such as a lost device.
    failed: Arc<Mutex<Option<String>>>,
}

#[derive(Clone)]
struct Layouts {
    bindings: wgpu::BindGroupLayout,
    pipeline: wgpu::PipelineLayout,
}

/// Where the timestamps of a submission are written.
struct Queries {
    set: wgpu::QuerySet,
    /// From where they are copied to what is read back.
    resolved: wgpu::Buffer,
}

/// One line of a list of adapters: `llvmpipe (LLVM 15.0.6, 256 bits), vulkan, software`.
pub(crate) fn describe(info: &wgpu::AdapterInfo) -> String {
    let kind = match info.device_type {
        wgpu::DeviceType::DiscreteGpu => "discrete",
        wgpu::DeviceType::IntegratedGpu => "integrated",
        wgpu::DeviceType::VirtualGpu => "virtual",
        wgpu::DeviceType::Cpu => "software",
        wgpu::DeviceType::Other => "other",
    };
    format!("{}, {}, {kind}", info.name, info.backend)
}

/// The adapters of this machine, the most promising first: cards, what is built in, software.
fn adapters() -> Vec<wgpu::Adapter> {
    let instance = wgpu::Instance::new(wgpu::InstanceDescriptor::new_without_display_handle());
    let mut found = pollster::block_on(instance.enumerate_adapters(wgpu::Backends::PRIMARY));
    found.retain(|adapter| {
        let limits = adapter.limits();
        limits.max_storage_buffers_per_shader_stage >= STORAGE_BUFFERS
            && limits.max_compute_workgroup_storage_size >= WORKGROUP_BYTES
    });
    found.sort_by_key(|adapter| match adapter.get_info().device_type {
        wgpu::DeviceType::DiscreteGpu => 0,
        wgpu::DeviceType::IntegratedGpu => 1,
        wgpu::DeviceType::VirtualGpu | wgpu::DeviceType::Other => 2,
        wgpu::DeviceType::Cpu => 3,
    });
    found
}

const MATRICES: wgpu::Features = wgpu::Features::EXPERIMENTAL_COOPERATIVE_MATRIX;

/// Whether this machine has a GPU that no processor plays.
pub(crate) fn has_card() -> bool {
    // without such a device nobody is asked: drivers that play one may write to the terminal
    let may_have = !cfg!(target_os = "linux") || CARDS.iter().any(|path| Path::new(path).exists());
    let is_card = |adapter: &wgpu::Adapter| adapter.get_info().device_type != wgpu::DeviceType::Cpu;
    may_have && adapters().iter().any(is_card)
}

/// Where Linux has devices of cards: those with a driver of its own, NVIDIA's, and those of Windows around it.
const CARDS: [&str; 3] = ["/dev/dri", "/dev/nvidiactl", "/dev/dxg"];

/// What kernels may use of an adapter, and the features that have to be asked for.
fn abilities(adapter: &wgpu::Adapter) -> (wgpu::Features, Abilities) {
    let wanted = wgpu::Features::SHADER_F16 | wgpu::Features::SUBGROUP | MATRICES;
    let more = adapter.features() & wanted;
    let has = match more.contains(MATRICES) {
        true => adapter.cooperative_matrix_properties(),
        false => Vec::new(),
    };
    let info = adapter.get_info();
    // wgpu says 64 of Metal, whose adapters with matrices have 32
    let lanes = if info.backend == wgpu::Backend::Metal { 32 } else { info.subgroup_max_size };
    let of = |numbers| matrices(&has, numbers, lanes);
    let able = Abilities {
        f16: more.contains(wgpu::Features::SHADER_F16),
        subgroups: more.contains(wgpu::Features::SUBGROUP),
        matrices: [of(wgpu::CooperativeScalarType::F32), of(wgpu::CooperativeScalarType::F16)],
        roomy: adapter.limits().max_compute_workgroup_storage_size >= ROOMY_BYTES,
    };
    // what no kernel uses is not asked for
    let unused = if able.matrices == [None; 2] { MATRICES } else { wgpu::Features::empty() };
    (more - unused, able)
}

/// What this machine has, a line each.
pub(crate) fn list() -> Vec<String> {
    adapters().iter().map(|adapter| describe(&adapter.get_info())).collect()
}

/// What an adapter with these features can time.
fn stamps_of(features: wgpu::Features) -> Option<Stamps> {
    [Stamps::Between, Stamps::OfPasses]
        .into_iter()
        .find(|stamps| features.contains(stamp_features(*stamps)))
}

/// What a device must be opened with for that.
fn stamp_features(stamps: Stamps) -> wgpu::Features {
    match stamps {
        Stamps::Between => {
            wgpu::Features::TIMESTAMP_QUERY
                | wgpu::Features::TIMESTAMP_QUERY_INSIDE_ENCODERS
                | wgpu::Features::TIMESTAMP_QUERY_INSIDE_PASSES
        }
        Stamps::OfPasses => wgpu::Features::TIMESTAMP_QUERY,
    }
}

/// Matrices of numbers of such a type among what a device has whose subgroups have at most so many lanes.
fn matrices(
    has: &[wgpu::CooperativeMatrixProperties],
    numbers: wgpu::CooperativeScalarType,
    lanes: u32,
) -> Option<Matrices> {
    let is = |side: u32| {
        move |its: &wgpu::CooperativeMatrixProperties| {
            (its.m_size, its.n_size, its.k_size) == (side, side, side)
                && its.ab_type == numbers
                && its.cr_type == wgpu::CooperativeScalarType::F32
                && !its.saturating_accumulation
        }
    };
    let side = SIDES.into_iter().find(|side| has.iter().any(is(*side)))?;
    Some(Matrices::new(side, lanes))
}

/// Open the first adapter, or the first one whose name has `wanted` in it, whatever the case.
/// Buffers that kernels see take `most_bytes`, or less if that is all the device allows.
///
/// # Errors
/// [`Error::Device`].
pub(crate) fn open(wanted: Option<&str>, most_bytes: Option<u64>) -> Result<Gpu> {
    let all = adapters();
    let names: Vec<_> = all.iter().map(|adapter| describe(&adapter.get_info())).collect();
    let none = "no adapter of Vulkan, Metal or Direct3D 12 was found";
    let found = find_device(&names, wanted, "adapter", none)?;
    let adapter = &all[found];
    let limits = adapter.limits();
    let stamps = stamps_of(adapter.features());
    let (more, able) = abilities(adapter);
    let open = |more: wgpu::Features| {
        let features = stamps.map_or(wgpu::Features::empty(), stamp_features);
        let descriptor = wgpu::DeviceDescriptor {
            label: Some("rooflight"),
            required_features: more | features,
            required_limits: limits.clone(),
            memory_hints: wgpu::MemoryHints::Performance,
            experimental_features: experimental::of(more),
            ..wgpu::DeviceDescriptor::default()
        };
        pollster::block_on(adapter.request_device(&descriptor))
    };
    // a driver that fails at what it says it has is one without it
    let (opened, able) = match open(more) {
        Err(_) if more.contains(MATRICES) => {
            (open(more - MATRICES), Abilities { matrices: [None; 2], ..able })
        }
        opened => (opened, able),
    };
    let (device, queue) = opened
        .map_err(|e| Error::Device { problem: format!("{} does not open: {e}", names[found]) })?;
    let failed = Arc::new(Mutex::new(None));
    let told = Arc::clone(&failed);
    device.on_uncaptured_error(Arc::new(move |e: wgpu::Error| tell(&told, one_line(&e))));
    let told = Arc::clone(&failed);
    device.set_device_lost_callback(move |_, why| tell(&told, format!("it was lost: {why}")));
    let info = adapter.get_info();
    let shares =
        matches!(info.device_type, wgpu::DeviceType::Cpu | wgpu::DeviceType::IntegratedGpu);
    let facts = DeviceFacts {
        interface: "wgpu",
        line: describe(&info),
        driver: format!("{} {}", info.driver, info.driver_info).trim().to_owned(),
        is_software: info.device_type == wgpu::DeviceType::Cpu,
        shares_memory: shares,
        bus: Some(info.device_pci_bus_id.clone()).filter(|bus| !bus.is_empty()),
        most_buffer: limits.max_buffer_size,
        // Metal's shaders count bytes of a buffer in 32 bits
        most_seen: (limits.max_storage_buffer_binding_size.min(limits.max_buffer_size))
            .min(u64::from(u32::MAX)),
        able,
        stamps,
        tick: queue.get_timestamp_period(),
        name: info.name,
    };
    let layouts = Mutex::default();
    Ok(Gpu::new(Box::new(WebGpu { device, queue, facts, layouts, failed }), most_bytes))
}

/// A kernel's bindings in order: its constants, the step, what it reads, what it writes.
fn entries(reads: u32, writes: u32) -> impl Iterator<Item = (u32, wgpu::BufferBindingType)> {
    let read = |i| (i, wgpu::BufferBindingType::Storage { read_only: true });
    let written = |i| (i, wgpu::BufferBindingType::Storage { read_only: false });
    let first = 2 + reads;
    std::iter::once((0, wgpu::BufferBindingType::Uniform))
        .chain((1..first).map(read))
        .chain((first..first + writes).map(written))
}

impl WebGpu {
    fn error(&self, problem: &str) -> Error {
        Error::Device { problem: format!("{}: {problem}", self.facts.name) }
    }

    /// Run `f`; what the device finds wrong in it is an error, and so is what has failed before.
    fn checked<T>(&self, what: &'static str, bytes: u64, f: impl FnOnce() -> T) -> Result<T> {
        self.check()?;
        let scopes = [
            wgpu::ErrorFilter::Validation,
            wgpu::ErrorFilter::Internal,
            wgpu::ErrorFilter::OutOfMemory,
        ];
        let scopes = scopes.map(|filter| self.device.push_error_scope(filter));
        let made = f();
        let mut found = None;
        // the scope that was opened last is closed first
        for scope in scopes.into_iter().rev() {
            found = found.or(pollster::block_on(scope.pop()));
        }
        match found {
            None => Ok(made),
            Some(wgpu::Error::OutOfMemory { .. }) => Err(Error::Memory { what, bytes }),
            Some(e) => Err(self.error(&one_line(&e))),
        }
    }

    /// The layouts of a kernel's bindings.
    fn layouts(&self, kernel: &'static ShaderKernel) -> Layouts {
        // every change is whole
        let mut layouts = self.layouts.lock().unwrap_or_else(PoisonError::into_inner);
        let of = (kernel.reads, kernel.writes);
        let made = layouts.entry(of).or_insert_with(|| {
            let entries: Vec<_> = entries(kernel.reads, kernel.writes)
                .map(|(binding, ty)| wgpu::BindGroupLayoutEntry {
                    binding,
                    visibility: wgpu::ShaderStages::COMPUTE,
                    ty: wgpu::BindingType::Buffer {
                        ty,
                        has_dynamic_offset: false,
                        min_binding_size: None,
                    },
                    count: None,
                })
                .collect();
            let label = Some(kernel.name);
            let bindings = self.device.create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor {
                label,
                entries: &entries,
            });
            let pipeline = self.device.create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
                label,
                bind_group_layouts: &[Some(&bindings)],
                immediate_size: 0,
            });
            Layouts { bindings, pipeline }
        });
        made.clone()
    }

    fn encode(&self, work: &Work<'_>) -> wgpu::CommandBuffer {
        let mut encoder =
            self.device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        let of_passes = work.stamping.filter(|stamping| stamping.stamps == Stamps::OfPasses);
        let between = work.stamping.filter(|stamping| stamping.stamps == Stamps::Between);
        let is_dispatch = |command: &Command<'_>| matches!(command, Command::Dispatch { .. });
        let mut n = 0;
        for same in work.commands.chunk_by(|a, b| is_dispatch(a) && is_dispatch(b)) {
            if !is_dispatch(&same[0]) {
                copy(&mut encoder, &same[0]);
            } else if let Some(stamping) = of_passes {
                for command in same {
                    let timestamp_writes = Some(around(&stamping, n));
                    let alone = wgpu::ComputePassDescriptor { label: None, timestamp_writes };
                    dispatch(&mut encoder.begin_compute_pass(&alone), command);
                    n += 1;
                }
            } else {
                let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default());
                let mark = |pass: &mut wgpu::ComputePass<'_>, n: usize| {
                    if let Some(stamping) = &between {
                        pass.write_timestamp(&part::<Queries>(stamping.clock).set, n as u32);
                    }
                };
                if n == 0 {
                    mark(&mut pass, 0);
                }
                for command in same {
                    dispatch(&mut pass, command);
                    n += 1;
                    mark(&mut pass, n);
                }
            }
        }
        if let Some(stamping) = work.stamping.filter(|_| n > 0) {
            let queries = part::<Queries>(stamping.clock);
            let count = stamping.stamps.count(n);
            encoder.resolve_query_set(&queries.set, 0..count as u32, &queries.resolved, 0);
            let to: &wgpu::Buffer = stamping.to.of();
            let bytes = 8 * count as u64;
            encoder.copy_buffer_to_buffer(&queries.resolved, 0, to, stamping.at, bytes);
        }
        encoder.finish()
    }

    fn write_all(&self, writes: &[Write<'_>]) {
        for Write { to, at, bytes } in writes {
            self.queue.write_buffer(to.of(), *at, bytes);
        }
    }
}

/// What is written around a pass that has dispatch `n` alone.
fn around<'a>(stamping: &Stamping<'a>, n: usize) -> wgpu::ComputePassTimestampWrites<'a> {
    wgpu::ComputePassTimestampWrites {
        query_set: &part::<Queries>(stamping.clock).set,
        beginning_of_pass_write_index: Some(2 * n as u32),
        end_of_pass_write_index: Some(2 * n as u32 + 1),
    }
}

fn dispatch(pass: &mut wgpu::ComputePass<'_>, command: &Command<'_>) {
    if let Command::Dispatch { kernel, bindings, groups: [x, y, z] } = *command {
        pass.set_pipeline(part::<wgpu::ComputePipeline>(kernel));
        pass.set_bind_group(0, part::<wgpu::BindGroup>(bindings), &[]);
        pass.dispatch_workgroups(x, y, z);
    }
}

fn copy(encoder: &mut wgpu::CommandEncoder, command: &Command<'_>) {
    match *command {
        Command::Copy { from, from_at, to, to_at, bytes } => {
            let (from, to): (&wgpu::Buffer, &wgpu::Buffer) = (from.of(), to.of());
            encoder.copy_buffer_to_buffer(from, from_at, to, to_at, bytes);
        }
        Command::Clear { buffer, at, bytes } => encoder.clear_buffer(buffer.of(), at, Some(bytes)),
        Command::Dispatch { .. } => {}
    }
}

fn entry<'a>((i, its): (usize, &Binding<'a>)) -> wgpu::BindGroupEntry<'a> {
    let (offset, size) = its.part.unwrap_or((0, its.buffer.size()));
    let size = wgpu::BufferSize::new(size);
    let resource = wgpu::BufferBinding { buffer: its.buffer.of(), offset, size };
    wgpu::BindGroupEntry { binding: i as u32, resource: wgpu::BindingResource::Buffer(resource) }
}

impl Backend for WebGpu {
    fn facts(&self) -> &DeviceFacts {
        &self.facts
    }

    fn check(&self) -> Result<()> {
        match &*self.failed.lock().unwrap_or_else(PoisonError::into_inner) {
            None => Ok(()),
            Some(problem) => Err(self.error(problem)),
        }
    }

    fn buffer(&self, what: &'static str, bytes: u64, usage: Usage) -> Result<Handle> {
        let copied = wgpu::BufferUsages::COPY_SRC | wgpu::BufferUsages::COPY_DST;
        let usage = match usage {
            Usage::Constants => wgpu::BufferUsages::UNIFORM | wgpu::BufferUsages::COPY_DST,
            Usage::Storage => wgpu::BufferUsages::STORAGE | copied,
            Usage::Copies => copied,
            Usage::Results => wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST,
        };
        let descriptor = wgpu::BufferDescriptor {
            label: Some(what),
            size: bytes,
            usage,
            mapped_at_creation: false,
        };
        let made = self.checked(what, bytes, || self.device.create_buffer(&descriptor))?;
        Ok(Arc::new(made))
    }

    fn write(&self, what: &'static str, writes: &[Write<'_>]) -> Result<()> {
        let bytes: usize = writes.iter().map(|write| write.bytes.len()).sum();
        self.checked(what, bytes as u64, || {
            self.write_all(writes);
            // much that is staged goes on its way, and its memory is free for the next
            if bytes > MUCH_STAGED {
                self.queue.submit([]);
            }
        })
    }

    fn kernel(&self, shader: &Shader) -> Result<Handle> {
        let layout = self.layouts(shader.kernel).pipeline;
        let label = Some(shader.kernel.name);
        let made = self.checked("a shader", 0, || {
            let module = self.device.create_shader_module(wgpu::ShaderModuleDescriptor {
                label,
                source: wgpu::ShaderSource::Wgsl(shader.text(true).into()),
            });
            self.device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
                label,
                layout: Some(&layout),
                module: &module,
                entry_point: Some("main"),
                // workgroup memory is written before it is read
                compilation_options: wgpu::PipelineCompilationOptions {
                    zero_initialize_workgroup_memory: false,
                    ..wgpu::PipelineCompilationOptions::default()
                },
                cache: None,
            })
        })?;
        Ok(Arc::new(made))
    }

    fn bindings(&self, of: &[(&'static ShaderKernel, Vec<Binding<'_>>)]) -> Result<Vec<Handle>> {
        self.checked("bindings", 0, || {
            let made = of.iter().map(|(kernel, bound)| {
                let entries: Vec<_> = bound.iter().enumerate().map(entry).collect();
                let group = self.device.create_bind_group(&wgpu::BindGroupDescriptor {
                    label: Some(kernel.name),
                    layout: &self.layouts(kernel).bindings,
                    entries: &entries,
                });
                Arc::new(group) as Handle
            });
            made.collect()
        })
    }

    fn clock(&self, stamps: Stamps, dispatches: usize) -> Result<Option<Handle>> {
        let count = stamps.count(dispatches) as u32;
        if count == 0 || count > wgpu::QUERY_SET_MAX_QUERIES {
            return Ok(None);
        }
        let size = (8 * u64::from(count)).next_multiple_of(16);
        let made = self.checked("timestamps", size, || {
            let resolved = self.device.create_buffer(&wgpu::BufferDescriptor {
                label: Some("times of a step"),
                size,
                usage: wgpu::BufferUsages::QUERY_RESOLVE | wgpu::BufferUsages::COPY_SRC,
                mapped_at_creation: false,
            });
            let set = self.device.create_query_set(&wgpu::QuerySetDescriptor {
                label: Some("times of a step"),
                ty: wgpu::QueryType::Timestamp,
                count,
            });
            Queries { set, resolved }
        })?;
        Ok(Some(Arc::new(made)))
    }

    fn submit(&self, work: &Work<'_>) -> Result<Ticket> {
        let begun = Instant::now();
        let mut recording = Duration::ZERO;
        let submission = self.checked(work.what, 0, || {
            let recorded = self.encode(work);
            recording = begun.elapsed();
            self.write_all(work.writes);
            self.queue.submit([recorded])
        })?;
        Ok(Ticket { handle: Arc::new(submission), recording, replayed: false })
    }

    fn wait(&self, ticket: &Ticket) -> Result<()> {
        let submission = part::<wgpu::SubmissionIndex>(&ticket.handle).clone();
        let until = wgpu::PollType::Wait { submission_index: Some(submission), timeout: None };
        let waited = self.device.poll(until);
        waited.map_err(|e| self.error(&format!("a submission did not end: {e}")))?;
        self.check()
    }

    fn read(&self, ticket: &Ticket, from: &Buffer, bytes: u64) -> Result<Vec<f32>> {
        let failed = |e: &dyn std::fmt::Display| self.error(&format!("a step did not end: {e}"));
        let buffer: &wgpu::Buffer = from.of();
        let slice = buffer.slice(..bytes);
        let (sender, receiver) = mpsc::channel();
        slice.map_async(wgpu::MapMode::Read, move |mapped| {
            // nobody listens any more if waiting failed
            let _ = sender.send(mapped);
        });
        // another model's thread may be the one that calls back, and still be about to
        let mapped = loop {
            self.wait(ticket)?;
            match receiver.recv_timeout(Duration::from_millis(10)) {
                Ok(mapped) => break mapped,
                Err(mpsc::RecvTimeoutError::Timeout) => {}
                Err(e) => return Err(failed(&e)),
            }
        };
        mapped.map_err(|e| failed(&e))?;
        let view = slice.get_mapped_range().map_err(|e| failed(&e))?;
        let found = bytemuck::cast_slice(&view).to_vec();
        drop(view);
        buffer.unmap();
        Ok(found)
    }

    fn allocated(&self) -> Option<u64> {
        Some(self.device.generate_allocator_report()?.total_allocated_bytes)
    }
}

/// Bytes of which that is so.
const MUCH_STAGED: usize = 4 << 20;

fn tell(failed: &Mutex<Option<String>>, problem: String) {
    failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(problem);
}

/// An error of the device on one line.
fn one_line(error: &wgpu::Error) -> String {
    let text = error.to_string();
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use wgpu::{CooperativeMatrixProperties, CooperativeScalarType as Scalar};

    use super::*;

    #[test]
    fn what_an_adapter_can_time() {
        let all = stamp_features(Stamps::Between);
        assert_eq!(stamps_of(all), Some(Stamps::Between));
        assert_eq!(stamps_of(wgpu::Features::TIMESTAMP_QUERY), Some(Stamps::OfPasses));
        assert_eq!(stamps_of(all - wgpu::Features::TIMESTAMP_QUERY), None);
    }

    #[test]
    fn matrices_are_those_that_there_is_a_kernel_for() {
        let of = |size: [u32; 3], ab_type, cr_type| CooperativeMatrixProperties {
            m_size: size[0],
            n_size: size[1],
            k_size: size[2],
            ab_type,
            cr_type,
            saturating_accumulation: false,
        };
        // what a driver of NVIDIA's tells, in part, and Metal
        let nvidia = [
            of([16, 8, 16], Scalar::F16, Scalar::F32),
            of([16, 16, 16], Scalar::F16, Scalar::F16),
            of([16, 16, 16], Scalar::F16, Scalar::F32),
        ];
        let metal = [
            of([8; 3], Scalar::F32, Scalar::F32),
            of([8; 3], Scalar::F16, Scalar::F16),
            of([8; 3], Scalar::F16, Scalar::F32),
        ];
        let side = |has: &[_], ty| matrices(has, ty, 32).map(|its| its.side);
        assert_eq!(side(&nvidia, Scalar::F16), Some(16));
        assert_eq!(side(&nvidia, Scalar::F32), None);
        assert_eq!(side(&nvidia[..2], Scalar::F16), None);
        assert_eq!((side(&metal, Scalar::F16), side(&metal, Scalar::F32)), (Some(8), Some(8)));
    }
}
