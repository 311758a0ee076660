//! The sessions of a model that are on disk over restarts: put there and taken back.

use kv::ContentKey;
use program::{
    CacheOptions, Error, KeptNow, KeptPart, KeptPlace, KeptSession, KeptSessions, Result, SessionId,
};

use super::{CpuModel, Session, cache_error};
use crate::cache::{state_specs, table_specs};
use crate::kept::SessionFolder;

impl CpuModel {
    /// The sessions of a place, if there is one.
    pub(super) fn kept_in(&self, place: KeptPlace) -> Option<KeptInFolder<'_>> {
        let folder = self.kept.folder(place)?;
        Some(KeptInFolder { model: self, folder })
    }
}

/// Sessions of a model in a folder.
pub(super) struct KeptInFolder<'a> {
    model: &'a CpuModel,
    folder: &'a SessionFolder,
}

impl KeptInFolder<'_> {
    /// What went wrong, told by names of files alone.
    fn error(&self, error: impl Into<kv::Error>) -> Error {
        match error.into() {
            kv::Error::Stopped => Error::Cancelled,
            lost @ kv::Error::Lost { .. } => self.folder.problem(&lost, false),
            kv::Error::Disk(error) => self.folder.problem(&error, error.is_damage()),
            other => cache_error(other),
        }
    }

    /// What the numbers of a session with these options depend on.
    fn key(&self, options: &CacheOptions) -> ContentKey {
        ContentKey {
            policy: format!("{:?}", options.policy),
            cache_types: format!("{} {}", options.k.name(), options.v.name()),
            ..self.model.kept.key(self.folder)
        }
    }
}

impl KeptInFolder<'_> {
    /// Read a session that nobody else holds, such that a step that needs its memory can wait for this to end: a writer is
    /// counted from before it holds the session until after it let go. `write` asks its argument whether it may go on.
    fn while_held<T>(
        &self,
        id: SessionId,
        write: impl FnOnce(&Session, &dyn Fn() -> bool) -> Result<T>,
    ) -> Result<T> {
        loop {
            // declared first, so dropped last
            let keeping = self.model.kept.begin();
            let open = self.model.sessions.find(id)?;
            if let Some(session) = open.try_hold() {
                return write(&session, &|| keeping.may_go_on());
            }
            drop(keeping);
            drop(open.hold());
        }
    }
}

impl KeptSessions for KeptInFolder<'_> {
    fn names(&self) -> Vec<String> {
        self.folder.store().names()
    }

    fn about(&self, name: &str, options: &CacheOptions) -> Result<KeptSession> {
        let about = self.folder.store().about(name).map_err(|error| self.error(error))?;
        let differs = self
            .key(options)
            .differs(&about.key)
            .map(|(field, ours, theirs)| format!("made for {field} {theirs:?}, not {ours:?}"));
        Ok(KeptSession { tokens: about.tokens, note: about.note, bytes: about.bytes, differs })
    }

    fn part(&self, name: &str, options: &CacheOptions, len: usize) -> Result<KeptPart> {
        let shapes = self.model.shapes(options)?;
        let kinds = (&*table_specs(&shapes), &*state_specs(&shapes));
        let part = self.folder.store().part(name, kinds, len).map_err(|error| self.error(error))?;
        Ok(KeptPart { positions: part.positions, bytes: part.bytes, time: part.time })
    }

    fn keep(&self, name: &str, id: SessionId, note: &[u8]) -> Result<KeptNow> {
        let put = self.while_held(id, |session, go_on| {
            if !self.model.recomputes(0, session) {
                let what = "keeping rows that did not come from tokens".to_owned();
                return Err(Error::Unsupported(what));
            }
            let key = self.key(&session.options);
            let put = self.folder.store().begin((name, &key), &session.tables, note, go_on);
            put.map_err(|error| self.error(error))
        })?;
        // nobody who needs memory waits for the disk to have it
        let kept = put.finish().map_err(|error| self.error(error))?;
        let kv::SessionKept { positions, bytes, written, let_go } = kept;
        Ok(KeptNow { positions, bytes, written, let_go })
    }

    fn restore(
        &self,
        name: &str,
        id: SessionId,
        tokens: &[u32],
        go_on: &dyn Fn() -> bool,
    ) -> Result<KeptPart> {
        self.model.sessions.with(id, |session| {
            let key = self.key(&session.options);
            let room = &mut || self.model.let_go_of_idle(&[id]);
            let store = self.folder.store();
            let part = store.restore((name, &key), &mut session.tables, tokens, room, go_on);
            let part = part.map_err(|error| self.error(error))?;
            // it is not the first to go for others before it was in a step
            session.used = self.model.next_use();
            Ok(KeptPart { positions: part.positions, bytes: part.bytes, time: part.time })
        })
    }

    fn discard(&self, name: &str) -> Result<()> {
        self.folder.store().discard(name).map_err(|error| self.error(error))
    }
}
