//! How a program is run: [`Executor`] loads it, [`Model`] steps it.

use std::sync::Arc;

use quant::GgmlType;

use crate::among::by_whole_rows;
use crate::{
    Among, CacheOptions, CacheStorage, Ceilings, Error, KeptPlace, KeptSessions, MemoryNeeds,
    MemoryOptions, Op, Outputs, Program, Promises, Readings, Result, Rows, StepOut, ValueId,
    WeightSpec,
};

/// Where an executor gets weights from: a file, or memory in tests. Several threads read at once.
pub trait WeightSource: Sync {
    /// Reads bytes of a weight: those from byte `first` on, of `spec.bytes()` with rows in order, into all of `out`.
    ///
    /// # Errors
    /// [`crate::Error::Weight`] if the tensor is missing, differs from `spec`, is shorter than that or cannot be read.
    fn read(&self, spec: &WeightSpec, first: usize, out: &mut [u8]) -> Result<()>;

    /// Reads all bytes of a weight, `spec.bytes()` of them: for weights that are small, and for tests.
    ///
    /// # Errors
    /// As [`WeightSource::read`]; [`crate::Error::Memory`] as well if there is no memory for them.
    fn bytes(&self, spec: &WeightSpec) -> Result<Vec<u8>> {
        let no_memory =
            || Error::Memory { what: "a weight as the file has it", bytes: spec.bytes() };
        let len = usize::try_from(spec.bytes()).map_err(|_| no_memory())?;
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(len).map_err(|_| no_memory())?;
        bytes.resize(len, 0);
        self.read(spec, 0, &mut bytes)?;
        Ok(bytes)
    }
}

/// Reads a weight that is in memory as `bytes`: what [`WeightSource::read`] does in sources without a file.
///
/// # Errors
/// [`crate::Error::Weight`] if there are fewer bytes than that.
pub fn read_memory(bytes: &[u8], spec: &WeightSpec, first: usize, out: &mut [u8]) -> Result<()> {
    let found = bytes.get(first..).and_then(|rest| rest.get(..out.len()));
    let Some(found) = found else {
        let end = first.saturating_add(out.len());
        let problem = format!("expected at least {end} bytes, found {}", bytes.len());
        return Err(Error::Weight { name: spec.name.clone(), problem });
    };
    out.copy_from_slice(found);
    Ok(())
}

/// How far loading has come, in bytes of weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Bytes done.
    pub done: u64,
    /// Bytes in all.
    pub total: u64,
}

/// One conversation's cache inside a [`Model`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionId(pub u64);

/// The rows of one session in a step: `tokens` take the positions after those the session holds.
#[derive(Clone, Copy, Debug)]
pub struct Sequence<'a> {
    /// Whose cache they extend.
    pub session: SessionId,
    /// Token ids; at least one.
    pub tokens: &'a [u32],
    /// What it is to yield.
    pub outputs: Outputs,
    /// The prompt they are part of, if they are: an executor may compute a long prompt in another way than a few tokens,
    /// and must do so alike however the prompt is cut into steps.
    pub prompt: Option<Prompt>,
    /// What the program's inputs are, in their order, row by row: a row for each token, or for each wanted row of a value
    /// of selected ones.
    pub rows: &'a [&'a [f32]],
}

impl Sequence<'_> {
    /// Refuse what concerns this sequence alone, given that its session holds `len` positions of at most `capacity`.
    ///
    /// # Errors
    /// Outputs that `program` does not yield, rows that are not those of its inputs, a token outside the vocabulary, a full context, rows that must come in one
    /// step.
    pub fn check(&self, program: &Program, len: usize, capacity: usize) -> Result<()> {
        self.outputs.check(program)?;
        self.check_rows(program)?;
        if let Some(vocab_size) = program.n_tokens()
            && let Some(&token) = self.tokens.iter().find(|t| **t as usize >= vocab_size)
        {
            return Err(Error::Token { token, vocab_size });
        }
        program.check_start(len)?;
        let wanted = len + self.tokens.len();
        let capacity = program.n_positions().map_or(capacity, |n| n.min(capacity));
        if wanted > capacity {
            return Err(Error::ContextFull { wanted, capacity });
        }
        Ok(())
    }

    /// How many rows a value has in it.
    pub fn count(&self, rows: Rows) -> usize {
        match rows {
            Rows::Tokens => self.tokens.len(),
            Rows::Selected => self.outputs.count(self.tokens.len()),
        }
    }

    pub(crate) fn check_rows(&self, program: &Program) -> Result<()> {
        let refuse = |op: &str, expected: String, found: usize| {
            Err(Error::Operand { op: op.into(), expected, found: found.to_string() })
        };
        let n = program.inputs.len();
        if self.rows.len() != n {
            return refuse("sequence", format!("rows of {n} inputs"), self.rows.len());
        }
        for (id, rows) in program.inputs.iter().zip(self.rows) {
            let value = program.value(*id);
            let (n, cols) = (self.count(value.shape.rows), value.shape.cols());
            if rows.len() != n * cols {
                let expected = format!("{n} rows of {cols} numbers");
                return refuse(&value.name, expected, rows.len());
            }
        }
        Ok(())
    }
}

/// Tokens that arrive together, though perhaps in several steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prompt {
    /// Position of the first one.
    pub start: usize,
    /// How many there are.
    pub len: usize,
}

/// One pass over the weights for the rows of one or more sessions.
#[derive(Clone, Copy, Debug)]
pub struct Step<'a> {
    /// Distinct sessions, each with its new rows.
    pub sequences: &'a [Sequence<'a>],
}

impl Step<'_> {
    /// Refuse what concerns the step as a whole.
    ///
    /// # Errors
    /// [`Error::Operand`] for a session in two sequences and for a sequence without tokens.
    pub fn check(&self) -> Result<()> {
        let refuse = |expected: &str, found| {
            Err(Error::Operand { op: "step".into(), expected: expected.into(), found })
        };
        for (i, Sequence { session, tokens, .. }) in self.sequences.iter().enumerate() {
            if self.sequences[..i].iter().any(|other| other.session == *session) {
                return refuse("distinct sessions", format!("session {} twice", session.0));
            }
            if tokens.is_empty() {
                return refuse("at least one token per sequence", "none".into());
            }
        }
        Ok(())
    }
}

/// One named value of a traced step.
#[derive(Clone, Debug, PartialEq)]
pub struct Dump {
    /// The value's name in the program, e.g. `blk.3.attn_norm`.
    pub name: String,
    /// Length of a row.
    pub cols: usize,
    /// `[rows, cols]`, row-major.
    pub data: Vec<f32>,
}

/// What a traced step yields.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trace {
    /// What [`Model::step`] would have returned.
    pub out: StepOut,
    /// The wanted values, in the order they were asked for.
    pub values: Vec<Dump>,
}

/// Time and bytes since the model was loaded.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StepStats {
    /// Steps run.
    pub steps: u64,
    /// Token rows processed.
    pub rows: u64,
    /// Wall time inside steps.
    pub busy: std::time::Duration,
    /// Bytes of weights as packed in memory that one step reads.
    pub weight_bytes_per_step: u64,
    /// Bytes of memory the packed weights take.
    pub weight_memory: u64,
    /// Blocks of caches between memory and disk.
    pub spilled: SpillCounts,
}

/// Blocks of caches that went between memory and disk, and positions that were computed again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpillCounts {
    /// Bytes of memory that all caches take now.
    pub memory: u64,
    /// Blocks written, each once.
    pub written: u64,
    /// Bytes of these.
    pub written_bytes: u64,
    /// Blocks read that steps wanted.
    pub loaded: u64,
    /// Bytes of these.
    pub loaded_bytes: u64,
    /// Blocks that steps wanted of those that may lie on disk, and that were in memory.
    pub hits: u64,
    /// Time that threads waited for reading, added up.
    pub waited: std::time::Duration,
    /// Positions computed again: their rows were let go of for others, or lost.
    pub recomputed: u64,
}

impl SpillCounts {
    /// What was added since these; memory is that of now.
    pub fn since(self, before: SpillCounts) -> SpillCounts {
        SpillCounts {
            memory: self.memory,
            written: self.written - before.written,
            written_bytes: self.written_bytes - before.written_bytes,
            loaded: self.loaded - before.loaded,
            loaded_bytes: self.loaded_bytes - before.loaded_bytes,
            hits: self.hits - before.hits,
            waited: self.waited.saturating_sub(before.waited),
            recomputed: self.recomputed - before.recomputed,
        }
    }

    /// Those of two models together.
    pub fn and(self, other: SpillCounts) -> SpillCounts {
        SpillCounts {
            memory: self.memory + other.memory,
            written: self.written + other.written,
            written_bytes: self.written_bytes + other.written_bytes,
            loaded: self.loaded + other.loaded,
            loaded_bytes: self.loaded_bytes + other.loaded_bytes,
            hits: self.hits + other.hits,
            waited: self.waited + other.waited,
            recomputed: self.recomputed + other.recomputed,
        }
    }
}

/// One part of a step.
#[derive(Clone, Debug, PartialEq)]
pub struct PhaseTime {
    /// What it computes, by its first output: `blk.3.attn_q`.
    pub name: String,
    /// Kind of work: `linear`, `attention`, `experts`, `embed`, `rows`.
    pub kind: &'static str,
    /// Wall time, waiting for the slowest thread included; of a device what its own clock says.
    pub elapsed: std::time::Duration,
    /// Bytes of weights it reads.
    pub weight_bytes: u64,
}

/// Something that can run programs: a CPU, a GPU.
pub trait Executor {
    /// Whether it computes `op` with weights of these types, one for each weight of its fact sheet, in that order.
    /// [`load`](Executor::load) refuses what this refuses, and besides shapes that it says no word about.
    ///
    /// # Errors
    /// [`Error::Unsupported`], which names what it is that is not supported.
    fn supports(&self, op: &Op, types: &[GgmlType]) -> Result<()>;

    /// The memory that a load of `program` and steps within `options` would take; nothing is loaded.
    ///
    /// # Errors
    /// Those of [`load`](Executor::load) that do not depend on the weights' contents.
    fn memory(&self, program: &Program, options: &MemoryOptions) -> Result<MemoryNeeds>;

    /// When its logits keep their bits.
    fn promises(&self) -> Promises;

    /// Lower `program`, read and pack its weights. `progress` is called from this thread as bytes are packed.
    ///
    /// # Errors
    /// If a weight is missing or of a type the executor cannot use, or memory runs out.
    fn load(
        &self,
        program: Arc<Program>,
        weights: &dyn WeightSource,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Box<dyn Model>>;

    /// An executor of the same kind on the same threads, for a second model that runs in turn with the first: its models keep
    /// the caches of their sessions where `storage` says. `None` (the default) if nothing is gained by sharing.
    fn beside(&self, storage: &CacheStorage) -> Option<Box<dyn Executor>> {
        let _ = storage;
        None
    }

    /// Whether its models load others that share their weights ([`Model::load_beside`]); no is the default.
    fn shares_weights(&self) -> bool {
        false
    }

    /// Measures the ceilings of the machine; takes seconds. `progress` receives the completed part, from 0 to 1; when it
    /// returns false, measuring stops and the figures measured so far are returned. The figures of all threads are
    /// measured first.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the executor has no machine of its own (the default); lack of memory;
    /// [`Error::Cancelled`] if measuring was stopped before any figure was complete.
    fn ceilings(&self, progress: &mut dyn FnMut(f64) -> bool) -> Result<Ceilings> {
        let _ = progress;
        Err(Error::Unsupported(format!("ceilings of {}", self.describe())))
    }

    /// One line for people: `2 threads, avx2`.
    fn describe(&self) -> String;
}

/// A lowered program with its weights, shared by sessions.
///
/// Rows a step appends are tentative: [`truncate`](Model::truncate) drops them, [`commit`](Model::commit) keeps them.
pub trait Model: Send + Sync {
    /// The program it runs.
    fn program(&self) -> &Arc<Program>;

    /// Load a second program of the file that this one is of, to run in turn with it: weights that both read are kept once.
    /// Nothing bounds the caches of its sessions.
    ///
    /// # Errors
    /// Those of [`Executor::load`]; [`Error::Unsupported`] from an executor whose models share nothing (the default).
    fn load_beside(
        &self,
        program: Arc<Program>,
        weights: &dyn WeightSource,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Box<dyn Model>> {
        let _ = (program, weights, progress);
        Err(Error::Unsupported("this executor's models share no weights".into()))
    }

    /// Start a session with an empty cache.
    ///
    /// # Errors
    /// If the options are not supported or memory runs out.
    fn open(&self, options: &CacheOptions) -> Result<SessionId>;

    /// Forget a session and its cache. Unknown ids are ignored.
    fn close(&self, id: SessionId);

    /// Run one pass. What concerns one sequence alone is that sequence's error: an unknown session, a token outside the
    /// vocabulary, a full context, memory of its cache or results, something asked for that the program does not yield,
    /// results that are not finite. Its session is unchanged then, and the others are, to the bit, as if it had not been
    /// in the step.
    ///
    /// A session that is closed while a step uses it goes when the step ends; the step still yields its rows.
    /// [`truncate`](Model::truncate), [`commit`](Model::commit) and [`fork`](Model::fork) of such a session wait for the
    /// step. Nothing else of this trait waits for a step, but another step.
    ///
    /// # Errors
    /// What concerns the step, and then no session is changed: a session in two sequences, a sequence without tokens,
    /// memory to work in.
    fn step(&self, step: &Step<'_>) -> Result<StepOut>;

    /// Up to how many [`Wanted::Candidates`](crate::Wanted::Candidates) of a row come sooner than all its logits, from a
    /// device. The default, none, has all in memory anyway.
    fn most_candidates(&self) -> usize {
        0
    }

    /// [`step`](Model::step) that ends early once `go_on` says no, as if it had not been run. It is asked from one thread,
    /// between layers if the executor can; the default asks before the step alone.
    ///
    /// # Errors
    /// [`Error::Cancelled`], and those of a step.
    fn step_while(&self, step: &Step<'_>, go_on: &(dyn Fn() -> bool + Sync)) -> Result<StepOut> {
        if go_on() { self.step(step) } else { Err(Error::Cancelled) }
    }

    /// [`step_while`](Model::step_while) that calls `beside` once while it waits for a device: what is done there takes no
    /// time of its own. The default, which waits for nothing, calls it afterwards. A step that fails, or of which no
    /// sequence runs, may not have called it.
    ///
    /// # Errors
    /// Those of [`step_while`](Model::step_while).
    fn step_beside(
        &self,
        step: &Step<'_>,
        go_on: &(dyn Fn() -> bool + Sync),
        beside: &mut dyn FnMut(),
    ) -> Result<StepOut> {
        let out = self.step_while(step, go_on)?;
        beside();
        Ok(out)
    }

    /// [`step_while`](Model::step_while) whose candidates are looked for among some tokens: `among[i]` has one for each row
    /// of sequence `i` that wants [`Wanted::Candidates`](crate::Wanted::Candidates), which then yields
    /// [`RowsOut::Among`](crate::RowsOut::Among); or nothing, and the sequence yields what it always does. The default looks
    /// for them in whole rows.
    ///
    /// # Errors
    /// Those of a step; [`Error::Operand`] and [`Error::Token`] for what does not fit the sequences.
    fn step_among(
        &self,
        step: &Step<'_>,
        among: &[&[Among<'_>]],
        go_on: &(dyn Fn() -> bool + Sync),
    ) -> Result<StepOut> {
        by_whole_rows(self.program(), step, among, &mut |step| self.step_while(step, go_on))
    }

    /// [`step`](Model::step) that also hands back intermediate values, to compare executors by name.
    ///
    /// # Errors
    /// Those of a step and of any of its sequences, except for numbers that are not finite; [`Error::Unsupported`] from
    /// an executor that keeps no intermediate values (the default).
    fn trace(&self, step: &Step<'_>, wanted: &[ValueId]) -> Result<Trace> {
        let _ = (step, wanted);
        Err(Error::Unsupported("this executor keeps no intermediate values".into()))
    }

    /// Positions the session holds, tentative ones included.
    ///
    /// # Errors
    /// [`crate::Error::Session`].
    fn len(&self, id: SessionId) -> Result<usize>;

    /// Make the first `len` positions permanent: layers with a window may let go of what no later query sees, and other
    /// sessions may share what is computed.
    ///
    /// # Errors
    /// Unknown session, or `len` beyond what it holds.
    fn commit(&self, id: SessionId, len: usize) -> Result<()>;

    /// Keep the first `len` positions only, and return how many are kept: `len`, or fewer if something that a row at `len`
    /// sees was let go since it was committed. The caller computes the others again. Before another step or commit, all rows
    /// of the latest step can be taken back, also where rows come from outside and nobody could compute them again.
    ///
    /// # Errors
    /// Unknown session, or `len` beyond what it holds.
    fn truncate(&self, id: SessionId, len: usize) -> Result<usize>;

    /// A new session that shares the first `len` positions of `id`, or as many as [`truncate`](Model::truncate) would
    /// have kept: [`len`](Model::len) tells.
    ///
    /// # Errors
    /// Unknown session, or `len` beyond what it holds.
    fn fork(&self, id: SessionId, len: usize) -> Result<SessionId>;

    /// If the session's tokens are the first of `tokens`, go on with what other sessions have computed and committed of
    /// these, as far as it can be shared with the same bits; those rows are committed. Returns how many positions the
    /// session gained: 0 from an executor whose sessions do not share (the default).
    ///
    /// # Errors
    /// [`crate::Error::Session`].
    fn reuse(&self, id: SessionId, tokens: &[u32]) -> Result<usize> {
        let _ = tokens;
        self.len(id).map(|_| 0)
    }

    /// Make an empty session hold `len` positions of made-up content, committed, for measuring at a depth that would take
    /// long to compute.
    ///
    /// # Errors
    /// Unknown session, full context, memory; [`Error::Unsupported`] from an executor that makes nothing up (the default).
    fn make_up(&self, id: SessionId, len: usize) -> Result<()> {
        let _ = (id, len);
        Err(Error::Unsupported("this executor makes no cache up".into()))
    }

    /// What the session's policy left out where it was measured; waits for a step that uses it. Nothing from an executor that
    /// does not measure it (the default).
    ///
    /// # Errors
    /// [`crate::Error::Session`].
    fn readings(&self, id: SessionId) -> Result<Readings> {
        self.len(id).map(|_| Readings::default())
    }

    /// The sessions that outlive it, in one of the places that its executor was given for them; `None` if it was given none, or
    /// keeps none (the default).
    fn kept(&self, place: KeptPlace) -> Option<Box<dyn KeptSessions + '_>> {
        let _ = place;
        None
    }

    /// Bytes the session's cache takes now, in memory and on disk.
    ///
    /// # Errors
    /// [`crate::Error::Session`].
    fn cache_bytes(&self, id: SessionId) -> Result<u64>;

    /// Counters since loading.
    fn stats(&self) -> StepStats;

    /// Where the last step's time went, in the order of execution; empty before the first step, and from an executor
    /// that does not tell (the default), or was not asked to by [`time_phases`](Model::time_phases).
    fn phases(&self) -> Vec<PhaseTime> {
        Vec::new()
    }

    /// Have the steps to come time their phases, or not any more, for an executor that pays for it. Those that always do and
    /// those that cannot (the default) go on as they are. No bit depends on it.
    fn time_phases(&self, on: bool) {
        let _ = on;
    }
}
