//! JSON while it comes: whether what came so far can still be one value, and where it ends. Nothing is kept but where it is.

/// Objects and lists within each other.
const DEPTH: usize = 128;

/// What a byte did to a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JsonProgress {
    /// It is part of it.
    More,
    /// It is its last one.
    Done,
    /// The value was whole before it.
    Before,
    /// No value goes on so.
    Bad,
}

/// A JSON value of which some bytes have come: none, by default.
#[derive(Clone, Debug, Default)]
pub struct JsonScan {
    /// The brackets that are open.
    open: Vec<u8>,
    place: Place,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Place {
    /// Before a value.
    #[default]
    Value,
    /// After `[`.
    ItemOrEnd,
    /// After `{`.
    KeyOrEnd,
    /// After a comma in an object.
    Key,
    Colon,
    /// After a value within another.
    After,
    Text(Text),
    Number(Number),
    /// What is left of `true`, `false` or `null`.
    Word(&'static [u8]),
}

/// Within a string. `key`: a colon follows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Text {
    key: bool,
    at: TextPlace,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TextPlace {
    Plain,
    Escape,
    /// So many digits have come, of this value; `low`: the second half of a character must come.
    Hex {
        digits: u8,
        value: u16,
        low: bool,
    },
    /// A backslash must come, and then a `u`.
    Low {
        backslash: bool,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Number {
    Minus,
    Zero,
    Digits,
    Point,
    Fraction,
    E,
    Sign,
    Exponent,
}

impl JsonScan {
    /// The next byte.
    pub fn push(&mut self, byte: u8) -> JsonProgress {
        let space = matches!(byte, b' ' | b'\t' | b'\n' | b'\r');
        match self.place {
            Place::Text(text) => return self.text(text, byte),
            Place::Number(number) => return self.number(number, byte),
            Place::Word(rest) => return self.word(rest, byte),
            _ if space => return JsonProgress::More,
            _ => {}
        }
        match (self.place, byte) {
            (Place::ItemOrEnd, b']') | (Place::KeyOrEnd, b'}') => self.close(),
            (Place::Value | Place::ItemOrEnd, _) => self.begin(byte),
            (Place::KeyOrEnd | Place::Key, b'"') => {
                self.place = Place::Text(Text { key: true, at: TextPlace::Plain });
                JsonProgress::More
            }
            (Place::Colon, b':') => self.go(Place::Value),
            (Place::After, b',') if self.open.last() == Some(&b'{') => self.go(Place::Key),
            (Place::After, b',') => self.go(Place::Value),
            (Place::After, b'}') if self.open.last() == Some(&b'{') => self.close(),
            (Place::After, b']') if self.open.last() == Some(&b'[') => self.close(),
            _ => JsonProgress::Bad,
        }
    }

    fn go(&mut self, place: Place) -> JsonProgress {
        self.place = place;
        JsonProgress::More
    }

    fn begin(&mut self, byte: u8) -> JsonProgress {
        self.place = match byte {
            b'{' | b'[' if self.open.len() == DEPTH => return JsonProgress::Bad,
            b'{' => {
                self.open.push(byte);
                Place::KeyOrEnd
            }
            b'[' => {
                self.open.push(byte);
                Place::ItemOrEnd
            }
            b'"' => Place::Text(Text { key: false, at: TextPlace::Plain }),
            b'-' => Place::Number(Number::Minus),
            b'0' => Place::Number(Number::Zero),
            b'1'..=b'9' => Place::Number(Number::Digits),
            b't' => Place::Word(b"rue"),
            b'f' => Place::Word(b"alse"),
            b'n' => Place::Word(b"ull"),
            _ => return JsonProgress::Bad,
        };
        JsonProgress::More
    }

    fn close(&mut self) -> JsonProgress {
        self.open.pop();
        self.ended()
    }

    /// A value ended with this byte.
    fn ended(&mut self) -> JsonProgress {
        self.place = Place::After;
        if self.open.is_empty() { JsonProgress::Done } else { JsonProgress::More }
    }

    fn word(&mut self, rest: &'static [u8], byte: u8) -> JsonProgress {
        match rest {
            [last] if *last == byte => self.ended(),
            [first, rest @ ..] if *first == byte => self.go(Place::Word(rest)),
            _ => JsonProgress::Bad,
        }
    }

    fn text(&mut self, text: Text, byte: u8) -> JsonProgress {
        let go = |at| Place::Text(Text { at, ..text });
        let next = match (text.at, byte) {
            (TextPlace::Plain, b'"') if text.key => Place::Colon,
            (TextPlace::Plain, b'"') => return self.ended(),
            (TextPlace::Plain, b'\\') => go(TextPlace::Escape),
            (TextPlace::Plain, 0..0x20) => return JsonProgress::Bad,
            (TextPlace::Plain, _) => go(TextPlace::Plain),
            (TextPlace::Escape, b'u') => go(TextPlace::Hex { digits: 0, value: 0, low: false }),
            (TextPlace::Escape, b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => {
                go(TextPlace::Plain)
            }
            (TextPlace::Low { backslash: false }, b'\\') => go(TextPlace::Low { backslash: true }),
            (TextPlace::Low { backslash: true }, b'u') => {
                go(TextPlace::Hex { digits: 0, value: 0, low: true })
            }
            (TextPlace::Hex { digits, value, low }, _) => {
                let Some(digit) = char::from(byte).to_digit(16) else { return JsonProgress::Bad };
                let value = value << 4 | digit as u16;
                match (digits, value, low) {
                    (0..3, ..) => go(TextPlace::Hex { digits: digits + 1, value, low }),
                    (_, 0xDC00..=0xDFFF, true) => go(TextPlace::Plain),
                    (_, _, true) | (_, 0xDC00..=0xDFFF, _) => return JsonProgress::Bad,
                    (_, 0xD800..=0xDBFF, _) => go(TextPlace::Low { backslash: false }),
                    _ => go(TextPlace::Plain),
                }
            }
            _ => return JsonProgress::Bad,
        };
        self.go(next)
    }

    fn number(&mut self, number: Number, byte: u8) -> JsonProgress {
        let next = match (number, byte) {
            (Number::Minus, b'0') => Number::Zero,
            (Number::Minus, b'1'..=b'9') | (Number::Digits, b'0'..=b'9') => Number::Digits,
            (Number::Zero | Number::Digits, b'.') => Number::Point,
            (Number::Point | Number::Fraction, b'0'..=b'9') => Number::Fraction,
            (Number::Zero | Number::Digits | Number::Fraction, b'e' | b'E') => Number::E,
            (Number::E, b'+' | b'-') => Number::Sign,
            (Number::E | Number::Sign | Number::Exponent, b'0'..=b'9') => Number::Exponent,
            (Number::Zero | Number::Digits | Number::Fraction | Number::Exponent, _) => {
                return match self.ended() {
                    JsonProgress::Done => JsonProgress::Before,
                    _ => self.push(byte),
                };
            }
            _ => return JsonProgress::Bad,
        };
        self.go(Place::Number(next))
    }
}
