//! Measures the ceilings of a machine and the rates of kernels: on request, and for a few seconds at first use.

use std::time::{Duration, Instant};

use planner::{Rates, WantedRates};
use program::{Error, Executor};
use quant::GgmlType;
use rates::MeasureControl;

use super::ceilings::{KeptCeilings, KnownCeilings, keep, kept, kept_rates, machine};
use super::kept_rates::KeptRates;
use super::memory;
use crate::Runtime;
use crate::notices::{Task, TaskProgress, Topic};

/// Callback that returns whether to stop the measurement.
pub type MeasureStop<'a> = &'a (dyn Fn() -> bool + Sync);

/// Maximum time of an automatic measurement of a processor.
const FIRST_USE: Duration = Duration::from_secs(5);
/// Part of [`FIRST_USE`] for the ceilings, if rates are also measured.
const FIRST_CEILINGS: Duration = Duration::from_secs(3);
/// Maximum time for the ceilings of a GPU and for ceilings that a command requires. A GPU is measured completely or not at all.
/// On a busy machine, each figure takes several times as long.
const NEEDED_CEILINGS: Duration = Duration::from_secs(30);
/// Maximum time of one pass of an automatic measurement, in seconds.
const FIRST_PASS: f64 = 0.4;
/// Maximum number of times that exceeded ceilings are measured again automatically.
const MOST_RENEWALS: u64 = 2;
/// Name of all layers in the list of skipped rates.
const LAYERS: &str = "layers";

/// Measures the ceilings now. New figures replace stored ones only if they are higher. Stored rates are unchanged.
///
/// # Errors
/// If the executor has no ceilings, or if there is not enough memory.
pub fn measure(runtime: &Runtime, executor: &dyn Executor) -> program::Result<KeptCeilings> {
    let new = joined(measured(runtime, executor)?, kept(runtime, executor));
    keep(runtime, &new);
    Ok(new)
}

/// Merges new ceilings with a stored entry: takes the better ceilings of both, and the stored rates.
fn joined(new: KeptCeilings, old: Option<KeptCeilings>) -> KeptCeilings {
    let Some(old) = old else { return new };
    let (rates, rates_busy) = (old.rates.clone(), old.rates_busy);
    let skipped = old.skipped.clone();
    KeptCeilings { rates, rates_busy, skipped, ..new }.best_of(&old)
}

/// Measures the ceilings now and replaces the stored ones, since the machine may have changed. If other programs run, the new
/// figures may be too low, so the better figures of both are stored.
///
/// # Errors
/// If the executor has no ceilings, or if there is not enough memory.
pub fn refresh(runtime: &Runtime, executor: &dyn Executor) -> program::Result<KeptCeilings> {
    let new = measured(runtime, executor)?;
    let old = kept(runtime, executor).filter(|_| new.busy);
    let new = old.map_or(new.clone(), |old| new.best_of(&old));
    keep(runtime, &new);
    Ok(new)
}

/// Measures the ceilings again and returns the better figures of both measurements.
///
/// # Errors
/// If the executor has no ceilings, or if there is not enough memory.
pub fn measure_again(runtime: &Runtime, executor: &dyn Executor) -> program::Result<KnownCeilings> {
    let known = KnownCeilings::of(&measure(runtime, executor)?);
    known.ok_or_else(|| Error::Unsupported("ceilings that are no numbers".into()))
}

/// If kernels were faster than the ceilings, measures the ceilings again, then the weight types that are still faster.
///
/// # Errors
/// Those of [`measure_rates`].
pub fn settle(runtime: &Runtime, executor: &dyn Executor) -> anyhow::Result<()> {
    let is_above = |kept: &KeptCeilings| kept.doubt().is_none() && !kept.types_above().is_empty();
    if kept(runtime, executor).is_none_or(|kept| !is_above(&kept)) {
        return Ok(());
    }
    let raised = measure(runtime, executor)?;
    if is_above(&raised) {
        let types = raised.types_above();
        measure_rates(runtime, executor, &WantedRates { types, ..WantedRates::default() })?;
    }
    Ok(())
}

/// Returns whether the ceilings should be measured again automatically: other programs ran during the measurement, or a later
/// run was faster.
fn is_due(kept: &KeptCeilings) -> bool {
    kept.busy || kept.exceeded && kept.renewals < MOST_RENEWALS
}

/// Returns whether other programs leave too few cores for `threads` threads.
pub fn crowded(threads: usize) -> bool {
    others().saturating_add(threads) > cores()
}

pub(crate) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Returns the number of running threads of other programs, or 0 if the system does not report it.
fn others() -> usize {
    let running = || {
        let text = std::fs::read_to_string("/proc/loadavg").ok()?;
        let (running, _) = text.split_whitespace().nth(3)?.split_once('/')?;
        running.parse::<usize>().ok()?.checked_sub(1)
    };
    // the minimum ignores short activity, and our own threads that are about to sleep
    let looks = (0..4).map(|_| {
        std::thread::sleep(Duration::from_millis(5));
        running().unwrap_or(0)
    });
    looks.min().unwrap_or(0)
}

/// Measures the ceilings and reports progress.
fn measured(runtime: &Runtime, executor: &dyn Executor) -> program::Result<KeptCeilings> {
    let progress = runtime.begin(Task::MeasureMachine);
    measured_while(executor, &mut |part| {
        progress.update_part(part);
        true
    })
}

/// Measures the ceilings. When `goes_on` returns false, stops and returns the figures measured so far.
fn measured_while(
    executor: &dyn Executor,
    goes_on: &mut dyn FnMut(f64) -> bool,
) -> program::Result<KeptCeilings> {
    let before = others();
    let mut whole = true;
    let ceilings = executor.ceilings(&mut |part| {
        whole &= goes_on(part);
        whole
    });
    let mut new = KeptCeilings::new(machine(executor), &ceilings?);
    new.partial = !whole;
    new.busy = new.is_crowded_by(before.max(others()));
    Ok(new)
}

/// Measures the rates in `wanted` now, and stores them with the rates that are already known.
///
/// # Errors
/// If the executor has no ceilings or does not time its phases, or if there is not enough memory.
pub fn measure_rates(
    runtime: &Runtime,
    executor: &dyn Executor,
    wanted: &WantedRates,
) -> anyhow::Result<KeptCeilings> {
    let kept = match kept(runtime, executor) {
        Some(kept) => kept,
        None => measure(runtime, executor)?,
    };
    if wanted.is_empty() {
        return Ok(kept);
    }
    let task = runtime.begin(Task::MeasureKernels);
    let mut progress = |part: f64| task.update_part(part);
    let kept = with_rates(kept, executor, wanted, &mut progress, &MeasureControl::whole())?;
    drop(task);
    keep(runtime, &kept);
    Ok(kept)
}

/// Measures the wanted rates and adds them to an entry. If the measurement is stopped, only complete rates are added.
fn with_rates(
    mut kept: KeptCeilings,
    executor: &dyn Executor,
    wanted: &WantedRates,
    progress: &mut dyn FnMut(f64),
    control: &MeasureControl<'_>,
) -> program::Result<KeptCeilings> {
    let before = others();
    let measured = rates::measure(executor, wanted, progress, control)?;
    let mut rates = kept.rates().unwrap_or_default();
    rates.update(measured);
    kept.rates_busy |= kept.is_crowded_by(before.max(others()));
    kept.rates = Some(KeptRates::new(&rates));
    Ok(kept)
}

/// Measures a step of one token through matrices of one type. Returns the bytes of the matrices and the seconds of the step.
///
/// # Errors
/// If the executor does not support this type, or if there is not enough memory.
pub fn step(executor: &dyn Executor, ty: GgmlType) -> program::Result<(u64, f64)> {
    rates::step(executor, ty)
}

/// Returns the rates in `wanted`: stored ones, else newly measured ones. Returns `None` if the executor cannot be measured, or
/// if measuring would take memory that the loaded model needs.
pub fn rates(runtime: &Runtime, executor: &dyn Executor, wanted: &WantedRates) -> Option<Rates> {
    let _ = kept_or_measured(runtime, executor);
    let known = kept_rates(runtime, executor).unwrap_or_default();
    let missing = known.missing(wanted);
    if missing.is_empty() {
        return Some(known);
    }
    if roomy() { measure_rates(runtime, executor, &missing).ok()?.rates() } else { None }
}

/// Returns the ceilings: stored ones, else newly measured ones. Returns `None` if the executor has no ceilings, or if measuring
/// would take memory that the loaded model needs.
pub fn kept_or_measured(runtime: &Runtime, executor: &dyn Executor) -> Option<KnownCeilings> {
    KnownCeilings::of(&first_use(runtime, executor, None, None)?)
}

/// Returns the ceilings of the machine and the rates of the kernels that a model uses.
///
/// Missing figures are measured with one progress report, for a few seconds at most. If `stop` is given and returns true, the
/// measurement stops; the figures measured so far are stored. Without `wanted`, no rates are measured, and the ceilings may
/// take longer.
pub fn first_use(
    runtime: &Runtime,
    executor: &dyn Executor,
    wanted: Option<&WantedRates>,
    stop: Option<MeasureStop<'_>>,
) -> Option<KeptCeilings> {
    let mut entry = kept(runtime, executor);
    let quiet = |kept: &KeptCeilings| !kept.is_crowded_by(others());
    // looking for other programs takes 20 ms, so do it only if the result matters
    let in_doubt = entry.as_ref().is_some_and(|kept| is_due(kept) || kept.rates_busy);
    let again = in_doubt && entry.as_ref().is_some_and(quiet);
    let ceilings_due = again && entry.as_ref().is_some_and(is_due);
    let renews = again && wanted.is_some();
    if let Some(kept) = entry.as_mut().filter(|kept| renews && kept.rates_busy && !kept.is_device())
    {
        kept.rates = None;
        kept.rates_busy = false;
        kept.skipped.clear();
    }
    let missing = wanted.map(|wanted| still_missing(entry.as_ref(), wanted)).unwrap_or_default();
    let measures = entry.is_none() || ceilings_due || !missing.is_empty();
    if measures && roomy() {
        let watch = Watch::start(runtime, limit(wanted), stop);
        entry = watch.measure(executor, (entry, ceilings_due), &missing);
        watch.finish(runtime);
        entry.iter().for_each(|entry| keep(runtime, entry));
    }
    entry
}

/// Returns the maximum time of an automatic measurement.
fn limit(wanted: Option<&WantedRates>) -> Duration {
    if wanted.is_some() { FIRST_USE } else { NEEDED_CEILINGS }
}

/// Returns the wanted rates that are unknown and were not skipped before.
fn still_missing(kept: Option<&KeptCeilings>, wanted: &WantedRates) -> WantedRates {
    let Some(kept) = kept else { return wanted.clone() };
    let skipped = |name: &str| kept.skipped.iter().any(|skipped| skipped == name);
    let mut missing = kept.rates().unwrap_or_default().missing(wanted);
    missing.types.retain(|ty| !skipped(ty.name()));
    match skipped(LAYERS) {
        true => WantedRates { types: missing.types, ..WantedRates::default() },
        false => missing,
    }
}

/// Progress and time limit of an automatic measurement.
struct Watch<'a> {
    progress: Box<dyn TaskProgress>,
    start: Instant,
    /// Maximum time of the whole measurement.
    limit: Duration,
    stop: Option<MeasureStop<'a>>,
}

impl<'a> Watch<'a> {
    fn start(runtime: &Runtime, limit: Duration, stop: Option<MeasureStop<'a>>) -> Watch<'a> {
        let progress = runtime.begin(Task::FirstUse { limit, can_skip: stop.is_some() });
        Watch { progress, start: Instant::now(), limit, stop }
    }

    fn is_stopped(&self) -> bool {
        self.stop.is_some_and(|stop| stop())
    }

    /// Returns whether to continue, and updates the progress. The progress is elapsed time, since the pieces of work differ
    /// greatly in length.
    fn goes_on(&self, limit: Duration) -> bool {
        let part = self.start.elapsed().as_secs_f64() / self.limit.as_secs_f64();
        self.progress.update_part(part);
        self.start.elapsed() < limit && !self.is_stopped()
    }

    /// Measures the ceilings if the entry has none or must be renewed, then the missing rates.
    fn measure(
        &self,
        executor: &dyn Executor,
        (entry, ceilings_due): (Option<KeptCeilings>, bool),
        missing: &WantedRates,
    ) -> Option<KeptCeilings> {
        let limit = if missing.is_empty() { self.limit } else { FIRST_CEILINGS };
        let entry = match entry {
            Some(entry) if !ceilings_due => entry,
            old => match measured_while(executor, &mut |_| self.goes_on(limit)) {
                Ok(new) => joined(new, old),
                // measuring may succeed later; until then, use the stored figures
                Err(_) => old?,
            },
        };
        if missing.is_empty() {
            return Some(entry);
        }
        let control =
            MeasureControl { stop: &|| !self.goes_on(self.limit), longest_pass: FIRST_PASS };
        let with = with_rates(entry.clone(), executor, missing, &mut |_| (), &control);
        let mut entry = with.unwrap_or(entry);
        let left = entry.rates().unwrap_or_default().missing(missing);
        let layers = [left.attention.len(), left.latent.len(), left.scans.len()] != [0; 3];
        entry.skipped.extend(left.types.iter().map(|ty| ty.name().to_owned()));
        entry.skipped.extend(layers.then(|| LAYERS.to_owned()));
        Some(entry)
    }

    fn finish(self, runtime: &Runtime) {
        let is_stopped = self.is_stopped();
        drop(self);
        if is_stopped {
            let text = "measuring was skipped; rooflight machine measures this machine";
            runtime.note(Topic::Machine, text);
        }
    }
}

/// Returns whether enough memory is free for an automatic measurement.
fn roomy() -> bool {
    memory::available().is_none_or(|free| free >= ROOM)
}

/// Minimum free memory for an automatic measurement, in bytes. A measurement reads up to a gigabyte.
const ROOM: u64 = 2 << 30;

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicI32, Ordering};

    use program::{
        Ceilings, ComputeCeiling, MemoryNeeds, MemoryOptions, Model, Op, Program, Progress,
        Promises, WeightSource,
    };

    use super::*;
    use crate::Settings;

    fn entry() -> KeptCeilings {
        let compute = vec![ComputeCeiling {
            threads: 2,
            f32_macs_per_second: 1e9,
            int8_macs_per_second: 1e9,
        }];
        KeptCeilings::new("a CPU".into(), &Ceilings { compute, ..Ceilings::default() })
    }

    /// Skipped rates are not measured automatically again.
    #[test]
    fn skipped_rates_are_not_asked_for_again() {
        let types = vec![GgmlType::Q4_0, GgmlType::Q8_0];
        let wanted = WantedRates { types, ..WantedRates::usual() };
        assert_eq!(still_missing(None, &wanted), wanted);
        assert_eq!(still_missing(Some(&entry()), &wanted), wanted);
        let skipped = KeptCeilings { skipped: vec!["Q8_0".into(), LAYERS.into()], ..entry() };
        let left = still_missing(Some(&skipped), &wanted);
        assert_eq!(left, WantedRates { types: vec![GgmlType::Q4_0], ..WantedRates::default() });
    }

    /// An executor that measures one more figure each time the callback returns true.
    struct Figures;

    impl Executor for Figures {
        fn supports(&self, _: &Op, _: &[GgmlType]) -> program::Result<()> {
            Ok(())
        }

        fn memory(&self, _: &Program, _: &MemoryOptions) -> program::Result<MemoryNeeds> {
            Err(Error::Unsupported("models".into()))
        }

        fn promises(&self) -> Promises {
            Promises::default()
        }

        fn load(
            &self,
            _: Arc<Program>,
            _: &dyn WeightSource,
            _: &mut dyn FnMut(Progress),
        ) -> program::Result<Box<dyn Model>> {
            Err(Error::Unsupported("models".into()))
        }

        fn ceilings(&self, progress: &mut dyn FnMut(f64) -> bool) -> program::Result<Ceilings> {
            let mut ceilings = entry().ceilings().unwrap_or_default();
            ceilings.compute.clear();
            for threads in 1..=10 {
                if !progress(threads as f64 / 10.0) {
                    break;
                }
                let rate = 1e9 * threads as f64;
                let (f32_macs_per_second, int8_macs_per_second) = (rate, rate);
                ceilings.compute.push(ComputeCeiling {
                    threads,
                    f32_macs_per_second,
                    int8_macs_per_second,
                });
            }
            match ceilings.compute.is_empty() {
                true => Err(Error::Cancelled),
                false => Ok(ceilings),
            }
        }

        fn describe(&self) -> String {
            "figures".into()
        }
    }

    /// Stopping keeps the figures measured so far, and always keeps an earlier entry.
    #[test]
    fn what_was_measured_before_a_stop_is_kept() {
        let runtime = Runtime::silent(Settings::default());
        let left = AtomicI32::new(0);
        let stop = || left.fetch_sub(1, Ordering::Relaxed) <= 0;
        let measured = |figures: i32, old: Option<KeptCeilings>| {
            left.store(figures, Ordering::Relaxed);
            let due = old.is_some();
            let watch = Watch::start(&runtime, FIRST_USE, Some(&stop));
            let measured = watch.measure(&Figures, (old, due), &WantedRates::default());
            measured.map(|kept| (kept.ceilings().map_or(0, |c| c.compute.len()), kept.partial))
        };
        assert_eq!(measured(100, None), Some((10, false)));
        assert_eq!(measured(3, None), Some((3, true)));
        assert_eq!(measured(0, None), None);
        assert_eq!(measured(0, Some(entry())), Some((1, false)));
        assert_eq!(measured(100, Some(entry())), Some((10, false)));
        // if rates cannot be measured, the ceilings are kept
        left.store(100, Ordering::Relaxed);
        let wanted = WantedRates { types: vec![GgmlType::Q4_0], ..WantedRates::default() };
        let watch = Watch::start(&runtime, FIRST_USE, Some(&stop));
        let kept = watch.measure(&Figures, (None, false), &wanted).expect("ceilings");
        assert_eq!((kept.rates(), &kept.skipped[..]), (None, &["Q4_0".to_owned()][..]));
    }

    #[test]
    fn first_use_takes_seconds() {
        let runtime = Runtime::silent(Settings::default());
        let never: MeasureStop<'_> = &|| false;
        let after = |seconds| {
            let start = Instant::now().checked_sub(Duration::from_secs(seconds));
            let start = start.expect("the machine runs for longer");
            let watch = Watch { start, ..Watch::start(&runtime, FIRST_USE, Some(never)) };
            (watch.goes_on(FIRST_CEILINGS), watch.goes_on(FIRST_USE))
        };
        assert_eq!(after(0), (true, true));
        assert_eq!(after(4), (false, true));
        assert_eq!(after(6), (false, false));
        // rates of a GPU are not measured, and the ceilings of a slow GPU may take long
        assert_eq!(limit(Some(&WantedRates::default())), FIRST_USE);
        assert_eq!(limit(None), NEEDED_CEILINGS);
    }

    #[test]
    fn renewals_are_bounded() {
        assert!(!is_due(&entry()));
        assert!(is_due(&KeptCeilings { busy: true, ..entry() }));
        let exceeded = KeptCeilings { exceeded: true, ..entry() };
        assert!(is_due(&exceeded));
        assert!(!is_due(&KeptCeilings { renewals: MOST_RENEWALS, ..exceeded }));
    }
}
