//! Splits text into words by the patterns of a pre-tokenizer, in linear time.

use regex::Regex;

use crate::pre::{SPACES, SPACES_ONLY};
use crate::{Error, Result};

/// Applies patterns one after another: each cuts the pieces the ones before have left, and keeps both what it matches
/// and what lies between.
///
/// The patterns run on the `regex` crate, which never backtracks and so takes linear time and no stack. The only
/// look-ahead they have, at their ends, is [`SPACES`]: it is done by hand in [`Stage::find`].
pub(crate) struct Splitter {
    stages: Vec<Stage>,
}

struct Stage {
    regex: Regex,
    /// A run of white space gives its last character back to the word that follows.
    gives_back: bool,
    /// A run that ends in a line break was matched by an alternative of its own and gives nothing back.
    keeps_lines: bool,
}

impl Splitter {
    pub(crate) fn new(patterns: &[&str]) -> Result<Splitter> {
        let stages = patterns.iter().map(|p| Stage::new(p)).collect::<Result<_>>()?;
        Ok(Splitter { stages })
    }

    /// Calls `each` for every word of `text`, in order; together they are the text.
    pub(crate) fn split<'t>(
        &self,
        text: &'t str,
        each: &mut dyn FnMut(&'t str) -> Result<()>,
    ) -> Result<()> {
        cut(&self.stages, text, each)
    }
}

fn cut<'t>(
    stages: &[Stage],
    text: &'t str,
    each: &mut dyn FnMut(&'t str) -> Result<()>,
) -> Result<()> {
    let Some((stage, later)) = stages.split_first() else {
        return if text.is_empty() { Ok(()) } else { each(text) };
    };
    let mut done = 0;
    while let Some((start, end)) = stage.find(text, done) {
        if done < start {
            cut(later, &text[done..start], each)?;
        }
        cut(later, &text[start..end], each)?;
        done = end;
    }
    cut(later, &text[done..], each)
}

impl Stage {
    fn new(pattern: &str) -> Result<Stage> {
        let cut_pattern =
            pattern.strip_suffix(SPACES).or_else(|| pattern.strip_suffix(SPACES_ONLY));
        let (pattern, gives_back) = match cut_pattern {
            Some(rest) => (format!("{rest}|\\s+"), true),
            None => (pattern.to_owned(), false),
        };
        let keeps_lines = pattern.contains(r"\s*[\r\n]");
        let regex = Regex::new(&pattern).map_err(Error::vocabulary)?;
        Ok(Stage { regex, gives_back, keeps_lines })
    }

    /// The next match at or after `at`: not empty.
    fn find(&self, text: &str, at: usize) -> Option<(usize, usize)> {
        let found = self.regex.find_at(text, at).filter(|m| !m.is_empty())?;
        let mut end = found.end();
        let blank = || found.as_str().chars().all(char::is_whitespace);
        if self.gives_back
            && end < text.len()
            && !(self.keeps_lines && found.as_str().ends_with(['\r', '\n']))
            && blank()
            && let Some((last, _)) = found.as_str().char_indices().next_back()
            && last > 0
        {
            end = found.start() + last;
        }
        Some((found.start(), end))
    }
}
