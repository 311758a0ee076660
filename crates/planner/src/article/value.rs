//! [`ArticleValue`]: a cell of the article's tables, in full and as it is printed.

use std::fmt;

use crate::formula::Inflections;

/// What stands in a cell.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ArticleValue {
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
    /// A part of a whole, 1 of all of it.
    Part(f64),
    /// FLOP for each byte.
    PerByte(f64),
    /// Bytes.
    Bytes(f64),
    /// Bytes in so many units of a GB: the article's, or decimal ones.
    Gigabytes(f64),
    /// Tokens, not whole ones.
    Rows(f64),
    /// What the article prints; nothing where it prints nothing.
    Printed(&'static str),
}

impl ArticleValue {
    /// The value in full, as fields of a CSV file: inflections are two, all else is one. Empty where there is none.
    pub fn fields(&self) -> Vec<String> {
        match self {
            ArticleValue::Count(n) => vec![n.to_string()],
            ArticleValue::Giga(x)
            | ArticleValue::Mega(x)
            | ArticleValue::PerMillisecond(x)
            | ArticleValue::Milliseconds(x)
            | ArticleValue::Part(x)
            | ArticleValue::PerByte(x)
            | ArticleValue::Bytes(x)
            | ArticleValue::Gigabytes(x)
            | ArticleValue::Rows(x) => vec![x.to_string()],
            ArticleValue::Printed(text) => vec![(*text).to_owned()],
            ArticleValue::Tokens(n) => vec![n.map_or_else(String::new, |n| n.to_string())],
            ArticleValue::Turns(None) => vec![String::new(), String::new()],
            ArticleValue::Turns(Some(i)) => {
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
impl fmt::Display for ArticleValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ArticleValue::Count(n) => write!(f, "{n}"),
            ArticleValue::Giga(x) => write!(f, "{x:.2}B"),
            ArticleValue::Mega(x) => write!(f, "{x}M"),
            ArticleValue::Tokens(Some(n)) => write!(f, "{n}"),
            ArticleValue::Tokens(None) => f.write_str("oom"),
            ArticleValue::Turns(None) => f.write_str("none"),
            // The last length before the crossing.
            ArticleValue::Turns(Some(i)) => match finite(i.second) {
                Some(second) => write!(f, "{} \\ {}", i.first.floor(), second.floor()),
                None => write!(f, "{} \\ none", i.first.floor()),
            },
            ArticleValue::PerMillisecond(x) => write!(f, "{x:.0}"),
            ArticleValue::Milliseconds(x) => write!(f, "{x:.2}ms"),
            ArticleValue::Part(x) => write!(f, "{:.1}%", 100.0 * x),
            ArticleValue::PerByte(x) if *x < 10.0 => write!(f, "{x:.2}"),
            ArticleValue::PerByte(x) => write!(f, "{x:.1}"),
            ArticleValue::Bytes(x) => write!(f, "{:.1}MB", x / 1e6),
            ArticleValue::Gigabytes(x) => write!(f, "{x:.2}GB"),
            ArticleValue::Rows(x) => write!(f, "{x:.0}"),
            ArticleValue::Printed(text) => f.write_str(text),
        }
    }
}
