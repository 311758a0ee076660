//! A model whose steps are watched: what measures and checks the engine hears, or bends, what its rows yielded.

use std::sync::Arc;

use program::{
    CacheOptions, KeptPlace, KeptSessions, Model, Program, Readings, Result, Sequence, SessionId,
    Step, StepOut, StepStats,
};

/// What is told of a model.
pub trait Watch: Send + Sync {
    /// `step` yielded `out`; `starts`: positions that its sessions held before.
    fn stepped(&self, step: &Step<'_>, starts: &[usize], out: &mut StepOut);

    /// A session is about to be opened.
    fn opening(&self) {}

    /// The session holds `len` positions now.
    fn truncated(&self, _id: SessionId, _len: usize) {}
}

/// Passes everything on to a model, and tells `watch`.
pub struct Watched<W> {
    model: Arc<dyn Model>,
    watch: W,
}

impl<W: Watch> Watched<W> {
    /// `model`, watched.
    pub fn new(model: Arc<dyn Model>, watch: W) -> Watched<W> {
        Watched { model, watch }
    }

    /// Who watches.
    pub fn watch(&self) -> &W {
        &self.watch
    }
}

impl<W: Watch> Model for Watched<W> {
    fn program(&self) -> &Arc<Program> {
        self.model.program()
    }

    fn open(&self, options: &CacheOptions) -> Result<SessionId> {
        self.watch.opening();
        self.model.open(options)
    }

    fn close(&self, id: SessionId) {
        self.model.close(id);
    }

    fn step(&self, step: &Step<'_>) -> Result<StepOut> {
        self.step_while(step, &|| true)
    }

    fn step_while(&self, step: &Step<'_>, go_on: &(dyn Fn() -> bool + Sync)) -> Result<StepOut> {
        let start = |s: &Sequence<'_>| self.model.len(s.session).unwrap_or(0);
        let starts: Vec<usize> = step.sequences.iter().map(start).collect();
        let mut out = self.model.step_while(step, go_on)?;
        self.watch.stepped(step, &starts, &mut out);
        Ok(out)
    }

    fn len(&self, id: SessionId) -> Result<usize> {
        self.model.len(id)
    }

    fn commit(&self, id: SessionId, len: usize) -> Result<()> {
        self.model.commit(id, len)
    }

    fn truncate(&self, id: SessionId, len: usize) -> Result<usize> {
        let reached = self.model.truncate(id, len)?;
        self.watch.truncated(id, reached);
        Ok(reached)
    }

    fn fork(&self, id: SessionId, len: usize) -> Result<SessionId> {
        self.watch.opening();
        self.model.fork(id, len)
    }

    fn reuse(&self, id: SessionId, tokens: &[u32]) -> Result<usize> {
        self.model.reuse(id, tokens)
    }

    fn readings(&self, id: SessionId) -> Result<Readings> {
        self.model.readings(id)
    }

    fn kept(&self, place: KeptPlace) -> Option<Box<dyn KeptSessions + '_>> {
        self.model.kept(place)
    }

    fn cache_bytes(&self, id: SessionId) -> Result<u64> {
        self.model.cache_bytes(id)
    }

    fn stats(&self) -> StepStats {
        self.model.stats()
    }
}
