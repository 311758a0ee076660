//! Filters, tests, functions and methods that chat templates expect, as Hugging Face's `transformers` gives them.

use std::fmt::Write as _;
use std::io;

use minijinja::value::{Kwargs, Rest, ValueKind, ValueOrKwargs, from_args};
use minijinja::{Environment, Error, ErrorKind, State, Value};
use serde::Serialize as _;
use serde_json::ser::{CharEscape, Formatter};

use super::limits::{Budget, invalid};

/// Filters of the engine that a chat template has no use for and that could be made to take much.
const REMOVED: &[&str] = &["batch", "chain", "groupby", "pprint", "slice", "zip"];

/// Most digits in a row in a format string: widths stay below 10,000.
const MAX_WIDTH_DIGITS: usize = 4;

/// Adds what chat templates expect; `now` is the time for `strftime_now`, in seconds since 1970.
pub(super) fn install(env: &mut Environment<'_>, budget: &Budget, now: i64) {
    for name in REMOVED {
        env.remove_filter(name);
    }
    env.remove_global("debug");
    env.add_function("raise_exception", |message: String| -> Result<Value, Error> {
        Err(invalid(message))
    });
    env.add_function("strftime_now", move |format: &str| super::clock::format(format, now));
    env.add_test("iterable", |value: &Value| {
        !value.is_undefined()
            && !value.is_none()
            && (value.kind() == ValueKind::String || value.try_iter().is_ok())
    });
    let b = budget.clone();
    env.add_filter("tojson", move |value: &Value, indent: Option<Value>, options: Kwargs| {
        to_json(&b, value, indent, &options)
    });
    let b = budget.clone();
    env.add_filter("string", move |value: Value| {
        if value.kind() == ValueKind::String {
            Ok(value)
        } else {
            b.text_of(&value).map(Value::from)
        }
    });
    let b = budget.clone();
    env.add_filter("join", move |value: &Value, joiner: Option<Value>, options: Kwargs| {
        let attribute: Option<Value> = options.get("attribute")?;
        options.assert_all_used()?;
        join(&b, value, joiner.as_ref().and_then(|j| j.as_str()).unwrap_or(""), attribute.as_ref())
    });
    let b = budget.clone();
    env.add_filter("replace", move |value: &str, from: &str, to: &str| {
        replace(&b, value, from, to, None)
    });
    let b = budget.clone();
    env.add_filter(
        "indent",
        move |value: &str,
              width: Option<usize>,
              first: Option<bool>,
              blank: Option<bool>,
              options: Kwargs| {
            let width = options.get::<Option<usize>>("width")?.or(width).unwrap_or(4);
            let first = options.get::<Option<bool>>("first")?.or(first).unwrap_or(false);
            let blank = options.get::<Option<bool>>("blank")?.or(blank).unwrap_or(false);
            options.assert_all_used()?;
            indent(&b, value, width, first, blank)
        },
    );
    env.add_filter(
        "format",
        |state: &mut State, pattern: &Value, arguments: Rest<ValueOrKwargs>| {
            check_widths(pattern.as_str().unwrap_or(""))?;
            minijinja::filters::format(state, pattern, arguments)
        },
    );
    let b = budget.clone();
    env.set_unknown_method_callback(
        move |state: &mut State, value: &Value, method: &str, arguments: &[Value]| {
            call_method(&b, state, value, method, arguments)
        },
    );
}

/// Python's methods of strings, maps and lists, with bounded results.
fn call_method(
    budget: &Budget,
    state: &mut State,
    value: &Value,
    method: &str,
    arguments: &[Value],
) -> Result<Value, Error> {
    let result = match (method, value.as_str()) {
        ("replace", Some(text)) => {
            let (from, to, count): (&str, &str, Option<i64>) = from_args(arguments)?;
            return replace(budget, text, from, to, count).map(Value::from);
        }
        ("join", Some(text)) => {
            let (values,): (&Value,) = from_args(arguments)?;
            return join(budget, values, text, None).map(Value::from);
        }
        ("format", Some(text)) => {
            check_widths(text)?;
            minijinja_contrib::pycompat::unknown_method_callback(state, value, method, arguments)?
        }
        ("removeprefix" | "removesuffix", Some(text)) => {
            let (end,): (&str,) = from_args(arguments)?;
            let cut = if method == "removeprefix" {
                text.strip_prefix(end)
            } else {
                text.strip_suffix(end)
            };
            Value::from(cut.unwrap_or(text))
        }
        ("rsplit", Some(text)) => {
            let (separator, times): (&str, Option<usize>) = from_args(arguments)?;
            if separator.is_empty() {
                return Err(invalid("empty separator"));
            }
            let mut parts: Vec<&str> = text
                .rsplitn(times.unwrap_or(usize::MAX - 1).saturating_add(1), separator)
                .collect();
            parts.reverse();
            Value::from_iter(parts)
        }
        _ => minijinja_contrib::pycompat::unknown_method_callback(state, value, method, arguments)?,
    };
    budget.settle(result)
}

fn replace(
    budget: &Budget,
    text: &str,
    from: &str,
    to: &str,
    count: Option<i64>,
) -> Result<String, Error> {
    let times = count
        .and_then(|n| usize::try_from(n).ok())
        .unwrap_or(usize::MAX)
        .min(text.matches(from).count());
    budget.take(text.len().saturating_add(to.len().saturating_mul(times)))?;
    Ok(text.replacen(from, to, times))
}

fn join(
    budget: &Budget,
    values: &Value,
    between: &str,
    attribute: Option<&Value>,
) -> Result<String, Error> {
    let mut text = String::new();
    for (i, value) in values.try_iter()?.enumerate() {
        if i > 0 {
            budget.take(between.len())?;
            text.push_str(between);
        }
        let value = attribute.map_or(Ok(value.clone()), |key| value.get_item(key))?;
        match value.as_str() {
            Some(part) => {
                budget.take(part.len())?;
                text.push_str(part);
            }
            None => text.push_str(&budget.text_of(&value)?),
        }
    }
    Ok(text)
}

fn indent(
    budget: &Budget,
    text: &str,
    width: usize,
    first: bool,
    blank: bool,
) -> Result<String, Error> {
    budget.take(text.len().saturating_add(width.saturating_mul(text.matches('\n').count() + 1)))?;
    let margin = " ".repeat(width);
    let mut indented = String::with_capacity(text.len());
    for (i, line) in text.split('\n').enumerate() {
        if i > 0 {
            indented.push('\n');
        }
        if (i > 0 || first) && (blank || !line.is_empty()) {
            indented.push_str(&margin);
        }
        indented.push_str(line);
    }
    Ok(indented)
}

/// Refuses format strings that ask for very wide fields.
fn check_widths(pattern: &str) -> Result<(), Error> {
    let too_wide =
        pattern.split(|c: char| !c.is_ascii_digit()).any(|digits| digits.len() > MAX_WIDTH_DIGITS);
    if too_wide || pattern.contains('*') {
        Err(invalid("format with a very wide field"))
    } else {
        Ok(())
    }
}

/// `json.dumps` of Python with the options of `transformers`: not ASCII only, no HTML escapes, `", "` and `": "`.
fn to_json(
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
    budget.take_tree(value)?;
    let mut json = serde_json::to_value(value).map_err(|e| invalid(format!("tojson: {e}")))?;
    if sort {
        json.sort_all_objects();
    }
    let mut out = Charged { budget, bytes: Vec::new() };
    let style = Python { item, key, indent, ascii, level: 0, empty: true };
    json.serialize(&mut serde_json::Serializer::with_formatter(&mut out, style))
        .map_err(|_| budget.exceeded())?;
    String::from_utf8(out.bytes).map_err(|_| Error::from(ErrorKind::BadSerialization))
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
