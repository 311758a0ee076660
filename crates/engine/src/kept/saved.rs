//! Sessions that somebody saves by a name and has back.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use program::{CacheOptions, Error, KeptPart, KeptPlace, KeptSessions, Model};

use super::Owner;
use super::note::Note;
use crate::{Result, Session};

/// What came of saving a session or having it back.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Saved {
    /// Tokens of it.
    pub tokens: usize,
    /// Bytes of its cache.
    pub bytes: u64,
}

fn saved(model: &Arc<dyn Model>) -> Result<Box<dyn KeptSessions + '_>> {
    let none = || Error::Unsupported("saving sessions: there is no folder for them".into());
    Ok(model.kept(KeptPlace::Saved).ok_or_else(none)?)
}

/// What is wrong with a name, as far as it can be told.
fn not_there(name: &str) -> Error {
    Error::Disk { problem: format!("{name}: there is no such file") }
}

/// Save a session under a name, in place of one of the same owner that has it.
///
/// # Errors
/// A name that is another owner's, or none; what the disk says.
pub fn save(session: &Session, name: &str, owner: Owner) -> Result<Saved> {
    let kept = saved(session.model())?;
    // what is damaged may go
    if let Ok(there) = kept.about(name, &session.cache())
        && Note::from_bytes(&there.note).is_some_and(|note| note.owner != owner)
    {
        let problem = format!("{name}: the name is taken");
        return Err(Error::Disk { problem }.into());
    }
    let now = kept.keep(name, session.id(), &Note { owner, pace: None }.to_bytes())?;
    if now.positions == 0 {
        return Err(Error::Disk { problem: format!("{name}: the session has nothing") }.into());
    }
    Ok(Saved { tokens: now.positions, bytes: now.bytes })
}

/// A session that has what this owner saved under a name.
///
/// # Errors
/// Nothing of the owner's has this name; it was made by other means; it is damaged; memory; [`Error::Cancelled`].
pub fn restore_saved(
    (model, cache, chunk): (&Arc<dyn Model>, CacheOptions, usize),
    name: &str,
    owner: Owner,
    cancel: &AtomicBool,
) -> Result<(Session, Saved)> {
    let kept = saved(model)?;
    if !kept.names().iter().any(|known| known == name) {
        return Err(not_there(name).into());
    }
    let about = kept.about(name, &cache)?;
    if Note::from_bytes(&about.note).is_none_or(|note| note.owner != owner) {
        return Err(not_there(name).into());
    }
    if let Some(why) = about.differs {
        return Err(Error::Disk { problem: format!("{name}: {why}") }.into());
    }
    let go_on = || !cancel.load(Ordering::Relaxed);
    let with = (Arc::clone(model), cache, chunk);
    let (session, part) = Session::restored(with, (&*kept, name), &about.tokens, &go_on)?;
    let KeptPart { positions, bytes, .. } = part;
    Ok((session, Saved { tokens: positions, bytes }))
}
