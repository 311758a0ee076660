//! The first 24 bytes: magic, version, counts.

use crate::cursor::{Cursor, OrAt};
use crate::{Error, Result, sniff};

pub(crate) const MAGIC: &[u8; 4] = b"GGUF";
/// Bytes of the header.
pub(crate) const HEADER: usize = 24;
/// Most key-value pairs.
pub(crate) const MAX_PAIRS: u64 = 1_000_000;
/// Most tensors in one file.
pub(crate) const MAX_TENSORS: u64 = 200_000;
/// Longest key or tensor name, in bytes.
pub(crate) const MAX_KEY: u64 = 64 << 10;
/// Least bytes of a key-value pair: an empty key and one byte.
const MIN_PAIR: u64 = 8 + 4 + 1;
/// Least bytes of a tensor's entry: an empty name and no dimension.
const MIN_TENSOR: u64 = 8 + 4 + 4 + 8;

/// The header's numbers, checked against the limits and the length of the file.
pub(crate) struct Header {
    pub(crate) version: u32,
    pub(crate) n_tensors: u64,
    pub(crate) n_pairs: u64,
}

/// Reads the header and leaves the cursor at the first key-value pair.
pub(crate) fn read(cursor: &mut Cursor<'_>) -> Result<Header> {
    if !cursor.ahead().starts_with(MAGIC) {
        return Err(Error::NotGguf { found: sniff::describe(cursor.ahead()) });
    }
    cursor.fits(HEADER as u64, 1).or_at("header")?;
    cursor.take(MAGIC.len() as u64).or_at("header")?;
    let version = cursor.u32().or_at("header")?;
    match version {
        2 | 3 => {}
        v if matches!(v.swap_bytes(), 1..=3) => {
            let found = format!(
                "big-endian GGUF file (version {}), only little-endian is supported",
                v.swap_bytes()
            );
            return Err(Error::NotGguf { found });
        }
        found => return Err(Error::Version { found }),
    }
    let n_tensors = cursor.u64().or_at("header")?;
    let n_pairs = cursor.u64().or_at("header")?;
    check_count("n_kv", n_pairs, MAX_PAIRS, cursor.remaining())?;
    check_count("n_tensors", n_tensors, MAX_TENSORS, cursor.remaining())?;
    // Both are within the limits, so the sum cannot overflow.
    let records = n_pairs * MIN_PAIR + n_tensors * MIN_TENSOR;
    cursor
        .fits(records, 1)
        .or_at(format_args!("header with n_kv {n_pairs} and n_tensors {n_tensors}"))?;
    Ok(Header { version, n_tensors, n_pairs })
}

fn check_count(name: &str, count: u64, limit: u64, remaining: u64) -> Result<()> {
    if count <= limit {
        return Ok(());
    }
    let problem = if count > remaining / MIN_PAIR {
        format!("{name} {count} cannot fit in {remaining} bytes")
    } else {
        format!("{name} {count} is over the limit of {limit}")
    };
    Err(Error::Malformed { place: "header".to_owned(), problem })
}
