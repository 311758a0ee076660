//! Limits runs in JSON that have no end: digits of a number, digits and white space in a string. Small models may continue them
//! forever. From a length that no value needs, tokens that would continue a run are masked if any other token is allowed.

/// Maximum number of digits before the decimal point, and after it: as many as fit into 64 bits.
const DIGITS: u16 = 19;
/// Maximum number of digits in an exponent: longer ones exceed double precision.
const EXPONENT: u16 = 2;
/// Maximum number of consecutive digits in a string, and of consecutive spaces and line breaks.
const IN_TEXT: u16 = 512;

/// Tokens that continue a run, as bit masks.
#[derive(Debug, Default)]
pub(crate) struct RunTokens {
    digits: Vec<u32>,
    /// Digit tokens that begin with a zero.
    zeros: Vec<u32>,
    spaces: Vec<u32>,
}

impl RunTokens {
    /// Finds the tokens that continue runs. `words`: bytes of each token.
    pub(crate) fn of(words: &[Vec<u8>]) -> RunTokens {
        let bits = |is: &dyn Fn(&[u8]) -> bool| {
            let mut bits = vec![0_u32; words.len().div_ceil(32)];
            for (token, _) in words.iter().enumerate().filter(|(_, word)| is(word)) {
                bits[token / 32] |= 1 << (token % 32);
            }
            bits
        };
        RunTokens {
            digits: bits(&|word| word.first().is_some_and(u8::is_ascii_digit)),
            zeros: bits(&|word| word.first() == Some(&b'0')),
            // line breaks and tabs are escaped in a string
            spaces: bits(&|word| match word {
                [b'\\', next, ..] => is_escaped_space(*next),
                [first, ..] => matches!(first, b' ' | b'\\'),
                [] => false,
            }),
        }
    }
}

fn is_escaped_space(byte: u8) -> bool {
    matches!(byte, b'n' | b't' | b'r')
}

/// State of a JSON text, as far as runs are concerned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Run {
    in_text: bool,
    escaped: bool,
    in_exponent: bool,
    digits: u16,
    spaces: u16,
}

impl Run {
    /// Returns the state after these bytes.
    pub(crate) fn after(mut self, bytes: &[u8]) -> Run {
        bytes.iter().for_each(|byte| self.push(*byte));
        self
    }

    fn push(&mut self, byte: u8) {
        let digits = if byte.is_ascii_digit() { self.digits.saturating_add(1) } else { 0 };
        if self.in_text {
            let escaped = std::mem::take(&mut self.escaped);
            let is_space = if escaped { is_escaped_space(byte) } else { byte == b' ' };
            match byte {
                _ if escaped => {}
                b'\\' => self.escaped = true,
                b'"' => self.in_text = false,
                _ => {}
            }
            if !self.escaped {
                self.spaces = if is_space { self.spaces.saturating_add(1) } else { 0 };
            }
            self.digits = digits;
            return;
        }
        match byte {
            b'"' => *self = Run { in_text: true, ..Run::default() },
            b'e' | b'E' if self.digits > 0 => (self.in_exponent, self.digits) = (true, 0),
            b'+' | b'-' => self.digits = 0,
            _ if byte.is_ascii_digit() => self.digits = digits,
            _ => (self.in_exponent, self.digits) = (false, 0),
        }
    }

    /// Removes the tokens from a mask that would continue a run of maximum length, unless the mask would become empty.
    pub(crate) fn narrow(self, mask: &mut [u32], tokens: &RunTokens) {
        let most = match (self.in_text, self.in_exponent) {
            (true, _) => IN_TEXT,
            (false, true) => EXPONENT,
            (false, false) => DIGITS,
        };
        // the number cannot end yet: a bound may require a digit other than zero
        if self.digits >= most && !take_out(mask, &tokens.digits) {
            take_out(mask, &tokens.zeros);
        }
        if self.spaces >= IN_TEXT {
            take_out(mask, &tokens.spaces);
        }
    }
}

/// Removes tokens from a mask if other tokens remain in it. Returns whether the tokens were removed.
fn take_out(mask: &mut [u32], tokens: &[u32]) -> bool {
    let others = mask.iter().zip(tokens).any(|(mask, tokens)| mask & !tokens != 0);
    if others {
        mask.iter_mut().zip(tokens).for_each(|(mask, tokens)| *mask &= !tokens);
    }
    others
}
