//! How a program is run: [`Executor`] loads it, [`Model`] steps it.

use std::sync::Arc;

use quant::GgmlType;

use crate::{
    CacheOptions, Ceilings, Error, MemoryNeeds, MemoryOptions, Op, Program, Promises, Result,
    ValueId, WeightSpec,
};

/// Bytes of a weight, as they stand in the file.
pub type WeightBytes<'a> = &'a [u8];

/// Where an executor gets weights from: a mapped file, or memory in tests.
pub trait WeightSource: Sync {
    /// The tensor's bytes, rows in order, `spec.bytes()` of them.
    ///
    /// # Errors
    /// [`crate::Error::Weight`] if the tensor is missing or differs from `spec`.
    fn bytes(&self, spec: &WeightSpec) -> Result<WeightBytes<'_>>;

    /// The executor will not read these rows again soon: their file pages may go.
    fn release(&self, spec: &WeightSpec, rows: std::ops::Range<usize>) {
        let _ = (spec, rows);
    }
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

/// Which rows of a sequence yield logits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outputs {
    /// None: the tokens only enter the cache.
    None,
    /// The last token's row.
    Last,
    /// Every row.
    All,
}

impl Outputs {
    /// Number of rows wanted of a sequence of `n_tokens`.
    pub fn count(self, n_tokens: usize) -> usize {
        match self {
            Outputs::None => 0,
            Outputs::Last => n_tokens.min(1),
            Outputs::All => n_tokens,
        }
    }
}

/// The rows of one session in a step: `tokens` take the positions after those the session holds.
#[derive(Clone, Copy, Debug)]
pub struct Sequence<'a> {
    /// Whose cache they extend.
    pub session: SessionId,
    /// Token ids; at least one.
    pub tokens: &'a [u32],
    /// Which rows yield logits.
    pub outputs: Outputs,
    /// The prompt they are part of, if they are: an executor may compute a long prompt in another way than a few tokens,
    /// and must do so alike however the prompt is cut into steps.
    pub prompt: Option<Prompt>,
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

/// What a step yields.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StepOut {
    /// `[n_selected, vocab_size]`, row-major: the wanted rows of the first sequence, then of the next.
    pub logits: Vec<f32>,
    /// Width of a row.
    pub vocab_size: usize,
    /// `[n_selected, vocab_size / PEAK]`, rounded up: the greatest of each [`PEAK`] neighbouring logits of a row, so that
    /// the best are found without a look at all. NaN where any of them is not finite.
    pub peaks: Vec<f32>,
}

/// Neighbouring logits that share a peak in [`StepOut::peaks`].
pub const PEAK: usize = 64;

impl StepOut {
    /// Rows of logits, whose peaks are looked for here.
    pub fn new(logits: Vec<f32>, vocab_size: usize) -> StepOut {
        let rows = logits.chunks_exact(vocab_size.max(1));
        let peak = |stretch: &[f32]| {
            let finite = stretch.iter().all(|x| x.is_finite());
            let most = stretch.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            if finite { most } else { f32::NAN }
        };
        let peaks = rows.flat_map(|row| row.chunks(PEAK).map(peak)).collect();
        StepOut { logits, vocab_size, peaks }
    }

    /// The rows of logits, in order.
    pub fn rows(&self) -> impl ExactSizeIterator<Item = &[f32]> {
        self.logits.chunks_exact(self.vocab_size.max(1))
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
#[derive(Clone, Debug, Default, PartialEq)]
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
    /// Where the last step's time went, in the order of execution; empty if the executor does not tell.
    pub last_step: Vec<PhaseTime>,
}

/// One part of a step.
#[derive(Clone, Debug, PartialEq)]
pub struct PhaseTime {
    /// What it computes, by its first output: `blk.3.attn_q`.
    pub name: String,
    /// Kind of work: `linear`, `attention`, `embed`, `rows`.
    pub kind: &'static str,
    /// Wall time, waiting for the slowest thread included.
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

    /// Measure what the machine can do at most; takes seconds. `progress` is told what part is done, from 0 to 1.
    ///
    /// # Errors
    /// [`Error::Unsupported`] from an executor without a machine of its own (the default); memory.
    fn ceilings(&self, progress: &mut dyn FnMut(f64)) -> Result<Ceilings> {
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

    /// Start a session with an empty cache.
    ///
    /// # Errors
    /// If the options are not supported or memory runs out.
    fn open(&self, options: &CacheOptions) -> Result<SessionId>;

    /// Forget a session and its cache. Unknown ids are ignored.
    fn close(&self, id: SessionId);

    /// Run one pass. On an error no session is changed.
    ///
    /// # Errors
    /// Unknown session, token outside the vocabulary, full context, non-finite logits, memory.
    fn step(&self, step: &Step<'_>) -> Result<StepOut>;

    /// [`step`](Model::step) that also hands back intermediate values, to compare executors by name.
    ///
    /// # Errors
    /// Those of a step, and [`Error::Unsupported`] from an executor that keeps no value apart (the default).
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
    /// sees was let go since it was committed. The caller computes the others again.
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

    /// Bytes of memory the session's cache takes now.
    ///
    /// # Errors
    /// [`crate::Error::Session`].
    fn cache_bytes(&self, id: SessionId) -> Result<u64>;

    /// Counters since loading.
    fn stats(&self) -> StepStats;
}
