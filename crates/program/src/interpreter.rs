//! The reference interpreter: what every op means, and the oracle of every test.
//!
//! Plain f32 values, f64 sums, weights dequantized once at load, a naive f32 cache whatever [`CacheOptions`] asks for.
//! Slow and obvious on purpose: nothing here is fused, blocked or threaded. The ops are in `interpreter/ops.rs`.

mod acts;
mod attention;
mod certificate;
mod context;
mod experts;
mod indexer;
mod latent;
mod ops;
mod recurrence;
mod session;
mod streams;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use quant::GgmlType;

use crate::{
    CacheKind, CacheOptions, CandidateRows, Dump, Error, Executor, Gate, Held, HiddenRows,
    LogitRows, Lookup, MemoryNeeds, MemoryOptions, MlaDims, MlaForm, Model, Node, Op, OutputKind,
    OutputRows, Outputs, Program, Progress, Promises, Readings, Result, Rope, Rows, RowsOut,
    Sequence, SessionId, Sessions, Step, StepOut, StepStats, Trace, ValueId, ValueSpec, Wanted,
    WeightId, WeightSource, WeightSpec,
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
        let states = program.caches.iter().map(|cache| cache.kind.state_bytes().saturating_mul(2));
        let states = states.fold(0, u64::saturating_add);
        let cache = cached_elements(program).saturating_mul(4).saturating_mul(positions);
        let cache = cache.saturating_add(states.saturating_mul(*sessions as u64));
        Ok(MemoryNeeds {
            weights: program.weights.iter().map(elements).fold(0, u64::saturating_add),
            cache,
            bounded_cache: cache,
            least_cache: cache,
            work: program.values.iter().map(value).fold(0, u64::saturating_add),
            on_card: 0,
            cache_on_card: 0,
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
    let appended = program.nodes.iter().filter_map(|node| Some((node, node.appends_to()?)));
    let elements = appended.map(|(node, cache)| match program.cache(cache).kind {
        heads @ CacheKind::Heads { .. } => heads.elements(),
        CacheKind::Latent { .. } => MlaDims::of(program, node).cache_elements(MlaForm::Expanded),
        keys @ CacheKind::Keys { .. } => keys.elements(),
        CacheKind::State { row, .. } => row as u64,
    });
    elements.fold(0, u64::saturating_add)
}

/// The whole tensor in f32, rows in order.
fn dequantize(spec: &WeightSpec, weights: &dyn WeightSource) -> Result<Vec<f32>> {
    let problem = |problem: String| Error::Weight { name: spec.name.clone(), problem };
    let format = quant::format(spec.ty)
        .ok_or_else(|| problem(format!("type {} is not a weight type", spec.ty)))?;
    let bytes = weights.bytes(spec)?;
    let len = spec.rows * spec.cols;
    let mut values = Vec::new();
    values
        .try_reserve_exact(len)
        .map_err(|_| Error::Memory { what: "a dequantized weight", bytes: len as u64 * 4 })?;
    values.resize(len, 0.0);
    format.dequantize(&bytes, &mut values);
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
    is_selected: bool,
}

impl Row {
    /// The row of a table that it takes.
    fn wanted(&self, by: Lookup) -> usize {
        match by {
            Lookup::Token => self.token as usize,
            Lookup::Position => self.position,
            Lookup::Only => 0,
        }
    }
}

/// The rows of the sequences that are computed.
#[derive(Default)]
struct Batch {
    rows: Vec<Row>,
    /// By input of the program: rows of all sequences.
    given: Vec<Vec<f32>>,
}

impl Batch {
    /// Add the rows of sequence `index`, whose session holds `start` positions.
    fn add(&mut self, sequence: &Sequence<'_>, index: usize, start: usize) {
        self.given.resize(sequence.rows.len(), Vec::new());
        self.given.iter_mut().zip(sequence.rows).for_each(|(all, rows)| all.extend(*rows));
        let selected = sequence.outputs.range(sequence.tokens.len());
        self.rows.extend(sequence.tokens.iter().enumerate().map(|(i, &token)| Row {
            token,
            sequence: index,
            position: start + i,
            is_selected: selected.contains(&i),
        }));
    }

    /// Indices of the rows of a sequence.
    fn of_sequence(&self, index: usize) -> impl Iterator<Item = usize> {
        let rows = self.rows.iter().enumerate();
        rows.filter(move |(_, row)| row.sequence == index).map(|(i, _)| i)
    }

    /// Indices of the selected rows.
    fn selected(&self) -> impl Iterator<Item = usize> {
        self.rows.iter().enumerate().filter(|(_, row)| row.is_selected).map(|(i, _)| i)
    }
}

/// What a pass computed.
struct Pass {
    batch: Batch,
    /// By value of the program.
    values: Vec<Vec<f32>>,
}

/// Which sequences of a step enter their sessions.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Keep {
    /// Those that did not fail.
    Each,
    /// All, or none if one failed.
    AllOrNone,
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
            Op::Embed { table, by } => {
                let wanted = batch.rows.iter().map(|row| row.wanted(*by));
                ops::rows(self.weight(*table), self.program.weight(*table).cols, wanted)
            }
            Op::Ids => batch.rows.iter().map(|row| row.token as f32 + 1.0).collect(),
            Op::Grams { table, grams } => {
                let cols = self.program.weight(*table).cols;
                let ids = input(0).chunks_exact(shape(0).cols());
                ops::rows(self.weight(*table), cols, ids.flat_map(|ids| grams.rows(ids)))
            }
            Op::Norm(norm) => {
                let [weight, bias] =
                    [norm.weight, norm.bias].map(|id| id.map(|id| self.weight(id)));
                ops::norm(&heads(0), norm.kind, [weight, bias], norm.eps)
            }
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
                let width = self.program.value(node.output).shape.dim;
                let chosen = at.select.map(|_| heads(4));
                let inputs = [0, 1, 2, 3].map(heads);
                self.latent_attention(sessions, batch, at, (inputs, chosen), width)
            }
            Op::Indexer(at) => {
                let inputs: Vec<ops::Heads<'_>> = (0..node.inputs.len()).map(heads).collect();
                self.indexer(sessions, batch, at, &inputs)
            }
            Op::CausalConv(conv) => self.causal_conv(sessions, batch, conv, &heads(0)),
            Op::Scan(scan) => {
                let inputs: Vec<ops::Heads<'_>> = (0..node.inputs.len()).map(heads).collect();
                self.scan(sessions, batch, scan, &inputs)
            }
            Op::Route(router) => {
                let [bias, factors] =
                    [router.bias, router.factors].map(|id| id.map(|id| self.weight(id)));
                let rows = input(0).chunks_exact(shape(0).cols());
                rows.flat_map(|scores| experts::route(scores, router, bias, factors)).collect()
            }
            Op::Experts { gate, up, down, biases, act, weighs_inputs, n_experts, n_used } => {
                let alone = matches!(act, Gate::Alone(_));
                let (joint, weighs_inputs) = (gate == up && !alone, *weighs_inputs);
                let [gate, up, down] = [gate, up, down].map(|id| self.weight(*id));
                let biases = biases.map(|biases| biases.all().map(|id| self.weight(id)));
                let n = *n_experts;
                let all = experts::All { gate, up, down, joint, weighs_inputs, biases, n };
                let hidden = shape(0).cols();
                let rows = input(0).chunks_exact(hidden).zip(input(1).chunks_exact(2 * n_used));
                rows.flat_map(|(x, routes)| all.mix(x, routes, *act)).collect()
            }
            Op::Act(act) => ops::act(*act, input(0)),
            Op::GatedAct(act) => ops::gated_act(*act, input(0), input(1)),
            Op::Add => ops::add(input(0), input(1)),
            Op::Scale(factor) => ops::scale(input(0), *factor),
            Op::SignedRoot { least } => streams::signed_roots(input(0), *least),
            Op::Shift(number) => input(0).iter().map(|x| x + number).collect(),
            Op::Multiply { weight, by_group } => {
                let each = if *by_group { shape(0).dim } else { 1 };
                ops::multiply(input(0), self.weight(*weight), each)
            }
            Op::View => input(0).to_vec(),
            Op::Slice { start, len } => {
                let groups = input(0).chunks_exact(shape(0).dim);
                groups.flat_map(|group| &group[*start..start + len]).copied().collect()
            }
            Op::Concat => {
                let values: Vec<ops::Heads<'_>> = (0..node.inputs.len()).map(heads).collect();
                streams::concat(&values, input(0).len() / shape(0).cols())
            }
            Op::Mix => {
                let groups = self.program.value(node.output).shape.groups;
                streams::mix(input(0), &heads(1), groups)
            }
            Op::Resize => streams::resize(input(0), input(1), shape(0).dim),
            Op::Excess { deviations } => streams::excess(input(0), shape(0).dim, *deviations),
            Op::SumGroups => streams::sums(input(0), shape(0).dim),
            Op::Softmax => streams::softmax(input(0), shape(0).dim),
            Op::Turn => streams::turned(input(0), shape(0).groups, shape(0).dim),
            Op::Sinkhorn { rounds, eps } => {
                streams::sinkhorn(input(0), shape(0).dim, *rounds, f64::from(*eps))
            }
            Op::SelectRows => ops::rows(input(0), shape(0).cols(), batch.selected()),
            Op::MeanRows => {
                let cols = shape(0).cols();
                let sequence = |row: usize| batch.of_sequence(batch.rows[row].sequence);
                batch.selected().flat_map(|row| ops::mean(input(0), cols, sequence(row))).collect()
            }
        }
    }

    /// The rows of sequence `index` in a value, each with the row of the step that it stands for.
    fn rows_of<'a>(
        &self,
        pass: &'a Pass,
        id: ValueId,
        index: usize,
    ) -> impl Iterator<Item = (&'a Row, &'a [f32])> {
        let shape = self.program.value(id).shape;
        let stands = move |row: &&Row| row.is_selected || shape.rows == Rows::Tokens;
        let numbers = pass.values[id.0 as usize].chunks_exact(shape.cols().max(1));
        let rows = pass.batch.rows.iter().filter(stands).zip(numbers);
        rows.filter(move |(row, _)| row.sequence == index)
    }

    /// What sequence `index` yields, all finite but for rows that are handed on.
    fn rows_out(&self, pass: &Pass, index: usize, outputs: Outputs) -> Result<RowsOut> {
        let handed = || {
            let handed = self.program.outputs.iter().filter(|(kind, _)| *kind == OutputKind::Rows);
            let all = |id| self.rows_of(pass, id, index).flat_map(|(_, row)| row).copied();
            handed.map(|(_, id)| all(*id).collect()).collect()
        };
        let kind = match outputs.what {
            Wanted::Logits | Wanted::Candidates { .. } => OutputKind::Logits,
            Wanted::Hidden => OutputKind::Hidden,
            Wanted::Rows => return Ok(RowsOut::Rows(handed())),
            Wanted::LogitsAndRows => {
                let alone = Outputs { what: Wanted::Logits, ..outputs };
                let logits = self.rows_out(pass, index, alone)?.into_logits();
                return Ok(RowsOut::LogitsAndRows(logits, handed()));
            }
        };
        let id = self.program.output(kind).filter(|_| outputs.rows != OutputRows::None);
        let Some(id) = id else { return Ok(RowsOut::none(outputs.what)) };
        let cols = self.program.value(id).shape.cols();
        let mut found = Vec::new();
        for (Row { position, .. }, row) in
            self.rows_of(pass, id, index).filter(|(row, _)| row.is_selected)
        {
            if row.iter().any(|x| !x.is_finite()) {
                return Err(Error::NonFinite { position: *position });
            }
            found.extend_from_slice(row);
        }
        let logits = |found| LogitRows::new(found, cols);
        Ok(match outputs.what {
            Wanted::Rows | Wanted::LogitsAndRows => unreachable!("they are not one value"),
            Wanted::Logits => RowsOut::Logits(logits(found)),
            Wanted::Candidates { k } => {
                let LogitRows { logits, vocab_size, peaks } = logits(found);
                RowsOut::Candidates(CandidateRows::of(&logits, vocab_size, &peaks, k)?)
            }
            Wanted::Hidden => RowsOut::Hidden(HiddenRows { hidden: found, hidden_size: cols }),
        })
    }

    /// One pass. Sessions of sequences that are not kept are left as they were.
    fn pass(&self, step: &Step<'_>, keep: Keep) -> Result<(StepOut, Pass)> {
        let started = Instant::now();
        step.check()?;
        let _running = lock(&self.running);
        let slots: Vec<_> = step.sequences.iter().map(|s| self.sessions.find(s.session)).collect();
        let (mut batch, mut held, mut admitted) = (Batch::default(), Vec::new(), Vec::new());
        for (sequence, slot) in step.sequences.iter().zip(&slots) {
            let taken = slot.as_ref().map_err(Error::clone).and_then(|slot| {
                let mut session = slot.hold();
                sequence.check(&self.program, session.len, session.capacity)?;
                // a step that panicked may have left rows
                let len = session.len;
                session.truncate(len);
                Ok(session)
            });
            admitted.push(taken.map(|session| {
                batch.add(sequence, held.len(), session.len);
                held.push(session);
                held.len() - 1
            }));
        }
        let values = self.forward(&mut held, &batch);
        let pass = Pass { batch, values };
        let rows_out = |(taken, sequence): (&Result<usize>, &Sequence<'_>)| {
            self.rows_out(&pass, taken.clone()?, sequence.outputs)
        };
        let sequences: Vec<_> = admitted.iter().zip(step.sequences).map(rows_out).collect();
        let all_kept = keep == Keep::Each || sequences.iter().all(Result::is_ok);
        for ((taken, sequence), rows) in admitted.iter().zip(step.sequences).zip(&sequences) {
            if let Ok(index) = *taken {
                let grown = if rows.is_ok() && all_kept { sequence.tokens.len() } else { 0 };
                let len = held[index].len + grown;
                held[index].truncate(len);
            }
        }
        let mut stats = lock(&self.stats);
        stats.steps += u64::from(!pass.batch.rows.is_empty());
        stats.rows += pass.batch.rows.len() as u64;
        stats.busy += started.elapsed();
        Ok((StepOut { sequences }, pass))
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
        options.policy.check(&self.program)?;
        Ok(self.sessions.open(Session::new(&self.program, options)))
    }

    fn close(&self, id: SessionId) {
        self.sessions.close(id);
    }

    fn step(&self, step: &Step<'_>) -> Result<StepOut> {
        Ok(self.pass(step, Keep::Each)?.0)
    }

    fn trace(&self, step: &Step<'_>, wanted: &[ValueId]) -> Result<Trace> {
        if let Some(bad) = wanted.iter().find(|id| id.0 as usize >= self.program.values.len()) {
            let expected = format!("a value below {}", self.program.values.len());
            return Err(Error::Operand { op: "trace".into(), expected, found: bad.0.to_string() });
        }
        let (out, Pass { values, .. }) = self.pass(step, Keep::AllOrNone)?;
        // a trace may be meant to find values that are not finite
        match out.clone().all() {
            Ok(_) | Err(Error::NonFinite { .. }) => {}
            Err(error) => return Err(error),
        }
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

    fn readings(&self, id: SessionId) -> Result<Readings> {
        self.sessions.with(id, |session| Ok(session.readings.clone()))
    }

    fn cache_bytes(&self, id: SessionId) -> Result<u64> {
        Ok(self.sessions.find(id)?.bytes())
    }

    fn stats(&self) -> StepStats {
        *lock(&self.stats)
    }
}
