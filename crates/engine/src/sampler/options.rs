//! The settings of a sampler, their ranges and defaults.

use crate::{Error, Result};

/// Settings of a [`Sampler`](super::Sampler). Defaults are llama.cpp's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SamplerOptions {
    /// Divides the logits: below 1 sharper, above 1 flatter; 0 or less: always the likeliest token. Default 0.8.
    pub temperature: f32,
    /// Only the so many likeliest tokens; 0 or less: all. Default 40.
    pub top_k: i32,
    /// Only the likeliest tokens that together reach this probability; 1: all. In `[0, 1]`, default 0.95.
    pub top_p: f32,
    /// Only tokens at least this fraction as likely as the likeliest; 0: all. In `[0, 1]`, default 0.05.
    pub min_p: f32,
    /// Divides positive and multiplies other logits of tokens used lately; 1: off. Above 0, default 1.
    pub repeat_penalty: f32,
    /// How many last tokens, prompt included, the penalties look at; 0: none, -1: all. Default 64.
    pub repeat_last_n: i32,
    /// Taken from a token's logit for each time it was used lately. Default 0.
    pub frequency_penalty: f32,
    /// Taken from a token's logit if it was used lately. Default 0.
    pub presence_penalty: f32,
    /// The same seed gives the same text; `None`: another one every time.
    pub seed: Option<u64>,
}

impl Default for SamplerOptions {
    fn default() -> Self {
        SamplerOptions {
            temperature: 0.8,
            top_k: 40,
            top_p: 0.95,
            min_p: 0.05,
            repeat_penalty: 1.0,
            repeat_last_n: 64,
            frequency_penalty: 0.0,
            presence_penalty: 0.0,
            seed: None,
        }
    }
}

/// How a number becomes an option.
type Set = fn(&mut SamplerOptions, f64);

/// What a file may recommend. A cast to an integer saturates.
const RECOMMENDED: [(&str, Set); 6] = [
    ("temp", |o, x| o.temperature = x as f32),
    ("top_k", |o, x| o.top_k = x as i32),
    ("top_p", |o, x| o.top_p = x as f32),
    ("min_p", |o, x| o.min_p = x as f32),
    ("penalty_repeat", |o, x| o.repeat_penalty = x as f32),
    ("penalty_last_n", |o, x| o.repeat_last_n = x as i32),
];

impl SamplerOptions {
    /// Always the likeliest token.
    pub fn greedy() -> Self {
        SamplerOptions { temperature: 0.0, ..SamplerOptions::default() }
    }

    /// These options with what the model's author recommends in the file: `number` looks up a metadata key
    /// (`general.sampling.temp` and its siblings; integers and floats alike), NaN for what is no number.
    ///
    /// A value out of range is left out; the second result has one line for each such key.
    pub fn with_recommended(mut self, number: &dyn Fn(&str) -> Option<f64>) -> (Self, Vec<String>) {
        let mut problems = Vec::new();
        for (name, set) in RECOMMENDED {
            let key = format!("general.sampling.{name}");
            let Some(value) = number(&key) else { continue };
            let mut changed = self;
            set(&mut changed, value);
            let problem = match changed.check() {
                _ if value.is_nan() => "expected a number".to_owned(),
                Err(Error::Setting { expected, found, .. }) => {
                    format!("expected {expected}, found {found}")
                }
                Err(error) => error.to_string(),
                Ok(()) => {
                    self = changed;
                    continue;
                }
            };
            problems.push(format!("`{key}` is ignored: {problem}"));
        }
        (self, problems)
    }

    /// Whether the likeliest token is always taken.
    pub fn is_greedy(&self) -> bool {
        self.temperature <= 0.0
    }

    /// Whether any penalty has an effect.
    pub(super) fn penalizes(&self) -> bool {
        let any = self.repeat_penalty != 1.0
            || self.frequency_penalty != 0.0
            || self.presence_penalty != 0.0;
        any && self.repeat_last_n != 0
    }

    /// # Errors
    /// [`Error::Setting`] for the first option out of its range.
    pub fn check(&self) -> Result<()> {
        let unit = |x: f32| (0.0..=1.0).contains(&x);
        let finite = "a finite number";
        let rules: [(&'static str, bool, &'static str, f32); 7] = [
            ("temperature", self.temperature.is_finite(), finite, self.temperature),
            ("top-p", unit(self.top_p), "0 to 1", self.top_p),
            ("min-p", unit(self.min_p), "0 to 1", self.min_p),
            (
                "repeat-penalty",
                self.repeat_penalty.is_finite() && self.repeat_penalty > 0.0,
                "a finite number above 0",
                self.repeat_penalty,
            ),
            ("repeat-last-n", self.repeat_last_n >= -1, "-1 or more", self.repeat_last_n as f32),
            (
                "frequency-penalty",
                self.frequency_penalty.is_finite(),
                finite,
                self.frequency_penalty,
            ),
            ("presence-penalty", self.presence_penalty.is_finite(), finite, self.presence_penalty),
        ];
        match rules.into_iter().find(|(_, valid, ..)| !valid) {
            Some((name, _, expected, found)) => {
                Err(Error::Setting { name, expected, found: found.to_string() })
            }
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_named() {
        let check = |change: fn(&mut SamplerOptions), expect: &str| {
            let mut options = SamplerOptions::default();
            change(&mut options);
            let got = options.check().map_or_else(|e| e.to_string(), |()| "fine".into());
            assert_eq!(got, expect);
        };
        check(|_| (), "fine");
        check(|o| o.temperature = -1.0, "fine");
        check(|o| (o.top_p, o.min_p, o.top_k) = (0.0, 1.0, i32::MIN), "fine");
        check(|o| o.temperature = f32::NAN, "temperature: expected a finite number, found NaN");
        check(|o| o.top_p = 1.5, "top-p: expected 0 to 1, found 1.5");
        check(|o| o.top_p = f32::NAN, "top-p: expected 0 to 1, found NaN");
        check(|o| o.min_p = -0.1, "min-p: expected 0 to 1, found -0.1");
        check(
            |o| o.repeat_penalty = 0.0,
            "repeat-penalty: expected a finite number above 0, found 0",
        );
        check(|o| o.repeat_last_n = -2, "repeat-last-n: expected -1 or more, found -2");
        check(
            |o| o.frequency_penalty = f32::INFINITY,
            "frequency-penalty: expected a finite number, found inf",
        );
        check(
            |o| o.presence_penalty = f32::NAN,
            "presence-penalty: expected a finite number, found NaN",
        );
    }

    #[test]
    fn the_file_recommends() {
        let file = |key: &str| match key {
            "general.sampling.temp" => Some(0.6),
            "general.sampling.top_k" => Some(20.0),
            "general.sampling.penalty_last_n" => Some(-1.0),
            _ => None,
        };
        let got = SamplerOptions::default().with_recommended(&file);
        let want = SamplerOptions {
            temperature: 0.6,
            top_k: 20,
            repeat_last_n: -1,
            ..SamplerOptions::default()
        };
        assert_eq!(got, (want, Vec::new()));
    }

    #[test]
    fn what_the_file_recommends_wrongly_is_left_out_and_named() {
        let file = |key: &str| match key {
            "general.sampling.temp" => Some(f64::INFINITY),
            "general.sampling.top_k" => Some(f64::NAN),
            "general.sampling.top_p" => Some(7.0),
            "general.sampling.min_p" => Some(0.5),
            "general.sampling.penalty_last_n" => Some(-9.0),
            _ => None,
        };
        let (options, problems) = SamplerOptions::default().with_recommended(&file);
        assert_eq!(options, SamplerOptions { min_p: 0.5, ..SamplerOptions::default() });
        assert_eq!(
            problems,
            [
                "`general.sampling.temp` is ignored: expected a finite number, found inf",
                "`general.sampling.top_k` is ignored: expected a number",
                "`general.sampling.top_p` is ignored: expected 0 to 1, found 7",
                "`general.sampling.penalty_last_n` is ignored: expected -1 or more, found -9",
            ]
        );
    }
}
