//! Short ids of tool calls: nine letters and digits, which the templates of all families accept. Mistral's accept no others.

/// Characters of an id, by digit.
const CHARS: &[u8; 36] = b"0123456789abcdefghijklmnopqrstuvwxyz";
/// Number of characters in an id.
const LENGTH: usize = 9;

/// Returns the id for this number: its last nine digits in base 36, the lowest digit first.
pub fn short_id(mut number: u64) -> String {
    let base = CHARS.len() as u64;
    let mut digit = || {
        let digit = CHARS[(number % base) as usize];
        number /= base;
        char::from(digit)
    };
    (0..LENGTH).map(|_| digit()).collect()
}

/// Returns whether this is an id of nine letters and digits, in upper or lower case.
pub(super) fn is_short_id(id: &str) -> bool {
    id.len() == LENGTH && id.bytes().all(|byte| byte.is_ascii_alphanumeric())
}
