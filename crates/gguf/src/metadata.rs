//! The key-value pairs of a file: parsed once into keys and byte ranges, decoded when asked for.

use std::fmt;
use std::ops::Range;

use crate::cursor::{Cursor, OrAt};
use crate::header::MAX_KEY;
use crate::owned::OwnedValue;
use crate::value::{Array, BadArray, Strings, Value, ValueType, skip_array};
use crate::{Error, Result, escape};

/// The metadata of a model: keys and values in file order. Values are decoded from a copy of the file's bytes.
///
/// The typed getters return `Ok(None)` when the key is absent and [`Error::KeyType`] when its value is of another type.
pub struct Metadata {
    /// Bytes of the file up to the end of the metadata, followed by the values of [`set`](Self::set).
    bytes: Vec<u8>,
    pairs: Vec<Pair>,
    /// Indices into `pairs`, ordered by key.
    by_key: Vec<u32>,
}

struct Pair {
    key: Box<str>,
    ty: ValueType,
    /// The value's bytes: without the length for a string, with the header for an array.
    value: Range<usize>,
}

impl Metadata {
    /// Reads `n` pairs and leaves the cursor behind the last.
    pub(crate) fn parse(cursor: &mut Cursor<'_>, n: u64) -> Result<Metadata> {
        // `n` pairs fit in the file (see `header::read`), yet the memory grows with what is really there.
        let mut pairs = Vec::new();
        for number in 1..=n {
            pairs.push(read_pair(cursor, Place { number, n, key: None })?);
        }
        let mut by_key: Vec<u32> = (0..).take(pairs.len()).collect();
        by_key.sort_unstable_by(|&a, &b| pairs[a as usize].key.cmp(&pairs[b as usize].key));
        if let Some(two) =
            by_key.array_windows().find(|[a, b]| pairs[*a as usize].key == pairs[*b as usize].key)
        {
            let problem = format!("duplicate key `{}`", escape(&*pairs[two[0] as usize].key, 80));
            return Err(Error::Malformed { place: "metadata".to_owned(), problem });
        }
        Ok(Metadata { bytes: cursor.passed().to_vec(), pairs, by_key })
    }

    /// Sets the value of a key, or adds the key. The bytes read from the file stay unchanged.
    pub(crate) fn set(&mut self, key: &str, value: &OwnedValue) {
        let start = self.bytes.len();
        value.encode(&mut self.bytes);
        // the bytes of a string follow its length
        let start = if value.ty() == ValueType::String { start + size_of::<u64>() } else { start };
        let pair = Pair { key: key.into(), ty: value.ty(), value: start..self.bytes.len() };
        match self.by_key.binary_search_by(|&i| (*self.pairs[i as usize].key).cmp(key)) {
            Ok(at) => self.pairs[self.by_key[at] as usize] = pair,
            Err(at) => {
                self.by_key.insert(at, self.pairs.len() as u32);
                self.pairs.push(pair);
            }
        }
    }

    fn decode(&self, pair: &Pair) -> Value<'_> {
        Value::decode(pair.ty, &self.bytes[pair.value.clone()])
    }

    /// Number of pairs.
    pub fn len(&self) -> usize {
        self.pairs.len()
    }

    /// Whether there are no pairs.
    pub fn is_empty(&self) -> bool {
        self.pairs.is_empty()
    }

    /// All pairs in file order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, Value<'_>)> {
        self.pairs.iter().map(|pair| (&*pair.key, self.decode(pair)))
    }

    /// The value of a key, of whatever type.
    pub fn get(&self, key: &str) -> Option<Value<'_>> {
        let at = self.by_key.binary_search_by(|&i| (*self.pairs[i as usize].key).cmp(key)).ok()?;
        Some(self.decode(&self.pairs[self.by_key[at] as usize]))
    }

    fn typed<'a, T>(
        &'a self,
        key: &str,
        expected: &'static str,
        convert: impl FnOnce(&Value<'a>) -> Option<T>,
    ) -> Result<Option<T>> {
        let Some(value) = self.get(key) else { return Ok(None) };
        match convert(&value) {
            Some(x) => Ok(Some(x)),
            None => Err(Error::key_type(key, expected, value.found())),
        }
    }

    fn array<'a>(&'a self, key: &str, expected: &'static str) -> Result<Option<Array<'a>>> {
        self.typed(key, expected, |value| match value {
            Value::Array(array) => Some(*array),
            _ => None,
        })
    }

    /// All elements of an array, each by `convert`.
    fn elements<T>(
        &self,
        key: &str,
        expected: &'static str,
        convert: fn(&Value<'_>) -> Option<T>,
    ) -> Result<Option<Vec<T>>> {
        let Some(array) = self.array(key, expected)? else { return Ok(None) };
        let mut out = Vec::with_capacity(array.len());
        for (i, value) in array.iter().enumerate() {
            let Some(x) = convert(&value) else {
                return Err(Error::key_type(
                    key,
                    expected,
                    format!("element {i}: {}", value.found()),
                ));
            };
            out.push(x);
        }
        Ok(Some(out))
    }

    /// An integer of any type whose value fits in a `u32`.
    ///
    /// # Errors
    /// [`Error::KeyType`] if the value is no integer or out of range.
    pub fn u32(&self, key: &str) -> Result<Option<u32>> {
        self.typed(key, "integer 0..2^32", |v| v.as_integer()?.try_into().ok())
    }

    /// An integer of any type whose value fits in a `u64`.
    ///
    /// # Errors
    /// [`Error::KeyType`] if the value is no integer or negative.
    pub fn u64(&self, key: &str) -> Result<Option<u64>> {
        self.typed(key, "integer 0..2^64", Value::as_u64)
    }

    /// A float, f32 or f64 (rounded).
    ///
    /// # Errors
    /// [`Error::KeyType`] if the value is no float.
    pub fn f32(&self, key: &str) -> Result<Option<f32>> {
        self.typed(key, "f32", Value::as_f32)
    }

    /// A boolean.
    ///
    /// # Errors
    /// [`Error::KeyType`] if the value is no boolean.
    pub fn bool(&self, key: &str) -> Result<Option<bool>> {
        self.typed(key, "bool", |v| match v {
            Value::Bool(x) => Some(*x),
            _ => None,
        })
    }

    /// A string. It may hold control characters: see [`escape`].
    ///
    /// # Errors
    /// [`Error::KeyType`] if the value is no string or not UTF-8.
    pub fn str(&self, key: &str) -> Result<Option<&str>> {
        self.typed(key, "string (UTF-8)", Value::as_str)
    }

    /// The strings of an array, as bytes: vocabularies may hold what is not UTF-8.
    ///
    /// # Errors
    /// [`Error::KeyType`] if the value is no array of strings.
    pub fn strings(&self, key: &str) -> Result<Option<Strings<'_>>> {
        self.typed(key, "array of strings", |v| match v {
            Value::Array(array) => array.strings(),
            _ => None,
        })
    }

    /// An array of floats, f32 or f64 (rounded).
    ///
    /// # Errors
    /// [`Error::KeyType`] if the value is no array of floats.
    pub fn f32s(&self, key: &str) -> Result<Option<Vec<f32>>> {
        self.elements(key, "array of f32", |v| v.as_f32())
    }

    /// An array of integers of any type whose values fit in an `i32`.
    ///
    /// # Errors
    /// [`Error::KeyType`] if the value is no array of integers or one is out of range.
    pub fn i32s(&self, key: &str) -> Result<Option<Vec<i32>>> {
        self.elements(key, "array of i32", |v| v.as_integer()?.try_into().ok())
    }

    /// An array of integers of any type whose values fit in a `u32`.
    ///
    /// # Errors
    /// [`Error::KeyType`] if the value is no array of integers or one is out of range.
    pub fn u32s(&self, key: &str) -> Result<Option<Vec<u32>>> {
        self.elements(key, "array of u32", |v| v.as_integer()?.try_into().ok())
    }

    /// An array of booleans.
    ///
    /// # Errors
    /// [`Error::KeyType`] if the value is no array of booleans.
    pub fn bools(&self, key: &str) -> Result<Option<Vec<bool>>> {
        self.elements(key, "array of bool", |v| match v {
            Value::Bool(x) => Some(*x),
            _ => None,
        })
    }

    /// Number of elements of an array of any type.
    ///
    /// # Errors
    /// [`Error::KeyType`] if the value is no array.
    pub fn array_len(&self, key: &str) -> Result<Option<usize>> {
        Ok(self.array(key, "array")?.map(|array| array.len()))
    }

    /// `general.architecture`, which names the prefix of most other keys.
    ///
    /// # Errors
    /// [`Error::MissingKey`] or [`Error::KeyType`].
    pub fn architecture(&self) -> Result<&str> {
        const KEY: &str = "general.architecture";
        self.str(KEY)?.ok_or_else(|| Error::MissingKey { key: KEY.to_owned() })
    }
}

impl fmt::Debug for Metadata {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter().map(|(key, value)| (key, value.to_string()))).finish()
    }
}

/// Where in the metadata the reader is, for messages.
#[derive(Clone, Copy)]
struct Place<'a> {
    number: u64,
    n: u64,
    key: Option<&'a str>,
}

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "metadata pair {} of {}", self.number, self.n)?;
        match self.key {
            Some(key) => write!(f, " (key `{}`)", escape(key, 80)),
            None => Ok(()),
        }
    }
}

fn read_pair(cursor: &mut Cursor<'_>, place: Place<'_>) -> Result<Pair> {
    let malformed =
        |place: &Place<'_>, problem: String| Error::Malformed { place: place.to_string(), problem };
    let len = cursor.u64().or_at(place)?;
    if len > MAX_KEY {
        let problem = match cursor.remaining() {
            rest if len > rest => format!("key length {len} > remaining {rest}"),
            _ => format!("key length {len} is over the limit of {MAX_KEY}"),
        };
        return Err(malformed(&place, problem));
    }
    let key = text(cursor.take(len).or_too_long(place, "key length")?);
    let place = Place { key: Some(&key), ..place };
    let number = cursor.u32().or_at(place)?;
    let Some(ty) = ValueType::from_number(number) else {
        return Err(malformed(&place, format!("unknown type {number} (0..12)")));
    };
    let start = cursor.pos();
    let value = match (ty, ty.size()) {
        (_, Some(size)) => {
            cursor.take(size as u64).or_at(place)?;
            start..cursor.pos()
        }
        (ValueType::Array, _) => {
            skip_array(cursor).map_err(|bad| match bad {
                BadArray::Short(short) => short.at(place, |s| {
                    format!("string length {} > remaining {}", s.wanted, s.remaining)
                }),
                BadArray::Long(ty, len, short) => short
                    .at(format_args!("{place}, array of {len} {ty}"), |s| {
                        format!("array needs {} bytes, {} remain", s.wanted, s.remaining)
                    }),
                BadArray::Type(number) => {
                    malformed(&place, format!("array of unknown type {number} (0..12)"))
                }
                BadArray::Deep => malformed(&place, "arrays nested deeper than 8".to_owned()),
            })?;
            start..cursor.pos()
        }
        _ => {
            let bytes = cursor.string().or_too_long(place, "string length")?;
            cursor.pos() - bytes.len()..cursor.pos()
        }
    };
    Ok(Pair { key: key.into(), ty, value })
}

/// Bytes that should be UTF-8 as text; what is not is written out, so that different bytes stay different names.
pub(crate) fn text(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) => text.to_owned(),
        Err(_) => escape(bytes, usize::MAX),
    }
}
