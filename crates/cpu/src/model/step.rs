//! A step: which of its sequences can run, the passes over the weights that run them, what each of them yields.

use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use kernels::rows::rope_angles;
use program::{
    CandidateRows, Error, Held, HiddenRows, LogitRows, OpenSession, PEAK, Result, Rows, RowsOut,
    Sequence, Step, StepOut, Wanted,
};

use super::{CpuModel, Rotation, Session, cache_error, lock};
use crate::exec::{Angles, Exec, SequenceRows, StepBlocks, StepRows};
use crate::mla::MlaForm;
use crate::needs::{Needs, StepShape};
use crate::plan::{LatentPhase, Operand};
use crate::schedule::LoadedPhase;
use crate::workspace::Workspace;

/// A sequence that runs.
struct Running<'a> {
    sequence: &'a Sequence<'a>,
    session: Held<'a, Session>,
    /// Positions the session held before.
    start: usize,
    /// What it yields; nothing before its pass.
    rows: Option<Result<RowsOut>>,
}

/// The rows of a pass.
struct Batch<'a> {
    sequences: Vec<&'a Sequence<'a>>,
    /// `[sequence]`.
    rows: Vec<SequenceRows>,
    tokens: Vec<u32>,
    /// Rows whose outputs are wanted.
    selected: Vec<usize>,
}

impl<'a> Batch<'a> {
    fn new(running: &[&mut Running<'a>]) -> Batch<'a> {
        let (mut tokens, mut selected, mut rows) = (Vec::new(), Vec::new(), Vec::new());
        for Running { sequence, start, .. } in running.iter().map(|running| &**running) {
            let n = sequence.tokens.len();
            rows.push(SequenceRows { first_row: tokens.len(), n, start: *start });
            tokens.extend_from_slice(sequence.tokens);
            selected.extend(tokens.len() - sequence.outputs.count(n)..tokens.len());
        }
        let sequences = running.iter().map(|running| running.sequence).collect();
        Batch { sequences, rows, tokens, selected }
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

    /// For each sequence where its wanted rows lie in a value of such rows.
    fn wanted(&self, rows: Rows) -> impl Iterator<Item = Range<usize>> {
        let mut selected = 0;
        self.sequences.iter().zip(&self.rows).map(move |(sequence, place)| {
            let n = sequence.outputs.count(place.n);
            selected += n;
            let end = match rows {
                Rows::Tokens => place.first_row + place.n,
                Rows::Selected => selected,
            };
            end - n..end
        })
    }
}

impl CpuModel {
    /// What [`program::Model::step`] promises.
    pub(super) fn run_step(&self, step: &Step<'_>) -> Result<StepOut> {
        let started = Instant::now();
        step.check()?;
        let workspace = &mut *lock(&self.workspace);
        let slots: Vec<_> = step.sequences.iter().map(|s| self.sessions.find(s.session)).collect();
        let mut running = Vec::new();
        let mut admitted = Vec::new();
        for (sequence, slot) in step.sequences.iter().zip(&slots) {
            let one =
                slot.as_ref().map_err(Error::clone).and_then(|slot| self.admit(sequence, slot));
            admitted.push(one.map(|one| running.push(one)));
        }
        let done = self.passes(&mut running, workspace);
        for one in &mut running {
            match (&done, &one.rows) {
                (Ok(()), Some(Ok(_))) => {
                    one.session.tables.extend(one.sequence.tokens).map_err(cache_error)?;
                }
                _ => one.session.tables.abandon(),
            }
        }
        done?;
        if !running.is_empty() {
            let mut counters = lock(&self.counters);
            counters.stats.steps += 1;
            counters.stats.rows +=
                running.iter().map(|r| r.sequence.tokens.len() as u64).sum::<u64>();
            counters.stats.busy += started.elapsed();
            counters.times.copy_from_slice(workspace.times());
        }
        let mut rows = running.into_iter().map(|one| one.rows.expect("its pass ran"));
        let out = |one: Result<()>| one.and_then(|()| rows.next().expect("it ran"));
        Ok(StepOut { sequences: admitted.into_iter().map(out).collect() })
    }

    /// Take a sequence's session and make room in its cache.
    fn admit<'a>(
        &self,
        sequence: &'a Sequence<'a>,
        slot: &'a Arc<OpenSession<Session>>,
    ) -> Result<Running<'a>> {
        let mut session = slot.hold();
        let start = session.tables.len();
        sequence.check(&self.program, start, session.tables.capacity())?;
        session.tables.prepare(start + sequence.tokens.len()).map_err(cache_error)?;
        Ok(Running { sequence, session, start, rows: None })
    }

    /// Run all sequences: one pass for those whose caches are kept alike.
    fn passes(&self, running: &mut [Running<'_>], workspace: &mut Workspace) -> Result<()> {
        let mut passes: Vec<Vec<&mut Running<'_>>> = Vec::new();
        for one in running {
            let alike =
                |pass: &&mut Vec<&mut Running<'_>>| pass[0].session.shapes == one.session.shapes;
            match passes.iter_mut().find(alike) {
                Some(pass) => pass.push(one),
                None => passes.push(vec![one]),
            }
        }
        passes.iter_mut().try_for_each(|pass| self.pass(pass, workspace))
    }

    /// Run the phases for sequences whose cache blocks are prepared.
    fn pass(&self, running: &mut [&mut Running<'_>], workspace: &mut Workspace) -> Result<()> {
        let batch = Batch::new(running);
        let angles = self.angles(&batch.rows)?;
        let shapes =
            running.first().map_or_else(|| Arc::from([]), |r| Arc::clone(&r.session.shapes));
        let forms = self.forms(&batch.sequences);
        let tables = running.iter_mut().map(|one| &mut one.session.tables);
        let blocks = StepBlocks::new(tables, &batch.rows, shapes.len());
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
        self.take_inputs(&batch, &exec);
        self.pool.run(&|worker| exec.run(&worker));
        let results = self.results(&batch, &exec);
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
        let value = |operand: Operand| {
            let len = batch.rows_of(operand.rows) * operand.cols;
            // SAFETY: the workers are done.
            unsafe { exec.values[operand.value.0 as usize].slice(0..len) }
        };
        let mut results: Vec<Result<RowsOut>> =
            batch.sequences.iter().map(|s| Ok(RowsOut::none(s.outputs.what))).collect();
        if let Some(out) = self.schedule.logits.filter(|_| batch.needs_logits()) {
            let (logits, n_peaks) = (value(out), out.cols.div_ceil(PEAK));
            // SAFETY: as above.
            let peaks = unsafe { exec.peaks.slice_mut(0..batch.rows_of(out.rows) * n_peaks) };
            if !self.schedule.finds_peaks() {
                let rows = logits
                    .chunks_exact(out.cols.max(1))
                    .zip(peaks.chunks_exact_mut(n_peaks.max(1)));
                rows.for_each(|(logits, peaks)| self.kernels.peaks(logits, peaks));
            }
            for ((i, result), rows) in results.iter_mut().enumerate().zip(batch.wanted(out.rows)) {
                let logits = &logits[rows.start * out.cols..rows.end * out.cols];
                let peaks = &peaks[rows.start * n_peaks..rows.end * n_peaks];
                let finite = || batch.check_finite(i, peaks, n_peaks);
                match batch.sequences[i].outputs.what {
                    Wanted::Logits => {
                        *result = finite().and_then(|()| {
                            Ok(RowsOut::Logits(LogitRows {
                                logits: copy(logits, "the logits")?,
                                vocab_size: out.cols,
                                peaks: copy(peaks, "the logits")?,
                            }))
                        })
                    }
                    Wanted::Candidates { k } => {
                        *result = finite().and_then(|()| {
                            CandidateRows::of(logits, out.cols, peaks, k).map(RowsOut::Candidates)
                        })
                    }
                    Wanted::Hidden | Wanted::Rows => {}
                }
            }
        }
        for ((i, result), place) in results.iter_mut().enumerate().zip(&batch.rows) {
            if batch.sequences[i].outputs.what == Wanted::Rows {
                let handed = |out: &Operand| {
                    let rows = match out.rows {
                        Rows::Tokens => place.first_row..place.first_row + place.n,
                        Rows::Selected => batch.wanted(out.rows).nth(i).unwrap_or(0..0),
                    };
                    copy(&value(*out)[rows.start * out.cols..rows.end * out.cols], "handed rows")
                };
                *result = self
                    .schedule
                    .handed
                    .iter()
                    .map(handed)
                    .collect::<Result<_>>()
                    .map(RowsOut::Rows);
            }
        }
        if let Some(out) = self.schedule.hidden {
            let hidden = value(out);
            for ((i, result), rows) in results.iter_mut().enumerate().zip(batch.wanted(out.rows)) {
                if batch.sequences[i].outputs.what == Wanted::Hidden {
                    let hidden = &hidden[rows.start * out.cols..rows.end * out.cols];
                    *result = batch.check_finite(i, hidden, out.cols).and_then(|()| {
                        let hidden = copy(hidden, "the hidden rows")?;
                        Ok(RowsOut::Hidden(HiddenRows { hidden, hidden_size: out.cols }))
                    });
                }
            }
        }
        results
    }

    /// How latent attention is computed for each sequence.
    fn forms(&self, sequences: &[&Sequence<'_>]) -> Vec<MlaForm> {
        let mut latents = self.schedule.phases.iter().filter_map(|phase| match phase {
            LoadedPhase::Latent(latent) => Some(&latent.phase),
            _ => None,
        });
        let elides = latents.clone().all(LatentPhase::elides);
        let Some(dims) = latents.next().map(|latent| &latent.inputs.dims) else {
            return Vec::new();
        };
        let form = |sequence: &&Sequence<'_>| {
            match self.form.choose(dims, sequence.prompt) {
                // the nearest form that computes such scores
                MlaForm::Elided if !elides => MlaForm::Absorbed,
                form => form,
            }
        };
        sequences.iter().map(form).collect()
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
}

impl Batch<'_> {
    /// Refuse the wanted rows of sequence `i`, `cols` numbers each, if one of them is not finite.
    fn check_finite(&self, i: usize, numbers: &[f32], cols: usize) -> Result<()> {
        match numbers.iter().position(|x| !x.is_finite()) {
            Some(bad) => {
                let SequenceRows { n, start, .. } = self.rows[i];
                let first = start + n - self.sequences[i].outputs.count(n);
                Err(Error::NonFinite { position: first + bad / cols })
            }
            None => Ok(()),
        }
    }
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
