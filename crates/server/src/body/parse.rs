//! JSON in which no object has a name twice: two readers of one text could take different values for it. What is parsed is counted
//! before it is allocated, and fields that nothing reads are skipped.

use std::fmt;

use serde::de::{
    Deserialize, DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor,
};
use serde_json::{Map, Number, Value};

use crate::error::{ApiError, Result};
use crate::fields::{Takes, brief};
use crate::intake::ByteReservation;

/// Fields that may be a long list of token ids.
const IDS: [&str; 3] = ["prompt", "input", "tokens"];
/// Number of ids of such a list that are values as well: more than an error shows of it.
const SHOWN: usize = 32;

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Bytes of a value in a list.
const VALUE: usize = size_of::<Value>();
/// Bytes of an entry of an object: hash, name and value, and its share of the table that finds it.
const ENTRY: usize = size_of::<(u64, String, Value)>() + 16;
/// Bytes that the allocator takes beside what it is asked for.
const ALLOCATION: usize = 16;
/// Bytes are reserved in steps of this size.
const STEP: u64 = 64 << 10;

/// A parsed object.
pub(super) struct Parsed {
    pub(super) fields: Map<String, Value>,
    /// The field of [`IDS`] that is a long list of token ids, and all of them: an id takes four bytes, a value 72. The field itself has
    /// the first [`SHOWN`].
    pub(super) ids: Option<(&'static str, Vec<u32>)>,
    /// What it takes.
    pub(super) reservation: ByteReservation,
}

/// Parse the text of an object. `takes`: the fields that are read; `None`: all are. What is parsed is paid by `reservation`.
///
/// # Errors
/// What is no object, or has a name twice; more than may be reserved.
pub(super) fn parse(
    bytes: &[u8],
    takes: Option<Takes>,
    reservation: ByteReservation,
) -> Result<Parsed> {
    // some tools begin text with a byte order mark, which a parser may skip (RFC 8259, section 8.1)
    let bytes = bytes.strip_prefix(BYTE_ORDER_MARK).unwrap_or(bytes);
    if bytes.is_empty() {
        return Err(ApiError::invalid("the body is empty: expected a JSON object"));
    }
    let meter = Meter { spare: 0, reservation, refused: None };
    let mut state = State { takes, ids: None, meter };
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let read = Read { place: Place::Whole, state: &mut state }.deserialize(&mut deserializer);
    let value = read.and_then(|value| deserializer.end().map(|()| value));
    let State { ids, mut meter, .. } = state;
    let value = value.map_err(|error| {
        let malformed = || ApiError::invalid(format!("the body is not JSON: {error}"));
        meter.refused.take().unwrap_or_else(malformed)
    })?;
    let used = meter.reservation.bytes().saturating_sub(meter.spare);
    meter.reservation.shrink_to(used);
    match value {
        Value::Object(fields) => Ok(Parsed { fields, ids, reservation: meter.reservation }),
        other => Err(ApiError::invalid(format!("expected an object, found {}", brief(&other)))),
    }
}

/// Bytes that an object of this many entries takes for them: its table and its list of entries grow together.
fn entries_bytes(entries: usize) -> usize {
    match entries {
        0 => 0,
        1..=3 => 3 * ENTRY + ALLOCATION,
        // tables are seven eighths full at most, and twice as large each time
        _ => (entries * 8 / 7 + 1).next_power_of_two() * 7 / 8 * ENTRY + ALLOCATION,
    }
}

/// Returns the memory of a list of this many values in bytes, without the contents of the values.
pub(crate) fn list_bytes(values: usize) -> u64 {
    (values * VALUE + ALLOCATION) as u64
}

/// Returns the memory of an object in bytes, without the contents of its values. `name`: length of the name of each entry in bytes.
pub(crate) fn object_bytes(entries: usize, name: usize) -> u64 {
    (entries_bytes(entries) + entries * (name + ALLOCATION)) as u64
}

/// Returns the memory of a text of this length in bytes.
pub(super) fn text_bytes(length: usize) -> u64 {
    (length + ALLOCATION) as u64
}

/// Bytes that a value takes beside its own place.
pub(crate) fn value_bytes(value: &Value) -> u64 {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
        Value::String(text) => text_bytes(text.capacity()),
        Value::Array(values) => {
            (values.capacity() * VALUE) as u64 + values.iter().map(value_bytes).sum::<u64>()
        }
        Value::Object(fields) => map_bytes(fields),
    }
}

/// Bytes that the fields of an object take.
pub(crate) fn map_bytes(fields: &Map<String, Value>) -> u64 {
    let each = |(name, value): (&String, &Value)| {
        (name.capacity() + ALLOCATION) as u64 + value_bytes(value)
    };
    entries_bytes(fields.len()) as u64 + fields.iter().map(each).sum::<u64>()
}

/// Counts what is parsed, and reserves it.
struct Meter {
    reservation: ByteReservation,
    /// Reserved, and not used yet.
    spare: u64,
    /// Why no more may be reserved.
    refused: Option<ApiError>,
}

impl Meter {
    /// Count this many bytes, before they are allocated.
    fn charge<E: Error>(&mut self, bytes: usize) -> std::result::Result<(), E> {
        let bytes = bytes as u64;
        if self.spare < bytes {
            let more = (bytes - self.spare).max(STEP);
            if let Err(refused) = self.reservation.grow(more) {
                self.refused = Some(refused);
                return Err(E::custom("it takes too much memory"));
            }
            self.spare += more;
        }
        self.spare -= bytes;
        Ok(())
    }

    /// Count them no longer.
    fn free(&mut self, bytes: usize) {
        self.spare += bytes as u64;
    }
}

/// What the parser knows.
struct State {
    takes: Option<Takes>,
    ids: Option<(&'static str, Vec<u32>)>,
    meter: Meter,
}

/// Where a value is.
#[derive(Clone, Copy)]
enum Place {
    /// It is the body.
    Whole,
    /// It is the field of this name, which may be a list of ids.
    Ids(&'static str),
    /// It is in another one.
    Nested,
}

/// Reads a value.
struct Read<'s> {
    place: Place,
    state: &'s mut State,
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

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        self.state.meter.charge(value.len() + ALLOCATION)?;
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let Read { place, state } = self;
        let (mut ids, mut values) = (Vec::new(), Vec::new());
        loop {
            let nested = Read { place: Place::Nested, state: &mut *state };
            let Some(value) = seq.next_element_seed(nested)? else { break };
            let id = value.as_u64().and_then(|id| u32::try_from(id).ok());
            match (place, id) {
                (Place::Ids(_), Some(id)) if values.is_empty() => {
                    push(&mut ids, id, &mut state.meter)?;
                }
                _ => {
                    for id in std::mem::take(&mut ids) {
                        push(&mut values, Value::from(id), &mut state.meter)?;
                    }
                    push(&mut values, value, &mut state.meter)?;
                }
            }
        }
        for id in ids.iter().take(SHOWN) {
            push(&mut values, Value::from(*id), &mut state.meter)?;
        }
        if let Place::Ids(name) = place
            && ids.len() > SHOWN
        {
            state.ids = Some((name, ids));
        }
        state.meter.free((values.capacity() - values.len()) * VALUE);
        values.shrink_to_fit();
        Ok(Value::Array(values))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let Read { place, state } = self;
        let mut map = Map::new();
        while let Some(name) = entries.next_key::<String>()? {
            let grown = entries_bytes(map.len() + 1) - entries_bytes(map.len());
            state.meter.charge(grown + name.capacity() + ALLOCATION)?;
            let is_top = matches!(place, Place::Whole);
            let is_read = !is_top || state.takes.is_none_or(|takes| takes.reads(&name));
            let value = match is_read {
                true => {
                    let ids = IDS.iter().find(|known| is_top && **known == name);
                    let place = ids.map_or(Place::Nested, |name| Place::Ids(name));
                    entries.next_value_seed(Read { place, state: &mut *state })?
                }
                // a field without effect causes a warning unless its value is empty
                false => match entries.next_value_seed(Skip)? {
                    Skipped::Empty => Value::Null,
                    Skipped::Other => Value::Bool(true),
                },
            };
            if map.insert(name, value).is_some() {
                return Err(A::Error::custom("a name stands twice in an object"));
            }
        }
        Ok(Value::Object(map))
    }
}

/// Append a value; the memory of a list that grows is counted before.
fn push<T, E: Error>(list: &mut Vec<T>, value: T, meter: &mut Meter) -> Result<(), E> {
    if list.len() == list.capacity() {
        let more = list.len().max(2);
        meter.charge(more * size_of::<T>() + ALLOCATION * usize::from(list.is_empty()))?;
        list.reserve_exact(more);
    }
    list.push(value);
    Ok(())
}

/// Returns whether a text is a JSON object of bounded depth. Builds no values, which take up to 36 times as much memory as their text.
pub(crate) fn is_object(text: &str) -> bool {
    text.starts_with('{') && serde_json::from_str::<Skipped>(text).is_ok()
}

/// Skips a value. It is JSON and no deeper than others; names inside may come twice, as nothing reads them.
struct Skip;

/// What was skipped.
enum Skipped {
    /// Null, false, or an empty text, list or object: see [`crate::fields::is_empty`].
    Empty,
    Other,
}

impl Skipped {
    fn new(is_empty: bool) -> Skipped {
        if is_empty { Skipped::Empty } else { Skipped::Other }
    }
}

impl<'de> DeserializeSeed<'de> for Skip {
    type Value = Skipped;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Skipped, D::Error> {
        // unlike `IgnoredAny` this counts depths
        deserializer.deserialize_any(self)
    }
}

impl<'de> Deserialize<'de> for Skipped {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Skipped, D::Error> {
        Skip.deserialize(deserializer)
    }
}

impl<'de> Visitor<'de> for Skip {
    type Value = Skipped;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Skipped, E> {
        Ok(Skipped::Empty)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Skipped, E> {
        Ok(Skipped::new(!value))
    }

    fn visit_i64<E>(self, _: i64) -> Result<Skipped, E> {
        Ok(Skipped::Other)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Skipped, E> {
        Ok(Skipped::Other)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Skipped, E> {
        Ok(Skipped::Other)
    }

    fn visit_str<E>(self, value: &str) -> Result<Skipped, E> {
        Ok(Skipped::new(value.is_empty()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Skipped, A::Error> {
        let mut is_empty = true;
        while seq.next_element::<Skipped>()?.is_some() {
            is_empty = false;
        }
        Ok(Skipped::new(is_empty))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Skipped, A::Error> {
        let mut is_empty = true;
        while entries.next_entry::<IgnoredAny, Skipped>()?.is_some() {
            is_empty = false;
        }
        Ok(Skipped::new(is_empty))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::fields::Field;
    use crate::guard::ClientId;
    use crate::intake::ByteBudget;

    fn read(text: &str) -> Result<Parsed> {
        parse(text.as_bytes(), None, ByteReservation::default())
    }

    #[test]
    fn values_are_what_they_are_and_no_name_comes_twice() {
        let text = r#"{"a": [1, -2, 0.5, null, true, "x"], "b": {"a": {}}}"#;
        let fields = Value::Object(read(text).unwrap().fields);
        assert_eq!(fields, serde_json::from_str::<Value>(text).unwrap());
        for twice in [r#"{"a": 1, "a": 1}"#, r#"{"b": [{"a": 1, "a": 2}]}"#] {
            assert!(read(twice).err().unwrap().to_string().contains("twice"));
        }
        assert!(read(&"[".repeat(100_000)).is_err());
        assert!(read("{} x").is_err());
        assert!(read("[1]").err().unwrap().message.starts_with("expected an object"));
    }

    #[test]
    fn a_long_list_of_ids_is_kept_apart() {
        let ids = |n: u32| (0..n).map(|id| id * 70_001).collect::<Vec<_>>();
        let told = |value: Value| read(&value.to_string()).unwrap();
        for name in IDS {
            let long = told(json!({ "a": 1, name: ids(33) }));
            assert_eq!(long.ids, Some((name, ids(33))));
            assert_eq!(Value::Object(long.fields), json!({ "a": 1, name: ids(32) }));
        }
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
            json!({ "others": ids(40) }),
            json!({ "a": { "prompt": ids(40) } }),
        ];
        for other in others {
            let found = told(other.clone());
            assert_eq!((Value::Object(found.fields), found.ids), (other, None));
        }
    }

    const TAKES: Takes =
        Takes::Fields(&[("a", Field::Honoured), ("b", Field::NoEffect("of none"))]);

    /// Fields that nothing reads make no values, but are checked: JSON of bounded depth, each name once.
    #[test]
    fn fields_without_effect_are_skipped() {
        let read = |text: &str| {
            let read = parse(text.as_bytes(), Some(TAKES), ByteReservation::default());
            read.map(|parsed| (Value::Object(parsed.fields), parsed.reservation.bytes()))
        };
        let (fields, _) = read(r#"{"a": [1], "b": [{"x": 1}], "c": {"y": 2}, "d": null}"#).unwrap();
        assert_eq!(fields, json!({ "a": [1], "b": true, "c": true, "d": null }));
        // empty values differ from values that request something
        let (fields, _) =
            read(r#"{"b": [], "c": {}, "d": "", "e": false, "f": 0, "g": [[]]}"#).unwrap();
        let empty = json!(null);
        assert_eq!(
            fields,
            json!({ "b": empty, "c": empty, "d": empty, "e": empty, "f": true, "g": true })
        );
        let many = format!(r#"{{"b": [{}1]}}"#, r#"{"a":0},"#.repeat(100_000));
        assert!(read(&many).unwrap().1 < 1000);
        let deep = |n: usize| format!(r#"{{"b": {}1{}}}"#, "[".repeat(n), "]".repeat(n));
        assert!(read(&deep(100)).is_ok() && read(&deep(100_000)).is_err());
        for wrong in [r#"{"b": [1,]}"#, r#"{"b": {"x"}}"#, r#"{"b": 1, "b": 2}"#] {
            assert_eq!(read(wrong).unwrap_err().status(), 400, "{wrong}");
        }
    }

    /// What is counted while parsing is what the values take, and no more is parsed than may be.
    #[test]
    fn parsed_values_are_counted_and_bounded() {
        let of = |text: &str, total: u64| {
            let budget = ByteBudget::new(total, None);
            let reservation = budget.reservation(ClientId::Local);
            let parsed = parse(text.as_bytes(), None, reservation);
            parsed.map(|parsed| (parsed.reservation.bytes(), map_bytes(&parsed.fields)))
        };
        let texts = [
            format!(r#"{{"x": [{}0]}}"#, r#"{"a":0},"#.repeat(20_000)),
            format!(r#"{{"x": [{}0]}}"#, "[0],".repeat(20_000)),
            format!(r#"{{"x": [{}0]}}"#, "0,".repeat(50_000)),
            format!(
                r#"{{"x": {{{}"y": 0}}}}"#,
                (0..9_000).map(|i| format!(r#""{i}":0,"#)).collect::<String>()
            ),
            format!(r#"{{"x": "{}"}}"#, "long ".repeat(20_000)),
        ];
        for text in &texts {
            let (counted, takes) = of(text, 1 << 40).unwrap();
            let share = counted as f64 / takes as f64;
            assert!((0.95..1.3).contains(&share), "{counted} of {takes}: {:.30}", text);
            assert_eq!(of(text, 4 * (counted / 2)).unwrap_err().status(), 413);
        }
    }
}
