//! Splits PTX text into tokens with line numbers.

use super::SyntaxError;

/// Text of one token. Identifiers keep their dots and `%`: `ld.global.v4.b32`, `%tid.x`, `.reg`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Token<'a> {
    /// Word: instruction, directive, register, label or symbol.
    Word(&'a str),
    /// Integer literal: its 64 bits.
    Int(u64),
    /// `0fXXXXXXXX`: bits of an f32.
    F32(u32),
    /// `0dXXXXXXXXXXXXXXXX` or a decimal number: an f64.
    F64(f64),
    /// One character of punctuation.
    Punct(char),
    /// String of a directive, without its quotes.
    Text(&'a str),
}

/// Token and its line, counted from 1.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spanned<'a> {
    pub(crate) token: Token<'a>,
    pub(crate) line: u32,
}

/// Tokens of a module's text.
///
/// # Errors
/// A character or number that PTX does not have.
pub(crate) fn tokens(text: &str) -> Result<Vec<Spanned<'_>>, SyntaxError> {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(text.len() / 4);
    let mut line = 1;
    let mut at = 0;
    while at < bytes.len() {
        let c = bytes[at];
        match c {
            b'\n' => {
                line += 1;
                at += 1;
            }
            b' ' | b'\t' | b'\r' => at += 1,
            b'/' if bytes.get(at + 1) == Some(&b'/') => {
                while at < bytes.len() && bytes[at] != b'\n' {
                    at += 1;
                }
            }
            b'/' if bytes.get(at + 1) == Some(&b'*') => {
                let end = text[at + 2..]
                    .find("*/")
                    .ok_or_else(|| SyntaxError::new(line, "comment without an end"))?;
                line += newlines(&bytes[at..at + 2 + end]);
                at += end + 4;
            }
            b'"' => {
                let end = text[at + 1..]
                    .find('"')
                    .ok_or_else(|| SyntaxError::new(line, "string without an end"))?;
                let body = &text[at + 1..at + 1 + end];
                out.push(Spanned { token: Token::Text(body), line });
                line += newlines(body.as_bytes());
                at += end + 2;
            }
            b'0'..=b'9' => {
                let end = number_end(bytes, at);
                out.push(Spanned { token: number(&text[at..end], line)?, line });
                at = end;
            }
            _ if is_word(c) => {
                let mut end = at + 1;
                while end < bytes.len() && (is_word(bytes[end]) || bytes[end].is_ascii_digit()) {
                    end += 1;
                }
                out.push(Spanned { token: Token::Word(&text[at..end]), line });
                at = end;
            }
            b'{' | b'}' | b'[' | b']' | b'(' | b')' | b'<' | b'>' | b',' | b';' | b':' | b'+'
            | b'-' | b'@' | b'!' | b'|' | b'=' => {
                out.push(Spanned { token: Token::Punct(char::from(c)), line });
                at += 1;
            }
            _ => {
                let c = text[at..].chars().next().unwrap_or('?');
                return Err(SyntaxError::new(line, format!("unexpected character {c:?}")));
            }
        }
    }
    Ok(out)
}

fn newlines(bytes: &[u8]) -> u32 {
    bytes.iter().map(|&b| u32::from(b == b'\n')).sum()
}

fn is_word(c: u8) -> bool {
    c.is_ascii_alphabetic() || matches!(c, b'_' | b'$' | b'%' | b'.')
}

fn number_end(bytes: &[u8], start: usize) -> usize {
    let mut end = start;
    let mut decimal = false;
    while let Some(&c) = bytes.get(end) {
        decimal |= c == b'.';
        let sign =
            decimal && matches!(c, b'+' | b'-') && matches!(bytes.get(end - 1), Some(b'e' | b'E'));
        if !(c.is_ascii_alphanumeric() || c == b'.' || sign) {
            break;
        }
        end += 1;
    }
    end
}

fn number(text: &str, line: u32) -> Result<Token<'static>, SyntaxError> {
    let bad = || SyntaxError::new(line, format!("`{text}` is not a number"));
    let lower = text.to_ascii_lowercase();
    if let Some(hex) = lower.strip_prefix("0f") {
        if hex.len() != 8 {
            return Err(bad());
        }
        return u32::from_str_radix(hex, 16).map(Token::F32).map_err(|_| bad());
    }
    if let Some(hex) = lower.strip_prefix("0d") {
        if hex.len() != 16 {
            return Err(bad());
        }
        let bits = u64::from_str_radix(hex, 16).map_err(|_| bad())?;
        return Ok(Token::F64(f64::from_bits(bits)));
    }
    if lower.contains('.') {
        return lower.parse().map(Token::F64).map_err(|_| bad());
    }
    let digits = lower.strip_suffix('u').unwrap_or(&lower);
    let value = if let Some(hex) = digits.strip_prefix("0x") {
        u64::from_str_radix(hex, 16)
    } else if let Some(binary) = digits.strip_prefix("0b") {
        u64::from_str_radix(binary, 2)
    } else if digits.len() > 1 && digits.starts_with('0') {
        u64::from_str_radix(&digits[1..], 8)
    } else {
        digits.parse()
    };
    value.map(Token::Int).map_err(|_| bad())
}
