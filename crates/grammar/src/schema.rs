//! JSON schemas before they are compiled: how large they are, and whether anything finite can satisfy them.

use std::collections::HashSet;

use engine::Notes;
use serde_json::{Map, Value, json};

use crate::adapt::adapt;
use crate::limits::{self, DEPTH, REPEATS, RULES};
use crate::paths::References;
use crate::work::Work;
use crate::{GrammarError, Result, extent};

pub(crate) const WHAT: &str = "JSON schema";

/// Where llguidance looks for how JSON is written.
const OPTIONS: &str = "x-guidance";

/// Keys whose value counts something that is written out.
const COUNTS: [&str; 6] =
    ["minItems", "maxItems", "minLength", "maxLength", "minProperties", "maxProperties"];

/// Reads a schema, adapts it for compilation and measures it. Constraints that are not enforced are added to `notes`.
///
/// # Errors
/// What is no JSON, no schema, too large, too much work, or satisfied by nothing finite.
pub(crate) fn read(text: &str, work: &mut Work, notes: &mut Notes) -> Result<Value> {
    limits::check(WHAT, "bytes", text.len() as u64, limits::BYTES)?;
    let depth = nesting(text);
    limits::check(WHAT, "values within each other", depth, DEPTH)?;
    let mut schema: Value =
        serde_json::from_str(text).map_err(|error| malformed(error.to_string()))?;
    adapt(&mut schema, notes);
    check(&schema, work)?;
    Ok(written(schema))
}

/// Measures a schema, whose work adds to that which there is.
///
/// # Errors
/// As [`read`].
pub(crate) fn check(schema: &Value, work: &mut Work) -> Result<()> {
    match schema {
        Value::Object(object) if object.contains_key(OPTIONS) => {
            return Err(malformed(format!("`{OPTIONS}` is not a keyword here")));
        }
        Value::Object(_) | Value::Bool(_) => {}
        _ => return Err(malformed("expected an object, true or false".into())),
    }
    let mut all = Vec::new();
    let depth = walk(schema, &mut all);
    limits::check(WHAT, "objects", all.len() as u64, RULES)?;
    for object in &all {
        measure(object)?;
    }
    extent::check_states(check_multiples(&all)?, work)?;
    let references = references(schema, &all, depth);
    references.check(WHAT)?;
    references.check_fan_out(WHAT)?;
    if !finite(schema, &references) {
        return Err(GrammarError::Unsatisfiable {
            what: WHAT,
            problem: "every value would have to hold another one of its kind".into(),
        });
    }
    extent::check(schema, &all, work)
}

/// A schema with how its values are written: as most programs write JSON on a line. A model has no say in it, so that
/// there is no blank without end, and what is between values need not be computed. What the compiler cannot enforce, it reports as a
/// warning.
fn written(schema: Value) -> Value {
    let mut object = match schema {
        Value::Object(object) => object,
        Value::Bool(true) => Map::new(),
        // left to the compiler, which refuses it
        other => return other,
    };
    let options = json!({ "whitespace_flexible": false, "item_separator": ", ", "key_separator": ": ", "lenient": true });
    object.insert(OPTIONS.to_owned(), options);
    Value::Object(object)
}

fn malformed(problem: String) -> GrammarError {
    GrammarError::Malformed { what: WHAT, problem }
}

/// How deep objects and lists of a JSON text are within each other, without reading it.
fn nesting(text: &str) -> u64 {
    let (mut depth, mut deepest, mut in_string, mut escaped) = (0u64, 0, false, false);
    for byte in text.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            b'{' | b'[' if !in_string => depth += 1,
            b'}' | b']' if !in_string => depth = depth.saturating_sub(1),
            _ => {}
        }
        deepest = deepest.max(depth);
    }
    deepest
}

/// Every object in a value, outer ones first. Returns how deep objects and lists are within each other, which is bounded before.
fn walk<'v>(value: &'v Value, all: &mut Vec<&'v Map<String, Value>>) -> u64 {
    let deepest = |depths: &mut dyn Iterator<Item = u64>| 1 + depths.max().unwrap_or(0);
    match value {
        Value::Object(object) => {
            all.push(object);
            deepest(&mut object.values().map(|inner| walk(inner, all)))
        }
        Value::Array(items) => deepest(&mut items.iter().map(|inner| walk(inner, all))),
        _ => 0,
    }
}

/// Refuses counts of an object that are too large.
fn measure(object: &Map<String, Value>) -> Result<()> {
    for key in COUNTS {
        // a property may have that name
        let Some(Value::Number(count)) = object.get(key) else { continue };
        let found = count.as_u64().unwrap_or(u64::MAX);
        if found > REPEATS && count.as_f64().is_none_or(|count| count > REPEATS as f64) {
            let (limit, found) = (REPEATS, count.to_string());
            return Err(GrammarError::TooLarge { what: WHAT, measure: key, limit, found });
        }
    }
    Ok(())
}

/// The name of the whole schema.
const ROOT: &str = "#";

/// References of a schema: from the whole and from each definition that is referred to, with the levels nested in each. `depth`: levels
/// of the whole text.
fn references<'v>(schema: &'v Value, all: &[&'v Map<String, Value>], depth: u64) -> References<'v> {
    let mut references = References::default();
    let mut within = |name: &'v str, value: &'v Value| {
        // a list and an object around a value are a level each
        let mut rest = vec![(value, 0_u64)];
        while let Some((value, level)) = rest.pop() {
            references.nested(name, level);
            match value {
                Value::Object(object) => {
                    if let Some(to) = reference(object) {
                        references.refers(name, to);
                    }
                    // the part's own definitions count where they are referred to; further inside a property may have that name
                    let is_definition = |key: &str| level == 0 && DEFINITIONS.contains(&key);
                    let inner = object.iter().filter(|(key, _)| !is_definition(key));
                    rest.extend(inner.map(|(_, inner)| (inner, level + 1)));
                }
                Value::Array(items) => rest.extend(items.iter().map(|inner| (inner, level + 1))),
                _ => {}
            }
        }
    };
    within(ROOT, schema);
    let mut elsewhere = Vec::new();
    let mut seen = HashSet::from([ROOT]);
    for name in all.iter().filter_map(|object| reference(object)) {
        match target(schema, name) {
            Some(value) if seen.insert(name) => within(name, value),
            Some(_) => {}
            None => elsewhere.push(name),
        }
    }
    // names that are no places in the text, such as anchors, may lead through each other in any order
    let most = elsewhere.len() as u64 * depth;
    elsewhere.into_iter().for_each(|name| references.nested(name, most));
    references
}

/// The name that an object of a schema refers to.
fn reference(object: &Map<String, Value>) -> Option<&str> {
    object.get("$ref").and_then(Value::as_str)
}

/// Keys of definitions, which count where they are referred to.
const DEFINITIONS: [&str; 2] = ["$defs", "definitions"];

/// Refuses multiples that take too many states: the compiler counts remainders. Where schemas are combined, by `allOf` or a
/// reference, a number may have to be a multiple of several, so that the least common multiple of all counts. Returns the states of
/// all.
fn check_multiples(all: &[&Map<String, Value>]) -> Result<u64> {
    const KEY: &str = "multipleOf";
    let too_large = |found: &str| GrammarError::TooLarge {
        what: WHAT,
        measure: KEY,
        limit: STATES,
        found: found.to_owned(),
    };
    let given = all.iter().filter_map(|object| match object.get(KEY) {
        Some(Value::Number(number)) => Some(number.to_string()),
        _ => None,
    });
    let mut scaled = Vec::new();
    for text in given {
        let number = Decimal::read(&text).ok_or_else(|| too_large(&text))?;
        scaled.push((text, number));
    }
    let places = scaled.iter().map(|(_, number)| number.places).max().unwrap_or(0);
    let combined =
        all.iter().any(|object| object.contains_key("allOf") || object.contains_key("$ref"));
    let mut common = 1;
    let mut different = HashSet::new();
    for (text, number) in &scaled {
        let places = if combined { places } else { number.places };
        let states = number.digits_at(places).filter(|states| *states <= STATES);
        let states = states.ok_or_else(|| too_large(text))?;
        different.insert(states);
        if combined && states > 0 {
            common = common / gcd(common, states) * states;
            if common > STATES {
                return Err(too_large(&format!("{common}, the least common multiple of several")));
            }
        }
    }
    Ok(different.iter().sum::<u64>() + if combined { common } else { 0 })
}

/// Most states of an automaton that counts remainders.
const STATES: u64 = 10_000;

/// A positive number in digits: `digits / 10^places`.
struct Decimal {
    digits: u64,
    places: u32,
}

impl Decimal {
    /// Reads a number of JSON; `None` for one with more digits than fit.
    fn read(text: &str) -> Option<Decimal> {
        let (number, exponent) = match text.split_once(['e', 'E']) {
            Some((number, exponent)) => (number, exponent.parse::<i32>().ok()?),
            None => (text, 0),
        };
        let (whole, fraction) =
            number.trim_start_matches('-').split_once('.').unwrap_or((number, ""));
        let fraction = fraction.trim_end_matches('0');
        let digits: u64 = format!("{}{fraction}", whole.trim_start_matches('-')).parse().ok()?;
        let places = i32::try_from(fraction.len()).ok()?.checked_sub(exponent)?;
        match u32::try_from(places) {
            Ok(places) => Some(Decimal { digits, places }),
            Err(_) => {
                let tens = 10_u64.checked_pow(places.unsigned_abs())?;
                Some(Decimal { digits: digits.checked_mul(tens)?, places: 0 })
            }
        }
    }

    /// The digits with `places` behind the point.
    fn digits_at(&self, places: u32) -> Option<u64> {
        self.digits.checked_mul(10_u64.checked_pow(places.checked_sub(self.places)?)?)
    }
}

fn gcd(a: u64, b: u64) -> u64 {
    let (mut a, mut b) = (a, b);
    while b > 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// Whether a finite value can satisfy a schema, as far as its own references say: the least set of schemas that need
/// none but each other.
fn finite(schema: &Value, references: &References<'_>) -> bool {
    // what is elsewhere is left to the compiler
    let may_end = |name: &str, known: &HashSet<&str>| {
        target(schema, name).is_none_or(|target| ends(target, known))
    };
    references.least_set(may_end).contains(ROOT)
}

/// What a reference within the schema names. Characters may be written as `%20`.
pub(crate) fn target<'v>(schema: &'v Value, name: &str) -> Option<&'v Value> {
    let pointer = name.strip_prefix('#')?;
    // `#/` is the whole schema for the compiler
    let pointer = if pointer == "/" { "" } else { pointer };
    match pointer.contains('%') {
        true => schema.pointer(&decoded(pointer)?),
        false => schema.pointer(pointer),
    }
}

/// Decodes `%20` and the like.
fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((&byte, behind)) = rest.split_first() {
        rest = behind;
        let digits = behind.get(..2).filter(|_| byte == b'%');
        let code =
            digits.and_then(|hex| u8::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok());
        if code.is_some() {
            rest = &behind[2..];
        }
        bytes.push(code.unwrap_or(byte));
    }
    String::from_utf8(bytes).ok()
}

/// Whether a finite value can satisfy a schema if references to the known ones can be satisfied.
fn ends(schema: &Value, known: &HashSet<&str>) -> bool {
    let Value::Object(object) = schema else { return true };
    let list = |key: &str| object.get(key).and_then(Value::as_array);
    if reference(object).is_some_and(|name| !known.contains(name)) {
        return false;
    }
    if object.contains_key("const") || object.contains_key("enum") {
        return true;
    }
    if list("allOf").is_some_and(|all| !all.iter().all(|inner| ends(inner, known))) {
        return false;
    }
    let any = |key: &str| {
        list(key).is_none_or(|any| any.is_empty() || any.iter().any(|inner| ends(inner, known)))
    };
    if !any("anyOf") || !any("oneOf") {
        return false;
    }
    // other types ask for nothing within
    let may = |is: &dyn Fn(&Value) -> bool| match object.get("type") {
        Some(Value::Array(types)) => types.iter().any(is),
        Some(one) => is(one),
        None => true,
    };
    let others = may(&|name| name != "object" && name != "array");
    others
        || (may(&|name| name == "object") && object_ends(object, known))
        || (may(&|name| name == "array") && array_ends(object, known))
}

fn object_ends(object: &Map<String, Value>, known: &HashSet<&str>) -> bool {
    let properties = object.get("properties").and_then(Value::as_object);
    let required = object.get("required").and_then(Value::as_array);
    let of = |name: &Value| properties.and_then(|p| p.get(name.as_str()?));
    required.is_none_or(|names| names.iter().filter_map(of).all(|inner| ends(inner, known)))
}

fn array_ends(object: &Map<String, Value>, known: &HashSet<&str>) -> bool {
    let least = object.get("minItems").and_then(Value::as_u64).unwrap_or(0);
    let first = object.get("prefixItems").and_then(Value::as_array);
    let first = first.map_or(&[][..], Vec::as_slice);
    let rest = object.get("items").filter(|_| least > first.len() as u64);
    let needed = first.iter().take(usize::try_from(least).unwrap_or(usize::MAX));
    needed.chain(rest).all(|inner| ends(inner, known))
}
