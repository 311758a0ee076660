//! Reading little-endian numbers from bytes that may end at any point.

use std::fmt::Display;

use crate::{Error, Result};

/// A lack of this many bytes or more is a damaged length, not a cut file.
const ABSURD: u64 = 1 << 32;

/// A position in the bytes of a file, of which the beginning is in memory. Never reads past their end, never panics.
#[derive(Clone, Copy)]
pub(crate) struct Cursor<'a> {
    /// The beginning of the file, or all of it.
    bytes: &'a [u8],
    pos: usize,
    /// Length of the whole file.
    len: u64,
    /// Where bytes ended that the file has and `bytes` lacks.
    missing: Option<u64>,
}

/// More bytes were wanted than remain.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Short {
    /// Bytes wanted, saturated at `u64::MAX`.
    pub(crate) wanted: u64,
    /// Bytes between the position and the end.
    pub(crate) remaining: u64,
    /// Length of the file.
    has: u64,
}

impl Short {
    /// The error for a lack of bytes at `place`: a cut file, or, for sizes no file has, `problem`.
    pub(crate) fn at(self, place: impl Display, problem: impl FnOnce(Short) -> String) -> Error {
        let needs = (self.has - self.remaining).checked_add(self.wanted);
        match needs {
            Some(needs) if self.wanted < ABSURD => {
                Error::Truncated { section: place.to_string(), needs, has: self.has }
            }
            _ => Error::Malformed { place: place.to_string(), problem: problem(self) },
        }
    }
}

impl<'a> Cursor<'a> {
    /// In a file that is in memory as a whole.
    pub(crate) fn new(bytes: &'a [u8]) -> Cursor<'a> {
        Cursor::in_part(bytes, bytes.len() as u64)
    }

    /// In a file of `len` bytes that begins with `bytes`.
    pub(crate) fn in_part(bytes: &'a [u8], len: u64) -> Cursor<'a> {
        Cursor { bytes, pos: 0, len, missing: None }
    }

    /// The position up to which bytes of the file were needed that are not in memory, after an error because of that.
    pub(crate) fn missing(&self) -> Option<u64> {
        self.missing
    }

    /// The bytes in memory from the position on.
    pub(crate) fn ahead(&self) -> &'a [u8] {
        &self.bytes[self.pos..]
    }

    /// The bytes before the position.
    pub(crate) fn passed(&self) -> &'a [u8] {
        &self.bytes[..self.pos]
    }

    pub(crate) fn pos(&self) -> usize {
        self.pos
    }

    pub(crate) fn remaining(&self) -> u64 {
        self.len - self.pos as u64
    }

    /// Checks that `count` records of at least `size` bytes can follow.
    pub(crate) fn fits(&self, count: u64, size: u64) -> Result<(), Short> {
        let wanted = count.saturating_mul(size);
        let remaining = self.remaining();
        if wanted > remaining {
            return Err(Short { wanted, remaining, has: self.len });
        }
        Ok(())
    }

    /// The next `len` bytes.
    pub(crate) fn take(&mut self, len: u64) -> Result<&'a [u8], Short> {
        self.fits(len, 1)?;
        let rest = &self.bytes[self.pos..];
        let taken = usize::try_from(len).ok().and_then(|len| rest.get(..len));
        let Some(taken) = taken else {
            self.missing = Some(self.pos as u64 + len);
            return Err(Short { wanted: len, remaining: rest.len() as u64, has: self.len });
        };
        self.pos += taken.len();
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Short> {
        Ok(self.take(N as u64)?.try_into().expect("exactly N bytes were taken"))
    }

    pub(crate) fn u32(&mut self) -> Result<u32, Short> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Result<u64, Short> {
        self.array().map(u64::from_le_bytes)
    }

    /// A string: its length in 8 bytes, then its bytes.
    pub(crate) fn string(&mut self) -> Result<&'a [u8], Short> {
        let len = self.u64()?;
        self.take(len)
    }
}

/// [`Short::at`] on results.
pub(crate) trait OrAt<T> {
    /// A lack of bytes for a number, which no file length explains but a cut.
    fn or_at(self, place: impl Display) -> Result<T>;
    /// A lack of bytes for something whose length, called `what`, stands in the file.
    fn or_too_long(self, place: impl Display, what: &str) -> Result<T>;
}

impl<T> OrAt<T> for Result<T, Short> {
    fn or_at(self, place: impl Display) -> Result<T> {
        self.or_too_long(place, "length")
    }

    fn or_too_long(self, place: impl Display, what: &str) -> Result<T> {
        self.map_err(|short| {
            short.at(place, |s| format!("{what} {} > remaining {}", s.wanted, s.remaining))
        })
    }
}
