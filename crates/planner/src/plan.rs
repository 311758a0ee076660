//! [`Forecast`]: everything that can be said about a model on a machine before it runs, as plain numbers for tables and
//! charts. Weight and cache types side by side: [`what_if`]; what meets a goal: [`crate::goal`].

use crate::cost::TypeBytes;
use crate::estimate::{Estimate, Turns};
use crate::formula::Parameters;
use crate::predict::Prediction;

/// A length and what it takes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Timed {
    /// Tokens: of a prompt, or cached before a step.
    pub tokens: u64,
    /// The least time it takes.
    pub limit: Prediction,
    /// Seconds to be expected, where the rates of the kernels are known.
    pub expected: Option<f64>,
    /// Bytes of activations that leave the processor's caches; 0 for steps.
    pub activation_bytes: u64,
}

impl Timed {
    /// Seconds to be expected, or else the limit.
    pub fn seconds(&self) -> f64 {
        self.expected.unwrap_or_else(|| self.limit.limit())
    }

    /// Tokens per second of a prompt in [`seconds`](Self::seconds).
    pub fn prompt_rate(&self) -> f64 {
        self.tokens as f64 / self.seconds()
    }

    /// Tokens per second of steps at this depth in [`seconds`](Self::seconds).
    pub fn step_rate(&self) -> f64 {
        1.0 / self.seconds()
    }
}

/// One model, one type of weights, one type of cache, one machine.
#[derive(Clone, Debug, PartialEq)]
pub struct Forecast {
    /// Weights by part of the model.
    pub parameters: Parameters,
    /// Bytes by type of weights; none in closed form.
    pub types: Vec<TypeBytes>,
    /// Bytes of weights in memory.
    pub resident_bytes: f64,
    /// Bytes of weights that a step reads.
    pub step_weight_bytes: f64,
    /// Bytes one position adds to the cache.
    pub cache_bytes_per_token: f64,
    /// Bytes of a session's states, once and with those that it can go back to; 0 where nothing recurs.
    pub state_bytes: [f64; 2],
    /// Positions that fit into memory; 0 if the weights do not, `None` if memory is not known.
    pub longest_context: Option<u64>,
    /// Time to the first token by prompt length.
    pub prompts: Vec<Timed>,
    /// Time of a step by depth.
    pub steps: Vec<Timed>,
    /// Both inflections.
    pub turns: Turns,
    /// `B`, in seconds: a step reads the weights in it.
    pub first_step_seconds: f64,
    /// A step reads in it what does not grow for ever: full windows, states, what layers choose; 0 where there is none.
    pub bounded_seconds: f64,
    /// `1000 W`: tokens of depth after which a step takes a second more.
    pub tokens_per_extra_second: f64,
}

/// Prompt lengths and depths that a plan answers for, in tokens.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Lengths {
    /// Of prompts.
    pub prompts: Vec<u64>,
    /// Cached before a step.
    pub depths: Vec<u64>,
}

impl Lengths {
    /// A few of each that make sense for a context of so many tokens, the context itself last.
    pub fn up_to(context: u64) -> Lengths {
        let some = |all: &[u64], last: u64| {
            let below = all.iter().copied().filter(|n| *n < last);
            below.chain((last > 0).then_some(last)).collect()
        };
        Lengths {
            prompts: some(&[16, 64, 128, 512, 2048, 8192, 32_768, 131_072], context),
            depths: some(&[0, 1024, 4096, 8192, 16_384, 32_768, 65_536], context),
        }
    }
}

impl Forecast {
    /// For these lengths, with so many bytes of memory for weights and cache.
    pub fn of(estimate: &Estimate, memory: Option<f64>, lengths: &Lengths) -> Forecast {
        let types = match estimate {
            Estimate::Counted(c) => c.cost.weight_types().to_vec(),
            Estimate::Closed(_) => Vec::new(),
        };
        let prompt = |&tokens: &u64| Timed {
            tokens,
            limit: estimate.prefill(tokens),
            expected: estimate.prefill_expected(tokens),
            activation_bytes: estimate.activation_bytes(tokens),
        };
        Forecast {
            parameters: estimate.parameters(),
            types,
            resident_bytes: estimate.resident_bytes(),
            step_weight_bytes: estimate.step_weight_bytes(),
            cache_bytes_per_token: estimate.cache_bytes_per_token(),
            state_bytes: estimate.state_bytes(),
            longest_context: memory.map(|memory| estimate.longest_context(memory)),
            prompts: lengths.prompts.iter().map(prompt).collect(),
            steps: lengths.depths.iter().map(|depth| step(estimate, *depth)).collect(),
            turns: estimate.turns(),
            first_step_seconds: estimate.first_step_seconds(),
            bounded_seconds: estimate.bounded_seconds(),
            tokens_per_extra_second: estimate.tokens_per_extra_second(),
        }
    }
}

/// A model in one type of weights and one type of cache.
#[derive(Clone, Debug)]
pub struct ModelVariant {
    /// Type of weights, as people name it.
    pub weights: String,
    /// Type of cache.
    pub cache: String,
    /// What it costs.
    pub estimate: Estimate,
}

/// What a candidate comes to.
#[derive(Clone, Debug, PartialEq)]
pub struct WhatIf {
    /// Type of weights.
    pub weights: String,
    /// Type of cache.
    pub cache: String,
    /// Bytes of weights in memory.
    pub resident_bytes: f64,
    /// Positions that fit into memory; 0 if the weights do not, `None` if memory is not known.
    pub longest_context: Option<u64>,
    /// A step on an empty cache.
    pub empty: Timed,
    /// A step with the context full.
    pub full: Timed,
}

/// The candidates side by side: with so many bytes of memory for weights and cache, and `context` tokens cached. Times
/// to be expected are left out unless those of all are known: a limit beside them would look like the better choice.
pub fn what_if(candidates: &[ModelVariant], memory: Option<f64>, context: u64) -> Vec<WhatIf> {
    let row = |candidate: &ModelVariant| WhatIf {
        weights: candidate.weights.clone(),
        cache: candidate.cache.clone(),
        resident_bytes: candidate.estimate.resident_bytes(),
        longest_context: memory.map(|memory| candidate.estimate.longest_context(memory)),
        empty: step(&candidate.estimate, 0),
        full: step(&candidate.estimate, context),
    };
    let mut rows: Vec<WhatIf> = candidates.iter().map(row).collect();
    if !all_expected(candidates) {
        for row in &mut rows {
            (row.empty.expected, row.full.expected) = (None, None);
        }
    }
    rows
}

/// Whether the times of all of them are known that are to be expected.
pub(crate) fn all_expected(candidates: &[ModelVariant]) -> bool {
    candidates.iter().all(|candidate| candidate.estimate.step_expected(0).is_some())
}

fn step(estimate: &Estimate, depth: u64) -> Timed {
    Timed {
        tokens: depth,
        limit: estimate.step(depth),
        expected: estimate.step_expected(depth),
        activation_bytes: 0,
    }
}
