//! [`StepMemory`]: the memory that steps compute in, and what dispatches bind of it.

use program::{Result, Rows};

use crate::backend::{Binding, Buffer, Command, Handle, Usage};
use crate::batch::{Batch, most_words, split_steps};
use crate::caches::BLOCK;
use crate::device::Gpu;
use crate::dispatch::{self, Bound, CONSTS, Dispatch, query_stride};
use crate::formats::CHUNK;
use crate::kernels::MATMAT_TILE;
use crate::plan::{GpuPlan, GpuWork, index_words};
use crate::slab::{PLACE, Slab, SlabWork};
use crate::slots::Slots;
use crate::weights::DeviceWeights;

/// What a model keeps of its plan on the device.
pub(crate) struct OnDevice<'a> {
    pub(crate) gpu: &'a Gpu,
    pub(crate) plan: &'a GpuPlan,
    pub(crate) slots: &'a Slots,
    pub(crate) dispatches: &'a [Dispatch],
    pub(crate) weights: &'a DeviceWeights,
    pub(crate) constants: &'a Buffer,
}

/// Buffers that grow with what steps ask for. Bindings are made again when one of them has changed.
#[derive(Default)]
pub(crate) struct StepMemory {
    /// Rows that the slots have room for: tokens, and selected ones.
    rooms: [usize; 2],
    slots: Vec<Buffer>,
    queries: Option<Buffer>,
    partials: Option<Buffer>,
    /// What indexers make of positions, and what rows chose by that.
    scores: Option<Buffer>,
    marks: Option<Buffer>,
    words: Option<Buffer>,
    /// By cache.
    blocks: Vec<Buffer>,
    /// A block on its way from one place to another.
    between: Option<Buffer>,
    readback: Option<Buffer>,
    /// The likeliest tokens of stretches of logits, and of rows.
    found: Option<Buffer>,
    best: Option<Buffer>,
    /// Rows of activations as larger tiles take them.
    rounded: Option<Buffer>,
    nothing: Option<Buffer>,
    bindings: Vec<Handle>,
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

/// Bytes of so many rows of activations as larger tiles take them, if a device has such.
fn rounded_bytes(plan: &GpuPlan, rows: usize, has_wide: bool) -> u64 {
    if !has_wide || rows <= MATMAT_TILE {
        return 0;
    }
    let cols = plan.works.iter().filter_map(|work| match work {
        GpuWork::Linear { matrix, .. } => Some(plan.matrices[*matrix].cols),
        _ => None,
    });
    // halves, and an exponent behind each row, which begins at a multiple of 16 bytes
    let row = cols.max().map_or(0, |cols| 2 * cols.next_multiple_of(CHUNK) + 16);
    (rows * row) as u64
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
    /// Whether products may be in larger tiles.
    pub(crate) has_wide: bool,
}

/// Bytes that a workspace takes for such steps.
pub(crate) fn work_bytes(plan: &GpuPlan, slots: &Slots, sizes: &WorkSizes) -> u64 {
    let WorkSizes { tokens, selected, sequences, blocks, most_bytes, has_wide, .. } = *sizes;
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
    let rounded = rounded_bytes(plan, tokens, has_wide);
    let grown = [queries, partials, scores, marks, words, logits.max().unwrap_or(0), rounded]
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
            for spec in &loaded.slots.specs {
                let rows = rooms[usize::from(spec.rows == Rows::Selected)];
                let bytes = 4 * (rows * spec.stride()) as u64;
                self.slots.push(limited(gpu, "the values of a step", bytes)?);
            }
            self.rooms = rooms;
            changed = true;
        }
        let [queries, partials] = attention_bytes(loaded.plan, self.rooms[0], 1);
        changed |= grow(gpu, &mut self.queries, "queries", queries, Usage::Storage)?;
        let [_, found] = attention_bytes(loaded.plan, batch.n_tokens, batch.n_splits);
        changed |= grow(gpu, &mut self.partials, "attention", partials.max(found), Usage::Storage)?;
        let [scores, marks] = index_bytes(loaded.plan, batch.n_tokens, batch.n_blocks);
        changed |= grow(gpu, &mut self.scores, "the scores of indexers", scores, Usage::Storage)?;
        changed |= grow(gpu, &mut self.marks, "what indexers chose", marks, Usage::Storage)?;
        let words = 4 * batch.words.len() as u64;
        changed |= grow(gpu, &mut self.words, "a step's lists", words, Usage::Storage)?;
        let best = 8 * (batch.n_selected * batch.n_best) as u64;
        let found = dispatch::logits(loaded.plan)
            .map_or(0, |(_, cols)| best * dispatch::stretches(cols) as u64);
        changed |= grow(gpu, &mut self.found, "likely tokens", found.max(16), Usage::Storage)?;
        let best = (best + 4 * batch.n_told as u64).max(16);
        changed |= grow(gpu, &mut self.best, "the likeliest tokens", best, Usage::Storage)?;
        let has_wide = gpu.able().has_wide();
        let rounded = rounded_bytes(loaded.plan, batch.n_tokens, has_wide).max(16);
        changed |= grow(gpu, &mut self.rounded, "rounded rows", rounded, Usage::Storage)?;
        changed |= grow(gpu, &mut self.nothing, "nothing", 16, Usage::Storage)?;
        grow(gpu, &mut self.readback, "results", readback, Usage::Results)?;
        if !changed {
            self.bindings = bindings;
        }
        Ok(())
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
            let has = self.blocks.get(i).map_or(0, Buffer::size);
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
    fn resize(&mut self, gpu: &Gpu, cache: usize, new: Buffer) -> Result<()> {
        let old = std::mem::replace(&mut self.blocks[cache], new);
        let to = &self.blocks[cache];
        let bytes = old.size().min(to.size());
        let copy = Command::Copy { from: &old, from_at: 0, to, to_at: 0, bytes };
        let moved = gpu.run("a cache of another size", &[copy]);
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
            grow(gpu, &mut self.between, "a block", most, Usage::Copies)?;
        }
        if works.iter().all(Vec::is_empty) {
            return Ok(());
        }
        let mut commands = Vec::new();
        for (blocks, works) in self.blocks.iter().zip(works) {
            for work in works {
                match *work {
                    SlabWork::Copy { from, to, bytes } => {
                        let between = some(&self.between);
                        let (from_at, to_at) = (from, to);
                        commands.extend([
                            Command::Copy { from: blocks, from_at, to: between, to_at: 0, bytes },
                            Command::Copy { from: between, from_at: 0, to: blocks, to_at, bytes },
                        ]);
                    }
                    SlabWork::Clear { at, bytes } => {
                        commands.push(Command::Clear { buffer: blocks, at, bytes });
                    }
                }
            }
        }
        gpu.run("blocks of the cache", &commands)
    }

    /// What each dispatch binds.
    ///
    /// # Errors
    /// [`program::Error::Device`].
    pub(crate) fn bind(&mut self, loaded: &OnDevice<'_>) -> Result<()> {
        if !self.bindings.is_empty() || loaded.dispatches.is_empty() {
            return Ok(());
        }
        let of = loaded.dispatches.iter().enumerate();
        let of: Vec<_> = of.map(|(i, its)| (its.kernel, self.binding(loaded, i, its))).collect();
        self.bindings = loaded.gpu.bindings(&of)?;
        Ok(())
    }

    fn binding<'b>(
        &'b self,
        loaded: &OnDevice<'b>,
        index: usize,
        dispatch: &Dispatch,
    ) -> Vec<Binding<'b>> {
        let part = Some(((index * CONSTS) as u64, CONSTS as u64));
        let constants = Binding { buffer: loaded.constants, part };
        let words = Binding::whole(some(&self.words));
        let bound = dispatch.bound.iter().map(|bound| Binding::whole(self.bound(loaded, *bound)));
        [constants, words].into_iter().chain(bound).collect()
    }

    fn bound<'b>(&'b self, loaded: &OnDevice<'b>, bound: Bound) -> &'b Buffer {
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
            Bound::Rounded => some(&self.rounded),
            Bound::Nothing => some(&self.nothing),
        }
    }

    /// Bytes of all of it but the caches.
    #[cfg(test)]
    pub(crate) fn bytes(&self) -> u64 {
        let others = [
            &self.queries,
            &self.partials,
            &self.scores,
            &self.marks,
            &self.words,
            &self.readback,
            &self.rounded,
        ];
        let others = others.into_iter().flatten();
        self.slots.iter().chain(others).map(Buffer::size).sum()
    }

    /// Bytes of the caches' buffers.
    #[cfg(test)]
    pub(crate) fn cache_bytes(&self) -> u64 {
        self.blocks.iter().map(Buffer::size).sum()
    }

    /// What dispatch `i` binds.
    pub(crate) fn bindings(&self, i: usize) -> &Handle {
        &self.bindings[i]
    }

    /// The words of the step.
    pub(crate) fn words(&self) -> &Buffer {
        some(&self.words)
    }

    /// What is read back.
    pub(crate) fn readback(&self) -> &Buffer {
        some(&self.readback)
    }

    /// The likeliest tokens of stretches of logits.
    pub(crate) fn found(&self) -> &Buffer {
        some(&self.found)
    }

    /// Those of all of them, and logits that are told behind.
    pub(crate) fn best(&self) -> &Buffer {
        some(&self.best)
    }

    /// The memory of a slot.
    pub(crate) fn slot(&self, slot: usize) -> &Buffer {
        &self.slots[slot]
    }
}

/// A buffer for the blocks of a cache: as large as suits it, or as it must be.
fn cache(gpu: &Gpu, least: u64, suited: u64) -> Result<Buffer> {
    let made = gpu.buffer("the cache", suited, Usage::Storage);
    if suited > least {
        made.or_else(|_| gpu.buffer("the cache", least, Usage::Storage))
    } else {
        made
    }
}

/// A buffer that kernels see.
fn limited(gpu: &Gpu, what: &'static str, bytes: u64) -> Result<Buffer> {
    if bytes > gpu.most_bytes() {
        return Err(program::Error::Memory { what, bytes });
    }
    gpu.buffer(what, bytes, Usage::Storage)
}

fn some(buffer: &Option<Buffer>) -> &Buffer {
    buffer.as_ref().expect("`prepare` made it")
}

/// Let a buffer have `bytes` at least; whether it is a new one then.
fn grow(
    gpu: &Gpu,
    buffer: &mut Option<Buffer>,
    what: &'static str,
    bytes: u64,
    usage: Usage,
) -> Result<bool> {
    if buffer.as_ref().is_some_and(|buffer| buffer.size() >= bytes) {
        return Ok(false);
    }
    if usage == Usage::Storage && bytes > gpu.most_bytes() {
        return Err(program::Error::Memory { what, bytes });
    }
    // the old one goes first
    *buffer = None;
    *buffer = Some(gpu.buffer(what, grown_bytes(bytes, gpu.most_bytes()), usage)?);
    Ok(true)
}
