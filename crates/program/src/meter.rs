//! The meter of a context memory: at few positions true attention is computed beside the policy's, and tells what share of it
//! was left out. Where that is follows from the position and the settings, so cuts, drafts and other sessions change nothing.

use crate::context::greatest;
use crate::{CacheId, CacheKind, ContextMemory, KvPolicy, Program};

/// What share of a query head's attention was left out at a position.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MeterReading {
    /// Where the query stands.
    pub position: u32,
    /// The cache of its layer.
    pub cache: CacheId,
    /// Query head of the layer.
    pub head: u32,
    /// 0 to 1. What is far counts at the distance that the policy gives it; a sink counts as read.
    pub missed: f32,
    /// Of the blocks that a choice by true attention would take, as many as are chosen, the share that was read.
    pub found: f32,
}

/// What the readings of a session come to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MissedMass {
    /// Readings.
    pub n: usize,
    /// Their mean.
    pub mean: f64,
    /// 95 % of them are no more than this.
    pub p95: f64,
    /// The greatest of them.
    pub worst: MeterReading,
    /// Mean share of the blocks that true attention would take which was read.
    pub found: f64,
}

/// Readings of a session, in the order of positions.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Readings(Vec<MeterReading>);

impl Readings {
    /// All of them.
    pub fn all(&self) -> &[MeterReading] {
        &self.0
    }

    /// Add those of a step. What is there of the same positions stays: they were computed again.
    pub fn add(&mut self, mut new: Vec<MeterReading>) {
        let next = self.0.last().map_or(0, |last| last.position + 1);
        new.retain(|reading| reading.position >= next);
        new.sort_unstable_by_key(|reading| (reading.position, reading.cache.0, reading.head));
        self.0.extend(new);
    }

    /// Forget those from position `len` on.
    pub fn truncate(&mut self, len: usize) {
        let kept = self.0.partition_point(|reading| (reading.position as usize) < len);
        self.0.truncate(kept);
    }

    /// What they come to; `None` if there are none.
    pub fn missed(&self) -> Option<MissedMass> {
        let worst =
            self.0.iter().copied().reduce(|a, b| if b.missed > a.missed { b } else { a })?;
        let mut missed: Vec<f32> = self.0.iter().map(|reading| reading.missed).collect();
        missed.sort_unstable_by(f32::total_cmp);
        let n = missed.len();
        let mean = missed.iter().map(|m| f64::from(*m)).sum::<f64>() / n as f64;
        let p95 = f64::from(missed[(n * 95).div_ceil(100) - 1]);
        let found = self.0.iter().map(|reading| f64::from(reading.found)).sum::<f64>() / n as f64;
        Some(MissedMass { n, mean, p95, worst, found })
    }
}

impl ContextMemory {
    /// The share that is read of the blocks that a choice by true attention would take: of those among the finished ones, from
    /// number `first` on, with the greatest `masses`, as many as are chosen, of equals the earlier.
    pub fn found(&self, first: usize, masses: &[f32], is_read: impl Fn(usize) -> bool) -> f32 {
        let mut best = Vec::new();
        greatest(self.n_blocks.max(1) as usize, masses, &mut best);
        let read = best.iter().filter(|block| is_read(first + **block as usize)).count();
        read as f32 / best.len().max(1) as f32
    }
}

/// Where a policy is measured in a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Meter {
    memory: ContextMemory,
    /// Caches with a memory, and their key-value heads: one after the other is measured.
    places: Vec<(CacheId, usize)>,
}

impl Meter {
    /// Most keys that are read for it, beside the keys and values that steps read of caches with a memory: in bytes, all of
    /// them taken as equally far.
    pub const SHARE: f64 = 0.03;

    /// Positions from one reading to the next are at least so many.
    const PERIOD: usize = 64;

    /// `None` where all is read.
    pub fn new(policy: &KvPolicy, program: &Program) -> Option<Meter> {
        let KvPolicy::Memory(memory) = *policy else { return None };
        let caches = (0..program.caches.len() as u32).map(CacheId);
        let remembering = caches.filter(|cache| policy.of_cache(program, *cache).is_some());
        let heads = |cache| match program.cache(cache).kind {
            CacheKind::Heads { n_kv_heads, .. } => n_kv_heads,
            CacheKind::Latent { .. } | CacheKind::Keys { .. } | CacheKind::State { .. } => 0,
        };
        let places: Vec<_> = remembering
            .flat_map(|cache| (0..heads(cache)).map(move |head| (cache, head)))
            .collect();
        (!places.is_empty()).then_some(Meter { memory, places })
    }

    /// The cache and key-value head whose queries at `position` are measured, if some are.
    pub fn at(&self, position: usize) -> Option<(CacheId, usize)> {
        if !self.memory.chooses(position) {
            return None;
        }
        let start = position - position % Self::PERIOD;
        let turn = start / self.period(start);
        let n = self.places.len();
        // where a choice serves several tokens these take turns too, and meet all heads
        let late = (turn % n + turn / n) % self.memory.token_step.max(1) as usize;
        let is_due = start.is_multiple_of(self.period(start)) && position - start == late;
        is_due.then(|| self.places[turn % n])
    }

    /// Positions from one reading to the next there: a power of two, so that a longer one leaves some out.
    fn period(&self, position: usize) -> usize {
        // of a head all keys are read, which are half of what is kept of a position
        let keys = (position + 1) as f64 / 2.0;
        let [read, _] = self.memory.reads(position);
        let steps = keys / (Self::SHARE * (read * self.places.len()) as f64);
        Self::PERIOD.max((steps.ceil() as usize).next_power_of_two())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meter(trained: usize, places: usize) -> Meter {
        let places = (0..places).map(|i| (CacheId(i as u32 / 2), i % 2)).collect();
        Meter { memory: ContextMemory::suited(trained), places }
    }

    /// What is read for the meter up to any length is little beside what steps read, and every head has its turn.
    #[test]
    fn a_meter_costs_little_and_looks_everywhere() {
        for (trained, places, len) in
            [(1024, 4, 200_000), (32_768, 48, 1 << 20), (4096, 1, 100_000)]
        {
            let meter = meter(trained, places);
            let (mut all, mut measured) = (0.0, 0.0);
            let mut seen = std::collections::BTreeSet::new();
            for position in 0..len {
                all += (meter.memory.reads(position)[0] * places) as f64;
                if let Some(place) = meter.at(position) {
                    measured += (position + 1) as f64 / 2.0;
                    seen.insert(place);
                }
                assert!(measured <= Meter::SHARE * all, "{measured} beside {all} at {position}");
            }
            assert_eq!(seen.len(), places);
        }
    }

    #[test]
    fn what_true_attention_would_take_is_found_or_not() {
        let memory = ContextMemory { n_blocks: 2, ..ContextMemory::suited(1024) };
        let masses = [0.1, 0.5, 0.2, 0.5, 0.0];
        let found = |read: &[usize]| memory.found(10, &masses, |block| read.contains(&block));
        assert_eq!([found(&[11, 13]), found(&[11, 12]), found(&[10, 12])], [1.0, 0.5, 0.0]);
        assert_eq!(memory.found(10, &masses[..1], |_| true), 1.0);
        let proof = ContextMemory { n_blocks: 0, ..memory };
        assert_eq!(proof.found(10, &masses, |block| block == 11), 1.0);
    }

    /// Where a choice serves several tokens, each of them is measured with every head.
    #[test]
    fn every_head_meets_every_token_of_a_run() {
        for places in [1, 2, 3, 5] {
            for token_step in [1, 2, 4, 8] {
                let mut meter = meter(1024, places);
                meter.memory.token_step = token_step;
                let mut seen = std::collections::BTreeSet::new();
                // a period may leave turns out
                for position in 0..400_000 {
                    if let Some(place) = meter.at(position) {
                        seen.insert((place, position % token_step as usize));
                    }
                }
                assert_eq!(seen.len(), places * token_step as usize, "{places}, {token_step}");
            }
        }
    }

    #[test]
    fn readings_come_to_a_mean_and_a_worst() {
        let mut readings = Readings::default();
        assert_eq!(readings.missed(), None);
        let of = |position, head, missed| MeterReading {
            position,
            cache: CacheId(0),
            head,
            missed,
            found: 0.5,
        };
        readings.add((0..100).map(|i| of(64 * (99 - i), 0, i as f32 / 100.0)).collect());
        assert!(readings.all().is_sorted_by_key(|reading| reading.position));
        let MissedMass { n, mean, p95, worst, found } = readings.missed().expect("there are some");
        assert_eq!(found, 0.5);
        assert!(n == 100 && (mean - 0.495).abs() < 1e-6 && (p95 - 0.94).abs() < 1e-6);
        assert_eq!(worst, of(0, 0, 0.99));
        readings.add(vec![of(64, 1, 1.0)]);
        assert_eq!(readings.all().len(), 100, "computed again");
        readings.truncate(65);
        assert_eq!(readings.all().len(), 2);
        readings.add(vec![of(128, 1, 0.5)]);
        assert_eq!(readings.all().len(), 3);
    }
}
