//! [`Places`]: how many connections there are at once. Where all places are taken, the client goes that has been waited for
//! longest: one that says slowly what it wants, or nothing, keeps nobody out.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

/// Where all are at work, so often it is looked whether one waits for its client.
const LOOK: Duration = Duration::from_millis(20);

/// Places of connections.
pub(crate) struct Places {
    free: Arc<Semaphore>,
    taken: Mutex<Vec<Arc<Taken>>>,
    began: Instant,
}

struct Taken {
    waits: Waits,
    /// Told when it has to go.
    goes: Notify,
}

/// A connection's place, free when dropped.
pub(crate) struct TakenPlace {
    places: Arc<Places>,
    taken: Arc<Taken>,
    _permit: OwnedSemaphorePermit,
}

/// Since when a connection waits for its client, if it does.
#[derive(Clone)]
pub(crate) struct Waits {
    /// Microseconds from `began`, and one more; 0: it is at work.
    since: Arc<AtomicU64>,
    began: Instant,
}

/// Who is connected.
#[derive(Clone)]
pub(crate) struct Peer {
    /// From where, if that has an address.
    pub(crate) address: Option<IpAddr>,
    /// Whether it is waited for.
    pub(crate) waits: Waits,
}

impl Places {
    /// So many.
    pub(crate) fn new(most: usize) -> Arc<Places> {
        let (free, taken) = (Arc::new(Semaphore::new(most)), Mutex::default());
        Arc::new(Places { free, taken, began: Instant::now() })
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Arc<Taken>>> {
        // a list is whole whatever happened beside it
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place for a connection that is there, once there is one.
    pub(crate) async fn take(self: &Arc<Places>) -> TakenPlace {
        let permit = loop {
            if let Ok(permit) = Arc::clone(&self.free).try_acquire_owned() {
                break permit;
            }
            self.make_room();
            let freed = tokio::time::timeout(LOOK, Arc::clone(&self.free).acquire_owned());
            if let Ok(Ok(permit)) = freed.await {
                break permit;
            }
        };
        let waits = Waits { since: Arc::default(), began: self.began };
        waits.client();
        let taken = Arc::new(Taken { waits, goes: Notify::new() });
        self.lock().push(Arc::clone(&taken));
        TakenPlace { places: Arc::clone(self), taken, _permit: permit }
    }

    /// Closes the connection whose client has been waited for longest, if any.
    pub(crate) fn make_room(&self) {
        if let Some(longest) = self.longest_waiting() {
            longest.goes.notify_one();
        }
    }

    fn longest_waiting(&self) -> Option<Arc<Taken>> {
        let taken = self.lock();
        let since = |one: &&Arc<Taken>| one.waits.since.load(Ordering::Relaxed);
        taken.iter().filter(|one| since(one) > 0).min_by_key(since).cloned()
    }
}

impl TakenPlace {
    /// Whether its client is waited for.
    pub(crate) fn waits(&self) -> &Waits {
        &self.taken.waits
    }

    /// When it has to go, for another.
    pub(crate) async fn has_to_go(&self) {
        self.taken.goes.notified().await;
    }
}

impl Drop for TakenPlace {
    fn drop(&mut self) {
        self.places.lock().retain(|taken| !Arc::ptr_eq(taken, &self.taken));
    }
}

impl Waits {
    /// From now on its client is waited for.
    pub(crate) fn client(&self) {
        let micros = u64::try_from(self.began.elapsed().as_micros()).unwrap_or(u64::MAX - 1);
        self.since.store(micros + 1, Ordering::Relaxed);
    }

    /// From now on its client waits, and nobody for it.
    pub(crate) fn nobody(&self) {
        self.since.store(0, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Nobody who is at work has to go.
    #[test]
    fn room_is_made_by_who_is_waited_for_alone() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let places = Places::new(2);
            let (works, waits) = (places.take().await, places.take().await);
            works.waits().nobody();
            places.make_room();
            waits.has_to_go().await;
            waits.waits().nobody();
            places.make_room();
            let goes = tokio::time::timeout(Duration::from_millis(5), works.has_to_go());
            assert!(goes.await.is_err(), "both are at work");
        });
    }

    /// Of three places one is at work: the other two go, the one first that waits for longer, and it never.
    #[test]
    fn who_is_waited_for_longest_goes() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let places = Places::new(3);
            let pause = || tokio::time::sleep(Duration::from_millis(2));
            let works = places.take().await;
            pause().await;
            let first = places.take().await;
            pause().await;
            let second = places.take().await;
            works.waits().nobody();
            pause().await;
            // it said something meanwhile
            first.waits().client();
            let goes = async |place: TakenPlace| {
                place.has_to_go().await;
                drop(place);
            };
            let (third, ()) = tokio::join!(places.take(), goes(second));
            third.waits().nobody();
            let (fourth, ()) = tokio::join!(places.take(), goes(first));
            fourth.waits().nobody();
            // all are at work: who comes waits
            let waits = tokio::time::timeout(5 * LOOK, places.take()).await;
            assert!(waits.is_err());
            drop(fourth);
            places.take().await.waits().client();
            assert_eq!(places.lock().len(), 2);
        });
    }
}
