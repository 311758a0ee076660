//! A program on a device with its weights and sessions: [`program::Model`].

mod restore;
mod results;
mod step;
#[cfg(test)]
pub(crate) mod tests;

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kv::{BlockAccess, StateRows, StepPlace};
use program::{
    Among, CacheOptions, CacheStorage, Error, Kept, Model, PhaseTime, Program, Progress, Result,
    SessionId, Sessions, StateCopies, Step, StepOut, StepStats, WeightSource, check_among,
};

use crate::backend::{Buffer, Usage, Write};
use crate::batch::RowNumbers;
use crate::caches::{CacheSpecs, Pool, SlabTables, kept};
use crate::declare::supports_all;
use crate::device::Gpu;
use crate::dispatch::{Dispatch, constants, dispatches};
use crate::kernels::{Shapes, StoredTypes};
use crate::lower::lower;
use crate::plan::{GpuPlan, Rotation};
use crate::slab::{BlockPlace, Slab, SlabClaim, SlabStore};
use crate::slots::Slots;
use crate::timing::Timer;
use crate::weights::{DeviceWeights, Loader, rotation};
use crate::workspace::{OnDevice, StepMemory};

/// A GPU's [`Model`]. Steps run one at a time; nothing but another step waits for one, and who changes a session in it.
pub(crate) struct GpuModel {
    gpu: Arc<Gpu>,
    program: Arc<Program>,
    plan: GpuPlan,
    slots: Slots,
    dispatches: Vec<Dispatch>,
    constants: Buffer,
    weights: DeviceWeights,
    numbers: RowNumbers,
    /// By cache.
    slabs: Arc<[Slab]>,
    pool: Pool,
    /// Most bytes of all caches.
    budget: Option<u64>,
    sessions: Sessions<Session>,
    /// Held for the time of a step.
    workspace: Mutex<StepMemory>,
    stats: Mutex<StepStats>,
    timer: Timer,
    /// Types of caches whose usual kernels are compiled.
    compiled: Mutex<HashSet<StoredTypes>>,
}

/// What a session holds.
struct Session {
    tables: SlabTables,
    kept: StoredTypes,
    /// Most tokens that one of its steps had.
    most_rows: usize,
    /// What it may fill.
    claim: SlabClaim,
}

impl Kept for Session {
    fn positions(&self) -> usize {
        self.tables.len()
    }

    fn bytes(&self) -> u64 {
        self.tables.bytes()
    }
}

impl GpuModel {
    /// Lower `program` and bring its weights to the device.
    ///
    /// # Errors
    /// See [`program::Executor::load`].
    pub(crate) fn load(
        gpu: &Arc<Gpu>,
        program: Arc<Program>,
        source: &dyn WeightSource,
        storage: &CacheStorage,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<GpuModel> {
        if storage.disk.is_some() {
            return Err(Error::Unsupported("caches of a GPU on disk".into()));
        }
        supports_all(&program)?;
        let plan = lower(&program::passes::narrow(&program))?;
        let rotations = plan.rotations.iter().map(|Rotation { rope, back }| {
            rotation(source, &program, rope).map(|numbers| (numbers, *back))
        });
        let numbers = RowNumbers {
            rotations: rotations.collect::<Result<_>>()?,
            temperatures: plan.temperatures.clone(),
        };
        let (told, done) = (HashSet::new(), 0);
        let loader = Loader { gpu, program: &program, source, progress, told, done };
        let weights = loader.load(&plan)?;
        let slots = Slots::assign(&plan);
        let dispatches = dispatches(&plan, &weights, (&gpu.shapes(), gpu.able()));
        let words = constants(&dispatches);
        let constants = gpu.buffer("constants", 4 * words.len() as u64, Usage::Constants)?;
        let bytes = bytemuck::cast_slice(&words);
        gpu.write("constants", &[Write { to: &constants, at: 0, bytes }])?;
        let slabs: Arc<[Slab]> =
            program.caches.iter().map(|_| Slab::new(gpu.most_bytes())).collect();
        let pool = Pool::new(SlabStore(Arc::clone(&slabs)), storage.memory);
        let stats = StepStats {
            weight_bytes_per_step: weights.bytes,
            weight_memory: weights.bytes,
            ..StepStats::default()
        };
        Ok(GpuModel {
            gpu: Arc::clone(gpu),
            program,
            plan,
            slots,
            dispatches,
            constants,
            weights,
            numbers,
            slabs,
            pool,
            budget: storage.memory,
            sessions: Sessions::default(),
            workspace: Mutex::default(),
            stats: Mutex::new(stats),
            timer: Timer::default(),
            compiled: Mutex::default(),
        })
    }

    /// Have products in these shapes from now on.
    pub(crate) fn reshape(&mut self, shapes: &Shapes) {
        self.dispatches.iter_mut().for_each(|dispatch| dispatch.reshape(shapes));
    }

    /// Compiles the kernels of steps and prompts for caches of these types, once, if the device's compiler is slow.
    fn compile_usual(&self, kept: StoredTypes) {
        let mut compiled = lock(&self.compiled);
        if self.gpu.is_software() || !compiled.insert(kept) {
            return;
        }
        let able = self.gpu.able();
        let shaders = self.dispatches.iter().flat_map(|d| d.usual_shaders(kept, able));
        let distinct: HashSet<_> = shaders.collect();
        self.gpu.make_kernels(&distinct.into_iter().collect::<Vec<_>>());
    }

    fn loaded(&self) -> OnDevice<'_> {
        OnDevice {
            gpu: &self.gpu,
            plan: &self.plan,
            slots: &self.slots,
            dispatches: &self.dispatches,
            weights: &self.weights,
            constants: &self.constants,
        }
    }
}

/// Rows of a step beside a window that buffers grow for ahead of time; for steps of more they grow when those come.
const USUAL_ROWS: usize = 512;

/// What the caches say is wrong.
fn cache_error(error: kv::Error) -> Error {
    match error {
        kv::Error::Budget { budget, in_use, bytes } => {
            Error::CacheBudget { budget, least: in_use + bytes as u64 }
        }
        kv::Error::Capacity { capacity, wanted } => Error::ContextFull { wanted, capacity },
        kv::Error::Length { len, wanted } => Error::Length { len, wanted },
        kv::Error::Memory { bytes } => Error::Memory {
            what: "a layer's cache, as one buffer of the device,",
            bytes: bytes as u64,
        },
        other => Error::Unsupported(other.to_string()),
    }
}

impl Model for GpuModel {
    fn program(&self) -> &Arc<Program> {
        &self.program
    }

    fn open(&self, options: &CacheOptions) -> Result<SessionId> {
        let specs = CacheSpecs::of(&self.program, options)?;
        if let Some(budget) = self.budget {
            let least = specs.bytes(options.capacity, 1, StateCopies::Least);
            let least = least.into_iter().fold(0, u64::saturating_add);
            if least > budget {
                return Err(Error::CacheBudget { budget, least });
            }
        }
        let tentative = options.capacity.min(USUAL_ROWS);
        let all = specs.bytes(options.capacity, tentative, StateCopies::Most);
        // what it may grow to where nothing bounds it; with a budget buffers stay within that, whatever is claimed
        let claim = SlabClaim::new(&self.slabs, all);
        self.compile_usual(kept(options));
        // prefixes are shared where bits are the same, which other cuts of a prompt do not give
        let CacheSpecs { tables, states } = specs;
        let tables = SlabTables::with_states(&self.pool, tables, states, options.capacity, None);
        Ok(self.sessions.open(Session { tables, kept: kept(options), most_rows: 0, claim }))
    }

    fn close(&self, id: SessionId) {
        self.sessions.close(id);
        self.pool.trim();
    }

    fn step(&self, step: &Step<'_>) -> Result<StepOut> {
        self.run_step(step, &[], None)
    }

    fn step_beside(
        &self,
        step: &Step<'_>,
        go_on: &(dyn Fn() -> bool + Sync),
        beside: &mut dyn FnMut(),
    ) -> Result<StepOut> {
        if go_on() { self.run_step(step, &[], Some(beside)) } else { Err(Error::Cancelled) }
    }

    fn step_among(
        &self,
        step: &Step<'_>,
        among: &[&[Among<'_>]],
        go_on: &(dyn Fn() -> bool + Sync),
    ) -> Result<StepOut> {
        check_among(&self.program, step, among)?;
        if go_on() { self.run_step(step, among, None) } else { Err(Error::Cancelled) }
    }

    fn most_candidates(&self) -> usize {
        results::most_best(&self.plan)
    }

    fn len(&self, id: SessionId) -> Result<usize> {
        Ok(self.sessions.find(id)?.positions())
    }

    fn commit(&self, id: SessionId, len: usize) -> Result<()> {
        self.sessions.with(id, |session| session.tables.commit(len).map_err(cache_error))
    }

    fn truncate(&self, id: SessionId, len: usize) -> Result<usize> {
        self.sessions.with(id, |session| {
            let reached = session.tables.truncate(len).map_err(cache_error)?;
            let held = session.tables.held();
            if held < reached && self.is_given() {
                return session.tables.truncate(held).map_err(cache_error);
            }
            Ok(reached)
        })
    }

    fn fork(&self, id: SessionId, len: usize) -> Result<SessionId> {
        let fork = self.sessions.with(id, |session| {
            let mut tables = session.tables.fork(len).map_err(cache_error)?;
            if tables.held() < tables.len() && self.is_given() {
                tables.truncate(tables.held()).map_err(cache_error)?;
            }
            let Session { kept, most_rows, .. } = *session;
            Ok(Session { tables, kept, most_rows, claim: session.claim.clone() })
        })?;
        Ok(self.sessions.open(fork))
    }

    /// Zeros: what an earlier session left may be kept in another way, and be no number in this one's.
    fn make_up(&self, id: SessionId, len: usize) -> Result<()> {
        // a step may have its copies in the making
        let _running = lock(&self.workspace);
        self.sessions.with(id, |session| {
            if !session.tables.is_empty() {
                return Err(Error::Length { len: session.tables.len(), wanted: 0 });
            }
            if len == 0 {
                return Ok(());
            }
            let place = StepPlace { made_up: true, ..StepPlace::default() };
            let prepared = session.tables.prepare_step(len, place, &mut || false);
            prepared.map_err(cache_error)?;
            let (tables, (_, states)) = session.tables.step_of_all(len);
            for rows in tables.flat_map(|(_, rows)| rows) {
                if let BlockAccess::Write(place) = rows.block {
                    place.clear();
                }
            }
            states.into_iter().flat_map(written).for_each(|place| place.clear());
            session.tables.extend(&vec![0; len]).map_err(cache_error)?;
            session.tables.commit(len).map_err(cache_error)
        })
    }

    fn cache_bytes(&self, id: SessionId) -> Result<u64> {
        Ok(self.sessions.find(id)?.bytes())
    }

    fn stats(&self) -> StepStats {
        let mut stats = *lock(&self.stats);
        stats.spilled.memory = self.pool.in_use() + self.pool.free();
        stats
    }

    fn phases(&self) -> Vec<PhaseTime> {
        self.timer.phases()
    }

    /// Where the adapter writes no timestamps, no phase is told.
    fn time_phases(&self, on: bool) {
        self.timer.set(on);
    }
}

/// What a step writes of a cache of states.
fn written(rows: StateRows<'_, BlockPlace>) -> impl Iterator<Item = &mut BlockPlace> {
    let ring = match rows.ring {
        BlockAccess::Write(place) => Some(place),
        BlockAccess::Read(_) => None,
    };
    rows.fold.into_iter().chain(ring).chain(rows.next)
}

/// The lock, also if a step panicked in between: sessions and counters change last.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
