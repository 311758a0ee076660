//! What a context memory left out, as its meter has it: in footers and JSON.

use program::{MissedMass, Readings};
use serde_json::{Value, json};

/// Beyond this share on average, more should be read.
const MUCH: f64 = 0.05;

/// `missed 1.2 % of attention, 4.5 % of 95 in 100 heads, at most 12 % (cache 3, head 5, token 4096)`; nothing without
/// readings.
pub(crate) fn footer(readings: &Readings) -> Option<String> {
    let MissedMass { mean, p95, worst, .. } = readings.missed()?;
    let percent = |share: f64| format!("{:.2} %", 100.0 * share);
    let more = if mean > MUCH { ": --kv-blocks reads more" } else { "" };
    Some(format!(
        "missed {} of attention, {} or less in 95 of 100 heads, at most {} (cache {}, head {}, token {}){more}",
        percent(mean),
        percent(p95),
        percent(f64::from(worst.missed)),
        worst.cache.0,
        worst.head,
        worst.position,
    ))
}

/// The same as an object, `null` without readings.
pub(crate) fn to_json(readings: &Readings) -> Value {
    let Some(MissedMass { n, mean, p95, worst }) = readings.missed() else { return Value::Null };
    json!({
        "readings": n,
        "mean": mean,
        "p95": p95,
        "worst": worst.missed,
        "worst_cache": worst.cache.0,
        "worst_head": worst.head,
        "worst_token": worst.position,
    })
}

#[cfg(test)]
mod tests {
    use program::{CacheId, MeterReading};

    use super::*;

    #[test]
    fn readings_are_told_and_much_is_said_to_be() {
        let mut readings = Readings::default();
        assert_eq!((footer(&readings), to_json(&readings)), (None, Value::Null));
        let of = |position, missed| MeterReading { position, cache: CacheId(1), head: 2, missed };
        readings.add(vec![of(64, 0.0), of(128, 0.0625)]);
        let told = footer(&readings).expect("there are some");
        assert!(told.starts_with("missed 3.12 % of attention, 6.25 % or less"), "{told}");
        assert!(told.ends_with("at most 6.25 % (cache 1, head 2, token 128)"), "{told}");
        assert_eq!(to_json(&readings)["worst_token"], 128);
        readings.add(vec![of(192, 0.5)]);
        assert!(footer(&readings).is_some_and(|told| told.ends_with("--kv-blocks reads more")));
    }
}
