//! How much a model is asked to think, as `--reasoning` and `/set think` say it.

use console::args::SuggestedValues;
use engine::{Effort, Reasoning};

/// Values that shells and errors suggest.
const NAMES: [&str; 9] = ["on", "off", "auto", "minimal", "low", "medium", "high", "xhigh", "max"];

/// Returns the parser of `--reasoning`.
pub(crate) fn values() -> SuggestedValues<Reasoning> {
    SuggestedValues::new(NAMES, parse)
}

/// Reads a switch, an effort, or a budget in tokens. As for llama.cpp, a budget of 0 turns thinking off and -1 is no budget,
/// and the effort `default` is the template's.
pub(crate) fn parse(text: &str) -> Result<Reasoning, String> {
    let budget = || match text.parse::<i64>().ok()? {
        -1 => Some(Reasoning::Auto),
        0 => Some(Reasoning::Off),
        tokens => u32::try_from(tokens).ok().map(Reasoning::Budget),
    };
    let known = match text {
        "on" => Some(Reasoning::On),
        "off" | "none" => Some(Reasoning::Off),
        "auto" | "default" => Some(Reasoning::Auto),
        _ => Effort::of_name(text).map(Reasoning::Effort).or_else(budget),
    };
    known.ok_or_else(|| {
        format!("expected {} or a budget in tokens, found `{text}`", NAMES.join(", "))
    })
}

/// Returns the value that [`parse`] reads as this.
pub(crate) fn name(reasoning: Reasoning) -> String {
    match reasoning {
        Reasoning::On => "on".to_owned(),
        Reasoning::Off => "off".to_owned(),
        Reasoning::Auto => "auto".to_owned(),
        Reasoning::Effort(effort) => effort.name().to_owned(),
        Reasoning::Budget(tokens) => tokens.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn switches_efforts_and_budgets_are_read() {
        for (text, wanted) in [
            ("on", Reasoning::On),
            ("none", Reasoning::Off),
            ("default", Reasoning::Auto),
            ("xhigh", Reasoning::Effort(Effort::XHigh)),
            ("2048", Reasoning::Budget(2048)),
            ("0", Reasoning::Off),
            ("-1", Reasoning::Auto),
        ] {
            assert_eq!(parse(text), Ok(wanted), "{text}");
        }
        for wrong in ["", "-2", "1.5", "much", "99999999999"] {
            assert!(parse(wrong).unwrap_err().contains("budget in tokens"), "{wrong}");
        }
        for text in NAMES.into_iter().chain(["700"]) {
            assert_eq!(parse(text).map(name).as_deref(), Ok(text));
        }
        for effort in Effort::ALL {
            assert!(NAMES.contains(&effort.name()));
        }
    }
}
