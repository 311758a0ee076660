//! [`KeptConversations`]: conversations on disk, found again by their tokens.
//!
//! What is here knows tokens and names, whose a conversation is, and what computing it would take; what its cache consists of,
//! and where that lies, the model knows ([`program::KeptSessions`]). Nothing that is found is believed before its tokens were
//! compared; whatever is wrong with it, the tokens are computed.

mod found;
mod note;
mod saved;

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use program::{CacheOptions, Error, KeptPlace, KeptSession, KeptSessions, Model};

use crate::alike::alike;
use crate::{Result, Session};
use found::{Known, STRETCH, stretches};
use note::Note;

pub use note::Owner;
pub use saved::{Saved, find_saved, restore_saved, save};

/// Tokens that a conversation on disk must save computing.
pub const LEAST_KEPT: usize = 64;
/// Conversations that are looked at for a prompt.
const MOST_LOOKED_AT: usize = 4;
/// Tokens at the end of a conversation that its next prompt may write in another way than they were generated.
pub const REWRITTEN: usize = 16;
/// What takes no longer than this is read in any case: nobody notices, and others have the processor meanwhile.
const UNNOTICED: Duration = Duration::from_millis(50);
/// Tokens of a prompt that took long enough to tell how fast prompts are computed.
const TELLING: usize = 32;

/// Told what becomes of conversations on disk, in a line.
pub type TellKept = dyn Fn(&str) + Send + Sync;

/// The conversations of a model that are on disk. Whoever has it may ask from any thread.
pub struct KeptConversations {
    model: Arc<dyn Model>,
    cache: CacheOptions,
    chunk: usize,
    tell: Arc<TellKept>,
    known: Mutex<BTreeMap<String, Known>>,
    /// Seconds for a token of a prompt, as measured here.
    pace: Mutex<Option<f64>>,
}

/// As what a conversation is on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptAs {
    name: String,
    /// Which of those that had this name.
    version: u64,
    tokens: Arc<[u32]>,
}

impl KeptConversations {
    /// Those of a model for sessions with this cache; `None` if it keeps none. What is damaged goes, and is told.
    pub fn open(
        model: &Arc<dyn Model>,
        cache: CacheOptions,
        chunk: usize,
        tell: &Arc<TellKept>,
    ) -> Option<KeptConversations> {
        let kept = model.kept(KeptPlace::Conversations)?;
        let mut known = BTreeMap::new();
        for name in kept.names() {
            match kept.about(&name, &cache) {
                Ok(about) => {
                    // another's, who knows what it means
                    let Some(note) = Note::from_bytes(&about.note) else { continue };
                    known.insert(name, Known::new(&about.tokens, note, about.differs));
                }
                Err(error) => lose(&*kept, &name, &error, &**tell),
            }
        }
        let (model, tell) = (Arc::clone(model), Arc::clone(tell));
        let (known, pace) = (Mutex::new(known), Mutex::default());
        drop(kept);
        Some(KeptConversations { model, cache, chunk, tell, known, pace })
    }

    fn known(&self) -> MutexGuard<'_, BTreeMap<String, Known>> {
        // every change is whole before anything can panic
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn kept(&self) -> Option<Box<dyn KeptSessions + '_>> {
        self.model.kept(KeptPlace::Conversations)
    }

    /// So many tokens of a prompt were computed in this time.
    pub fn measured(&self, tokens: usize, time: Duration) {
        if tokens < TELLING {
            return;
        }
        let each = time.as_secs_f64() / tokens as f64;
        let mut pace = self.pace.lock().unwrap_or_else(PoisonError::into_inner);
        *pace = Some(pace.map_or(each, |before| (before + each) / 2.0));
    }

    fn pace(&self) -> Option<f64> {
        *self.pace.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many tokens of a prompt a conversation of this owner on disk is likely to have; nothing is read for that. One that
    /// has more of them and is of no use here is told of, once.
    pub fn promised(&self, owner: Owner, prompt: &[u32]) -> usize {
        let wanted = stretches(prompt);
        let mut known = self.known();
        let mut most = 0;
        let mut useless: Option<(String, usize, String)> = None;
        for (name, one) in known.iter_mut().filter(|(_, one)| one.note.owner == owner) {
            let n = one.shares(&wanted);
            match &one.differs {
                None => most = most.max(n),
                Some(why) if n > useless.as_ref().map_or(0, |(_, n, _)| *n) && !one.is_told => {
                    useless = Some((name.clone(), n, why.clone()));
                }
                Some(_) => {}
            }
        }
        if let Some((name, n, why)) = useless
            && n > most
        {
            if let Some(one) = known.get_mut(&name) {
                one.is_told = true;
            }
            drop(known);
            (self.tell)(&format!("a conversation on disk is computed again: {name}: {why}"));
        }
        most * STRETCH
    }

    /// A session that has what a conversation of this owner on disk has of a prompt, if reading that takes no time, or less than to
    /// compute what goes beyond the first `have` tokens. `scope`: of the session.
    pub fn restore(
        &self,
        (owner, scope): (Owner, u64),
        prompt: &[u32],
        have: usize,
        cancel: &AtomicBool,
    ) -> Option<(Session, KeptAs)> {
        let kept = self.kept()?;
        for (name, version, about, len) in self.candidates(&*kept, owner, prompt, have) {
            let part = match kept.part(&name, &self.cache, len) {
                Ok(part) => part,
                Err(error) => {
                    self.lost(&*kept, &name, &error);
                    continue;
                }
            };
            let gained = part.positions.saturating_sub(have);
            let written = Note::from_bytes(&about.note).and_then(|note| note.pace);
            let computing = self.pace().or(written).map(|pace| pace * gained as f64);
            let pays = computing.is_none_or(|computing| part.time.as_secs_f64() < computing);
            let pays = pays || part.time <= UNNOTICED;
            if gained < LEAST_KEPT || !pays {
                continue;
            }
            let cache = CacheOptions { scope, ..self.cache };
            let go_on = || !cancel.load(Ordering::Relaxed);
            let restored = Session::restored(
                (Arc::clone(&self.model), cache, self.chunk),
                (&*kept, &name),
                &about.tokens[..len],
                &go_on,
            );
            match restored {
                Ok((session, _)) => {
                    let tokens = about.tokens.into();
                    return Some((session, KeptAs { name, version, tokens }));
                }
                Err(crate::Error::Model(Error::Cancelled)) => return None,
                Err(error) => {
                    let error = match error {
                        crate::Error::Model(error) => error,
                        other => Error::Unsupported(other.to_string()),
                    };
                    self.lost(&*kept, &name, &error);
                }
            }
        }
        None
    }

    /// Conversations of an owner that have more than `have` tokens of a prompt, by name and version, and how many, those with
    /// most first.
    fn candidates(
        &self,
        kept: &dyn KeptSessions,
        owner: Owner,
        prompt: &[u32],
        have: usize,
    ) -> Vec<(String, u64, KeptSession, usize)> {
        let wanted = stretches(prompt);
        let mut likely: Vec<(usize, String, u64)> = {
            let known = self.known();
            let usable = known.iter().filter(|(_, one)| one.note.owner == owner);
            let usable = usable.filter(|(_, one)| one.differs.is_none());
            let likely =
                |(name, one): (&String, &Known)| (one.shares(&wanted), name.clone(), one.version);
            usable.map(likely).collect()
        };
        likely.retain(|(n, ..)| *n > 0 && (n + 1) * STRETCH > have + LEAST_KEPT);
        likely.sort();
        let mut found = Vec::new();
        for (_, name, version) in likely.into_iter().rev().take(MOST_LOOKED_AT) {
            match kept.about(&name, &self.cache) {
                Ok(about) => {
                    // it may be another one meanwhile
                    let note = Note::from_bytes(&about.note);
                    if note.is_some_and(|note| note.owner == owner) && about.differs.is_none() {
                        // the last token of a prompt is always computed
                        let len = alike(&about.tokens, prompt).min(prompt.len() - 1);
                        found.push((name, version, about, len));
                    }
                }
                Err(error) => self.lost(kept, &name, &error),
            }
        }
        found.sort_by_key(|(.., len)| std::cmp::Reverse(*len));
        found
    }

    /// Put a conversation on disk. `before`: as what it is there already, if it came from there or was put there. Returns as what
    /// it is there now; `None` if it is too short to be worth it, or has nothing any more.
    ///
    /// # Errors
    /// What the model says of the disk; what was there is there still.
    pub fn keep(
        &self,
        session: &Session,
        owner: Owner,
        before: Option<&KeptAs>,
    ) -> Result<Option<KeptAs>> {
        let Some(kept) = self.kept() else { return Ok(None) };
        let tokens = session.tokens();
        if tokens.len() < LEAST_KEPT {
            return Ok(None);
        }
        let goes_on = |as_what: &&KeptAs| {
            alike(&as_what.tokens, tokens) + REWRITTEN >= as_what.tokens.len()
                && self.known().get(&as_what.name).is_some_and(|one| one.version == as_what.version)
        };
        let before = before.filter(goes_on);
        if let Some(same) = before.filter(|as_what| *as_what.tokens == *tokens) {
            return Ok(Some(same.clone()));
        }
        let name = before.map_or_else(|| new_name(&*kept), |as_what| as_what.name.clone());
        let pace = self.pace().or_else(|| before.and_then(|as_what| self.pace_of(&as_what.name)));
        let note = Note { owner, pace };
        let now = kept.keep(&name, session.id(), &note.to_bytes())?;
        if now.positions == 0 {
            return Ok(None);
        }
        // whoever looks for something does not wait for the disk
        let names = (now.let_go > 0).then(|| kept.names());
        let mut known = self.known();
        if let Some(names) = names {
            known.retain(|known, _| names.contains(known));
        }
        let version = known.get(&name).map_or(0, |one| one.version) + 1;
        let tokens = &tokens[..now.positions.min(tokens.len())];
        known.insert(name.clone(), Known { version, ..Known::new(tokens, note, None) });
        Ok(Some(KeptAs { name, version, tokens: tokens.into() }))
    }

    /// Keep a conversation no longer, if it is still what it was.
    pub fn forget(&self, as_what: &KeptAs) {
        let mut known = self.known();
        let is_same = |one: &Known| one.version == as_what.version;
        if known.get(&as_what.name).is_some_and(is_same) {
            known.remove(&as_what.name);
            drop(known);
            if let Some(kept) = self.kept() {
                // one that is gone already needs no more
                let _ = kept.discard(&as_what.name);
            }
        }
    }

    /// The pace that a conversation was computed at.
    fn pace_of(&self, name: &str) -> Option<f64> {
        self.known().get(name)?.note.pace
    }

    /// A conversation is not to be had: what is damaged goes, and what else is wrong with one is told once.
    fn lost(&self, kept: &dyn KeptSessions, name: &str, error: &Error) {
        if is_damage(error) {
            self.known().remove(name);
        } else if let Some(one) = self.known().get_mut(name)
            && std::mem::replace(&mut one.is_told, true)
        {
            return;
        }
        lose(kept, name, error, &*self.tell);
    }
}

/// Whether what was kept never comes back.
fn is_damage(error: &Error) -> bool {
    matches!(error, Error::Disk { is_damage: true, .. })
}

/// Tell of a conversation that cannot be had, and remove one that is damaged; one that is gone already is no news, and one that
/// cannot be read now stays.
fn lose(kept: &dyn KeptSessions, name: &str, error: &Error, tell: &TellKept) {
    if is_damage(error)
        && kept.discard(name).is_err()
        && !kept.names().iter().any(|known| known == name)
    {
        return;
    }
    tell(&format!("a conversation on disk is computed again: {error}"));
}

/// A name that nothing has.
fn new_name(kept: &dyn KeptSessions) -> String {
    let names = kept.names();
    loop {
        let name = format!("chat-{:016x}", RandomState::new().hash_one(names.len()));
        if !names.contains(&name) {
            return name;
        }
    }
}

impl std::fmt::Debug for KeptConversations {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut out = f.debug_struct("KeptConversations");
        out.field("conversations", &self.known().len()).field("cache", &self.cache);
        out.finish_non_exhaustive()
    }
}
