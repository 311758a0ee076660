//! Bytes of a text that a vocabulary cannot encode.

use std::collections::BTreeSet;
use std::fmt;

/// Bytes of a text for which the vocabulary has no token: encoding drops them or writes the unknown token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostBytes {
    bytes: BTreeSet<u8>,
    /// The first character that needs one of these bytes.
    example: char,
}

/// Maximum number of bytes that a message lists.
const LISTED: usize = 8;

impl LostBytes {
    /// Returns the distinct bytes in ascending order.
    pub fn bytes(&self) -> impl Iterator<Item = u8> + '_ {
        self.bytes.iter().copied()
    }
}

impl fmt::Display for LostBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<String> = self.bytes().take(LISTED).map(|b| format!("0x{b:02X}")).collect();
        let more = match self.bytes.len().saturating_sub(LISTED) {
            0 => String::new(),
            n => format!(" and {n} more"),
        };
        write!(
            f,
            "this text contains bytes that the model's vocabulary cannot encode: {}{more} (in U+{:04X})",
            names.join(" "),
            u32::from(self.example)
        )
    }
}

/// Returns whether a UTF-8 text can contain a byte that has no token. `bytes`: token of each byte.
pub(crate) fn may_lose_bytes(bytes: &[Option<u32>; 256]) -> bool {
    // the other byte values never occur in UTF-8
    let possible = (0x00..=0xBF).chain(0xC2..=0xF4);
    possible.into_iter().any(|byte: usize| bytes[byte].is_none())
}

/// Collects lost bytes, character by character.
#[derive(Default)]
pub(crate) struct LossCollector {
    bytes: BTreeSet<u8>,
    example: Option<char>,
}

impl LossCollector {
    /// Adds the bytes of a character for which `is_lost` returns true.
    pub(crate) fn add(&mut self, c: char, is_lost: impl Fn(u8) -> bool) {
        let before = self.bytes.len();
        self.bytes.extend(c.encode_utf8(&mut [0; 4]).bytes().filter(|b| is_lost(*b)));
        if self.bytes.len() > before {
            self.example.get_or_insert(c);
        }
    }

    /// Returns the lost bytes, or `None` if there are none.
    pub(crate) fn finish(self) -> Option<LostBytes> {
        Some(LostBytes { bytes: self.bytes, example: self.example? })
    }
}
