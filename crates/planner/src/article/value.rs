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
}

impl ArticleValue {
    /// The value in full, as fields of a CSV file: inflections are two, all else is one. Empty where there is none.
    pub fn fields(&self) -> Vec<String> {
        match self {
            ArticleValue::Count(n) => vec![n.to_string()],
            ArticleValue::Giga(x) | ArticleValue::Mega(x) => vec![x.to_string()],
            ArticleValue::PerMillisecond(x) | ArticleValue::Milliseconds(x) => vec![x.to_string()],
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
        }
    }
}
