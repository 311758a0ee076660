//! Sessions that somebody saves by a name and has back.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use program::{CacheOptions, KeptPart, KeptPlace, KeptSession, KeptSessions, Model};

use super::note::Note;
use super::{Owner, is_damage};
use crate::{Error, Result, Session};

/// What came of saving a session or having it back.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Saved {
    /// Tokens of it.
    pub tokens: usize,
    /// Bytes of its cache.
    pub bytes: u64,
}

fn saved(model: &Arc<dyn Model>) -> Result<Box<dyn KeptSessions + '_>> {
    let none = || program::Error::Unsupported("saving sessions: there is no folder".into());
    Ok(model.kept(KeptPlace::Saved).ok_or_else(none)?)
}

fn of_no_use(name: &str, problem: impl Into<String>) -> Error {
    Error::Saved { name: name.to_owned(), problem: problem.into() }
}

/// What is wrong with what was saved under a name.
fn unreadable(name: &str, error: Error) -> Error {
    match error {
        Error::Model(error) if is_damage(&error) => of_no_use(name, error.to_string()),
        other => other,
    }
}

/// Whether something is an owner's.
fn is_of(there: &KeptSession, owner: Owner) -> bool {
    Note::from_bytes(&there.note).is_some_and(|note| note.owner == owner)
}

/// Save a session under a name, in place of one of the same owner that has it, or of one that is damaged.
///
/// # Errors
/// [`Error::Saved`] for a name that is another's, or none; what the disk says, also of what has this name and cannot be read.
pub fn save(session: &Session, name: &str, owner: Owner) -> Result<Saved> {
    let kept = saved(session.model())?;
    if kept.names().iter().any(|known| known == name) {
        match kept.about(name, &session.cache()) {
            Ok(there) if is_of(&there, owner) => {}
            Ok(_) => return Err(of_no_use(name, "the name is taken")),
            Err(error) if is_damage(&error) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let now = kept.keep(name, session.id(), &Note { owner, pace: None }.to_bytes())?;
    if now.positions == 0 {
        return Err(of_no_use(name, "the session has nothing"));
    }
    Ok(Saved { tokens: now.positions, bytes: now.bytes })
}

/// What this owner saved under a name, if it is of use here.
///
/// # Errors
/// [`Error::Saved`]: nothing of the owner's has this name, it was made by other means, or it is damaged; what the disk says.
pub fn find_saved(
    (model, cache): (&Arc<dyn Model>, &CacheOptions),
    name: &str,
    owner: Owner,
) -> Result<KeptSession> {
    let kept = saved(model)?;
    let not_there = || of_no_use(name, "there is no such file");
    if !kept.names().iter().any(|known| known == name) {
        return Err(not_there());
    }
    let there = kept.about(name, cache).map_err(|error| unreadable(name, error.into()))?;
    if !is_of(&there, owner) {
        return Err(not_there());
    }
    match there.differs {
        Some(why) => Err(of_no_use(name, why)),
        None => Ok(there),
    }
}

/// A session that has what this owner saved under a name.
///
/// # Errors
/// As [`find_saved`]; a session that cannot be gone on from; memory; [`program::Error::Cancelled`].
pub fn restore_saved(
    (model, cache, chunk): (&Arc<dyn Model>, CacheOptions, usize),
    name: &str,
    owner: Owner,
    cancel: &AtomicBool,
) -> Result<(Session, Saved)> {
    let there = find_saved((model, &cache), name, owner)?;
    let go_on = || !cancel.load(Ordering::Relaxed);
    let with = (Arc::clone(model), cache, chunk);
    let kept = saved(model)?;
    let restored = Session::restored(with, (&*kept, name), &there.tokens, &go_on);
    let (session, part) = restored.map_err(|error| unreadable(name, error))?;
    let KeptPart { positions, bytes, .. } = part;
    if positions == 0 {
        let tokens = there.tokens.len();
        return Err(of_no_use(name, format!("none of its {tokens} tokens can be had back")));
    }
    Ok((session, Saved { tokens: positions, bytes }))
}
