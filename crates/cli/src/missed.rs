//! What a context memory left out, as its meter has it: in footers and JSON.

use program::{MissedMass, Readings};
use serde_json::{Value, json};

/// Beyond this share on average, more should be read.
const MUCH: f64 = 0.05;

/// `missed 1.2 % of attention, 4.5 % or less in 95 of 100 heads, at most 12 % (cache 3, head 5, token 4096); read 90 % of the
/// blocks with most of it`; nothing without readings.
pub(crate) fn footer(readings: &Readings) -> Option<String> {
    let MissedMass { mean, p95, worst, found, .. } = readings.missed()?;
    let percent = |share: f64| format!("{:.2} %", 100.0 * share);
    let more = if mean > MUCH { ": --kv-blocks reads more" } else { "" };
    Some(format!(
        "missed {} of attention, {} or less in 95 of 100 heads, at most {} (cache {}, head {}, token {}); read {:.0} % of the blocks with most of it{more}",
        percent(mean),
        percent(p95),
        percent(f64::from(worst.missed)),
        worst.cache.0,
        worst.head,
        worst.position,
        100.0 * found,
    ))
}

/// The same as an object, `null` without readings.
pub(crate) fn to_json(readings: &Readings) -> Value {
    let Some(MissedMass { n, mean, p95, worst, found }) = readings.missed() else {
        return Value::Null;
    };
    json!({
        "readings": n,
        "mean": mean,
        "p95": p95,
        "best_blocks_read": found,
        "worst": worst.missed,
        "worst_cache": worst.cache.0,
        "worst_head": worst.head,
        "worst_token": worst.position,
    })
}

/// What the readings of several sessions come to.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct MeanMissed {
    readings: usize,
    missed: f64,
    found: f64,
}

impl MeanMissed {
    /// With those of another session.
    pub(crate) fn add(&mut self, readings: &Readings) {
        self.readings += readings.all().len();
        for reading in readings.all() {
            self.missed += f64::from(reading.missed);
            self.found += f64::from(reading.found);
        }
    }

    /// The mean share that was left out, and that of the best blocks which was read; `None` without readings.
    pub(crate) fn means(&self) -> Option<(f64, f64)> {
        let n = self.readings as f64;
        (self.readings > 0).then(|| (self.missed / n, self.found / n))
    }
}

#[cfg(test)]
mod tests {
    use program::{CacheId, MeterReading};

    use super::*;

    #[test]
    fn readings_are_told_and_much_is_said_to_be() {
        let mut readings = Readings::default();
        assert_eq!((footer(&readings), to_json(&readings)), (None, Value::Null));
        let of = |position, missed| {
            let found = 0.75;
            MeterReading { position, cache: CacheId(1), head: 2, missed, found }
        };
        readings.add(vec![of(64, 0.0), of(128, 0.0625)]);
        let told = footer(&readings).expect("there are some");
        assert!(told.starts_with("missed 3.12 % of attention, 6.25 % or less"), "{told}");
        let end =
            "at most 6.25 % (cache 1, head 2, token 128); read 75 % of the blocks with most of it";
        assert!(told.ends_with(end), "{told}");
        assert_eq!(to_json(&readings)["best_blocks_read"], 0.75);
        assert_eq!(to_json(&readings)["worst_token"], 128);
        readings.add(vec![of(192, 0.5)]);
        assert!(footer(&readings).is_some_and(|told| told.ends_with("--kv-blocks reads more")));
    }
}
