//! A manifest: a small file that says which records are kept, and what for.
//!
//! All numbers are little-endian. The magic; a version (u32); bytes of the file (u64); the checksum of what follows (u64);
//! the parts of the key, each a name and a value (u32 bytes and UTF-8); a note (u64 bytes and these); the number of records
//! (u64) and each as its header has it (32 bytes).

use super::key::ContentKey;
use super::medium::MAX_PAGES;
use super::record::{Entry, checksum};

const MAGIC: [u8; 8] = *b"rooflkvm";
const VERSION: u32 = 1;
/// Bytes before those that the checksum is of.
const HEAD: usize = 28;
/// Bytes that no manifest has more of.
pub(super) const MAX_BYTES: u64 = 256 << 20;

/// What a manifest says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    /// What the records were computed from and by.
    pub key: ContentKey,
    /// The caller's, who knows what it means.
    pub note: Vec<u8>,
    /// The records, in the caller's order.
    pub records: Vec<Entry>,
}

/// Which part is not what it must be, what was expected, what was found.
pub(super) type Fault = (&'static str, String, String);

impl Manifest {
    /// The manifest as a file.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend(MAGIC);
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend([0; 16]);
        for (name, value) in self.key.parts() {
            for text in [name, value] {
                bytes.extend((text.len() as u32).to_le_bytes());
                bytes.extend(text.as_bytes());
            }
        }
        bytes.extend((self.note.len() as u64).to_le_bytes());
        bytes.extend(&self.note);
        bytes.extend((self.records.len() as u64).to_le_bytes());
        self.records.iter().for_each(|entry| bytes.extend(entry.to_bytes()));
        let (len, sum) = (bytes.len() as u64, checksum(&bytes[HEAD..]));
        bytes[12..20].copy_from_slice(&len.to_le_bytes());
        bytes[20..28].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// Read what [`to_bytes`](Self::to_bytes) wrote, or anything else.
    ///
    /// # Errors
    /// The part that is wrong, what was expected and what was found.
    pub fn from_bytes(bytes: &[u8]) -> Result<Manifest, Fault> {
        let mut rest = Rest { bytes, at: 0 };
        let magic: [u8; 8] = rest.array("magic")?;
        expect("magic", &String::from_utf8_lossy(&MAGIC), &String::from_utf8_lossy(&magic))?;
        expect("version", &VERSION, &u32::from_le_bytes(rest.array("version")?))?;
        expect("length", &rest.u64("length")?, &(bytes.len() as u64))?;
        let sum = rest.u64("checksum")?;
        let hex = |sum: u64| format!("{sum:016x}");
        expect("checksum", &hex(sum), &hex(checksum(&bytes[HEAD..])))?;
        Manifest::body(rest)
    }

    /// What follows the checksum.
    fn body(mut rest: Rest<'_>) -> Result<Manifest, Fault> {
        let mut parts: [String; ContentKey::PARTS] = Default::default();
        for ((name, _), part) in ContentKey::default().parts().into_iter().zip(&mut parts) {
            expect("part of the key", &name, &rest.text("name in the key")?.as_str())?;
            *part = rest.text(name)?;
        }
        let n = rest.u64("length of the note")?;
        let note = rest.take("note", n)?.to_vec();
        let n = rest.u64("number of records")?;
        let found = (rest.bytes.len() - rest.at) as u64;
        expect("bytes of records", &n.saturating_mul(32), &found)?;
        let (records, _) = rest.bytes[rest.at..].as_chunks();
        let records: Vec<Entry> = records.iter().map(Entry::from_bytes).collect();
        for entry in &records {
            let end = entry.len.checked_add(u64::from(u16::MAX));
            let end = end.and_then(|_| entry.first.checked_add(entry.pages()));
            if end.is_none_or(|end| end > MAX_PAGES) {
                let found = format!("{} bytes from page {}", entry.len, entry.first);
                return Err(("place of a record", format!("within {MAX_PAGES} pages"), found));
            }
        }
        Ok(Manifest { key: ContentKey::of(parts), note, records })
    }
}

fn expect<T>(what: &'static str, wanted: &T, found: &T) -> Result<(), Fault>
where
    T: PartialEq + ToString + ?Sized,
{
    if wanted == found { Ok(()) } else { Err((what, wanted.to_string(), found.to_string())) }
}

/// Bytes, and how many of them were read.
struct Rest<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Rest<'a> {
    fn take(&mut self, what: &'static str, n: u64) -> Result<&'a [u8], Fault> {
        let left = self.bytes.len() - self.at;
        if n > left as u64 {
            return Err((what, format!("{n} bytes"), format!("{left}")));
        }
        let taken = &self.bytes[self.at..][..n as usize];
        self.at += taken.len();
        Ok(taken)
    }

    fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], Fault> {
        let taken = self.take(what, N as u64)?;
        Ok(std::array::from_fn(|i| taken[i]))
    }

    fn u64(&mut self, what: &'static str) -> Result<u64, Fault> {
        Ok(u64::from_le_bytes(self.array(what)?))
    }

    fn text(&mut self, what: &'static str) -> Result<String, Fault> {
        let n = u32::from_le_bytes(self.array(what)?);
        let text = std::str::from_utf8(self.take(what, u64::from(n))?);
        let wrong = |error: std::str::Utf8Error| (what, "UTF-8".into(), error.to_string());
        Ok(text.map_err(wrong)?.to_owned())
    }
}
