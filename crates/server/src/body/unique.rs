//! JSON in which no object has a name twice: two readers of one text could take different values for it.

use std::fmt;

use serde::de::{Deserialize, DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// The field that may be a long list of token ids.
pub(super) const PROMPT: &str = "prompt";
/// So many ids of such a list are values as well: more than an error shows of it.
const SHOWN: usize = 32;

/// A value, and apart from it all ids of the field [`PROMPT`] where that is a long list of them: an id takes four bytes, a value
/// 72. The field itself then has but the first [`SHOWN`].
pub(super) struct Unique {
    pub(super) value: Value,
    pub(super) prompt: Option<Vec<u32>>,
}

impl<'de> Deserialize<'de> for Unique {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Unique, D::Error> {
        let mut prompt = None;
        let value = Read::Whole(&mut prompt).deserialize(deserializer)?;
        Ok(Unique { value, prompt })
    }
}

/// Reads a value, by where it stands.
enum Read<'a> {
    Whole(&'a mut Option<Vec<u32>>),
    Prompt(&'a mut Option<Vec<u32>>),
    Nested,
}

impl<'de> DeserializeSeed<'de> for Read<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Read<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        let number = Number::from_f64(value).ok_or_else(|| E::custom("a number out of range"))?;
        Ok(Value::Number(number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let (mut ids, mut values) = (Vec::new(), Vec::new());
        while let Some(value) = seq.next_element_seed(Read::Nested)? {
            let id = value.as_u64().and_then(|id| u32::try_from(id).ok());
            match (&self, id) {
                (Read::Prompt(_), Some(id)) if values.is_empty() => ids.push(id),
                _ => {
                    values.extend(ids.drain(..).map(Value::from));
                    values.push(value);
                }
            }
        }
        values.extend(ids.iter().take(SHOWN).copied().map(Value::from));
        if let Read::Prompt(prompt) = self
            && ids.len() > SHOWN
        {
            *prompt = Some(ids);
        }
        Ok(Value::Array(values))
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut entries: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(name) = entries.next_key::<String>()? {
            let read = match &mut self {
                Read::Whole(prompt) if name == PROMPT => Read::Prompt(prompt),
                _ => Read::Nested,
            };
            if map.insert(name, entries.next_value_seed(read)?).is_some() {
                return Err(A::Error::custom("a name stands twice in an object"));
            }
        }
        Ok(Value::Object(map))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(text: &str) -> serde_json::Result<Unique> {
        serde_json::from_str(text)
    }

    #[test]
    fn values_are_what_they_are_and_no_name_comes_twice() {
        let text = r#"{"a": [1, -2, 0.5, null, true, "x"], "b": {"a": {}}}"#;
        assert_eq!(read(text).unwrap().value, serde_json::from_str::<Value>(text).unwrap());
        for twice in [r#"{"a": 1, "a": 1}"#, r#"{"b": [{"a": 1, "a": 2}]}"#] {
            assert!(read(twice).err().unwrap().to_string().contains("twice"));
        }
        assert!(read(&"[".repeat(100_000)).is_err());
    }

    #[test]
    fn a_long_prompt_of_ids_is_kept_apart() {
        let ids = |n: u32| (0..n).map(|id| id * 70_001).collect::<Vec<_>>();
        let told = |value: Value| read(&value.to_string()).unwrap();
        let long = told(json!({ "a": 1, "prompt": ids(33) }));
        assert_eq!(long.prompt, Some(ids(33)));
        assert_eq!(long.value, json!({ "a": 1, "prompt": ids(32) }));
        let with = |last: Value| {
            let mut values: Vec<Value> = ids(33).into_iter().map(Value::from).collect();
            values.push(last);
            values
        };
        let others = [
            json!({ "prompt": ids(32) }),
            json!({ "prompt": [ids(40), ids(50)] }),
            json!({ "prompt": with(json!(-1)) }),
            json!({ "prompt": with(json!("x")) }),
            json!({ "prompt": with(json!(1_u64 << 32)) }),
            json!({ "prompt": [["x"], 1, 2] }),
            json!({ "tokens": ids(40) }),
            json!({ "a": { "prompt": ids(40) } }),
            json!([{ "prompt": ids(40) }]),
        ];
        for other in others {
            let found = told(other.clone());
            assert_eq!((found.value, found.prompt), (other, None));
        }
    }
}
