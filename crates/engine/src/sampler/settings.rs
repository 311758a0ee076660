//! The numbers among a sampler's settings: how they are called, where a file recommends them, and what they may be.

use std::fmt;

use super::SamplerOptions;
use Field::{Float, Int};
use Range::{
    AboveZero, Any, AtLeastOne, AtMostOne, Count, Decay, Finite, Last, Positive, Unit, ZeroOrTwo,
};

/// One number.
pub struct SamplerSetting {
    /// As in flags and errors: `top-k`.
    pub name: &'static str,
    /// The name of the sampler it belongs to; empty for those that are no sampler of a chain.
    pub sampler: &'static str,
    /// The last part of its key in a file's metadata, `general.sampling.top_k`.
    pub(super) recommended: Option<&'static str>,
    range: Range,
    field: Field,
}

/// Where a number is.
enum Field {
    Float(fn(&SamplerOptions) -> f32, fn(&mut SamplerOptions) -> &mut f32),
    Int(fn(&SamplerOptions) -> i32, fn(&mut SamplerOptions) -> &mut i32),
}

/// What a number may be.
#[derive(Clone, Copy)]
enum Range {
    Any,
    Finite,
    Unit,
    Positive,
    AboveZero,
    AtLeastOne,
    AtMostOne,
    Decay,
    Count,
    Last,
    ZeroOrTwo,
}

impl Range {
    fn words(self) -> &'static str {
        match self {
            Any => "a whole number",
            Finite => "a finite number",
            Unit => "0 to 1",
            Positive => "a finite number, 0 or more",
            AboveZero => "a finite number above 0",
            AtLeastOne => "a finite number, 1 or more",
            AtMostOne => "1 or less",
            Decay => "0 to 0.99",
            Count => "0 or more",
            Last => "-1 or more",
            ZeroOrTwo => "0 or 2",
        }
    }

    fn has(self, x: f64) -> bool {
        match self {
            Any => true,
            Finite => x.is_finite(),
            Unit => (0.0..=1.0).contains(&x),
            Positive => x.is_finite() && x >= 0.0,
            AboveZero => x.is_finite() && x > 0.0,
            AtLeastOne => x.is_finite() && x >= 1.0,
            AtMostOne => x.is_finite() && x <= 1.0,
            Decay => (0.0..=f64::from(0.99_f32)).contains(&x),
            Count => x >= 0.0,
            Last => x >= -1.0,
            ZeroOrTwo => x == 0.0 || x == 2.0,
        }
    }
}

impl SamplerSetting {
    /// The setting of this name, `top-k` or `top_k`.
    pub fn find(name: &str) -> Option<&'static SamplerSetting> {
        let name = name.replace('_', "-");
        SETTINGS.iter().find(|setting| setting.name == name)
    }

    /// Its range in words.
    pub fn expected(&self) -> &'static str {
        self.range.words()
    }

    /// Its value, as it is written.
    pub fn show(&self, options: &SamplerOptions) -> String {
        match self.field {
            Float(get, _) => get(options).to_string(),
            Int(get, _) => get(options).to_string(),
        }
    }

    /// Set it; a cast saturates.
    ///
    /// # Errors
    /// What was expected, and what found; `options` stay as they were.
    pub fn set(&self, options: &mut SamplerOptions, value: f64) -> Result<(), String> {
        let found = match self.field {
            Float(..) => f64::from(value as f32),
            Int(..) if value.fract() != 0.0 => {
                return Err(format!("expected a whole number, found {value}"));
            }
            Int(..) => f64::from(value as i32),
        };
        if !self.range.has(found) {
            let value: &dyn fmt::Display = if found == value { &found } else { &value };
            return Err(format!("expected {}, found {value}", self.range.words()));
        }
        match self.field {
            Float(_, at) => *at(options) = value as f32,
            Int(_, at) => *at(options) = value as i32,
        }
        Ok(())
    }

    /// Its range in words, if the value is out of it.
    pub(super) fn wrong(&self, options: &SamplerOptions) -> Option<&'static str> {
        let value = match self.field {
            Float(get, _) => f64::from(get(options)),
            Int(get, _) => f64::from(get(options)),
        };
        (!self.range.has(value)).then_some(self.range.words())
    }
}

/// A row of the table.
const fn row(
    name: &'static str,
    sampler: &'static str,
    recommended: Option<&'static str>,
    range: Range,
    field: Field,
) -> SamplerSetting {
    SamplerSetting { name, sampler, recommended, range, field }
}

/// All of them, in the order in which they are shown.
#[rustfmt::skip]
pub static SETTINGS: &[SamplerSetting] = &[
    row("temperature", "temperature", Some("temp"), Finite, Float(|o| o.temperature, |o| &mut o.temperature)),
    row("top-k", "top_k", Some("top_k"), Any, Int(|o| o.top_k, |o| &mut o.top_k)),
    row("top-p", "top_p", Some("top_p"), Unit, Float(|o| o.top_p, |o| &mut o.top_p)),
    row("min-p", "min_p", Some("min_p"), Unit, Float(|o| o.min_p, |o| &mut o.min_p)),
    row("top-n-sigma", "top_n_sigma", None, Finite, Float(|o| o.top_n_sigma, |o| &mut o.top_n_sigma)),
    row("typical", "typ_p", None, Unit, Float(|o| o.typical_p, |o| &mut o.typical_p)),
    row("min-keep", "", None, Count, Int(|o| o.min_keep, |o| &mut o.min_keep)),
    row("xtc-probability", "xtc", Some("xtc_probability"), Unit, Float(|o| o.xtc_probability, |o| &mut o.xtc_probability)),
    row("xtc-threshold", "xtc", Some("xtc_threshold"), Unit, Float(|o| o.xtc_threshold, |o| &mut o.xtc_threshold)),
    row("dynatemp-range", "temperature", None, Positive, Float(|o| o.dynatemp_range, |o| &mut o.dynatemp_range)),
    row("dynatemp-exp", "temperature", None, Positive, Float(|o| o.dynatemp_exponent, |o| &mut o.dynatemp_exponent)),
    row("repeat-penalty", "penalties", Some("penalty_repeat"), AboveZero, Float(|o| o.repeat_penalty, |o| &mut o.repeat_penalty)),
    row("repeat-last-n", "penalties", Some("penalty_last_n"), Last, Int(|o| o.repeat_last_n, |o| &mut o.repeat_last_n)),
    row("presence-penalty", "penalties", None, Finite, Float(|o| o.presence_penalty, |o| &mut o.presence_penalty)),
    row("frequency-penalty", "penalties", None, Finite, Float(|o| o.frequency_penalty, |o| &mut o.frequency_penalty)),
    row("dry-multiplier", "dry", None, Positive, Float(|o| o.dry_multiplier, |o| &mut o.dry_multiplier)),
    row("dry-base", "dry", None, AtLeastOne, Float(|o| o.dry_base, |o| &mut o.dry_base)),
    row("dry-allowed-length", "dry", None, Count, Int(|o| o.dry_allowed_length, |o| &mut o.dry_allowed_length)),
    row("dry-penalty-last-n", "dry", None, Last, Int(|o| o.dry_penalty_last_n, |o| &mut o.dry_penalty_last_n)),
    row("mirostat", "", Some("mirostat"), ZeroOrTwo, Int(|o| o.mirostat, |o| &mut o.mirostat)),
    row("mirostat-ent", "", Some("mirostat_tau"), Positive, Float(|o| o.mirostat_tau, |o| &mut o.mirostat_tau)),
    row("mirostat-lr", "", Some("mirostat_eta"), Positive, Float(|o| o.mirostat_eta, |o| &mut o.mirostat_eta)),
    row("adaptive-target", "", None, AtMostOne, Float(|o| o.adaptive_target, |o| &mut o.adaptive_target)),
    row("adaptive-decay", "", None, Decay, Float(|o| o.adaptive_decay, |o| &mut o.adaptive_decay)),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_can_be_set_and_only_it_changes() {
        for setting in SETTINGS {
            let mut options = SamplerOptions::default();
            assert_eq!(setting.wrong(&options), None, "{}", setting.name);
            let before = SETTINGS.iter().map(|s| s.show(&options)).collect::<Vec<_>>();
            let other = if setting.name == "mirostat" { 2.0 } else { 0.25 };
            let other = if setting.range.has(other) { other } else { 7.0 };
            let set = setting.set(&mut options, other).or_else(|_| setting.set(&mut options, 7.0));
            set.unwrap_or_else(|problem| panic!("{}: {problem}", setting.name));
            for (now, old) in SETTINGS.iter().zip(before) {
                let changed = now.show(&options) != old;
                assert_eq!(changed, now.name == setting.name, "{} by {}", now.name, setting.name);
            }
            assert!(SamplerSetting::find(&setting.name.replace('-', "_")).is_some());
            let known = setting.sampler.is_empty() || options.samplers.has(setting.sampler);
            assert!(known, "{}", setting.name);
        }
    }

    #[test]
    fn what_cannot_be_is_said_and_changes_nothing() {
        let mut options = SamplerOptions::default();
        let mut set = |name, x| SamplerSetting::find(name).unwrap().set(&mut options, x);
        assert_eq!(set("top-p", 7.0).unwrap_err(), "expected 0 to 1, found 7");
        assert_eq!(set("top_k", 1.5).unwrap_err(), "expected a whole number, found 1.5");
        assert_eq!(set("mirostat", 1.0).unwrap_err(), "expected 0 or 2, found 1");
        assert_eq!(
            set("temperature", f64::INFINITY).unwrap_err(),
            "expected a finite number, found inf"
        );
        assert_eq!(
            set("temperature", 1e99).unwrap_err().split(',').next(),
            Some("expected a finite number")
        );
        assert!(set("top-k", 1e99).is_ok());
        assert_eq!(options, SamplerOptions { top_k: i32::MAX, ..SamplerOptions::default() });
    }
}
