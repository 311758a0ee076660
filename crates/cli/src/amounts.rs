//! Amounts of bytes and of work on the command line: `24GB`, `82.58T`.

use planner::formula::Units;

/// A number with a prefix, whose meaning depends on the units that are asked for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Amount {
    number: f64,
    /// Of 1000 or 1024: 3 for `G`.
    power: i32,
    /// `Gi`, whatever the units.
    binary: bool,
}

impl Amount {
    /// In bytes, bytes per second or FLOP per second.
    pub(crate) fn value(self, units: Units) -> f64 {
        let decimal = units == Units::Decimal && !self.binary;
        self.number * if decimal { 1000.0_f64 } else { 1024.0 }.powi(self.power)
    }
}

/// Bytes, bytes per second or FLOP per second: a number, `k`, `M`, `G`, `T` or `P`, perhaps an `i`, and the unit.
pub(crate) fn amount(text: &str) -> Result<Amount, String> {
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
pub(crate) fn memory(text: &str) -> Result<Amount, String> {
    match number(text) {
        Some((_, rest)) if !rest.trim().is_empty() => amount(text),
        _ => Err("expected a size with its unit, such as 24GB or 24GiB".into()),
    }
}

/// A positive number and what follows it.
pub(crate) fn number(text: &str) -> Option<(f64, &str)> {
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
}
