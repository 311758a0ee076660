//! [`solve`]: the best configuration that meets what a user asks for, or the nearest possible one.

use crate::plan::{ModelVariant, all_expected};

/// What is asked for. Whatever is `None` is not.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Goals {
    /// Most seconds to the first token of a prompt of `prompt` tokens.
    pub first_token: Option<f64>,
    /// Least tokens per second with `context` tokens cached.
    pub tokens_per_second: Option<f64>,
    /// Tokens that fit at once.
    pub context: u64,
    /// Tokens of the prompt.
    pub prompt: u64,
    /// Bytes of memory for weights and cache.
    pub memory: Option<f64>,
}

/// A goal that can be missed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Goal {
    /// Seconds to the first token.
    FirstToken,
    /// Tokens per second.
    TokensPerSecond,
    /// Bytes of memory that weights and cache take.
    Memory,
}

impl Goal {
    /// Name for tables and JSON.
    pub fn name(self) -> &'static str {
        match self {
            Goal::FirstToken => "ttft",
            Goal::TokensPerSecond => "tps",
            Goal::Memory => "memory",
        }
    }
}

/// A goal that is not met.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Miss {
    /// Which.
    pub goal: Goal,
    /// What was asked for: seconds, tokens per second or bytes.
    pub wanted: f64,
    /// What can be had, in the same unit.
    pub possible: f64,
}

impl Miss {
    /// How far off: 1 is just met, 2 is twice the time or the memory, or half the speed.
    pub fn factor(&self) -> f64 {
        match self.goal {
            Goal::FirstToken | Goal::Memory => self.possible / self.wanted,
            Goal::TokensPerSecond => self.wanted / self.possible,
        }
    }
}

/// The configuration to take.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// Its place among the candidates.
    pub index: usize,
    /// Seconds to the first token.
    pub first_token: f64,
    /// Tokens per second with the context full.
    pub tokens_per_second: f64,
    /// Both are to be expected; otherwise they are limits, and what misses a goal cannot meet it.
    pub expected: bool,
    /// Bytes of weights and cache with the context full.
    pub memory: f64,
    /// Goals that are not met.
    pub misses: Vec<Miss>,
}

impl Answer {
    /// Whether every goal is met.
    pub fn met(&self) -> bool {
        self.misses.is_empty()
    }

    /// How far off the goal is that is missed most; 1 if all are met.
    pub fn factor(&self) -> f64 {
        self.misses.iter().map(Miss::factor).fold(1.0, f64::max)
    }

    /// Whether another one is nearer: what does not fit into memory cannot run at all; then all misses count alike.
    fn is_farther_than(&self, other: &Answer) -> bool {
        let crowded = |a: &Answer| a.misses.iter().any(|miss| miss.goal == Goal::Memory);
        let distance = |a: &Answer| a.misses.iter().map(|miss| miss.factor().ln()).sum::<f64>();
        match (crowded(self), crowded(other)) {
            (true, false) => true,
            (false, true) => false,
            _ => distance(other) < distance(self),
        }
    }
}

/// The first of the candidates, which stand best first, that meets all goals; if none does, the one that misses
/// them least, of those that fit into memory if there are any. `None` if there are no candidates. Times are those to be
/// expected if they are known for all of them, else limits.
pub fn solve(candidates: &[ModelVariant], goals: &Goals) -> Option<Answer> {
    let expected = all_expected(candidates);
    let mut nearest: Option<Answer> = None;
    for index in 0..candidates.len() {
        let answer = assess(candidates, index, expected, goals);
        if answer.met() {
            return Some(answer);
        }
        if nearest.as_ref().is_none_or(|nearest| nearest.is_farther_than(&answer)) {
            nearest = Some(answer);
        }
    }
    nearest
}

fn assess(candidates: &[ModelVariant], index: usize, expected: bool, goals: &Goals) -> Answer {
    let estimate = &candidates[index].estimate;
    let times = estimate.prefill_expected(goals.prompt).zip(estimate.step_expected(goals.context));
    let expected = times.filter(|_| expected);
    let limits = || (estimate.prefill(goals.prompt).limit(), estimate.step(goals.context).limit());
    let (first_token, step) = expected.unwrap_or_else(limits);
    let tokens_per_second = 1.0 / step;
    let memory = estimate.memory(goals.context);
    let found = [
        (Goal::FirstToken, goals.first_token, first_token),
        (Goal::TokensPerSecond, goals.tokens_per_second, tokens_per_second),
        (Goal::Memory, goals.memory, memory),
    ];
    let misses = found.into_iter().filter_map(|(goal, wanted, possible)| {
        let miss = Miss { goal, wanted: wanted?, possible };
        (miss.factor() > 1.0).then_some(miss)
    });
    Answer {
        index,
        first_token,
        tokens_per_second,
        expected: expected.is_some(),
        memory,
        misses: misses.collect(),
    }
}
