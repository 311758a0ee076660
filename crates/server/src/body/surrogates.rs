//! Lone surrogates (`\ud83d` alone): texts that JavaScript cut within an emoji. JSON allows them, UTF-8 does not.

use crate::error::Result;
use crate::intake::ByteReservation;

/// Length of an escape sequence such as `\ud83d`, in bytes.
const ESCAPE: usize = 6;

/// Returns the text of a JSON value with U+FFFD in place of each escaped lone surrogate; `None` if there is none. The memory of the
/// copy is added to `reservation`.
///
/// # Errors
/// A copy that is larger than may be reserved.
pub(super) fn mended(bytes: &[u8], reservation: &mut ByteReservation) -> Result<Option<Vec<u8>>> {
    let mut mended: Option<Vec<u8>> = None;
    // position after the last surrogate pair
    let mut next = 0;
    // most bodies contain no such escapes, and searching them runs at memory bandwidth
    for at in memchr::memmem::find_iter(bytes, b"\\u") {
        if at < next || is_escaped(bytes, at) {
            continue;
        }
        match (unit(bytes, at), unit(bytes, at + ESCAPE)) {
            (Some(0xD800..=0xDBFF), Some(0xDC00..=0xDFFF)) => next = at + 2 * ESCAPE,
            (Some(0xD800..=0xDFFF), _) => {
                if mended.is_none() {
                    reservation.grow(bytes.len() as u64)?;
                }
                let copy = mended.get_or_insert_with(|| bytes.to_vec());
                copy[at..at + ESCAPE].copy_from_slice(b"\\ufffd");
            }
            _ => {}
        }
    }
    Ok(mended)
}

/// Returns whether the backslash at position `at` is itself escaped: an odd number of backslashes precedes it.
fn is_escaped(bytes: &[u8], at: usize) -> bool {
    let before = bytes[..at].iter().rev().take_while(|byte| **byte == b'\\');
    before.count() % 2 == 1
}

/// Returns the UTF-16 code unit that is escaped at position `at`.
fn unit(bytes: &[u8], at: usize) -> Option<u32> {
    let digits = bytes.get(at..at + ESCAPE)?.strip_prefix(b"\\u")?;
    if !digits.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    u32::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(text: &str) -> Option<String> {
        let mended = mended(text.as_bytes(), &mut ByteReservation::default()).unwrap();
        mended.map(|bytes| String::from_utf8(bytes).unwrap())
    }

    #[test]
    fn halves_are_replaced_and_pairs_are_not() {
        for (text, want) in [
            (r#""\ud83d""#, r#""\ufffd""#),
            (r#""a \uDE00 b""#, r#""a \ufffd b""#),
            (r#""\ud83d\ud83d\ude00""#, r#""\ufffd\ud83d\ude00""#),
            (r#""\ude00\ud83d""#, r#""\ufffd\ufffd""#),
            (r#""\\\ud83d""#, r#""\\\ufffd""#),
            (r#""\\ud83d\ud83d\u00e9""#, r#""\\ud83d\ufffd\u00e9""#),
            (r#""\\\\\ud83d\\\\ud83d""#, r#""\\\\\ufffd\\\\ud83d""#),
        ] {
            assert_eq!(read(text).as_deref(), Some(want));
        }
        for text in [r#""\ud83d\ude00""#, r#""\\ud83d""#, r#""\u00e9""#, "", "\\", "\\u", "\\ud83"]
        {
            assert_eq!(read(text), None, "{text}");
        }
    }

    proptest! {
        /// Any string of escapes becomes valid JSON, and valid JSON stays the same.
        #[test]
        fn what_is_mended_is_json(units in prop::collection::vec(0xD7F0_u32..0xE010, 0..12)) {
            let text: String = units.iter().map(|unit| format!("\\u{unit:04x}")).collect();
            let text = format!("\"{text}\"");
            match read(&text) {
                Some(mended) => {
                    prop_assert!(serde_json::from_str::<String>(&text).is_err());
                    prop_assert!(serde_json::from_str::<String>(&mended).is_ok());
                }
                None => prop_assert!(serde_json::from_str::<String>(&text).is_ok()),
            }
        }
    }
}
