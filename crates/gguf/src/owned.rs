//! Metadata values to be written.

use crate::value::{Value, ValueType};

/// A metadata value that owns its content: what [`Writer::set`](crate::Writer::set) takes.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "the names are the format's own")]
pub enum OwnedValue {
    U8(u8),
    I8(i8),
    U16(u16),
    I16(i16),
    U32(u32),
    I32(i32),
    U64(u64),
    I64(i64),
    F32(f32),
    F64(f64),
    Bool(bool),
    /// Bytes, which should be UTF-8.
    String(Vec<u8>),
    /// Type of the elements, and elements, all of that type.
    Array(ValueType, Vec<OwnedValue>),
}

impl OwnedValue {
    /// Its type.
    pub fn ty(&self) -> ValueType {
        match self {
            OwnedValue::U8(_) => ValueType::U8,
            OwnedValue::I8(_) => ValueType::I8,
            OwnedValue::U16(_) => ValueType::U16,
            OwnedValue::I16(_) => ValueType::I16,
            OwnedValue::U32(_) => ValueType::U32,
            OwnedValue::I32(_) => ValueType::I32,
            OwnedValue::U64(_) => ValueType::U64,
            OwnedValue::I64(_) => ValueType::I64,
            OwnedValue::F32(_) => ValueType::F32,
            OwnedValue::F64(_) => ValueType::F64,
            OwnedValue::Bool(_) => ValueType::Bool,
            OwnedValue::String(_) => ValueType::String,
            OwnedValue::Array(..) => ValueType::Array,
        }
    }

    /// Appends the value as the file has it, without its type.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        match self {
            OwnedValue::U8(x) => out.push(*x),
            OwnedValue::I8(x) => out.extend(x.to_le_bytes()),
            OwnedValue::U16(x) => out.extend(x.to_le_bytes()),
            OwnedValue::I16(x) => out.extend(x.to_le_bytes()),
            OwnedValue::U32(x) => out.extend(x.to_le_bytes()),
            OwnedValue::I32(x) => out.extend(x.to_le_bytes()),
            OwnedValue::U64(x) => out.extend(x.to_le_bytes()),
            OwnedValue::I64(x) => out.extend(x.to_le_bytes()),
            OwnedValue::F32(x) => out.extend(x.to_le_bytes()),
            OwnedValue::F64(x) => out.extend(x.to_le_bytes()),
            OwnedValue::Bool(x) => out.push(u8::from(*x)),
            OwnedValue::String(bytes) => encode_string(bytes, out),
            OwnedValue::Array(ty, items) => {
                out.extend(ty.number().to_le_bytes());
                out.extend((items.len() as u64).to_le_bytes());
                items.iter().for_each(|item| item.encode(out));
            }
        }
    }

    /// The first element that is not of its array's type, at any depth.
    pub(crate) fn misfit(&self) -> Option<(ValueType, ValueType)> {
        let OwnedValue::Array(ty, items) = self else { return None };
        let wrong = items.iter().find(|item| item.ty() != *ty).map(|item| (*ty, item.ty()));
        wrong.or_else(|| items.iter().find_map(OwnedValue::misfit))
    }
}

/// Appends a string: its length in 8 bytes, then its bytes.
pub(crate) fn encode_string(bytes: &[u8], out: &mut Vec<u8>) {
    out.extend((bytes.len() as u64).to_le_bytes());
    out.extend(bytes);
}

/// Copies a value out of a file.
impl From<Value<'_>> for OwnedValue {
    fn from(value: Value<'_>) -> OwnedValue {
        match value {
            Value::U8(x) => OwnedValue::U8(x),
            Value::I8(x) => OwnedValue::I8(x),
            Value::U16(x) => OwnedValue::U16(x),
            Value::I16(x) => OwnedValue::I16(x),
            Value::U32(x) => OwnedValue::U32(x),
            Value::I32(x) => OwnedValue::I32(x),
            Value::U64(x) => OwnedValue::U64(x),
            Value::I64(x) => OwnedValue::I64(x),
            Value::F32(x) => OwnedValue::F32(x),
            Value::F64(x) => OwnedValue::F64(x),
            Value::Bool(x) => OwnedValue::Bool(x),
            Value::String(bytes) => OwnedValue::String(bytes.to_vec()),
            // Recursion ends: the reader refused arrays nested deeper than 8.
            Value::Array(array) => {
                OwnedValue::Array(array.ty(), array.iter().map(OwnedValue::from).collect())
            }
        }
    }
}

/// A Rust type that is a metadata value, and whose slices are arrays.
pub trait Element: Clone {
    /// The type it has in the file.
    const TYPE: ValueType;
    /// The value.
    fn into_value(self) -> OwnedValue;
}

impl<T: Element> From<T> for OwnedValue {
    fn from(x: T) -> OwnedValue {
        x.into_value()
    }
}

impl<T: Element> From<Vec<T>> for OwnedValue {
    fn from(items: Vec<T>) -> OwnedValue {
        OwnedValue::Array(T::TYPE, items.into_iter().map(T::into_value).collect())
    }
}

impl<T: Element> From<&[T]> for OwnedValue {
    fn from(items: &[T]) -> OwnedValue {
        items.to_vec().into()
    }
}

impl<T: Element, const N: usize> From<[T; N]> for OwnedValue {
    fn from(items: [T; N]) -> OwnedValue {
        OwnedValue::Array(T::TYPE, items.into_iter().map(T::into_value).collect())
    }
}

impl Element for &str {
    const TYPE: ValueType = ValueType::String;
    fn into_value(self) -> OwnedValue {
        OwnedValue::String(self.as_bytes().to_vec())
    }
}

impl Element for String {
    const TYPE: ValueType = ValueType::String;
    fn into_value(self) -> OwnedValue {
        OwnedValue::String(self.into_bytes())
    }
}

impl Element for bool {
    const TYPE: ValueType = ValueType::Bool;
    fn into_value(self) -> OwnedValue {
        OwnedValue::Bool(self)
    }
}

impl Element for u8 {
    const TYPE: ValueType = ValueType::U8;
    fn into_value(self) -> OwnedValue {
        OwnedValue::U8(self)
    }
}

impl Element for i8 {
    const TYPE: ValueType = ValueType::I8;
    fn into_value(self) -> OwnedValue {
        OwnedValue::I8(self)
    }
}

impl Element for u16 {
    const TYPE: ValueType = ValueType::U16;
    fn into_value(self) -> OwnedValue {
        OwnedValue::U16(self)
    }
}

impl Element for i16 {
    const TYPE: ValueType = ValueType::I16;
    fn into_value(self) -> OwnedValue {
        OwnedValue::I16(self)
    }
}

impl Element for u32 {
    const TYPE: ValueType = ValueType::U32;
    fn into_value(self) -> OwnedValue {
        OwnedValue::U32(self)
    }
}

impl Element for i32 {
    const TYPE: ValueType = ValueType::I32;
    fn into_value(self) -> OwnedValue {
        OwnedValue::I32(self)
    }
}

impl Element for u64 {
    const TYPE: ValueType = ValueType::U64;
    fn into_value(self) -> OwnedValue {
        OwnedValue::U64(self)
    }
}

impl Element for i64 {
    const TYPE: ValueType = ValueType::I64;
    fn into_value(self) -> OwnedValue {
        OwnedValue::I64(self)
    }
}

impl Element for f32 {
    const TYPE: ValueType = ValueType::F32;
    fn into_value(self) -> OwnedValue {
        OwnedValue::F32(self)
    }
}

impl Element for f64 {
    const TYPE: ValueType = ValueType::F64;
    fn into_value(self) -> OwnedValue {
        OwnedValue::F64(self)
    }
}
