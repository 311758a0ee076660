//! The least time this machine could take for a model's work: the roofline from measured ceilings; and the time to be
//! expected, from measured rates.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use engine::StepPasses;
use planner::{Cost, CostKind, CostOptions, Executed, Load, Machine, Prediction, Rates};
use program::{CacheOptions, Program};
use server::{ReplyLimits, TimeLimit};

use crate::ceilings::{self, Doubt, KnownCeilings, NOISE};
use crate::load::Loaded;
use crate::predictions::{ModelKey, RememberedModel, RunTime, TOO_SMALL};
use crate::{runtime, ui};

/// What bounds a model on this machine.
#[derive(Clone, Debug)]
pub(crate) struct Limits {
    cost: Cost,
    machine: Machine,
    /// Tokens of a prompt per pass, on which what is expected depends, and no limit.
    chunk: u64,
    expected: Option<(Executed, Rates)>,
    /// Whose times are remembered.
    subject: Option<RememberedModel>,
    /// Why shares of the limits are unreliable, if that was known when the model was loaded.
    doubt: Option<Doubt>,
    /// Whether a run was faster than its limit since then. Clones share this flag.
    exceeded: Arc<AtomicBool>,
    /// A GPU runs it.
    on_gpu: bool,
}

impl Limits {
    /// For a loaded model, whose machine's ceilings and rates are known; `None` where they are not.
    pub(crate) fn of(loaded: &Loaded, cache: &CacheOptions) -> Option<Limits> {
        let (program, known) = (loaded.model.program(), loaded.ceilings.as_ref()?);
        let limits = Limits::new(program, cache, loaded.chunk, known, loaded.n_threads())?;
        Some(limits.with_rates(loaded, cache, loaded.rates.as_ref()))
    }

    /// For `program` on `threads` of a machine with these ceilings; `None` if it has none for them.
    pub(crate) fn new(
        program: &Program,
        cache: &CacheOptions,
        chunk: usize,
        known: &KnownCeilings,
        threads: usize,
    ) -> Option<Limits> {
        let CacheOptions { k, v, policy, .. } = *cache;
        let options = CostOptions { k, v, policy, ..CostOptions::default() };
        let cost = Cost::of(program, &options);
        let machine = Machine::measured(&known.ceilings, threads, cost.step(0).total().bytes())?;
        Some(Limits {
            cost,
            machine,
            chunk: chunk as u64,
            expected: None,
            subject: None,
            doubt: known.doubt,
            exceeded: Arc::default(),
            on_gpu: !known.ceilings.submission.is_zero(),
        })
    }

    /// With the rates of our kernels, where they are known.
    pub(crate) fn with_rates(
        self,
        loaded: &Loaded,
        cache: &CacheOptions,
        rates: Option<&Rates>,
    ) -> Limits {
        let program = loaded.model.program();
        let executed = Executed::with(program, cache.k, cache.v, &cache.policy);
        let subject = RememberedModel::new(
            runtime(),
            &*loaded.executor,
            ModelKey::of(program),
            loaded.n_threads(),
        );
        Limits {
            expected: rates.map(|rates| (executed, rates.clone())),
            subject: Some(subject),
            ..self
        }
    }

    /// Keep what came of expected times.
    pub(crate) fn remember(&self, runs: &[RunTime]) {
        if let Some(subject) = &self.subject {
            subject.remember(runs);
        }
    }

    /// Seconds to be expected for a prompt of which `cached` positions are there and `n` are computed, and for `steps`
    /// steps after it: never less than the limit, which rates measured at another moment may seem to beat.
    pub(crate) fn expected(&self, cached: usize, n: usize, steps: usize) -> Option<f64> {
        let (executed, rates) = self.expected.as_ref()?;
        let end = (cached + n) as u64;
        let prompt = executed.prefill(cached as u64..end, self.chunk, rates)?.total();
        let prompt = prompt.max(self.prompt(cached, n).limit());
        let step = |depth: u64| {
            let limit = Prediction::of_step(&self.cost, depth, &self.machine).limit();
            Some(executed.step(depth, rates)?.total().max(limit))
        };
        let steps = (end..end + steps as u64).map(step).sum::<Option<f64>>()?;
        Some(prompt + steps)
    }

    /// What threads wait for each other at the end of a phase, in seconds: measured, or a bare barrier. On a GPU norms are
    /// phases of their own, and rates count their time to the matrices behind: a dispatch more takes what it takes alone.
    pub(crate) fn phase(&self) -> f64 {
        if self.on_gpu {
            return self.machine.barrier;
        }
        let rates = self.expected.as_ref().map(|(_, rates)| rates.phase());
        rates.unwrap_or(0.0).max(self.machine.barrier)
    }

    /// Tokens of a prompt per pass, the best by the rates, and the least of which arithmetic takes longer than reading.
    pub(crate) fn chunks(&self) -> (u64, Option<u64>, Option<u64>) {
        let best = self.expected.as_ref().and_then(|(executed, rates)| executed.chunk(rates));
        (self.chunk, best, planner::first_inflection(&self.cost, &self.machine, 1 << 16))
    }

    /// [`prompt`](Self::prompt) and [`steps`](Self::steps) of one part of the model.
    pub(crate) fn of_kind(
        &self,
        kind: CostKind,
        cached: usize,
        n: usize,
        steps: usize,
    ) -> Prediction {
        let end = (cached + n) as u64;
        let steps = (end..end + steps as u64).map(|past| Load { past, tokens: 1, outputs: 1 });
        let prompt = Load { past: cached as u64, tokens: n as u64, outputs: 1 };
        let loads = (n > 0).then_some(prompt).into_iter().chain(steps);
        loads.fold(Prediction::default(), |sum, load| {
            sum.plus(&Prediction::of_kind(&self.cost, &load, kind, &self.machine))
        })
    }

    /// `n` steps, the first of which sees `depth` cached positions.
    pub(crate) fn steps(&self, depth: usize, n: usize) -> Prediction {
        let steps = (depth as u64..(depth + n) as u64)
            .map(|depth| Prediction::of_step(&self.cost, depth, &self.machine));
        steps.fold(Prediction::default(), |sum, step| sum.plus(&step))
    }

    /// The passes of a reply, the first of which sees `depth` cached positions: each reads the weights once, and computes a row for
    /// its token and for each drafted one. All count as the one in their middle, because the time grows linearly with the depth.
    pub(crate) fn passes(&self, depth: usize, passes: &StepPasses) -> Prediction {
        let past = (depth + passes.tokens / 2) as u64;
        let of = |(rows, n): (usize, usize)| {
            let load = Load { past, tokens: rows as u64, outputs: rows as u64 };
            Prediction::of_pass(&self.cost, &load, &self.machine).times(n)
        };
        let kinds = passes.rows().into_iter().filter(|(_, n)| *n > 0);
        kinds.map(of).fold(Prediction::default(), |sum, some| sum.plus(&some))
    }

    /// A prompt of which `cached` positions are there and `n` are computed, with logits of the last.
    pub(crate) fn prompt(&self, cached: usize, n: usize) -> Prediction {
        let positions = cached as u64..(cached + n) as u64;
        Prediction::of_prefill(&self.cost, positions, &self.machine)
    }
}

impl Limits {
    /// Returns why shares of these limits are unreliable; `None` if they can be trusted.
    pub(crate) fn doubt(&self) -> Option<Doubt> {
        let exceeded = self.exceeded.load(Ordering::Relaxed);
        self.doubt.or_else(|| exceeded.then_some(Doubt::Exceeded))
    }

    /// Whether a GPU runs it.
    pub(crate) fn on_gpu(&self) -> bool {
        self.on_gpu
    }

    /// Compares a measured time with its limit, both in seconds. Returns `None` if the comparison would be unreliable: see
    /// [`Limits::unjudged`].
    pub(crate) fn judge(&self, limit: &Prediction, measured: f64) -> Option<Share> {
        let is_judged = self.unjudged(limit, measured).is_none();
        is_judged.then(|| self.judge_time(limit.limit(), measured)).flatten()
    }

    /// Returns why the comparison of a measured time with its limit, both in seconds, is unreliable; `None` if it is reliable.
    pub(crate) fn unjudged(&self, limit: &Prediction, measured: f64) -> Option<Unjudged> {
        if measured < TOO_SMALL {
            return Some(Unjudged::Small);
        }
        if limit.limit() < limit.barriers {
            return Some(Unjudged::Waits);
        }
        self.doubt().map(Unjudged::Doubt)
    }

    /// Compares a measured time with a limit that includes no barriers between threads, otherwise like [`Limits::judge`].
    fn judge_time(&self, limit: f64, measured: f64) -> Option<Share> {
        let share = planner::share(limit, measured)?;
        match self.doubt().is_some() || measured < TOO_SMALL {
            true => None,
            false if share > NOISE => Some(Share::Above),
            false => Some(Share::Part(share.min(1.0))),
        }
    }

    /// Returns the share of the limit that a run reached, if [`Limits::judge`] returns one. A time shorter than its limit means that
    /// a ceiling was measured too low: this is reported once, and this call and later ones return `None`.
    pub(crate) fn share_of(&self, limit: &Prediction, measured: f64) -> Option<LimitShare> {
        let part = self.part(self.judge(limit, measured)?)?;
        Some(LimitShare { part, binds: limit.binds().name() })
    }

    fn part(&self, share: Share) -> Option<f64> {
        match share {
            Share::Part(part) => Some(part),
            Share::Above => {
                self.exceed();
                None
            }
        }
    }

    /// Records that a run was faster than its limit, for this run and later ones, and reports it the first time.
    fn exceed(&self) {
        if !self.exceeded.swap(true, Ordering::Relaxed) {
            if ui::is_interactive() {
                ui::note(Doubt::Exceeded.message());
            }
            if let Some(subject) = &self.subject {
                ceilings::note_exceeded(runtime(), subject.machine());
            }
        }
    }
}

impl ReplyLimits for Limits {
    fn share(&self, least: f64, measured: f64) -> Option<f64> {
        self.part(self.judge_time(least, measured)?)
    }

    fn prompt(&self, cached: usize, n: usize) -> TimeLimit {
        time_limit(&Limits::prompt(self, cached, n), self.expected(cached, n, 0))
    }

    fn steps(&self, depth: usize, passes: &StepPasses) -> TimeLimit {
        // what is expected is a plain step
        let one = || self.expected(depth + passes.tokens / 2, 0, 1);
        let expected = if passes.checking == 0 { one() } else { None };
        time_limit(&self.passes(depth, passes), expected.map(|one| one * passes.n as f64))
    }
}

fn time_limit(limit: &Prediction, expected: Option<f64>) -> TimeLimit {
    TimeLimit { seconds: limit.limit(), binds: limit.binds().name(), expected }
}

/// Reason why a time is not compared with its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unjudged {
    /// The work took too little time to say something about the machine.
    Small,
    /// Barriers between threads take longer than the least possible time of the work.
    Waits,
    /// The limit is unreliable.
    Doubt(Doubt),
}

impl Unjudged {
    /// Returns whether the work is too small for any comparison, including the comparison with its expected time.
    pub(crate) fn is_of_work(self) -> bool {
        !matches!(self, Unjudged::Doubt(_))
    }

    /// Returns one line for people: the reason, and what to do.
    pub(crate) fn message(self) -> &'static str {
        match self {
            Unjudged::Small => {
                "work of less than 50 ms says little of the machine; larger -p, -n or models say more"
            }
            Unjudged::Waits => {
                "threads wait for each other longer than the work takes at least; fewer threads (-t) or a larger model say more"
            }
            Unjudged::Doubt(doubt) => doubt.message(),
        }
    }
}

/// How close a time came to the limit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Share {
    /// This part of the limit, at most 1.
    Part(f64),
    /// Beyond it: a ceiling was measured too low.
    Above,
}

/// Share of its limit that a run reached, and its bottleneck.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct LimitShare {
    /// Least possible time divided by the measured time, at most 1.
    pub(crate) part: f64,
    /// Name of the bottleneck: `memory` or a kind of arithmetic.
    pub(crate) binds: &'static str,
}

impl LimitShare {
    /// Returns a text such as `83 % of limit`.
    pub(crate) fn brief(self) -> String {
        format!("{:.0} % of limit", 100.0 * self.part)
    }
}

/// Writes a text such as `83 % of limit (memory)`.
impl fmt::Display for LimitShare {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.brief(), self.binds)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use planner::LinearRate;
    use program::{CacheType, Ceilings, ComputeCeiling, ReadCeiling};

    use super::*;

    fn limits() -> Limits {
        let gguf = gguf::Gguf::from_bytes(conformance::demo_gguf()).expect("it opens");
        let program = models::load(&gguf).expect("it loads").program;
        let ceilings = Ceilings {
            read: vec![ReadCeiling { threads: 2, working_set: 1 << 30, bytes_per_second: 1e9 }],
            compute: vec![ComputeCeiling {
                threads: 2,
                f32_macs_per_second: 1e12,
                int8_macs_per_second: 1e12,
            }],
            barrier: Duration::from_nanos(100),
            submission: Duration::ZERO,
        };
        let ceilings = KnownCeilings { ceilings, doubt: None };
        let cache = CacheOptions::new(CacheType::F16, CacheType::F16, 512);
        assert!(
            Limits::new(&program, &cache, 64, &ceilings, 3).is_none(),
            "three threads were not measured"
        );
        Limits::new(&program, &cache, 64, &ceilings, 2).expect("two were")
    }

    #[test]
    fn norms_on_a_gpu_are_no_waiting() {
        let gguf = gguf::Gguf::from_bytes(conformance::demo_gguf()).expect("it opens");
        let program = models::load(&gguf).expect("it loads").program;
        let (f16, policy) = (CacheType::F16, program::KvPolicy::Full);
        let executed = Executed::with(&program, f16, f16, &policy);
        let linear = LinearRate { ty: quant::GgmlType::F16, points: vec![(1, 1e-9)], phase: 2e-6 };
        let rates = Rates { linear: vec![linear], ..Rates::default() };
        let mut limits = Limits { expected: Some((executed, rates)), ..limits() };
        assert_eq!(limits.phase(), 2e-6);
        limits.on_gpu = true;
        assert_eq!(limits.phase(), 100e-9);
    }

    #[test]
    fn shares_are_shown_with_and_without_their_bound() {
        let share = LimitShare { part: 0.79, binds: "memory" };
        assert_eq!(
            (share.to_string(), share.brief()),
            ("79 % of limit (memory)".into(), "79 % of limit".into())
        );
    }

    #[test]
    fn more_work_takes_longer() {
        let limits = limits();
        let time = |prediction: Prediction| prediction.limit();
        assert!(time(limits.steps(0, 1)) > 0.0);
        assert!(time(limits.steps(100, 1)) > time(limits.steps(0, 1)));
        let (two, one) = (time(limits.steps(10, 2)), time(limits.steps(10, 1)));
        assert!(two > 1.9 * one && two < 2.1 * one);
        assert!(time(limits.prompt(0, 200)) > time(limits.prompt(100, 100)));
        assert_eq!(time(limits.prompt(50, 0)), 0.0);
    }

    /// A pass that checks drafted tokens reads the weights once and computes a row for each of them: its share is that of its own
    /// limit, whatever is accepted.
    #[test]
    fn the_limit_of_drafts_is_that_of_their_passes() {
        let mut limits = limits();
        let near = |a: f64, b: f64| (a / b - 1.0).abs() < 1e-3;
        let plain = StepPasses::plain(10);
        assert!(near(limits.passes(50, &plain).limit(), limits.steps(50, 10).limit()));
        let drafted = StepPasses { n: 10, tokens: 25, checking: 8, drafted: 28 };
        assert_eq!(drafted.rows(), [(1, 2), (4, 4), (5, 4)]);
        // memory binds: hardly longer than plain passes at that depth
        let passes = limits.passes(50, &drafted);
        let ratio = passes.memory / limits.steps(58, 10).memory;
        assert!((1.0..1.2).contains(&ratio), "{ratio}");
        // arithmetic binds: 38 rows
        (limits.machine.f32_macs, limits.machine.int8_macs) = (1e6, 1e6);
        let ratio = limits.passes(50, &drafted).limit() / limits.steps(58, 10).limit();
        assert!((3.5..4.0).contains(&ratio), "{ratio}");
        let told = ReplyLimits::steps(&limits, 50, &drafted);
        assert_eq!((told.seconds, told.expected), (limits.passes(50, &drafted).limit(), None));
    }

    /// As seen in terminals: 642 % of a demo's limit, 12,991 % of nothing.
    #[test]
    fn shares_are_of_work_that_can_be_judged() {
        let mut limits = limits();
        let limit = limits.steps(0, 1000);
        let least = limit.limit();
        assert!(least > TOO_SMALL, "{least}");
        let share = |limits: &Limits, measured: f64| {
            limits.share_of(&limit, measured).map_or_else(String::new, |share| share.to_string())
        };
        assert_eq!(share(&limits, 2.0 * least), "50 % of limit (memory)");
        assert_eq!(share(&limits, 0.98 * least), "100 % of limit (memory)");
        assert_eq!(share(&limits, 0.0), "");
        assert_eq!(limits.judge(&limits.steps(0, 1), 0.049), None, "too small");
        assert_eq!(limits.unjudged(&limit, 0.049), Some(Unjudged::Small));
        assert_eq!(limits.unjudged(&limit, 2.0 * least), None);
        let waiting = Prediction { barriers: 2.0 * least, ..limit };
        assert_eq!(limits.judge(&waiting, 3.0 * least), None, "threads wait for each other");
        assert_eq!(limits.unjudged(&waiting, 3.0 * least), Some(Unjudged::Waits));
        // after one run faster than its limit, shares are unreliable in every clone
        let copy = limits.clone();
        assert_eq!(share(&limits, least / 6.42), "");
        assert_eq!(limits.doubt(), Some(Doubt::Exceeded));
        let doubt = Some(Unjudged::Doubt(Doubt::Exceeded));
        assert_eq!(limits.unjudged(&limit, 2.0 * least), doubt);
        assert_eq!(share(&copy, 2.0 * least), "");
        assert_eq!(copy.share(least, 2.0 * least), None, "for a server's replies, too");
        limits = super::tests::limits();
        limits.doubt = Some(Doubt::Busy);
        assert_eq!(share(&limits, 2.0 * least), "");
    }
}
