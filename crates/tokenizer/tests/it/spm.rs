//! SentencePiece BPE and Unigram on vocabularies made by hand.

use crate::common::{CONTROL, NORMAL, UNKNOWN, USER_DEFINED, Vocabulary, assert_linear, decode};
use proptest::prelude::*;
use tokenizer::Tokenizer;

fn texts(t: &Tokenizer, text: &str) -> Vec<String> {
    t.encode(text).unwrap().iter().map(|&id| t.token_text(id).unwrap().to_owned()).collect()
}

fn with(tokens: &[(&str, f32)]) -> Vocabulary {
    let mut v = Vocabulary::spm();
    for (text, score) in tokens {
        v.scored(text, NORMAL, *score);
    }
    v
}

#[test]
fn highest_score_first() {
    let t = with(&[
        ("▁", -9.0),
        ("a", -9.0),
        ("b", -9.0),
        ("c", -9.0),
        ("ab", -2.0),
        ("bc", -1.0),
        ("▁a", -3.0),
    ])
    .build();
    assert_eq!(texts(&t, "abc"), ["▁a", "bc"]);
    assert_eq!(texts(&t, "ab"), ["▁", "ab"]);
    assert_eq!((t.kind(), t.adds_bos(), t.bos(), t.eos()), ("llama", true, Some(1), Some(2)));
}

#[test]
fn of_equal_scores_the_leftmost() {
    // Both pairs of `xyz` score the same; so do both ways to halve `aaa`.
    let t = with(&[
        ("x", -9.0),
        ("y", -9.0),
        ("z", -9.0),
        ("yz", -1.0),
        ("xy", -1.0),
        ("a", -9.0),
        ("aa", -1.0),
        ("aaa", -2.0),
    ])
    .key("tokenizer.ggml.add_space_prefix", false)
    .build();
    assert_eq!(texts(&t, "xyz"), ["xy", "z"]);
    assert_eq!(texts(&t, "aaaa"), ["aa", "aa"]);
    assert_eq!(texts(&t, "aaaaa"), ["aa", "aaa"]);
}

#[test]
fn characters_without_a_token_become_bytes() {
    let t = with(&[("▁", -1.0), ("a", -1.0)]).build();
    assert_eq!(texts(&t, "aé"), ["▁", "a", "<0xC3>", "<0xA9>"]);
    assert_eq!(decode(&t, &t.encode("aé\n").unwrap()), "aé\n");
    // A piece whose characters are no tokens themselves is still found.
    let t = with(&[("▁", -1.0), ("éa", -1.0)]).build();
    assert_eq!(texts(&t, "éaé"), ["▁", "éa", "<0xC3>", "<0xA9>"]);
}

#[test]
fn the_first_space_is_a_mark_of_the_start() {
    let tokens = [("▁", -5.0), ("a", -5.0), ("▁a", -1.0), ("▁▁", -2.0)];
    let t = with(&tokens).build();
    assert_eq!(texts(&t, "a a"), ["▁a", "▁a"]);
    assert_eq!(texts(&t, " a"), ["▁", "▁a"]);
    assert!(t.adds_space());
    for text in ["a a", " a", "  a", " ", ""] {
        assert_eq!(decode(&t, &t.encode(text).unwrap()), text);
    }
    let t = with(&tokens).key("tokenizer.ggml.add_space_prefix", false).build();
    assert_eq!(texts(&t, "a a"), ["a", "▁a"]);
    assert!(!t.adds_space());
    assert_eq!(decode(&t, &t.encode(" a").unwrap()), " a");
}

#[test]
fn control_tokens_only_where_asked_for() {
    let mut v = with(&[
        ("▁", -5.0),
        ("a", -5.0),
        ("<", -5.0),
        ("/", -5.0),
        ("s", -5.0),
        (">", -5.0),
        ("</", -1.0),
        ("s>", -1.0),
    ]);
    let end = v.scored("<0x41>!", CONTROL, 9.0);
    let cell = v.scored("<td>", USER_DEFINED, 0.0);
    let t = v.build();
    assert_eq!(texts(&t, "</s>"), ["▁", "</", "s>"]);
    assert_eq!(texts(&t, "<0x0A>").last().unwrap(), ">");
    assert_eq!(t.encode_special("a</s>a").unwrap().iter().filter(|&&id| id == 2).count(), 1);
    assert!(!t.encode("<0x41>!").unwrap().contains(&end));
    assert_eq!(t.encode("<td>").unwrap(), [cell]);
    assert!(t.is_eog(2) && t.is_control(1));
}

/// The definition: again and again, of all neighbours whose union is a token, those with the highest score, leftmost.
fn by_definition(tokens: &[(String, f32)], text: &str) -> Vec<String> {
    let mut parts: Vec<String> = text.chars().map(String::from).collect();
    loop {
        let mut best: Option<(usize, f32)> = None;
        for at in 0..parts.len().saturating_sub(1) {
            let union = format!("{}{}", parts[at], parts[at + 1]);
            if let Some((_, score)) = tokens.iter().find(|(text, _)| *text == union)
                && best.is_none_or(|(_, s)| *score > s)
            {
                best = Some((at, *score));
            }
        }
        let Some((at, _)) = best else { return parts };
        let right = parts.remove(at + 1);
        parts[at].push_str(&right);
    }
}

proptest! {
    #[test]
    fn tokens_are_those_of_the_definition(
        tokens in prop::collection::btree_map("[abc]{2,5}", -4_i8..0, 1..25),
        text in "[abc]{0,40}",
    ) {
        let mut tokens: Vec<(String, f32)> = tokens.into_iter().map(|(text, score)| (text, f32::from(score))).collect();
        tokens.extend(["a", "b", "c"].map(|c| (c.to_owned(), -9.0)));
        let mut v = Vocabulary::spm().key("tokenizer.ggml.add_space_prefix", false);
        for (text, score) in &tokens {
            v.scored(text, NORMAL, *score);
        }
        prop_assert_eq!(texts(&v.build(), &text), by_definition(&tokens, &text));
    }

    #[test]
    fn any_text_comes_back(text in ".{0,40}") {
        let t = with(&[("▁", -5.0), ("a", -5.0), ("▁a", -1.0)]).build();
        // A `▁` of the text itself reads as a space: SentencePiece has one sign for both.
        prop_assert_eq!(decode(&t, &t.encode(&text).unwrap()), text.replace('▁', " "));
    }
}

#[test]
fn long_runs_take_linear_time() {
    let t = with(&[("▁", -9.0), ("a", -9.0), ("aa", -1.0), ("aaaa", -2.0), ("▁▁", -1.0)]).build();
    for run in ["a", " ", "é", "\n"] {
        let text = run.repeat((1 << 20) / run.len());
        assert!(decode(&t, &t.encode(&text).unwrap()) == text, "{run:?}");
        assert_linear(&t, run);
    }
}

/// The same by the best sum of scores, whose pieces are tried at every place.
#[test]
fn long_runs_take_linear_time_in_unigram_vocabularies() {
    let mut v = Vocabulary { model: "t5", ..Vocabulary::default() };
    v.add("<pad>", CONTROL);
    v.add("</s>", CONTROL);
    let unknown = v.add("<unk>", UNKNOWN);
    for (text, score) in [("▁", -2.0), ("a", -3.0), ("aa", -4.0), ("aaaa", -5.0), ("ab", -1.0)] {
        v.scored(text, NORMAL, score);
    }
    v.scored(&"a".repeat(64), NORMAL, -6.0);
    let t = v.key("tokenizer.ggml.unknown_token_id", unknown).build();
    for run in ["a", "ab", " ", "a ", "中", "e\u{301}", "\n", "</s>"] {
        let ids = t.encode(&run.repeat(1 << 12)).unwrap();
        assert!((1..=(2 + run.len()) << 12).contains(&ids.len()), "{run:?}: {}", ids.len());
        assert_linear(&t, run);
    }
}

#[test]
fn unigram_takes_the_best_sum() {
    let mut v = Vocabulary { model: "t5", ..Vocabulary::default() };
    v.add("<pad>", CONTROL);
    v.add("</s>", CONTROL);
    let unknown = v.add("<unk>", UNKNOWN);
    for (text, score) in [("▁", -2.0), ("▁a", -3.0), ("b", -4.0), ("ab", -1.0), ("", 5.0)] {
        v.scored(text, NORMAL, score);
    }
    let t = v
        .key("tokenizer.ggml.unknown_token_id", unknown)
        .key("tokenizer.ggml.remove_extra_whitespaces", true)
        .build();
    assert_eq!(texts(&t, "ab"), ["▁", "ab"]);
    assert_eq!(texts(&t, "  ab   a "), ["▁", "ab", "▁a"]);
    assert_eq!(texts(&t, "a中中b"), ["▁a", "<unk>", "b"]);
    assert_eq!(texts(&t, "</s>\0"), ["▁", "<unk>"]);
    assert_eq!(decode(&t, &t.encode("ab a").unwrap()), "ab a");
    assert_eq!((t.kind(), t.adds_bos()), ("t5", false));
    assert_eq!(t.encode(&"ab".repeat(1 << 17)).unwrap().len(), 1 + (1 << 17));
}

/// Merges of the file over characters, spaces as marks, bytes for what has no token; nothing merges over line breaks.
#[test]
fn gemma4_merges_characters_in_the_order_of_its_list() {
    let mut v = Vocabulary { model: "gemma4", ..Vocabulary::spm() };
    for text in ["▁", "a", "b", "\n"] {
        v.add(text, NORMAL);
    }
    for (left, right) in
        [("b", "a"), ("a", "b"), ("▁", "a"), ("▁a", "b"), ("\n", "\n"), ("\n", "a")]
    {
        v.merge(left, right);
    }
    let cell = v.add("<td>", USER_DEFINED);
    let v = v.key("tokenizer.ggml.add_bos_token", false);
    let t = v.build();
    assert_eq!(texts(&t, " aba"), ["▁a", "ba"]);
    assert_eq!(texts(&t, "a b\n\na"), ["a", "▁", "b", "\n\n", "a"]);
    assert_eq!(texts(&t, "é"), ["<0xC3>", "<0xA9>"]);
    assert_eq!(t.encode("<td>").unwrap(), [cell]);
    assert_eq!(decode(&t, &t.encode(" aba é\n\n<td> ").unwrap()), " aba é\n\n<td> ");
    // Files that say otherwise are known.
    assert!(t.adds_bos() && !t.adds_space());
    assert_eq!(t.kind(), "gemma4");
    // Other models have the same under the name of byte-level BPE.
    let t = Vocabulary { model: "gpt2", ..v }.key("tokenizer.ggml.pre", "mmbert").build();
    assert_eq!(texts(&t, " aba"), ["▁a", "ba"]);
    assert_eq!((t.kind(), t.adds_bos()), ("gpt2", false));
}
