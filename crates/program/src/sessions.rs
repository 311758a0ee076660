//! The sessions of a model, each behind a lock of its own: a step holds those it uses, and nobody waits for others.

use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use crate::{Error, Result, SessionId};

/// What a session keeps, as far as others may ask while it is in use.
pub trait Kept {
    /// Positions held.
    fn positions(&self) -> usize;

    /// Bytes of memory it takes.
    fn bytes(&self) -> u64;
}

/// The open sessions of a model.
#[derive(Debug)]
pub struct Sessions<S> {
    table: Mutex<Table<S>>,
}

#[derive(Debug)]
struct Table<S> {
    slots: BTreeMap<SessionId, Arc<OpenSession<S>>>,
    last: u64,
}

/// A session: it can be held by one caller at a time, and asked for its length at any time.
#[derive(Debug)]
pub struct OpenSession<S> {
    session: Mutex<S>,
    positions: AtomicUsize,
    bytes: AtomicU64,
}

/// A session that nobody else holds. What it became is told when this is dropped.
#[derive(Debug)]
pub struct Held<'a, S: Kept> {
    slot: &'a OpenSession<S>,
    session: MutexGuard<'a, S>,
}

impl<S> Default for Sessions<S> {
    fn default() -> Self {
        Sessions { table: Mutex::new(Table { slots: BTreeMap::new(), last: 0 }) }
    }
}

impl<S: Kept> Sessions<S> {
    fn table(&self) -> MutexGuard<'_, Table<S>> {
        // nothing below panics between two changes of the table
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Add a session.
    pub fn open(&self, session: S) -> SessionId {
        let slot = Arc::new(OpenSession::new(session));
        let mut table = self.table();
        table.last += 1;
        let id = SessionId(table.last);
        table.slots.insert(id, slot);
        id
    }

    /// Forget a session: at once, or when whoever holds it lets go. Unknown ids are ignored.
    pub fn close(&self, id: SessionId) {
        let slot = self.table().slots.remove(&id);
        // its memory goes without the table's lock
        drop(slot);
    }

    /// The session with this id.
    ///
    /// # Errors
    /// [`Error::Session`].
    pub fn find(&self, id: SessionId) -> Result<Arc<OpenSession<S>>> {
        self.table().slots.get(&id).cloned().ok_or(Error::Session(id.0))
    }

    /// All open sessions but these.
    pub fn others(&self, asked: &[SessionId]) -> Vec<Arc<OpenSession<S>>> {
        let table = self.table();
        let others = table.slots.iter().filter(|(id, _)| !asked.contains(id));
        others.map(|(_, slot)| Arc::clone(slot)).collect()
    }

    /// Change a session, as soon as nobody else holds it.
    ///
    /// # Errors
    /// [`Error::Session`], and those of `change`.
    pub fn with<T>(&self, id: SessionId, change: impl FnOnce(&mut S) -> Result<T>) -> Result<T> {
        change(&mut self.find(id)?.hold())
    }
}

impl<S: Kept> OpenSession<S> {
    fn new(session: S) -> Self {
        let (positions, bytes) = (session.positions().into(), session.bytes().into());
        OpenSession { session: Mutex::new(session), positions, bytes }
    }

    /// Wait until nobody else holds the session. Who holds several takes them in a step, of which there is one at a time.
    pub fn hold(&self) -> Held<'_, S> {
        // a step that panicked had not yet changed what a session says it holds
        let session = self.session.lock().unwrap_or_else(PoisonError::into_inner);
        Held { slot: self, session }
    }

    /// Hold the session, if nobody else does.
    pub fn try_hold(&self) -> Option<Held<'_, S>> {
        let session = match self.session.try_lock() {
            Ok(session) => session,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        Some(Held { slot: self, session })
    }

    /// Positions it had when it was last let go.
    pub fn positions(&self) -> usize {
        self.positions.load(Ordering::Acquire)
    }

    /// Bytes it took when it was last let go.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Acquire)
    }
}

impl<S: Kept> Deref for Held<'_, S> {
    type Target = S;

    fn deref(&self) -> &S {
        &self.session
    }
}

impl<S: Kept> DerefMut for Held<'_, S> {
    fn deref_mut(&mut self) -> &mut S {
        &mut self.session
    }
}

impl<S: Kept> Drop for Held<'_, S> {
    fn drop(&mut self) {
        self.slot.positions.store(self.session.positions(), Ordering::Release);
        self.slot.bytes.store(self.session.bytes(), Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Counter(usize);

    impl Kept for Counter {
        fn positions(&self) -> usize {
            self.0
        }

        fn bytes(&self) -> u64 {
            8 * self.0 as u64
        }
    }

    /// All but the session itself can be asked for while it is held, and closing it takes it from its holder last.
    #[test]
    fn a_held_session_blocks_nobody_else() {
        let sessions = Sessions::default();
        let (a, b) = (sessions.open(Counter(3)), sessions.open(Counter(4)));
        let slot = sessions.find(a).expect("it is open");
        let mut held = slot.hold();
        held.0 = 5;
        std::thread::scope(|scope| {
            let others = scope.spawn(|| {
                let found = sessions.find(a).expect("it is open");
                assert_eq!((found.positions(), found.bytes()), (3, 24), "as before it was held");
                let count = |counter: &mut Counter| {
                    counter.0 += 1;
                    Ok(())
                };
                sessions.with(b, count).expect("it is open");
                sessions.close(a);
                assert_eq!(sessions.find(a).map(drop), Err(Error::Session(a.0)));
                sessions.open(Counter(0))
            });
            assert!(others.join().is_ok_and(|c| c > b), "ids are used once");
        });
        drop(held);
        assert_eq!((slot.positions(), slot.bytes()), (5, 40));
        assert_eq!(sessions.find(b).expect("it is open").positions(), 5);
    }
}
