//! The least time this machine could take for a model's work: the roofline from measured ceilings; and the time to be
//! expected, from measured rates.

use planner::{Cost, CostKind, CostOptions, Executed, Load, Machine, Prediction, Rates};
use program::{CacheOptions, Ceilings, Program};

/// What bounds a model on this machine.
#[derive(Clone, Debug)]
pub(crate) struct Limits {
    cost: Cost,
    machine: Machine,
    /// Tokens of a prompt that share one reading of the weights.
    chunk: u64,
    expected: Option<(Executed, Rates)>,
}

impl Limits {
    /// For `program` on `threads` of a machine with these ceilings; `None` if it has none for them.
    pub(crate) fn new(
        program: &Program,
        cache: &CacheOptions,
        chunk: usize,
        ceilings: &Ceilings,
        threads: usize,
    ) -> Option<Limits> {
        let options = CostOptions { k: cache.k, v: cache.v, ..CostOptions::default() };
        let cost = Cost::of(program, &options);
        let machine = Machine::measured(ceilings, threads, cost.step(0).total().bytes())?;
        Some(Limits { cost, machine, chunk: chunk as u64, expected: None })
    }

    /// With the rates of our kernels, where they are known.
    pub(crate) fn with_rates(
        self,
        program: &Program,
        cache: &CacheOptions,
        rates: Option<&Rates>,
    ) -> Limits {
        let executed = Executed::of(program, cache.k, cache.v);
        Limits { expected: rates.map(|rates| (executed, rates.clone())), ..self }
    }

    /// Seconds to be expected for a prompt of which `cached` positions are there and `n` are computed, and for `steps`
    /// steps after it.
    pub(crate) fn expected(&self, cached: usize, n: usize, steps: usize) -> Option<f64> {
        let (executed, rates) = self.expected.as_ref()?;
        let end = (cached + n) as u64;
        let prompt = executed.prefill(cached as u64..end, self.chunk, rates)?.total();
        let steps = (end..end + steps as u64).map(|depth| executed.step(depth, rates));
        steps.map(|step| Some(step?.total())).sum::<Option<f64>>().map(|steps| prompt + steps)
    }

    /// What threads wait for each other at the end of a phase, in seconds: measured, or a bare barrier.
    pub(crate) fn phase(&self) -> f64 {
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
        let loads = planner::cost::chunks(cached as u64..end, self.chunk).chain(steps);
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

    /// A prompt of which `cached` positions are there and `n` are computed, with logits of the last.
    pub(crate) fn prompt(&self, cached: usize, n: usize) -> Prediction {
        let positions = cached as u64..(cached + n) as u64;
        Prediction::of_prefill(&self.cost, positions, self.chunk, &self.machine)
    }
}

/// `83 % of limit (memory)`: how close a measured time came to the least one, in seconds, and what sets that; empty if
/// one of them is unknown. More than the whole means that a ceiling was measured too low, and says so.
pub(crate) fn share(limit: &Prediction, measured: f64) -> String {
    let Some(share) = planner::share(limit.limit(), measured) else { return String::new() };
    let wrong = if share > 1.0 { ": measure the machine again" } else { "" };
    format!("{:.0} % of limit ({}){wrong}", 100.0 * share, limit.binds().name())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use program::{CacheType, ComputeCeiling, ReadCeiling};

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
        };
        let cache = CacheOptions { k: CacheType::F16, v: CacheType::F16, capacity: 512 };
        assert!(
            Limits::new(&program, &cache, 64, &ceilings, 3).is_none(),
            "three threads were not measured"
        );
        Limits::new(&program, &cache, 64, &ceilings, 2).expect("two were")
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

    #[test]
    fn shares_in_words() {
        let limit = limits().steps(0, 1);
        assert_eq!(share(&limit, 2.0 * limit.limit()), "50 % of limit (memory)");
        assert_eq!(
            share(&limit, limit.limit() / 1.5),
            "150 % of limit (memory): measure the machine again"
        );
        assert_eq!(share(&limit, 0.0), "");
    }
}
