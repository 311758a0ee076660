//! Splits text into words by the patterns of a pre-tokenizer, in linear time.

use regex::Regex;

use crate::pre::{BEFORE_THREES, SPACES, SPACES_BY_POWERS, SPACES_ONLY, THREES, THREES_OF_NUMBERS};
use crate::{Error, Result};

/// Applies patterns one after another: each cuts the pieces the ones before have left, and keeps both what it matches
/// and what lies between.
///
/// The patterns run on the `regex` crate, which never backtracks and so takes linear time and no stack. The only
/// look-ahead they have is at their ends, `SPACES` and the like, or they are one of a few that count digits from the
/// right: these are done by hand.
#[derive(Debug)]
pub struct Splitter {
    stages: Vec<(Stage, Regex)>,
}

/// What a pattern does beside what its regex matches.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Stage {
    /// A run of white space gives its last character back to the word that follows.
    gives_back: bool,
    /// A run that ends in a line break was matched by an alternative of its own and gives nothing back.
    keeps_lines: bool,
    /// How what was found is cut further.
    pieces: Pieces,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Pieces {
    /// Not at all.
    One,
    /// White space into pieces of 512 characters, 256, 128 and so on, as long as they fit.
    PowersOfTwo,
    /// Into groups of three characters, counted from the right.
    Threes,
    /// The same, but what is left of the groups stays with what is before it.
    BeforeThrees,
}

impl Splitter {
    /// A splitter by these patterns.
    ///
    /// # Errors
    /// [`Error::Vocabulary`] if one cannot be compiled.
    pub fn new<P: AsRef<str>>(patterns: &[P]) -> Result<Splitter> {
        let compile = |pattern: &P| {
            let (stage, regex) = Stage::of(pattern.as_ref());
            Ok((stage, Regex::new(&regex).map_err(Error::vocabulary)?))
        };
        let stages = patterns.iter().map(compile).collect::<Result<_>>()?;
        Ok(Splitter { stages })
    }

    /// Calls `each` for every word of `text`, in order; together they are the text.
    ///
    /// # Errors
    /// Those of `each`.
    pub fn split<'t>(
        &self,
        text: &'t str,
        each: &mut dyn FnMut(&'t str) -> Result<()>,
    ) -> Result<()> {
        cut(&self.stages, text, each)
    }
}

fn cut<'t>(
    stages: &[(Stage, Regex)],
    text: &'t str,
    each: &mut dyn FnMut(&'t str) -> Result<()>,
) -> Result<()> {
    let Some(((stage, regex), later)) = stages.split_first() else {
        return if text.is_empty() { Ok(()) } else { each(text) };
    };
    let (mut done, mut from) = (0, 0);
    while let Some((start, end)) = stage.find(regex, text, from) {
        let inner = stage.pieces.cuts(&text[start..end]);
        let isolates = stage.pieces != Pieces::BeforeThrees;
        let outer = |at| isolates.then_some(at);
        for at in
            outer(start).into_iter().chain(inner.iter().map(|at| start + at)).chain(outer(end))
        {
            if done < at {
                cut(later, &text[done..at], each)?;
                done = at;
            }
        }
        from = end;
    }
    cut(later, &text[done..], each)
}

impl Pieces {
    /// Where what was found is cut, in bytes from its start, in order.
    fn cuts(self, found: &str) -> Vec<usize> {
        let starts = || found.char_indices().map(|(at, _)| at);
        match self {
            Pieces::One => Vec::new(),
            Pieces::PowersOfTwo
                if found.ends_with(|c: char| c.is_whitespace() && c != '\n' && c != '\r') =>
            {
                let at: Vec<usize> = starts().collect();
                let mut cuts = Vec::new();
                let mut done = 0;
                while done < at.len() {
                    cuts.push(at[done]);
                    done += 1 << (at.len() - done).ilog2().min(9);
                }
                cuts
            }
            Pieces::PowersOfTwo => Vec::new(),
            Pieces::Threes | Pieces::BeforeThrees => {
                let mut cuts: Vec<usize> = starts().rev().skip(2).step_by(3).collect();
                cuts.reverse();
                cuts
            }
        }
    }
}

impl Stage {
    /// What a pattern does, and the regex in it that needs no look-ahead.
    pub(crate) fn of(pattern: &str) -> (Stage, String) {
        let plain = Stage { gives_back: false, keeps_lines: false, pieces: Pieces::One };
        let by_hand = [
            (THREES, r"\d+\b", Pieces::Threes),
            (THREES_OF_NUMBERS, r"\p{N}+", Pieces::Threes),
            (BEFORE_THREES, r"\d+", Pieces::BeforeThrees),
        ];
        if let Some((_, runs, pieces)) = by_hand.into_iter().find(|(whole, ..)| *whole == pattern) {
            return (Stage { pieces, ..plain }, runs.to_owned());
        }
        let ends = [
            (SPACES, Pieces::One),
            (SPACES_ONLY, Pieces::One),
            (SPACES_BY_POWERS, Pieces::PowersOfTwo),
        ];
        let cut_pattern =
            ends.into_iter().find_map(|(end, pieces)| Some((pattern.strip_suffix(end)?, pieces)));
        let Some((rest, pieces)) = cut_pattern else { return (plain, pattern.to_owned()) };
        let keeps_lines = rest.contains(r"\s*[\r\n]");
        (Stage { gives_back: true, keeps_lines, pieces }, format!("{rest}|\\s+"))
    }

    /// The next match at or after `at`: not empty.
    fn find(self, regex: &Regex, text: &str, at: usize) -> Option<(usize, usize)> {
        let found = regex.find_at(text, at).filter(|m| !m.is_empty())?;
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
