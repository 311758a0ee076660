//! [`QueuePlaces`]: places for replies that run or wait, in fair shares.
//!
//! A client may have all places as long as no other client is refused. After a refusal no client gets more than its share until the
//! refused one has been admitted, or has not asked again for a while.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::guard::ClientId;

/// How long places are kept for a client that was refused.
const WANTING: Duration = Duration::from_secs(10);

/// Places for the replies of a model.
#[derive(Debug)]
pub(crate) struct QueuePlaces {
    most: usize,
    clients: Mutex<HashMap<ClientId, Client>>,
}

/// A client that has places, or was refused some.
#[derive(Clone, Copy, Debug, Default)]
struct Client {
    places: usize,
    refused: Option<Instant>,
}

impl Client {
    fn is_wanting(&self, now: Instant) -> bool {
        self.refused.is_some_and(|refused| now.duration_since(refused) < WANTING)
    }
}

/// Places of one request; dropping them frees them.
#[derive(Debug)]
pub(crate) struct ReplyPlaces {
    all: Arc<QueuePlaces>,
    client: ClientId,
    n: usize,
}

impl QueuePlaces {
    /// `most` places.
    pub(crate) fn new(most: usize) -> Arc<QueuePlaces> {
        Arc::new(QueuePlaces { most, clients: Mutex::default() })
    }

    /// `n` places for a client; `None`, and none of them is taken, if there are not enough, or others that were refused have a right to
    /// them.
    pub(crate) fn take(
        self: &Arc<QueuePlaces>,
        client: ClientId,
        n: usize,
        now: Instant,
    ) -> Option<ReplyPlaces> {
        let mut clients = self.lock();
        clients.retain(|_, one| one.places > 0 || one.is_wanting(now));
        let taken: usize = clients.values().map(|one| one.places).sum();
        let others_want = clients.iter().any(|(id, one)| *id != client && one.is_wanting(now));
        clients.entry(client).or_default();
        let share = (self.most / clients.len()).max(1);
        let own = clients.entry(client).or_default();
        let fits = taken + n <= self.most;
        let is_fair = !others_want || own.places == 0 || own.places + n <= share;
        if !fits || !is_fair {
            own.refused = Some(now);
            return None;
        }
        own.places += n;
        own.refused = None;
        Some(ReplyPlaces { all: Arc::clone(self), client, n })
    }

    /// Places that are taken.
    pub(crate) fn taken(&self) -> usize {
        self.lock().values().map(|one| one.places).sum()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ClientId, Client>> {
        // counts are whole whatever happened beside them
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ReplyPlaces {
    /// Take one of them out; `None` if there is none.
    pub(crate) fn split(&mut self) -> Option<ReplyPlaces> {
        self.n = self.n.checked_sub(1)?;
        Some(ReplyPlaces { all: Arc::clone(&self.all), client: self.client, n: 1 })
    }

    /// The client that has them.
    pub(crate) fn client(&self) -> ClientId {
        self.client
    }
}

impl Drop for ReplyPlaces {
    fn drop(&mut self) {
        if let Some(client) = self.all.lock().get_mut(&self.client) {
            client.places = client.places.saturating_sub(self.n);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: ClientId = ClientId::Key(1);
    const B: ClientId = ClientId::Key(2);

    #[test]
    fn places_are_shared_once_another_client_was_refused() {
        let (places, now) = (QueuePlaces::new(4), Instant::now());
        let mut all = places.take(A, 4, now).unwrap();
        assert!(places.take(B, 1, now).is_none() && places.take(A, 1, now).is_none());
        drop(all.split());
        assert_eq!(places.taken(), 3);
        assert!(places.take(A, 1, now).is_none(), "its share is two");
        let other = places.take(B, 1, now).unwrap();
        drop((all.split(), other));
        // the refusal has expired
        let later = now + WANTING;
        assert!(places.take(A, 2, later).is_some());
        drop(all);
        assert_eq!(places.taken(), 0);
    }

    #[test]
    fn a_client_that_stays_away_keeps_no_places() {
        let (places, now) = (QueuePlaces::new(2), Instant::now());
        let mut all = places.take(A, 2, now).unwrap();
        assert!(places.take(B, 1, now).is_none());
        drop(all.split());
        assert!(places.take(A, 1, now + WANTING / 2).is_none());
        assert!(places.take(A, 1, now + WANTING).is_some());
    }

    #[test]
    fn the_first_request_of_a_client_may_be_larger_than_its_share() {
        let (places, now) = (QueuePlaces::new(4), Instant::now());
        assert!(places.take(A, 5, now).is_none());
        assert!(places.take(B, 4, now).is_some());
    }
}
