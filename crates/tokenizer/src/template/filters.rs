//! Filters and methods that make more than they are given, written anew so that they are charged before or while they
//! make it.

use minijinja::formatting::{FormatStyle, format as engine_format};
use minijinja::{Error, Value};

use super::budget::{Budget, ELEMENT, invalid};

/// Most digits in a row in a format string: widths and precisions stay below 10,000.
const MAX_WIDTH_DIGITS: usize = 4;
/// Longest number as text, without padding: `%f` of the greatest float and its default precision.
const MAX_NUMBER: usize = 320;
/// Most bytes that a list or map takes when it is written out, for each byte or part of an element in it: a control
/// character becomes `\\u{1}`, a float has up to 312 digits.
const MAX_SPELLING: usize = 16;

pub(super) fn replace(
    budget: &Budget,
    text: &str,
    from: &str,
    to: &str,
    count: Option<i64>,
) -> Result<String, Error> {
    budget.read(text.len().saturating_add(from.len()))?;
    let times = count
        .and_then(|n| usize::try_from(n).ok())
        .unwrap_or(usize::MAX)
        .min(text.matches(from).count());
    budget.take(text.len().saturating_add(to.len().saturating_mul(times)))?;
    Ok(text.replacen(from, to, times))
}

pub(super) fn join(
    budget: &Budget,
    values: &Value,
    between: &str,
    attribute: Option<&Value>,
) -> Result<String, Error> {
    budget.read_size(values)?;
    let mut text = String::new();
    for (i, value) in values.try_iter()?.enumerate() {
        if i > 0 {
            budget.take(between.len())?;
            text.push_str(between);
        }
        let value = match attribute {
            Some(key) => {
                budget.read_key(key)?;
                value.get_item(key)?
            }
            None => value,
        };
        match value.as_str() {
            Some(part) => {
                budget.take(part.len())?;
                text.push_str(part);
            }
            None => text.push_str(&budget.text_of(&value)?),
        }
        budget.read(ELEMENT)?;
    }
    Ok(text)
}

pub(super) fn indent(
    budget: &Budget,
    text: &str,
    width: usize,
    first: bool,
    blank: bool,
) -> Result<String, Error> {
    budget.read(text.len())?;
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

/// The pieces of a text as a list, charged one by one.
pub(super) fn pieces<'t>(
    budget: &Budget,
    text: &'t str,
    pieces: impl Iterator<Item = &'t str>,
) -> Result<Value, Error> {
    budget.read(text.len())?;
    let mut list = Vec::new();
    for piece in pieces {
        budget.take(piece.len().saturating_add(ELEMENT))?;
        list.push(Value::from(piece));
    }
    Ok(Value::from(list))
}

/// `split`: at a separator or at white space, `times` times at most; a negative number is no bound.
pub(super) fn split(
    budget: &Budget,
    text: &str,
    separator: Option<&str>,
    times: Option<i64>,
) -> Result<Value, Error> {
    let most =
        times.and_then(|n| usize::try_from(n).ok()).map_or(usize::MAX, |n| n.saturating_add(1));
    match separator {
        Some("") => Err(invalid("empty separator")),
        Some(separator) => {
            budget.read(separator.len())?;
            pieces(budget, text, text.splitn(most, separator))
        }
        None if most == usize::MAX => pieces(budget, text, text.split_whitespace()),
        None => {
            let mut rest = text.trim_start();
            let mut n = 0;
            let next = std::iter::from_fn(|| {
                n += 1;
                let end = rest.find(char::is_whitespace).filter(|_| n < most).unwrap_or(rest.len());
                let (piece, after) = rest.split_at(end);
                rest = after.trim_start();
                // What is left keeps the white space within it, as in Python, but not behind it.
                Some(if n == most { piece.trim_end() } else { piece }).filter(|p| !p.is_empty())
            });
            pieces(budget, text, next)
        }
    }
}

/// `rsplit`: the same from the end.
pub(super) fn rsplit(
    budget: &Budget,
    text: &str,
    separator: &str,
    times: Option<i64>,
) -> Result<Value, Error> {
    if separator.is_empty() {
        return Err(invalid("empty separator"));
    }
    let most =
        times.and_then(|n| usize::try_from(n).ok()).map_or(usize::MAX, |n| n.saturating_add(1));
    budget.read(separator.len())?;
    // Cuts `most - 1` times, found from the end: what is before the first of them is one piece.
    budget.read(text.len())?;
    let cuts =
        text.rmatch_indices(separator).take(most - 1).last().map_or(text.len(), |(at, _)| at);
    let head = std::iter::once(&text[..cuts]);
    let tail = text.get(cuts + separator.len()..).filter(|_| cuts < text.len());
    pieces(budget, text, head.chain(tail.into_iter().flat_map(|tail| tail.split(separator))))
}

/// `splitlines`.
pub(super) fn split_lines(budget: &Budget, text: &str, keep_ends: bool) -> Result<Value, Error> {
    match keep_ends {
        true => pieces(budget, text, text.split_inclusive('\n')),
        false => pieces(budget, text, text.lines()),
    }
}

/// `sum`: what is no number grows with each item, so each step is charged with all before it.
pub(super) fn read_sum(
    budget: &Budget,
    values: &Value,
    attribute: Option<&str>,
) -> Result<(), Error> {
    let mut sum = 0_usize;
    for item in values.try_iter()? {
        budget.read(ELEMENT)?;
        let item = match attribute {
            Some(path) => {
                // Each name of the path is copied.
                budget.read(path.len().saturating_mul(ELEMENT))?;
                attribute_of(&item, path)
            }
            None => item,
        };
        if !item.is_number() {
            sum = sum.saturating_add(budget.size(&item)?);
            budget.take(sum)?;
        }
    }
    Ok(())
}

/// What `attribute="a.b"` of a filter means; undefined if there is none.
fn attribute_of(item: &Value, path: &str) -> Value {
    path.split('.').fold(item.clone(), |value, name| {
        match name.parse::<usize>() {
            Ok(index) => value.get_item_by_index(index),
            Err(_) => value.get_attr(name),
        }
        .unwrap_or_default()
    })
}

/// `str.format` and the `format` filter. Fields may repeat, so the most they can make is charged first.
pub(super) fn format(
    budget: &Budget,
    style: FormatStyle,
    pattern: &str,
    arguments: &[Value],
) -> Result<Value, Error> {
    budget.read(pattern.len())?;
    let mut padding = 0_usize;
    for digits in pattern.split(|c: char| !c.is_ascii_digit()).filter(|digits| !digits.is_empty()) {
        if digits.len() > MAX_WIDTH_DIGITS {
            return Err(invalid("format with a very wide field"));
        }
        // A character to pad with has up to four bytes.
        padding = padding.saturating_add(4 * digits.parse().unwrap_or(0_usize));
    }
    if pattern.contains('*') {
        return Err(invalid("format with a very wide field"));
    }
    let mut longest = MAX_NUMBER;
    for value in arguments {
        longest = longest.max(match value.as_object() {
            Some(_) => budget.read_tree(value)?.saturating_mul(MAX_SPELLING),
            None => value.as_bytes().map_or(0, <[u8]>::len),
        });
    }
    let fields = pattern.matches(['{', '%']).count().saturating_mul(longest);
    budget.take(pattern.len().saturating_add(padding).saturating_add(fields))?;
    engine_format(style, pattern, arguments).map(Value::from)
}
