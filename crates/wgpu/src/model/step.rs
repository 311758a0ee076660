//! A step: which of its sequences can run, the submission that runs them, what each of them yields.

use std::time::Instant;

use kv::StepPlace;
use program::{
    Among, Error, Held, OpenSession, OutputKind, Result, RowsOut, Sequence, Step, StepOut,
};

use super::results::{Readback, n_best};
use super::{GpuModel, Session, cache_error, lock};
use crate::backend::{Command, Stamping, Work, Write};
use crate::batch::{Batch, Rowed};
use crate::device::DeviceCounters;
use crate::dispatch::Launch;
use crate::kernels::StoredTypes;
use crate::timing;
use crate::workspace::StepMemory;

/// A sequence that runs.
pub(super) struct Running<'s, 'h> {
    pub(super) sequence: &'s Sequence<'s>,
    /// What the likeliest tokens of its rows are looked for among: nothing, or one for each.
    pub(super) among: &'s [Among<'s>],
    session: Held<'h, Session>,
    /// Positions the session held before.
    start: usize,
    /// What it yields; nothing before its submission.
    rows: Option<Result<RowsOut>>,
}

impl<'s, 'h> Running<'s, 'h> {
    /// One whose caches are prepared.
    pub(super) fn new(
        sequence: &'s Sequence<'s>,
        session: Held<'h, Session>,
        start: usize,
    ) -> Running<'s, 'h> {
        Running { sequence, among: &[], session, start, rows: None }
    }

    /// Its session.
    pub(super) fn into_session(self) -> Held<'h, Session> {
        self.session
    }

    /// The position of the first row that yields something.
    pub(super) fn first_wanted(&self) -> usize {
        self.start + self.sequence.outputs.range(self.sequence.tokens.len()).start
    }
}

impl GpuModel {
    /// What [`program::Model::step`] promises, and [`program::Model::step_among`]: `among` has nothing, or something for
    /// each sequence. `beside` is called once, while the device computes.
    pub(super) fn run_step(
        &self,
        step: &Step<'_>,
        among: &[&[Among<'_>]],
        mut beside: Option<&mut dyn FnMut()>,
    ) -> Result<StepOut> {
        step.check()?;
        let workspace = &mut *lock(&self.workspace);
        self.timer.forget();
        let started = Instant::now();
        let slots: Vec<_> = step.sequences.iter().map(|s| self.sessions.find(s.session)).collect();
        let (mut running, mut admitted) = (Vec::new(), Vec::new());
        for (i, (sequence, slot)) in step.sequences.iter().zip(&slots).enumerate() {
            let slot = slot.as_ref().map_err(Error::clone);
            let one = slot.and_then(|slot| self.admit(sequence, slot, workspace));
            let among = among.get(i).copied().unwrap_or_default();
            admitted.push(one.map(|one| running.push(Running { among, ..one })));
        }
        let done = self.submissions(&mut running, workspace, &mut beside);
        if matches!(done, Err(Error::Memory { .. })) {
            // what was to be filled is not there: nobody may be given a place in it
            running.iter_mut().for_each(|one| one.session.tables.abandon());
            self.pool.give_back();
        }
        // every session is settled, whatever becomes of another
        for one in &mut running {
            let Session { tables, most_rows, .. } = &mut *one.session;
            let entered = match (&done, &one.rows) {
                (Ok(()), Some(Ok(_))) => {
                    *most_rows = one.sequence.tokens.len().max(*most_rows);
                    tables.extend(one.sequence.tokens)
                }
                _ => {
                    tables.abandon();
                    Ok(())
                }
            };
            if let Err(error) = entered {
                tables.abandon();
                one.rows = Some(Err(cache_error(error)));
            }
        }
        done?;
        if !running.is_empty() {
            let mut stats = lock(&self.stats);
            stats.steps += 1;
            stats.rows += running.iter().map(|r| r.sequence.tokens.len() as u64).sum::<u64>();
            stats.busy += started.elapsed();
        }
        let mut rows = running.into_iter().map(|one| one.rows.expect("its submission ran"));
        let out = |one: Result<()>| one.and_then(|()| rows.next().expect("it ran"));
        Ok(StepOut { sequences: admitted.into_iter().map(out).collect() })
    }

    /// Take a sequence's session and make room in its cache.
    fn admit<'s, 'h>(
        &self,
        sequence: &'s Sequence<'s>,
        slot: &'h OpenSession<Session>,
        workspace: &mut StepMemory,
    ) -> Result<Running<'s, 'h>> {
        let mut session = slot.hold();
        let start = session.tables.len();
        sequence.check(&self.program, start, session.tables.capacity())?;
        // a step that panicked may have left blocks
        session.tables.abandon();
        let new_len = start + sequence.tokens.len();
        let place = StepPlace {
            begins_prompt: sequence.prompt.is_some_and(|p| p.start == start),
            ends_prompt: sequence.prompt.is_some_and(|p| p.start + p.len == new_len),
            made_up: false,
        };
        let session = self.ready(session, new_len, place, workspace)?;
        Ok(Running::new(sequence, session, start))
    }

    /// Run one sequence alone, which yields nothing that anybody wants.
    pub(super) fn submission_of(
        &self,
        running: &mut Running<'_, '_>,
        workspace: &mut StepMemory,
    ) -> Result<()> {
        let kept = running.session.kept;
        self.submission(&mut [running], kept, workspace, &mut None)
    }

    /// Run all sequences: one submission for those whose caches are kept alike.
    fn submissions(
        &self,
        running: &mut [Running<'_, '_>],
        workspace: &mut StepMemory,
        beside: &mut Option<&mut dyn FnMut()>,
    ) -> Result<()> {
        let mut alike: Vec<(StoredTypes, Vec<&mut Running<'_, '_>>)> = Vec::new();
        for one in running {
            let kept = one.session.kept;
            match alike.iter_mut().find(|(its, _)| *its == kept) {
                Some((_, all)) => all.push(one),
                None => alike.push((kept, vec![one])),
            }
        }
        alike.iter_mut().try_for_each(|(kept, all)| self.submission(all, *kept, workspace, beside))
    }

    /// One submission and one read-back; between the two `beside` is called, if nobody has.
    fn submission(
        &self,
        running: &mut [&mut Running<'_, '_>],
        kept: StoredTypes,
        workspace: &mut StepMemory,
        beside: &mut Option<&mut dyn FnMut()>,
    ) -> Result<()> {
        let gpu = &self.gpu;
        gpu.check()?;
        let rowed = running.iter_mut().map(|one| Rowed {
            sequence: one.sequence,
            among: one.among,
            start: one.start,
            tables: &mut one.session.tables,
        });
        let mut rowed: Vec<_> = rowed.collect();
        let sequences: Vec<&Sequence<'_>> = rowed.iter().map(|one| one.sequence).collect();
        let n_best = n_best(&self.plan, &sequences);
        let batch = Batch::new(&self.plan, &self.numbers, &mut rowed, n_best)?;
        let clock = self.timer.begin(gpu, self.dispatches.len())?;
        let clock = clock.as_ref();
        let n_stamps = clock.map_or(0, |clock| clock.stamps.count(self.dispatches.len()));
        let readback = Readback::of(&self.plan, &batch, &sequences, n_stamps);
        let loaded = self.loaded();
        workspace.prepare(&loaded, &batch, readback.bytes())?;
        if let Err(Error::Memory { .. }) = workspace.caches(gpu, &self.slabs, self.budget) {
            // what nobody holds may be what there is no memory for
            self.pool.give_back();
            workspace.caches(gpu, &self.slabs, self.budget)?;
        }
        workspace.bind(&loaded)?;
        let launches = self.launches(&batch, kept, &sequences)?;
        let mut commands: Vec<_> = (launches.iter())
            .map(|(i, Launch { kernel, groups })| Command::Dispatch {
                kernel,
                bindings: workspace.bindings(*i),
                groups: *groups,
            })
            .collect();
        commands.extend(readback.copies(workspace, &self.slots));
        let bytes = bytemuck::cast_slice(&batch.words);
        let mut writes = vec![Write { to: workspace.words(), at: 0, bytes }];
        writes.extend(self.inputs(workspace, &sequences));
        let stamping = clock.map(|clock| Stamping {
            clock: &clock.handle,
            stamps: clock.stamps,
            to: workspace.readback(),
            at: readback.stamps_at(),
        });
        let (writes, commands) = (&writes[..], &commands[..]);
        let ticket = gpu.submit(&Work { what: "a step", writes, commands, stamping })?;
        DeviceCounters::add(&gpu.counts.submissions, 1);
        DeviceCounters::add(&gpu.counts.dispatches, launches.len() as u64);
        if let Some(beside) = beside.take() {
            beside();
        }
        let found = gpu.read(&ticket, workspace.readback(), readback.bytes())?;
        if let Some(stamps) = clock.map(|clock| clock.stamps) {
            let ticks = readback.stamps(&found, stamps.count(launches.len()));
            let ran: Vec<_> = launches.iter().map(|(i, _)| &self.dispatches[*i]).collect();
            let phase = |work| timing::phase(&self.program, &self.plan, &batch, work);
            self.timer.keep(gpu, (stamps, &ticks), &ran, &phase);
        }
        for (i, one) in running.iter_mut().enumerate() {
            one.rows = Some(readback.rows_out(&batch, &found, i, one));
        }
        Ok(())
    }

    /// The dispatches of a step, by their indexes.
    fn launches(
        &self,
        batch: &Batch,
        kept: StoredTypes,
        sequences: &[&Sequence<'_>],
    ) -> Result<Vec<(usize, Launch)>> {
        let needs_logits = sequences.iter().any(|sequence| sequence.outputs.needs_logits());
        let is_handed = sequences.iter().any(|sequence| sequence.outputs.needs_rows());
        let logits = self.plan.output(OutputKind::Logits).map(|(_, place, _)| place.buffer);
        let skipped = logits.filter(|_| !needs_logits && !is_handed);
        let mut launches = Vec::with_capacity(self.dispatches.len());
        for (i, dispatch) in self.dispatches.iter().enumerate() {
            if Some(dispatch.out) == skipped {
                continue;
            }
            launches.extend(dispatch.launch(&self.gpu, batch, kept)?.map(|launch| (i, launch)));
        }
        Ok(launches)
    }

    /// The rows that the sequences give, to where dispatches read them.
    fn inputs<'a>(
        &'a self,
        workspace: &'a StepMemory,
        sequences: &'a [&Sequence<'_>],
    ) -> impl Iterator<Item = Write<'a>> {
        self.plan.inputs.iter().enumerate().flat_map(move |(i, (place, spec))| {
            let to = workspace.slot(self.slots.of(place.buffer));
            let rows = sequences.iter().flat_map(move |s| s.rows[i].chunks_exact(spec.cols.max(1)));
            rows.enumerate().map(move |(row, numbers)| {
                let at = 4 * (row * spec.stride()) as u64;
                Write { to, at, bytes: bytemuck::cast_slice(numbers) }
            })
        })
    }
}
