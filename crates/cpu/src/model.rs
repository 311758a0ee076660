//! A lowered program with its weights and sessions: [`program::Model`] on the CPU.

mod made_up;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use kernels::rows::rope_angles;
use kv::Tables;
use program::{
    CacheOptions, CacheType, Error, Model, PEAK, PhaseTime, Program, Progress, Result, RowRule,
    Rows, SessionId, Step, StepOut, StepStats, WeightSource,
};

use crate::cache::{CacheShape, cache_shapes};
use crate::declare::supports_all;
use crate::exec::{Angles, Exec, Kernels, SequenceRows, StepBlocks, StepRows};
use crate::load::{Workshop, place, table_bytes};
use crate::lower::lower;
use crate::memory::HugePages;
use crate::mla::{MlaChoice, MlaForm};
use crate::needs::{Needs, StepShape};
use crate::plan::LatentPhase;
use crate::pool::Pool;
use crate::schedule::{Loaded, Schedule};
use crate::weights::Weights;
use crate::workspace::Workspace;

pub(crate) use made_up::Random;

/// The CPU's [`Model`]. Steps run one at a time.
pub(crate) struct CpuModel {
    program: Arc<Program>,
    schedule: Schedule,
    weights: Weights,
    kernels: Kernels,
    pool: Arc<Pool>,
    rotations: Vec<Rotation>,
    form: MlaChoice,
    /// Of all sessions.
    blocks: kv::Pool<HugePages>,
    state: Mutex<State>,
}

/// A rotation of the schedule, in numbers.
struct Rotation {
    /// Radians per position of each pair.
    frequencies: Vec<f64>,
    /// Factor on cosines and sines.
    magnitude: f64,
}

struct State {
    sessions: BTreeMap<SessionId, Session>,
    next: u64,
    workspace: Workspace,
    stats: StepStats,
}

struct Session {
    tables: Tables<HugePages>,
    /// `[cache]`.
    shapes: Arc<[CacheShape]>,
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
        let Workshop { pool, tuning, mla: form } = workshop;
        let (schedule, weights) = placed.load(&program, source, pool, progress)?;
        let rotation = |rope: &program::Rope| Rotation {
            frequencies: rope.frequencies(rope.factors.map(|id| weights.vector(id))),
            magnitude: f64::from(rope.magnitude()),
        };
        let rotations = schedule.ropes.iter().map(rotation).collect();
        let stats = StepStats {
            weight_bytes_per_step: schedule.phases.iter().map(Loaded::bytes_per_step).sum(),
            weight_memory: weights.bytes() + table_bytes(&schedule),
            ..StepStats::default()
        };
        let workspace = Workspace::new(&schedule, pool.n());
        let state = Mutex::new(State { sessions: BTreeMap::new(), next: 1, workspace, stats });
        let kernels = Kernels::pick(tuning.isa());
        let pool = Arc::clone(pool);
        let blocks = kv::Pool::new(HugePages, None);
        Ok(CpuModel { program, schedule, weights, kernels, pool, rotations, form, blocks, state })
    }

    /// Sessions of one family get the same bits from the same tokens, whatever else was fed. `None`: such a promise is not
    /// made.
    fn family(&self, options: &CacheOptions) -> Option<u64> {
        let chosen = |phase: &Loaded| matches!(phase, Loaded::Latent(_));
        let by_prompt = self.form == MlaChoice::Auto && self.schedule.phases.iter().any(chosen);
        let whole = RowRule::Sequence { whole: true };
        let looks_ahead = self.program.nodes.iter().any(|node| node.op.facts().rows == whole);
        let number = |ty| CacheType::ALL.iter().position(|known| *known == ty).unwrap_or(0) as u64;
        let n_types = CacheType::ALL.len() as u64;
        (!by_prompt && !looks_ahead).then(|| number(options.k) * n_types + number(options.v))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // a step that panicked changed no session: `extend` comes last
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn with<T>(&self, id: SessionId, f: impl FnOnce(&mut Session) -> Result<T>) -> Result<T> {
        f(self.lock().sessions.get_mut(&id).ok_or(Error::Session(id.0))?)
    }

    /// Check a step and say where its rows go.
    fn sequences(&self, state: &State, step: &Step<'_>) -> Result<Vec<SequenceRows>> {
        let mut rows = Vec::with_capacity(step.sequences.len());
        let mut first_row = 0;
        let table_rows = self.program.n_tokens();
        let refuse = |expected: &str, found| Error::Operand {
            op: "step".into(),
            expected: expected.into(),
            found,
        };
        for (i, sequence) in step.sequences.iter().enumerate() {
            let session =
                state.sessions.get(&sequence.session).ok_or(Error::Session(sequence.session.0))?;
            if step.sequences[..i].iter().any(|other| other.session == sequence.session) {
                return Err(refuse(
                    "distinct sessions",
                    format!("session {} twice", sequence.session.0),
                ));
            }
            if sequence.tokens.is_empty() {
                return Err(refuse("at least one token per sequence", "none".into()));
            }
            for &token in sequence.tokens {
                if table_rows.is_some_and(|rows| token as usize >= rows) {
                    return Err(Error::Token { token, vocab_size: table_rows.unwrap_or(0) });
                }
            }
            let (start, n) = (session.tables.len(), sequence.tokens.len());
            let capacity = session.tables.capacity();
            self.program.check_start(start)?;
            if start + n > capacity {
                return Err(Error::ContextFull { wanted: start + n, capacity });
            }
            rows.push(SequenceRows { first_row, n, start });
            first_row += n;
        }
        Ok(rows)
    }

    /// How latent attention is computed for each sequence.
    fn forms(&self, step: &Step<'_>) -> Vec<MlaForm> {
        let mut latents = self.schedule.phases.iter().filter_map(|phase| match phase {
            Loaded::Latent(latent) => Some(&latent.phase),
            _ => None,
        });
        let elides = latents.clone().all(LatentPhase::elides);
        let Some(dims) = latents.next().map(|latent| &latent.inputs.dims) else {
            return Vec::new();
        };
        let form = |sequence: &program::Sequence<'_>| {
            match self.form.choose(dims, sequence.prompt) {
                // the nearest form that computes such scores
                MlaForm::Elided if !elides => MlaForm::Absorbed,
                form => form,
            }
        };
        step.sequences.iter().map(form).collect()
    }

    fn angles(&self, sequences: &[SequenceRows]) -> Result<Vec<Angles>> {
        let positions = sequences.iter().flat_map(|s| s.start..s.start + s.n).map(|p| p as u32);
        let positions: Vec<u32> = positions.collect();
        let angles = |rotation: &Rotation| {
            let n_pairs = rotation.frequencies.len();
            let zeros = || -> Result<Vec<f32>> {
                let mut zeros = reserve(positions.len() * n_pairs, "the rotations")?;
                zeros.resize(positions.len() * n_pairs, 0.0);
                Ok(zeros)
            };
            let (mut cos, mut sin) = (zeros()?, zeros()?);
            rope_angles(&positions, &rotation.frequencies, rotation.magnitude, &mut cos, &mut sin);
            Ok(Angles { cos, sin, n_pairs })
        };
        self.rotations.iter().map(angles).collect()
    }

    /// Run the phases for rows whose cache blocks are prepared; `caches` are the sessions of `sequences`.
    fn run(
        &self,
        step: &Step<'_>,
        sequences: &[SequenceRows],
        caches: &mut [&mut Session],
        workspace: &mut Workspace,
    ) -> Result<StepOut> {
        let tokens: Vec<u32> = step.sequences.iter().flat_map(|s| s.tokens).copied().collect();
        let wanted = |(rows, sequence): (&SequenceRows, &program::Sequence<'_>)| {
            let end = rows.first_row + rows.n;
            end - sequence.outputs.count(rows.n)..end
        };
        let selected: Vec<usize> = sequences.iter().zip(step.sequences).flat_map(wanted).collect();
        let angles = self.angles(sequences)?;
        // sessions of one step may keep their caches in different types only if steps never mix them
        let shapes = caches.first().map_or_else(|| Arc::from([]), |s| Arc::clone(&s.shapes));
        if caches.iter().any(|s| s.shapes != shapes) {
            return Err(Error::Unsupported(
                "sessions with different cache types in one step".into(),
            ));
        }
        let forms = self.forms(step);
        let tables = caches.iter_mut().map(|session| &mut session.tables);
        let blocks = StepBlocks::new(tables, sequences, shapes.len());
        let shape = StepShape {
            n_tokens: tokens.len(),
            n_selected: selected.len(),
            caches: &shapes,
            rows: StepRows { sequences, forms: &forms },
        };
        let needs = Needs::of(&self.schedule, &shape, self.pool.n());
        let memory = workspace.prepare(&self.schedule, &needs)?;
        let exec = Exec {
            schedule: &self.schedule,
            weights: &self.weights,
            kernels: &self.kernels,
            tokens: &tokens,
            sequences,
            forms: &forms,
            selected: &selected,
            angles: &angles,
            attention: &shapes,
            blocks: &blocks,
            values: &memory.values,
            acts: memory.acts,
            inner: memory.inner,
            mixtures: memory.mixtures,
            partials: memory.partials,
            peaks: memory.peaks,
            latent: memory.latent,
            scratch: &memory.scratch,
            times: memory.times,
        };
        self.pool.run(&|worker| exec.run(&worker));
        let Some(out) = self.schedule.logits else { return Ok(StepOut::default()) };
        let rows = match out.rows {
            Rows::Tokens => tokens.len(),
            Rows::Selected => selected.len(),
        };
        // SAFETY: the workers are done.
        let logits = unsafe { memory.values[out.value.0 as usize].slice(0..rows * out.cols) };
        let n_peaks = out.cols.div_ceil(PEAK);
        // SAFETY: as above.
        let peaks = unsafe { memory.peaks.slice_mut(0..rows * n_peaks) };
        if !self.schedule.finds_peaks() {
            let rows =
                logits.chunks_exact(out.cols.max(1)).zip(peaks.chunks_exact_mut(n_peaks.max(1)));
            rows.for_each(|(logits, peaks)| self.kernels.peaks(logits, peaks));
        }
        if let Some(bad) = peaks.iter().position(|peak| !peak.is_finite()) {
            let row = bad / n_peaks;
            let row = if out.rows == Rows::Selected { selected[row] } else { row };
            let sequence = sequences.iter().rfind(|s| s.first_row <= row);
            let position = sequence.map_or(row, |s| s.start + row - s.first_row);
            return Err(Error::NonFinite { position });
        }
        let copy = |numbers: &[f32]| -> Result<Vec<f32>> {
            let mut copy = reserve(numbers.len(), "the logits")?;
            copy.extend_from_slice(numbers);
            Ok(copy)
        };
        Ok(StepOut { logits: copy(logits)?, vocab_size: out.cols, peaks: copy(peaks)? })
    }
}

/// An empty list with room for `len` numbers.
fn reserve(len: usize, what: &'static str) -> Result<Vec<f32>> {
    let mut list = Vec::new();
    list.try_reserve_exact(len).map_err(|_| Error::Memory { what, bytes: 4 * len as u64 })?;
    Ok(list)
}

fn cache_error(error: kv::Error) -> Error {
    match error {
        kv::Error::Capacity { capacity, wanted } => Error::ContextFull { wanted, capacity },
        kv::Error::Length { len, wanted } => Error::Length { len, wanted },
        kv::Error::Memory { bytes } | kv::Error::Budget { bytes, .. } => {
            Error::Memory { what: "the cache", bytes: bytes as u64 }
        }
        other => Error::Unsupported(other.to_string()),
    }
}

impl Model for CpuModel {
    fn program(&self) -> &Arc<Program> {
        &self.program
    }

    fn open(&self, options: &CacheOptions) -> Result<SessionId> {
        let shapes = cache_shapes(&self.schedule, options)?;
        let specs = shapes.iter().map(CacheShape::table).collect();
        let family = self.family(options);
        let tables = Tables::new(&self.blocks, specs, options.capacity, family);
        Ok(self.lock().insert(Session { tables, shapes }))
    }

    fn close(&self, id: SessionId) {
        self.lock().sessions.remove(&id);
        self.blocks.trim();
    }

    fn step(&self, step: &Step<'_>) -> Result<StepOut> {
        let started = Instant::now();
        let state = &mut *self.lock();
        let sequences = self.sequences(state, step)?;
        if sequences.is_empty() {
            return Ok(StepOut::new(Vec::new(), self.program.vocab_size()));
        }
        let State { sessions, workspace, stats, .. } = state;
        let place = |id: &SessionId| step.sequences.iter().position(|s| s.session == *id);
        let mut caches: Vec<(usize, &mut Session)> =
            sessions.iter_mut().filter_map(|(id, session)| Some((place(id)?, session))).collect();
        caches.sort_by_key(|(place, _)| *place);
        let mut caches: Vec<&mut Session> =
            caches.into_iter().map(|(_, session)| session).collect();
        let prepared = caches.iter_mut().zip(&sequences).try_for_each(|(session, rows)| {
            session.tables.prepare(rows.start + rows.n).map_err(cache_error)
        });
        let done = prepared.and_then(|()| self.run(step, &sequences, &mut caches, workspace));
        for (session, sequence) in caches.iter_mut().zip(step.sequences) {
            match done {
                Ok(_) => session.tables.extend(sequence.tokens).map_err(cache_error)?,
                Err(_) => session.tables.abandon(),
            }
        }
        if done.is_ok() {
            stats.steps += 1;
            stats.rows += sequences.iter().map(|s| s.n as u64).sum::<u64>();
            stats.busy += started.elapsed();
        }
        done
    }

    fn len(&self, id: SessionId) -> Result<usize> {
        self.with(id, |session| Ok(session.tables.len()))
    }

    fn commit(&self, id: SessionId, len: usize) -> Result<()> {
        self.with(id, |session| session.tables.commit(len).map_err(cache_error))
    }

    fn truncate(&self, id: SessionId, len: usize) -> Result<usize> {
        self.with(id, |session| session.tables.truncate(len).map_err(cache_error))
    }

    fn fork(&self, id: SessionId, len: usize) -> Result<SessionId> {
        let state = &mut *self.lock();
        let session = state.sessions.get(&id).ok_or(Error::Session(id.0))?;
        let tables = session.tables.fork(len).map_err(cache_error)?;
        let fork = Session { tables, shapes: Arc::clone(&session.shapes) };
        Ok(state.insert(fork))
    }

    fn reuse(&self, id: SessionId, tokens: &[u32]) -> Result<usize> {
        self.with(id, |session| Ok(session.tables.adopt(tokens)))
    }

    fn cache_bytes(&self, id: SessionId) -> Result<u64> {
        self.with(id, |session| Ok(session.tables.bytes()))
    }

    fn stats(&self) -> StepStats {
        let state = self.lock();
        let times = state.workspace.times().iter().zip(&self.schedule.phases);
        let last_step = times.map(|(elapsed, phase)| PhaseTime {
            name: phase.name(&self.program),
            kind: phase.kind(),
            elapsed: *elapsed,
            weight_bytes: phase.bytes_per_step(),
        });
        StepStats { last_step: last_step.collect(), ..state.stats.clone() }
    }
}

impl State {
    fn insert(&mut self, session: Session) -> SessionId {
        let id = SessionId(self.next);
        self.next += 1;
        self.sessions.insert(id, session);
        id
    }
}
