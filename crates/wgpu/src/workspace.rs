//! [`StepMemory`]: the memory that steps compute in, and what dispatches bind of it.

use program::{Result, Rows};
use wgpu::BufferUsages;

use crate::adapter::Gpu;
use crate::batch::{Batch, most_words, split_steps};
use crate::caches::BLOCK;
use crate::dispatch::{self, Bound, CONSTS, Dispatch, query_stride};
use crate::kernels::MATMAT_TILE;
use crate::plan::{GpuPlan, GpuWork, index_words};
use crate::slab::{PLACE, Slab, SlabWork};
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
    /// What indexers make of positions, and what rows chose by that.
    scores: Option<wgpu::Buffer>,
    marks: Option<wgpu::Buffer>,
    words: Option<wgpu::Buffer>,
    /// By cache.
    blocks: Vec<wgpu::Buffer>,
    /// A block on its way from one place to another.
    between: Option<wgpu::Buffer>,
    readback: Option<wgpu::Buffer>,
    /// The likeliest tokens of stretches of logits, and of rows.
    found: Option<wgpu::Buffer>,
    best: Option<wgpu::Buffer>,
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
    let of_indexers = plan.works.iter().map(|work| match work {
        GpuWork::Index(work) => work.query_stride(),
        _ => 0,
    });
    let queries = works().map(|work| query_stride(work)).chain(of_indexers).max().unwrap_or(0);
    let found = works().map(|work| work.n_heads * (work.value_dim.div_ceil(4) + 1)).max();
    let partials = if splits > 1 { rows * splits * found.unwrap_or(0) } else { 0 };
    [4 * (rows * queries) as u64, 16 * partials as u64]
}

/// Bytes of what indexers make of so many blocks for so many rows, and of what these chose.
fn index_bytes(plan: &GpuPlan, rows: usize, blocks: usize) -> [u64; 2] {
    index_words(plan, blocks * BLOCK).map(|words| 4 * (rows * words) as u64)
}

/// What steps are that a workspace is for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WorkSizes {
    /// Most rows of a step, and of those with outputs.
    pub(crate) tokens: usize,
    pub(crate) selected: usize,
    /// Sessions that step together, each with so many blocks in each of so many caches.
    pub(crate) sequences: usize,
    pub(crate) blocks: usize,
    pub(crate) n_caches: usize,
    /// Most bytes of a buffer.
    pub(crate) most_bytes: u64,
}

/// Bytes that a workspace takes for such steps.
pub(crate) fn work_bytes(plan: &GpuPlan, slots: &Slots, sizes: &WorkSizes) -> u64 {
    let WorkSizes { tokens, selected, sequences, blocks, most_bytes, .. } = *sizes;
    let rows = |rows| match rows {
        Rows::Tokens => room(tokens),
        Rows::Selected => room(selected),
    };
    let [queries, _] = attention_bytes(plan, room(tokens), 1);
    let partials = split_steps(plan, [tokens, sequences], blocks)
        .map(|[rows, splits]| attention_bytes(plan, rows, splits)[1]);
    let logits = plan.outputs.iter().map(|(_, _, spec)| 4 * (spec.stride() * selected) as u64);
    let words = 4 * most_words(plan, sizes) as u64;
    let [scores, marks] = index_bytes(plan, tokens, blocks);
    let partials = partials.max().unwrap_or(0);
    let grown = [queries, partials, scores, marks, words, logits.max().unwrap_or(0)]
        .map(|bytes| grown_bytes(bytes, most_bytes));
    slots.bytes(&rows) + grown.iter().sum::<u64>()
}

/// Bytes of a buffer that has grown to hold so many.
fn grown_bytes(bytes: u64, most_bytes: u64) -> u64 {
    bytes.max(256).next_power_of_two().min(most_bytes.max(bytes))
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
        let [scores, marks] = index_bytes(loaded.plan, batch.n_tokens, batch.n_blocks);
        changed |= grow(gpu, &mut self.scores, "the scores of indexers", scores, SHADER)?;
        changed |= grow(gpu, &mut self.marks, "what indexers chose", marks, SHADER)?;
        let words = 4 * batch.words.len() as u64;
        changed |=
            grow(gpu, &mut self.words, "a step's lists", words, SHADER | BufferUsages::COPY_DST)?;
        let best = 8 * (batch.n_selected * batch.n_best) as u64;
        let found = dispatch::logits(loaded.plan)
            .map_or(0, |(_, cols)| best * dispatch::stretches(cols) as u64);
        let copied = SHADER | BufferUsages::COPY_SRC;
        changed |= grow(gpu, &mut self.found, "likely tokens", found.max(16), copied)?;
        let best = (best + 4 * batch.n_told as u64).max(16);
        changed |= grow(gpu, &mut self.best, "the likeliest tokens", best, copied)?;
        changed |= grow(gpu, &mut self.nothing, "nothing", 16, SHADER)?;
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

    /// Let the buffer of each cache have the room that its slab says, and do to blocks what was asked for. That is
    /// submitted by itself, buffer by buffer: whatever becomes of the step, no cache is lost, and of no more than one
    /// cache two buffers exist at once. All of them together take no more than `bound`, unless what is in them does: ahead
    /// of time they grow within it, and those that have more than they need give that back first.
    ///
    /// # Errors
    /// As [`prepare`](Self::prepare); caches are as they were then.
    pub(crate) fn caches(&mut self, gpu: &Gpu, slabs: &[Slab], bound: Option<u64>) -> Result<()> {
        for (i, slab) in slabs.iter().enumerate() {
            let room = slab.room();
            let has = self.blocks.get(i).map_or(0, wgpu::Buffer::size);
            if has >= room.least {
                continue;
            }
            let least = room.least;
            if self.spare(i, bound) < least {
                for (other, slab) in slabs.iter().enumerate().take(self.blocks.len()) {
                    let needed = slab.room().least.next_multiple_of(PLACE);
                    if needed < self.blocks[other].size() {
                        self.resize(gpu, other, cache(gpu, needed, needed)?)?;
                    }
                }
            }
            let suited = room.suited(has).min(self.spare(i, bound)).max(least);
            let new = cache(gpu, least, suited)?;
            match i < self.blocks.len() {
                true => self.resize(gpu, i, new)?,
                false => self.blocks.push(new),
            }
            self.bindings.clear();
        }
        let works: Vec<_> = slabs.iter().map(Slab::take_works).collect();
        let done = self.slab_works(gpu, &works);
        if done.is_err() {
            slabs.iter().zip(works).for_each(|(slab, works)| slab.put_back(works));
        }
        done
    }

    /// Bytes of a bound that the buffers of the other caches leave to one.
    fn spare(&self, cache: usize, bound: Option<u64>) -> u64 {
        let others = self.blocks.iter().enumerate().filter(|(i, _)| *i != cache);
        let taken: u64 = others.map(|(_, buffer)| buffer.size()).sum();
        bound.map_or(u64::MAX, |bound| bound.saturating_sub(taken))
    }

    /// Give a cache a buffer of another size, with what is in it.
    fn resize(&mut self, gpu: &Gpu, cache: usize, new: wgpu::Buffer) -> Result<()> {
        let old = std::mem::replace(&mut self.blocks[cache], new);
        let moved = gpu.submitted("a cache of another size", |encoder| {
            let new = &self.blocks[cache];
            encoder.copy_buffer_to_buffer(&old, 0, new, 0, old.size().min(new.size()));
        });
        self.bindings.clear();
        if moved.is_err() {
            self.blocks[cache] = old;
        }
        moved
    }

    /// What was asked for, by cache.
    fn slab_works(&mut self, gpu: &Gpu, works: &[Vec<SlabWork>]) -> Result<()> {
        let copied = |work: &SlabWork| match work {
            SlabWork::Copy { bytes, .. } => Some(*bytes),
            SlabWork::Clear { .. } => None,
        };
        if let Some(most) = works.iter().flatten().filter_map(copied).max() {
            let usage = BufferUsages::COPY_DST | BufferUsages::COPY_SRC;
            grow(gpu, &mut self.between, "a block", most, usage)?;
        }
        if works.iter().all(Vec::is_empty) {
            return Ok(());
        }
        gpu.submitted("blocks of the cache", |encoder| {
            for (blocks, works) in self.blocks.iter().zip(works) {
                for work in works {
                    match *work {
                        SlabWork::Copy { from, to, bytes } => {
                            let between = some(&self.between);
                            encoder.copy_buffer_to_buffer(blocks, from, between, 0, bytes);
                            encoder.copy_buffer_to_buffer(between, 0, blocks, to, bytes);
                        }
                        SlabWork::Clear { at, bytes } => {
                            encoder.clear_buffer(blocks, at, Some(bytes));
                        }
                    }
                }
            }
        })
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
            Bound::Blocks(cache) => &self.blocks[cache],
            Bound::Partials => some(&self.partials),
            Bound::Scores => some(&self.scores),
            Bound::Marks => some(&self.marks),
            Bound::Found => some(&self.found),
            Bound::Best => some(&self.best),
            Bound::Nothing => some(&self.nothing),
        }
    }

    /// Bytes of all of it but the caches.
    #[cfg(test)]
    pub(crate) fn bytes(&self) -> u64 {
        let others =
            [&self.queries, &self.partials, &self.scores, &self.marks, &self.words, &self.readback];
        let others = others.into_iter().flatten();
        self.slots.iter().chain(others).map(wgpu::Buffer::size).sum()
    }

    /// Bytes of the caches' buffers.
    #[cfg(test)]
    pub(crate) fn cache_bytes(&self) -> u64 {
        self.blocks.iter().map(wgpu::Buffer::size).sum()
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

    /// The likeliest tokens of stretches of logits.
    pub(crate) fn found(&self) -> &wgpu::Buffer {
        some(&self.found)
    }

    /// Those of all of them, and logits that are told behind.
    pub(crate) fn best(&self) -> &wgpu::Buffer {
        some(&self.best)
    }

    /// The memory of a slot.
    pub(crate) fn slot(&self, slot: usize) -> &wgpu::Buffer {
        &self.slots[slot]
    }
}

/// A buffer for the blocks of a cache: as large as suits it, or as it must be.
fn cache(gpu: &Gpu, least: u64, suited: u64) -> Result<wgpu::Buffer> {
    let made = gpu.buffer("the cache", suited, BLOCKS);
    if suited > least { made.or_else(|_| gpu.buffer("the cache", least, BLOCKS)) } else { made }
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
    *buffer = Some(gpu.buffer(what, grown_bytes(bytes, gpu.most_bytes()), usage)?);
    Ok(true)
}
