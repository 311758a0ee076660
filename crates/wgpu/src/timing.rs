//! What the dispatches of a step take, by timestamps that the device itself writes. Only where that is asked for: a device may
//! wait at each of them.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use program::{PhaseTime, Program, Result, Rows};

use crate::backend::Handle;
use crate::batch::Batch;
use crate::device::Gpu;
use crate::dispatch::Dispatch;
use crate::model::lock;
use crate::plan::GpuPlan;
use crate::traffic;

/// Where an adapter can write timestamps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stamps {
    /// Between two dispatches of a pass: one before the first, one after each.
    Between,
    /// Where a pass begins and where it ends, as on Apple's: each dispatch is a pass of its own then.
    #[cfg_attr(
        all(not(feature = "wgpu"), not(test)),
        expect(dead_code, reason = "only wgpu has such devices")
    )]
    OfPasses,
}

impl Stamps {
    /// How many there are of so many dispatches.
    pub(crate) fn count(self, dispatches: usize) -> usize {
        match (self, dispatches) {
            (_, 0) => 0,
            (Stamps::Between, n) => n + 1,
            (Stamps::OfPasses, n) => 2 * n,
        }
    }

    /// From ticks to the time of each dispatch, of so many nanoseconds a tick.
    fn times(self, ticks: &[u64], period: f32) -> Vec<Duration> {
        let spans: Vec<_> = match self {
            Stamps::Between => ticks.windows(2).map(|pair| [pair[0], pair[1]]).collect(),
            Stamps::OfPasses => ticks.as_chunks::<2>().0.to_vec(),
        };
        // clocks of some devices are set back when these change their speed
        let span = |[begin, end]: [u64; 2]| end.saturating_sub(begin) as f64 * f64::from(period);
        spans.into_iter().map(|ticks| Duration::from_nanos(span(ticks) as u64)).collect()
    }
}

/// Where the timestamps of a step are written.
pub(crate) struct Clock {
    pub(crate) stamps: Stamps,
    pub(crate) handle: Handle,
}

/// The times of a model's last step, where they are asked for.
#[derive(Default)]
pub(crate) struct Timer {
    is_on: AtomicBool,
    clock: Mutex<Option<Clock>>,
    last: Mutex<Vec<PhaseTime>>,
}

impl Timer {
    /// Whether steps to come are timed.
    pub(crate) fn set(&self, on: bool) {
        self.is_on.store(on, Ordering::Relaxed);
        lock(&self.last).clear();
    }

    /// A step begins. What to time it with, if it is timed: by a model of so many dispatches.
    pub(crate) fn begin(
        &self,
        gpu: &Gpu,
        dispatches: usize,
    ) -> Result<std::sync::MutexGuard<'_, Option<Clock>>> {
        let mut clock = lock(&self.clock);
        match gpu.stamps().filter(|_| self.is_on.load(Ordering::Relaxed)) {
            None => *clock = None,
            Some(stamps) if clock.is_none() => {
                let handle = gpu.clock(stamps, dispatches)?;
                *clock = handle.map(|handle| Clock { stamps, handle });
            }
            Some(_) => {}
        }
        Ok(clock)
    }

    /// What came before a step is forgotten.
    pub(crate) fn forget(&self) {
        lock(&self.last).clear();
    }

    /// Keep what a submission took, whose dispatches ran in this order.
    pub(crate) fn keep(
        &self,
        gpu: &Gpu,
        (stamps, ticks): (Stamps, &[u64]),
        ran: &[&Dispatch],
        phase: &dyn Fn(Option<usize>) -> PhaseTime,
    ) {
        let times = stamps.times(ticks, gpu.tick());
        let mut last = lock(&self.last);
        let mut of = None;
        for (dispatch, elapsed) in ran.iter().zip(times) {
            // a work's dispatches follow one another
            if of != Some(dispatch.work) {
                of = Some(dispatch.work);
                last.push(phase(dispatch.work));
            }
            last.last_mut().expect("it was pushed").elapsed += elapsed;
        }
    }

    /// Of the last step.
    pub(crate) fn phases(&self) -> Vec<PhaseTime> {
        lock(&self.last).clone()
    }
}

/// A phase of which no time is known yet: a work of the plan, or what finds the likeliest tokens.
pub(crate) fn phase(
    program: &Program,
    plan: &GpuPlan,
    batch: &Batch,
    work: Option<usize>,
) -> PhaseTime {
    let rows = |rows: Rows| batch.count(rows);
    let (name, kind, weight_bytes) = match work.map(|work| &plan.works[work]) {
        Some(work) => (
            traffic::name(program, plan, work),
            traffic::kind(work),
            traffic::weight_bytes(plan, work, &rows),
        ),
        None => ("best".to_owned(), "rows", 0),
    };
    PhaseTime { name, kind, elapsed: Duration::ZERO, weight_bytes }
}

#[cfg(test)]
mod tests;
