//! A lowered program with its weights and sessions: [`program::Model`] on the CPU.

mod kept;
mod made_up;
mod restore;
mod step;
#[cfg(all(test, not(loom)))]
mod together;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use kv::{BlockStore, DiskLayer, DiskOptions, Tables};
use program::{
    CacheOptions, CacheStorage, CacheType, Error, Kept, KeptPlace, KeptSessions, KvPolicy, Meter,
    Model, PhaseTime, Program, Progress, Readings, Result, RowRule, SessionId, Sessions,
    SpillCounts, StateCopies, Step, StepOut, StepStats, WeightSource,
};

use crate::cache::{
    CacheShape, cache_shapes, least_bytes, most_bytes, reserve_bytes, state_bytes, state_specs,
    table_specs,
};
use crate::declare::supports_all;
use crate::digest::DigestedWeights;
use crate::exec::{Kernels, LastChoice};
use crate::kept::{KeptBy, SessionFolders};
use crate::load::{Workshop, place, table_bytes};
use crate::lower::lower;
use crate::memory::HugePages;
use crate::mla::MlaChoice;
use crate::plan::Turning;
use crate::pool::Team;
use crate::schedule::{LoadedPhase, Schedule};
use crate::tune::Tuning;
use crate::weights::{Lender, WeightMemory};
use crate::workspace::Workspace;

/// The CPU's [`Model`]. Steps run one at a time; nothing but another step waits for one, and who changes a session in it.
pub(crate) struct CpuModel {
    program: Arc<Program>,
    schedule: Schedule,
    weights: Arc<WeightMemory>,
    kernels: Kernels,
    tuning: Arc<Tuning>,
    pool: Arc<Team>,
    rotations: Vec<Rotation>,
    form: MlaChoice,
    /// Of all sessions.
    blocks: kv::BlockPool<HugePages>,
    /// Most bytes of them.
    budget: Option<u64>,
    /// When sessions were used: the next time.
    clock: AtomicU64,
    /// Positions that were computed again.
    recomputed: AtomicU64,
    sessions: Sessions<Session>,
    /// Where sessions are kept over restarts, and what their numbers depend on.
    kept: KeptBy,
    /// How the caches of sessions were kept that may share prefixes, each once.
    families: Mutex<Vec<(CacheType, CacheType, KvPolicy, u64)>>,
    /// Held for the time of a step.
    workspace: Mutex<Workspace>,
    counters: Mutex<Counters>,
}

/// A rotation of the schedule, in numbers.
struct Rotation {
    /// Radians per position of each pair.
    frequencies: Vec<f64>,
    /// Factor on cosines and sines.
    magnitude: f64,
    /// Positions are so many less than those of rows.
    back: u32,
}

/// What steps add up.
struct Counters {
    stats: StepStats,
    /// `[phase]`: time in the last step, and bytes of matrices read.
    phases: Vec<(Duration, u64)>,
}

struct Session {
    tables: Tables<HugePages>,
    /// How it was opened.
    options: CacheOptions,
    /// `[cache]`.
    shapes: Arc<[CacheShape]>,
    /// When it was last in a step, or made of another one.
    used: u64,
    /// What its last row chose, to be read ahead.
    last_choice: Arc<LastChoice>,
    /// Where its policy is measured, and what came of it.
    meter: Option<Arc<Meter>>,
    readings: Readings,
}

impl Session {
    fn new(
        tables: Tables<HugePages>,
        options: CacheOptions,
        shapes: Arc<[CacheShape]>,
        meter: Option<Arc<Meter>>,
    ) -> Session {
        let last_choice = shapes.iter().map(|_| Mutex::default()).collect();
        let readings = Readings::default();
        Session { tables, options, shapes, used: 0, last_choice, meter, readings }
    }
}

impl CpuModel {
    /// Lower `program` and load its weights.
    ///
    /// # Errors
    /// See [`program::Executor::load`].
    pub(crate) fn load(
        program: Arc<Program>,
        source: &dyn WeightSource,
        workshop: Workshop<'_>,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<CpuModel> {
        supports_all(&program, workshop.tuning.isa())?;
        let narrowed = program::passes::narrow(&program);
        let placed = place(&program, lower(&narrowed, workshop.mla)?, workshop)?;
        let Workshop { pool, tuning, mla: form, storage, kept, layer, .. } = workshop;
        // who keeps nothing need not know which numbers they are
        let digested = DigestedWeights::new(source);
        let source = if kept.is_empty() { source } else { &digested };
        let (schedule, weights) = placed.load(&program, source, workshop, progress)?;
        let kept = match kept.is_empty() {
            true => KeptBy::default(),
            false => KeptBy::new(kept, &program, digested.digest(&program), tuning.isa(), form),
        };
        let rotation = |Turning { rope, back }: &Turning| Rotation {
            frequencies: rope.frequencies(rope.factors.map(|id| weights.vector(id))),
            magnitude: f64::from(rope.magnitude()),
            back: *back,
        };
        let rotations = schedule.ropes.iter().map(rotation).collect();
        let stats = StepStats {
            weight_bytes_per_step: schedule.phases.iter().map(LoadedPhase::bytes_per_step).sum(),
            weight_memory: weights.bytes() + table_bytes(&schedule),
            ..StepStats::default()
        };
        let workspace = Mutex::new(Workspace::new(&schedule, pool.n()));
        let phases = vec![(Duration::ZERO, 0); schedule.phases.len()];
        let (kernels, sessions) = (Kernels::pick(tuning.isa()), Sessions::default());
        let keeps_positions = program.keeps_positions();
        Ok(CpuModel {
            program,
            schedule,
            weights: Arc::new(weights),
            kernels,
            tuning: Arc::clone(tuning),
            pool: Arc::clone(pool),
            rotations,
            form,
            blocks: block_pool(storage, layer, keeps_positions)?,
            budget: storage.memory,
            clock: AtomicU64::new(1),
            recomputed: AtomicU64::new(0),
            sessions,
            kept,
            families: Mutex::default(),
            workspace,
            counters: Mutex::new(Counters { stats, phases }),
        })
    }

    /// A session is used now.
    fn next_use(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::Relaxed)
    }

    /// How caches are kept under these options.
    fn shapes(&self, options: &CacheOptions) -> Result<Arc<[CacheShape]>> {
        cache_shapes(&self.program, &self.schedule, options)
    }

    /// Whether it reads rows that come from outside: those of before cannot be computed again.
    fn is_given(&self) -> bool {
        !self.program.inputs.is_empty()
    }

    /// Sessions of one family get the same bits from the same tokens, whatever else was fed. `None`: such a promise is not
    /// made.
    fn family(&self, options: &CacheOptions) -> Option<u64> {
        let chosen = |phase: &LoadedPhase| matches!(phase, LoadedPhase::Latent(_));
        let by_prompt = self.form == MlaChoice::Auto && self.schedule.phases.iter().any(chosen);
        let whole = RowRule::Sequence { whole: true };
        let looks_ahead = self.program.nodes.iter().any(|node| node.op.facts().rows == whole);
        // rows from outside may be anything, whatever the tokens
        (!by_prompt && !looks_ahead && !self.is_given()).then(|| {
            let kept = (options.k, options.v, options.policy, options.scope);
            let mut families = lock(&self.families);
            let known = families.iter().position(|family| *family == kept);
            known.unwrap_or_else(|| {
                families.push(kept);
                families.len() - 1
            }) as u64
        })
    }
}

/// The pool of a model's blocks. A disk is for what is kept by position: where nothing is, it would only cost buffers.
fn block_pool(
    storage: &CacheStorage,
    layer: &DiskLayer,
    keeps_positions: bool,
) -> Result<kv::BlockPool<HugePages>> {
    let folder = storage.disk.as_ref().filter(|_| keeps_positions);
    let (Some(budget), Some(folder)) = (storage.memory, folder) else {
        return Ok(kv::BlockPool::new(HugePages, storage.memory));
    };
    let buffer = disk_buffer(budget);
    let options = DiskOptions {
        queue_bytes: buffer as usize,
        ahead_bytes: buffer as usize,
        ..DiskOptions::default()
    };
    let disk = BlockStore::open_with(folder, options, |file| layer.over(file));
    let disk = disk.map_err(|error| Error::disk(error.to_string()))?;
    Ok(kv::BlockPool::with_disk(HugePages, budget - 2 * buffer, disk))
}

/// What blocks on their way to disk take of a budget, and as much again those on their way back.
fn disk_buffer(budget: u64) -> u64 {
    (budget / 16).min(32 << 20)
}

/// The least budget that leaves so many bytes for blocks in memory, beside those on their way.
pub(crate) fn bound_of(blocks: u64) -> u64 {
    let few = blocks.div_ceil(14).saturating_mul(16);
    few.min(blocks.saturating_add(64 << 20))
}

fn cache_error(error: kv::Error) -> Error {
    match error {
        kv::Error::Budget { budget, in_use, bytes } => {
            Error::CacheBudget { budget, least: in_use + bytes as u64 }
        }
        kv::Error::Capacity { capacity, wanted } => Error::ContextFull { wanted, capacity },
        kv::Error::Length { len, wanted } => Error::Length { len, wanted },
        kv::Error::Disk(error) => Error::disk(error.to_string()),
        kv::Error::Memory { bytes } => Error::Memory { what: "the cache", bytes: bytes as u64 },
        other => Error::Unsupported(other.to_string()),
    }
}

impl Model for CpuModel {
    fn program(&self) -> &Arc<Program> {
        &self.program
    }

    fn load_beside(
        &self,
        program: Arc<Program>,
        weights: &dyn WeightSource,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Box<dyn Model>> {
        let CpuModel { program: ours, schedule, weights: kept, .. } = self;
        let lender = Some(Lender { program: ours, schedule, weights: kept });
        let (storage, kept) = (&CacheStorage::default(), &SessionFolders::default());
        let CpuModel { pool, tuning, form: mla, .. } = self;
        let layer = &DiskLayer::default();
        let workshop = Workshop { pool, tuning, mla: *mla, storage, lender, kept, layer };
        Ok(Box::new(CpuModel::load(program, weights, workshop, progress)?))
    }

    fn open(&self, options: &CacheOptions) -> Result<SessionId> {
        let shapes = self.shapes(options)?;
        let specs = table_specs(&shapes);
        if let Some(budget) = self.budget {
            let states = state_bytes(&shapes, StateCopies::Least);
            let least = match self.blocks.spilled() {
                None => most_bytes(&specs, options.capacity, 1).saturating_add(states),
                Some(_) => {
                    let tables = least_bytes((&shapes, &specs), options.capacity, 1, self.pool.n());
                    bound_of(tables.saturating_add(states))
                }
            };
            if least > budget {
                return Err(Error::CacheBudget { budget, least });
            }
            if self.blocks.spilled().is_some() {
                self.blocks.reserve(reserve_bytes(&shapes, self.pool.n()));
            }
        }
        let family = self.family(options);
        let states = state_specs(&shapes);
        let tables = Tables::with_states(&self.blocks, specs, states, options.capacity, family);
        let meter = Meter::new(&options.policy, &self.program).map(Arc::new);
        Ok(self.sessions.open(Session::new(tables, *options, shapes, meter)))
    }

    fn close(&self, id: SessionId) {
        self.sessions.close(id);
        self.blocks.trim();
    }

    fn step(&self, step: &Step<'_>) -> Result<StepOut> {
        self.run_step(step, &|| true)
    }

    fn step_while(&self, step: &Step<'_>, go_on: &(dyn Fn() -> bool + Sync)) -> Result<StepOut> {
        self.run_step(step, go_on)
    }

    fn len(&self, id: SessionId) -> Result<usize> {
        Ok(self.sessions.find(id)?.positions())
    }

    fn commit(&self, id: SessionId, len: usize) -> Result<()> {
        self.sessions.with(id, |session| session.tables.commit(len).map_err(cache_error))
    }

    fn truncate(&self, id: SessionId, len: usize) -> Result<usize> {
        self.sessions.with(id, |session| {
            let mut reached = session.tables.truncate(len).map_err(cache_error)?;
            let held = session.tables.held();
            if held < reached && self.is_given() {
                reached = session.tables.truncate(held).map_err(cache_error)?;
            }
            session.readings.truncate(reached);
            Ok(reached)
        })
    }

    fn fork(&self, id: SessionId, len: usize) -> Result<SessionId> {
        let fork = self.sessions.with(id, |session| {
            let mut tables = session.tables.fork(len).map_err(cache_error)?;
            if tables.held() < tables.len() && self.is_given() {
                tables.truncate(tables.held()).map_err(cache_error)?;
            }
            let mut readings = session.readings.clone();
            readings.truncate(tables.len());
            let (shapes, meter) = (Arc::clone(&session.shapes), session.meter.clone());
            let fork = Session::new(tables, session.options, shapes, meter);
            Ok(Session { readings, used: self.next_use(), ..fork })
        })?;
        Ok(self.sessions.open(fork))
    }

    fn reuse(&self, id: SessionId, tokens: &[u32]) -> Result<usize> {
        self.sessions.with(id, |session| Ok(session.tables.adopt(tokens)))
    }

    fn make_up(&self, id: SessionId, len: usize) -> Result<()> {
        self.fill(id, len)
    }

    fn readings(&self, id: SessionId) -> Result<Readings> {
        self.sessions.with(id, |session| Ok(session.readings.clone()))
    }

    fn kept(&self, place: KeptPlace) -> Option<Box<dyn KeptSessions + '_>> {
        Some(Box::new(self.kept_in(place)?))
    }

    fn cache_bytes(&self, id: SessionId) -> Result<u64> {
        Ok(self.sessions.find(id)?.bytes())
    }

    fn stats(&self) -> StepStats {
        let mut stats = lock(&self.counters).stats;
        let spilled = self.blocks.spilled().unwrap_or_default();
        stats.spilled = SpillCounts {
            memory: self.blocks.in_use() + self.blocks.free(),
            written: spilled.written,
            written_bytes: spilled.written_bytes,
            loaded: spilled.loaded,
            loaded_bytes: spilled.loaded_bytes,
            hits: spilled.hits,
            waited: spilled.waited,
            recomputed: self.recomputed.load(Ordering::Relaxed),
        };
        stats
    }

    fn phases(&self) -> Vec<PhaseTime> {
        let counters = lock(&self.counters);
        if counters.stats.steps == 0 {
            return Vec::new();
        }
        let phases = counters.phases.iter().zip(&self.schedule.phases);
        let phases = phases.map(|((elapsed, read), phase)| PhaseTime {
            name: phase.name(&self.program),
            kind: phase.kind(),
            elapsed: *elapsed,
            weight_bytes: *read,
        });
        phases.collect()
    }
}

impl Kept for Session {
    fn positions(&self) -> usize {
        self.tables.len()
    }

    fn bytes(&self) -> u64 {
        self.tables.bytes()
    }
}

/// The lock, also if a step panicked in between: sessions and counters change last.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
