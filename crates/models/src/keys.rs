//! Reading hyper-parameters: every number leaves here within its range.

use std::ops::RangeInclusive;

use gguf::{Metadata, Value};

use crate::{Error, Result};

/// The metadata of one architecture: keys are given without its prefix.
pub(crate) struct Keys<'a> {
    metadata: &'a Metadata,
    architecture: &'a str,
}

impl<'a> Keys<'a> {
    pub(crate) fn new(metadata: &'a Metadata, architecture: &'a str) -> Self {
        Keys { metadata, architecture }
    }

    /// The whole key, for lookups and messages.
    pub(crate) fn name(&self, key: &str) -> String {
        format!("{}.{key}", self.architecture)
    }

    pub(crate) fn get(&self, key: &str) -> Option<Value<'a>> {
        self.metadata.get(&self.name(key))
    }

    pub(crate) fn require<T>(&self, key: &str, value: Option<T>) -> Result<T> {
        value.ok_or_else(|| Error::MissingKey { key: self.name(key) })
    }

    /// A count within `range`.
    pub(crate) fn count(&self, key: &str, range: RangeInclusive<u64>) -> Result<Option<usize>> {
        self.get(key).map(|value| self.checked(key, &value, range)).transpose()
    }

    /// A count that may also be an array with one equal entry for each layer.
    pub(crate) fn per_layer(
        &self,
        key: &str,
        n_layers: usize,
        range: RangeInclusive<u64>,
    ) -> Result<Option<usize>> {
        let Some(Value::Array(array)) = self.get(key) else { return self.count(key, range) };
        if array.len() != n_layers {
            let expected = format!("a number or one per layer ({n_layers})");
            return Err(Error::key(
                &self.name(key),
                expected,
                format_args!("{} entries", array.len()),
            ));
        }
        let mut items = array.iter().map(|value| self.checked(key, &value, range.clone()));
        let first = items.next().transpose()?;
        for item in items {
            if Some(item?) != first {
                return Err(Error::key(
                    &self.name(key),
                    "the same number for every layer",
                    "different ones",
                ));
            }
        }
        Ok(first)
    }

    fn checked(&self, key: &str, value: &Value<'_>, range: RangeInclusive<u64>) -> Result<usize> {
        let count = value.as_u64().filter(|count| range.contains(count));
        match count.and_then(|count| usize::try_from(count).ok()) {
            Some(count) => Ok(count),
            None => Err(Error::key(
                &self.name(key),
                format!("{}..={}", range.start(), range.end()),
                value,
            )),
        }
    }

    /// The architecture whose keys these are.
    pub(crate) fn architecture(&self) -> &'a str {
        self.architecture
    }

    /// True or false.
    pub(crate) fn flag(&self, key: &str) -> Result<Option<bool>> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::Bool(flag)) => Ok(Some(flag)),
            Some(other) => Err(Error::key(&self.name(key), "true or false", other)),
        }
    }

    /// A finite number above 0.
    pub(crate) fn positive(&self, key: &str) -> Result<Option<f32>> {
        let Some(value) = self.get(key) else { return Ok(None) };
        match value.as_f32() {
            Some(x) if x.is_finite() && x > 0.0 => Ok(Some(x)),
            _ => Err(Error::key(&self.name(key), "a finite number > 0", value)),
        }
    }
}
