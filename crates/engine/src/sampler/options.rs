//! The settings of a sampler and their defaults. Names and ranges of the numbers among them are in `settings.rs`.

use super::order::SamplerOrder;
use super::settings::SETTINGS;
use crate::{Error, Result};

/// Settings of a [`Sampler`](super::Sampler). Defaults are llama.cpp's.
#[derive(Clone, Debug, PartialEq)]
pub struct SamplerOptions {
    /// Divides the logits: below 1 sharper, above 1 flatter; 0 or less: always the likeliest token. Default 0.8.
    pub temperature: f32,
    /// Only the so many likeliest tokens; 0 or less: all. Default 40.
    pub top_k: i32,
    /// Only the likeliest tokens that together reach this probability; 1: all. In `[0, 1]`, default 0.95.
    pub top_p: f32,
    /// Only tokens at least this fraction as likely as the likeliest; 0: all. In `[0, 1]`, default 0.05.
    pub min_p: f32,
    /// Only tokens whose logits are within so many standard deviations of the highest; 0 or less: all. Default -1.
    pub top_n_sigma: f32,
    /// Only the most typical tokens that together reach this probability; 1: all. In `[0, 1]`, default 1.
    pub typical_p: f32,
    /// No sampler that goes by probability leaves fewer tokens than this. Default 0.
    pub min_keep: i32,
    /// Divides positive and multiplies other logits of tokens used lately; 1: off. Above 0, default 1.
    pub repeat_penalty: f32,
    /// How many last tokens, prompt included, the penalties look at; 0: none, -1: all. Default 64.
    pub repeat_last_n: i32,
    /// Taken from a token's logit for each time it was used lately. Default 0.
    pub frequency_penalty: f32,
    /// Taken from a token's logit if it was used lately. Default 0.
    pub presence_penalty: f32,
    /// What DRY takes from the logit of a token that would make a repetition longer than allowed; 0: off. Default 0.
    pub dry_multiplier: f32,
    /// How many times that for each further token of the repetition. At least 1, default 1.75.
    pub dry_base: f32,
    /// So many tokens may repeat. Default 2.
    pub dry_allowed_length: i32,
    /// How many last tokens DRY looks at; 0: none, -1: all. Default 64.
    pub dry_penalty_last_n: i32,
    /// Texts over which DRY sees no repetition. Default: line break, `:`, `"`, `*`.
    pub dry_sequence_breakers: Vec<String>,
    /// How often XTC leaves likely tokens out; 0: never. In `[0, 1]`, default 0.
    pub xtc_probability: f32,
    /// What counts as likely; above 0.5: nothing. In `[0, 1]`, default 0.1.
    pub xtc_threshold: f32,
    /// How far the temperature may go from its own value, by how sure the model is; 0: it stays. Default 0.
    pub dynatemp_range: f32,
    /// Above 1 it is low for longer, below 1 high. Default 1.
    pub dynatemp_exponent: f32,
    /// 2: Mirostat 2, in place of all samplers but temperature and bias; 0: off. Default 0.
    pub mirostat: i32,
    /// Surprise per token that Mirostat steers to, in bits. Default 5.
    pub mirostat_tau: f32,
    /// How fast it does. Default 0.1.
    pub mirostat_eta: f32,
    /// Probability of chosen tokens that adaptive-p steers to; below 0: off. At most 1, default -1.
    pub adaptive_target: f32,
    /// How much of what was chosen before the last token still counts. In `[0, 0.99]`, default 0.9.
    pub adaptive_decay: f32,
    /// Added to the logits of these tokens, before anything else.
    pub logit_bias: Vec<(u32, f32)>,
    /// Which samplers act, and in which order.
    pub samplers: SamplerOrder,
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
            top_n_sigma: -1.0,
            typical_p: 1.0,
            min_keep: 0,
            repeat_penalty: 1.0,
            repeat_last_n: 64,
            frequency_penalty: 0.0,
            presence_penalty: 0.0,
            dry_multiplier: 0.0,
            dry_base: 1.75,
            dry_allowed_length: 2,
            dry_penalty_last_n: 64,
            dry_sequence_breakers: ["\n", ":", "\"", "*"].map(str::to_owned).to_vec(),
            xtc_probability: 0.0,
            xtc_threshold: 0.1,
            dynatemp_range: 0.0,
            dynatemp_exponent: 1.0,
            mirostat: 0,
            mirostat_tau: 5.0,
            mirostat_eta: 0.1,
            adaptive_target: -1.0,
            adaptive_decay: 0.9,
            logit_bias: Vec::new(),
            samplers: SamplerOrder::default(),
            seed: None,
        }
    }
}

/// What a file recommends under a key of its metadata.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Recommended<'a> {
    /// A number of any type; NaN for what is neither number nor text.
    Number(f64),
    /// A text.
    Text(&'a str),
}

impl SamplerOptions {
    /// Always the likeliest token.
    pub fn greedy() -> Self {
        SamplerOptions { temperature: 0.0, ..SamplerOptions::default() }
    }

    /// These options with what the model's author recommends in the file: `find` looks up a metadata key
    /// (`general.sampling.temp` and its siblings).
    ///
    /// A value out of range is left out; the second result has one line for each such key.
    pub fn with_recommended<'a>(
        mut self,
        find: &dyn Fn(&str) -> Option<Recommended<'a>>,
    ) -> (Self, Vec<String>) {
        let mut problems = Vec::new();
        for setting in SETTINGS {
            let Some(key) = setting.recommended.map(|name| format!("general.sampling.{name}"))
            else {
                continue;
            };
            let set = match find(&key) {
                None => continue,
                Some(Recommended::Number(x)) if !x.is_nan() => setting.set(&mut self, x),
                Some(_) => Err("expected a number".into()),
            };
            problems.extend(set.err().map(|problem| format!("`{key}` is ignored: {problem}")));
        }
        let key = "general.sampling.sequence";
        let order = match find(key) {
            None => return (self, problems),
            Some(Recommended::Text(text)) => SamplerOrder::from_names(text)
                .or_else(|error| SamplerOrder::from_letters(text).map_err(|_| error.to_string())),
            Some(Recommended::Number(_)) => Err("expected a text".into()),
        };
        match order {
            Ok(order) => self.samplers = order,
            Err(problem) => problems.push(format!("`{key}` is ignored: {problem}")),
        }
        (self, problems)
    }

    /// So many tokens stay at least, where samplers go by probability.
    pub(super) fn kept(&self) -> usize {
        usize::try_from(self.min_keep).unwrap_or(0)
    }

    /// # Errors
    /// [`Error::Setting`] for the first option out of its range.
    pub fn check(&self) -> Result<()> {
        for setting in SETTINGS {
            if let Some(expected) = setting.wrong(self) {
                let (name, found) = (setting.name, setting.show(self));
                return Err(Error::Setting { name, expected, found });
            }
        }
        if let Some((token, bias)) = self.logit_bias.iter().find(|(_, bias)| bias.is_nan()) {
            let found = format!("{bias} for token {token}");
            return Err(Error::Setting { name: "logit-bias", expected: "a number", found });
        }
        Ok(())
    }

    /// Sort biases by token, and add those of one token.
    pub(super) fn merge_biases(&mut self) {
        // equal tokens keep their order: sums of floats depend on it
        self.logit_bias.sort_by_key(|(token, _)| *token);
        self.logit_bias.dedup_by(|later, kept| {
            let is_same = later.0 == kept.0;
            if is_same {
                kept.1 += later.1;
            }
            is_same
        });
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
            "general.sampling.temp" => Some(Recommended::Number(0.6)),
            "general.sampling.top_k" => Some(Recommended::Number(20.0)),
            "general.sampling.penalty_last_n" => Some(Recommended::Number(-1.0)),
            "general.sampling.mirostat" => Some(Recommended::Number(2.0)),
            "general.sampling.mirostat_tau" => Some(Recommended::Number(3.0)),
            "general.sampling.xtc_probability" => Some(Recommended::Number(0.5)),
            "general.sampling.sequence" => Some(Recommended::Text("top_k;temperature")),
            _ => None,
        };
        let got = SamplerOptions::default().with_recommended(&file);
        let want = SamplerOptions {
            temperature: 0.6,
            top_k: 20,
            repeat_last_n: -1,
            mirostat: 2,
            mirostat_tau: 3.0,
            xtc_probability: 0.5,
            samplers: SamplerOrder::from_letters("kt").unwrap(),
            ..SamplerOptions::default()
        };
        assert_eq!(got, (want, Vec::new()));
    }

    #[test]
    fn what_the_file_recommends_wrongly_is_left_out_and_named() {
        let file = |key: &str| match key {
            "general.sampling.temp" => Some(Recommended::Number(f64::INFINITY)),
            "general.sampling.top_k" => Some(Recommended::Number(f64::NAN)),
            "general.sampling.top_p" => Some(Recommended::Number(7.0)),
            "general.sampling.min_p" => Some(Recommended::Number(0.5)),
            "general.sampling.penalty_last_n" => Some(Recommended::Number(-9.0)),
            "general.sampling.mirostat" => Some(Recommended::Number(1.0)),
            "general.sampling.xtc_threshold" => Some(Recommended::Text("0.5")),
            "general.sampling.sequence" => Some(Recommended::Text("top_k;top_q")),
            _ => None,
        };
        let (options, problems) = SamplerOptions::default().with_recommended(&file);
        assert_eq!(options, SamplerOptions { min_p: 0.5, ..SamplerOptions::default() });
        let named = |name: &str| problems.iter().any(|problem| problem.contains(name));
        for problem in [
            "`general.sampling.temp` is ignored: expected a finite number, found inf",
            "`general.sampling.top_k` is ignored: expected a number",
            "`general.sampling.top_p` is ignored: expected 0 to 1, found 7",
            "`general.sampling.penalty_last_n` is ignored: expected -1 or more, found -9",
            "`general.sampling.mirostat` is ignored: expected 0 or 2, found 1",
            "`general.sampling.xtc_threshold` is ignored: expected a number",
            "`general.sampling.sequence` is ignored: samplers: expected names",
        ] {
            assert!(named(problem), "{problem} in {problems:?}");
        }
        assert_eq!(problems.len(), 7);
    }
}
