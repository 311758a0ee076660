//! A step: which of its sequences can run, the passes over the weights that run them, what each of them yields.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use kernels::rows::rope_angles;
use kv::{DiskError, StepPlace};
use program::{
    CandidateRows, ContextMemory, Error, Held, HiddenRows, LogitRows, MeterReading, OpenSession,
    OutputRows, Outputs, PEAK, Result, Rows, RowsOut, Sequence, SessionId, Step, StepOut, Wanted,
};

use super::restore::{ATTEMPTS, disk_error};
use super::{CpuModel, Rotation, Session, cache_error, lock};
use crate::cache::CacheShape;
use crate::exec::{Angles, Exec, GoOn, SequenceRows, StepBlocks, StepRows};
use crate::needs::{Needs, StepShape};
use crate::plan::Operand;
use crate::workspace::Workspace;

/// A sequence that runs.
pub(super) struct Running<'s, 'h> {
    pub(super) sequence: &'s Sequence<'s>,
    pub(super) session: Held<'h, Session>,
    /// Positions the session held before.
    pub(super) start: usize,
    /// What it yields; nothing before its pass.
    pub(super) rows: Option<Result<RowsOut>>,
    /// What its policy left out where that was measured.
    pub(super) readings: Vec<MeterReading>,
}

/// Why passes came to nothing.
pub(super) enum Ended {
    Failed(Error),
    /// Rows of sessions are lost, which say so: they have to be computed again.
    Lost(DiskError),
}

impl From<Error> for Ended {
    fn from(error: Error) -> Ended {
        Ended::Failed(error)
    }
}

/// The rows of a pass.
struct Batch<'a> {
    sequences: Vec<&'a Sequence<'a>>,
    /// `[sequence]`.
    rows: Vec<SequenceRows>,
    tokens: Vec<u32>,
    /// Rows whose outputs are wanted.
    selected: Vec<usize>,
    /// `[sequence]`: its rows among the selected ones.
    places: Vec<Range<usize>>,
}

impl<'a> Batch<'a> {
    fn new(running: &[&mut Running<'a, '_>]) -> Batch<'a> {
        let (mut tokens, mut rows) = (Vec::new(), Vec::new());
        let (mut selected, mut places) = (Vec::new(), Vec::new());
        for Running { sequence, start, .. } in running.iter().map(|running| &**running) {
            let n = sequence.tokens.len();
            rows.push(SequenceRows { first_row: tokens.len(), n, start: *start });
            tokens.extend_from_slice(sequence.tokens);
            let first = selected.len();
            selected.extend(sequence.outputs.range(n).map(|row| tokens.len() - n + row));
            places.push(first..selected.len());
        }
        let sequences = running.iter().map(|running| running.sequence).collect();
        Batch { sequences, rows, tokens, selected, places }
    }

    /// Whether the output head has to run.
    fn needs_logits(&self) -> bool {
        self.sequences.iter().any(|sequence| sequence.outputs.needs_logits())
    }

    /// Whether someone wants hidden rows.
    fn needs_hidden(&self) -> bool {
        self.sequences.iter().any(|sequence| sequence.outputs.what == Wanted::Hidden)
    }

    fn rows_of(&self, rows: Rows) -> usize {
        match rows {
            Rows::Tokens => self.tokens.len(),
            Rows::Selected => self.selected.len(),
        }
    }

    /// Where the wanted rows of sequence `i` lie in a value of such rows.
    fn wanted(&self, i: usize, rows: Rows) -> Range<usize> {
        let SequenceRows { first_row, n, .. } = self.rows[i];
        let wanted = self.sequences[i].outputs.range(n);
        match rows {
            Rows::Tokens => first_row + wanted.start..first_row + wanted.end,
            Rows::Selected => self.places[i].clone(),
        }
    }

    /// Where the rows of sequence `i` that go on to another part lie: all, or those that are wanted.
    fn handed(&self, i: usize, rows: Rows) -> Range<usize> {
        let SequenceRows { first_row, n, .. } = self.rows[i];
        match rows {
            Rows::Tokens => first_row..first_row + n,
            Rows::Selected => self.places[i].clone(),
        }
    }

    /// Refuse the wanted rows of sequence `i`, `cols` numbers each, if one of them is not finite.
    fn check_finite(&self, i: usize, numbers: &[f32], cols: usize) -> Result<()> {
        match numbers.iter().position(|x| !x.is_finite()) {
            Some(bad) => {
                let SequenceRows { n, start, .. } = self.rows[i];
                let first = start + self.sequences[i].outputs.range(n).start;
                Err(Error::NonFinite { position: first + bad / cols })
            }
            None => Ok(()),
        }
    }
}

/// A value that a pass has computed.
#[derive(Clone, Copy)]
struct Computed<'a> {
    numbers: &'a [f32],
    cols: usize,
}

impl<'a> Computed<'a> {
    fn rows(&self, rows: Range<usize>) -> &'a [f32] {
        &self.numbers[rows.start * self.cols..rows.end * self.cols]
    }
}

impl CpuModel {
    /// What [`program::Model::step_while`] promises.
    pub(super) fn run_step(&self, step: &Step<'_>, go_on: GoOn<'_>) -> Result<StepOut> {
        step.check()?;
        let workspace = &mut *lock(&self.workspace);
        let mut attempts = 0;
        loop {
            match self.try_step(step, workspace, go_on) {
                Ok(out) => return Ok(out),
                Err(Ended::Failed(error)) => return Err(error),
                Err(Ended::Lost(_)) if attempts < ATTEMPTS => attempts += 1,
                Err(Ended::Lost(reason)) => return Err(disk_error(&reason)),
            }
        }
    }

    /// Run a step, unless it finds out that rows are lost: sessions then wait for these to be computed again.
    fn try_step(
        &self,
        step: &Step<'_>,
        workspace: &mut Workspace,
        go_on: GoOn<'_>,
    ) -> Result<StepOut, Ended> {
        let started = Instant::now();
        let asked: Vec<_> = step.sequences.iter().map(|s| s.session).collect();
        let slots: Vec<_> = step.sequences.iter().map(|s| self.sessions.find(s.session)).collect();
        let mut running = Vec::new();
        let mut admitted = Vec::new();
        for (sequence, slot) in step.sequences.iter().zip(&slots) {
            let slot = slot.as_ref().map_err(Error::clone);
            let one = slot.and_then(|slot| self.admit(sequence, slot, &asked, workspace));
            admitted.push(one.map(|one| running.push(one)));
        }
        workspace.clear_counts();
        let done = self.passes(&mut running, workspace, go_on);
        // every session is settled, whatever becomes of another
        for one in &mut running {
            let entered = match (&done, &one.rows) {
                (Ok(()), Some(Ok(_))) => {
                    let readings = std::mem::take(&mut one.readings);
                    one.session.readings.add(readings);
                    one.session.tables.extend(one.sequence.tokens)
                }
                _ => {
                    one.session.tables.abandon();
                    Ok(())
                }
            };
            if let Err(error) = entered {
                one.session.tables.abandon();
                one.rows = Some(Err(cache_error(error)));
            }
        }
        done?;
        if !running.is_empty() {
            let mut counters = lock(&self.counters);
            counters.stats.steps += 1;
            counters.stats.rows +=
                running.iter().map(|r| r.sequence.tokens.len() as u64).sum::<u64>();
            counters.stats.busy += started.elapsed();
            let times = workspace.times().iter().enumerate();
            counters.phases = times.map(|(i, time)| (*time, workspace.read(i))).collect();
        }
        let mut rows = running.into_iter().map(|one| one.rows.expect("its pass ran"));
        let out = |one: Result<()>| one.and_then(|()| rows.next().expect("it ran"));
        Ok(StepOut { sequences: admitted.into_iter().map(out).collect() })
    }

    /// Take a sequence's session and make room in its cache; `asked`: the sessions of the step.
    fn admit<'s, 'h>(
        &self,
        sequence: &'s Sequence<'s>,
        slot: &'h Arc<OpenSession<Session>>,
        asked: &[SessionId],
        workspace: &mut Workspace,
    ) -> Result<Running<'s, 'h>> {
        let mut session = slot.hold();
        let start = session.tables.len();
        sequence.check(&self.program, start, session.tables.capacity())?;
        session.used = self.next_use();
        let new_len = start + sequence.tokens.len();
        let place = StepPlace {
            begins_prompt: sequence.prompt.is_some_and(|p| p.start == start),
            ends_prompt: sequence.prompt.is_some_and(|p| p.start + p.len == new_len),
            made_up: false,
        };
        let session = self.ready(session, new_len, place, asked, workspace)?;
        Ok(Running { sequence, session, start, rows: None, readings: Vec::new() })
    }

    /// Run all sequences: one pass for those whose caches are kept alike.
    fn passes(
        &self,
        running: &mut [Running<'_, '_>],
        workspace: &mut Workspace,
        go_on: GoOn<'_>,
    ) -> Result<(), Ended> {
        let mut passes: Vec<Vec<&mut Running<'_, '_>>> = Vec::new();
        for one in running {
            let alike = |pass: &&mut Vec<&mut Running<'_, '_>>| {
                pass[0].session.shapes == one.session.shapes
            };
            match passes.iter_mut().find(alike) {
                Some(pass) => pass.push(one),
                None => passes.push(vec![one]),
            }
        }
        passes.iter_mut().try_for_each(|pass| self.pass(pass, workspace, go_on))
    }

    /// Run the phases for sequences whose cache blocks are prepared.
    pub(super) fn pass(
        &self,
        running: &mut [&mut Running<'_, '_>],
        workspace: &mut Workspace,
        go_on: GoOn<'_>,
    ) -> Result<(), Ended> {
        let batch = Batch::new(running);
        let angles = self.angles(&batch.rows)?;
        let far_angles = self.far_angles(running.first().map_or(&[], |r| &r.session.shapes))?;
        let shapes =
            running.first().map_or_else(|| Arc::from([]), |r| Arc::clone(&r.session.shapes));
        let prompts = batch.sequences.iter().map(|sequence| sequence.prompt);
        let forms = self.schedule.forms(self.form, prompts);
        let has_disk = self.blocks.spilled().is_some();
        let last_choices = running.iter().filter(|_| has_disk);
        let last_choices: Vec<_> =
            last_choices.map(|one| Arc::clone(&one.session.last_choice)).collect();
        let meter = running.first().and_then(|one| one.session.meter.clone());
        let tables = running.iter_mut().map(|one| &mut one.session.tables);
        let blocks = StepBlocks::new(&self.blocks, tables, &batch.rows);
        let shape = StepShape {
            n_tokens: batch.tokens.len(),
            n_selected: batch.selected.len(),
            caches: &shapes,
            rows: StepRows { sequences: &batch.rows, forms: &forms },
        };
        let needs = Needs::of(&self.schedule, &shape, self.pool.n());
        let memory = workspace.prepare(&self.schedule, &needs)?;
        let head = self.schedule.head_phase().filter(|_| !batch.needs_logits());
        let hidden = self.schedule.hidden_phase.filter(|_| !batch.needs_hidden());
        let exec = Exec {
            schedule: &self.schedule,
            skipped: [head, hidden],
            weights: &self.weights,
            kernels: &self.kernels,
            tokens: &batch.tokens,
            sequences: &batch.rows,
            forms: &forms,
            selected: &batch.selected,
            angles: &angles,
            far_angles: &far_angles,
            attention: &shapes,
            blocks: &blocks,
            last_choices: &last_choices,
            meter: meter.as_deref(),
            readings: Mutex::default(),
            values: &memory.values,
            acts: memory.acts,
            inner: memory.inner,
            mixtures: memory.mixtures,
            partials: memory.partials,
            peaks: memory.peaks,
            context: memory.context,
            latent: memory.latent,
            scratch: &memory.scratch,
            started: Instant::now(),
            go_on,
            stopped: AtomicBool::new(false),
            ends: memory.ends,
            reads: memory.reads,
        };
        self.take_inputs(&batch, &exec);
        self.pool.run(&|worker| exec.run(&worker));
        if blocks.is_broken() {
            let missing = blocks.into_missing();
            return Err(lose(running, missing));
        }
        if exec.stopped.load(Ordering::Relaxed) {
            return Err(Error::Cancelled.into());
        }
        let results = self.results(&batch, &exec);
        let readings = exec.readings.into_inner().unwrap_or_else(PoisonError::into_inner);
        for (sequence, reading) in readings {
            running[sequence].readings.push(reading);
        }
        workspace.count_times();
        for (one, rows) in running.iter_mut().zip(results) {
            one.rows = Some(rows);
        }
        Ok(())
    }

    /// Bring the rows that the sequences give to where phases read them.
    fn take_inputs(&self, batch: &Batch<'_>, exec: &Exec<'_>) {
        for (i, input) in self.schedule.inputs.iter().enumerate() {
            let len = batch.rows_of(input.rows) * input.cols;
            // SAFETY: no worker runs yet.
            let mut to = unsafe { exec.values[input.value.0 as usize].slice_mut(0..len) };
            for sequence in &batch.sequences {
                let (rows, rest) = to.split_at_mut(sequence.rows[i].len());
                rows.copy_from_slice(sequence.rows[i]);
                to = rest;
            }
        }
    }

    /// What each sequence of a pass that ran yields.
    fn results(&self, batch: &Batch<'_>, exec: &Exec<'_>) -> Vec<Result<RowsOut>> {
        let computed = |out: Operand| {
            let len = batch.rows_of(out.rows) * out.cols;
            // SAFETY: the workers are done.
            let numbers = unsafe { exec.values[out.value.0 as usize].slice(0..len) };
            Computed { numbers, cols: out.cols }
        };
        let logits = self.schedule.logits.filter(|_| batch.needs_logits());
        let peaks = logits.map(|out| {
            let cols = out.cols.div_ceil(PEAK);
            // SAFETY: as above.
            let peaks = unsafe { exec.peaks.slice_mut(0..batch.rows_of(out.rows) * cols) };
            if !self.schedule.finds_peaks() {
                let logits = computed(out).numbers.chunks_exact(out.cols.max(1));
                let rows = logits.zip(peaks.chunks_exact_mut(cols.max(1)));
                rows.for_each(|(logits, peaks)| self.kernels.peaks(logits, peaks));
            }
            Computed { numbers: peaks, cols }
        });
        let handed = |i: usize| -> Result<Vec<_>> {
            let rows = |out: &Operand| computed(*out).rows(batch.handed(i, out.rows));
            self.schedule.handed.iter().map(|out| copy(rows(out), "handed rows")).collect()
        };
        // of one value
        let rows_of = |i: usize, rows: OutputRows, what: Wanted| {
            let out = if what == Wanted::Hidden { self.schedule.hidden } else { logits };
            let Some(out) = out.filter(|_| rows != OutputRows::None) else {
                return Ok(RowsOut::none(what));
            };
            let (value, wanted) = (computed(out), batch.wanted(i, out.rows));
            let numbers = value.rows(wanted.clone());
            if what == Wanted::Hidden {
                batch.check_finite(i, numbers, out.cols)?;
                let hidden = copy(numbers, "the hidden rows")?;
                return Ok(RowsOut::Hidden(HiddenRows { hidden, hidden_size: out.cols }));
            }
            let peaks = peaks.expect("logits have peaks");
            // one of the logits under a peak that is not finite is not either
            batch.check_finite(i, peaks.rows(wanted.clone()), peaks.cols)?;
            let peaks = peaks.rows(wanted);
            if let Wanted::Candidates { k } = what {
                return CandidateRows::of(numbers, out.cols, peaks, k).map(RowsOut::Candidates);
            }
            Ok(RowsOut::Logits(LogitRows {
                logits: copy(numbers, "the logits")?,
                vocab_size: out.cols,
                peaks: copy(peaks, "the logits")?,
            }))
        };
        let rows_out = |(i, sequence): (usize, &&Sequence<'_>)| {
            let Outputs { rows, what } = sequence.outputs;
            match what {
                Wanted::Rows => handed(i).map(RowsOut::Rows),
                Wanted::LogitsAndRows => {
                    let logits = rows_of(i, rows, Wanted::Logits)?.into_logits();
                    Ok(RowsOut::LogitsAndRows(logits, handed(i)?))
                }
                Wanted::Logits | Wanted::Candidates { .. } | Wanted::Hidden => {
                    rows_of(i, rows, what)
                }
            }
        };
        batch.sequences.iter().enumerate().map(rows_out).collect()
    }

    fn angles(&self, sequences: &[SequenceRows]) -> Result<Vec<Angles>> {
        let positions = sequences.iter().flat_map(|s| s.start..s.start + s.n).map(|p| p as u32);
        self.angles_at(&positions.collect::<Vec<u32>>())
    }

    /// Those of a key and of a query that meet from afar in these caches; none where all stand at their positions.
    fn far_angles(&self, shapes: &[CacheShape]) -> Result<Vec<Angles>> {
        let memories = shapes.iter().filter_map(|shape| shape.as_heads()?.memory);
        match memories.map(|memory| memory.settings).find(ContextMemory::keeps_far_keys) {
            Some(memory) => self.angles_at(&[0, memory.far_position() as u32]),
            None => Ok(Vec::new()),
        }
    }

    /// By rotation: of rows at these positions.
    fn angles_at(&self, positions: &[u32]) -> Result<Vec<Angles>> {
        let angles = |rotation: &Rotation| {
            let n_pairs = rotation.frequencies.len();
            let zeros = || -> Result<Vec<f32>> {
                let mut zeros = reserve(positions.len() * n_pairs, "the rotations")?;
                zeros.resize(positions.len() * n_pairs, 0.0);
                Ok(zeros)
            };
            let (mut cos, mut sin) = (zeros()?, zeros()?);
            let back = |position: &u32| position.saturating_sub(rotation.back);
            let positions: Vec<u32> = positions.iter().map(back).collect();
            rope_angles(&positions, &rotation.frequencies, rotation.magnitude, &mut cos, &mut sin);
            Ok(Angles { cos, sin, n_pairs })
        };
        self.rotations.iter().map(angles).collect()
    }
}

/// Sessions of which blocks could not be had say what they lost; else why that is.
fn lose(running: &mut [&mut Running<'_, '_>], missing: Vec<(usize, kv::Error)>) -> Ended {
    let mut ended = None;
    for (sequence, error) in missing {
        let tables = &mut running[sequence].session.tables;
        tables.abandon();
        match error {
            kv::Error::Lost { position, reason } => {
                tables.lose(position);
                ended.get_or_insert(Ended::Lost(reason));
            }
            // nothing of it is lost: whether others did changes nothing
            error => ended = Some(Ended::Failed(cache_error(error))),
        }
    }
    ended.expect("a step that is broken misses something")
}

fn copy(numbers: &[f32], what: &'static str) -> Result<Vec<f32>> {
    let mut copy = reserve(numbers.len(), what)?;
    copy.extend_from_slice(numbers);
    Ok(copy)
}

/// An empty list with room for `len` numbers.
fn reserve(len: usize, what: &'static str) -> Result<Vec<f32>> {
    let mut list = Vec::new();
    list.try_reserve_exact(len).map_err(|_| Error::Memory { what, bytes: 4 * len as u64 })?;
    Ok(list)
}
