//! Figures on the command line: `24GB`, `82.58T`, `500ms`, `32k`.

use planner::formula::Units;

use crate::counts;

/// A number with a prefix, whose meaning depends on the units that are asked for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Amount {
    number: f64,
    /// Of 1000 or 1024: 3 for `G`.
    power: i32,
    /// `Gi`, whatever the units.
    binary: bool,
}

impl Amount {
    /// In bytes, bytes per second or FLOP per second.
    pub(super) fn value(self, units: Units) -> f64 {
        let decimal = units == Units::Decimal && !self.binary;
        self.number * if decimal { 1000.0_f64 } else { 1024.0 }.powi(self.power)
    }
}

/// Bytes, bytes per second or FLOP per second: a number, `k`, `M`, `G`, `T` or `P`, perhaps an `i`, and the unit.
pub(super) fn amount(text: &str) -> Result<Amount, String> {
    let expected = || "expected a positive number such as 24GB, 24GiB, 67GB/s or 82.58T".to_owned();
    let (number, rest) = number(text).ok_or_else(expected)?;
    let lower = rest.trim().to_ascii_lowercase();
    let unit = ["bytes", "b/s", "b", "flop/s", "flops", "flop", "op/s", "ops", ""]
        .into_iter()
        .find(|unit| lower.ends_with(unit))
        .unwrap_or_default();
    let prefix = &lower[..lower.len() - unit.len()];
    let (prefix, binary) = match prefix.strip_suffix('i') {
        Some(prefix) if !prefix.is_empty() => (prefix, true),
        _ => (prefix, false),
    };
    let prefixes = ["", "k", "m", "g", "t", "p"];
    let power = prefixes.iter().position(|known| *known == prefix).ok_or_else(expected)?;
    let amount = Amount { number, power: power as i32, binary };
    if amount.value(Units::Article).is_finite() { Ok(amount) } else { Err(expected()) }
}

/// Bytes of memory: an [`amount`] with its unit, for a bare number of bytes is a slip of a key.
pub(super) fn memory(text: &str) -> Result<Amount, String> {
    match number(text) {
        Some((_, rest)) if !rest.trim().is_empty() => amount(text),
        _ => Err("expected a size with its unit, such as 24GB or 24GiB".into()),
    }
}

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

/// A positive number and what follows it.
fn number(text: &str) -> Option<(f64, &str)> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    // `1e9` is a number with an exponent, `1e` is not.
    let exponent = text[end..].strip_prefix(['e', 'E']).map(|rest| {
        let signed = rest.strip_prefix(['+', '-']).unwrap_or(rest);
        let digits = signed.find(|c: char| !c.is_ascii_digit()).unwrap_or(signed.len());
        (digits > 0).then(|| text.len() - signed.len() + digits)
    });
    let end = exponent.flatten().unwrap_or(end);
    let number: f64 = text[..end].parse().ok()?;
    (number.is_finite() && number > 0.0).then_some((number, &text[end..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts() {
        let value = |text, units| amount(text).map(|amount| amount.value(units));
        for (text, decimal, article) in [
            ("24GB", 24e9, 24.0 * 1_073_741_824.0),
            ("24 GiB", 24.0 * 1_073_741_824.0, 24.0 * 1_073_741_824.0),
            ("67gb/s", 67e9, 67.0 * 1_073_741_824.0),
            ("1.5T", 1.5e12, 1.5 * 1_099_511_627_776.0),
            ("2TFLOPS", 2e12, 2.0 * 1_099_511_627_776.0),
            ("3e9", 3e9, 3e9),
            ("512", 512.0, 512.0),
        ] {
            assert_eq!(value(text, Units::Decimal), Ok(decimal), "{text}");
            assert_eq!(value(text, Units::Article), Ok(article), "{text}");
        }
        for bad in
            ["", "GB", "-1GB", "0", "24XB", "1e999", "1e300T", "nan", "inf", "24 G B", "i", "2i"]
        {
            assert!(amount(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn memory_has_a_unit() {
        assert_eq!(memory("24GB").map(|amount| amount.value(Units::Decimal)), Ok(24e9));
        for bad in ["5", "1e9", "", "5 XB"] {
            assert!(memory(bad).is_err(), "{bad}");
        }
    }

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
