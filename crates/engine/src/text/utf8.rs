//! Bytes that arrive in any portions, as whole characters.

/// Holds the beginning of a character until the rest arrives.
#[derive(Debug, Default)]
pub(super) struct Utf8 {
    /// At most three bytes that may still become a character.
    pending: Vec<u8>,
}

impl Utf8 {
    /// Append to `out` the characters that `bytes` complete. Bytes that can never be part of one become U+FFFD.
    pub(super) fn push(&mut self, bytes: &[u8], out: &mut String) {
        self.pending.extend_from_slice(bytes);
        let mut rest = self.pending.as_slice();
        loop {
            match std::str::from_utf8(rest) {
                Ok(text) => {
                    out.push_str(text);
                    rest = &[];
                    break;
                }
                Err(error) => {
                    let (valid, after) = rest.split_at(error.valid_up_to());
                    out.push_str(
                        std::str::from_utf8(valid).expect("valid up to here, says the error"),
                    );
                    rest = after;
                    let Some(bad) = error.error_len() else { break };
                    out.push(char::REPLACEMENT_CHARACTER);
                    rest = &rest[bad..];
                }
            }
        }
        let done = self.pending.len() - rest.len();
        self.pending.drain(..done);
    }

    /// Whether no character is half done.
    pub(super) fn is_whole(&self) -> bool {
        self.pending.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::Utf8;

    fn decode(portions: &[&[u8]]) -> (String, bool) {
        let (mut utf8, mut out) = (Utf8::default(), String::new());
        for portion in portions {
            utf8.push(portion, &mut out);
        }
        (out, utf8.is_whole())
    }

    #[test]
    fn half_characters_wait() {
        assert_eq!(decode(&[b"a\xE2", b"\x82", b"\xACb"]), ("a\u{20AC}b".into(), true));
        assert_eq!(decode(&[b"a\xE2\x82"]), ("a".into(), false));
        assert_eq!(decode(&[b"\xF0\x9F", b"(", b"\xFF"]), ("\u{FFFD}(\u{FFFD}".into(), true));
        // A half character that another one cuts off is replaced, the other is kept.
        assert_eq!(decode(&[b"\xE2", b"\xE2", b"\x82\xAC"]), ("\u{FFFD}\u{20AC}".into(), true));
    }

    proptest! {
        /// Any split of any bytes gives what the whole gives, and the whole is what the standard library makes of it.
        #[test]
        fn splits_do_not_matter(bytes in prop::collection::vec(prop_oneof![any::<u8>(), Just(0xE2), Just(0x82), Just(0xF0), Just(0x9F)], 0..40), cut in 0usize..40) {
            let cut = cut.min(bytes.len());
            let (whole, is_whole) = decode(&[&bytes]);
            prop_assert_eq!(decode(&[&bytes[..cut], &bytes[cut..]]), (whole.clone(), is_whole));
            let single: Vec<&[u8]> = bytes.chunks(1).collect();
            prop_assert_eq!(decode(&single), (whole.clone(), is_whole));
            let lossy = String::from_utf8_lossy(&bytes);
            if is_whole { prop_assert_eq!(whole, lossy) } else { prop_assert!(lossy.starts_with(&whole)) }
        }
    }
}
