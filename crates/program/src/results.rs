//! What a sequence asks of a step, and what the step yields for it.

use std::ops::Range;

use crate::candidates::k_likeliest;
use crate::{AmongRow, Candidate, Error, OutputKind, Program, Result};

/// What a sequence asks of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outputs {
    /// Which of its rows yield something.
    pub rows: OutputRows,
    /// What each of them yields.
    pub what: Wanted,
}

impl Outputs {
    /// Nothing: the tokens only enter the cache.
    pub const NONE: Outputs = Outputs { rows: OutputRows::None, what: Wanted::Logits };
    /// Logits of the last token's row.
    pub const LAST: Outputs = Outputs { rows: OutputRows::Last, what: Wanted::Logits };
    /// Logits of every row.
    pub const ALL: Outputs = Outputs { rows: OutputRows::All, what: Wanted::Logits };

    /// Number of rows wanted of a sequence of `n_tokens`.
    pub fn count(self, n_tokens: usize) -> usize {
        self.range(n_tokens).len()
    }

    /// Which rows are wanted of a sequence of `n_tokens`.
    pub fn range(self, n_tokens: usize) -> Range<usize> {
        match self.rows {
            OutputRows::None => n_tokens..n_tokens,
            OutputRows::First => 0..n_tokens.min(1),
            OutputRows::Last => n_tokens - n_tokens.min(1)..n_tokens,
            OutputRows::All => 0..n_tokens,
        }
    }

    /// Whether the output head has to run for it.
    pub fn needs_logits(self) -> bool {
        let head =
            matches!(self.what, Wanted::Logits | Wanted::Candidates { .. } | Wanted::LogitsAndRows);
        head && self.rows != OutputRows::None
    }

    /// Whether outputs of kind [`OutputKind::Rows`] are handed out for it.
    pub fn needs_rows(self) -> bool {
        matches!(self.what, Wanted::Rows | Wanted::LogitsAndRows)
    }

    /// Refuse what `program` does not yield.
    ///
    /// # Errors
    /// [`Error::Unsupported`] names the missing output, [`Error::Operand`] a wish for no candidate.
    pub fn check(self, program: &Program) -> Result<()> {
        if self.rows == OutputRows::None || self.what == Wanted::Rows {
            return Ok(());
        }
        if self.what == (Wanted::Candidates { k: 0 }) {
            return Err(Error::Operand {
                op: "candidates".into(),
                expected: "1 or more".into(),
                found: "0".into(),
            });
        }
        let (kind, name) = match self.what {
            Wanted::Logits | Wanted::Candidates { .. } | Wanted::LogitsAndRows => {
                (OutputKind::Logits, "logits")
            }
            Wanted::Hidden => (OutputKind::Hidden, "hidden rows"),
            Wanted::Rows => return Ok(()),
        };
        match program.output(kind) {
            Some(_) => Ok(()),
            None => Err(Error::Unsupported(format!("{name} of a program that yields none"))),
        }
    }
}

/// Which rows of a sequence yield something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputRows {
    /// None: the tokens only enter the cache.
    None,
    /// The first token's row: that of a whole text, as some models have it.
    First,
    /// The last token's row.
    Last,
    /// Every row.
    All,
}

/// What a row yields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// The score of every token of the vocabulary.
    Logits,
    /// The likeliest tokens, so many of them or the whole vocabulary if that is smaller.
    Candidates {
        /// At least 1.
        k: usize,
    },
    /// What the output head reads: [`OutputKind::Hidden`]. If all sequences of a step want this or nothing, the head
    /// does not run.
    Hidden,
    /// Every output of kind [`OutputKind::Rows`]: the rows that [`Outputs::rows`] names of a value of selected rows, all
    /// rows of another, whatever `rows` says.
    Rows,
    /// [`Logits`](Wanted::Logits), and [`Rows`](Wanted::Rows) beside them.
    LogitsAndRows,
}

/// What a step yields.
#[derive(Clone, Debug, Default, PartialEq)]
#[must_use = "each sequence has a result of its own"]
pub struct StepOut {
    /// For each sequence of the step, in order. One that failed left its session as it was; the others are what they
    /// would be without it.
    pub sequences: Vec<Result<RowsOut>>,
}

impl StepOut {
    /// The rows of a step of one sequence.
    ///
    /// # Errors
    /// That sequence's.
    ///
    /// # Panics
    /// If the step had none or several.
    pub fn single(mut self) -> Result<RowsOut> {
        assert_eq!(self.sequences.len(), 1, "a step of one sequence");
        self.sequences.remove(0)
    }

    /// The rows of all sequences.
    ///
    /// # Errors
    /// That of the first that failed.
    pub fn all(self) -> Result<Vec<RowsOut>> {
        self.sequences.into_iter().collect()
    }
}

/// The rows of one sequence: as many as its [`Outputs`] count, in the order of its tokens.
#[derive(Clone, Debug, PartialEq)]
pub enum RowsOut {
    /// For [`Wanted::Logits`].
    Logits(LogitRows),
    /// For [`Wanted::Candidates`].
    Candidates(CandidateRows),
    /// The same among some tokens, row by row: see [`Model::step_among`](crate::Model::step_among).
    Among(Vec<AmongRow>),
    /// For [`Wanted::Hidden`].
    Hidden(HiddenRows),
    /// For [`Wanted::Rows`]: each output of that kind, in the program's order, row by row; not checked for being finite.
    Rows(Vec<Vec<f32>>),
    /// For [`Wanted::LogitsAndRows`].
    LogitsAndRows(LogitRows, Vec<Vec<f32>>),
}

impl RowsOut {
    /// No rows of what is wanted.
    pub fn none(what: Wanted) -> RowsOut {
        match what {
            Wanted::Logits => RowsOut::Logits(LogitRows::default()),
            Wanted::Candidates { k } => {
                RowsOut::Candidates(CandidateRows { candidates: Vec::new(), k })
            }
            Wanted::Hidden => RowsOut::Hidden(HiddenRows::default()),
            Wanted::Rows => RowsOut::Rows(Vec::new()),
            Wanted::LogitsAndRows => RowsOut::LogitsAndRows(LogitRows::default(), Vec::new()),
        }
    }

    /// The logits of a sequence that asked for them.
    ///
    /// # Panics
    /// If it did not.
    pub fn into_logits(self) -> LogitRows {
        self.into_logits_and_rows().0
    }

    /// The logits of a sequence that asked for them, and the rows beside them: none if it asked for logits alone.
    ///
    /// # Panics
    /// If it did not ask for logits.
    pub fn into_logits_and_rows(self) -> (LogitRows, Vec<Vec<f32>>) {
        match self {
            RowsOut::Logits(logits) => (logits, Vec::new()),
            RowsOut::LogitsAndRows(logits, rows) => (logits, rows),
            _ => panic!("the sequence asked for logits"),
        }
    }

    /// The rows of a sequence that asked for candidates.
    ///
    /// # Panics
    /// If it asked for something else.
    pub fn into_candidates(self) -> CandidateRows {
        match self {
            RowsOut::Candidates(rows) => rows,
            _ => panic!("the sequence asked for candidates"),
        }
    }

    /// The rows of a sequence that asked for hidden rows.
    ///
    /// # Panics
    /// If it asked for something else.
    pub fn into_hidden(self) -> HiddenRows {
        match self {
            RowsOut::Hidden(rows) => rows,
            _ => panic!("the sequence asked for hidden rows"),
        }
    }
}

/// Neighbouring logits that share a peak in [`LogitRows::peaks`].
pub const PEAK: usize = 64;

/// Rows of logits.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LogitRows {
    /// `[n_rows, vocab_size]`, row-major, all finite.
    pub logits: Vec<f32>,
    /// Width of a row; any number if there are none.
    pub vocab_size: usize,
    /// `[n_rows, vocab_size / PEAK]`, rounded up: the greatest of each [`PEAK`] neighbouring logits of a row, so that
    /// the best are found without a look at all.
    pub peaks: Vec<f32>,
}

impl LogitRows {
    /// Rows of logits, whose peaks are looked for here; NaN stands where a logit is not finite.
    pub fn new(logits: Vec<f32>, vocab_size: usize) -> LogitRows {
        let rows = logits.chunks_exact(vocab_size.max(1));
        let peak = |stretch: &[f32]| {
            let finite = stretch.iter().all(|x| x.is_finite());
            let most = stretch.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            if finite { most } else { f32::NAN }
        };
        let peaks = rows.flat_map(|row| row.chunks(PEAK).map(peak)).collect();
        LogitRows { logits, vocab_size, peaks }
    }

    /// The rows, in order.
    pub fn rows(&self) -> impl ExactSizeIterator<Item = &[f32]> {
        self.logits.chunks_exact(self.vocab_size.max(1))
    }
}

/// The likeliest tokens of rows.
#[derive(Clone, Debug, PartialEq)]
pub struct CandidateRows {
    /// `[n_rows, k]`: in each row the likeliest first, of equals the lower id.
    pub candidates: Vec<Candidate>,
    /// Candidates of a row: as many as were asked for, at most the vocabulary.
    pub k: usize,
}

impl CandidateRows {
    /// The best `k` of rows of `vocab_size` finite logits with their peaks, as in [`LogitRows`].
    ///
    /// # Errors
    /// [`Error::Memory`].
    pub fn of(logits: &[f32], vocab_size: usize, peaks: &[f32], k: usize) -> Result<CandidateRows> {
        let k = k.min(vocab_size);
        let rows = logits.chunks_exact(vocab_size.max(1));
        let (mut candidates, mut row) = (Vec::new(), Vec::new());
        let bytes = (rows.len() * k * size_of::<Candidate>()) as u64;
        candidates
            .try_reserve_exact(rows.len() * k)
            .map_err(|_| Error::Memory { what: "the candidates", bytes })?;
        for (logits, peaks) in rows.zip(peaks.chunks_exact(vocab_size.div_ceil(PEAK).max(1))) {
            k_likeliest(logits, peaks, k, &mut row);
            row.sort_unstable_by(Candidate::likelier);
            candidates.extend_from_slice(&row);
        }
        Ok(CandidateRows { candidates, k })
    }

    /// The rows, in order.
    pub fn rows(&self) -> impl ExactSizeIterator<Item = &[Candidate]> {
        self.candidates.chunks_exact(self.k.max(1))
    }
}

/// Rows of [`OutputKind::Hidden`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HiddenRows {
    /// `[n_rows, hidden_size]`, row-major, all finite.
    pub hidden: Vec<f32>,
    /// Width of a row.
    pub hidden_size: usize,
}

impl HiddenRows {
    /// The rows, in order.
    pub fn rows(&self) -> impl ExactSizeIterator<Item = &[f32]> {
        self.hidden.chunks_exact(self.hidden_size.max(1))
    }
}
