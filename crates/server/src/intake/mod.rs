//! [`Intake`]: what requests may take before anything is computed for them: memory, threads and places.

mod budget;

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

pub(crate) use budget::{ByteBudget, ByteReservation};

use crate::error::{ApiError, Result};

/// Bodies of each lane that are parsed and converted at once.
const PARSERS: [usize; 2] = [2, 2];
/// Texts of each lane that are encoded, decoded or rendered at once; of shorter ones some compile a grammar, too.
const ENCODERS: [usize; 2] = [4, 2];
/// Bodies and texts of this many bytes or more have a lane of their own, so that shorter ones do not wait for them.
const LARGE: u64 = 1 << 20;
/// Requests for tokens, texts or rendered templates that may be in work or wait for that.
const TEXT_PLACES: usize = 64;
/// Bodies of fewer bytes are read on the thread that received them, and shorter texts need no permit: waiting would take longer than
/// the work.
pub(crate) const SMALL: usize = 16 << 10;

/// Default of [`ServerLimits::body_memory`].
const BODY_MEMORY: u64 = 1 << 30;

/// What all requests of a server may take together.
#[derive(Clone, Copy, Debug)]
pub struct ServerLimits {
    /// Bytes of memory for everything that is made from request bodies: the bodies, their parsed form, converted requests, encoded
    /// prompts. One request may hold a quarter of them at each of these stages, one client half of them.
    pub body_memory: u64,
    /// Returns freed memory that the allocator still holds to the operating system. Called on a separate thread after requests
    /// released much memory.
    pub release_memory: Option<fn()>,
    /// Refuses requests with unknown fields or fields that have no effect, instead of naming these in `warnings`.
    pub strict: bool,
}

impl Default for ServerLimits {
    /// 1 GiB.
    fn default() -> ServerLimits {
        ServerLimits { body_memory: BODY_MEMORY, release_memory: None, strict: false }
    }
}

impl ServerLimits {
    /// Limits for a process that may use this many bytes of memory: an eighth of them for bodies, at least 256 MiB, at most 1 GiB.
    pub fn within(memory: u64) -> ServerLimits {
        let body_memory = (memory / 8).clamp(BODY_MEMORY / 4, BODY_MEMORY);
        ServerLimits { body_memory, ..ServerLimits::default() }
    }
}

/// Memory, threads and places for requests, shared by all connections.
#[derive(Debug)]
pub(crate) struct Intake {
    /// Memory.
    pub(crate) budget: Arc<ByteBudget>,
    parsers: Lanes,
    encoders: Lanes,
    text_places: Arc<Semaphore>,
    /// Whether fields without effect are refused.
    pub(crate) strict: bool,
}

/// Permits for threads: one lane for short work, one for long.
#[derive(Debug)]
struct Lanes([Arc<Semaphore>; 2]);

impl Lanes {
    fn new(permits: [usize; 2]) -> Lanes {
        Lanes(permits.map(|n| Arc::new(Semaphore::new(n))))
    }

    fn of(&self, bytes: u64) -> &Arc<Semaphore> {
        &self.0[usize::from(bytes >= LARGE)]
    }
}

impl Intake {
    /// With these limits.
    pub(crate) fn new(limits: ServerLimits) -> Arc<Intake> {
        let (parsers, encoders) = (Lanes::new(PARSERS), Lanes::new(ENCODERS));
        let text_places = Arc::new(Semaphore::new(TEXT_PLACES));
        let budget = ByteBudget::new(limits.body_memory, limits.release_memory);
        let strict = limits.strict;
        Arc::new(Intake { budget, parsers, encoders, text_places, strict })
    }

    /// Run `work` on a body of `bytes` bytes: at once if they are few, else on another thread, after bodies that came before.
    ///
    /// # Errors
    /// Those of `work`.
    pub(crate) async fn parsing<T: Send + 'static>(
        &self,
        bytes: usize,
        work: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Result<T> {
        match bytes < SMALL {
            true => work(),
            false => on_a_thread(self.parsers.of(bytes as u64), work).await,
        }
    }

    /// Run `work` on texts of `bytes` bytes on another thread; if they are many, after texts that came before.
    ///
    /// # Errors
    /// Those of `work`.
    pub(crate) async fn encoding<T: Send + 'static>(
        &self,
        bytes: u64,
        work: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Result<T> {
        match bytes < SMALL as u64 {
            true => joined(tokio::task::spawn_blocking(work).await),
            false => on_a_thread(self.encoders.of(bytes), work).await,
        }
    }

    /// A place for a request that is answered without computing.
    ///
    /// # Errors
    /// 503 if all are taken.
    pub(crate) fn text_place(&self) -> Result<OwnedSemaphorePermit> {
        let place = Arc::clone(&self.text_places).try_acquire_owned();
        place.map_err(|_| ApiError::busy(TEXT_PLACES))
    }
}

/// Run `work` on another thread, one of as many as there are permits. The thread holds the permit until it is done, whether or not
/// the client still waits.
async fn on_a_thread<T: Send + 'static>(
    permits: &Arc<Semaphore>,
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    let permit = Arc::clone(permits).acquire_owned().await;
    let permit = permit.map_err(|_| ApiError::internal("the request failed"))?;
    let done = tokio::task::spawn_blocking(move || {
        let _permit = permit;
        work()
    });
    joined(done.await)
}

fn joined<T>(done: Result<Result<T>, tokio::task::JoinError>) -> Result<T> {
    done.unwrap_or_else(|_| Err(ApiError::internal("the request failed")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_follow_the_memory_of_the_process() {
        let of = |memory| ServerLimits::within(memory).body_memory;
        assert_eq!([0, 4 << 30, 64 << 30].map(of), [256 << 20, 512 << 20, 1 << 30]);
        assert_eq!(ServerLimits::default().body_memory, 1 << 30);
    }

    #[test]
    fn large_bodies_are_read_by_few_threads_and_small_ones_at_once() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let intake = Intake::new(ServerLimits::default());
        runtime.block_on(async {
            let here = std::thread::current().id();
            let thread = || Ok(std::thread::current().id());
            assert_eq!(intake.parsing(SMALL - 1, thread).await, Ok(here));
            assert_ne!(intake.parsing(SMALL, thread).await, Ok(here));
            let held = Arc::clone(intake.parsers.of(0)).acquire_many_owned(PARSERS[0] as u32).await;
            let mut waits = Box::pin(intake.parsing(SMALL, thread));
            let first = std::future::poll_fn(|context| {
                std::task::Poll::Ready(waits.as_mut().poll(context).is_ready())
            });
            assert!(!first.await, "it waits for a permit");
            drop(held);
            assert!(waits.await.is_ok());
        });
    }
}
