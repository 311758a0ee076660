//! Rows that a session has not any more are computed again from its tokens: they were lost on disk, or let go of for others.

use std::sync::atomic::Ordering;

use kernels::attention::BLOCK;
use kv::{DiskError, StepPlace};
use program::{Error, Held, Outputs, Prompt, Result, RowRule, Sequence, SessionId};

use super::step::{Ended, Running};
use super::{CpuModel, Session, cache_error};
use crate::workspace::Workspace;

/// How often lost rows are computed again before it is told: a disk that loses everything would go on for ever.
pub(super) const ATTEMPTS: usize = 3;

/// What is told of a disk that fails again and again.
pub(super) fn disk_error(reason: &DiskError) -> Error {
    Error::disk(format!("{reason}; what it held was computed again {ATTEMPTS} times"))
}

impl CpuModel {
    /// Make a session that is held ready for a step up to `new_len`: with all rows before, and room for the new ones.
    pub(super) fn ready<'h>(
        &self,
        mut session: Held<'h, Session>,
        new_len: usize,
        place: StepPlace,
        asked: &[SessionId],
        workspace: &mut Workspace,
    ) -> Result<Held<'h, Session>> {
        let mut attempts = 0;
        loop {
            let len = session.tables.len();
            let lost = if session.tables.held() < len {
                match self.restore(session, asked, workspace)? {
                    (back, None) => {
                        session = back;
                        continue;
                    }
                    (back, Some(reason)) => {
                        session = back;
                        reason
                    }
                }
            } else {
                match self.prepare(&mut session, new_len, place, asked) {
                    Ok(()) => return Ok(session),
                    Err(Ended::Lost(reason)) => reason,
                    Err(Ended::Failed(error)) => return Err(error),
                }
            };
            attempts += 1;
            if attempts > ATTEMPTS {
                return Err(disk_error(&lost));
            }
        }
    }

    /// Make room up to `new_len`; where there is none, idle sessions let go of what they have before this one gives up
    /// anything.
    fn prepare(
        &self,
        session: &mut Session,
        new_len: usize,
        place: StepPlace,
        asked: &[SessionId],
    ) -> Result<(), Ended> {
        match session.tables.prepare_step(new_len, place, &mut || self.let_go_of_idle(asked)) {
            Ok(()) => Ok(()),
            Err(kv::Error::Lost { position, reason }) => {
                session.tables.lose(position);
                Err(Ended::Lost(reason))
            }
            Err(error) => Err(Ended::Failed(cache_error(error))),
        }
    }

    /// Compute missing rows, in steps of a block each; why it has to be begun again, if others were lost meanwhile.
    fn restore<'h>(
        &self,
        mut session: Held<'h, Session>,
        asked: &[SessionId],
        workspace: &mut Workspace,
    ) -> Result<(Held<'h, Session>, Option<DiskError>)> {
        let (len, capacity) = (session.tables.len(), session.tables.capacity());
        if !self.recomputes(session.tables.held(), &session) {
            return Err(Error::disk("rows that did not come from tokens are lost"));
        }
        let whole = RowRule::Sequence { whole: true };
        let at_once = self.program.nodes.iter().any(|node| node.op.facts().rows == whole);
        let tokens = session.tables.tokens().to_vec();
        while session.tables.held() < len {
            let held = session.tables.held();
            let end = if at_once { len } else { len.min(held + BLOCK) };
            match self.prepare(&mut session, end, StepPlace::default(), asked) {
                Ok(()) => {}
                Err(Ended::Lost(reason)) => return Ok((session, Some(reason))),
                Err(Ended::Failed(error)) => return Err(error),
            }
            let sequence = Sequence {
                session: SessionId(0),
                tokens: &tokens[held..end],
                outputs: Outputs::NONE,
                prompt: Some(Prompt { start: 0, len }),
                rows: &[],
            };
            sequence.check(&self.program, held, capacity)?;
            let mut running = Running {
                sequence: &sequence,
                session,
                start: held,
                rows: None,
                readings: Vec::new(),
            };
            let done = self.pass(&mut [&mut running], workspace, &|| true);
            session = running.session;
            match done {
                Ok(()) => session.tables.restore(end).map_err(cache_error)?,
                Err(Ended::Lost(reason)) => return Ok((session, Some(reason))),
                Err(Ended::Failed(error)) => {
                    session.tables.abandon();
                    return Err(error);
                }
            }
            self.recomputed.fetch_add((end - held) as u64, Ordering::Relaxed);
        }
        Ok((session, None))
    }

    /// Whether a session's rows from a position on follow from its tokens: not where rows came from outside, or were made
    /// up.
    pub(super) fn recomputes(&self, from: usize, session: &Session) -> bool {
        let n = self.program.n_tokens().unwrap_or(usize::MAX);
        let known = |token: &u32| (*token as usize) < n;
        self.program.inputs.is_empty() && session.tables.tokens()[from..].iter().all(known)
    }

    /// Have the session that was idle longest let go of its rows; those that are `asked` for do not. A session that is being
    /// written to disk lets go when no other can. Returns whether memory may have come free.
    pub(super) fn let_go_of_idle(&self, asked: &[SessionId]) -> bool {
        self.let_go_of_one(asked) || {
            let have_stopped = self.kept.give_way();
            // one that was closed meanwhile is not among the others, and its memory is free all the same
            self.let_go_of_one(asked) || have_stopped
        }
    }

    fn let_go_of_one(&self, asked: &[SessionId]) -> bool {
        let others = self.sessions.others(asked);
        let idle = others.iter().filter_map(|session| session.try_hold());
        let idle = idle.filter(|session| session.tables.held() > 0 && self.recomputes(0, session));
        match idle.min_by_key(|session| session.used) {
            Some(mut session) => session.tables.let_go(),
            None => return false,
        }
        true
    }
}
