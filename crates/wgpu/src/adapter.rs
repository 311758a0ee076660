//! [`Gpu`]: an adapter, its device and queue, and the pipelines made on it.

use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use program::{Error, Result};

use crate::experimental;
use crate::kernels::{Abilities, Matrices, Shader, ShaderKernel, Shapes};
use crate::timing::Stamps;

/// What must be there: kernels use so many storage buffers at once, and so much memory of a workgroup.
const STORAGE_BUFFERS: u32 = 8;
const WORKGROUP_BYTES: u32 = 16 << 10;

/// A device, ready for use. Shared by the models that are loaded on it.
pub(crate) struct Gpu {
    pub(crate) device: wgpu::Device,
    pub(crate) queue: wgpu::Queue,
    info: wgpu::AdapterInfo,
    limits: BufferLimits,
    stamps: Option<Stamps>,
    able: Abilities,
    pipelines: Mutex<Pipelines>,
    /// Of the models that are loaded from now on.
    shapes: Mutex<Shapes>,
    /// What failed outside all scopes, such as a lost device.
    failed: Arc<Mutex<Option<String>>>,
    pub(crate) counts: DeviceCounters,
}

/// Most bytes of a buffer, and of one that kernels see.
struct BufferLimits {
    buffer: u64,
    seen: u64,
}

/// What went to the device since it was opened.
#[derive(Debug, Default)]
pub(crate) struct DeviceCounters {
    pub(crate) submissions: AtomicU64,
    pub(crate) readbacks: AtomicU64,
    pub(crate) bytes_read: AtomicU64,
    pub(crate) dispatches: AtomicU64,
    /// Nanoseconds.
    pub(crate) encoding: AtomicU64,
}

impl DeviceCounters {
    pub(crate) fn add(counter: &AtomicU64, n: u64) {
        counter.fetch_add(n, Ordering::Relaxed);
    }
}

#[derive(Default)]
struct Pipelines {
    /// By buffers read and written.
    layouts: HashMap<(u32, u32), (wgpu::BindGroupLayout, wgpu::PipelineLayout)>,
    made: HashMap<Shader, wgpu::ComputePipeline>,
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
    let of = |numbers| Matrices::of(&has, numbers, lanes);
    let able = Abilities {
        f16: more.contains(wgpu::Features::SHADER_F16),
        subgroups: more.contains(wgpu::Features::SUBGROUP),
        matrices: [of(wgpu::CooperativeScalarType::F32), of(wgpu::CooperativeScalarType::F16)],
    };
    // what no kernel uses is not asked for
    let unused = if able.matrices == [None; 2] { MATRICES } else { wgpu::Features::empty() };
    (more - unused, able)
}

/// What this machine has, a line each.
pub(crate) fn list() -> Vec<String> {
    adapters().iter().map(|adapter| describe(&adapter.get_info())).collect()
}

impl Gpu {
    /// Open the first adapter, or the first one whose name has `wanted` in it, whatever the case.
    /// Buffers that kernels see take `most_bytes`, or less if that is all the device allows.
    ///
    /// # Errors
    /// [`Error::Device`].
    pub(crate) fn open(wanted: Option<&str>, most_bytes: Option<u64>) -> Result<Gpu> {
        let all = adapters();
        let names: Vec<_> = all.iter().map(|adapter| describe(&adapter.get_info())).collect();
        let fits = |name: &String| {
            wanted.is_none_or(|wanted| name.to_lowercase().contains(&wanted.to_lowercase()))
        };
        let Some(found) = names.iter().position(fits) else {
            let problem = match wanted {
                Some(wanted) if !names.is_empty() => {
                    format!("no adapter is called `{wanted}`; there are: {}", names.join("; "))
                }
                _ => "no adapter of Vulkan, Metal or Direct3D 12 was found".into(),
            };
            return Err(Error::Device { problem });
        };
        let adapter = &all[found];
        let limits = adapter.limits();
        let stamps = Stamps::of(adapter.features());
        let (more, able) = abilities(adapter);
        let open = |more: wgpu::Features| {
            let features = stamps.map_or(wgpu::Features::empty(), Stamps::features);
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
        let (device, queue) = opened.map_err(|e| Error::Device {
            problem: format!("{} does not open: {e}", names[found]),
        })?;
        let failed = Arc::new(Mutex::new(None));
        let told = Arc::clone(&failed);
        device.on_uncaptured_error(Arc::new(move |e: wgpu::Error| tell(&told, one_line(&e))));
        let told = Arc::clone(&failed);
        device.set_device_lost_callback(move |_, why| tell(&told, format!("it was lost: {why}")));
        let info = adapter.get_info();
        let buffer = limits.max_buffer_size;
        // Metal's shaders count bytes of a buffer in 32 bits
        let seen = limits.max_storage_buffer_binding_size.min(buffer).min(u64::from(u32::MAX));
        let limits = BufferLimits { buffer, seen: seen.min(most_bytes.unwrap_or(u64::MAX)) };
        let (pipelines, counts) = (Mutex::default(), DeviceCounters::default());
        let shapes = Mutex::default();
        Ok(Gpu { device, queue, info, limits, stamps, able, pipelines, shapes, failed, counts })
    }

    /// One line for people.
    pub(crate) fn describe(&self) -> String {
        describe(&self.info)
    }

    /// The driver and its version.
    pub(crate) fn driver(&self) -> String {
        format!("{} {}", self.info.driver, self.info.driver_info).trim().to_owned()
    }

    /// Whether the processor plays it.
    pub(crate) fn is_software(&self) -> bool {
        self.info.device_type == wgpu::DeviceType::Cpu
    }

    /// Whether its memory is the machine's own.
    pub(crate) fn shares_memory(&self) -> bool {
        matches!(self.info.device_type, wgpu::DeviceType::Cpu | wgpu::DeviceType::IntegratedGpu)
    }

    /// Where it is on the machine's bus, if the driver tells.
    pub(crate) fn bus(&self) -> Option<String> {
        Some(self.info.device_pci_bus_id.clone()).filter(|bus| !bus.is_empty())
    }

    /// Where it writes timestamps, if it does.
    pub(crate) fn stamps(&self) -> Option<Stamps> {
        self.stamps
    }

    /// What its kernels may use.
    pub(crate) fn able(&self) -> Abilities {
        self.able
    }

    /// As if these were what it has.
    #[cfg(test)]
    pub(crate) fn set_able(&mut self, able: Abilities) {
        self.able = able;
    }

    /// As if it could write no others.
    #[cfg(test)]
    pub(crate) fn limit_stamps(&mut self, stamps: Option<Stamps>) {
        self.stamps = stamps;
    }

    /// As if no buffer had more than so many bytes.
    #[cfg(test)]
    pub(crate) fn limit_buffers(&mut self, bytes: u64) {
        self.limits.buffer = bytes;
    }

    /// Most bytes of a buffer that a shader sees.
    pub(crate) fn most_bytes(&self) -> u64 {
        // a multiple of all that is kept in a buffer
        self.limits.seen / 1024 * 1024
    }

    /// Run `f`; what the device finds wrong in it is an error, and so is what has failed before.
    pub(crate) fn checked<T>(
        &self,
        what: &'static str,
        bytes: u64,
        f: impl FnOnce() -> T,
    ) -> Result<T> {
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

    /// The shapes of products.
    pub(crate) fn shapes(&self) -> Shapes {
        self.shapes.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Let go of the pipelines that no model has.
    pub(crate) fn forget_pipelines(&self) {
        self.pipelines().made.clear();
    }

    /// Have models that are loaded from now on multiply in these shapes.
    pub(crate) fn set_shapes(&self, shapes: Shapes) {
        *self.shapes.lock().unwrap_or_else(PoisonError::into_inner) = shapes;
    }

    /// What has failed outside all scopes.
    pub(crate) fn check(&self) -> Result<()> {
        match &*self.failed.lock().unwrap_or_else(PoisonError::into_inner) {
            None => Ok(()),
            Some(problem) => Err(self.error(problem)),
        }
    }

    pub(crate) fn error(&self, problem: &str) -> Error {
        Error::Device { problem: format!("{}: {problem}", self.info.name) }
    }

    /// Run what `encode` writes down, and wait until it is done: memory that it alone used is free then.
    pub(crate) fn submitted(
        &self,
        what: &'static str,
        encode: impl FnOnce(&mut wgpu::CommandEncoder),
    ) -> Result<()> {
        let submission = self.checked(what, 0, || {
            let mut encoder =
                self.device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
            encode(&mut encoder);
            self.queue.submit([encoder.finish()])
        })?;
        let until = wgpu::PollType::Wait { submission_index: Some(submission), timeout: None };
        self.device.poll(until).map_err(|e| self.error(&format!("{what}: {e}")))?;
        self.check()
    }

    /// A buffer of at least `bytes`, zeros.
    pub(crate) fn buffer(
        &self,
        what: &'static str,
        bytes: u64,
        usage: wgpu::BufferUsages,
    ) -> Result<wgpu::Buffer> {
        let size = bytes.max(16).next_multiple_of(16);
        if size > self.limits.buffer {
            return Err(Error::Memory { what, bytes });
        }
        let descriptor =
            wgpu::BufferDescriptor { label: Some(what), size, usage, mapped_at_creation: false };
        self.checked(what, bytes, || self.device.create_buffer(&descriptor))
    }

    /// A buffer for shaders to read with these words in it.
    pub(crate) fn upload(&self, what: &'static str, words: &[u32]) -> Result<wgpu::Buffer> {
        let usage = wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_DST;
        let buffer = self.buffer(what, 4 * words.len() as u64, usage)?;
        // in pieces: each is copied once more on its way
        for (i, piece) in words.chunks(4 << 20).enumerate() {
            let at = (i * (16 << 20)) as u64;
            let bytes = bytemuck::cast_slice(piece);
            self.checked(what, bytes.len() as u64, || {
                self.queue.write_buffer(&buffer, at, bytes);
                if words.len() > 4 << 20 {
                    self.queue.submit([]);
                }
            })?;
        }
        Ok(buffer)
    }

    /// The layout of a kernel's bindings.
    pub(crate) fn layout(&self, kernel: &'static ShaderKernel) -> wgpu::BindGroupLayout {
        let mut pipelines = self.pipelines();
        self.layouts(&mut pipelines, kernel).0.clone()
    }

    fn layouts<'a>(
        &self,
        pipelines: &'a mut Pipelines,
        kernel: &'static ShaderKernel,
    ) -> &'a (wgpu::BindGroupLayout, wgpu::PipelineLayout) {
        pipelines.layouts.entry((kernel.reads, kernel.writes)).or_insert_with(|| {
            let entries: Vec<_> = kernel
                .bindings()
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
            let layout = self.device.create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
                label,
                bind_group_layouts: &[Some(&bindings)],
                immediate_size: 0,
            });
            (bindings, layout)
        })
    }

    /// The pipeline of a shader, made when it is first asked for.
    pub(crate) fn pipeline(&self, shader: &Shader) -> Result<wgpu::ComputePipeline> {
        let mut pipelines = self.pipelines();
        if let Some(made) = pipelines.made.get(shader) {
            return Ok(made.clone());
        }
        let layout = self.layouts(&mut pipelines, shader.kernel).1.clone();
        let label = Some(shader.kernel.name);
        let made = self.checked("a shader", 0, || {
            let module = self.device.create_shader_module(wgpu::ShaderModuleDescriptor {
                label,
                source: wgpu::ShaderSource::Wgsl(shader.text().into()),
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
        pipelines.made.insert(shader.clone(), made.clone());
        Ok(made)
    }

    fn pipelines(&self) -> std::sync::MutexGuard<'_, Pipelines> {
        // every change is whole
        self.pipelines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn tell(failed: &Mutex<Option<String>>, problem: String) {
    failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(problem);
}

/// An error of the device on one line.
fn one_line(error: &wgpu::Error) -> String {
    let text = error.to_string();
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
