//! Formats numbers for people.

use std::time::Duration;

/// Formats a number of bytes: `1.40 GB`, `310 kB`, `12 B`. Units are decimal, as for bandwidths, so that sizes and bandwidths
/// can be divided.
pub fn bytes(n: u64) -> String {
    decimal_bytes(n as f64)
}

/// Formats a number of parameters: `494.03 M`, `7.62 B`.
pub fn count(n: u64) -> String {
    match n {
        0..1_000 => n.to_string(),
        1_000..1_000_000 => format!("{:.2} K", n as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.2} M", n as f64 / 1e6),
        _ => format!("{:.2} B", n as f64 / 1e9),
    }
}

/// Formats a number of bytes with three significant digits and decimal units: `4.68 GB`, `57.3 kB`.
pub fn decimal_bytes(n: f64) -> String {
    scaled(n, 1000.0, ["B", "kB", "MB", "GB", "TB"])
}

/// Formats a time in seconds with three significant digits: `113 ms`, `1.62 s`, `32.0 us`.
pub fn short_seconds(time: f64) -> String {
    match time {
        t if t <= 0.0 => "0".into(),
        t if t < 1e-3 => format!("{} us", three_figures(t * 1e6)),
        t if t < 0.9995 => format!("{} ms", three_figures(t * 1e3)),
        t if t < 1e5 => format!("{} s", three_figures(t)),
        t => format!("{t:.1e} s"),
    }
}

/// Formats a number with three significant digits and a unit. Each unit is `base` times as large as the one before it.
pub fn scaled(n: f64, base: f64, units: [&str; 5]) -> String {
    let mut value = n;
    let mut unit = 0;
    // a number that would round up to the base belongs to the next unit
    while value >= base * 0.9995 && unit + 1 < units.len() {
        value /= base;
        unit += 1;
    }
    if unit == 0 {
        format!("{value:.0} {}", units[0])
    } else {
        format!("{} {}", three_figures(value), units[unit])
    }
}

/// Formats a number with three significant digits: `4.68`, `57.3`, `113`. Larger numbers keep all their digits: `1020`.
pub fn three_figures(value: f64) -> String {
    match value {
        v if v >= 99.95 => format!("{v:.0}"),
        v if v >= 9.995 => format!("{v:.1}"),
        v => format!("{v:.2}"),
    }
}

/// Formats a number with three significant digits, or with thousands separators from 1,000 on.
pub fn figures(value: f64) -> String {
    if value < 999.5 { three_figures(value) } else { thousands(value.round() as u64) }
}

/// Formats a number with thousands separators: `32,768`.
pub fn thousands(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (i, digit) in digits.char_indices() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Formats a duration in seconds: `0.31 s`.
pub fn seconds(time: Duration) -> String {
    format!("{:.2} s", time.as_secs_f64())
}

/// Formats a count: `1 request`, `3 requests`.
pub fn counted(n: usize, noun: &str) -> String {
    if n == 1 { format!("1 {noun}") } else { format!("{n} {noun}s") }
}

/// Formats the first `most` names of a list: `a, b and 3 more`.
pub fn listed(names: &[impl AsRef<str>], most: usize) -> String {
    let first: Vec<&str> = names.iter().take(most).map(AsRef::as_ref).collect();
    let more = match names.len().saturating_sub(most) {
        0 => String::new(),
        n => format!(" and {n} more"),
    };
    format!("{}{more}", first.join(", "))
}

/// Formats an expected duration: `45 s`, `11 min`, `2 h 5 min`.
pub fn about(time: Duration) -> String {
    let seconds = time.as_secs_f64().ceil() as u64;
    let minutes = (seconds + 30) / 60;
    match seconds {
        0..=99 => format!("{seconds} s"),
        100..=5999 => format!("{minutes} min"),
        _ => format!("{} h {} min", minutes / 60, minutes % 60),
    }
}

/// Returns the rate in tokens per second; 0 if `time` is zero.
pub fn rate(tokens: usize, time: Duration) -> f64 {
    if time.is_zero() { 0.0 } else { tokens as f64 / time.as_secs_f64() }
}

/// Formats the age of `time` in the largest whole unit: `3 days ago`.
pub fn ago(time: std::time::SystemTime) -> String {
    let seconds = time.elapsed().map_or(0, |since| since.as_secs());
    let units = [
        (31_536_000, "year"),
        (2_592_000, "month"),
        (86_400, "day"),
        (3_600, "hour"),
        (60, "minute"),
    ];
    match units.into_iter().find(|(length, _)| seconds >= *length) {
        Some((length, unit)) => {
            let n = seconds / length;
            format!("{n} {unit}{} ago", if n == 1 { "" } else { "s" })
        }
        None => "just now".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_counts() {
        for (n, want) in [(0, "0 B"), (999, "999 B"), (1536, "1.54 kB"), (5_000_000_000, "5.00 GB")]
        {
            assert_eq!(bytes(n), want);
        }
        for (n, want) in
            [(0.0, "0 B"), (57_344.0, "57.3 kB"), (999_700.0, "1.00 MB"), (4.68e9, "4.68 GB")]
        {
            assert_eq!(decimal_bytes(n), want);
        }
        for (n, want) in [
            (0.0, "0"),
            (3.2e-5, "32.0 us"),
            (0.1134, "113 ms"),
            (0.9999, "1.00 s"),
            (75.0, "75.0 s"),
        ] {
            assert_eq!(short_seconds(n), want);
        }
        let requests = [0, 1, 2].map(|n| counted(n, "request"));
        assert_eq!(requests, ["0 requests", "1 request", "2 requests"]);
        for (seconds, want) in [
            (0.2, "1 s"),
            (45.0, "45 s"),
            (99.0, "99 s"),
            (100.0, "2 min"),
            (679.56, "11 min"),
            (7500.0, "2 h 5 min"),
        ] {
            assert_eq!(about(Duration::from_secs_f64(seconds)), want);
        }
        for (n, want) in [(7, "7"), (999, "999"), (1000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(thousands(n), want);
        }
        for (n, want) in [(12, "12"), (494_032_768, "494.03 M"), (7_615_616_512, "7.62 B")] {
            assert_eq!(count(n), want);
        }
    }
}
