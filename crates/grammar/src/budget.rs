//! What compilations may take: time for one request, a flag that ends them, and two places in the whole process.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::{GrammarError, Result};

/// Compilations at once. Each has a thread, and takes up to a core and some 100 MB.
const PLACES: usize = 2;
/// How often a waiter looks whether it is cancelled.
pub(crate) const POLL: Duration = Duration::from_millis(10);

/// Time for all forms of one request together, waiting for a place included, and a flag that ends their compilation early.
#[derive(Clone, Debug)]
pub struct CompileBudget {
    end: Instant,
    cancelled: Arc<AtomicBool>,
}

impl CompileBudget {
    /// Time of a request for its forms, from its beginning.
    pub const TIME: Duration = Duration::from_secs(3);

    /// Begins now. Compilation ends at the next step once `cancelled` is set.
    pub fn new(cancelled: Arc<AtomicBool>) -> CompileBudget {
        CompileBudget { end: Instant::now() + CompileBudget::TIME, cancelled }
    }

    /// With another time from now on.
    pub fn with_time(self, time: Duration) -> CompileBudget {
        CompileBudget { end: Instant::now() + time, ..self }
    }

    /// The time that is left.
    pub(crate) fn left(&self) -> Duration {
        self.end.saturating_duration_since(Instant::now())
    }

    /// Whether there is time left and the request is not cancelled.
    ///
    /// # Errors
    /// [`GrammarError::Cancelled`], [`GrammarError::TooCostly`].
    pub fn check(&self, what: &'static str) -> Result<()> {
        if self.cancelled.load(Ordering::Relaxed) {
            return Err(GrammarError::Cancelled);
        }
        match self.left().is_zero() {
            true => Err(GrammarError::TooCostly { what }),
            false => Ok(()),
        }
    }
}

impl Default for CompileBudget {
    /// The budget of a request that is never cancelled.
    fn default() -> CompileBudget {
        CompileBudget::new(Arc::default())
    }
}

/// Compilations that run now.
static RUNNING: Mutex<usize> = Mutex::new(0);
/// One has ended.
static ENDED: Condvar = Condvar::new();

fn running() -> MutexGuard<'static, usize> {
    // a panic elsewhere leaves the number valid
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the number of compilations that run now, abandoned ones included.
pub fn running_compilations() -> usize {
    *running()
}

/// A place for one compilation, free again when it is dropped: at the end of its thread, however long others wait for it.
#[derive(Debug)]
pub(crate) struct Place(());

impl Place {
    /// Waits for a place.
    ///
    /// # Errors
    /// [`GrammarError::Busy`] where the budget ends before there is one, [`GrammarError::Cancelled`].
    pub(crate) fn take(budget: &CompileBudget, what: &'static str) -> Result<Place> {
        let mut running = running();
        while *running >= PLACES {
            budget.check(what).map_err(|error| match error {
                GrammarError::TooCostly { .. } => GrammarError::Busy,
                other => other,
            })?;
            let waited = ENDED.wait_timeout(running, POLL);
            running = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        *running += 1;
        Ok(Place(()))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut running = running();
        *running = running.saturating_sub(1);
        ENDED.notify_one();
    }
}
