//! [`StepMemory`]: the memory that steps compute in, and what dispatches bind of it.

use program::{Result, Rows};
use wgpu::BufferUsages;

use crate::adapter::Gpu;
use crate::batch::Batch;
use crate::dispatch::{Bound, CONSTS, Dispatch, query_stride};
use crate::kernels::MATMAT_TILE;
use crate::plan::{GpuPlan, GpuWork};
use crate::slab::Slab;
use crate::slots::Slots;
use crate::weights::DeviceWeights;

const SHADER: BufferUsages = BufferUsages::STORAGE;
const BLOCKS: BufferUsages =
    BufferUsages::STORAGE.union(BufferUsages::COPY_DST).union(BufferUsages::COPY_SRC);

/// What a model keeps of its plan on the device.
pub(crate) struct OnDevice<'a> {
    pub(crate) gpu: &'a Gpu,
    pub(crate) plan: &'a GpuPlan,
    pub(crate) slots: &'a Slots,
    pub(crate) dispatches: &'a [Dispatch],
    pub(crate) weights: &'a DeviceWeights,
    pub(crate) constants: &'a wgpu::Buffer,
}

/// Buffers that grow with what steps ask for. Bindings are made again when one of them has changed.
#[derive(Default)]
pub(crate) struct StepMemory {
    /// Rows that the slots have room for: tokens, and selected ones.
    rooms: [usize; 2],
    slots: Vec<wgpu::Buffer>,
    queries: Option<wgpu::Buffer>,
    partials: Option<wgpu::Buffer>,
    words: Option<wgpu::Buffer>,
    blocks: Option<wgpu::Buffer>,
    /// A block on its way from one place to another.
    between: Option<wgpu::Buffer>,
    readback: Option<wgpu::Buffer>,
    nothing: Option<wgpu::Buffer>,
    bindings: Vec<wgpu::BindGroup>,
}

/// Rows that buffers get: whole tiles, and not a new size for every step.
fn room(rows: usize) -> usize {
    rows.max(MATMAT_TILE).next_power_of_two()
}

/// Bytes of rotated queries and of what attention's workgroups find, for so many rows.
fn attention_bytes(plan: &GpuPlan, rows: usize, splits: usize) -> [u64; 2] {
    let works = || {
        plan.works.iter().filter_map(|work| match work {
            GpuWork::Attention(work) => Some(work),
            _ => None,
        })
    };
    let queries = works().map(|work| query_stride(work)).max().unwrap_or(0);
    let found = works().map(|work| work.n_heads * (work.value_dim.div_ceil(4) + 1)).max();
    let partials = if splits > 1 { rows * splits * found.unwrap_or(0) } else { 0 };
    [4 * (rows * queries) as u64, 16 * partials as u64]
}

/// Bytes that a workspace takes for steps of so many rows.
pub(crate) fn work_bytes(plan: &GpuPlan, slots: &Slots, tokens: usize, selected: usize) -> u64 {
    let rows = |rows| match rows {
        Rows::Tokens => room(tokens),
        Rows::Selected => room(selected),
    };
    let [queries, _] = attention_bytes(plan, room(tokens), 1);
    let logits = plan.outputs.iter().map(|(_, _, spec)| 4 * (spec.stride() * selected) as u64);
    slots.bytes(&rows) + queries + logits.max().unwrap_or(0)
}

impl StepMemory {
    /// Make room for a step; `between` bytes for a block that is copied, `readback` bytes for what it yields.
    ///
    /// # Errors
    /// [`program::Error::Memory`], [`program::Error::Device`].
    pub(crate) fn prepare(
        &mut self,
        loaded: &OnDevice<'_>,
        batch: &Batch,
        readback: u64,
    ) -> Result<()> {
        let gpu = loaded.gpu;
        let rooms = [room(batch.n_tokens), room(batch.n_selected)];
        // what fails half-way leaves no bindings of buffers that are gone
        let bindings = std::mem::take(&mut self.bindings);
        let mut changed = bindings.is_empty();
        if self.slots.is_empty() || rooms[0] > self.rooms[0] || rooms[1] > self.rooms[1] {
            let rooms = [0, 1].map(|i| rooms[i].max(self.rooms[i]));
            self.slots.clear();
            self.rooms = [0; 2];
            let usage = BLOCKS;
            for spec in &loaded.slots.specs {
                let rows = rooms[usize::from(spec.rows == Rows::Selected)];
                let bytes = 4 * (rows * spec.stride()) as u64;
                self.slots.push(self.limited(gpu, "the values of a step", bytes, usage)?);
            }
            self.rooms = rooms;
            changed = true;
        }
        let [queries, partials] = attention_bytes(loaded.plan, self.rooms[0], 1);
        changed |= grow(gpu, &mut self.queries, "queries", queries, SHADER)?;
        let [_, found] = attention_bytes(loaded.plan, batch.n_tokens, batch.n_splits);
        changed |= grow(gpu, &mut self.partials, "attention", partials.max(found), SHADER)?;
        let words = 4 * batch.words.len() as u64;
        changed |=
            grow(gpu, &mut self.words, "a step's lists", words, SHADER | BufferUsages::COPY_DST)?;
        changed |= grow(gpu, &mut self.nothing, "nothing", 16, SHADER)?;
        changed |= grow(gpu, &mut self.blocks, "the cache", 16, BLOCKS)?;
        let read = BufferUsages::MAP_READ | BufferUsages::COPY_DST;
        grow(gpu, &mut self.readback, "results", readback, read)?;
        if !changed {
            self.bindings = bindings;
        }
        Ok(())
    }

    fn limited(
        &self,
        gpu: &Gpu,
        what: &'static str,
        bytes: u64,
        usage: BufferUsages,
    ) -> Result<wgpu::Buffer> {
        if bytes > gpu.most_bytes() {
            return Err(program::Error::Memory { what, bytes });
        }
        gpu.buffer(what, bytes, usage)
    }

    /// Let the buffer of all blocks have the room that its slab says, and copy blocks that were asked for.
    ///
    /// # Errors
    /// As [`prepare`](Self::prepare).
    pub(crate) fn blocks(
        &mut self,
        gpu: &Gpu,
        slab: &Slab,
        encoder: &mut wgpu::CommandEncoder,
    ) -> Result<()> {
        let [bytes, limit] = slab.bytes();
        let old = self.blocks.clone();
        let has = old.as_ref().map_or(0, wgpu::Buffer::size);
        if has < bytes {
            let size = bytes.max(has + has / 2).min(limit.max(bytes));
            let new = gpu.buffer("the cache", size, BLOCKS)?;
            if let Some(old) = old {
                encoder.copy_buffer_to_buffer(&old, 0, &new, 0, has);
            }
            self.blocks = Some(new);
            self.bindings.clear();
        }
        let copies = slab.take_copies();
        let most = copies.iter().map(|[_, _, bytes]| *bytes).max().unwrap_or(0);
        if most > 0 {
            let usage = BufferUsages::COPY_DST | BufferUsages::COPY_SRC;
            grow(gpu, &mut self.between, "a block", most, usage)?;
        }
        if let (Some(blocks), Some(between)) = (&self.blocks, &self.between) {
            for [from, to, bytes] in copies {
                encoder.copy_buffer_to_buffer(blocks, from, between, 0, bytes);
                encoder.copy_buffer_to_buffer(between, 0, blocks, to, bytes);
            }
        }
        Ok(())
    }

    /// What each dispatch binds.
    ///
    /// # Errors
    /// [`program::Error::Device`].
    pub(crate) fn bind(&mut self, loaded: &OnDevice<'_>) -> Result<()> {
        if !self.bindings.is_empty() || loaded.dispatches.is_empty() {
            return Ok(());
        }
        let made = loaded.gpu.checked("bindings", 0, || {
            let dispatches = loaded.dispatches.iter().enumerate();
            dispatches.map(|(i, dispatch)| self.binding(loaded, i, dispatch)).collect()
        })?;
        self.bindings = made;
        Ok(())
    }

    fn binding(&self, loaded: &OnDevice<'_>, index: usize, dispatch: &Dispatch) -> wgpu::BindGroup {
        let constants = wgpu::BufferBinding {
            buffer: loaded.constants,
            offset: (index * CONSTS) as u64,
            size: wgpu::BufferSize::new(CONSTS as u64),
        };
        let words = some(&self.words).as_entire_binding();
        let bound =
            dispatch.bound.iter().map(|bound| self.bound(loaded, *bound).as_entire_binding());
        let all = [wgpu::BindingResource::Buffer(constants), words].into_iter().chain(bound);
        let entry = |(i, resource)| wgpu::BindGroupEntry { binding: i as u32, resource };
        let entries: Vec<_> = all.enumerate().map(entry).collect();
        loaded.gpu.device.create_bind_group(&wgpu::BindGroupDescriptor {
            label: Some(dispatch.kernel.name),
            layout: &loaded.gpu.layout(dispatch.kernel),
            entries: &entries,
        })
    }

    fn bound<'b>(&'b self, loaded: &OnDevice<'b>, bound: Bound) -> &'b wgpu::Buffer {
        match bound {
            Bound::Plane { matrix, part, plane } => {
                &loaded.weights.matrices[matrix].parts[part].planes[plane]
            }
            Bound::Vectors => &loaded.weights.vectors,
            Bound::Buffer(id) => &self.slots[loaded.slots.of(id)],
            Bound::Queries => some(&self.queries),
            Bound::Blocks => some(&self.blocks),
            Bound::Partials => some(&self.partials),
            Bound::Nothing => some(&self.nothing),
        }
    }

    /// What dispatch `i` binds.
    pub(crate) fn bindings(&self, i: usize) -> &wgpu::BindGroup {
        &self.bindings[i]
    }

    /// The words of the step.
    pub(crate) fn words(&self) -> &wgpu::Buffer {
        some(&self.words)
    }

    /// What is read back.
    pub(crate) fn readback(&self) -> &wgpu::Buffer {
        some(&self.readback)
    }

    /// The memory of a slot.
    pub(crate) fn slot(&self, slot: usize) -> &wgpu::Buffer {
        &self.slots[slot]
    }
}

fn some(buffer: &Option<wgpu::Buffer>) -> &wgpu::Buffer {
    buffer.as_ref().expect("`prepare` made it")
}

/// Let a buffer have `bytes` at least; whether it is a new one then.
fn grow(
    gpu: &Gpu,
    buffer: &mut Option<wgpu::Buffer>,
    what: &'static str,
    bytes: u64,
    usage: BufferUsages,
) -> Result<bool> {
    if buffer.as_ref().is_some_and(|buffer| buffer.size() >= bytes) {
        return Ok(false);
    }
    if usage.contains(SHADER) && bytes > gpu.most_bytes() {
        return Err(program::Error::Memory { what, bytes });
    }
    // the old one goes first
    *buffer = None;
    let size = bytes.max(256).next_power_of_two().min(gpu.most_bytes().max(bytes));
    *buffer = Some(gpu.buffer(what, size, usage)?);
    Ok(true)
}
