//! Tokens to text, as they come.

use std::sync::Arc;

use crate::vocab::Vocab;

/// Turns a stream of tokens into text: what it returns is always whole characters, never half of one.
pub struct Decoder {
    vocab: Arc<Vocab>,
    /// Bytes of a character that is not complete yet.
    pending: Vec<u8>,
    /// Whether a space that only marks the start of the text is still to be dropped.
    strip_space: bool,
}

impl Decoder {
    pub(crate) fn new(vocab: Arc<Vocab>, strip_space: bool) -> Decoder {
        Decoder { vocab, pending: Vec::new(), strip_space }
    }

    /// The characters that `token` completes. Bytes that can never become a character turn into U+FFFD. Control tokens
    /// and ids outside the vocabulary add nothing.
    pub fn push(&mut self, token: u32) -> String {
        self.vocab.push_bytes(token, &mut self.pending);
        if self.strip_space && !self.pending.is_empty() {
            self.strip_space = false;
            if self.pending[0] == b' ' {
                self.pending.remove(0);
            }
        }
        let (mut text, mut rest) = (String::new(), 0);
        for chunk in self.pending.utf8_chunks() {
            text.push_str(chunk.valid());
            rest += chunk.valid().len();
            if is_open(chunk.invalid()) && rest + chunk.invalid().len() == self.pending.len() {
                break;
            }
            if !chunk.invalid().is_empty() {
                text.push(char::REPLACEMENT_CHARACTER);
                rest += chunk.invalid().len();
            }
        }
        self.pending.drain(..rest);
        text
    }

    /// What is left when no token follows: U+FFFD for a character that was never completed, else nothing.
    pub fn finish(self) -> String {
        String::from_utf8_lossy(&self.pending).into_owned()
    }
}

/// Whether these bytes are the start of a character that more bytes could complete.
fn is_open(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_err_and(|e| e.error_len().is_none())
}

#[cfg(test)]
mod tests {
    use super::is_open;

    #[test]
    fn an_open_character_is_told_from_a_broken_one() {
        for open in [&b"\xe2"[..], b"\xe2\x82", b"\xf0\x9f\x98", b"\xc3"] {
            assert!(is_open(open), "{open:x?}");
        }
        for broken in [&b"\xff"[..], b"\xc0", b"\xe2\x28", b"\xf5", b"", b"a"] {
            assert!(!is_open(broken), "{broken:x?}");
        }
    }
}
