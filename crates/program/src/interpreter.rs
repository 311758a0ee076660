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

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use quant::GgmlType;

use crate::{
    CacheOptions, Dump, Error, Executor, MemoryNeeds, MemoryOptions, MlaDims, MlaForm, Model, Node,
    Op, Outputs, Program, Progress, Promises, Result, Rope, Rows, SessionId, Step, StepOut,
    StepStats, Trace, ValueId, ValueSpec, WeightId, WeightSource, WeightSpec,
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
        let total = program.weights.iter().map(WeightSpec::bytes).sum();
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
        let state = State { sessions: HashMap::new(), next: 0, stats };
        Ok(Box::new(Interpreted { program, weights: values, state: Mutex::new(state) }))
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
    state: Mutex<State>,
}

struct State {
    sessions: HashMap<SessionId, Session>,
    next: u64,
    stats: StepStats,
}

impl State {
    fn session(&mut self, id: SessionId) -> Result<&mut Session> {
        self.sessions.get_mut(&id).ok_or(Error::Session(id.0))
    }

    fn insert(&mut self, session: Session) -> SessionId {
        let id = SessionId(self.next);
        self.next += 1;
        self.sessions.insert(id, session);
        id
    }
}

/// One row of a step.
struct Row {
    token: u32,
    session: SessionId,
    position: usize,
}

/// The rows of a step, and which of them are selected.
struct Batch {
    rows: Vec<Row>,
    selected: Vec<usize>,
}

impl Interpreted {
    fn lock(&self) -> MutexGuard<'_, State> {
        // A step puts sessions back as they were before it returns an error, so a poisoned state is still whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn weight(&self, id: WeightId) -> &[f32] {
        &self.weights[id.0 as usize]
    }

    fn rotation(&self, rope: &Rope) -> ops::Rotation {
        ops::Rotation::new(rope, rope.factors.map(|id| self.weight(id)))
    }

    /// Rows and positions of a step; everything that can be refused before computing is refused here.
    fn batch(&self, state: &mut State, step: &Step<'_>) -> Result<Batch> {
        let mut batch = Batch { rows: Vec::new(), selected: Vec::new() };
        for (i, sequence) in step.sequences.iter().enumerate() {
            let refuse = |expected: &str, found: String| Error::Operand {
                op: "step".into(),
                expected: expected.into(),
                found,
            };
            if step.sequences[..i].iter().any(|s| s.session == sequence.session) {
                return Err(refuse(
                    "distinct sessions",
                    format!("session {} twice", sequence.session.0),
                ));
            }
            let n = sequence.tokens.len();
            if n == 0 {
                return Err(refuse("at least one token per sequence", "none".into()));
            }
            let session = state.session(sequence.session)?;
            self.program.check_start(session.len)?;
            let wanted = session.len + n;
            if wanted > session.capacity {
                return Err(Error::ContextFull { wanted, capacity: session.capacity });
            }
            let first = batch.rows.len();
            for (i, &token) in sequence.tokens.iter().enumerate() {
                self.check_token(token)?;
                batch.rows.push(Row {
                    token,
                    session: sequence.session,
                    position: session.len + i,
                });
            }
            batch.selected.extend(match sequence.outputs {
                Outputs::None => 0..0,
                Outputs::Last => first + n - 1..first + n,
                Outputs::All => first..first + n,
            });
        }
        Ok(batch)
    }

    fn check_token(&self, token: u32) -> Result<()> {
        match self.program.n_tokens() {
            Some(vocab_size) if token as usize >= vocab_size => {
                Err(Error::Token { token, vocab_size })
            }
            _ => Ok(()),
        }
    }

    /// Every value of the program for this batch, in order. Caches grow; the sessions' lengths do not.
    fn forward(&self, state: &mut State, batch: &Batch) -> Result<Vec<Vec<f32>>> {
        let mut values: Vec<Vec<f32>> = vec![Vec::new(); self.program.values.len()];
        for node in &self.program.nodes {
            values[node.output.0 as usize] = self.node(state, batch, node, &values)?;
        }
        Ok(values)
    }

    fn node(
        &self,
        state: &mut State,
        batch: &Batch,
        node: &Node,
        values: &[Vec<f32>],
    ) -> Result<Vec<f32>> {
        let input = |i: usize| values[node.inputs[i].0 as usize].as_slice();
        let shape = |i: usize| self.program.value(node.inputs[i]).shape;
        let heads =
            |i: usize| ops::Heads { x: input(i), groups: shape(i).groups, dim: shape(i).dim };
        Ok(match &node.op {
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
                self.attention(state, batch, at, &inputs)?
            }
            Op::LatentAttention(at) => {
                self.latent_attention(state, batch, (node, at), [0, 1, 2, 3].map(heads))?
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
        })
    }

    /// The logits' rows, all finite.
    fn logits(&self, batch: &Batch, values: &[Vec<f32>]) -> Result<StepOut> {
        let Some(id) = self.program.logits() else { return Ok(StepOut::default()) };
        let logits = values[id.0 as usize].clone();
        let vocab_size = self.program.vocab_size();
        let every: Vec<usize> = (0..batch.rows.len()).collect();
        let rows = match self.program.value(id).shape.rows {
            Rows::Tokens => &every,
            Rows::Selected => &batch.selected,
        };
        for (row, &i) in logits.chunks_exact(vocab_size.max(1)).zip(rows) {
            if row.iter().any(|x| !x.is_finite()) {
                return Err(Error::NonFinite { position: batch.rows[i].position });
            }
        }
        Ok(StepOut::new(logits, vocab_size))
    }

    /// One pass; sessions are left as they were if it fails.
    fn pass(&self, step: &Step<'_>) -> Result<(StepOut, Vec<Vec<f32>>)> {
        let started = Instant::now();
        let state = &mut *self.lock();
        let batch = self.batch(state, step)?;
        let result = self
            .forward(state, &batch)
            .and_then(|values| Ok((self.logits(&batch, &values)?, values)));
        for sequence in step.sequences {
            let session = state.session(sequence.session)?;
            let grown = if result.is_ok() { sequence.tokens.len() } else { 0 };
            session.truncate(session.len + grown);
        }
        if result.is_ok() {
            state.stats.steps += 1;
            state.stats.rows += batch.rows.len() as u64;
            state.stats.busy += started.elapsed();
        }
        result
    }

    /// Run `f` on a session that holds at least `len` positions.
    fn with<T>(&self, id: SessionId, len: usize, f: impl FnOnce(&mut Session) -> T) -> Result<T> {
        let state = &mut *self.lock();
        let session = state.session(id)?;
        if len > session.len {
            return Err(Error::Length { len: session.len, wanted: len });
        }
        Ok(f(session))
    }
}

impl Model for Interpreted {
    fn program(&self) -> &Arc<Program> {
        &self.program
    }

    fn open(&self, options: &CacheOptions) -> Result<SessionId> {
        Ok(self.lock().insert(Session::new(&self.program, options.capacity)))
    }

    fn close(&self, id: SessionId) {
        self.lock().sessions.remove(&id);
    }

    fn step(&self, step: &Step<'_>) -> Result<StepOut> {
        Ok(self.pass(step)?.0)
    }

    fn trace(&self, step: &Step<'_>, wanted: &[ValueId]) -> Result<Trace> {
        if let Some(bad) = wanted.iter().find(|id| id.0 as usize >= self.program.values.len()) {
            let expected = format!("a value below {}", self.program.values.len());
            return Err(Error::Operand { op: "trace".into(), expected, found: bad.0.to_string() });
        }
        let (out, values) = self.pass(step)?;
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
        self.with(id, 0, |session| session.len)
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
        Ok(self.lock().insert(session))
    }

    fn cache_bytes(&self, id: SessionId) -> Result<u64> {
        self.with(id, 0, |session| session.bytes())
    }

    fn stats(&self) -> StepStats {
        self.lock().stats.clone()
    }
}
