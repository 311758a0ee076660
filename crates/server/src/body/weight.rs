//! Memory of JSON values, counted without building these.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};

use super::parse::{list_bytes, object_bytes, text_bytes};

/// Returns the bytes of memory that the values of a JSON text take, up to 36 times as many as the text has; 0 if it is not JSON.
pub(crate) fn parsed_bytes(text: &str) -> u64 {
    serde_json::from_str::<Weight>(text).map_or(0, |weight| weight.0)
}

/// Bytes that a value takes beside its own place.
struct Weight(u64);

impl<'de> Deserialize<'de> for Weight {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Weight, D::Error> {
        deserializer.deserialize_any(Weigh)
    }
}

struct Weigh;

impl<'de> Visitor<'de> for Weigh {
    type Value = Weight;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Weight, E> {
        Ok(Weight(0))
    }

    fn visit_bool<E>(self, _: bool) -> Result<Weight, E> {
        Ok(Weight(0))
    }

    fn visit_i64<E>(self, _: i64) -> Result<Weight, E> {
        Ok(Weight(0))
    }

    fn visit_u64<E>(self, _: u64) -> Result<Weight, E> {
        Ok(Weight(0))
    }

    fn visit_f64<E>(self, _: f64) -> Result<Weight, E> {
        Ok(Weight(0))
    }

    fn visit_str<E>(self, text: &str) -> Result<Weight, E> {
        Ok(Weight(text_bytes(text.len())))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Weight, A::Error> {
        let (mut n, mut bytes) = (0_usize, 0);
        while let Some(Weight(item)) = items.next_element()? {
            n += 1;
            bytes += item;
        }
        // a list has room for four, and doubles it when it grows
        let room = if n > 0 { list_bytes(n.next_power_of_two().max(4)) } else { 0 };
        Ok(Weight(bytes + room))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Weight, A::Error> {
        let (mut n, mut bytes) = (0, 0);
        while let Some(name) = entries.next_key::<String>()? {
            n += 1;
            bytes += name.len() as u64 + entries.next_value::<Weight>()?.0;
        }
        Ok(Weight(bytes + object_bytes(n, 0)))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::body::value_bytes;

    #[test]
    fn values_weigh_what_they_take() {
        for text in [
            "{}".to_owned(),
            "[]".to_owned(),
            format!("[{}0]", "0,".repeat(9_999)),
            format!("[{}0]", r#"{"a":{"b":null}},"#.repeat(2_000)),
            format!(r#"{{"a":"{}"}}"#, "long ".repeat(1_000)),
            (0..3_000).map(|i| format!(r#""{i}":[{i}]"#)).collect::<Vec<_>>().join(","),
        ] {
            let text = if text.starts_with('"') { format!("{{{text}}}") } else { text };
            let value: Value = serde_json::from_str(&text).unwrap();
            let (counted, takes) = (parsed_bytes(&text), value_bytes(&value));
            let share = counted as f64 / takes.max(1) as f64;
            assert!(counted == takes || (0.8..=1.3).contains(&share), "{counted} of {takes}");
        }
        assert_eq!((parsed_bytes("{"), parsed_bytes("{} {}")), (0, 0));
        assert_eq!(parsed_bytes(&"[".repeat(100_000)), 0, "its depth is bounded");
    }
}
