//! Which token comes next: penalties -> top-k -> top-p -> min-p -> temperature -> draw, as llama.cpp does by default.
//!
//! The choice is a function of the logits, the tokens before and the seed: the random number belongs to the position,
//! not to a running generator, so that threads, caching, forks and speculation cannot change it.

mod options;
mod select;

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

pub use options::SamplerOptions;

use crate::{Error, Result, Scores};
use program::Candidate;
use select::Selection;

/// Chooses tokens.
pub struct Sampler {
    options: SamplerOptions,
    seed: u64,
    attempt: u64,
    /// The logits with penalties applied.
    penalized: Vec<f32>,
    candidates: Vec<Candidate>,
}

impl Sampler {
    /// A sampler with these options; without a seed it takes one at random.
    ///
    /// # Errors
    /// [`Error::Setting`] for the first option out of its range.
    pub fn new(options: SamplerOptions) -> Result<Sampler> {
        options.check()?;
        let seed = options.seed.unwrap_or_else(|| RandomState::new().hash_one("rooflight"));
        Ok(Sampler { options, seed, attempt: 0, penalized: Vec::new(), candidates: Vec::new() })
    }

    /// The options it was made with.
    pub fn options(&self) -> &SamplerOptions {
        &self.options
    }

    /// The seed in use, also if it was chosen at random.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Which of the texts of this seed to draw: 0 at first, another number for another text from the same prompt.
    pub fn set_attempt(&mut self, attempt: u64) {
        self.attempt = attempt;
    }

    /// Choose the token after `before` from `logits` `[vocab_size]`.
    ///
    /// # Errors
    /// [`Error::NonFinite`], or [`Error::Logits`] if there are none.
    pub fn sample(&mut self, logits: &[f32], before: &[u32]) -> Result<u32> {
        self.choose(logits, &[], before)
    }

    /// Choose the token after `before` from what a model made: with its peaks, greedy choice and top-k look at few logits.
    ///
    /// # Errors
    /// As [`sample`](Self::sample).
    pub fn sample_scores(&mut self, scores: &Scores, before: &[u32]) -> Result<u32> {
        self.choose(&scores.logits, &scores.peaks, before)
    }

    fn choose(&mut self, logits: &[f32], peaks: &[f32], before: &[u32]) -> Result<u32> {
        // what is not finite shows in its peak
        if peaks.is_empty() || !peaks.iter().all(|peak| peak.is_finite()) {
            check_finite(logits, before.len())?;
        }
        let options = self.options;
        let (logits, peaks) = if options.penalizes() {
            penalize(&mut self.penalized, logits, before, &options);
            // a penalty below 1 raises logits
            (&*self.penalized, &[][..])
        } else {
            (logits, peaks)
        };
        if options.is_greedy() {
            return Ok(program::likeliest(logits, peaks).token);
        }
        let selection =
            Selection { top_k: options.top_k, top_p: options.top_p, min_p: options.min_p };
        selection.select(logits, peaks, &mut self.candidates);
        let random = unit_random(self.seed, self.attempt, before.len() as u64);
        Ok(draw(&self.candidates, options.temperature, random))
    }
}

/// # Errors
/// [`Error::NonFinite`] naming the first such logit; [`Error::Logits`] for an empty row.
fn check_finite(logits: &[f32], position: usize) -> Result<()> {
    if logits.is_empty() {
        return Err(Error::Logits { expected: 1, found: 0 });
    }
    // Infinities and NaN have all exponent bits set. Without an early exit the pass vectorizes.
    let exponent = f32::INFINITY.to_bits();
    if !logits.iter().fold(false, |bad, x| bad | (x.to_bits() & exponent == exponent)) {
        return Ok(());
    }
    let token = logits.iter().position(|x| !x.is_finite()).expect("one was seen");
    Err(Error::NonFinite { position, token, value: logits[token] })
}

/// Lower the logits of tokens that were used lately. Source: arXiv:1909.05858 (repetition), the OpenAI API (others).
fn penalize(out: &mut Vec<f32>, logits: &[f32], before: &[u32], options: &SamplerOptions) {
    out.clear();
    out.extend_from_slice(logits);
    let window = usize::try_from(options.repeat_last_n).unwrap_or(before.len()).min(before.len());
    let mut counts: HashMap<u32, u32> = HashMap::new();
    for &token in &before[before.len() - window..] {
        *counts.entry(token).or_insert(0) += 1;
    }
    for (token, count) in counts {
        let Some(logit) = out.get_mut(token as usize) else { continue };
        let factor = options.repeat_penalty;
        let repeated = if *logit <= 0.0 { *logit * factor } else { *logit / factor };
        let lowered =
            repeated - count as f32 * options.frequency_penalty - options.presence_penalty;
        *logit = lowered.clamp(f32::MIN, f32::MAX);
    }
}

/// The candidate on which `random` in `[0, 1)` falls when each is as wide as its probability.
fn draw(candidates: &[Candidate], temperature: f32, random: f64) -> u32 {
    let max = candidates.iter().map(|c| c.logit).fold(f32::MIN, f32::max);
    let weight = |c: &Candidate| f64::from(((c.logit - max) / temperature).exp());
    let total: f64 = candidates.iter().map(weight).sum();
    let mut left = random * total;
    for candidate in candidates {
        left -= weight(candidate);
        if left < 0.0 {
            return candidate.token;
        }
    }
    // Rounding can leave a crumb; it belongs to the likeliest.
    select::likeliest(candidates).token
}

/// A number in `[0, 1)` that depends on these three alone.
fn unit_random(seed: u64, attempt: u64, position: u64) -> f64 {
    let key = mix(mix(mix(seed) ^ attempt) ^ position);
    let bits = Xoshiro256PlusPlus::seed_from_u64(key).next_u64() >> 11;
    bits as f64 / (1u64 << 53) as f64
}

/// One-to-one scrambling of 64 bits (splitmix64's output function), so that neighbours share nothing.
fn mix(value: u64) -> u64 {
    let z = value.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sampler(change: impl FnOnce(&mut SamplerOptions)) -> Sampler {
        let mut options = SamplerOptions { seed: Some(7), ..SamplerOptions::default() };
        change(&mut options);
        Sampler::new(options).unwrap()
    }

    #[test]
    fn greedy_takes_the_lowest_of_equals() {
        let mut sampler = sampler(|o| o.temperature = 0.0);
        assert_eq!(sampler.sample(&[1.0, 3.0, 3.0, 2.0], &[]).unwrap(), 1);
        assert_eq!(sampler.sample(&[-0.0, 0.0], &[]).unwrap(), 0);
        assert_eq!(sampler.sample(&[f32::MIN], &[]).unwrap(), 0);
    }

    #[test]
    fn numbers_that_are_none_are_named() {
        let mut sampler = sampler(|_| ());
        let message = |logits: &[f32]| {
            Sampler::sample(&mut Sampler::new(SamplerOptions::default()).unwrap(), logits, &[5])
                .unwrap_err()
                .to_string()
        };
        assert!(message(&[0.0, f32::NAN]).starts_with("non-finite logit NaN for token 1 after 1"));
        assert!(
            message(&[f32::NEG_INFINITY, 0.0]).starts_with("non-finite logit -inf for token 0")
        );
        assert!(matches!(sampler.sample(&[], &[]), Err(Error::Logits { .. })));
        assert!(sampler.sample(&[f32::MAX, f32::MIN], &[]).is_ok());
    }

    #[test]
    fn penalties_follow_their_formulas() {
        let mut out = Vec::new();
        let mut options = SamplerOptions { repeat_penalty: 2.0, ..SamplerOptions::default() };
        let logits = [4.0, -4.0, 1.0, 0.5];
        penalize(&mut out, &logits, &[0, 1, 1, 99], &options);
        assert_eq!(out, [2.0, -8.0, 1.0, 0.5]);
        options.repeat_last_n = 2;
        penalize(&mut out, &logits, &[0, 1, 1], &options);
        assert_eq!(out, [4.0, -8.0, 1.0, 0.5]);
        options = SamplerOptions {
            frequency_penalty: 0.5,
            presence_penalty: 0.25,
            repeat_last_n: -1,
            ..SamplerOptions::default()
        };
        penalize(&mut out, &logits, &[0, 1, 1], &options);
        assert_eq!(out, [3.25, -5.25, 1.0, 0.5]);
        options.repeat_last_n = 0;
        assert!(!options.penalizes());
    }

    #[test]
    fn the_draw_depends_on_seed_attempt_and_position_only() {
        let logits: Vec<f32> = (0..100).map(|i| (i % 17) as f32 * 0.1).collect();
        let choose = |seed, attempt, position: usize| {
            let mut sampler = sampler(|o| o.seed = Some(seed));
            sampler.set_attempt(attempt);
            // Earlier draws leave no trace.
            sampler.sample(&logits, &[1]).unwrap();
            sampler.sample(&logits, &vec![0; position]).unwrap()
        };
        assert_eq!(choose(1, 0, 9), choose(1, 0, 9));
        let texts = |seed, attempt| (0..20).map(|p| choose(seed, attempt, p)).collect::<Vec<_>>();
        assert_ne!(texts(1, 0), texts(2, 0));
        assert_ne!(texts(1, 0), texts(1, 1));
        assert_ne!(Sampler::new(SamplerOptions::default()).unwrap().seed(), sampler(|_| ()).seed());
    }

    #[test]
    fn draws_follow_the_probabilities() {
        let mut sampler = sampler(|o| {
            o.temperature = 0.5;
            o.top_k = 0;
            o.top_p = 1.0;
            o.min_p = 0.0;
        });
        // exp(logit / 0.5) is 1 : 2 : 4.
        let logits = [0.0, 0.5 * 2f32.ln(), 0.5 * 4f32.ln()];
        let mut counts = [0u32; 3];
        let before = vec![0; 7000];
        for position in 0..7000 {
            counts[sampler.sample(&logits, &before[..position]).unwrap() as usize] += 1;
        }
        for (count, expected) in counts.iter().zip([1000u32, 2000, 4000]) {
            assert!(count.abs_diff(expected) < 150, "{counts:?}");
        }
    }

    #[test]
    fn random_numbers_are_what_they_were() {
        // Text of a seed must survive an upgrade, so these values are part of the interface.
        let got: Vec<u64> = (0..3).map(|p| (unit_random(42, 0, p) * 1e15) as u64).collect();
        assert_eq!(got, GOLDEN_RANDOM);
    }

    const GOLDEN_RANDOM: [u64; 3] = [240_011_073_794_993, 162_600_317_488_688, 262_954_944_404_284];
}
