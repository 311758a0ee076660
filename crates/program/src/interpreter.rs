//! The reference interpreter: what every op means, and the oracle of every test.
//!
//! Plain f32 values, f64 sums, weights dequantized once at load, a naive f32 cache whatever [`CacheOptions`] asks for.
//! Slow and obvious on purpose: nothing here is fused, blocked or threaded. The ops are in `interpreter/ops.rs`.

mod acts;
mod attention;
mod experts;
mod latent;
mod ops;
mod session;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use quant::GgmlType;

use crate::{
    CacheOptions, CandidateRows, Dump, Error, Executor, Held, HiddenRows, LogitRows, MemoryNeeds,
    MemoryOptions, MlaDims, MlaForm, Model, Node, Op, OutputKind, Outputs, Program, Progress,
    Promises, Result, Rope, Rows, RowsOut, Sequence, SessionId, Sessions, Step, StepOut, StepStats,
    Trace, ValueId, ValueSpec, Wanted, WeightId, WeightSource, WeightSpec,
};
use session::Session;

/// Runs programs by the definition of their ops.
#[derive(Clone, Copy, Debug, Default)]
pub struct Interpreter;

impl Executor for Interpreter {
    /// Every op, with every type that has numbers.
    fn supports(&self, op: &Op, types: &[GgmlType]) -> Result<()> {
        match types.iter().find(|ty| quant::format(**ty).is_none()) {
            None => Ok(()),
            Some(ty) => {
                Err(Error::Unsupported(format!("op `{}` with weights of type {ty}", op.name())))
            }
        }
    }

    /// Everything in f32: weights, caches, and every value of the rows of a step.
    fn memory(&self, program: &Program, options: &MemoryOptions) -> Result<MemoryNeeds> {
        let MemoryOptions { cache, sessions, chunk } = options;
        let elements = |spec: &WeightSpec| 4 * spec.rows as u64 * spec.cols as u64;
        let rows = |rows| match rows {
            Rows::Tokens => *chunk.max(sessions),
            Rows::Selected => *sessions,
        };
        let value = |value: &ValueSpec| 4 * (rows(value.shape.rows) * value.shape.cols()) as u64;
        let positions = (*sessions as u64).saturating_mul(cache.capacity as u64);
        Ok(MemoryNeeds {
            weights: program.weights.iter().map(elements).fold(0, u64::saturating_add),
            cache: cached_elements(program).saturating_mul(4).saturating_mul(positions),
            work: program.values.iter().map(value).fold(0, u64::saturating_add),
        })
    }

    fn promises(&self) -> Promises {
        Promises::all()
    }

    fn load(
        &self,
        program: Arc<Program>,
        weights: &dyn WeightSource,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Box<dyn Model>> {
        let total = program.weight_bytes();
        let mut done = 0;
        let mut values = Vec::with_capacity(program.weights.len());
        for spec in &program.weights {
            values.push(dequantize(spec, weights)?);
            weights.release(spec, 0..spec.rows);
            done += spec.bytes();
            progress(Progress { done, total });
        }
        let bytes = values.iter().map(|w| w.len() as u64 * 4).sum();
        let stats = StepStats {
            weight_bytes_per_step: bytes,
            weight_memory: bytes,
            ..StepStats::default()
        };
        Ok(Box::new(Interpreted {
            program,
            weights: values,
            sessions: Sessions::default(),
            running: Mutex::default(),
            stats: Mutex::new(stats),
        }))
    }

    fn describe(&self) -> String {
        "reference interpreter, f32 with f64 sums".into()
    }
}

/// Numbers that one position adds: keys and values of every head, those of latents expanded, windows or not.
fn cached_elements(program: &Program) -> u64 {
    let of = |node: &Node| match &node.op {
        Op::Attention(at) if at.appends => program.cache(at.cache).kind.elements(),
        Op::LatentAttention(_) => MlaDims::of(program, node).cache_elements(MlaForm::Expanded),
        _ => 0,
    };
    program.nodes.iter().map(of).fold(0, u64::saturating_add)
}

/// The whole tensor in f32, rows in order.
fn dequantize(spec: &WeightSpec, weights: &dyn WeightSource) -> Result<Vec<f32>> {
    let problem = |problem: String| Error::Weight { name: spec.name.clone(), problem };
    let format = quant::format(spec.ty)
        .ok_or_else(|| problem(format!("type {} is not a weight type", spec.ty)))?;
    let bytes = weights.bytes(spec)?;
    if bytes.len() as u64 != spec.bytes() {
        return Err(problem(format!("expected {} bytes, found {}", spec.bytes(), bytes.len())));
    }
    let len = spec.rows * spec.cols;
    let mut values = Vec::new();
    values
        .try_reserve_exact(len)
        .map_err(|_| Error::Memory { what: "a dequantized weight", bytes: len as u64 * 4 })?;
    values.resize(len, 0.0);
    format.dequantize(bytes, &mut values);
    Ok(values)
}

/// A program with its weights in f32.
struct Interpreted {
    program: Arc<Program>,
    weights: Vec<Vec<f32>>,
    sessions: Sessions<Session>,
    /// Held for the time of a step.
    running: Mutex<()>,
    stats: Mutex<StepStats>,
}

/// One row of a step.
struct Row {
    token: u32,
    /// Index of its sequence among those that are computed.
    sequence: usize,
    position: usize,
}

/// The rows of the sequences that are computed, and which of them are selected.
#[derive(Default)]
struct Batch {
    rows: Vec<Row>,
    selected: Vec<usize>,
    /// By input of the program: rows of all sequences.
    given: Vec<Vec<f32>>,
}

impl Batch {
    /// Add the rows of a sequence whose session holds `start` positions.
    fn add(&mut self, sequence: &Sequence<'_>, (index, start): (usize, usize)) {
        self.given.resize(sequence.rows.len(), Vec::new());
        self.given.iter_mut().zip(sequence.rows).for_each(|(all, rows)| all.extend(*rows));
        let rows = sequence.tokens.iter().zip(start..);
        self.rows.extend(rows.map(|(&token, position)| Row { token, sequence: index, position }));
        let end = self.rows.len();
        self.selected.extend(end - sequence.outputs.count(sequence.tokens.len())..end);
    }
}

/// What a pass computed.
struct Pass {
    out: StepOut,
    /// By value of the program.
    values: Vec<Vec<f32>>,
}

/// The lock, also if a step panicked in between: sessions and counters change last.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Interpreted {
    fn weight(&self, id: WeightId) -> &[f32] {
        &self.weights[id.0 as usize]
    }

    fn rotation(&self, rope: &Rope) -> ops::Rotation {
        ops::Rotation::new(rope, rope.factors.map(|id| self.weight(id)))
    }

    /// Every value of the program for this batch, in order. Caches grow; the sessions' lengths do not.
    fn forward(&self, sessions: &mut [Held<'_, Session>], batch: &Batch) -> Vec<Vec<f32>> {
        let mut values: Vec<Vec<f32>> = vec![Vec::new(); self.program.values.len()];
        for (id, rows) in self.program.inputs.iter().zip(&batch.given) {
            values[id.0 as usize].clone_from(rows);
        }
        for node in &self.program.nodes {
            values[node.output.0 as usize] = self.node(sessions, batch, node, &values);
        }
        values
    }

    fn node(
        &self,
        sessions: &mut [Held<'_, Session>],
        batch: &Batch,
        node: &Node,
        values: &[Vec<f32>],
    ) -> Vec<f32> {
        let input = |i: usize| values[node.inputs[i].0 as usize].as_slice();
        let shape = |i: usize| self.program.value(node.inputs[i]).shape;
        let heads =
            |i: usize| ops::Heads { x: input(i), groups: shape(i).groups, dim: shape(i).dim };
        match &node.op {
            Op::Embed { table } => {
                let cols = self.program.weight(*table).cols;
                let tokens = batch.rows.iter().map(|row| row.token as usize);
                ops::rows(self.weight(*table), cols, tokens)
            }
            Op::RmsNorm { weight, eps } => ops::rms_norm(input(0), self.weight(*weight), *eps),
            Op::Linear { weight, bias } => ops::linear(
                input(0),
                self.weight(*weight),
                self.program.weight(*weight).cols,
                bias.map(|b| self.weight(b)),
            ),
            Op::Attention(at) => {
                let inputs: Vec<ops::Heads<'_>> = (0..node.inputs.len()).map(heads).collect();
                self.attention(sessions, batch, at, &inputs)
            }
            Op::LatentAttention(at) => {
                self.latent_attention(sessions, batch, (node, at), [0, 1, 2, 3].map(heads))
            }
            Op::Route(router) => {
                let bias = router.bias.map(|bias| self.weight(bias));
                let rows = input(0).chunks_exact(shape(0).cols());
                rows.flat_map(|scores| experts::route(scores, router, bias)).collect()
            }
            Op::Experts { gate, up, down, act, n_experts, n_used } => {
                let [gate, up, down] = [gate, up, down].map(|id| self.weight(*id));
                let (hidden, all) =
                    (shape(0).cols(), experts::All { gate, up, down, n: *n_experts });
                let rows = input(0).chunks_exact(hidden).zip(input(1).chunks_exact(2 * n_used));
                rows.flat_map(|(x, routes)| all.mix(x, routes, *act)).collect()
            }
            Op::Act(act) => ops::act(*act, input(0)),
            Op::GatedAct(act) => ops::gated_act(*act, input(0), input(1)),
            Op::Add => ops::add(input(0), input(1)),
            Op::Scale(factor) => ops::scale(input(0), *factor),
            Op::View => input(0).to_vec(),
            Op::Slice { start, len } => {
                let groups = input(0).chunks_exact(shape(0).dim);
                groups.flat_map(|group| &group[*start..start + len]).copied().collect()
            }
            Op::SelectRows => ops::rows(input(0), shape(0).cols(), batch.selected.iter().copied()),
        }
    }

    /// The rows of sequence `index`, all finite.
    fn rows_out(
        &self,
        batch: &Batch,
        values: &[Vec<f32>],
        (index, outputs): (usize, Outputs),
    ) -> Result<RowsOut> {
        let kind = match outputs.what {
            Wanted::Logits | Wanted::Candidates { .. } => OutputKind::Logits,
            Wanted::Hidden => OutputKind::Hidden,
            Wanted::Rows => {
                let outputs = self.program.outputs.iter();
                let rows = outputs.filter(|(kind, _)| *kind == OutputKind::Rows);
                let handed =
                    rows.map(|(_, id)| self.handed(batch, &values[id.0 as usize], *id, index));
                return Ok(RowsOut::Rows(handed.collect()));
            }
        };
        let Some(id) = self.program.output(kind) else { return Ok(RowsOut::none(outputs.what)) };
        let shape = self.program.value(id).shape;
        let rows = values[id.0 as usize].chunks_exact(shape.cols().max(1));
        let all: Vec<usize> = (0..batch.rows.len()).collect();
        let of_row = match shape.rows {
            Rows::Tokens => &all,
            Rows::Selected => &batch.selected,
        };
        let mut found = Vec::new();
        for (row, i) in rows.zip(of_row) {
            if batch.rows[*i].sequence == index && batch.selected.contains(i) {
                if row.iter().any(|x| !x.is_finite()) {
                    return Err(Error::NonFinite { position: batch.rows[*i].position });
                }
                found.extend_from_slice(row);
            }
        }
        let logits = |found| LogitRows::new(found, shape.cols());
        Ok(match outputs.what {
            Wanted::Rows => unreachable!("they are not one value"),
            Wanted::Logits => RowsOut::Logits(logits(found)),
            Wanted::Candidates { k } => {
                let LogitRows { logits, vocab_size, peaks } = logits(found);
                RowsOut::Candidates(CandidateRows::of(&logits, vocab_size, &peaks, k)?)
            }
            Wanted::Hidden => {
                RowsOut::Hidden(HiddenRows { hidden: found, hidden_size: shape.cols() })
            }
        })
    }

    /// The rows of sequence `index` of one value.
    fn handed(&self, batch: &Batch, value: &[f32], id: ValueId, index: usize) -> Vec<f32> {
        let shape = self.program.value(id).shape;
        let of_sequence = |i: usize| batch.rows[i].sequence == index;
        let rows = value.chunks_exact(shape.cols().max(1));
        match shape.rows {
            Rows::Tokens => rows
                .enumerate()
                .filter(|(i, _)| of_sequence(*i))
                .flat_map(|(_, row)| row)
                .copied()
                .collect(),
            Rows::Selected => rows
                .zip(&batch.selected)
                .filter(|(_, i)| of_sequence(**i))
                .flat_map(|(row, _)| row)
                .copied()
                .collect(),
        }
    }

    /// One pass. Sessions of sequences that fail are left as they were.
    fn pass(&self, step: &Step<'_>) -> Result<Pass> {
        let started = Instant::now();
        step.check()?;
        let _running = lock(&self.running);
        let slots: Vec<_> = step.sequences.iter().map(|s| self.sessions.find(s.session)).collect();
        let (mut batch, mut held, mut out) = (Batch::default(), Vec::new(), Vec::new());
        for (sequence, slot) in step.sequences.iter().zip(&slots) {
            let taken = slot.as_ref().map_err(Error::clone).and_then(|slot| {
                let session = slot.hold();
                sequence.check(&self.program, session.len, session.capacity)?;
                Ok(session)
            });
            out.push(taken.map(|session| {
                batch.add(sequence, (held.len(), session.len));
                held.push(session);
                held.len() - 1
            }));
        }
        let values = self.forward(&mut held, &batch);
        let finish = |(taken, sequence): (Result<usize>, &Sequence<'_>)| {
            let index = taken?;
            let rows = self.rows_out(&batch, &values, (index, sequence.outputs));
            let grown = if rows.is_ok() { sequence.tokens.len() } else { 0 };
            let len = held[index].len + grown;
            held[index].truncate(len);
            rows
        };
        let sequences = out.into_iter().zip(step.sequences).map(finish).collect();
        let mut stats = lock(&self.stats);
        stats.steps += u64::from(!batch.rows.is_empty());
        stats.rows += batch.rows.len() as u64;
        stats.busy += started.elapsed();
        Ok(Pass { out: StepOut { sequences }, values })
    }

    /// Run `f` on a session that holds at least `len` positions.
    fn with<T>(&self, id: SessionId, len: usize, f: impl FnOnce(&mut Session) -> T) -> Result<T> {
        self.sessions.with(id, |session| {
            if len > session.len {
                return Err(Error::Length { len: session.len, wanted: len });
            }
            Ok(f(session))
        })
    }
}

impl Model for Interpreted {
    fn program(&self) -> &Arc<Program> {
        &self.program
    }

    fn open(&self, options: &CacheOptions) -> Result<SessionId> {
        Ok(self.sessions.open(Session::new(&self.program, options.capacity)))
    }

    fn close(&self, id: SessionId) {
        self.sessions.close(id);
    }

    fn step(&self, step: &Step<'_>) -> Result<StepOut> {
        Ok(self.pass(step)?.out)
    }

    fn trace(&self, step: &Step<'_>, wanted: &[ValueId]) -> Result<Trace> {
        if let Some(bad) = wanted.iter().find(|id| id.0 as usize >= self.program.values.len()) {
            let expected = format!("a value below {}", self.program.values.len());
            return Err(Error::Operand { op: "trace".into(), expected, found: bad.0.to_string() });
        }
        let Pass { out, values } = self.pass(step)?;
        out.clone().all()?;
        let dump = |id: &ValueId| {
            let value = self.program.value(*id);
            Dump {
                name: value.name.clone(),
                cols: value.shape.cols(),
                data: values[id.0 as usize].clone(),
            }
        };
        Ok(Trace { out, values: wanted.iter().map(dump).collect() })
    }

    fn len(&self, id: SessionId) -> Result<usize> {
        Ok(self.sessions.find(id)?.positions())
    }

    fn commit(&self, id: SessionId, len: usize) -> Result<()> {
        self.with(id, len, |_| ())
    }

    fn truncate(&self, id: SessionId, len: usize) -> Result<usize> {
        self.with(id, len, |session| session.truncate(len))?;
        Ok(len)
    }

    fn fork(&self, id: SessionId, len: usize) -> Result<SessionId> {
        let mut session = self.with(id, len, |session| session.clone())?;
        session.truncate(len);
        Ok(self.sessions.open(session))
    }

    fn cache_bytes(&self, id: SessionId) -> Result<u64> {
        Ok(self.sessions.find(id)?.bytes())
    }

    fn stats(&self) -> StepStats {
        *lock(&self.stats)
    }
}
