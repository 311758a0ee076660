//! What a JSON schema grows to when the compiler intersects its parts, and what that costs: `allOf`, and `anyOf`, `oneOf`, `enum`
//! or `$ref` next to other keywords, copy one side into each alternative of the other. Copies within copies grow exponentially.
//!
//! Nothing is copied here: sizes are computed from sizes, once for each part of the schema.

use std::collections::HashMap;

use serde_json::{Map, Value};

use crate::schema::{self, WHAT};
use crate::work::Work;
use crate::{Result, limits, regex};

/// Microseconds of an object in a schema, and of one that comes out of intersections.
const NODE: f64 = 12.0;
const COPIED_NODE: f64 = 30.0;
/// Microseconds of a key that may be any but those that are declared.
const OPEN_KEY: f64 = 80.0;
/// Microseconds for each pair of properties of an object, and for each three where their number is bounded.
const PROPERTY_PAIR: f64 = 0.15;
const PROPERTY_TRIPLE: f64 = 1.0;
/// Microseconds for each pair of patterns that properties have: the compiler looks whether both match anything.
const PATTERN_PAIR: f64 = 200.0;
/// Microseconds of a pattern, of one with classes of Unicode, of a format, of a range of numbers, of one of the values of a list, and
/// of each state of an automaton that counts remainders.
const PATTERN: f64 = 20.0;
const FORMAT: f64 = 700.0;
const NUMBER_RANGE: f64 = 300.0;
const LISTED: f64 = 2.0;
const STATE: f64 = 8.0;

/// How large a schema is when it is compiled.
#[derive(Clone, Copy)]
struct Extent {
    /// Schemas in it.
    nodes: f64,
    /// Most copies of a part of another schema that an intersection with it makes at one place: its alternatives.
    copies: f64,
    /// Parts without parts of their own: as many copies it makes of what the other says of all keys or items.
    leaves: f64,
    /// It says something of all keys or items.
    spreads: bool,
    /// Most patterns and formats that one text must match.
    patterns: f64,
    /// It allows anything: an intersection with it is the other side.
    is_any: bool,
}

const ANY: Extent =
    Extent { nodes: 1.0, copies: 1.0, leaves: 1.0, spreads: false, patterns: 0.0, is_any: true };

impl Extent {
    fn of_all(parts: impl Iterator<Item = Extent>) -> Extent {
        parts.fold(Extent { nodes: 0.0, copies: 0.0, leaves: 0.0, ..ANY }, |sum, part| Extent {
            nodes: sum.nodes + part.nodes,
            copies: sum.copies + part.copies,
            leaves: sum.leaves + part.leaves,
            spreads: sum.spreads || part.spreads,
            patterns: sum.patterns.max(part.patterns),
            is_any: false,
        })
    }
}

/// Adds the work of a schema, of which all objects are given, to that which there is.
///
/// # Errors
/// [`TooLarge`](crate::GrammarError::TooLarge).
pub(crate) fn check(schema: &Value, all: &[&Map<String, Value>], work: &mut Work) -> Result<()> {
    let mut walk = Walk {
        root: schema,
        known: HashMap::new(),
        work,
        pairs: 0.0,
        combines: false,
        leads_elsewhere: false,
    };
    let whole = walk.schema(schema)?;
    walk.expanded(whole)?;
    if walk.leads_elsewhere {
        // a name that is no place in the text may be any object
        for object in all {
            walk.cost(object)?;
        }
    }
    if walk.combines || walk.leads_elsewhere {
        walk.work.combines();
    }
    Ok(())
}

struct Walk<'v, 'w> {
    root: &'v Value,
    /// Extents of definitions that are referred to; `None` while one is being computed.
    known: HashMap<&'v str, Option<Extent>>,
    work: &'w mut Work,
    /// Patterns of properties so far.
    pairs: f64,
    /// Parts have been intersected.
    combines: bool,
    /// Something refers to a name that is no place in the text, such as an anchor.
    leads_elsewhere: bool,
}

/// Keywords that only say something about a schema.
const ANNOTATIONS: [&str; 15] = [
    "$anchor",
    "$defs",
    "definitions",
    "$schema",
    "$id",
    "id",
    "$comment",
    "title",
    "description",
    "default",
    "readOnly",
    "writeOnly",
    "examples",
    "contentMediaType",
    "contentEncoding",
];
/// Keywords whose schemas are alternatives, or apply together with the others.
const APPLICATORS: [&str; 6] = ["const", "enum", "allOf", "anyOf", "oneOf", "$ref"];

impl<'v> Walk<'v, '_> {
    fn add(&mut self, micros: f64) -> Result<()> {
        self.work.add(WHAT, micros)
    }

    /// Adds the work of a schema that is compiled as a whole: the root, a definition.
    fn expanded(&mut self, extent: Extent) -> Result<()> {
        self.add(extent.nodes * if self.combines { COPIED_NODE } else { NODE })?;
        limits::check(
            WHAT,
            "patterns and formats of one text",
            extent.patterns as u64,
            limits::INTERSECTIONS,
        )
    }

    /// Nesting is bounded before.
    fn schema(&mut self, schema: &'v Value) -> Result<Extent> {
        let Value::Object(object) = schema else { return Ok(ANY) };
        let mut extent = self.keywords(object)?;
        for (key, value) in object.iter().filter(|(key, _)| APPLICATORS.contains(&key.as_str())) {
            let all = value.as_array().map_or(&[][..], Vec::as_slice);
            match key.as_str() {
                "allOf" => {
                    for branch in all {
                        let branch = self.schema(branch)?;
                        extent = self.intersect(extent, branch)?;
                    }
                }
                "anyOf" | "oneOf" => {
                    let branches: Result<Vec<_>> = all.iter().map(|one| self.schema(one)).collect();
                    let branches = Extent::of_all(branches?.into_iter());
                    if key == "oneOf" {
                        // each two are looked at, whether one value may be both
                        self.add(0.1 * (all.len() * all.len()) as f64)?;
                    }
                    extent = self.intersect(extent, branches)?;
                }
                "$ref" => {
                    let target = self.reference(value.as_str().unwrap_or_default())?;
                    // a reference alone stays one
                    extent = match extent.is_any {
                        true => Extent { patterns: target.patterns, is_any: false, ..ANY },
                        false => self.intersect(extent, target)?,
                    };
                }
                "enum" => {
                    let n = all.iter().map(values).sum::<f64>();
                    self.add(LISTED * n)?;
                    // plain values have no room for parts of another schema
                    let is_plain = |value: &&Value| !value.is_object() && !value.is_array();
                    let copies = (all.len() - all.iter().filter(is_plain).count()).max(1) as f64;
                    let listed = Extent { nodes: n, copies, leaves: n, is_any: false, ..ANY };
                    let plain = all.iter().all(|value| is_plain(&value)) && extent.nodes <= 1.0;
                    extent = if plain { listed } else { self.intersect(extent, listed)? };
                }
                _ => {
                    let nodes = values(value);
                    let one = Extent { nodes, leaves: nodes, is_any: false, ..ANY };
                    extent = if extent.nodes <= 1.0 { one } else { self.intersect(extent, one)? };
                }
            }
        }
        Ok(extent)
    }

    /// What a reference names, which is compiled once.
    fn reference(&mut self, name: &'v str) -> Result<Extent> {
        match self.known.get(name) {
            // one that comes back to itself is no larger than what it is made of
            Some(known) => return Ok(known.unwrap_or(Extent { is_any: false, ..ANY })),
            None => {
                self.known.insert(name, None);
            }
        }
        let Some(target) = schema::target(self.root, name) else {
            self.leads_elsewhere = true;
            return Ok(Extent { is_any: false, ..ANY });
        };
        let extent = self.schema(target)?;
        self.expanded(extent)?;
        self.known.insert(name, Some(extent));
        Ok(extent)
    }

    /// Both at once. What one side has at a place is copied into each alternative of the other there, and what it says of all keys
    /// into each key.
    fn intersect(&mut self, a: Extent, b: Extent) -> Result<Extent> {
        if a.is_any || b.is_any {
            return Ok(if a.is_any { b } else { a });
        }
        self.combines = true;
        let by = |x: Extent, y: Extent| if y.spreads { x.leaves } else { x.copies };
        let nodes = a.nodes * by(b, a) + b.nodes * by(a, b);
        // refused here, so that no size grows beyond what a number holds
        self.add(0.0_f64.max(nodes - a.nodes - b.nodes) * 2.0)?;
        Ok(Extent {
            nodes,
            copies: a.copies * b.copies,
            leaves: nodes.min(a.leaves * b.leaves.max(1.0)),
            spreads: a.spreads || b.spreads,
            patterns: a.patterns + b.patterns,
            is_any: false,
        })
    }

    /// The keywords that are no applicators.
    fn keywords(&mut self, object: &'v Map<String, Value>) -> Result<Extent> {
        let says = |key: &String| {
            !ANNOTATIONS.contains(&key.as_str()) && !APPLICATORS.contains(&key.as_str())
        };
        if !object.keys().any(says) {
            return Ok(ANY);
        }
        let types = match object.get("type") {
            Some(Value::Array(types)) => types.len().max(1) as f64,
            Some(_) => 1.0,
            None => 6.0,
        };
        let mut parts = Vec::new();
        for key in ["properties", "patternProperties"] {
            let inner = object.get(key).and_then(Value::as_object);
            for value in inner.into_iter().flat_map(Map::values) {
                parts.push(self.schema(value)?);
            }
        }
        let mut spreads = false;
        for key in ["additionalProperties", "items", "additionalItems", "prefixItems"] {
            match object.get(key) {
                Some(Value::Array(items)) => {
                    for value in items {
                        parts.push(self.schema(value)?);
                    }
                }
                Some(value @ Value::Object(_)) => {
                    let part = self.schema(value)?;
                    spreads |= part.nodes > 1.0 || !part.is_any;
                    parts.push(part);
                }
                _ => {}
            }
        }
        let own = self.cost(object)?;
        let inner = Extent::of_all(parts.iter().copied());
        Ok(Extent {
            nodes: types + inner.nodes,
            // types exclude each other: a part of another schema is kept in one of them
            copies: parts.iter().map(|part| part.copies).fold(1.0, f64::max),
            leaves: 1.0 + inner.leaves,
            spreads: spreads || inner.spreads,
            patterns: inner.patterns.max(own),
            is_any: false,
        })
    }

    /// Adds the work of one object's own keywords, and returns how many patterns and formats it has for a text.
    fn cost(&mut self, object: &'v Map<String, Value>) -> Result<f64> {
        let count = |key: &str| object.get(key).and_then(Value::as_object).map_or(0, Map::len);
        let (properties, patterns) =
            (count("properties") as f64, count("patternProperties") as f64);
        if properties > 0.0 {
            let open = object.get("additionalProperties") != Some(&Value::Bool(false));
            self.add(PROPERTY_PAIR * properties * properties + if open { OPEN_KEY } else { 0.0 })?;
        }
        if ["minProperties", "maxProperties"].iter().any(|key| object.contains_key(*key)) {
            self.add(PROPERTY_TRIPLE * properties.powi(3))?;
        }
        if patterns > 0.0 {
            // those of other objects may meet them, where schemas are combined
            let before = self.pairs;
            self.pairs += patterns;
            let pairs = if self.combines {
                self.pairs * self.pairs - before * before
            } else {
                patterns * patterns
            };
            self.add(PATTERN_PAIR * pairs / 2.0)?;
            for pattern in object
                .get("patternProperties")
                .and_then(Value::as_object)
                .into_iter()
                .flat_map(Map::keys)
            {
                // each is compiled for each pair
                let mut alone = Work::default();
                regex::check(WHAT, pattern, "", &mut alone)?;
                self.add(patterns * (alone.micros() + pattern.len() as f64 * 0.5))?;
            }
        }
        let mut texts = 0.0;
        if let Some(Value::String(pattern)) = object.get("pattern") {
            texts += 1.0;
            self.add(PATTERN)?;
            let mut alone = Work::default();
            regex::check(WHAT, pattern, "", &mut alone)?;
            // the compiler reads it twice
            self.add(2.0 * alone.micros())?;
        }
        if object.get("format").is_some_and(Value::is_string) {
            texts += 1.0;
            self.add(FORMAT)?;
        }
        let bounds = ["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"];
        if bounds.iter().any(|key| object.get(*key).is_some_and(Value::is_number)) {
            self.add(NUMBER_RANGE)?;
        }
        Ok(texts)
    }
}

/// Values in a value.
fn values(value: &Value) -> f64 {
    match value {
        Value::Array(items) => 1.0 + items.iter().map(values).sum::<f64>(),
        Value::Object(object) => 1.0 + object.values().map(values).sum::<f64>(),
        _ => 1.0,
    }
}

/// Adds the work of automata that count remainders; `states` of all together.
///
/// # Errors
/// [`TooLarge`](crate::GrammarError::TooLarge).
pub(crate) fn check_states(states: u64, work: &mut Work) -> Result<()> {
    work.add(WHAT, STATE * states as f64)
}
