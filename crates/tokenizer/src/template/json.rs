//! `tojson`: `json.dumps` of Python with the options of `transformers`.

use std::fmt::Write as _;
use std::io;

use minijinja::value::{Kwargs, ValueKind};
use minijinja::{Error, ErrorKind, Value};
use serde::Serialize as _;
use serde_json::Value as Json;
use serde_json::ser::{CharEscape, Formatter, Serializer};

use super::budget::{Budget, invalid};

/// `json.dumps` of Python with the options of `transformers`: not ASCII only, no HTML escapes, `", "` and `": "`.
pub(super) fn to_json(
    budget: &Budget,
    value: &Value,
    indent: Option<Value>,
    options: &Kwargs,
) -> Result<String, Error> {
    let ascii = options.get::<Option<bool>>("ensure_ascii")?.unwrap_or(false);
    let sort = options.get::<Option<bool>>("sort_keys")?.unwrap_or(false);
    let indent = options.get::<Option<Value>>("indent")?.or(indent).filter(|v| !v.is_none());
    let separators: Option<Vec<String>> = options.get("separators")?;
    options.assert_all_used()?;
    let indent = match indent {
        Some(width) => {
            Some(width.as_usize().ok_or_else(|| invalid("indent of tojson must be a number"))?)
        }
        None => None,
    };
    let (item, key) = match separators.as_deref() {
        None => ((if indent.is_some() { "," } else { ", " }).to_owned(), ": ".to_owned()),
        Some([item, key]) => (item.clone(), key.clone()),
        Some(_) => return Err(invalid("separators of tojson must be two strings")),
    };
    if value.kind() == ValueKind::Iterable {
        return Err(invalid(
            "tojson: what can only be gone over is no list; `list` makes one of it",
        ));
    }
    budget.take_tree(value)?;
    let mut json = serde_json::to_value(value).map_err(|e| invalid(format!("tojson: {e}")))?;
    if sort {
        json.sort_all_objects();
    }
    let mut out = Charged { budget, bytes: Vec::new() };
    let style = Python { item, key, indent, ascii, level: 0, empty: true };
    json.serialize(&mut Serializer::with_formatter(&mut out, style))
        .map_err(|_| budget.exceeded())?;
    String::from_utf8(out.bytes).map_err(|_| Error::from(ErrorKind::BadSerialization))
}

/// Returns JSON as templates write it by default, with spaces after commas and colons. Recurses to the depth of the value, which
/// the JSON reader bounds.
pub fn python_json(value: &Json) -> String {
    let (item, key) = (", ".to_owned(), ": ".to_owned());
    let style = Python { item, key, indent: None, ascii: false, level: 0, empty: true };
    let mut out = Vec::new();
    value
        .serialize(&mut Serializer::with_formatter(&mut out, style))
        .expect("writing to memory does not fail");
    String::from_utf8(out).expect("JSON is UTF-8")
}

/// Output that stops growing when the budget is used up.
struct Charged<'b> {
    budget: &'b Budget,
    bytes: Vec<u8>,
}

impl io::Write for Charged<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.budget.take(bytes.len()).map_err(io::Error::other)?;
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// JSON as Python's `json.dumps` lays it out.
struct Python {
    item: String,
    key: String,
    indent: Option<usize>,
    ascii: bool,
    level: usize,
    /// Whether the innermost array or object has nothing in it so far.
    empty: bool,
}

impl Python {
    fn open<W: ?Sized + io::Write>(&mut self, out: &mut W, bracket: &str) -> io::Result<()> {
        self.level += 1;
        self.empty = true;
        out.write_all(bracket.as_bytes())
    }

    fn close<W: ?Sized + io::Write>(&mut self, out: &mut W, bracket: &str) -> io::Result<()> {
        self.level -= 1;
        if !self.empty {
            self.new_line(out)?;
        }
        self.empty = false;
        out.write_all(bracket.as_bytes())
    }

    fn next<W: ?Sized + io::Write>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        if !first {
            out.write_all(self.item.as_bytes())?;
        }
        self.empty = false;
        self.new_line(out)
    }

    fn new_line<W: ?Sized + io::Write>(&self, out: &mut W) -> io::Result<()> {
        let Some(width) = self.indent else { return Ok(()) };
        out.write_all(b"\n")?;
        (0..self.level).try_for_each(|_| (0..width).try_for_each(|_| out.write_all(b" ")))
    }
}

impl Formatter for Python {
    fn begin_array<W: ?Sized + io::Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.open(out, "[")
    }

    fn end_array<W: ?Sized + io::Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.close(out, "]")
    }

    fn begin_array_value<W: ?Sized + io::Write>(
        &mut self,
        out: &mut W,
        first: bool,
    ) -> io::Result<()> {
        self.next(out, first)
    }

    fn begin_object<W: ?Sized + io::Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.open(out, "{")
    }

    fn end_object<W: ?Sized + io::Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.close(out, "}")
    }

    fn begin_object_key<W: ?Sized + io::Write>(
        &mut self,
        out: &mut W,
        first: bool,
    ) -> io::Result<()> {
        self.next(out, first)
    }

    fn begin_object_value<W: ?Sized + io::Write>(&mut self, out: &mut W) -> io::Result<()> {
        out.write_all(self.key.as_bytes())
    }

    fn write_string_fragment<W: ?Sized + io::Write>(
        &mut self,
        out: &mut W,
        text: &str,
    ) -> io::Result<()> {
        if !self.ascii || text.is_ascii() {
            return out.write_all(text.as_bytes());
        }
        let mut escaped = String::new();
        for c in text.chars() {
            if c.is_ascii() {
                escaped.push(c);
                continue;
            }
            for unit in c.encode_utf16(&mut [0; 2]) {
                write!(escaped, "\\u{unit:04x}").map_err(io::Error::other)?;
            }
        }
        out.write_all(escaped.as_bytes())
    }

    fn write_char_escape<W: ?Sized + io::Write>(
        &mut self,
        out: &mut W,
        escape: CharEscape,
    ) -> io::Result<()> {
        let text = match escape {
            CharEscape::Quote => "\\\"",
            CharEscape::ReverseSolidus => "\\\\",
            CharEscape::Solidus => "/",
            CharEscape::Backspace => "\\b",
            CharEscape::FormFeed => "\\f",
            CharEscape::LineFeed => "\\n",
            CharEscape::CarriageReturn => "\\r",
            CharEscape::Tab => "\\t",
            CharEscape::AsciiControl(byte) => return write!(out, "\\u{byte:04x}"),
        };
        out.write_all(text.as_bytes())
    }
}
