//! [`Estimate`]: a model in one type of weights and one type of cache on one machine, and what it answers.

use std::sync::Arc;

use crate::cost::{Cost, Load};
use crate::expect::Executed;
use crate::formula::{Head, Parameters, Roofline, longest_context};
use crate::predict::{Machine, Prediction, first_inflection};
use crate::rates::Rates;

/// Longest prompt, in tokens, at which an inflection is looked for.
const LONGEST: u64 = 1 << 24;
/// No context is looked at beyond this; a model all of whose layers have windows has no longest one.
const MOST_POSITIONS: u64 = 1 << 40;

/// A model on a machine, counted or in closed form.
#[derive(Clone, Debug)]
pub enum Estimate {
    /// Counted op by op, each tensor in its own format; prompts go through in chunks.
    Counted(Box<CountedProgram>),
    /// The roofline's closed form: one number of bytes per weight, a prompt in one pass.
    Closed(Roofline),
}

/// A program on a machine.
#[derive(Clone, Debug)]
pub struct CountedProgram {
    /// What is done at least.
    pub cost: Cost,
    /// What does it.
    pub machine: Machine,
    /// Tokens of a prompt per pass.
    pub chunk: u64,
    /// What is done, and the rates of the kernels that do it, where they were measured.
    pub kernels: Option<(Executed, Arc<Rates>)>,
}

/// Prompt lengths, in tokens, from which on another resource binds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Turns {
    /// From here on arithmetic, below it reading. `None` if arithmetic never binds.
    pub first: Option<f64>,
    /// From here on reading the cache, if every query read it for itself: a bound on attention without tiles. `None`
    /// if there is no such length.
    pub second: Option<f64>,
}

impl Estimate {
    /// Weights by part of the model.
    pub fn parameters(&self) -> Parameters {
        match self {
            Estimate::Counted(c) => c.cost.parameters(),
            Estimate::Closed(roof) => roof.parameters,
        }
    }

    /// Bytes of the weights that memory holds. The closed form leaves the embedding out, as the article does.
    pub fn resident_bytes(&self) -> f64 {
        match self {
            Estimate::Counted(c) => c.cost.resident_bytes() as f64,
            Estimate::Closed(roof) => roof.active_bytes(),
        }
    }

    /// Tokens of a prompt per pass; `None` where it goes through at once.
    pub fn chunk(&self) -> Option<u64> {
        match self {
            Estimate::Counted(c) => Some(c.chunk),
            Estimate::Closed(_) => None,
        }
    }

    /// The chunk in which prompts are best cut by the rates of the kernels, where those were measured.
    pub fn best_chunk(&self) -> Option<u64> {
        let (_, (executed, rates)) = self.kernels()?;
        executed.chunk(rates)
    }

    /// Bytes of weights that a step reads.
    pub fn step_weight_bytes(&self) -> f64 {
        match self {
            Estimate::Counted(c) => c.cost.total(&Load::step(0)).weight_bytes as f64,
            Estimate::Closed(roof) => roof.active_bytes(),
        }
    }

    /// Bytes of weights and cache that move in a step on an empty cache: what is read over and over.
    pub fn step_bytes(&self) -> f64 {
        match self {
            Estimate::Counted(c) => c.cost.total(&Load::step(0)).bytes() as f64,
            Estimate::Closed(roof) => roof.active_bytes() + roof.cache_bytes_per_token(),
        }
    }

    /// Bytes one position adds to the cache, while windows have room.
    pub fn cache_bytes_per_token(&self) -> f64 {
        match self {
            Estimate::Counted(c) => c.cost.cache_bytes_per_token() as f64,
            Estimate::Closed(roof) => roof.cache_bytes_per_token(),
        }
    }

    /// Bytes of a session's states, once and with those that it can go back to; 0 where nothing recurs.
    pub fn state_bytes(&self) -> [f64; 2] {
        match self {
            Estimate::Counted(c) => c.cost.state_bytes().map(|bytes| bytes as f64),
            Estimate::Closed(_) => [0.0; 2],
        }
    }

    /// Bytes of memory with a cache of `context` positions.
    pub fn memory(&self, context: u64) -> f64 {
        let cache = match self {
            Estimate::Counted(c) => c.cost.cache_bytes(context) as f64,
            Estimate::Closed(roof) => context as f64 * roof.cache_bytes_per_token(),
        };
        self.resident_bytes() + cache
    }

    /// Positions whose cache fits into `memory` bytes beside the weights; 0 if these alone do not fit.
    pub fn longest_context(&self, memory: f64) -> u64 {
        let cost = match self {
            Estimate::Counted(c) => &c.cost,
            Estimate::Closed(roof) => {
                let (weights, each) = (self.resident_bytes(), roof.cache_bytes_per_token());
                return longest_context(memory, weights, each).unwrap_or(0);
            }
        };
        let left = memory - self.resident_bytes();
        let fits = |positions: u64| cost.cache_bytes(positions) as f64 <= left;
        if left <= 0.0 {
            return 0;
        }
        // the greatest that fits: layers with a window stop growing
        let (mut fit, mut too_many) = (0, MOST_POSITIONS);
        if fits(too_many) {
            return too_many;
        }
        while too_many - fit > 1 {
            let middle = fit + (too_many - fit) / 2;
            if fits(middle) { fit = middle } else { too_many = middle }
        }
        fit
    }

    /// A prompt of `n` tokens on an empty cache, to the logits of the last one, in one pass.
    pub fn prefill(&self, n: u64) -> Prediction {
        match self {
            Estimate::Counted(c) => Prediction::of_prefill(&c.cost, 0..n, &c.machine),
            Estimate::Closed(roof) => {
                closed(roof.prefill_read(n), roof.prefill_compute(n, Head::LastToken))
            }
        }
    }

    /// Seconds to be expected for such a prompt in chunks, where the rates of its kernels are known: never less than the
    /// limit, which rates measured at another moment may seem to beat.
    pub fn prefill_expected(&self, n: u64) -> Option<f64> {
        let (c, (executed, rates)) = self.kernels()?;
        let expected = executed.prefill(0..n, c.chunk, rates)?;
        Some(expected.total().max(self.prefill(n).limit()))
    }

    /// Seconds to be expected for such a step, as [`prefill_expected`](Self::prefill_expected).
    pub fn step_expected(&self, depth: u64) -> Option<f64> {
        let (_, (executed, rates)) = self.kernels()?;
        Some(executed.step(depth, rates)?.total().max(self.step(depth).limit()))
    }

    fn kernels(&self) -> Option<(&CountedProgram, &(Executed, Arc<Rates>))> {
        match self {
            Estimate::Counted(c) => Some((c, c.kernels.as_ref()?)),
            Estimate::Closed(_) => None,
        }
    }

    /// Bytes of activations that leave the processor's caches in such a prompt.
    pub fn activation_bytes(&self, n: u64) -> u64 {
        match self {
            Estimate::Counted(c) => c.cost.prefill_in_chunks(0..n, c.chunk).activation_bytes,
            Estimate::Closed(_) => 0,
        }
    }

    /// The step of one token on a cache of `depth` positions.
    pub fn step(&self, depth: u64) -> Prediction {
        match self {
            Estimate::Counted(c) => Prediction::of_step(&c.cost, depth, &c.machine),
            Estimate::Closed(roof) => {
                let n = depth.saturating_add(1);
                closed(roof.step_read(n), roof.step_compute(n))
            }
        }
    }

    /// Both inflections of a prompt in one pass.
    pub fn turns(&self) -> Turns {
        match self {
            Estimate::Counted(c) => {
                let first = first_inflection(&c.cost, &c.machine, LONGEST);
                let second = second_inflection(&c.cost.untiled(), &c.machine, LONGEST);
                Turns { first: first.map(|n| n as f64), second: second.map(|n| n as f64) }
            }
            Estimate::Closed(roof) => match roof.inflections(Head::LastToken) {
                Some(i) => {
                    Turns { first: Some(i.first), second: Some(i.second).filter(|n| n.is_finite()) }
                }
                None => Turns::default(),
            },
        }
    }

    /// Tokens of depth after which a step takes a second more, as far as it reads: the article's `W`, times 1000. Of the
    /// layers that see every position; infinite if there are none.
    pub fn tokens_per_extra_second(&self) -> f64 {
        match self {
            Estimate::Counted(c) => c.machine.bandwidth / c.cost.lasting_bytes_per_token() as f64,
            Estimate::Closed(roof) => roof.bandwidth / roof.cache_bytes_per_token(),
        }
    }

    /// Seconds in which a step reads what does not grow for ever: windows and states once they are full, and what layers
    /// choose; 0 if there is none of that.
    pub fn bounded_seconds(&self) -> f64 {
        match self {
            Estimate::Counted(c) => c.cost.bounded_bytes() as f64 / c.machine.bandwidth,
            Estimate::Closed(_) => 0.0,
        }
    }

    /// Seconds in which a step reads the weights, the article's `B`.
    pub fn first_step_seconds(&self) -> f64 {
        match self {
            Estimate::Counted(c) => self.step_weight_bytes() / c.machine.bandwidth,
            Estimate::Closed(roof) => roof.first_step_milliseconds() / 1000.0,
        }
    }
}

/// One rate of arithmetic, in floating point.
fn closed(memory: f64, f32: f64) -> Prediction {
    Prediction { memory, memory_most: memory, f32, ..Prediction::default() }
}

/// The shortest prompt beyond the first inflection whose reading takes longer than its arithmetic again.
fn second_inflection(cost: &Cost, machine: &Machine, longest: u64) -> Option<u64> {
    let reads = |n: u64| {
        let p = Prediction::of_work(&cost.total(&Load::prompt(n, Head::LastToken)), machine);
        p.memory_most >= p.compute()
    };
    let first = first_inflection(cost, machine, longest)?;
    let doubled = std::iter::successors(Some(first), |n| n.checked_mul(2));
    let mut high = doubled.skip(1).take_while(|n| *n <= longest).find(|n| reads(*n))?;
    let mut low = high / 2;
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if reads(middle) { high = middle } else { low = middle }
    }
    Some(high)
}
