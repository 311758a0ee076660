//! The least time this machine could take for a model's work: the roofline from measured ceilings.

use planner::{Cost, CostOptions, Machine, Prediction};
use program::{CacheOptions, Ceilings, Program};

/// What bounds a model on this machine.
#[derive(Clone, Debug)]
pub(crate) struct Limits {
    cost: Cost,
    machine: Machine,
    /// Tokens of a prompt that share one reading of the weights.
    chunk: u64,
}

impl Limits {
    /// For `program` on `threads` of a machine with these ceilings; `None` if it has none for them.
    pub(crate) fn new(
        program: &Program,
        cache: &CacheOptions,
        chunk: usize,
        (ceilings, threads): (&Ceilings, usize),
    ) -> Option<Limits> {
        let options = CostOptions { k: cache.k, v: cache.v, ..CostOptions::default() };
        let cost = Cost::of(program, &options).ok()?;
        let machine = Machine::measured(ceilings, threads, cost.step(0).total().bytes())?;
        Some(Limits { cost, machine, chunk: chunk as u64 })
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

/// `83 % of limit`: how close a measured time came to the least one, in seconds; empty if one of them is unknown.
/// More than the whole means that a ceiling was measured too low, and says so.
pub(crate) fn share(limit: &Prediction, measured: f64) -> String {
    match planner::share(limit.limit(), measured) {
        Some(share) if share > 1.0 => {
            format!("{:.0} % of limit: measure the machine again", 100.0 * share)
        }
        Some(share) => format!("{:.0} % of limit", 100.0 * share),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use program::{CacheType, ComputeCeiling, ReadCeiling};

    use super::*;

    fn limits() -> Limits {
        let gguf = gguf::Gguf::from_bytes(crate::demo::gguf_bytes().expect("it is made"))
            .expect("it opens");
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
            Limits::new(&program, &cache, 64, (&ceilings, 3)).is_none(),
            "three threads were not measured"
        );
        Limits::new(&program, &cache, 64, (&ceilings, 2)).expect("two were")
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
        assert_eq!(share(&limit, 2.0 * limit.limit()), "50 % of limit");
        assert_eq!(share(&limit, limit.limit() / 1.5), "150 % of limit: measure the machine again");
        assert_eq!(share(&limit, 0.0), "");
    }
}
