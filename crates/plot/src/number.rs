//! Numbers as people read them.

const PREFIXES: [(i32, &str); 9] = [
    (-12, "p"),
    (-9, "n"),
    (-6, "\u{b5}"),
    (-3, "m"),
    (0, ""),
    (3, "k"),
    (6, "M"),
    (9, "G"),
    (12, "T"),
];

/// The prefix for numbers of `unit` up to `most`, and what to divide them by. Nobody counts in kiloseconds.
pub(crate) fn prefix(most: f64, unit: &str) -> (f64, &'static str) {
    let most = most.abs();
    let mut found = if most == 0.0 { PREFIXES[4] } else { PREFIXES[0] };
    for row in PREFIXES.into_iter().filter(|row| row.0 <= 0 || unit != "s") {
        if most >= 10f64.powi(row.0) * (1.0 - 1e-9) {
            found = row;
        }
    }
    (10f64.powi(found.0), found.1)
}

/// `13.1 ms`: three significant digits and an SI prefix. `-` for what is no number.
pub fn si(value: f64, unit: &str) -> String {
    if !value.is_finite() {
        return "-".to_owned();
    }
    // Rounded first: 999.6 is 1 k, not 1000.
    let rounded = significant(value, 3);
    let (factor, prefix) = prefix(rounded, unit);
    let number = shortest(rounded / factor, 3);
    if prefix.is_empty() && unit.is_empty() { number } else { format!("{number} {prefix}{unit}") }
}

/// `16,384`: thousands apart, `decimals` after the point.
pub fn grouped(value: f64, decimals: usize) -> String {
    if !value.is_finite() {
        return "-".to_owned();
    }
    let text = format!("{:.decimals$}", value.abs());
    let (whole, rest) = text.split_at(text.find('.').unwrap_or(text.len()));
    let mut out = String::new();
    if value < 0.0 && text.bytes().any(|b| b.is_ascii_digit() && b != b'0') {
        out.push('\u{2212}');
    }
    for (i, digit) in whole.char_indices() {
        if i > 0 && (whole.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out + rest
}

/// `value` to `digits` significant digits.
fn significant(value: f64, digits: i32) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return value;
    }
    let decimals = digits - 1 - value.abs().log10().floor() as i32;
    if decimals.abs() > 300 {
        return value;
    }
    let power = 10f64.powi(decimals.abs());
    if decimals >= 0 { (value * power).round() / power } else { (value / power).round() * power }
}

/// With at most `digits` significant digits, without zeros at the end.
fn shortest(value: f64, digits: i32) -> String {
    let before = if value.abs() >= 1.0 { value.abs().log10().floor() as i32 + 1 } else { 1 };
    let text = grouped(value, (digits - before).max(0) as usize);
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes() {
        for (value, want) in [
            (0.0131, "13.1 ms"),
            (0.0, "0 s"),
            (1.0, "1 s"),
            (999.6, "1,000 s"),
            (-0.25, "\u{2212}250 ms"),
            (6.6e-7, "660 ns"),
            (1e-6, "1 \u{b5}s"),
            (1234.0, "1,230 s"),
            (1e-14, "0.01 ps"),
            (f64::NAN, "-"),
        ] {
            assert_eq!(si(value, "s"), want);
        }
        assert_eq!(si(5.0, ""), "5");
        assert_eq!(si(1008e9, "B/s"), "1.01 TB/s");
        assert_eq!(si(999.6, "B"), "1 kB");
        assert_eq!(si(1e15, "B"), "1,000 TB");
    }

    #[test]
    fn thousands() {
        for (value, decimals, want) in [
            (16384.0, 0, "16,384"),
            (999.0, 0, "999"),
            (-1234567.5, 1, "\u{2212}1,234,567.5"),
            (-0.001, 1, "0.0"),
            (1000.0, 2, "1,000.00"),
            (f64::INFINITY, 0, "-"),
        ] {
            assert_eq!(grouped(value, decimals), want);
        }
    }
}
