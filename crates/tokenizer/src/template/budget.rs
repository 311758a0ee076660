//! What one rendering may take: bytes made, units of work, and whether somebody asked to stop.
//!
//! The engine bounds steps (fuel), not sizes, and one step may read megabytes. So everything that a template calls is
//! charged here, before it is done: what it makes in bytes, what it reads in units of work, one to a byte of text and
//! [`ELEMENT`] to an element of a list.

use std::fmt::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use minijinja::value::{ValueIter, ValueKind};
use minijinja::{Error, ErrorKind, Value};

/// What an element of a list is charged, in bytes or in units of work.
pub(super) const ELEMENT: usize = 24;
/// Deepest nesting of lists and maps.
const MAX_DEPTH: usize = 64;

/// What a rendering took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Bytes of text and lists made, all intermediate results together.
    pub made: u64,
    /// Units of work: bytes of text and elements of lists that were read.
    pub work: u64,
}

/// The budget of one rendering; clones share it.
#[derive(Clone)]
pub(super) struct Budget(Arc<Shared>);

struct Shared {
    made: AtomicU64,
    work: AtomicU64,
    limits: Usage,
    cancel: Arc<AtomicBool>,
}

impl Budget {
    pub(super) fn new(limits: Usage, cancel: Arc<AtomicBool>) -> Budget {
        let (made, work) = (AtomicU64::new(0), AtomicU64::new(0));
        Budget(Arc::new(Shared { made, work, limits, cancel }))
    }

    /// A budget that never ends.
    pub(super) fn unlimited() -> Budget {
        Budget::new(Usage { made: u64::MAX, work: u64::MAX }, Arc::default())
    }

    /// What was taken so far.
    pub(super) fn usage(&self) -> Usage {
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Usage { made: load(&self.0.made), work: load(&self.0.work) }
    }

    /// Takes `n` bytes that are about to be made, or fails.
    pub(super) fn take(&self, n: usize) -> Result<(), Error> {
        self.check_cancel()?;
        if add(&self.0.made, n, self.0.limits.made) { Ok(()) } else { Err(self.exceeded()) }
    }

    /// Takes `n` units of work that is about to be done, and one for the call, or fails.
    pub(super) fn read(&self, n: usize) -> Result<(), Error> {
        self.check_cancel()?;
        if add(&self.0.work, n.saturating_add(1), self.0.limits.work) {
            return Ok(());
        }
        let millions = self.0.limits.work / 1_000_000;
        Err(invalid(format!("reads more than {millions} million bytes of text and lists")))
    }

    fn check_cancel(&self) -> Result<(), Error> {
        match self.0.cancel.load(Ordering::Relaxed) {
            true => Err(invalid("cancelled")),
            false => Ok(()),
        }
    }

    /// The error of a template that makes more than this.
    pub(super) fn exceeded(&self) -> Error {
        invalid(format!("produces more than {} MiB of text", self.0.limits.made >> 20))
    }

    /// Takes the work of looking at a value and the elements in it, but not inside these.
    pub(super) fn read_size(&self, value: &Value) -> Result<(), Error> {
        self.read(self.size(value)?)
    }

    /// Bytes of a text; of a list or map its elements, charged if they must be computed to be counted.
    pub(super) fn size(&self, value: &Value) -> Result<usize, Error> {
        Ok(match value.as_bytes() {
            Some(bytes) => bytes.len(),
            None => self.count(value)?.saturating_mul(ELEMENT),
        })
    }

    /// Elements of a list or map; of a text its bytes, which are no fewer than its characters.
    pub(super) fn count(&self, value: &Value) -> Result<usize, Error> {
        if let Some(bytes) = value.as_bytes() {
            return Ok(bytes.len());
        }
        match (value.kind(), value.len()) {
            (_, Some(len)) => Ok(len),
            (ValueKind::Iterable, None) => {
                let mut n = 0;
                for _ in value.try_iter()? {
                    self.read(ELEMENT)?;
                    n += 1;
                }
                Ok(n)
            }
            (_, None) => Ok(0),
        }
    }

    /// Takes the work of looking at all that a value holds, however often it holds the same thing; says how much.
    pub(super) fn read_tree(&self, value: &Value) -> Result<usize, Error> {
        let mut total = 0_usize;
        let mut walk = Walk::new(value);
        while let Some(value) = walk.next()? {
            let size = own_size(&value);
            self.read(size)?;
            total = total.saturating_add(size);
        }
        Ok(total)
    }

    /// Takes the work of comparing two values: at most all of the smaller one.
    pub(super) fn read_pair(&self, a: &Value, b: &Value) -> Result<(), Error> {
        if let (Some(a), Some(b)) = (a.as_bytes(), b.as_bytes()) {
            return self.read(a.len().min(b.len()));
        }
        if a.as_object().is_none() || b.as_object().is_none() {
            return self.read(1);
        }
        let (mut walks, mut sums) = ([Walk::new(a), Walk::new(b)], [0_usize; 2]);
        loop {
            let behind = usize::from(sums[0] > sums[1]);
            let Some(value) = walks[behind].next()? else { return Ok(()) };
            let size = own_size(&value);
            self.read(size)?;
            sums[behind] = sums[behind].saturating_add(size.max(1));
        }
    }

    /// Takes the work of looking for `value` in `container`.
    pub(super) fn read_in(&self, value: &Value, container: &Value) -> Result<(), Error> {
        // What is no text is searched for in a text as if it were written out.
        if container.as_str().is_some() && value.as_object().is_some() {
            return Err(invalid(format!("cannot look for a {} in a text", value.kind())));
        }
        self.read_key(value)?;
        match container.kind() {
            ValueKind::Map | ValueKind::Plain => self.read(1),
            ValueKind::Seq | ValueKind::Iterable => self.read_tree(container).map(drop),
            _ => self.read_size(container),
        }
    }

    /// Takes the work of hashing or comparing a key.
    pub(super) fn read_key(&self, key: &Value) -> Result<(), Error> {
        match key.as_object() {
            Some(_) => self.read_tree(key).map(drop),
            None => self.read_size(key),
        }
    }

    /// Takes the size of a value. What would be computed anew on each use becomes a list.
    pub(super) fn settle(&self, value: Value) -> Result<Value, Error> {
        match value.kind() {
            ValueKind::String | ValueKind::Bytes => {
                self.take(own_size(&value))?;
                Ok(value)
            }
            ValueKind::Iterable => self.listed(value),
            _ => {
                self.take(value.len().unwrap_or(0).saturating_mul(ELEMENT))?;
                Ok(value)
            }
        }
    }

    /// The value; a list, charged, if it would be computed anew on each use.
    pub(super) fn listed(&self, value: Value) -> Result<Value, Error> {
        if value.kind() != ValueKind::Iterable {
            return Ok(value);
        }
        let mut list = Vec::new();
        for item in value.try_iter()? {
            self.take(ELEMENT)?;
            list.push(item);
        }
        Ok(Value::from(list))
    }

    /// Takes the size of all that a value holds, however often it holds the same thing.
    pub(super) fn take_tree(&self, value: &Value) -> Result<(), Error> {
        let mut walk = Walk::new(value);
        while let Some(value) = walk.next()? {
            self.take(own_size(&value).saturating_add(2 * ELEMENT))?;
            // A namespace inside a value could come to hold that value.
            if !walk.is_first && is_namespace(&value) {
                return Err(invalid("a namespace cannot be kept in a value"));
            }
            walk.is_first = false;
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

/// Adds `n` if that stays within `limit`.
fn add(count: &AtomicU64, n: usize, limit: u64) -> bool {
    let within = |used: u64| used.checked_add(n as u64).filter(|sum| *sum <= limit);
    count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, within).is_ok()
}

/// Bytes of a text, [`ELEMENT`] for anything else.
fn own_size(value: &Value) -> usize {
    value.as_bytes().map_or(ELEMENT, <[u8]>::len)
}

/// All values in a value, itself first, each as often as it is reached; of maps also the keys.
struct Walk {
    /// What was reached and not yet handed out.
    next: Vec<Value>,
    /// Lists and maps around it, and what of them is left.
    around: Vec<(Value, ValueIter)>,
    is_first: bool,
}

impl Walk {
    fn new(value: &Value) -> Walk {
        Walk { next: vec![value.clone()], around: Vec::new(), is_first: true }
    }

    fn next(&mut self) -> Result<Option<Value>, Error> {
        while self.next.is_empty() {
            let Some((around, items)) = self.around.last_mut() else { return Ok(None) };
            let Some(item) = items.next() else {
                self.around.pop();
                continue;
            };
            if around.kind() == ValueKind::Map {
                self.next.push(around.get_item(&item)?);
            }
            self.next.push(item);
        }
        let Some(value) = self.next.pop() else { return Ok(None) };
        if matches!(value.kind(), ValueKind::Seq | ValueKind::Iterable | ValueKind::Map) {
            if self.around.len() > MAX_DEPTH {
                return Err(invalid(format!("list nested deeper than {MAX_DEPTH}")));
            }
            self.around.push((value.clone(), value.try_iter()?));
        }
        Ok(Some(value))
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

pub(super) fn is_namespace(value: &Value) -> bool {
    value.as_object().is_some_and(|object| object.type_name().ends_with("::Namespace"))
}
