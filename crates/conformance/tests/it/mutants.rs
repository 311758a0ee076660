//! The suite catches executors that are wrong in the ways executors go wrong.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};

use conformance::{MEANING, SAME_BITS};
use program::interpreter::Interpreter;
use program::{
    CacheOptions, Error, Executor, LogitRows, MemoryNeeds, MemoryOptions, Model, Op, Program,
    Progress, Promises, Result, RowsOut, SessionId, Step, StepOut, StepStats, WeightSource,
};
use quant::GgmlType;

/// What an executor does wrong.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    /// Nothing.
    None,
    /// Logits are off by a thousandth.
    Rounds,
    /// Long steps round otherwise than single tokens.
    ChunkDependent,
    /// Truncating does nothing.
    KeepsRows,
    /// A fork goes on in its parent.
    SharesFork,
    /// A failed step leaves the rows of its first sequence.
    HalfSteps,
    /// No fault: as above, and it says so.
    PromisesNothing,
    /// Caches are allocated whole.
    CommitsCapacity,
    /// One sequence's error is the step's.
    FailsTogether,
    /// Candidates are the right ones, in no order.
    MixesCandidates,
    /// Hidden rows are those before the norm, or near.
    OtherHidden,
    /// Rows that are handed out beside logits are not those that come alone.
    HandsOtherRows,
    /// One lock for all.
    OneLock,
    /// NaN is handed on.
    HandsOnNan,
    /// Rows of the sequences come in another order.
    SwapsRows,
    /// Peaks are not those of the logits.
    WrongPeaks,
}

struct Faulty(Fault);

struct FaultyModel(Fault, Box<dyn Model>, Mutex<()>);

impl FaultyModel {
    fn spoil(&self, step: &Step<'_>, rows: &mut LogitRows) {
        let factor = match self.0 {
            Fault::Rounds => 1.001,
            Fault::ChunkDependent | Fault::PromisesNothing
                if step.sequences[0].tokens.len() > 1 =>
            {
                1.0 + f32::EPSILON
            }
            _ => return self.spoil_peaks(rows),
        };
        rows.logits.iter_mut().for_each(|x| *x *= factor);
        *rows = LogitRows::new(std::mem::take(&mut rows.logits), rows.vocab_size);
    }

    fn spoil_peaks(&self, rows: &mut LogitRows) {
        if self.0 == Fault::WrongPeaks {
            rows.peaks.reverse();
        }
    }
}

impl Executor for Faulty {
    fn supports(&self, op: &Op, types: &[GgmlType]) -> Result<()> {
        Interpreter.supports(op, types)
    }

    fn memory(&self, program: &Program, options: &MemoryOptions) -> Result<MemoryNeeds> {
        Interpreter.memory(program, options)
    }

    fn promises(&self) -> Promises {
        match self.0 {
            Fault::PromisesNothing => Promises::default(),
            _ => Promises::all(),
        }
    }

    fn load(
        &self,
        program: Arc<Program>,
        weights: &dyn WeightSource,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Box<dyn Model>> {
        let model = Interpreter.load(program, weights, progress)?;
        Ok(Box::new(FaultyModel(self.0, model, Mutex::default())))
    }

    fn describe(&self) -> String {
        format!("{:?}", self.0)
    }
}

impl Model for FaultyModel {
    fn program(&self) -> &Arc<Program> {
        self.1.program()
    }

    fn open(&self, options: &CacheOptions) -> Result<SessionId> {
        self.1.open(options)
    }

    fn close(&self, id: SessionId) {
        if self.0 != Fault::SharesFork {
            self.1.close(id);
        }
    }

    fn step(&self, step: &Step<'_>) -> Result<StepOut> {
        let _all = self.2.lock();
        let mut out = match self.1.step(step) {
            Err(e) if self.0 == Fault::HalfSteps && step.sequences.len() > 1 => {
                self.1.step(&Step { sequences: &step.sequences[..1] })?.all()?;
                return Err(e);
            }
            result => result?,
        };
        if self.0 == Fault::FailsTogether
            && let Some(Err(error)) = out.sequences.iter().find(|rows| rows.is_err())
        {
            return Err(error.clone());
        }
        for rows in &mut out.sequences {
            match rows {
                Ok(RowsOut::LogitsAndRows(_, handed)) if self.0 == Fault::HandsOtherRows => {
                    handed.iter_mut().flatten().for_each(|x| *x *= 1.01);
                }
                Ok(RowsOut::Logits(rows) | RowsOut::LogitsAndRows(rows, _)) => {
                    self.spoil(step, rows)
                }
                Ok(RowsOut::Candidates(rows)) if self.0 == Fault::MixesCandidates => {
                    rows.candidates.chunks_mut(rows.k).for_each(<[_]>::reverse);
                }
                Ok(RowsOut::Hidden(rows)) if self.0 == Fault::OtherHidden => {
                    rows.hidden.iter_mut().for_each(|x| *x *= 1.01);
                }
                Err(Error::NonFinite { .. }) if self.0 == Fault::HandsOnNan => {
                    let vocab_size = self.program().vocab_size();
                    let nan = LogitRows::new(vec![f32::NAN; vocab_size], vocab_size);
                    *rows = Ok(RowsOut::Logits(nan));
                }
                Ok(
                    RowsOut::Candidates(_)
                    | RowsOut::Among(_)
                    | RowsOut::Hidden(_)
                    | RowsOut::Rows(_),
                )
                | Err(_) => {}
            }
        }
        if self.0 == Fault::SwapsRows {
            out.sequences.reverse();
        }
        Ok(out)
    }

    fn len(&self, id: SessionId) -> Result<usize> {
        let _all = (self.0 == Fault::OneLock).then(|| self.2.lock());
        self.1.len(id)
    }

    fn commit(&self, id: SessionId, len: usize) -> Result<()> {
        self.1.commit(id, len)
    }

    fn truncate(&self, id: SessionId, len: usize) -> Result<usize> {
        if self.0 == Fault::KeepsRows { Ok(len) } else { self.1.truncate(id, len) }
    }

    fn fork(&self, id: SessionId, len: usize) -> Result<SessionId> {
        if self.0 == Fault::SharesFork { Ok(id) } else { self.1.fork(id, len) }
    }

    fn cache_bytes(&self, id: SessionId) -> Result<u64> {
        let bytes = self.1.cache_bytes(id)?;
        Ok(if self.0 == Fault::CommitsCapacity { 1 << 40 } else { bytes })
    }

    fn stats(&self) -> StepStats {
        self.1.stats()
    }
}

/// Whether the named check passes with this fault.
fn passes(fault: Fault, check: &str) -> bool {
    let check =
        MEANING.iter().chain(SAME_BITS).find(|c| c.name == check).expect("a check of this name");
    catch_unwind(AssertUnwindSafe(|| (check.run)(&Faulty(fault)))).is_ok()
}

#[test]
fn faults_are_caught() {
    // Panics are what is looked for here: keep them out of the output.
    std::panic::set_hook(Box::new(|_| ()));
    let cases = [
        (Fault::Rounds, "op/linear"),
        (Fault::Rounds, "op/attention"),
        (Fault::Rounds, "model/plain"),
        (Fault::ChunkDependent, "session/chunks"),
        (Fault::KeepsRows, "session/rollback"),
        (Fault::KeepsRows, "session/commit"),
        (Fault::SharesFork, "session/fork"),
        (Fault::HalfSteps, "error/step"),
        (Fault::CommitsCapacity, "cache/memory"),
        (Fault::HandsOnNan, "error/non_finite"),
        (Fault::SwapsRows, "session/together"),
        (Fault::WrongPeaks, "model/plain"),
        (Fault::OneLock, "lock/others_do_not_wait"),
        (Fault::FailsTogether, "result/beside"),
        (Fault::HandsOnNan, "result/beside"),
        (Fault::SwapsRows, "result/beside"),
        (Fault::MixesCandidates, "result/candidates"),
        (Fault::OtherHidden, "result/hidden"),
        (Fault::HandsOtherRows, "result/rows_beside_logits"),
    ];
    let missed: Vec<_> = cases.iter().filter(|(fault, check)| passes(*fault, check)).collect();
    let wrong: Vec<_> =
        cases.iter().map(|(_, check)| *check).filter(|check| !passes(Fault::None, check)).collect();
    let _ = std::panic::take_hook();
    assert!(
        missed.is_empty() && wrong.is_empty(),
        "missed {missed:?}, refused without a fault {wrong:?}"
    );
}

/// An executor whose bits depend on cuts passes, if it does not promise otherwise.
#[test]
fn what_is_not_promised_is_not_asked_for() {
    let executor = Faulty(Fault::PromisesNothing);
    let errors = MEANING.iter().filter(|check| check.name.starts_with("error/"));
    conformance::run(&executor, &errors.copied().collect::<Vec<_>>());
    conformance::run(&executor, SAME_BITS);
    let asked = |faulty: &Faulty| SAME_BITS.iter().filter(|check| check.is_for(faulty)).count();
    assert_eq!([asked(&executor), asked(&Faulty(Fault::None))], [0, SAME_BITS.len()]);
}
