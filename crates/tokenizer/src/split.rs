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

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use super::*;
    use proptest::prelude::*;

    use crate::pre;

    /// The pieces by the patterns as they stand, with look-ahead.
    fn by_definition(patterns: &[fancy_regex::Regex], text: &str) -> Vec<String> {
        patterns.iter().fold(vec![text.to_owned()], |pieces, regex| {
            let mut cut = Vec::new();
            for piece in pieces {
                let mut done = 0;
                for found in regex.find_iter(&piece).map(|found| found.unwrap()) {
                    cut.push(piece[done..found.start()].to_owned());
                    cut.push(found.as_str().to_owned());
                    done = found.end();
                }
                cut.push(piece[done..].to_owned());
            }
            cut.retain(|piece| !piece.is_empty());
            cut
        })
    }

    fn pieces(splitter: &Splitter, text: &str) -> Vec<String> {
        let mut pieces = Vec::new();
        let mut each = |piece: &str| {
            pieces.push(piece.to_owned());
            Ok(())
        };
        splitter.split(text, &mut each).unwrap();
        pieces
    }

    #[test]
    fn white_space_before_a_word_keeps_its_last_character_for_it() {
        let qwen2 = Splitter::new(pre::find("qwen2").unwrap().patterns).unwrap();
        let check =
            |text: &str, expect: &[&str]| assert_eq!(pieces(&qwen2, text), expect, "{text:?}");
        check("", &[]);
        check("a  b", &["a", " ", " b"]);
        check("a \n\n  b ", &["a", " \n\n", " ", " b", " "]);
        check("   ", &["   "]);
        check("  1", &[" ", " ", "1"]);
        check("don't 12", &["don", "'t", " ", "1", "2"]);
    }

    /// Every pre-tokenizer: its name, its splitter, its patterns on an engine that knows look-ahead.
    static ALL: LazyLock<Vec<(&str, Splitter, Vec<fancy_regex::Regex>)>> = LazyLock::new(|| {
        let regex = |p: &&str| fancy_regex::Regex::new(p).unwrap();
        let row = |pre: &pre::PreTokenizer| {
            (
                pre.names[0],
                Splitter::new(pre.patterns).unwrap(),
                pre.patterns.iter().map(regex).collect(),
            )
        };
        pre::all().map(row).collect()
    });

    proptest! {
        #[test]
        fn pieces_are_those_of_the_patterns(
            text in "([ ]{1,3}|[\t\r\n]|\u{a0}|\u{3000}|[a-zA-Z]{1,4}|[0-9]{1,5}|'s|'LL|[!-/:~]|[¼½é中あ가Ǆ]|e\u{301}|👩\u{200d}|.){0,24}",
        ) {
            for (name, splitter, patterns) in &*ALL {
                prop_assert_eq!(pieces(splitter, &text), by_definition(patterns, &text), "{}", name);
            }
        }
    }
}
