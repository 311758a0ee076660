//! Figures on the command line: `500ms`, `32k`.

use crate::amounts::number;
use crate::counts;

/// Seconds: `500ms`, `2s`, `1.5`.
pub(super) fn seconds(text: &str) -> Result<f64, String> {
    let expected = || "expected a time such as 500ms or 2s".to_owned();
    let (number, unit) = number(text).ok_or_else(expected)?;
    match unit.trim() {
        "" | "s" => Ok(number),
        "ms" => Ok(number / 1e3),
        "us" => Ok(number / 1e6),
        "min" => Ok(number * 60.0),
        _ => Err(expected()),
    }
}

/// Most tokens that a plan looks at.
const MOST_TOKENS: usize = 1 << 24;

/// Tokens of a prompt: `512`, `32k` of 1024 each.
pub(super) fn tokens(text: &str) -> Result<u64, String> {
    range(text, 1, "expected a number of tokens from 1 to 16m, such as 8192 or 32k")
}

/// Tokens of a context, 0 for the model's own.
pub(super) fn context(text: &str) -> Result<u64, String> {
    range(
        text,
        0,
        "expected a number of tokens up to 16m, such as 8192 or 32k, or 0 for the model's own",
    )
}

fn range(text: &str, least: usize, expected: &str) -> Result<u64, String> {
    counts::within(text, least, MOST_TOKENS).map(|n| n as u64).map_err(|_| expected.to_owned())
}

/// A positive number.
pub(super) fn positive(text: &str) -> Result<f64, String> {
    match number(text) {
        Some((number, "")) => Ok(number),
        _ => Err("expected a positive number".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_tokens() {
        assert_eq!(seconds("500ms"), Ok(0.5));
        assert_eq!(seconds("2s"), Ok(2.0));
        assert_eq!(seconds("1.5"), Ok(1.5));
        assert!(seconds("2h").is_err() && seconds("-2s").is_err());
        assert_eq!(tokens("32k"), Ok(32_768));
        assert_eq!(tokens("8192"), Ok(8192));
        assert_eq!(tokens("1.5K"), Ok(1536));
        assert!(["0", "1.5", "17m", "k", "1g", "1e30"].iter().all(|bad| tokens(bad).is_err()));
        assert_eq!((context("0"), context("16m")), (Ok(0), Ok(1 << 24)));
        assert_eq!(positive("20"), Ok(20.0));
        assert!(positive("20x").is_err());
    }
}
