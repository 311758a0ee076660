//! The tensor table: names, types, shapes, and where the bytes lie.

use std::fmt;

use quant::GgmlType;

use crate::cursor::{Cursor, OrAt};
use crate::header::{Header, MAX_KEY};
use crate::metadata::text;
use crate::{Error, Metadata, Result, escape};

/// Most dimensions of a tensor.
const MAX_DIMS: u32 = 4;
/// Alignment of tensor data where the file does not state one.
pub(crate) const DEFAULT_ALIGNMENT: u64 = 32;
const MAX_ALIGNMENT: u64 = 1 << 20;
pub(crate) const ALIGNMENT_KEY: &str = "general.alignment";

/// One tensor of the table. Its bytes lie inside the file and hold exactly its shape.
#[derive(Clone, Debug)]
pub struct TensorInfo {
    /// Its name, as in the file.
    pub name: String,
    /// Its shape, as in the file: `dims[0]` is the length of a row. One to four dimensions, none zero.
    pub dims: Vec<u64>,
    pub(crate) type_number: u32,
    /// Index of the shard.
    pub(crate) part: u32,
    /// First byte in the shard.
    pub(crate) start: u64,
    pub(crate) len: usize,
}

impl TensorInfo {
    /// The element type.
    ///
    /// # Errors
    /// [`Error::Tensor`] if this build does not know the type's number: such a tensor is listed, but has no bytes.
    pub fn ty(&self) -> Result<GgmlType> {
        GgmlType::from_number(self.type_number).ok_or_else(|| {
            Error::tensor(&self.name, format!("type {} is not supported", self.type_number))
        })
    }

    /// The element type's number in the file.
    pub fn type_number(&self) -> u32 {
        self.type_number
    }

    /// The element type's name, or `type N` for an unknown one.
    pub fn type_name(&self) -> String {
        match GgmlType::from_number(self.type_number) {
            Some(ty) => ty.name().to_owned(),
            None => format!("type {}", self.type_number),
        }
    }

    /// Length of a row, in weights.
    pub fn cols(&self) -> u64 {
        self.dims[0]
    }

    /// Number of rows: the product of the dimensions after the first.
    pub fn rows(&self) -> u64 {
        self.dims[1..].iter().product()
    }

    /// Number of weights; fits in a `usize`, as do rows and columns.
    pub fn elements(&self) -> u64 {
        self.dims.iter().product()
    }

    /// Bytes in the file; 0 if the type is unknown.
    pub fn byte_len(&self) -> usize {
        self.len
    }

    /// Index of the file in [`Gguf::paths`](crate::Gguf::paths) that holds it.
    pub fn part(&self) -> usize {
        self.part as usize
    }
}

/// The alignment of tensor data that the metadata states, in bytes.
fn alignment(metadata: &Metadata) -> Result<u64> {
    match metadata.u64(ALIGNMENT_KEY)? {
        None => Ok(DEFAULT_ALIGNMENT),
        Some(n) if n.is_power_of_two() && n <= MAX_ALIGNMENT => Ok(n),
        Some(n) => Err(Error::key_type(ALIGNMENT_KEY, "power of two 1..=1048576", n.to_string())),
    }
}

/// Reads the table and checks that every tensor's data lies inside the file's `len` bytes.
pub(crate) fn read(
    cursor: &mut Cursor<'_>,
    header: &Header,
    metadata: &Metadata,
    part: u32,
) -> Result<Vec<TensorInfo>> {
    let alignment = alignment(metadata)?;
    let has = cursor.pos() as u64 + cursor.remaining();
    let mut entries = Vec::new();
    for number in 1..=header.n_tensors {
        entries.push(read_entry(cursor, Place { number, n: header.n_tensors, name: None }, part)?);
    }
    // The position is inside the file and the alignment small: no overflow.
    let data = (cursor.pos() as u64).next_multiple_of(alignment);
    let mut placer = Placer { data, alignment, has, next: Some(0), cut: None };
    let mut tensors = Vec::with_capacity(entries.len());
    for (mut tensor, offset) in entries {
        placer.place(&mut tensor, offset)?;
        tensors.push(tensor);
    }
    match placer.cut {
        None => Ok(tensors),
        Some((first, needs)) => {
            let section = format!("tensor data, cut at or before `{}`,", escape(first, 80));
            Err(Error::Truncated { section, needs, has })
        }
    }
}

/// Where in the table the reader is, for messages.
#[derive(Clone, Copy)]
struct Place<'a> {
    number: u64,
    n: u64,
    name: Option<&'a str>,
}

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "tensor table, entry {} of {}", self.number, self.n)?;
        match self.name {
            Some(name) => write!(f, " (`{}`)", escape(name, 80)),
            None => Ok(()),
        }
    }
}

/// One entry, and the offset of its data from the start of the data section.
fn read_entry(cursor: &mut Cursor<'_>, place: Place<'_>, part: u32) -> Result<(TensorInfo, u64)> {
    let len = cursor.u64().or_at(place)?;
    if len > MAX_KEY {
        let problem = match cursor.remaining() {
            rest if len > rest => format!("name length {len} > remaining {rest}"),
            _ => format!("name length {len} is over the limit of {MAX_KEY}"),
        };
        return Err(Error::Malformed { place: place.to_string(), problem });
    }
    let name = text(cursor.take(len).or_too_long(place, "name length")?);
    let place = Place { name: Some(&name), ..place };
    let n_dims = cursor.u32().or_at(place)?;
    if !(1..=MAX_DIMS).contains(&n_dims) {
        return Err(Error::tensor(&name, format!("n_dims {n_dims} (1..{MAX_DIMS})")));
    }
    let dims = (0..n_dims).map(|_| cursor.u64()).collect::<Result<Vec<u64>, _>>().or_at(place)?;
    let type_number = cursor.u32().or_at(place)?;
    let offset = cursor.u64().or_at(place)?;
    Ok((TensorInfo { name, dims, type_number, part, start: 0, len: 0 }, offset))
}

/// Finds the place of each tensor's bytes and tells files that were cut from tables that were never right.
struct Placer {
    /// Start of the data section.
    data: u64,
    alignment: u64,
    /// Length of the file.
    has: u64,
    /// Where the next tensor's data starts if tensors follow each other, as writers lay them out; `None` once they do
    /// not, or after a tensor of unknown size.
    next: Option<u64>,
    /// The first tensor that follows its predecessor but not inside the file, and the length the file needs.
    cut: Option<(String, u64)>,
}

impl Placer {
    fn place(&mut self, tensor: &mut TensorInfo, offset: u64) -> Result<()> {
        let bad = |problem: String| Err(Error::tensor(&tensor.name, problem));
        let shape = || format!("{:?}", tensor.dims);
        if tensor.dims.contains(&0) {
            return bad(format!("shape {} has a zero", shape()));
        }
        let elements = tensor.dims.iter().try_fold(1_u64, |n, &d| n.checked_mul(d));
        if !elements.is_some_and(|n| i64::try_from(n).is_ok() && usize::try_from(n).is_ok()) {
            return bad(format!("shape {} is too large", shape()));
        }
        if !offset.is_multiple_of(self.alignment) {
            return bad(format!("offset {offset} is not aligned to {}", self.alignment));
        }
        let in_order = self.next == Some(offset);
        let Some(start) = self.data.checked_add(offset) else {
            return bad(format!(
                "offset {offset} is past the end of the file ({} bytes)",
                self.has
            ));
        };
        let len = match GgmlType::from_number(tensor.type_number) {
            None => None,
            Some(ty) => {
                if !start.is_multiple_of(element_alignment(ty)) {
                    return bad(format!("position {start} is not aligned for {ty}"));
                }
                let cols = usize::try_from(tensor.cols()).expect("not more than the elements");
                if !cols.is_multiple_of(ty.block_len()) {
                    return bad(format!(
                        "row of {cols} is not a multiple of {} ({ty})",
                        ty.block_len()
                    ));
                }
                match ty.row_bytes(cols).and_then(|row| (row as u64).checked_mul(tensor.rows())) {
                    Some(len) => Some(len),
                    None => return bad(format!("shape {} is too large", shape())),
                }
            }
        };
        let Some(end) = start.checked_add(len.unwrap_or(0)) else {
            return bad(format!("shape {} is too large", shape()));
        };
        self.next =
            len.and_then(|len| offset.checked_add(len)?.checked_next_multiple_of(self.alignment));
        if end > self.has {
            if !in_order {
                return bad(format!(
                    "data at {start}..{end} is past the end of the file ({} bytes)",
                    self.has
                ));
            }
            let (_, needs) = self.cut.get_or_insert_with(|| (tensor.name.clone(), end));
            *needs = end.max(*needs);
        }
        let Ok(len) = usize::try_from(end - start) else {
            return bad(format!("shape {} is too large", shape()));
        };
        // Inside the file; if not, the table is refused after the last entry.
        (tensor.start, tensor.len) = (start, len);
        Ok(())
    }
}

/// What the first byte of a tensor must be aligned to, so that its blocks can be read in place.
fn element_alignment(ty: GgmlType) -> u64 {
    match ty {
        GgmlType::I8 => 1,
        GgmlType::F32 | GgmlType::I32 => 4,
        GgmlType::F64 | GgmlType::I64 => 8,
        _ => 2,
    }
}
