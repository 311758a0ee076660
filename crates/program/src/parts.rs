//! [`Parts`]: a model whose parts run on several devices, one after another, or two at once.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crate::{
    CacheOptions, Error, Executor, Held, Kept, KvPolicy, Model, Outputs, Part, PhaseTime,
    Placement, Program, Progress, Result, RowsOut, Sequence, SessionId, Sessions, Step, StepOut,
    StepStats, ValueId, Wanted, WeightSource, split,
};

/// Loaded parts of a program. A session of it has one in every part; a step goes through the parts in order, and each
/// hands its rows on. A part of whose rows the next one, on another device, reads nothing runs while that does.
pub struct Parts {
    program: Arc<Program>,
    parts: Arc<[Loaded]>,
    sessions: Sessions<Chain>,
    /// Held for the time of a step.
    running: Mutex<()>,
    stats: Mutex<StepStats>,
}

struct Loaded {
    part: Part,
    model: Box<dyn Model>,
    /// It runs while the next part does.
    is_beside: bool,
}

/// Whether `part` can run while `next` does.
fn is_beside(part: &Part, next: &Part) -> bool {
    part.device != next.device && !part.outputs.iter().any(|id| next.inputs.contains(id))
}

/// A session: one in every part, which close with it.
struct Chain {
    parts: Arc<[Loaded]>,
    ids: Vec<SessionId>,
}

impl Chain {
    fn each(&self) -> impl Iterator<Item = (&dyn Model, SessionId)> {
        self.parts.iter().zip(&self.ids).map(|(loaded, id)| (&*loaded.model, *id))
    }

    /// Sessions that `make` makes in every part.
    fn make(
        parts: &Arc<[Loaded]>,
        make: impl Fn(usize, &dyn Model) -> Result<SessionId>,
    ) -> Result<Chain> {
        let mut chain = Chain { parts: Arc::clone(parts), ids: Vec::new() };
        for (index, loaded) in parts.iter().enumerate() {
            // what was opened so far is closed with the chain
            chain.ids.push(make(index, &*loaded.model)?);
        }
        Ok(chain)
    }

    /// Keep the first `len` positions in every part, or as many as all of them can keep.
    fn keep(&self, mut len: usize) -> Result<usize> {
        loop {
            let mut kept = len;
            for (model, id) in self.each() {
                kept = kept.min(model.truncate(id, kept)?);
            }
            if kept == len {
                return Ok(kept);
            }
            // some part kept less: those before it follow
            len = kept;
        }
    }

    /// Positions held, the same in every part: a step that panicked may have left some ahead of others.
    fn settle(&self) -> Result<usize> {
        let held = self.positions();
        match self.each().all(|(model, id)| model.len(id) == Ok(held)) {
            true => Ok(held),
            false => self.keep(held),
        }
    }

    /// Positions before a step, which every part holds.
    fn before(&self) -> Result<usize> {
        let wanted = self.positions();
        let start = self.settle()?;
        if start < wanted {
            // a step that panicked may have left it so: its rows are gone
            return Err(Error::Length { len: start, wanted });
        }
        Ok(start)
    }
}

impl Drop for Chain {
    fn drop(&mut self) {
        self.each().for_each(|(model, id)| model.close(id));
    }
}

impl Kept for Chain {
    fn positions(&self) -> usize {
        self.each().filter_map(|(model, id)| model.len(id).ok()).min().unwrap_or(0)
    }

    fn bytes(&self) -> u64 {
        self.each().filter_map(|(model, id)| model.cache_bytes(id).ok()).sum()
    }
}

/// A sequence on its way through the parts.
struct Running<'a> {
    sequence: &'a Sequence<'a>,
    session: Held<'a, Chain>,
    /// Positions that it held before.
    start: usize,
    /// By value of the whole program: what the caller and the parts so far have given.
    rows: HashMap<ValueId, Vec<f32>>,
    out: Result<RowsOut>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // counters change last
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Parts {
    /// Split `program` and load each part on its device: `devices` is indexed by the numbers of the placement.
    ///
    /// # Errors
    /// Those of [`split`] and of [`Executor::load`]; [`Error::Unsupported`] for a device that is not there.
    pub fn load(
        program: Arc<Program>,
        placement: &Placement,
        devices: &[&dyn Executor],
        weights: &dyn WeightSource,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Parts> {
        let device = |part: &Part| {
            let missing = || format!("device {} of {}", part.device, devices.len());
            devices.get(part.device).copied().ok_or_else(|| Error::Unsupported(missing()))
        };
        let parts = split(&program, placement)?;
        let devices = parts.iter().map(device).collect::<Result<Vec<_>>>()?;
        Self::load_each(program, parts.into_iter().zip(devices).collect(), weights, progress)
    }

    /// Load each part of `program` by an executor of its own.
    ///
    /// # Errors
    /// Those of [`Executor::load`].
    pub(crate) fn load_each(
        program: Arc<Program>,
        parts: Vec<(Part, &dyn Executor)>,
        weights: &dyn WeightSource,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Parts> {
        let bytes = |part: &Part| part.program.weight_bytes();
        let total = parts.iter().map(|(part, _)| bytes(part)).sum();
        let mut beside = vec![false; parts.len()];
        for i in (1..parts.len()).rev() {
            // two at once, not three
            beside[i - 1] = !beside[i] && is_beside(&parts[i - 1].0, &parts[i].0);
        }
        let mut before = 0;
        let mut load = |((part, executor), is_beside): ((Part, &dyn Executor), bool)| {
            let mut progress = |of: Progress| progress(Progress { done: before + of.done, total });
            let model = executor.load(Arc::new(part.program.clone()), weights, &mut progress)?;
            before += bytes(&part);
            Ok(Loaded { part, model, is_beside })
        };
        let parts = parts.into_iter().zip(beside).map(&mut load).collect::<Result<Vec<_>>>()?;
        Ok(Parts {
            program,
            parts: parts.into(),
            sessions: Sessions::default(),
            running: Mutex::default(),
            stats: Mutex::default(),
        })
    }

    /// One part of a step, for the sequences that have not failed: what it yields for these, in their order. `beside` as
    /// [`Model::step_beside`] has it.
    fn run(
        &self,
        index: usize,
        running: &[Running<'_>],
        go_on: &(dyn Fn() -> bool + Sync),
        beside: Option<&mut dyn FnMut()>,
    ) -> Result<StepOut> {
        let Loaded { part, model, .. } = &self.parts[index];
        let last = index + 1 == self.parts.len();
        let alive = || running.iter().filter(|one| one.out.is_ok());
        let rows: Vec<Vec<&[f32]>> =
            alive().map(|one| part.inputs.iter().map(|id| &*one.rows[id]).collect()).collect();
        let sequences = alive().zip(&rows).map(|(one, rows)| Sequence {
            session: one.session.ids[index],
            outputs: Outputs {
                what: if last { one.sequence.outputs.what } else { Wanted::Rows },
                ..one.sequence.outputs
            },
            rows,
            ..*one.sequence
        });
        let sequences: Vec<Sequence<'_>> = sequences.collect();
        let step = Step { sequences: &sequences };
        match beside {
            _ if sequences.is_empty() => Ok(StepOut { sequences: Vec::new() }),
            Some(beside) => model.step_beside(&step, go_on, beside),
            None => model.step_while(&step, go_on),
        }
    }

    /// Some parts of a step from this one on, and how many: two where this one runs beside the next.
    fn pass(
        &self,
        index: usize,
        running: &mut [Running<'_>],
        go_on: &(dyn Fn() -> bool + Sync),
    ) -> Result<usize> {
        let mut other = None;
        let out = if self.parts[index].is_beside {
            let mut beside = || other = Some(self.run(index + 1, running, go_on, None));
            self.run(index, running, go_on, Some(&mut beside))
        } else {
            self.run(index, running, go_on, None)
        };
        let outs = [Some(out), other].into_iter().flatten().collect::<Result<Vec<_>>>()?;
        let n = outs.len();
        let mut outs: Vec<_> = outs.into_iter().map(|out| out.sequences.into_iter()).collect();
        for one in running.iter_mut().filter(|one| one.out.is_ok()) {
            for (part, outs) in (index..).zip(&mut outs) {
                match outs.next().expect("one for each that ran") {
                    Ok(RowsOut::Rows(rows)) if part + 1 < self.parts.len() => {
                        let outputs = &self.parts[part].part.outputs;
                        one.rows.extend(outputs.iter().copied().zip(rows));
                    }
                    out if one.out.is_ok() => one.out = out,
                    _ => {}
                }
            }
        }
        Ok(n)
    }
}

impl Model for Parts {
    fn program(&self) -> &Arc<Program> {
        &self.program
    }

    fn open(&self, options: &CacheOptions) -> Result<SessionId> {
        if let KvPolicy::Memory(memory) = options.policy
            && memory.layer_step > 1
            && self.parts.len() > 1
        {
            let why = "a context memory whose choices serve several layers, in a model in parts";
            return Err(Error::Unsupported(why.into()));
        }
        let chain = Chain::make(&self.parts, |_, model| model.open(options))?;
        Ok(self.sessions.open(chain))
    }

    fn close(&self, id: SessionId) {
        self.sessions.close(id);
    }

    fn step(&self, step: &Step<'_>) -> Result<StepOut> {
        self.step_while(step, &|| true)
    }

    fn step_while(&self, step: &Step<'_>, go_on: &(dyn Fn() -> bool + Sync)) -> Result<StepOut> {
        let started = Instant::now();
        step.check()?;
        let _running = lock(&self.running);
        let slots: Vec<_> = step.sequences.iter().map(|s| self.sessions.find(s.session)).collect();
        let (mut running, mut admitted) = (Vec::new(), Vec::new());
        for (sequence, slot) in step.sequences.iter().zip(&slots) {
            let one = slot.as_ref().map_err(Error::clone).and_then(|slot| {
                sequence.check_rows(&self.program)?;
                let session = slot.hold();
                let start = session.before()?;
                let given = self.program.inputs.iter().copied().zip(sequence.rows);
                let rows = given.map(|(id, rows)| (id, rows.to_vec())).collect();
                let out = Ok(RowsOut::none(sequence.outputs.what));
                Ok(Running { sequence, session, start, rows, out })
            });
            admitted.push(one.map(|one| running.push(one)));
        }
        let mut next = 0;
        while next < self.parts.len() {
            let passed = self.pass(next, &mut running, go_on);
            for one in &mut running {
                if passed.is_err() || one.out.is_err() {
                    // no part is further than a step; what failed first is told
                    let _ = one.session.keep(one.start);
                }
            }
            next += passed?;
        }
        let mut stats = lock(&self.stats);
        stats.steps += u64::from(!running.is_empty());
        stats.rows += running.iter().map(|one| one.sequence.tokens.len() as u64).sum::<u64>();
        stats.busy += started.elapsed();
        let mut rows = running.into_iter().map(|one| one.out);
        let out = |one: Result<()>| one.and_then(|()| rows.next().expect("it ran"));
        Ok(StepOut { sequences: admitted.into_iter().map(out).collect() })
    }

    fn most_candidates(&self) -> usize {
        self.parts.last().map_or(0, |last| last.model.most_candidates())
    }

    fn len(&self, id: SessionId) -> Result<usize> {
        Ok(self.sessions.find(id)?.positions())
    }

    fn commit(&self, id: SessionId, len: usize) -> Result<()> {
        self.sessions
            .with(id, |chain| chain.each().try_for_each(|(model, id)| model.commit(id, len)))
    }

    fn make_up(&self, id: SessionId, len: usize) -> Result<()> {
        self.sessions
            .with(id, |chain| chain.each().try_for_each(|(model, id)| model.make_up(id, len)))
    }

    fn truncate(&self, id: SessionId, len: usize) -> Result<usize> {
        self.sessions.with(id, |chain| chain.keep(len))
    }

    fn fork(&self, id: SessionId, len: usize) -> Result<SessionId> {
        let fork = self.sessions.with(id, |chain| {
            Chain::make(&self.parts, |index, model| model.fork(chain.ids[index], len))
        })?;
        fork.keep(fork.positions())?;
        Ok(self.sessions.open(fork))
    }

    fn cache_bytes(&self, id: SessionId) -> Result<u64> {
        Ok(self.sessions.find(id)?.bytes())
    }

    fn stats(&self) -> StepStats {
        let parts = self.parts.iter().map(|loaded| loaded.model.stats());
        parts.fold(*lock(&self.stats), |all, part| StepStats {
            weight_bytes_per_step: all.weight_bytes_per_step + part.weight_bytes_per_step,
            weight_memory: all.weight_memory + part.weight_memory,
            spilled: all.spilled.and(part.spilled),
            ..all
        })
    }

    fn phases(&self) -> Vec<PhaseTime> {
        self.parts.iter().flat_map(|loaded| loaded.model.phases()).collect()
    }

    fn time_phases(&self, on: bool) {
        self.parts.iter().for_each(|loaded| loaded.model.time_phases(on));
    }
}
