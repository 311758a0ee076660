//! [`Value`]: a cell of the article's tables, in full and as it is printed.

use std::fmt;

use crate::formula::Inflections;

/// What stands in a cell.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value {
    /// A dimension.
    Count(u64),
    /// Parameters, in billions of the unit chosen.
    Giga(f64),
    /// Elements of the cache, in millions of the unit chosen.
    Mega(f64),
    /// Positions of cache; `None` where the weights alone do not fit.
    Tokens(Option<u64>),
    /// Prompt lengths at which another resource binds; `None` where arithmetic never does.
    Turns(Option<Inflections>),
    /// `W`: tokens of depth that make a step a millisecond longer.
    PerMillisecond(f64),
    /// `B`: milliseconds.
    Milliseconds(f64),
}

impl Value {
    /// The value in full, as fields of a CSV file: inflections are two, all else is one. Empty where there is none.
    pub fn fields(&self) -> Vec<String> {
        match self {
            Value::Count(n) => vec![n.to_string()],
            Value::Giga(x) | Value::Mega(x) => vec![x.to_string()],
            Value::PerMillisecond(x) | Value::Milliseconds(x) => vec![x.to_string()],
            Value::Tokens(n) => vec![n.map_or_else(String::new, |n| n.to_string())],
            Value::Turns(None) => vec![String::new(), String::new()],
            Value::Turns(Some(i)) => {
                vec![
                    i.first.to_string(),
                    finite(i.second).map_or_else(String::new, |n| n.to_string()),
                ]
            }
        }
    }
}

fn finite(x: f64) -> Option<f64> {
    Some(x).filter(|x| x.is_finite())
}

/// As the article prints it.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Count(n) => write!(f, "{n}"),
            Value::Giga(x) => write!(f, "{x:.2}B"),
            Value::Mega(x) => write!(f, "{x}M"),
            Value::Tokens(Some(n)) => write!(f, "{n}"),
            Value::Tokens(None) => f.write_str("oom"),
            Value::Turns(None) => f.write_str("none"),
            // The last length before the crossing.
            Value::Turns(Some(i)) => match finite(i.second) {
                Some(second) => write!(f, "{} \\ {}", i.first.floor(), second.floor()),
                None => write!(f, "{} \\ none", i.first.floor()),
            },
            Value::PerMillisecond(x) => write!(f, "{x:.0}"),
            Value::Milliseconds(x) => write!(f, "{x:.2}ms"),
        }
    }
}
