//! [`Config`]: a `config.json` as its text model reads it, key by key, each number within its range.

use serde_json::{Map, Value};

use crate::Error;

/// The keys of a model of text, and what holds where one is missing.
pub(super) struct Config<'a> {
    /// Its own keys.
    text: &'a Map<String, Value>,
    /// Those of the whole, where it sees images, too.
    whole: &'a Map<String, Value>,
    defaults: &'a [(&'a str, u32)],
}

impl<'a> Config<'a> {
    /// Of a file's keys: where they describe several models, those of the one for text.
    pub(super) fn of(whole: &'a Map<String, Value>) -> Config<'a> {
        let text = whole.get("text_config").and_then(Value::as_object).unwrap_or(whole);
        Config { text, whole, defaults: &[] }
    }

    /// The same with these numbers where there are none.
    pub(super) fn with_defaults(self, defaults: &'a [(&'a str, u32)]) -> Config<'a> {
        Config { defaults, ..self }
    }

    /// What kind of model it is; of the whole where its text model does not say.
    pub(super) fn kind(&self) -> &str {
        self.get("model_type").and_then(Value::as_str).unwrap_or_default()
    }

    fn get(&self, key: &str) -> Option<&'a Value> {
        let there = |map: &'a Map<String, Value>| map.get(key).filter(|value| !value.is_null());
        there(self.text).or_else(|| there(self.whole))
    }

    /// The first of these keys that is there, and its value.
    fn any<'k>(&self, keys: &[&'k str]) -> Option<(&'k str, &'a Value)> {
        keys.iter().find_map(|key| Some((*key, self.get(key)?)))
    }

    /// A count from 1 to `most` by the first of these keys that is there.
    ///
    /// # Errors
    /// None is there; it is something else.
    pub(super) fn count(&self, keys: &[&str], most: u32) -> Result<u32, Error> {
        self.count_if(keys, 1, most)?.ok_or_else(|| {
            let others = keys[1..].join(", ");
            let others = if keys.len() > 1 { format!(" (or {others})") } else { others };
            Error::Malformed(format!("`{}`{others} is missing", keys[0]))
        })
    }

    /// The same from 0, which a missing one is.
    ///
    /// # Errors
    /// It is something else.
    pub(super) fn count_or_none(&self, keys: &[&str], most: u32) -> Result<u32, Error> {
        Ok(self.count_if(keys, 0, most)?.unwrap_or(0))
    }

    /// A count from `least` to `most`; of a list, one entry for each layer, the first.
    ///
    /// # Errors
    /// It is something else.
    pub(super) fn count_if(
        &self,
        keys: &[&str],
        least: u32,
        most: u32,
    ) -> Result<Option<u32>, Error> {
        let Some((key, value)) = self.any(keys) else {
            let default = self.defaults.iter().find(|(key, _)| keys.contains(key));
            return Ok(default.map(|(_, count)| *count));
        };
        let value = value.as_array().and_then(|list| list.first()).unwrap_or(value);
        let count = value.as_u64().and_then(|n| u32::try_from(n).ok());
        match count.filter(|n| (least..=most).contains(n)) {
            Some(count) => Ok(Some(count)),
            None => Err(unexpected(key, value, &format!("{least} to {most}"))),
        }
    }

    /// A count for each of `n` layers, where there is a list of them.
    ///
    /// # Errors
    /// It is something else.
    pub(super) fn counts(&self, key: &str, n: u32, most: u32) -> Result<Option<Vec<u32>>, Error> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let count = |value: &Value| value.as_u64().filter(|count| *count <= u64::from(most));
        let list = value.as_array().map(|list| list.iter().map_while(count));
        let list: Option<Vec<u32>> = list.map(|list| list.map(|count| count as u32).collect());
        match list.filter(|list| list.len() == n as usize) {
            Some(list) => Ok(Some(list)),
            None => {
                let expected = format!("a number up to {most} for each of {n} layers");
                Err(Error::Malformed(format!("`{key}`: expected {expected}")))
            }
        }
    }

    /// A word for each layer, where there is a list of them.
    pub(super) fn words(&self, key: &str) -> Option<Vec<&'a str>> {
        let list = self.get(key)?.as_array()?;
        Some(list.iter().map(|word| word.as_str().unwrap_or_default()).collect())
    }

    /// A text.
    pub(super) fn text(&self, key: &str) -> Option<&'a str> {
        self.get(key)?.as_str()
    }

    /// The keys of an object.
    pub(super) fn within(&self, key: &str) -> Option<Config<'a>> {
        let text = self.get(key)?.as_object()?;
        Some(Config { text, whole: text, defaults: &[] })
    }

    /// True or false.
    ///
    /// # Errors
    /// It is something else.
    pub(super) fn flag(&self, keys: &[&str]) -> Result<Option<bool>, Error> {
        let Some((key, value)) = self.any(keys) else { return Ok(None) };
        value.as_bool().map(Some).ok_or_else(|| unexpected(key, value, "true or false"))
    }

    /// A number above 0.
    ///
    /// # Errors
    /// It is something else.
    pub(super) fn real(&self, keys: &[&str]) -> Result<Option<f32>, Error> {
        let Some((key, value)) = self.any(keys) else { return Ok(None) };
        let number = value.as_f64().map(|number| number as f32);
        let number = number.filter(|number| number.is_finite() && *number > 0.0);
        number.map(Some).ok_or_else(|| unexpected(key, value, "a number above 0"))
    }
}

fn unexpected(key: &str, value: &Value, expected: &str) -> Error {
    let value = gguf::escape(value.to_string(), 60);
    Error::Malformed(format!("`{key}` is {value}: expected {expected}"))
}
