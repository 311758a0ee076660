//! [`Config`]: reads the keys of a `config.json` and checks the range of each number.

use serde_json::{Map, Value};

use crate::Error;

/// Keys of a text model, with default values.
pub(super) struct Config<'a> {
    /// Keys of the text model.
    text: &'a Map<String, Value>,
    /// Keys of the whole file, which may describe a multimodal model.
    whole: &'a Map<String, Value>,
    defaults: &'a [(&'a str, u32)],
}

impl<'a> Config<'a> {
    /// Creates the configuration from the keys of a file. If the file describes several models, uses the text model.
    pub(super) fn of(whole: &'a Map<String, Value>) -> Config<'a> {
        let text = whole.get("text_config").and_then(Value::as_object).unwrap_or(whole);
        Config { text, whole, defaults: &[] }
    }

    /// Sets the default values of missing keys.
    pub(super) fn with_defaults(self, defaults: &'a [(&'a str, u32)]) -> Config<'a> {
        Config { defaults, ..self }
    }

    /// Returns the `model_type` of the text model, else of the whole model.
    pub(super) fn kind(&self) -> &str {
        self.get("model_type").and_then(Value::as_str).unwrap_or_default()
    }

    fn get(&self, key: &str) -> Option<&'a Value> {
        let there = |map: &'a Map<String, Value>| map.get(key).filter(|value| !value.is_null());
        there(self.text).or_else(|| there(self.whole))
    }

    /// Returns the first of these keys that is present, and its value.
    fn any<'k>(&self, keys: &[&'k str]) -> Option<(&'k str, &'a Value)> {
        keys.iter().find_map(|key| Some((*key, self.get(key)?)))
    }

    /// Returns an integer from 1 to `most`: the value of the first of these keys that is present.
    ///
    /// # Errors
    /// [`Error::Malformed`] if no key is present, or if the value is not such an integer.
    pub(super) fn count(&self, keys: &[&str], most: u32) -> Result<u32, Error> {
        self.count_if(keys, 1, most)?.ok_or_else(|| {
            let others = keys[1..].join(", ");
            let others = if keys.len() > 1 { format!(" (or {others})") } else { others };
            Error::Malformed(format!("`{}`{others} is missing", keys[0]))
        })
    }

    /// Returns an integer from 0 to `most`: the value of the first of these keys that is present, or 0 if there is none.
    ///
    /// # Errors
    /// [`Error::Malformed`] if the value is not such an integer.
    pub(super) fn count_or_none(&self, keys: &[&str], most: u32) -> Result<u32, Error> {
        Ok(self.count_if(keys, 0, most)?.unwrap_or(0))
    }

    /// Returns an integer from `least` to `most`: the value of the first of these keys that is present, or its default. If the
    /// value is a list with one entry per layer, returns the first entry.
    ///
    /// # Errors
    /// [`Error::Malformed`] if the value is not such an integer.
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

    /// Returns an integer up to `most` for each of `n` layers, or `None` if the key is missing.
    ///
    /// # Errors
    /// [`Error::Malformed`] if the value is not a list of `n` such integers.
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

    /// Returns a list of strings, or `None` if the key is missing or is not a list. Other entries become empty strings.
    pub(super) fn words(&self, key: &str) -> Option<Vec<&'a str>> {
        let list = self.get(key)?.as_array()?;
        Some(list.iter().map(|word| word.as_str().unwrap_or_default()).collect())
    }

    /// Returns a string, or `None` if the key is missing or is not a string.
    pub(super) fn text(&self, key: &str) -> Option<&'a str> {
        self.get(key)?.as_str()
    }

    /// Returns the configuration of a nested object, or `None` if there is none.
    pub(super) fn within(&self, key: &str) -> Option<Config<'a>> {
        let text = self.get(key)?.as_object()?;
        Some(Config { text, whole: text, defaults: &[] })
    }

    /// Returns a boolean: the value of the first of these keys that is present.
    ///
    /// # Errors
    /// [`Error::Malformed`] if the value is not a boolean.
    pub(super) fn flag(&self, keys: &[&str]) -> Result<Option<bool>, Error> {
        let Some((key, value)) = self.any(keys) else { return Ok(None) };
        value.as_bool().map(Some).ok_or_else(|| unexpected(key, value, "true or false"))
    }

    /// Returns a positive number: the value of the first of these keys that is present.
    ///
    /// # Errors
    /// [`Error::Malformed`] if the value is not a positive number.
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
