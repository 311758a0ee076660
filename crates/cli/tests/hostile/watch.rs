//! [`Watch`]: `/health` and the memory of a server while something else happens.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::load::{health_times, percentile};
use crate::serving::Serving;

/// Time between two looks at the memory.
const INTERVAL: Duration = Duration::from_millis(20);

/// The measurements.
pub(crate) struct Watch {
    /// Times of `/health` in milliseconds, sorted.
    times: Vec<f64>,
    /// Most bytes of anonymous memory.
    pub(crate) peak: u64,
}

impl Watch {
    /// Runs `action` while a second thread asks for `/health` and a third reads the memory of the process.
    ///
    /// # Panics
    /// If `/health` is not answered with 200, once `action` has returned.
    pub(crate) fn during<T>(serving: &Serving, action: impl FnOnce() -> T) -> (T, Watch) {
        let is_over = AtomicBool::new(false);
        let (done, times, peak) = std::thread::scope(|scope| {
            let times = scope.spawn(|| health_times(serving, &is_over));
            let peak = scope.spawn(|| {
                let mut peak = 0;
                while !is_over.load(Ordering::Relaxed) {
                    peak = peak.max(serving.own_memory());
                    std::thread::sleep(INTERVAL);
                }
                peak.max(serving.own_memory())
            });
            let done = action();
            is_over.store(true, Ordering::Relaxed);
            (done, times.join().unwrap(), peak.join().unwrap())
        });
        let times = times.unwrap_or_else(|error| panic!("/health: {error}"));
        (done, Watch { times, peak })
    }

    /// The 99th percentile of the times of `/health`, in milliseconds.
    pub(crate) fn health_p99(&self) -> f64 {
        percentile(&self.times, 0.99)
    }
}
