//! [`ByteBudget`]: memory for everything that is made from request bodies, shared by all connections of a server.
//!
//! A reservation counts the bytes of one stage of one request: the raw body, its parsed form, the request that was converted from it,
//! encoded prompts. It grows before memory is allocated and gives its bytes back when it is dropped, beside what it paid for.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::error::{ApiError, Result};
use crate::guard::ClientId;

/// One part of the budget: the most that a single reservation may hold.
const PER_RESERVATION: u64 = 4;
/// One part of the budget: the most that all requests of one client may hold together.
const PER_CLIENT: u64 = 2;

/// Bytes that are given back before the allocator is asked to return them to the system.
const MUCH: u64 = 4 << 20;
/// Time from then to that request: a reservation is released just before what it paid for.
const RELEASE_DELAY: Duration = Duration::from_millis(500);

/// Bytes that all request bodies of a server may take together.
#[derive(Debug)]
pub(crate) struct ByteBudget {
    total: u64,
    used: Mutex<Used>,
    release_memory: Option<fn()>,
    /// A call of `release_memory` is due.
    is_release_due: Arc<AtomicBool>,
}

#[derive(Debug, Default)]
struct Used {
    by_client: HashMap<ClientId, u64>,
    /// Bytes that were given back since memory was last returned to the system.
    given_back: u64,
}

impl ByteBudget {
    /// A budget of `total` bytes. After much of it was given back `release_memory` is called, on a thread of its own.
    pub(crate) fn new(total: u64, release_memory: Option<fn()>) -> Arc<ByteBudget> {
        let (used, is_release_due) = Default::default();
        Arc::new(ByteBudget { total, used, release_memory, is_release_due })
    }

    /// An empty reservation of this client.
    pub(crate) fn reservation(self: &Arc<ByteBudget>, client: ClientId) -> ByteReservation {
        ByteReservation { owner: Some((Arc::clone(self), client)), bytes: 0, frees_much: false }
    }

    /// Bytes that are reserved now.
    pub(crate) fn used(&self) -> u64 {
        self.lock().by_client.values().sum()
    }

    fn lock(&self) -> MutexGuard<'_, Used> {
        // counters are consistent after each statement
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, client: ClientId, held: u64, more: u64) -> Result<()> {
        let most = self.total / PER_RESERVATION;
        if held.saturating_add(more) > most {
            return Err(ApiError::body_too_large(most));
        }
        let mut used = self.lock();
        let all: u64 = used.by_client.values().sum();
        let own = used.by_client.get(&client).copied().unwrap_or(0);
        if all.saturating_add(more) > self.total
            || own.saturating_add(more) > self.total / PER_CLIENT
        {
            return Err(ApiError::no_memory_for_bodies());
        }
        if more > 0 {
            used.by_client.insert(client, own + more);
        }
        Ok(())
    }

    fn give_back(&self, client: ClientId, bytes: u64) {
        let mut used = self.lock();
        if let Some(own) = used.by_client.get_mut(&client) {
            *own = own.saturating_sub(bytes);
            if *own == 0 {
                used.by_client.remove(&client);
            }
        }
        drop(used);
        self.count_freed(bytes);
    }

    /// Counts memory that was freed, including memory that no budget paid for.
    fn count_freed(&self, bytes: u64) {
        let mut used = self.lock();
        used.given_back = used.given_back.saturating_add(bytes);
        if used.given_back >= MUCH {
            used.given_back = 0;
            drop(used);
            self.release_memory_soon();
        }
    }

    /// Has the allocator return free memory, unless that is due already.
    fn release_memory_soon(&self) {
        let Some(release) = self.release_memory else { return };
        if self.is_release_due.swap(true, Ordering::Relaxed) {
            return;
        }
        let is_due = Arc::clone(&self.is_release_due);
        let run = move || {
            std::thread::sleep(RELEASE_DELAY);
            is_due.store(false, Ordering::Relaxed);
            release();
        };
        let thread = std::thread::Builder::new().name("release-memory".into()).spawn(run);
        if thread.is_err() {
            self.is_release_due.store(false, Ordering::Relaxed);
        }
    }
}

/// Bytes of a budget that one stage of a request holds; dropping it releases them. The default one belongs to no budget and is
/// never refused.
#[derive(Debug, Default)]
pub(crate) struct ByteReservation {
    owner: Option<(Arc<ByteBudget>, ClientId)>,
    bytes: u64,
    /// Whether much memory that no budget counts is freed with it.
    frees_much: bool,
}

impl ByteReservation {
    /// Has the allocator return free memory to the operating system after this reservation is dropped. Called for work that uses much
    /// memory that no budget counts, such as compiling large forms.
    pub(crate) fn set_frees_much(&mut self) {
        self.frees_much = true;
    }

    /// Reserve this many more bytes.
    ///
    /// # Errors
    /// 503 if the budget, or the client's share of it, has no room now; 413 if this reservation alone would exceed what one may hold.
    pub(crate) fn grow(&mut self, more: u64) -> Result<()> {
        if let Some((budget, client)) = &self.owner {
            budget.take(*client, self.bytes, more)?;
        }
        self.bytes += more;
        Ok(())
    }

    /// Release all but `bytes`; no effect if fewer are held.
    pub(crate) fn shrink_to(&mut self, bytes: u64) {
        let released = self.bytes.saturating_sub(bytes);
        self.bytes -= released;
        if let Some((budget, client)) = self.owner.as_ref().filter(|_| released > 0) {
            budget.give_back(*client, released);
        }
    }

    /// Hold exactly `bytes`.
    ///
    /// # Errors
    /// As [`grow`](Self::grow).
    pub(crate) fn set(&mut self, bytes: u64) -> Result<()> {
        match bytes.checked_sub(self.bytes) {
            Some(more) => self.grow(more),
            None => {
                self.shrink_to(bytes);
                Ok(())
            }
        }
    }

    /// Bytes that are reserved.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// An empty reservation of the same client and budget.
    pub(crate) fn another(&self) -> ByteReservation {
        ByteReservation { owner: self.owner.clone(), bytes: 0, frees_much: false }
    }
}

impl Drop for ByteReservation {
    fn drop(&mut self) {
        self.shrink_to(0);
        if let Some((budget, _)) = self.owner.as_ref().filter(|_| self.frees_much) {
            budget.count_freed(MUCH);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    const A: ClientId = ClientId::Key(1);
    const B: ClientId = ClientId::Key(2);
    const C: ClientId = ClientId::Key(3);

    fn status(result: Result<()>) -> u16 {
        result.map_or_else(|error| error.status(), |()| 200)
    }

    #[test]
    fn reservations_are_bounded_alone_by_client_and_together() {
        let budget = ByteBudget::new(1000, None);
        let mut alone = budget.reservation(A);
        assert_eq!((status(alone.grow(250)), status(alone.grow(1))), (200, 413));
        let mut second = budget.reservation(A);
        assert_eq!((status(second.grow(250)), status(second.another().grow(1))), (200, 503));
        let others: Vec<ByteReservation> = [B, C]
            .map(|client| {
                let mut other = budget.reservation(client);
                other.grow(250).unwrap();
                other
            })
            .into();
        assert_eq!((budget.used(), status(budget.reservation(B).grow(1))), (1000, 503));
        drop(others);
        assert_eq!(budget.used(), 500);
        second.shrink_to(100);
        assert_eq!((second.bytes(), budget.used()), (100, 350));
        assert_eq!((status(second.set(200)), budget.used()), (200, 450));
        drop((alone, second));
        assert_eq!(budget.used(), 0);
        assert!(budget.lock().by_client.is_empty(), "clients that hold nothing are forgotten");
    }

    #[test]
    fn memory_is_returned_to_the_system_after_much_was_given_back() {
        static CALLS: AtomicUsize = AtomicUsize::new(0);
        let count: fn() = || {
            CALLS.fetch_add(1, Ordering::Relaxed);
        };
        let budget = ByteBudget::new(8 * MUCH, Some(count));
        let give = |bytes| budget.reservation(A).grow(bytes).unwrap();
        give(MUCH - 1);
        assert!(!budget.is_release_due.load(Ordering::Relaxed), "it was little");
        (0..3).for_each(|_| give(MUCH));
        assert!(budget.is_release_due.load(Ordering::Relaxed));
        let start = std::time::Instant::now();
        while budget.is_release_due.load(Ordering::Relaxed) || CALLS.load(Ordering::Relaxed) == 0 {
            assert!(start.elapsed() < Duration::from_secs(20), "it is never called");
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(CALLS.load(Ordering::Relaxed), 1, "once for all that came before it");
        give(MUCH);
        assert!(budget.is_release_due.load(Ordering::Relaxed), "and again");
        let other = ByteBudget::new(8 * MUCH, Some(count));
        let mut form = other.reservation(A);
        form.grow(1).unwrap();
        form.set_frees_much();
        assert!(!other.is_release_due.load(Ordering::Relaxed));
        drop(form);
        assert!(other.is_release_due.load(Ordering::Relaxed), "what a form took is returned, too");
    }

    #[test]
    fn a_reservation_of_no_budget_is_never_refused() {
        let mut any = ByteReservation::default();
        assert_eq!(status(any.grow(u64::MAX / 2)), 200);
    }
}
