//! Text from files made fit to print: one line, no control characters, bounded.

use std::fmt::Write;

/// `text` on one line of at most `max` characters: control characters, direction overrides and bytes that are not
/// UTF-8 become escapes (`\n`, `\u{1b}`, `\xff`); what does not fit is cut and replaced by `...`.
///
/// Everything that prints a name, key, string or path taken from a file passes it through here, so that a file cannot
/// move the cursor, recolour or forge lines on a terminal.
pub fn escape(text: impl AsRef<[u8]>, max: usize) -> String {
    let mut out = String::new();
    let (mut len, mut piece) = (0, String::new());
    // Byte length of `out` at the last point that still leaves room for the three dots.
    let mut cut_at = 0;
    let mut push = |piece: &str| -> bool {
        len += piece.chars().count();
        if len > max {
            out.truncate(cut_at);
            out.push_str(&"..."[..max.min(3)]);
            return false;
        }
        out.push_str(piece);
        if len + 3 <= max {
            cut_at = out.len();
        }
        true
    };
    for chunk in text.as_ref().utf8_chunks() {
        for c in chunk.valid().chars() {
            piece.clear();
            escape_char(c, &mut piece);
            if !push(&piece) {
                return out;
            }
        }
        for byte in chunk.invalid() {
            piece.clear();
            write!(piece, "\\x{byte:02x}").expect("writing to a String cannot fail");
            if !push(&piece) {
                return out;
            }
        }
    }
    out
}

fn escape_char(c: char, out: &mut String) {
    let hidden = matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}');
    if c.is_control() || hidden { out.extend(c.escape_default()) } else { out.push(c) }
}
