//! Writes GGUF files, version 3 unless asked otherwise.

use std::io::{self, Write};

use quant::GgmlType;

use crate::header::MAGIC;
use crate::owned::{OwnedValue, encode_string};
use crate::tensors::{ALIGNMENT_KEY, DEFAULT_ALIGNMENT};
use crate::{Error, Result};

/// Collects metadata and tensors, then writes a file. Read and written again it is the same to the bit.
///
/// ```
/// use gguf::{GgmlType, Gguf, Writer};
///
/// let mut writer = Writer::new();
/// writer.set("general.architecture", "qwen2").set("qwen2.block_count", 2_u32);
/// writer.tensor("output_norm.weight", GgmlType::F32, &[4], vec![0; 16]);
/// let file = Gguf::from_bytes(writer.to_bytes()?)?;
/// assert_eq!(file.metadata().architecture()?, "qwen2");
/// # Ok::<(), gguf::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Writer {
    version: u32,
    pairs: Vec<(String, OwnedValue)>,
    tensors: Vec<NewTensor>,
}

#[derive(Clone, Debug)]
struct NewTensor {
    name: String,
    ty: GgmlType,
    dims: Vec<u64>,
    /// `None`: they are asked for when the file is written.
    bytes: Option<Vec<u8>>,
}

impl Default for Writer {
    fn default() -> Writer {
        Writer::new()
    }
}

impl Writer {
    /// A writer of an empty version 3 file.
    pub fn new() -> Writer {
        Writer { version: 3, pairs: Vec::new(), tensors: Vec::new() }
    }

    /// Writes this version instead: 2 or 3, which differ in nothing but the number.
    pub fn version(&mut self, version: u32) -> &mut Writer {
        self.version = version;
        self
    }

    /// Sets a key, in the place of an earlier value or at the end. `general.alignment` takes effect.
    pub fn set(&mut self, key: impl Into<String>, value: impl Into<OwnedValue>) -> &mut Writer {
        let (key, value) = (key.into(), value.into());
        match self.pairs.iter_mut().find(|pair| pair.0 == key) {
            Some(pair) => pair.1 = value,
            None => self.pairs.push((key, value)),
        }
        self
    }

    /// Adds a tensor. `dims[0]` is the length of a row; `bytes` are whole blocks, row after row.
    pub fn tensor(
        &mut self,
        name: impl Into<String>,
        ty: GgmlType,
        dims: &[u64],
        bytes: impl Into<Vec<u8>>,
    ) -> &mut Writer {
        self.tensors.push(NewTensor {
            name: name.into(),
            ty,
            dims: dims.to_vec(),
            bytes: Some(bytes.into()),
        });
        self
    }

    /// Adds a tensor whose bytes are not here yet: [`Writer::write_with`] asks for them. For files that do not fit
    /// in memory.
    pub fn tensor_later(
        &mut self,
        name: impl Into<String>,
        ty: GgmlType,
        dims: &[u64],
    ) -> &mut Writer {
        self.tensors.push(NewTensor { name: name.into(), ty, dims: dims.to_vec(), bytes: None });
        self
    }

    /// The whole file.
    ///
    /// # Errors
    /// [`Error::Version`], [`Error::KeyType`] or [`Error::Tensor`] for what cannot be right: see
    /// [`Writer::write_to`].
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        let mut out = Vec::new();
        self.write_to(&mut out)?;
        Ok(out)
    }

    /// Writes the whole file.
    ///
    /// # Errors
    /// [`Error::Version`] for a version other than 2 or 3, [`Error::KeyType`] for an array with elements of another
    /// type or an alignment that is no power of two, [`Error::Tensor`] for bytes that are not those of the shape,
    /// [`Error::Io`] if writing fails.
    pub fn write_to(&self, out: &mut impl Write) -> Result<()> {
        self.write_with(out, &mut |_, _| Ok(()))
    }

    /// Writes the whole file. `fill` writes the bytes of each tensor that was added with [`Writer::tensor_later`],
    /// in their order, by name: whole blocks, row after row, in as many pieces as it likes.
    ///
    /// # Errors
    /// As [`Writer::write_to`]; [`Error::Tensor`] also if `fill` writes more or fewer bytes than the shape has.
    pub fn write_with(
        &self,
        out: &mut impl Write,
        fill: &mut dyn FnMut(&str, &mut dyn Write) -> io::Result<()>,
    ) -> Result<()> {
        let (alignment, head) = self.head()?;
        let io = |reason| Error::Io { path: "output".to_owned(), reason };
        out.write_all(&head).map_err(io)?;
        for tensor in &self.tensors {
            let mut counted = Counted { out: &mut *out, bytes: 0 };
            match &tensor.bytes {
                Some(bytes) => counted.write_all(bytes),
                None => fill(&tensor.name, &mut counted),
            }
            .map_err(io)?;
            let (written, expected) = (counted.bytes, tensor.len()?);
            if written != expected {
                return Err(tensor.misfit(written));
            }
            // The last tensor too, as the reference writers do.
            pad(out, written, alignment).map_err(io)?;
        }
        out.flush().map_err(io)
    }

    /// The alignment, and all that comes before the first tensor's bytes.
    fn head(&self) -> Result<(u64, Vec<u8>)> {
        if !matches!(self.version, 2 | 3) {
            return Err(Error::Version { found: self.version });
        }
        let mut out = Vec::from(MAGIC);
        out.extend(self.version.to_le_bytes());
        out.extend((self.tensors.len() as u64).to_le_bytes());
        out.extend((self.pairs.len() as u64).to_le_bytes());
        for (key, value) in &self.pairs {
            if let Some((array, found)) = value.misfit() {
                return Err(Error::key_type(key, array.name(), format!("element of type {found}")));
            }
            encode_string(key.as_bytes(), &mut out);
            out.extend(value.ty().number().to_le_bytes());
            value.encode(&mut out);
        }
        let alignment = self.alignment()?;
        let mut offset = 0_u64;
        for tensor in &self.tensors {
            let len = tensor.len()?;
            encode_string(tensor.name.as_bytes(), &mut out);
            out.extend((tensor.dims.len() as u32).to_le_bytes());
            tensor.dims.iter().for_each(|d| out.extend(d.to_le_bytes()));
            out.extend(tensor.ty.number().to_le_bytes());
            out.extend(offset.to_le_bytes());
            offset += len.next_multiple_of(alignment);
        }
        let len = out.len() as u64;
        pad(&mut out, len, alignment).expect("a vector takes all bytes");
        Ok((alignment, out))
    }

    fn alignment(&self) -> Result<u64> {
        let Some((_, value)) = self.pairs.iter().find(|pair| pair.0 == ALIGNMENT_KEY) else {
            return Ok(DEFAULT_ALIGNMENT);
        };
        match value {
            OwnedValue::U32(n) if n.is_power_of_two() => Ok(u64::from(*n)),
            other => Err(Error::key_type(ALIGNMENT_KEY, "u32, a power of two", other.ty().name())),
        }
    }
}

impl NewTensor {
    /// The bytes that its shape takes, which those that are given must be.
    fn len(&self) -> Result<u64> {
        let shape = &self.dims;
        if !(1..=4).contains(&shape.len()) || shape.contains(&0) {
            let problem = format!("shape {shape:?}, expected 1..4 dimensions, none zero");
            return Err(Error::tensor(&self.name, problem));
        }
        let row = usize::try_from(shape[0]).ok().and_then(|cols| self.ty.row_bytes(cols));
        let given = self.bytes.as_ref().map(|bytes| bytes.len() as u64);
        row.and_then(|row| shape[1..].iter().try_fold(row as u64, |n, &d| n.checked_mul(d)))
            .filter(|&len| given.is_none_or(|given| given == len))
            .ok_or_else(|| self.misfit(given.unwrap_or(0)))
    }

    fn misfit(&self, bytes: u64) -> Error {
        let problem = format!("{bytes} bytes are not those of {} {:?}", self.ty, self.dims);
        Error::tensor(&self.name, problem)
    }
}

/// Counts what is written.
struct Counted<'a, W> {
    out: &'a mut W,
    bytes: u64,
}

impl<W: Write> Write for Counted<'_, W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let n = self.out.write(bytes)?;
        self.bytes += n as u64;
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// Zeros up to the next multiple of `alignment` after `len` bytes.
fn pad(out: &mut impl Write, len: u64, alignment: u64) -> io::Result<()> {
    const ZEROS: [u8; 256] = [0; 256];
    let mut missing = len.next_multiple_of(alignment) - len;
    while missing > 0 {
        let n = missing.min(ZEROS.len() as u64);
        out.write_all(&ZEROS[..n as usize])?;
        missing -= n;
    }
    Ok(())
}
