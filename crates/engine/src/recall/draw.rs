//! Random choices that follow from what they are for, and names and numbers that the bundled model never saw.

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

use super::Language;
use super::digest::blake2b;
use super::lexicon::{CODAS, ONSETS, SOUNDS_ZH, VOWELS};

/// A source of random choices: the same name, the same choices, on every machine.
#[derive(Clone, Debug)]
pub(super) struct Draw(Xoshiro256PlusPlus);

impl Draw {
    pub(super) fn named(name: &str) -> Draw {
        Draw(Xoshiro256PlusPlus::from_seed(blake2b::<32>(name.as_bytes())))
    }

    /// A number below `n`, which is not 0.
    pub(super) fn below(&mut self, n: usize) -> usize {
        ((u128::from(self.0.next_u64()) * n as u128) >> 64) as usize
    }

    /// A number from 0 to below 1.
    pub(super) fn share(&mut self) -> f64 {
        (self.0.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// One of a list that is not empty.
    pub(super) fn of<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len())]
    }

    /// `n` of a list that has as many, in random order.
    pub(super) fn some<T: Copy>(&mut self, list: &[T], n: usize) -> Vec<T> {
        let mut list = list.to_vec();
        self.shuffle(&mut list);
        list.truncate(n);
        list
    }

    pub(super) fn shuffle<T>(&mut self, list: &mut [T]) {
        for i in (1..list.len()).rev() {
            list.swap(i, self.below(i + 1));
        }
    }

    /// A held-out number of `n` digits without a leading zero.
    pub(super) fn digits(&mut self, n: usize) -> String {
        loop {
            let first = 1 + self.below(9);
            let rest: String = (1..n).map(|_| (b'0' + self.below(10) as u8) as char).collect();
            let number = format!("{first}{rest}");
            if held_out("number", &number) {
                return number;
            }
        }
    }

    /// A held-out made-up word of `syllables` or, of two, sometimes three of them.
    pub(super) fn word(&mut self, language: Language, syllables: usize) -> String {
        loop {
            let longer = syllables == 2 && self.share() >= 0.65;
            let n = syllables + usize::from(longer);
            let word = match language {
                Language::English => self.word_en(n),
                Language::Chinese => self.some(SOUNDS_ZH, n).into_iter().collect(),
            };
            if held_out("word", &word) {
                return word;
            }
        }
    }

    fn word_en(&mut self, syllables: usize) -> String {
        let mut word = String::new();
        for _ in 0..syllables {
            word.push_str(self.of(ONSETS));
            word.push_str(self.of(VOWELS));
        }
        word + self.of(CODAS)
    }
}

/// Whether a value is of the tenth that the corpus of the bundled model keeps out of training.
pub(super) fn held_out(kind: &str, value: &str) -> bool {
    u32::from_be_bytes(blake2b::<4>(format!("{kind}:{value}").as_bytes())).is_multiple_of(10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn held_out_are_those_of_the_corpus() {
        // drawn by training/corpus/names.py with the split "heldout"
        for number in ["71898", "55311", "34367", "25845", "13876", "63012"] {
            assert!(held_out("number", number), "{number}");
        }
        for word in ["steadreane", "sheapasa", "gamos", "多诺特", "尼瓦", "贝图尼"] {
            assert!(held_out("word", word), "{word}");
        }
        assert!(!held_out("number", "48213") && !held_out("word", "tabo"));
    }

    #[test]
    fn names_choose_the_numbers() {
        let numbers = |name| (0..50).scan(Draw::named(name), |d, _| Some(d.below(1000)));
        let (a, b): (Vec<_>, Vec<_>) = (numbers("a").collect(), numbers("b").collect());
        assert!(a == numbers("a").collect::<Vec<_>>() && a != b);
        assert!(a.iter().all(|n| *n < 1000) && a.iter().any(|n| *n > 500));
        let mut draw = Draw::named("c");
        let mut all = draw.some(&[1, 2, 3, 4], 4);
        all.sort_unstable();
        assert_eq!(all, [1, 2, 3, 4]);
        assert!((0..100).all(|_| (0.0..1.0).contains(&draw.share())));
    }

    #[test]
    fn made_up_words_and_numbers_are_held_out() {
        let mut draw = Draw::named("words");
        for language in [Language::English, Language::Chinese] {
            let word = draw.word(language, 2);
            assert!(held_out("word", &word) && word.chars().count() >= 2, "{word}");
        }
        let number = draw.digits(10);
        assert!(held_out("number", &number) && number.len() == 10 && !number.starts_with('0'));
    }
}
