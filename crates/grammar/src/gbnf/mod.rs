//! GBNF, the grammars of llama.cpp, as Lark.
//!
//! A rule that does not come back to itself becomes one terminal: a regular expression, matched exactly. The others stay
//! rules over such terminals, each of which takes the longest text it can.

mod lark;
mod parse;

use std::collections::{HashMap, HashSet};

use crate::paths::References;
use crate::{GrammarError, Result, limits};

pub(crate) const WHAT: &str = "grammar";
/// The rule of the whole text.
const ROOT: &str = "root";

/// What a rule may consist of.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Expr {
    Literal(String),
    /// Ranges of characters, and whether all others are meant.
    Class {
        negated: bool,
        ranges: Vec<(char, char)>,
    },
    Rule(String),
    Seq(Vec<Expr>),
    Alt(Vec<Expr>),
    /// From so often to so often; `None`: any number.
    Repeat(Box<Expr>, u64, Option<u64>),
}

/// Rules by name, in the order of the text.
struct Rules {
    list: Vec<(String, Expr)>,
    places: HashMap<String, usize>,
}

/// Whether a grammar is GBNF rather than Lark.
pub(crate) fn is_gbnf(text: &str) -> bool {
    text.contains("::=")
}

/// The same grammar in Lark.
///
/// # Errors
/// What cannot be read, names a rule that is not there, or is satisfied by nothing finite.
pub fn to_lark(text: &str) -> Result<String> {
    let rules = Rules::new(parse::rules(text)?)?;
    let references = rules.references();
    references.check(WHAT)?;
    references.check_fan_out(WHAT)?;
    // the rules that something finite satisfies
    let finite = references.least_set(|name, known| ends(rules.expr(name), known));
    if !finite.contains(ROOT) {
        let problem = "rule `root` never comes to an end".to_owned();
        return Err(GrammarError::Unsatisfiable { what: WHAT, problem });
    }
    // the rules that do not come back to themselves, nor lead to one that does
    let regular = references
        .least_set(|name, known| names(rules.expr(name)).iter().all(|name| known.contains(name)));
    Ok(lark::write(&rules, &regular))
}

fn malformed(problem: impl Into<String>) -> GrammarError {
    GrammarError::Malformed { what: WHAT, problem: problem.into() }
}

impl Rules {
    fn new(list: Vec<(String, Expr)>) -> Result<Rules> {
        limits::check(WHAT, "rules", list.len() as u64, limits::RULES)?;
        let mut places = HashMap::new();
        for (i, (name, _)) in list.iter().enumerate() {
            if places.insert(name.clone(), i).is_some() {
                return Err(malformed(format!("rule `{name}` is there twice")));
            }
        }
        let rules = Rules { list, places };
        if !rules.places.contains_key(ROOT) {
            return Err(malformed("there is no rule `root`"));
        }
        for (name, expr) in &rules.list {
            if let Some(missing) = names(expr).into_iter().find(|n| !rules.places.contains_key(*n))
            {
                return Err(malformed(format!(
                    "rule `{name}` names `{missing}`, which is not there"
                )));
            }
        }
        Ok(rules)
    }

    fn references(&self) -> References<'_> {
        let mut references = References::default();
        for (name, expr) in &self.list {
            references.nested(name, nesting(expr));
            for to in names(expr) {
                references.refers(name, to);
            }
        }
        references
    }

    fn expr(&self, name: &str) -> &Expr {
        &self.list[self.places[name]].1
    }
}

/// Expressions within each other.
fn nesting(expr: &Expr) -> u64 {
    match expr {
        Expr::Seq(parts) | Expr::Alt(parts) => 1 + parts.iter().map(nesting).max().unwrap_or(0),
        Expr::Repeat(inner, ..) => 1 + nesting(inner),
        Expr::Literal(_) | Expr::Class { .. } | Expr::Rule(_) => 0,
    }
}

/// The rules that an expression names.
fn names(expr: &Expr) -> Vec<&str> {
    match expr {
        Expr::Rule(name) => vec![name],
        Expr::Seq(parts) | Expr::Alt(parts) => parts.iter().flat_map(names).collect(),
        Expr::Repeat(inner, ..) => names(inner),
        Expr::Literal(_) | Expr::Class { .. } => Vec::new(),
    }
}

/// Whether something finite satisfies an expression if something does the known rules.
fn ends(expr: &Expr, known: &HashSet<&str>) -> bool {
    match expr {
        Expr::Rule(name) => known.contains(name.as_str()),
        Expr::Seq(parts) => parts.iter().all(|part| ends(part, known)),
        Expr::Alt(parts) => parts.iter().any(|part| ends(part, known)),
        Expr::Repeat(inner, least, _) => *least == 0 || ends(inner, known),
        Expr::Class { negated, ranges } => *negated || !ranges.is_empty(),
        Expr::Literal(_) => true,
    }
}
