//! Bounds on the memory a template takes: a budget of bytes that everything which can grow is charged to.
//!
//! The engine bounds steps (fuel), not sizes. `rewrite.rs` therefore routes what can grow through the functions here.
//! Their names start with [`RESERVED`], which templates may not use.

use std::fmt::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use minijinja::value::{Kwargs, ValueKind, ValueOrKwargs};
use minijinja::{Environment, Error, ErrorKind, Output, State, Value};

/// Prefix of names that are not for templates.
pub(super) const RESERVED: &str = "rooflight_";
/// Function: an operand of `~`, as text.
pub(super) const TEXT: &str = "rooflight_text";
/// Function: an operand of `+`, or what is sliced.
pub(super) const AMOUNT: &str = "rooflight_amount";
/// Function: `*`.
pub(super) const REPEAT: &str = "rooflight_repeat";
/// Function: a list or map that keeps what is in it.
pub(super) const TREE: &str = "rooflight_tree";
/// Filter: what a filter returned.
pub(super) const CHARGE: &str = "rooflight_charge";

/// What an element of a list is charged, in bytes.
const ELEMENT: usize = 24;
/// Deepest nesting of lists and maps.
const MAX_DEPTH: usize = 64;

/// Bytes that one rendering may still produce, all intermediate results together.
#[derive(Clone)]
pub(super) struct Budget {
    left: Arc<AtomicU64>,
    of: u64,
}

impl Budget {
    pub(super) fn new(bytes: u64) -> Budget {
        Budget { left: Arc::new(AtomicU64::new(bytes)), of: bytes }
    }

    /// Takes `n` bytes, or fails.
    pub(super) fn take(&self, n: usize) -> Result<(), Error> {
        let take = |left: u64| left.checked_sub(n as u64);
        match self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take) {
            Ok(_) => Ok(()),
            Err(_) => Err(self.exceeded()),
        }
    }

    /// The error of a template that takes more than this.
    pub(super) fn exceeded(&self) -> Error {
        invalid(format!("produces more than {} MiB of text", self.of >> 20))
    }

    /// Takes the size of a value. What would be computed anew on each use becomes a list.
    pub(super) fn settle(&self, value: Value) -> Result<Value, Error> {
        match value.kind() {
            ValueKind::String | ValueKind::Bytes => {
                self.take(value.as_bytes().map_or(0, <[u8]>::len))?;
                Ok(value)
            }
            ValueKind::Iterable => {
                let mut list = Vec::new();
                for item in value.try_iter()? {
                    self.take(ELEMENT)?;
                    list.push(item);
                }
                Ok(Value::from(list))
            }
            _ => {
                self.take(value.len().unwrap_or(0).saturating_mul(ELEMENT))?;
                Ok(value)
            }
        }
    }

    /// Takes the size of all that a value holds, however often it holds the same thing.
    pub(super) fn take_tree(&self, value: &Value) -> Result<(), Error> {
        let mut open = vec![(value.clone(), 0)];
        while let Some((value, depth)) = open.pop() {
            if depth > MAX_DEPTH {
                return Err(invalid(format!("list nested deeper than {MAX_DEPTH}")));
            }
            self.take(ELEMENT)?;
            match value.kind() {
                ValueKind::String | ValueKind::Bytes => {
                    self.take(value.as_bytes().map_or(0, <[u8]>::len))?
                }
                // A namespace inside a value could come to hold that value.
                _ if depth > 0 && is_namespace(&value) => {
                    return Err(invalid("a namespace cannot be kept in a value"));
                }
                ValueKind::Seq | ValueKind::Iterable => {
                    for item in value.try_iter()? {
                        open.push((item, depth + 1));
                        self.take(ELEMENT)?;
                    }
                }
                ValueKind::Map => {
                    for key in value.try_iter()? {
                        open.push((value.get_item(&key)?, depth + 1));
                        open.push((key, depth + 1));
                        self.take(2 * ELEMENT)?;
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// A value as Python writes it, charged while it is written.
    pub(super) fn text_of(&self, value: &Value) -> Result<String, Error> {
        let mut text = Charged { budget: self, text: String::new(), error: None };
        let written = match value.kind() {
            ValueKind::Undefined => Ok(()),
            ValueKind::None => text.write_str("None"),
            ValueKind::Bool => text.write_str(if value.is_true() { "True" } else { "False" }),
            _ => write!(text, "{value}"),
        };
        match (text.error, written) {
            (Some(error), _) => Err(error),
            (None, Err(_)) => Err(Error::from(ErrorKind::WriteFailure)),
            (None, Ok(())) => Ok(text.text),
        }
    }
}

/// A string that stops growing when the budget is used up.
struct Charged<'b> {
    budget: &'b Budget,
    text: String,
    error: Option<Error>,
}

impl Write for Charged<'_> {
    fn write_str(&mut self, s: &str) -> fmt::Result {
        if let Err(error) = self.budget.take(s.len()) {
            self.error = Some(error);
            return Err(fmt::Error);
        }
        self.text.push_str(s);
        Ok(())
    }
}

pub(super) fn invalid(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidOperation, message.into())
}

fn is_namespace(value: &Value) -> bool {
    value.as_object().is_some_and(|object| object.type_name().ends_with("::Namespace"))
}

/// Gives an environment the functions that rewritten templates call, and the formatter that charges what they emit.
pub(super) fn install(env: &mut Environment<'_>, budget: &Budget) {
    let b = budget.clone();
    env.add_function(TEXT, move |value: Value| match value.kind() {
        ValueKind::String => b.settle(value),
        _ => b.text_of(&value).map(Value::from),
    });
    let b = budget.clone();
    env.add_function(AMOUNT, move |value: Value| b.settle(value));
    let b = budget.clone();
    env.add_filter(CHARGE, move |value: Value| b.settle(value));
    let b = budget.clone();
    env.add_function(REPEAT, move |left: Value, right: Value| repeat(&b, &left, &right));
    let b = budget.clone();
    env.add_function(TREE, move |value: Value| {
        // Assigned to an attribute, a value itself must not be a namespace either.
        let value = if value.kind() == ValueKind::Iterable { b.settle(value)? } else { value };
        if is_namespace(&value) {
            return Err(invalid("a namespace cannot be kept in a value"));
        }
        b.take_tree(&value).map(|()| value)
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
