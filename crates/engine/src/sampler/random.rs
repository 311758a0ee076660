//! Random numbers that belong to a position, not to a running generator: whatever was drawn before, or drawn and taken
//! back, the number is the same.

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

/// The random numbers of one position.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chance {
    /// Of the text.
    pub(super) seed: u64,
    /// Which of the texts of this seed.
    pub(super) attempt: u64,
    /// Tokens before the one to be chosen.
    pub(super) position: u64,
}

impl Chance {
    /// The number in `[0, 1)` that decides which candidate is drawn.
    pub(super) fn draw(self) -> f64 {
        unit(self.generator().next_u64())
    }

    /// Another one, which decides whether likely tokens are left out.
    pub(super) fn exclude(self) -> f64 {
        let mut generator = self.generator();
        generator.next_u64();
        unit(generator.next_u64())
    }

    fn generator(self) -> Xoshiro256PlusPlus {
        let key = mix(mix(mix(self.seed) ^ self.attempt) ^ self.position);
        Xoshiro256PlusPlus::seed_from_u64(key)
    }
}

fn unit(bits: u64) -> f64 {
    (bits >> 11) as f64 / (1u64 << 53) as f64
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

    #[test]
    fn random_numbers_are_what_they_were() {
        // Text of a seed must survive an upgrade, so these values are part of the interface.
        let at = |position| Chance { seed: 42, attempt: 0, position };
        let got: Vec<u64> = (0..3).map(|p| (at(p).draw() * 1e15) as u64).collect();
        assert_eq!(got, [240_011_073_794_993, 162_600_317_488_688, 262_954_944_404_284]);
    }

    #[test]
    fn both_numbers_of_a_position_are_even_and_unlike() {
        let at = |position| Chance { seed: 1, attempt: 0, position };
        let mean = |number: fn(Chance) -> f64| (0..2000).map(|p| number(at(p))).sum::<f64>() / 2e3;
        assert!((mean(Chance::draw) - 0.5).abs() < 0.03);
        assert!((mean(Chance::exclude) - 0.5).abs() < 0.03);
        assert!((0..100).all(|p| at(p).draw() != at(p).exclude()));
    }
}
