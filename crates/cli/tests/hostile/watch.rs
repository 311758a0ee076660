//! [`Watch`]: `/health` and the memory of a server while something else happens.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::load::percentile;
use crate::serving::Serving;

/// Time between two requests to `/health`.
const INTERVAL: Duration = Duration::from_millis(20);

/// What was measured.
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
        let mut times = times.unwrap_or_else(|error| panic!("/health: {error}"));
        times.sort_by(f64::total_cmp);
        (done, Watch { times, peak })
    }

    /// The 99th percentile of the times of `/health`, in milliseconds.
    pub(crate) fn health_p99(&self) -> f64 {
        percentile(&self.times, 0.99)
    }
}

/// Times of `/health` in milliseconds until `is_over`. There is at least one, so that a fast action is measured too.
fn health_times(serving: &Serving, is_over: &AtomicBool) -> std::io::Result<Vec<f64>> {
    let mut times = Vec::new();
    loop {
        let start = Instant::now();
        let mut connection = serving.try_connect()?;
        connection.send("GET", "/health", "", "");
        let answer = connection.answer()?;
        times.push(start.elapsed().as_secs_f64() * 1e3);
        if answer.status != 200 {
            return Err(std::io::Error::other(format!("{answer:?}")));
        }
        if is_over.load(Ordering::Relaxed) {
            return Ok(times);
        }
        std::thread::sleep(INTERVAL);
    }
}
