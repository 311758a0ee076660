//! [`Picky`]: a device for tests, that takes some ops and fails when it is told to.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use program::interpreter::Interpreter;
use program::{
    CacheOptions, CacheStorage, Error, Executor, MemoryNeeds, MemoryOptions, Model, Op, Program,
    Progress, Promises, Result, SessionId, Step, StepOut, StepStats, WeightSource,
};
use quant::GgmlType;

/// The interpreter, but for ops that it refuses.
#[derive(Clone)]
pub struct Picky {
    /// Whether it refuses an op.
    pub refuses: fn(&Op) -> bool,
    fails: Arc<AtomicUsize>,
    refuses_one: Arc<AtomicUsize>,
    besides: Arc<AtomicUsize>,
}

impl Picky {
    /// One that refuses what a device may lack: latents, indexers, experts and what recurs.
    pub fn as_a_gpu() -> Picky {
        let refuses = |op: &Op| {
            matches!(
                op,
                Op::LatentAttention(_)
                    | Op::Indexer(_)
                    | Op::CausalConv(_)
                    | Op::Scan(_)
                    | Op::Route(_)
                    | Op::Experts { .. }
            )
        };
        let [fails, refuses_one, besides] = std::array::from_fn(|_| Arc::default());
        Picky { refuses, fails, refuses_one, besides }
    }

    /// Have the `nth` of the steps to come fail, counted from 1 over all its models.
    pub fn fail(&self, nth: usize) {
        self.fails.store(nth, Ordering::Relaxed);
    }

    /// Have the first sequence of the `nth` of the steps to come fail, and no other.
    pub fn refuse_one(&self, nth: usize) {
        self.refuses_one.store(nth, Ordering::Relaxed);
    }

    /// Steps of all its models so far beside which something else was done.
    pub fn besides(&self) -> usize {
        self.besides.load(Ordering::Relaxed)
    }
}

impl Executor for Picky {
    fn supports(&self, op: &Op, _: &[GgmlType]) -> Result<()> {
        if (self.refuses)(op) {
            return Err(Error::Unsupported(format!("op `{}`", op.name())));
        }
        Ok(())
    }

    fn memory(&self, program: &Program, options: &MemoryOptions) -> Result<MemoryNeeds> {
        program.nodes.iter().try_for_each(|node| self.supports(&node.op, &[]))?;
        Interpreter.memory(program, options)
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
        program.nodes.iter().try_for_each(|node| self.supports(&node.op, &[]))?;
        let model = Interpreter.load(program, weights, progress)?;
        Ok(Box::new(PickyModel { model, of: self.clone() }))
    }

    fn beside(&self, _: &CacheStorage) -> Option<Box<dyn Executor>> {
        Some(Box::new(self.clone()))
    }

    fn describe(&self) -> String {
        "picky".into()
    }
}

struct PickyModel {
    model: Box<dyn Model>,
    of: Picky,
}

/// Whether this is the one that was counted to.
fn is_now(left: &AtomicUsize) -> bool {
    let less = |n: usize| n.checked_sub(1);
    left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less) == Ok(1)
}

impl Model for PickyModel {
    fn program(&self) -> &Arc<Program> {
        self.model.program()
    }

    fn open(&self, options: &CacheOptions) -> Result<SessionId> {
        self.model.open(options)
    }

    fn close(&self, id: SessionId) {
        self.model.close(id);
    }

    fn step(&self, step: &Step<'_>) -> Result<StepOut> {
        let problem = || Error::Device { problem: "it was told to fail".into() };
        let refuses_one = is_now(&self.of.refuses_one);
        if is_now(&self.of.fails) {
            return Err(problem());
        }
        let mut out = self.model.step(step)?;
        if refuses_one {
            out.sequences[0] = Err(problem());
        }
        Ok(out)
    }

    /// As a device does it: it is asked, something else is done, then it has finished or failed.
    fn step_beside(
        &self,
        step: &Step<'_>,
        go_on: &(dyn Fn() -> bool + Sync),
        beside: &mut dyn FnMut(),
    ) -> Result<StepOut> {
        if !go_on() {
            return Err(Error::Cancelled);
        }
        beside();
        self.of.besides.fetch_add(1, Ordering::Relaxed);
        self.step(step)
    }

    fn len(&self, id: SessionId) -> Result<usize> {
        self.model.len(id)
    }

    fn commit(&self, id: SessionId, len: usize) -> Result<()> {
        self.model.commit(id, len)
    }

    fn truncate(&self, id: SessionId, len: usize) -> Result<usize> {
        self.model.truncate(id, len)
    }

    fn fork(&self, id: SessionId, len: usize) -> Result<SessionId> {
        self.model.fork(id, len)
    }

    fn cache_bytes(&self, id: SessionId) -> Result<u64> {
        self.model.cache_bytes(id)
    }

    fn stats(&self) -> StepStats {
        self.model.stats()
    }
}
