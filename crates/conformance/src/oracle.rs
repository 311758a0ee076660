//! [`Oracle`]: the interpreter, which computes once what checks ask it again for each executor under test.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

use program::interpreter::Interpreter;
use program::{
    CacheOptions, Executor, MemoryNeeds, MemoryOptions, Model, Op, Outputs, Program, Progress,
    Promises, Prompt, Readings, Result, Sequence, SessionId, Step, StepOut, StepStats, Trace,
    ValueId, WeightSource,
};
use quant::GgmlType;

/// The interpreter. Whatever its models were asked before, in the same order, by this process, is answered from memory: a
/// suite that runs with the kernels of three instruction sets waits for it once.
#[derive(Clone, Copy, Debug, Default)]
pub struct Oracle;

impl Executor for Oracle {
    fn supports(&self, op: &Op, types: &[GgmlType]) -> Result<()> {
        Interpreter.supports(op, types)
    }

    fn memory(&self, program: &Program, options: &MemoryOptions) -> Result<MemoryNeeds> {
        Interpreter.memory(program, options)
    }

    fn promises(&self) -> Promises {
        Interpreter.promises()
    }

    fn load(
        &self,
        program: Arc<Program>,
        weights: &dyn WeightSource,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Box<dyn Model>> {
        let known = known(&program, weights)?;
        let model = Interpreter.load(program, weights, progress)?;
        Ok(Box::new(Remembering { model, state: Mutex::new(State { at: known, behind: vec![] }) }))
    }

    fn describe(&self) -> String {
        Interpreter.describe()
    }
}

/// What was asked after what, and answered: a tree from a newly loaded model on.
#[derive(Default)]
struct Known {
    next: Mutex<Vec<(Asked, Answer, Arc<Known>)>>,
}

/// Where models of this program with these weights begin.
fn known(program: &Program, weights: &dyn WeightSource) -> Result<Arc<Known>> {
    static MODELS: LazyLock<Mutex<HashMap<u64, Arc<Known>>>> = LazyLock::new(Mutex::default);
    let mut hasher = DefaultHasher::new();
    format!("{program:?}").hash(&mut hasher);
    for spec in &program.weights {
        hasher.write(&weights.bytes(spec)?);
    }
    Ok(Arc::clone(locked(&MODELS).entry(hasher.finish()).or_default()))
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // nothing panics between two changes of what is behind it
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What changes a model or takes long.
#[derive(Clone, Debug, PartialEq)]
enum Asked {
    Open(CacheOptions),
    Close(SessionId),
    Step(Vec<Rows>),
    Trace(Vec<Rows>, Vec<ValueId>),
    Commit(SessionId, usize),
    Truncate(SessionId, usize),
    Fork(SessionId, usize),
    Readings(SessionId),
}

/// What stays of a [`Sequence`].
#[derive(Clone, Debug, PartialEq)]
struct Rows {
    session: SessionId,
    tokens: Vec<u32>,
    outputs: Outputs,
    prompt: Option<Prompt>,
    given: Vec<Vec<f32>>,
}

#[derive(Clone)]
enum Answer {
    Nothing(Result<()>),
    Session(Result<SessionId>),
    Count(Result<usize>),
    Step(Result<StepOut>),
    Trace(Result<Trace>),
    Readings(Result<Readings>),
}

impl Asked {
    fn ask(&self, model: &dyn Model) -> Answer {
        match self {
            Asked::Open(options) => Answer::Session(model.open(options)),
            Asked::Close(id) => {
                model.close(*id);
                Answer::Nothing(Ok(()))
            }
            Asked::Step(rows) => Answer::Step(stepped(rows, |step| model.step(step))),
            Asked::Trace(rows, wanted) => {
                Answer::Trace(stepped(rows, |step| model.trace(step, wanted)))
            }
            Asked::Commit(id, len) => Answer::Nothing(model.commit(*id, *len)),
            Asked::Truncate(id, len) => Answer::Count(model.truncate(*id, *len)),
            Asked::Fork(id, len) => Answer::Session(model.fork(*id, *len)),
            Asked::Readings(id) => Answer::Readings(model.readings(*id)),
        }
    }
}

/// What `run` makes of a step of these rows.
fn stepped<T>(rows: &[Rows], run: impl FnOnce(&Step<'_>) -> T) -> T {
    let given: Vec<Vec<&[f32]>> =
        rows.iter().map(|rows| rows.given.iter().map(Vec::as_slice).collect()).collect();
    let sequences: Vec<Sequence<'_>> = rows
        .iter()
        .zip(&given)
        .map(|(rows, given)| Sequence {
            session: rows.session,
            tokens: &rows.tokens,
            outputs: rows.outputs,
            prompt: rows.prompt,
            rows: given,
        })
        .collect();
    run(&Step { sequences: &sequences })
}

fn kept(step: &Step<'_>) -> Vec<Rows> {
    let kept = |sequence: &Sequence<'_>| Rows {
        session: sequence.session,
        tokens: sequence.tokens.to_vec(),
        outputs: sequence.outputs,
        prompt: sequence.prompt,
        given: sequence.rows.iter().map(|rows| rows.to_vec()).collect(),
    };
    step.sequences.iter().map(kept).collect()
}

struct Remembering {
    model: Box<dyn Model>,
    state: Mutex<State>,
}

struct State {
    /// What is known of what comes next.
    at: Arc<Known>,
    /// What was answered from memory, and is still to be done should something new be asked.
    behind: Vec<Asked>,
}

impl Remembering {
    /// The answer, from memory if there is one.
    fn answer(&self, asked: Asked) -> Answer {
        let mut state = locked(&self.state);
        let at = Arc::clone(&state.at);
        let found = locked(&at.next).iter().find(|known| known.0 == asked).cloned();
        let (answer, next) = match found {
            Some((_, answer, next)) => {
                state.behind.push(asked);
                (answer, next)
            }
            None => {
                let answer = asked.ask(self.caught_up(&mut state));
                let next = Arc::new(Known::default());
                locked(&at.next).push((asked, answer.clone(), Arc::clone(&next)));
                (answer, next)
            }
        };
        state.at = next;
        answer
    }

    /// The model, after everything that was asked so far.
    fn caught_up(&self, state: &mut State) -> &dyn Model {
        for asked in state.behind.drain(..) {
            // its answer was given
            let _ = asked.ask(&*self.model);
        }
        &*self.model
    }

    fn now(&self) -> &dyn Model {
        self.caught_up(&mut locked(&self.state))
    }
}

/// The answer to `$asked`, which is of kind `$kind`.
macro_rules! answer {
    ($self:ident, $kind:ident, $asked:expr) => {
        match $self.answer($asked) {
            Answer::$kind(answer) => answer,
            _ => unreachable!("an answer is of the kind of what was asked"),
        }
    };
}

impl Model for Remembering {
    fn program(&self) -> &Arc<Program> {
        self.model.program()
    }

    fn open(&self, options: &CacheOptions) -> Result<SessionId> {
        answer!(self, Session, Asked::Open(*options))
    }

    fn close(&self, id: SessionId) {
        self.answer(Asked::Close(id));
    }

    fn step(&self, step: &Step<'_>) -> Result<StepOut> {
        answer!(self, Step, Asked::Step(kept(step)))
    }

    fn trace(&self, step: &Step<'_>, wanted: &[ValueId]) -> Result<Trace> {
        answer!(self, Trace, Asked::Trace(kept(step), wanted.to_vec()))
    }

    fn len(&self, id: SessionId) -> Result<usize> {
        self.now().len(id)
    }

    fn commit(&self, id: SessionId, len: usize) -> Result<()> {
        answer!(self, Nothing, Asked::Commit(id, len))
    }

    fn truncate(&self, id: SessionId, len: usize) -> Result<usize> {
        answer!(self, Count, Asked::Truncate(id, len))
    }

    fn fork(&self, id: SessionId, len: usize) -> Result<SessionId> {
        answer!(self, Session, Asked::Fork(id, len))
    }

    fn readings(&self, id: SessionId) -> Result<Readings> {
        answer!(self, Readings, Asked::Readings(id))
    }

    fn cache_bytes(&self, id: SessionId) -> Result<u64> {
        self.now().cache_bytes(id)
    }

    fn stats(&self) -> StepStats {
        self.now().stats()
    }
}
