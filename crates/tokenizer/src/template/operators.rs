//! What operators, indices and literals of a rewritten template become: functions that charge the budget first.
//!
//! Their names start with [`RESERVED`], which templates may not use.

use minijinja::value::{Kwargs, Rest, Tuple, ValueKind, ValueOrKwargs};
use minijinja::{Environment, Error, Output, State, Value};

use super::budget::{Budget, ELEMENT, invalid, is_namespace};

/// Prefix of names that are not for templates.
pub(super) const RESERVED: &str = "rooflight_";
/// An operand of `~`, as text, and how often the operators behind it copy it.
pub(super) const TEXT: &str = "rooflight_text";
/// An operand of `+`, and the same.
pub(super) const AMOUNT: &str = "rooflight_amount";
/// Operands of a sum of texts, some of which are safe.
pub(super) const JOINED: &str = "rooflight_joined";
/// `*`.
pub(super) const REPEAT: &str = "rooflight_repeat";
/// A list or map that keeps what is in it.
pub(super) const TREE: &str = "rooflight_tree";
/// Operands and, as strings between them, the comparisons of a chain such as `a < b == c`.
pub(super) const COMPARE: &str = "rooflight_compare";
/// `a[b]`.
pub(super) const ITEM: &str = "rooflight_item";
/// `a[b:c:d]`, `none` for what is left out.
pub(super) const SLICE: &str = "rooflight_slice";
/// What a loop goes over.
pub(super) const EACH: &str = "rooflight_each";

/// Bytes that are copied in the time that one is looked at.
const COPIED: usize = 8;

/// Gives an environment the functions that rewritten templates call, and the formatter that charges what they emit.
/// `strict`: what Python cannot go over is an error.
pub(super) fn install(env: &mut Environment<'_>, budget: &Budget, strict: bool) {
    let b = budget.clone();
    env.add_function(TEXT, move |value: Value, copies: usize| {
        b.read(b.size(&value)?.saturating_mul(copies) / COPIED)?;
        match value.kind() {
            ValueKind::String => b.settle(value),
            _ => b.text_of(&value).map(Value::from),
        }
    });
    let b = budget.clone();
    env.add_function(AMOUNT, move |value: Value, copies: usize| {
        b.read(b.size(&value)?.saturating_mul(copies) / COPIED)?;
        b.settle(value)
    });
    let b = budget.clone();
    env.add_function(JOINED, move |operands: Rest<Value>| joined(&b, &operands));
    let b = budget.clone();
    env.add_function(REPEAT, move |left: Value, right: Value| repeat(&b, &left, &right));
    let b = budget.clone();
    env.add_function(TREE, move |value: Value| {
        // Assigned to an attribute, a value itself must not be a namespace either.
        let value = b.listed(value)?;
        if is_namespace(&value) {
            return Err(invalid("a namespace cannot be kept in a value"));
        }
        match value.kind() {
            // Charged when it was made.
            ValueKind::String => b.take(ELEMENT)?,
            _ => b.take_tree(&value)?,
        }
        Ok(value)
    });
    let b = budget.clone();
    env.add_function(COMPARE, move |state: &mut State, chain: Rest<Value>| {
        chain.windows(3).step_by(2).try_fold(true, |holds, link| {
            Ok::<bool, Error>(holds && compare(&b, state, &link[0], &link[1], &link[2])?)
        })
    });
    let b = budget.clone();
    env.add_function(ITEM, move |value: &Value, key: &Value| {
        b.read_key(key)?;
        // Characters of a text and what is computed on each use are counted from the start.
        if matches!(value.kind(), ValueKind::String | ValueKind::Iterable) {
            b.read_size(value)?;
        }
        value.get_item(key)
    });
    let b = budget.clone();
    env.add_function(
        SLICE,
        move |value: Value, start: Option<Value>, stop: Option<Value>, step: Option<Value>| {
            slice(&b, &value, start, stop, step)
        },
    );
    let b = budget.clone();
    env.add_function(EACH, move |value: Value| {
        if strict && value.is_none() {
            return Err(invalid("none cannot be gone over by a loop"));
        }
        // The characters of a text are counted first.
        let charged =
            if value.kind() == ValueKind::String { b.read_size(&value) } else { b.read(1) };
        charged.map(|()| value)
    });
    let b = budget.clone();
    env.add_function("namespace", move |defaults: Option<ValueOrKwargs>| {
        if let Some(defaults) = &defaults {
            b.take_tree(&Value::from(defaults.clone()))?;
        }
        minijinja::functions::namespace(defaults)
    });
    let b = budget.clone();
    env.add_function("dict", move |value: Option<Value>, update: Kwargs| {
        if let Some(value) = &value {
            b.take_tree(value)?;
        }
        let value = minijinja::functions::dict(value, update)?;
        b.take_tree(&value).map(|()| value)
    });
    let b = budget.clone();
    env.set_formatter(move |out: &mut Output, _: &mut State, value: &Value| {
        let text = match value.as_str() {
            Some(text) => {
                return b.take(text.len()).and_then(|()| out.write_str(text).map_err(Error::from));
            }
            None => b.text_of(value)?,
        };
        out.write_str(&text).map_err(Error::from)
    });
}

fn compare(
    budget: &Budget,
    state: &State,
    left: &Value,
    operator: &Value,
    right: &Value,
) -> Result<bool, Error> {
    let operator = operator.as_str().unwrap_or_default();
    if matches!(operator, "in" | "not in") {
        budget.read_in(left, right)?;
        if right.as_bytes().is_none() && right.as_object().is_none() && !right.is_undefined() {
            return Err(invalid(format!("cannot look for something in a {}", right.kind())));
        }
        return Ok(minijinja::tests::is_in(state, left, right)? == (operator == "in"));
    }
    budget.read_pair(left, right)?;
    Ok(match operator {
        "==" => left == right,
        "!=" => left != right,
        "<" => left < right,
        "<=" => left <= right,
        ">" => left > right,
        ">=" => left >= right,
        other => return Err(invalid(format!("unknown comparison {other}"))),
    })
}

/// Texts one after another as Python's `Markup` adds them: beside safe text, other text is escaped, and the sum is safe.
fn joined(budget: &Budget, operands: &[Value]) -> Result<Value, Error> {
    let (mut sum, mut is_safe) = (String::new(), false);
    for operand in operands {
        let Some(text) = operand.as_str() else {
            return Err(invalid(format!("a {} cannot be added to safe text", operand.kind())));
        };
        // Escaped, either is at most five times as long.
        budget.take((sum.len() + text.len()).saturating_mul(5))?;
        match (is_safe, operand.is_safe()) {
            (true, false) => sum.push_str(&escaped(text)),
            (false, true) => sum = escaped(&sum) + text,
            _ => sum.push_str(text),
        }
        is_safe |= operand.is_safe();
    }
    Ok(if is_safe { Value::from_safe_string(sum) } else { Value::from(sum) })
}

/// Text as HTML.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&#34;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
    out
}

/// `left * right`: numbers, or text or a list so many times.
fn repeat(budget: &Budget, left: &Value, right: &Value) -> Result<Value, Error> {
    let (thing, times) = if right.is_integer() { (left, right) } else { (right, left) };
    let times = || usize::try_from(times.as_i64().unwrap_or(0).max(0)).unwrap_or(usize::MAX);
    if let (Some(text), true) = (thing.as_str(), left.is_integer() || right.is_integer()) {
        budget.take(text.len().saturating_mul(times()))?;
        return Ok(Value::from(text.repeat(times())));
    }
    if thing.kind() == ValueKind::Seq && (left.is_integer() || right.is_integer()) {
        budget.take(thing.len().unwrap_or(0).saturating_mul(times()).saturating_mul(ELEMENT))?;
        let once: Vec<Value> = thing.try_iter()?.collect();
        let len = once.len().saturating_mul(times());
        return Ok(Value::from(once.into_iter().cycle().take(len).collect::<Vec<_>>()));
    }
    if let (Some(a), Some(b)) = (left.as_i64(), right.as_i64()) {
        return a.checked_mul(b).map(Value::from).ok_or_else(|| invalid("integer too large"));
    }
    match (f64::try_from(left.clone()), f64::try_from(right.clone())) {
        (Ok(a), Ok(b)) => Ok(Value::from(a * b)),
        _ => Err(invalid(format!("cannot multiply {} by {}", left.kind(), right.kind()))),
    }
}

/// `value[start:stop:step]` as Python cuts it.
fn slice(
    budget: &Budget,
    value: &Value,
    start: Option<Value>,
    stop: Option<Value>,
    step: Option<Value>,
) -> Result<Value, Error> {
    let number = |bound: Option<Value>| match bound.filter(|v| !v.is_none() && !v.is_undefined()) {
        None => Ok(None),
        Some(bound) => bound.as_i64().map(Some).ok_or_else(|| {
            invalid(format!("the bounds of a slice must be integers, found a {}", bound.kind()))
        }),
    };
    let (start, stop, step) = (number(start)?, number(stop)?, number(step)?.unwrap_or(1));
    if step == 0 {
        return Err(invalid("cannot slice by a step of 0"));
    }
    budget.read_size(value)?;
    budget.take(budget.size(value)?)?;
    match value.kind() {
        ValueKind::String => {
            let text = value.as_str().unwrap_or_default();
            if step == 1 && text.is_ascii() {
                let (from, to) = ascending(start, stop, text.len());
                return Ok(Value::from(&text[from..to.max(from)]));
            }
            let chars: Vec<char> = text.chars().collect();
            Ok(Value::from(
                indices(start, stop, step, chars.len()).map(|i| chars[i]).collect::<String>(),
            ))
        }
        ValueKind::Seq | ValueKind::Iterable => {
            let items: Vec<Value> = value.try_iter()?.collect();
            let chosen = indices(start, stop, step, items.len()).map(|i| items[i].clone());
            Ok(match value.is_tuple() {
                true => Value::from(Tuple::from(chosen.collect::<Vec<_>>())),
                false => Value::from(chosen.collect::<Vec<_>>()),
            })
        }
        ValueKind::Undefined | ValueKind::None => Ok(Value::from(Vec::<Value>::new())),
        kind => Err(invalid(format!("a {kind} cannot be sliced"))),
    }
}

/// Where an ascending slice begins and ends.
fn ascending(start: Option<i64>, stop: Option<i64>, len: usize) -> (usize, usize) {
    let place = |at: i64| {
        let back = || len.saturating_sub(usize::try_from(at.unsigned_abs()).unwrap_or(usize::MAX));
        usize::try_from(at).map_or_else(|_| back(), |at| at.min(len))
    };
    (start.map_or(0, place), stop.map_or(len, place))
}

/// The positions that a slice of `len` elements takes, in its order.
fn indices(
    start: Option<i64>,
    stop: Option<i64>,
    step: i64,
    len: usize,
) -> Box<dyn Iterator<Item = usize>> {
    let stride = usize::try_from(step.unsigned_abs()).unwrap_or(usize::MAX);
    if step > 0 {
        let (from, to) = ascending(start, stop, len);
        return Box::new((from..to).step_by(stride));
    }
    // Backwards from `start`, which is included, to `stop`, which is not: shifted by one, both are ends of a range.
    let end =
        |at: i64| if at == -1 { len } else { ascending(Some(at.saturating_add(1)), None, len).0 };
    let (to, from) = (stop.map_or(0, end), start.map_or(len, end));
    Box::new((to..from).rev().step_by(stride))
}
