//! Metadata values as they lie in the file: scalars by value, strings and arrays as borrowed bytes.

use std::fmt;

use crate::cursor::Cursor;
use crate::escape;

/// The type of a metadata value, by its number in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the names are the format's own")]
pub enum ValueType {
    U8,
    I8,
    U16,
    I16,
    U32,
    I32,
    F32,
    Bool,
    String,
    Array,
    U64,
    I64,
    F64,
}

/// All types; the index is the number in the file.
const TYPES: [ValueType; 13] = [
    ValueType::U8,
    ValueType::I8,
    ValueType::U16,
    ValueType::I16,
    ValueType::U32,
    ValueType::I32,
    ValueType::F32,
    ValueType::Bool,
    ValueType::String,
    ValueType::Array,
    ValueType::U64,
    ValueType::I64,
    ValueType::F64,
];

impl ValueType {
    /// Every type, in the order of their numbers.
    pub fn all() -> impl Iterator<Item = ValueType> {
        TYPES.into_iter()
    }

    /// The type with this number in the file, if known.
    pub fn from_number(number: u32) -> Option<ValueType> {
        TYPES.get(usize::try_from(number).ok()?).copied()
    }

    /// Its number in the file.
    pub fn number(self) -> u32 {
        self as u32
    }

    /// Its short name: `u32`, `string`, `array` ...
    pub fn name(self) -> &'static str {
        match self {
            ValueType::U8 => "u8",
            ValueType::I8 => "i8",
            ValueType::U16 => "u16",
            ValueType::I16 => "i16",
            ValueType::U32 => "u32",
            ValueType::I32 => "i32",
            ValueType::F32 => "f32",
            ValueType::Bool => "bool",
            ValueType::String => "string",
            ValueType::Array => "array",
            ValueType::U64 => "u64",
            ValueType::I64 => "i64",
            ValueType::F64 => "f64",
        }
    }

    /// Bytes of a value of this type; `None` for strings and arrays, whose length stands in the file.
    pub fn size(self) -> Option<usize> {
        match self {
            ValueType::U8 | ValueType::I8 | ValueType::Bool => Some(1),
            ValueType::U16 | ValueType::I16 => Some(2),
            ValueType::U32 | ValueType::I32 | ValueType::F32 => Some(4),
            ValueType::U64 | ValueType::I64 | ValueType::F64 => Some(8),
            ValueType::String | ValueType::Array => None,
        }
    }
}

impl fmt::Display for ValueType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A metadata value. `Display` gives a short form on one line.
#[derive(Clone, Copy, Debug, PartialEq)]
#[expect(missing_docs, reason = "the names are the format's own")]
pub enum Value<'a> {
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
    /// Bytes of a string, which should be UTF-8 and may not be.
    String(&'a [u8]),
    Array(Array<'a>),
}

impl<'a> Value<'a> {
    /// Its type.
    pub fn ty(&self) -> ValueType {
        match self {
            Value::U8(_) => ValueType::U8,
            Value::I8(_) => ValueType::I8,
            Value::U16(_) => ValueType::U16,
            Value::I16(_) => ValueType::I16,
            Value::U32(_) => ValueType::U32,
            Value::I32(_) => ValueType::I32,
            Value::U64(_) => ValueType::U64,
            Value::I64(_) => ValueType::I64,
            Value::F32(_) => ValueType::F32,
            Value::F64(_) => ValueType::F64,
            Value::Bool(_) => ValueType::Bool,
            Value::String(_) => ValueType::String,
            Value::Array(_) => ValueType::Array,
        }
    }

    /// An integer of any type, wide enough for all of them. Booleans are not integers.
    pub fn as_integer(&self) -> Option<i128> {
        match *self {
            Value::U8(x) => Some(x.into()),
            Value::I8(x) => Some(x.into()),
            Value::U16(x) => Some(x.into()),
            Value::I16(x) => Some(x.into()),
            Value::U32(x) => Some(x.into()),
            Value::I32(x) => Some(x.into()),
            Value::U64(x) => Some(x.into()),
            Value::I64(x) => Some(x.into()),
            _ => None,
        }
    }

    /// An integer of any type that is not negative.
    pub fn as_u64(&self) -> Option<u64> {
        self.as_integer()?.try_into().ok()
    }

    /// An f32, or an f64 rounded to one.
    pub fn as_f32(&self) -> Option<f32> {
        match *self {
            Value::F32(x) => Some(x),
            Value::F64(x) => Some(x as f32),
            _ => None,
        }
    }

    /// A string that is UTF-8.
    pub fn as_str(&self) -> Option<&'a str> {
        match self {
            Value::String(bytes) => std::str::from_utf8(bytes).ok(),
            _ => None,
        }
    }

    /// Decodes a scalar or string from exactly its bytes (for a string without its length), an array from its header
    /// on. Bytes that do not hold it read as zeros or empty.
    pub(crate) fn decode(ty: ValueType, bytes: &'a [u8]) -> Value<'a> {
        match ty {
            ValueType::U8 => Value::U8(le::<1>(bytes)[0]),
            ValueType::I8 => Value::I8(i8::from_le_bytes(le(bytes))),
            ValueType::U16 => Value::U16(u16::from_le_bytes(le(bytes))),
            ValueType::I16 => Value::I16(i16::from_le_bytes(le(bytes))),
            ValueType::U32 => Value::U32(u32::from_le_bytes(le(bytes))),
            ValueType::I32 => Value::I32(i32::from_le_bytes(le(bytes))),
            ValueType::F32 => Value::F32(f32::from_le_bytes(le(bytes))),
            // Any byte is a bool; only zero is false.
            ValueType::Bool => Value::Bool(le::<1>(bytes)[0] != 0),
            ValueType::String => Value::String(bytes),
            ValueType::Array => {
                Value::Array(Array::decode(&mut Cursor::new(bytes)).unwrap_or(Array::EMPTY))
            }
            ValueType::U64 => Value::U64(u64::from_le_bytes(le(bytes))),
            ValueType::I64 => Value::I64(i64::from_le_bytes(le(bytes))),
            ValueType::F64 => Value::F64(f64::from_le_bytes(le(bytes))),
        }
    }

    /// Type and, for scalars, value: what an error says was found.
    pub(crate) fn found(&self) -> String {
        match self {
            Value::Array(array) => {
                format!("array of {} {}", array.len(), plural(array.ty(), array.len()))
            }
            _ => format!("{} {self}", self.ty()),
        }
    }
}

impl fmt::Display for Value<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::U8(x) => x.fmt(f),
            Value::I8(x) => x.fmt(f),
            Value::U16(x) => x.fmt(f),
            Value::I16(x) => x.fmt(f),
            Value::U32(x) => x.fmt(f),
            Value::I32(x) => x.fmt(f),
            Value::U64(x) => x.fmt(f),
            Value::I64(x) => x.fmt(f),
            Value::F32(x) => x.fmt(f),
            Value::F64(x) => x.fmt(f),
            Value::Bool(x) => x.fmt(f),
            Value::String(bytes) => write!(f, "\"{}\"", escape(bytes, 80)),
            Value::Array(array) => {
                write!(f, "[{} {}]", array.len(), plural(array.ty(), array.len()))
            }
        }
    }
}

fn plural(ty: ValueType, n: usize) -> &'static str {
    match ty {
        ValueType::String if n != 1 => "strings",
        ValueType::Array if n != 1 => "arrays",
        ty => ty.name(),
    }
}

fn le<const N: usize>(bytes: &[u8]) -> [u8; N] {
    bytes.first_chunk().copied().unwrap_or([0; N])
}

/// An array in the file: element type, length and the bytes of its elements.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Array<'a> {
    ty: ValueType,
    len: usize,
    bytes: &'a [u8],
}

impl<'a> Array<'a> {
    const EMPTY: Array<'static> = Array { ty: ValueType::U8, len: 0, bytes: &[] };

    /// Type of the elements.
    pub fn ty(&self) -> ValueType {
        self.ty
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The elements, of any type.
    pub fn iter(&self) -> Items<'a> {
        Items { ty: self.ty, left: self.len, cursor: Cursor::new(self.bytes) }
    }

    /// The strings; `None` if the elements are not strings.
    pub fn strings(&self) -> Option<Strings<'a>> {
        (self.ty == ValueType::String).then(|| Strings { items: self.iter() })
    }

    /// Reads the header of an array; its elements are the rest of the bytes, or for a nested array less than that.
    fn decode(cursor: &mut Cursor<'a>) -> Option<Array<'a>> {
        let ty = ValueType::from_number(cursor.u32().ok()?)?;
        let len = cursor.u64().ok()?;
        cursor.fits(len, min_size(ty)).ok()?;
        let start = *cursor;
        let bytes = cursor.take(cursor.remaining()).ok()?;
        *cursor = start;
        Some(Array { ty, len: usize::try_from(len).ok()?, bytes })
    }
}

/// Least bytes of an element: its size, the length of a string, the header of an array.
pub(crate) fn min_size(ty: ValueType) -> u64 {
    match ty {
        ValueType::String => 8,
        ValueType::Array => 12,
        ty => ty.size().unwrap_or(1) as u64,
    }
}

/// Iterator over the elements of an [`Array`].
#[derive(Clone)]
pub struct Items<'a> {
    ty: ValueType,
    left: usize,
    cursor: Cursor<'a>,
}

impl<'a> Items<'a> {
    fn decode(&mut self) -> Option<Value<'a>> {
        if let Some(size) = self.ty.size() {
            return self.cursor.take(size as u64).ok().map(|bytes| Value::decode(self.ty, bytes));
        }
        if self.ty == ValueType::String {
            return self.cursor.string().ok().map(Value::String);
        }
        let start = self.cursor.pos();
        let whole = self.cursor;
        skip_array(&mut self.cursor).ok()?;
        let bytes = (self.cursor.pos() - start) as u64;
        let mut own = whole;
        Some(Value::decode(ValueType::Array, own.take(bytes).ok()?))
    }
}

impl<'a> Iterator for Items<'a> {
    type Item = Value<'a>;

    fn next(&mut self) -> Option<Value<'a>> {
        self.left = self.left.checked_sub(1)?;
        Some(self.decode().unwrap_or(Value::decode(self.ty, &[])))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for Items<'_> {}

/// Iterator over the bytes of the strings of an array; they should be UTF-8 and may not be.
#[derive(Clone)]
pub struct Strings<'a> {
    items: Items<'a>,
}

impl<'a> Iterator for Strings<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        match self.items.next()? {
            Value::String(bytes) => Some(bytes),
            _ => Some(&[]),
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.items.size_hint()
    }
}

impl ExactSizeIterator for Strings<'_> {}

/// Deepest nesting of arrays; an array of scalars has depth 1.
const MAX_DEPTH: usize = 8;

/// Why an array cannot be walked.
pub(crate) enum BadArray {
    /// Its length does not fit: type, length, and the lack.
    Long(ValueType, u64, crate::cursor::Short),
    /// The bytes end inside it.
    Short(crate::cursor::Short),
    /// No such element type.
    Type(u32),
    /// More than eight arrays inside each other.
    Deep,
}

impl From<crate::cursor::Short> for BadArray {
    fn from(short: crate::cursor::Short) -> BadArray {
        BadArray::Short(short)
    }
}

/// Moves past an array, checking every length in it, without recursion and without allocation.
pub(crate) fn skip_array(cursor: &mut Cursor<'_>) -> Result<(), BadArray> {
    // How many arrays are still to be walked at each level above the current one.
    let mut left = [0_u64; MAX_DEPTH - 1];
    let mut depth = 0;
    loop {
        let number = cursor.u32()?;
        let ty = ValueType::from_number(number).ok_or(BadArray::Type(number))?;
        let len = cursor.u64()?;
        cursor.fits(len, min_size(ty)).map_err(|short| BadArray::Long(ty, len, short))?;
        match ty {
            ValueType::String => {
                for _ in 0..len {
                    cursor.string()?;
                }
            }
            ValueType::Array if len > 0 => {
                *left.get_mut(depth).ok_or(BadArray::Deep)? = len;
                depth += 1;
            }
            ty => {
                cursor.take(len * min_size(ty))?;
            }
        }
        while depth > 0 && left[depth - 1] == 0 {
            depth -= 1;
        }
        let Some(level) = depth.checked_sub(1) else { return Ok(()) };
        left[level] -= 1;
    }
}
