//! How long a model stays that nobody asks for: `5m`, `1h30m`, `300` seconds, `0`, or below 0 for as long as there is room.

use std::time::Duration;

use serde_json::Value;

use crate::body::JsonBody;
use crate::error::{ApiError, Result};
use crate::fields::brief_text;

/// Seconds of each unit.
const UNITS: [(&str, f64); 4] = [("ms", 1e-3), ("h", 3600.0), ("m", 60.0), ("s", 1.0)];

/// Read a time; `None`: for as long as there is room.
///
/// # Errors
/// What is none, in words.
pub fn kept_for(text: &str) -> std::result::Result<Option<Duration>, String> {
    let expected = || format!("expected a time such as 5m, 300 or -1, found {}", brief_text(text));
    if let Ok(seconds) = text.parse::<f64>() {
        return of_seconds(seconds).ok_or_else(expected);
    }
    let (below, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let mut seconds = 0.0;
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(expected)?;
        let number: f64 = rest[..end].parse().map_err(|_| expected())?;
        let unit = UNITS.iter().find(|(unit, _)| rest[end..].starts_with(unit));
        let (unit, factor) = unit.ok_or_else(expected)?;
        seconds += number * factor;
        rest = &rest[end + unit.len()..];
    }
    if text.is_empty() || text == "-" {
        return Err(expected());
    }
    of_seconds(if below { -seconds } else { seconds }).ok_or_else(expected)
}

/// `None`: no time.
fn of_seconds(seconds: f64) -> Option<Option<Duration>> {
    /// Longer is for ever.
    const CENTURY: f64 = 3.2e9;
    match seconds {
        _ if !seconds.is_finite() => None,
        seconds if !(0.0..=CENTURY).contains(&seconds) => Some(None),
        seconds => Some(Some(Duration::from_secs_f64(seconds))),
    }
}

/// What a request's `keep_alive` says, if it is there: as a text, or in seconds.
///
/// # Errors
/// Something else.
pub(crate) fn keep_alive(body: &JsonBody) -> Result<Option<Option<Duration>>> {
    const NAME: &str = "keep_alive";
    let read = match body.get(NAME) {
        None => return Ok(None),
        Some(Value::String(text)) => kept_for(text),
        Some(other) => kept_for(&other.to_string()),
    };
    read.map(Some).map_err(|problem| ApiError::field(NAME, problem))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_go_writes_them() {
        let seconds = |text| kept_for(text).map(|time| time.map(|time| time.as_secs_f64()));
        for (text, want) in [
            ("5m", Some(300.0)),
            ("1h30m", Some(5400.0)),
            ("300ms", Some(0.3)),
            ("1.5s", Some(1.5)),
            ("300", Some(300.0)),
            ("0", Some(0.0)),
            ("-1", None),
            ("-1m", None),
            ("9999999h", None),
        ] {
            assert_eq!(seconds(text), Ok(want), "{text}");
        }
        for wrong in ["", "-", "m", "5", "5 m", "5x", "nan", "true", "[1]", "1m5"] {
            let is_number = wrong == "5";
            assert_eq!(seconds(wrong).is_ok(), is_number, "{wrong}");
        }
    }

    #[test]
    fn what_is_no_time_is_told_in_brief() {
        let long = "5x\n".repeat(10_000);
        for value in [Value::from(&*long), Value::from(vec![1; 10_000])] {
            let body = serde_json::json!({ "keep_alive": value });
            let told = keep_alive(&body.into()).unwrap_err().message;
            assert!(told.len() < 160 && !told.contains('\n'), "{told}");
        }
    }
}
