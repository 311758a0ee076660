//! Words by the patterns of pre-tokenizers.

use std::sync::LazyLock;

use proptest::prelude::*;
use tokenizer::internals::{PreTokenizer, Splitter, find_pre_tokenizer, pre_tokenizers};

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
    let qwen2 = Splitter::new(find_pre_tokenizer("qwen2").unwrap().patterns).unwrap();
    let check = |text: &str, expect: &[&str]| assert_eq!(pieces(&qwen2, text), expect, "{text:?}");
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
    let row = |pre: &PreTokenizer| {
        (
            pre.names[0],
            Splitter::new(pre.patterns).unwrap(),
            pre.patterns.iter().map(regex).collect(),
        )
    };
    pre_tokenizers().map(row).collect()
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
