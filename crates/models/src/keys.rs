//! Reading hyper-parameters: every number leaves here within its range.

use std::cell::RefCell;
use std::ops::RangeInclusive;

use gguf::{Metadata, Value};

use crate::{Error, Result};

/// Decoder blocks that a model may have, those that run more than once counted each time.
pub(crate) const MAX_LAYERS: u64 = 512;

/// What a model says about itself: the keys of its architecture, given without its prefix, and which tensors it has.
pub struct Keys<'a> {
    metadata: &'a Metadata,
    architecture: &'static str,
    dims: &'a dyn Fn(&str) -> Option<Vec<u64>>,
    notes: RefCell<Vec<String>>,
}

impl<'a> Keys<'a> {
    /// `dims` are a tensor's dimensions by its whole name, row length first.
    pub(crate) fn new(
        metadata: &'a Metadata,
        architecture: &'static str,
        dims: &'a dyn Fn(&str) -> Option<Vec<u64>>,
    ) -> Self {
        Keys { metadata, architecture, dims, notes: RefCell::default() }
    }

    /// The metadata of all architectures.
    pub fn metadata(&self) -> &'a Metadata {
        self.metadata
    }

    /// The architecture whose keys these are.
    pub fn architecture(&self) -> &'static str {
        self.architecture
    }

    /// The whole key, for lookups and messages.
    pub fn name(&self, key: &str) -> String {
        format!("{}.{key}", self.architecture)
    }

    /// A key's value, of whatever type.
    pub fn get(&self, key: &str) -> Option<Value<'a>> {
        self.metadata.get(&self.name(key))
    }

    /// Dimensions of a tensor, row length first; `None` if there is none of this name.
    pub fn dims(&self, tensor: &str) -> Option<Vec<u64>> {
        (self.dims)(tensor)
    }

    /// Whether there is a tensor of this name.
    pub fn has(&self, tensor: &str) -> bool {
        self.dims(tensor).is_some()
    }

    /// Tell the user what was put right.
    pub fn note(&self, line: String) {
        self.notes.borrow_mut().push(line);
    }

    pub(crate) fn into_notes(self) -> Vec<String> {
        self.notes.into_inner()
    }

    /// A value that the model cannot do without.
    ///
    /// # Errors
    /// [`Error::MissingKey`] if there is none.
    pub fn require<T>(&self, key: &str, value: Option<T>) -> Result<T> {
        value.ok_or_else(|| Error::MissingKey { key: self.name(key) })
    }

    /// A count within `range`.
    ///
    /// # Errors
    /// [`Error::Key`] for any other value.
    pub fn count(&self, key: &str, range: RangeInclusive<u64>) -> Result<Option<usize>> {
        self.get(key).map(|value| self.checked(key, &value, range)).transpose()
    }

    /// A count within `range`, which some converters write as a float.
    ///
    /// # Errors
    /// [`Error::Key`] for any other value.
    pub fn whole(&self, key: &str, range: RangeInclusive<u64>) -> Result<Option<usize>> {
        match self.get(key) {
            Some(Value::F32(x)) if x >= 0.0 && x.fract() == 0.0 && x < 1e9 => {
                self.checked(key, &Value::U64(x as u64), range).map(Some)
            }
            _ => self.count(key, range),
        }
    }

    /// A count within `range` that the model cannot do without.
    ///
    /// # Errors
    /// [`Error::MissingKey`], or [`Error::Key`] for any other value.
    pub fn required(&self, key: &str, range: RangeInclusive<u64>) -> Result<usize> {
        self.require(key, self.count(key, range)?)
    }

    /// Decoder blocks.
    ///
    /// # Errors
    /// As [`required`](Self::required).
    pub fn n_layers(&self) -> Result<usize> {
        self.required("block_count", 1..=MAX_LAYERS)
    }

    /// A count for each layer: an array of them, or one for all.
    ///
    /// # Errors
    /// [`Error::Key`] for an array of another length, or a value out of `range`.
    pub fn per_layer(&self, key: &str, range: RangeInclusive<u64>) -> Result<Option<Vec<usize>>> {
        let n_layers = self.n_layers()?;
        let Some(Value::Array(array)) = self.get(key) else {
            return Ok(self.count(key, range)?.map(|count| vec![count; n_layers]));
        };
        if array.len() != n_layers {
            let expected = format!("a number or one per layer ({n_layers})");
            return Err(Error::key(
                &self.name(key),
                expected,
                format_args!("{} entries", array.len()),
            ));
        }
        array
            .iter()
            .map(|value| self.checked(key, &value, range.clone()))
            .collect::<Result<_>>()
            .map(Some)
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

    /// Flags, `least` of them or more, as true and false or as numbers that are 0 or not.
    ///
    /// # Errors
    /// [`Error::Key`] for fewer, or for anything else.
    pub fn flags(&self, key: &str, least: usize) -> Result<Option<Vec<bool>>> {
        let array = match self.get(key) {
            None => return Ok(None),
            Some(Value::Array(array)) if array.len() >= least => array,
            Some(other) => {
                return Err(Error::key(&self.name(key), format!("one of {least} flags"), other));
            }
        };
        let flag = |value: Value<'_>| match value {
            Value::Bool(flag) => Some(flag),
            other => other.as_u64().map(|n| n > 0),
        };
        let flags: Option<Vec<bool>> = array.iter().map(flag).collect();
        flags.map(Some).ok_or_else(|| Error::key(&self.name(key), "flags", "others"))
    }

    /// True or false.
    ///
    /// # Errors
    /// [`Error::Key`] for anything else.
    pub fn flag(&self, key: &str) -> Result<Option<bool>> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::Bool(flag)) => Ok(Some(flag)),
            Some(other) => Err(Error::key(&self.name(key), "true or false", other)),
        }
    }

    /// A finite number above 0.
    ///
    /// # Errors
    /// [`Error::Key`] for anything else.
    pub fn positive(&self, key: &str) -> Result<Option<f32>> {
        let Some(value) = self.get(key) else { return Ok(None) };
        match value.as_f32() {
            Some(x) if x.is_finite() && x > 0.0 => Ok(Some(x)),
            _ => Err(Error::key(&self.name(key), "a finite number > 0", value)),
        }
    }

    /// A finite number.
    ///
    /// # Errors
    /// [`Error::Key`] for anything else.
    pub fn real(&self, key: &str) -> Result<Option<f32>> {
        let Some(value) = self.get(key) else { return Ok(None) };
        match value.as_f32() {
            Some(x) if x.is_finite() => Ok(Some(x)),
            _ => Err(Error::key(&self.name(key), "a finite number", value)),
        }
    }

    /// A finite number for each layer: an array, or one for all.
    ///
    /// # Errors
    /// [`Error::MissingKey`]; [`Error::Key`] for an array of another length, or of anything else.
    pub fn real_per_layer(&self, key: &str) -> Result<Vec<f32>> {
        let n_layers = self.n_layers()?;
        // some converters write such keys without the architecture's prefix
        let value = self.get(key).or_else(|| self.metadata.get(key));
        let numbers: Vec<f32> = match self.require(key, value)? {
            Value::Array(array) => array.iter().filter_map(|value| value.as_f32()).collect(),
            one => vec![one.as_f32().unwrap_or(f32::NAN); n_layers],
        };
        if numbers.len() == n_layers && numbers.iter().all(|x| x.is_finite()) {
            return Ok(numbers);
        }
        let expected = format!("a finite number, or one per layer ({n_layers})");
        Err(Error::key(&self.name(key), expected, format_args!("{} others", numbers.len())))
    }

    /// An array of a number for each layer, of any kind.
    ///
    /// # Errors
    /// [`Error::Key`] for an array of another length, or of anything else.
    pub fn numbers_per_layer(&self, key: &str) -> Result<Vec<f32>> {
        let n_layers = self.n_layers()?;
        let numbers: Vec<f32> = match self.get(key) {
            Some(Value::Array(array)) => array.iter().filter_map(|value| value.as_f32()).collect(),
            _ => Vec::new(),
        };
        if numbers.len() == n_layers {
            return Ok(numbers);
        }
        let expected = format!("a number for each of {n_layers} layers");
        Err(Error::key(&self.name(key), expected, format_args!("{} numbers", numbers.len())))
    }

    /// Such a number for each layer, 0 for none: an array, or one for all; none where the key is missing.
    ///
    /// # Errors
    /// [`Error::Key`] for an array of another length, or of other numbers.
    pub fn positive_per_layer(&self, key: &str) -> Result<Vec<Option<f32>>> {
        let n_layers = self.n_layers()?;
        let Some(Value::Array(array)) = self.get(key) else {
            return Ok(vec![self.positive_or_zero(key)?; n_layers]);
        };
        let sound = |x: &f32| x.is_finite() && *x >= 0.0;
        let numbers: Vec<f32> = array.iter().filter_map(|v| v.as_f32()).filter(sound).collect();
        if numbers.len() == n_layers && array.len() == n_layers {
            return Ok(numbers.into_iter().map(|x| Some(x).filter(|x| *x > 0.0)).collect());
        }
        let expected = format!("a number or one per layer ({n_layers}), none below 0");
        Err(Error::key(&self.name(key), expected, format_args!("{} entries", array.len())))
    }

    /// A finite number above 0, where writers say 0 for none.
    ///
    /// # Errors
    /// As [`positive`](Self::positive).
    pub fn positive_or_zero(&self, key: &str) -> Result<Option<f32>> {
        let zero = self.get(key).and_then(|value| value.as_f32()) == Some(0.0);
        if zero { Ok(None) } else { self.positive(key) }
    }
}
