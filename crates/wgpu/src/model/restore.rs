//! Rows that a session has not any more are computed again from its tokens: those since a state from which it can go on.

use kv::StepPlace;
use program::{Error, Held, Outputs, Result, RowRule, Sequence, SessionId};

use super::step::Running;
use super::{GpuModel, Session, cache_error, lock};
use crate::kernels::MATMAT_TILE;
use crate::workspace::StepMemory;

impl GpuModel {
    /// Whether rows come from outside, so that they do not follow from tokens.
    pub(super) fn is_given(&self) -> bool {
        !self.program.inputs.is_empty()
    }

    /// Make a session that is held ready for a step up to `new_len`: with all rows before, and room for the new ones.
    pub(super) fn ready<'h>(
        &self,
        session: Held<'h, Session>,
        new_len: usize,
        place: StepPlace,
        workspace: &mut StepMemory,
    ) -> Result<Held<'h, Session>> {
        let mut session = self.restore(session, workspace)?;
        session.tables.prepare_step(new_len, place, &mut || false).map_err(cache_error)?;
        Ok(session)
    }

    /// Compute missing rows, as many at a time as the session's steps had at most, or as any step has room for: that takes
    /// no memory beyond theirs.
    fn restore<'h>(
        &self,
        mut session: Held<'h, Session>,
        workspace: &mut StepMemory,
    ) -> Result<Held<'h, Session>> {
        let (len, capacity) = (session.tables.len(), session.tables.capacity());
        let whole = RowRule::Sequence { whole: true };
        let rows = session.most_rows.max(MATMAT_TILE);
        let at_once = self.program.nodes.iter().any(|node| node.op.facts().rows == whole);
        while session.tables.held() < len {
            let held = session.tables.held();
            let end = if at_once { len } else { len.min(held + rows) };
            let tokens = session.tables.tokens()[held..end].to_vec();
            let (session_id, outputs) = (SessionId(0), Outputs::NONE);
            let sequence =
                Sequence { session: session_id, tokens: &tokens, outputs, prompt: None, rows: &[] };
            sequence.check(&self.program, held, capacity)?;
            session.tables.prepare(end).map_err(cache_error)?;
            let mut running = Running::new(&sequence, session, held);
            let done = self.submission_of(&mut running, workspace);
            session = running.into_session();
            let done = done.and_then(|()| session.tables.restore(end).map_err(cache_error));
            if let Err(error) = done {
                session.tables.abandon();
                if matches!(error, Error::Memory { .. }) {
                    self.pool.give_back();
                }
                return Err(error);
            }
            lock(&self.stats).spilled.recomputed += (end - held) as u64;
        }
        Ok(session)
    }
}
