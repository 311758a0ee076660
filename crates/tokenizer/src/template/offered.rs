//! What templates may call: filters, tests, functions and methods, each with what a call costs.
//!
//! This list is all there is: nothing of the engine can be called that has no cost here. Filters for which a chat
//! template has no use and that could be made to take much are left out (`batch`, `chain`, `groupby`, `pprint`, `slice`,
//! `zip`).

use minijinja::formatting::FormatStyle;
use minijinja::value::{Kwargs, Rest, ValueKind, ValueOrKwargs, from_args};
use minijinja::{Environment, Error, ErrorKind, State, Value, filters as f, tests as t};

use super::budget::{Budget, ELEMENT, invalid};
use super::{clock, filters, json};

/// What a call reads, and what it makes beyond its result.
#[derive(Clone, Copy, PartialEq)]
enum Cost {
    /// Nothing to speak of, or it charges itself.
    Own,
    /// Each argument once, but not inside the elements of lists.
    Once,
    /// As `Once`, and what is no text is first written out as one.
    Text,
    /// Each character of the first argument is looked for in the second.
    Trim,
    /// All that is in the arguments.
    Tree,
    /// Each element of the first argument, with the texts of the others; and makes a list as long.
    List,
    /// The elements of the first argument are compared with each other.
    Sort,
    /// Two values are compared.
    Pair,
    /// A text's end is compared with a text, or with each of a list.
    End,
    /// The first argument is looked for in the second.
    In,
}

/// How a result is charged.
#[derive(Clone, Copy, PartialEq)]
enum Made {
    /// It was there before, or was charged when it was made.
    Nothing,
    /// By its size.
    Size,
}

/// Something a template can call.
struct Offer {
    name: &'static str,
    cost: Cost,
    made: Made,
    call: Value,
}

/// Names that templates may use, as they are spelled there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offered {
    /// `value | filter`.
    pub filters: Vec<&'static str>,
    /// `value is test`.
    pub tests: Vec<&'static str>,
    /// `function(value)`.
    pub functions: Vec<&'static str>,
    /// `text.method()`.
    pub text_methods: Vec<&'static str>,
    /// `map.method()`.
    pub map_methods: Vec<&'static str>,
    /// `list.method()`.
    pub list_methods: Vec<&'static str>,
}

impl Offered {
    /// All that there is.
    pub fn all() -> Offered {
        let budget = Budget::unlimited();
        let names = |offers: Vec<Offer>| -> Vec<&'static str> {
            offers.iter().map(|offer| offer.name).collect()
        };
        let methods = |list: &[(&'static str, Cost, Made)]| list.iter().map(|m| m.0).collect();
        Offered {
            filters: names(filters(&budget)),
            tests: names(tests()),
            functions: names(functions(&budget, 0))
                .into_iter()
                .chain(["namespace", "dict"])
                .collect(),
            text_methods: methods(TEXT_METHODS),
            map_methods: methods(MAP_METHODS),
            list_methods: methods(LIST_METHODS),
        }
    }
}

/// Filters that yield what Python can go over once, and neither count nor write as JSON.
const GENERATORS: &[&str] = &["map", "reject", "rejectattr", "select", "selectattr"];

/// Adds all that templates may call; `now` is the time for `strftime_now`, in seconds since 1970. `strict`: what has no
/// length in Python has none.
pub(super) fn install(env: &mut Environment<'_>, budget: &Budget, now: i64, strict: bool) {
    for offer in filters(budget) {
        let b = budget.clone();
        let generates = strict && GENERATORS.contains(&offer.name);
        env.add_filter(offer.name, move |state: &mut State, arguments: Rest<ValueOrKwargs>| {
            let result = offer.call(&b, state, arguments.into_values())?;
            Ok::<Value, Error>(if generates { generator(result) } else { result })
        });
    }
    for offer in tests() {
        let b = budget.clone();
        env.add_test(offer.name, move |state: &mut State, arguments: Rest<ValueOrKwargs>| {
            offer.call(&b, state, arguments.into_values()).map(|value| value.is_true())
        });
    }
    for offer in functions(budget, now) {
        let b = budget.clone();
        env.add_function(offer.name, move |state: &mut State, arguments: Rest<ValueOrKwargs>| {
            offer.call(&b, state, arguments.into_values())
        });
    }
    let b = budget.clone();
    env.set_unknown_method_callback(
        move |state: &mut State, value: &Value, method: &str, arguments: &[Value]| {
            call_method(&b, state, value, method, arguments)
        },
    );
}

/// The elements of a list as something that can only be gone over.
fn generator(list: Value) -> Value {
    Value::make_object_iterable(list, |list| Box::new(list.try_iter().into_iter().flatten()))
}

impl Offer {
    fn call(
        &self,
        budget: &Budget,
        state: &mut State,
        mut arguments: Vec<Value>,
    ) -> Result<Value, Error> {
        self.cost.charge(budget, &mut arguments)?;
        let result = self.call.call(state, &arguments)?;
        self.made.charge(budget, result)
    }
}

impl Made {
    fn charge(self, budget: &Budget, result: Value) -> Result<Value, Error> {
        match self {
            Made::Nothing => budget.listed(result),
            Made::Size => budget.settle(result),
        }
    }
}

impl Cost {
    /// Charges a call with these arguments, of which the first is what a filter or method is applied to.
    fn charge(self, budget: &Budget, arguments: &mut [Value]) -> Result<(), Error> {
        let undefined = Value::UNDEFINED;
        match self {
            Cost::Own => budget.read(arguments.len()),
            Cost::Once => arguments.iter().try_for_each(|value| budget.read_size(value)),
            Cost::Text | Cost::Trim => {
                for value in arguments.iter_mut() {
                    if value.as_object().is_some() && !value.is_kwargs() {
                        *value = Value::from(budget.text_of(value)?);
                    }
                    budget.read_size(value)?;
                }
                match arguments {
                    [text, characters, ..] if self == Cost::Trim => {
                        budget.read(budget.size(text)?.saturating_mul(budget.size(characters)?))
                    }
                    _ => Ok(()),
                }
            }
            Cost::Tree => arguments.iter().try_for_each(|value| budget.read_tree(value).map(drop)),
            Cost::List => {
                let Some((list, others)) = arguments.split_first() else { return Ok(()) };
                let n = budget.count(list)?;
                let mut each = ELEMENT;
                for value in others {
                    each = each.saturating_add(texts_in(value)?);
                }
                budget.read(n.saturating_mul(each))?;
                budget.take(n.saturating_mul(ELEMENT))
            }
            Cost::Sort => read_sort(budget, arguments),
            Cost::End => match arguments {
                [text, end, ..] if end.as_object().is_none() => budget.read_pair(text, end),
                _ => arguments.iter().skip(1).try_for_each(|end| budget.read_tree(end).map(drop)),
            },
            Cost::Pair => budget.read_pair(
                arguments.first().unwrap_or(&undefined),
                arguments.get(1).unwrap_or(&undefined),
            ),
            Cost::In => budget.read_in(
                arguments.first().unwrap_or(&undefined),
                arguments.get(1).unwrap_or(&undefined),
            ),
        }
    }
}

/// Bytes of an argument's text; of named arguments all their texts.
fn texts_in(value: &Value) -> Result<usize, Error> {
    let mut sum = value.as_bytes().map_or(0, <[u8]>::len);
    if value.is_kwargs() {
        for name in value.try_iter()? {
            sum = sum.saturating_add(value.get_item(&name)?.as_bytes().map_or(1, <[u8]>::len));
        }
    }
    Ok(sum)
}

/// Charges what `sort`, `min`, `unique` and the like do: each comparison may look at the longest element, and makes
/// copies of it to compare small letters.
fn read_sort(budget: &Budget, arguments: &[Value]) -> Result<(), Error> {
    let Some((list, others)) = arguments.split_first() else { return Ok(()) };
    let (mut n, mut longest) = (0_usize, ELEMENT);
    if let Some(text) = list.as_bytes() {
        n = text.len();
    } else if list.as_object().is_some() {
        for item in list.try_iter()? {
            let of_map = if list.kind() == ValueKind::Map {
                budget.read_tree(&list.get_item(&item)?)?
            } else {
                0
            };
            longest = longest.max(budget.read_tree(&item)?).max(of_map);
            n += 1;
        }
    }
    let names = others
        .iter()
        .try_fold(0_usize, |sum, value| texts_in(value).map(|n| sum.saturating_add(n)))?;
    let halvings = usize::BITS as usize - n.leading_zeros() as usize;
    let comparison = longest.saturating_mul(2).saturating_add(names);
    budget.read(n.saturating_mul(halvings).saturating_mul(comparison))?;
    // A list of attributes copies each of them.
    let named = others
        .iter()
        .filter(|value| value.is_kwargs())
        .find_map(|value| value.get_attr("attribute").ok());
    let keys = named.as_ref().and_then(Value::as_str).map_or(0, |path| path.matches(',').count());
    let copies =
        if keys == 0 { 0 } else { (keys + 1).saturating_mul(longest.saturating_add(ELEMENT)) };
    budget.take(n.saturating_mul(copies.saturating_add(ELEMENT)))
}

/// The name of a filter, test or function, what it costs and what it makes.
macro_rules! offers {
    ($($name:literal $cost:ident $made:ident $call:expr;)*) => {
        vec![$(Offer { name: $name, cost: Cost::$cost, made: Made::$made, call: Value::from_function($call) }),*]
    };
}

fn filters(budget: &Budget) -> Vec<Offer> {
    let mut all = offers! {
        "abs" Once Nothing f::abs;
        "attr" Once Nothing f::attr;
        "bool" Once Nothing f::bool;
        "capitalize" Text Size f::capitalize;
        "count" Once Nothing f::length;
        "d" Own Nothing f::default;
        "default" Own Nothing f::default;
        "dictsort" Sort Size f::dictsort;
        "first" Once Nothing f::first;
        "float" Once Nothing f::float;
        "int" Once Nothing f::int;
        "items" List Size f::items;
        "last" Once Nothing f::last;
        "length" Once Nothing f::length;
        "list" List Nothing f::list;
        "lower" Text Size f::lower;
        "map" List Nothing f::map;
        "max" Sort Nothing f::max;
        "min" Sort Nothing f::min;
        "reject" List Nothing f::reject;
        "rejectattr" List Nothing f::rejectattr;
        "reverse" Once Size f::reverse;
        "round" Once Nothing f::round;
        "safe" Text Size f::safe;
        "select" List Nothing f::select;
        "selectattr" List Nothing f::selectattr;
        "sort" Sort Nothing f::sort;
        "title" Text Size f::title;
        "trim" Trim Size f::trim;
        "unique" Sort Nothing f::unique;
        "upper" Text Size f::upper;
    };
    all.extend(own_filters(budget));
    all.sort_by_key(|offer| offer.name);
    all
}

/// Filters that charge themselves.
fn own_filters(budget: &Budget) -> Vec<Offer> {
    let with = || budget.clone();
    let escape = |b: Budget| {
        move |state: &mut State, value: &Value| {
            let text = match value.as_str() {
                Some(_) => value.clone(),
                None => Value::from(b.text_of(value)?),
            };
            // A sign becomes at most six: `&#x27;`.
            b.take(b.size(&text)?.saturating_mul(6))?;
            f::escape(state, &text)
        }
    };
    let (b_format, b_indent, b_join, b_lines, b_replace) = (with(), with(), with(), with(), with());
    let (b_split, b_string, b_sum, b_json) = (with(), with(), with(), with());
    offers! {
        "e" Once Nothing escape(with());
        "escape" Once Nothing escape(with());
        "format" Own Nothing move |pattern: &str, arguments: Rest<ValueOrKwargs>| {
            filters::format(&b_format, FormatStyle::Printf, pattern, &arguments.into_values())
        };
        "indent" Once Nothing move |value: &str, width: Option<usize>, first: Option<bool>, blank: Option<bool>, options: Kwargs| {
            let width = options.get::<Option<usize>>("width")?.or(width).unwrap_or(4);
            let first = options.get::<Option<bool>>("first")?.or(first).unwrap_or(false);
            let blank = options.get::<Option<bool>>("blank")?.or(blank).unwrap_or(false);
            options.assert_all_used()?;
            filters::indent(&b_indent, value, width, first, blank)
        };
        "join" Own Nothing move |value: &Value, joiner: Option<Value>, options: Kwargs| {
            let attribute: Option<Value> = options.get("attribute")?;
            let joiner = joiner.or(options.get("d")?);
            options.assert_all_used()?;
            let joiner = joiner.as_ref().and_then(|j| j.as_str()).unwrap_or("");
            filters::join(&b_join, value, joiner, attribute.as_ref())
        };
        "lines" Own Nothing move |text: &str| filters::split_lines(&b_lines, text, false);
        "replace" Own Nothing move |text: &str, from: &str, to: &str, count: Option<i64>| {
            filters::replace(&b_replace, text, from, to, count)
        };
        "split" Own Nothing move |text: &str, separator: Option<&str>, times: Option<i64>| {
            filters::split(&b_split, text, separator, times)
        };
        "string" Own Nothing move |value: Value| match value.kind() {
            ValueKind::String => Ok(value),
            _ => b_string.text_of(&value).map(Value::from),
        };
        "sum" Own Size move |state: &State, values: Value, attribute: Option<&str>, start: Option<Value>, options: Kwargs| {
            let attribute = match attribute {
                Some(attribute) => Some(attribute),
                None => options.get::<Option<&str>>("attribute")?,
            };
            let values = b_sum.listed(values)?;
            filters::read_sum(&b_sum, &values, attribute)?;
            f::sum(state, values, attribute, start, options.clone())
        };
        "tojson" Own Nothing move |value: &Value, indent: Option<Value>, options: Kwargs| {
            json::to_json(&b_json, value, indent, &options)
        };
    }
}

fn tests() -> Vec<Offer> {
    offers! {
        "!=" Pair Nothing t::is_ne;
        "<" Pair Nothing t::is_lt;
        "<=" Pair Nothing t::is_le;
        "==" Pair Nothing t::is_eq;
        ">" Pair Nothing t::is_gt;
        ">=" Pair Nothing t::is_ge;
        "boolean" Own Nothing t::is_boolean;
        "defined" Own Nothing t::is_defined;
        "divisibleby" Once Nothing divides;
        "endingwith" Text Nothing t::is_endingwith;
        "eq" Pair Nothing t::is_eq;
        "equalto" Pair Nothing t::is_eq;
        "escaped" Own Nothing t::is_safe;
        "even" Own Nothing t::is_even;
        "false" Own Nothing t::is_false;
        "filter" Once Nothing t::is_filter;
        "float" Own Nothing t::is_float;
        "ge" Pair Nothing t::is_ge;
        "greaterthan" Pair Nothing t::is_gt;
        "gt" Pair Nothing t::is_gt;
        "in" In Nothing t::is_in;
        "int" Own Nothing t::is_integer;
        "integer" Own Nothing t::is_integer;
        "iterable" Once Nothing is_iterable;
        "le" Pair Nothing t::is_le;
        "lessthan" Pair Nothing t::is_lt;
        "lower" Once Nothing t::is_lower;
        "lt" Pair Nothing t::is_lt;
        "mapping" Own Nothing t::is_mapping;
        "ne" Pair Nothing t::is_ne;
        "none" Own Nothing t::is_none;
        "number" Own Nothing t::is_number;
        "odd" Own Nothing t::is_odd;
        "safe" Own Nothing t::is_safe;
        "sameas" Pair Nothing t::is_sameas;
        "sequence" Own Nothing t::is_sequence;
        "startingwith" Text Nothing t::is_startingwith;
        "string" Own Nothing t::is_string;
        "test" Once Nothing t::is_test;
        "true" Own Nothing t::is_true;
        "undefined" Own Nothing t::is_undefined;
        "upper" Once Nothing t::is_upper;
    }
}

fn is_iterable(value: &Value) -> bool {
    !value.is_undefined()
        && !value.is_none()
        && (value.kind() == ValueKind::String || value.try_iter().is_ok())
}

/// `is divisibleby`; the engine's own divides by whatever it is given.
fn divides(value: &Value, by: &Value) -> Result<bool, Error> {
    match (value.as_i64(), by.as_i64()) {
        (_, Some(0)) => Err(invalid("divisible by 0")),
        (Some(value), Some(by)) => Ok(value.checked_rem(by).unwrap_or(0) == 0),
        _ => match (f64::try_from(value.clone()), f64::try_from(by.clone())) {
            (Ok(value), Ok(by)) => Ok(value % by == 0.0),
            _ => Ok(false),
        },
    }
}

/// Longest pattern for `strftime_now`, in bytes.
const MAX_PATTERN: usize = 1024;
/// Greatest number `range` may be given.
const MAX_RANGE: u64 = 1 << 53;

fn functions(budget: &Budget, now: i64) -> Vec<Offer> {
    let b_raise = budget.clone();
    offers! {
        "raise_exception" Own Nothing move |message: &Value| -> Result<Value, Error> {
            Err(invalid(b_raise.text_of(message)?))
        };
        "range" Once Nothing |lower: i64, upper: Option<i64>, step: Option<i64>| {
            let small = |n: i64| match isize::try_from(n) {
                Ok(n) if n.unsigned_abs() as u64 <= MAX_RANGE => Ok(n),
                _ => Err(invalid("range of numbers beyond 2^53")),
            };
            let (upper, step) = (upper.map(small).transpose()?, step.map(small).transpose()?);
            minijinja::functions::range(small(lower)?, upper, step)
        };
        "strftime_now" Once Size move |pattern: &str| match pattern.len() {
            0..=MAX_PATTERN => Ok(clock::format(pattern, now)),
            n => Err(invalid(format!("a date format of {n} bytes, at most {MAX_PATTERN} are allowed"))),
        };
    }
}

/// Methods of texts, as Python has them.
const TEXT_METHODS: &[(&str, Cost, Made)] = &[
    ("capitalize", Cost::Once, Made::Size),
    ("count", Cost::Once, Made::Nothing),
    ("endswith", Cost::End, Made::Nothing),
    ("find", Cost::Once, Made::Nothing),
    ("format", Cost::Own, Made::Nothing),
    ("isalnum", Cost::Once, Made::Nothing),
    ("isalpha", Cost::Once, Made::Nothing),
    ("isascii", Cost::Once, Made::Nothing),
    ("isdigit", Cost::Once, Made::Nothing),
    ("islower", Cost::Once, Made::Nothing),
    ("isnumeric", Cost::Once, Made::Nothing),
    ("isspace", Cost::Once, Made::Nothing),
    ("isupper", Cost::Once, Made::Nothing),
    ("join", Cost::Own, Made::Nothing),
    ("lower", Cost::Once, Made::Size),
    ("lstrip", Cost::Trim, Made::Size),
    ("removeprefix", Cost::Once, Made::Size),
    ("removesuffix", Cost::Once, Made::Size),
    ("replace", Cost::Own, Made::Nothing),
    ("rfind", Cost::Once, Made::Nothing),
    ("rsplit", Cost::Own, Made::Nothing),
    ("rstrip", Cost::Trim, Made::Size),
    ("split", Cost::Own, Made::Nothing),
    ("splitlines", Cost::Own, Made::Nothing),
    ("startswith", Cost::End, Made::Nothing),
    ("strip", Cost::Trim, Made::Size),
    ("title", Cost::Once, Made::Size),
    ("upper", Cost::Once, Made::Size),
];
/// Methods of maps.
const MAP_METHODS: &[(&str, Cost, Made)] = &[
    ("get", Cost::Own, Made::Nothing),
    ("items", Cost::List, Made::Size),
    ("keys", Cost::List, Made::Size),
    ("values", Cost::List, Made::Size),
];
/// Methods of lists.
const LIST_METHODS: &[(&str, Cost, Made)] = &[("count", Cost::Tree, Made::Nothing)];

fn call_method(
    budget: &Budget,
    state: &mut State,
    value: &Value,
    method: &str,
    arguments: &[Value],
) -> Result<Value, Error> {
    let methods = match value.kind() {
        ValueKind::String => TEXT_METHODS,
        ValueKind::Map => MAP_METHODS,
        ValueKind::Seq => LIST_METHODS,
        _ => &[],
    };
    let Some(&(_, cost, made)) = methods.iter().find(|(name, _, _)| *name == method) else {
        return Err(Error::from(ErrorKind::UnknownMethod));
    };
    let mut all: Vec<Value> = std::iter::once(value).chain(arguments).cloned().collect();
    cost.charge(budget, &mut all)?;
    let result = match value.as_str() {
        Some(text) => text_method(budget, state, value, text, method, arguments)?,
        None => {
            if let (ValueKind::Map, Some(key)) = (value.kind(), arguments.first()) {
                budget.read_key(key)?;
            }
            minijinja_contrib::pycompat::unknown_method_callback(state, value, method, arguments)?
        }
    };
    made.charge(budget, result)
}

fn text_method(
    budget: &Budget,
    state: &mut State,
    value: &Value,
    text: &str,
    method: &str,
    arguments: &[Value],
) -> Result<Value, Error> {
    match method {
        "replace" => {
            let (from, to, count): (&str, &str, Option<i64>) = from_args(arguments)?;
            filters::replace(budget, text, from, to, count).map(Value::from)
        }
        "join" => {
            let (values,): (&Value,) = from_args(arguments)?;
            filters::join(budget, values, text, None).map(Value::from)
        }
        "format" => filters::format(budget, FormatStyle::StrFormat, text, arguments),
        "removeprefix" | "removesuffix" => {
            let (end,): (&str,) = from_args(arguments)?;
            let cut = match method {
                "removeprefix" => text.strip_prefix(end),
                _ => text.strip_suffix(end),
            };
            Ok(Value::from(cut.unwrap_or(text)))
        }
        "split" => {
            let (separator, times): (Option<&str>, Option<i64>) = from_args(arguments)?;
            filters::split(budget, text, separator, times)
        }
        "rsplit" => {
            let (separator, times): (&str, Option<i64>) = from_args(arguments)?;
            filters::rsplit(budget, text, separator, times)
        }
        "splitlines" => {
            let (keep_ends,): (Option<bool>,) = from_args(arguments)?;
            filters::split_lines(budget, text, keep_ends.unwrap_or(false))
        }
        _ => minijinja_contrib::pycompat::unknown_method_callback(state, value, method, arguments),
    }
}
