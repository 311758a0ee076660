//! Sessions with made-up contents, for measuring: nothing that runs a model needs this.

use kernels::attention::BLOCK;
use kv::{BlockAccess, HostMemory, StateRows, StepPlace};
use program::{Result, SessionId};

use super::{CpuModel, cache_error, lock};
use crate::cache::{CacheShape, HeadsCache, KeysCache, LatentCache, MemoryTables};
use crate::memory::CacheMemory;

/// What made-up positions stand for: no vocabulary has it.
const NO_TOKEN: u32 = u32::MAX;

impl CpuModel {
    /// Make an empty session hold `len` positions of made-up content, the same in each block; what stands for blocks of a
    /// memory differs, so that rows choose as they do. They are committed as they come, so that windows leave theirs.
    ///
    /// # Errors
    /// Unknown session, full context, memory.
    pub(crate) fn fill(&self, id: SessionId, len: usize) -> Result<()> {
        let mut anchors = Noise(11);
        self.sessions.with(id, |session| {
            let contents = contents(&session.shapes, session.tables.specs().len());
            let has_window = session.tables.specs().iter().any(|spec| spec.window.is_some());
            let stretch = if has_window { SHORT_STRETCH } else { STRETCH };
            for start in (session.tables.len()..len).step_by(stretch) {
                let end = len.min(start + stretch);
                let place = StepPlace { made_up: true, ..StepPlace::default() };
                let prepared = session.tables.prepare_step(end, place, &mut || false);
                prepared.map_err(cache_error)?;
                let (tables, (_, states)) = session.tables.step_of_all(end);
                for memory in states.into_iter().flat_map(written) {
                    let floats = bytemuck::cast_slice_mut::<u8, f32>(memory.bytes_mut());
                    floats.fill_with(|| anchors.next() / 16.0);
                }
                for (content, (_, runs)) in contents.iter().zip(tables) {
                    for run in runs {
                        let BlockAccess::Write(block) = run.block else { continue };
                        match content {
                            Content::Same(content) => block.bytes_mut().copy_from_slice(content),
                            Content::Choices(memory) => {
                                let words = bytemuck::cast_slice_mut::<u8, u32>(block.bytes_mut());
                                spread(memory, run.first, words);
                            }
                            Content::Noise => {
                                let floats = bytemuck::cast_slice_mut::<u8, f32>(block.bytes_mut());
                                floats.fill_with(|| anchors.next());
                            }
                        }
                    }
                }
                session.tables.extend(&vec![NO_TOKEN; end - start]).map_err(cache_error)?;
                session.tables.commit(end).map_err(cache_error)?;
            }
            Ok(())
        })
    }

    /// Memory that steps took so far, besides weights and caches.
    pub(crate) fn work_bytes(&self) -> u64 {
        lock(&self.workspace).bytes()
    }
}

/// Positions that are made up at a time.
const STRETCH: usize = 8192;

/// The same where windows leave blocks behind: what a stretch held beyond its window would stay with the pool.
const SHORT_STRETCH: usize = BLOCK;

/// What a step writes of a cache of states.
fn written(rows: StateRows<'_, CacheMemory>) -> impl Iterator<Item = &mut CacheMemory> {
    let ring = match rows.ring {
        BlockAccess::Write(memory) => Some(memory),
        BlockAccess::Read(_) => None,
    };
    rows.fold.into_iter().chain(ring).chain(rows.next)
}

/// What the blocks of a table have.
#[derive(Clone)]
enum Content {
    /// The same each.
    Same(Vec<u8>),
    /// As those of anchors, which are all different.
    Noise,
    /// Choices.
    Choices(Box<MemoryTables>),
}

/// Of each table.
fn contents(shapes: &[CacheShape], n_tables: usize) -> Vec<Content> {
    let mut contents: Vec<_> = shapes.iter().map(|shape| Content::Same(block(shape))).collect();
    contents.resize(n_tables, Content::Noise);
    for (cache, shape) in shapes.iter().enumerate() {
        let Some(memory) = shape.as_heads().and_then(|heads| heads.memory) else { continue };
        if let Some(far) = memory.far {
            contents[far] = contents[cache].clone();
        }
        if let Some(choices) = memory.choices {
            contents[choices] = Content::Choices(Box::new(memory));
        }
    }
    contents
}

/// Choices from position `first` on, of blocks far from each other.
fn spread(memory: &MemoryTables, first: usize, words: &mut [u32]) {
    let (settings, n) = (&memory.settings, memory.settings.n_blocks as usize);
    let before = settings.choosers(0..first).end;
    for (run, choices) in words.chunks_exact_mut(n * memory.n_choices).enumerate() {
        let finished = settings.finished(settings.chooser_position(before + run));
        let of_all = |i: usize| (finished.start + i * finished.len() / n) as u32;
        for choice in choices.chunks_exact_mut(n) {
            choice.iter_mut().enumerate().for_each(|(i, block)| *block = of_all(i));
        }
    }
}

/// A block of a cache.
fn block(shape: &CacheShape) -> Vec<u8> {
    let mut random = Noise(7);
    let mut numbers = |n: usize| -> Vec<f32> { (0..n).map(|_| random.next()).collect() };
    if shape.as_state().is_some() {
        return Vec::new();
    }
    let mut block = vec![0; shape.layout().block_bytes()];
    match shape {
        CacheShape::State(_) => {}
        CacheShape::Latent(LatentCache { shape, .. }) => {
            for row in block.chunks_exact_mut(shape.row_bytes()) {
                shape.store(row, &numbers(shape.rank), &numbers(shape.rope_dim));
            }
        }
        CacheShape::Keys(KeysCache { head, layout }) => {
            for position in 0..BLOCK {
                head.store_key(&mut block[layout.keys(0)], position, &numbers(head.key_dim));
            }
        }
        CacheShape::Heads(HeadsCache { head, layout, .. }) => {
            for number in 0..layout.n_kv_heads() {
                for position in 0..BLOCK {
                    let (key, value) = (numbers(head.key_dim), numbers(head.value_dim));
                    head.store_key(&mut block[layout.keys(number)], position, &key);
                    head.store_value(&mut block[layout.values(number)], position, &value);
                }
            }
        }
    }
    block
}

/// A small generator: xorshift.
struct Noise(u64);

impl Noise {
    /// From -1 to 1.
    fn next(&mut self) -> f32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    }
}
