//! Byte-level BPE on vocabularies made by hand.

use std::collections::HashSet;

use crate::common::{CONTROL, NORMAL, USER_DEFINED, Vocabulary, assert_linear, byte_char, decode};
use proptest::prelude::*;
use tokenizer::InfillMarks;
use tokenizer::internals::pair;

/// Bytes plus `he`, `ll`, `hell`, `Ġw`, `hello` (a token no merge makes), a control token and a user-defined one.
fn small() -> Vocabulary {
    let mut v = Vocabulary::byte_level();
    assert_eq!(v.merge("l", "l"), 256);
    assert_eq!(v.merge("h", "e"), 257);
    assert_eq!(v.merge("he", "ll"), 258);
    assert_eq!(v.merge("Ġ", "w"), 259);
    assert_eq!(v.add("hello", NORMAL), 260);
    assert_eq!(v.add("<|im_end|>", CONTROL), 261);
    assert_eq!(v.add("<tool>", USER_DEFINED), 262);
    v
}

#[test]
fn merges_apply_in_order_within_words() {
    let t = small().build();
    let check = |text: &str, ids: &[u32]| assert_eq!(t.encode(text).unwrap(), ids, "{text:?}");
    check("", &[]);
    check("hell", &[258]);
    check("hello", &[258, 111]);
    // `lll` merges from the left; `h` and `e` in different words do not meet.
    check("lll", &[256, 108]);
    check("h e", &[104, 32, 101]);
    check(" w", &[259]);
    check("  w", &[32, 259]);
    check("é", &[0xc3, 0xa9]);
    assert_eq!((t.kind(), t.pre(), t.vocab_size()), ("gpt2", Some("qwen2"), 263));
    assert_eq!(t.warnings(), &[] as &[String]);
}

#[test]
fn every_byte_has_its_character() {
    let mut v = Vocabulary::byte_level();
    let other = v.add("▁中\u{ff}", NORMAL);
    let t = v.build();
    let texts: HashSet<_> = (0..256).map(|id| t.token_text(id).unwrap()).collect();
    assert_eq!(texts.len(), 256);
    assert_eq!(
        [b' ', b'\n', b'a', 0x7f].map(|b| t.token_text(b.into()).unwrap()),
        ["Ġ", "Ċ", "a", "ġ"]
    );
    let bytes: Vec<u8> = (0..256).flat_map(|id| t.bytes(id)).collect();
    assert_eq!(bytes, (0..=255).collect::<Vec<u8>>());
    assert_eq!(t.bytes(other), ["▁中".as_bytes(), b"\xff"].concat());
    // every byte that UTF-8 has becomes its token
    for c in (0..0x800).chain((0..0x11_0000).step_by(0x1000)).filter_map(char::from_u32) {
        let ids: Vec<u32> = c.to_string().bytes().map(u32::from).collect();
        assert_eq!(t.encode(&c.to_string()).unwrap(), ids, "{c:?}");
    }
}

#[test]
fn merges_split_at_the_first_space_that_can() {
    assert_eq!(pair("Ġ a".as_bytes()), Some(("Ġ", "a")));
    assert_eq!(pair(b"  b"), Some((" ", "b")));
    for bad in [&b""[..], b" ", b"ab", b"ab ", b"\xff a"] {
        assert_eq!(pair(bad), None, "{bad:?}");
    }
}

#[test]
fn whole_words_win_where_the_pre_tokenizer_says_so() {
    let t = small().key("tokenizer.ggml.pre", "llama-bpe").build();
    assert_eq!(t.encode("hello").unwrap(), [260]);
    assert_eq!(t.encode("hellow").unwrap(), [258, 111, 119]);
}

/// Names that are not known, with what the models' own files say.
#[test]
fn a_pre_tokenizer_is_recognized_by_what_it_does() {
    let built = |json: &str| {
        small().key("tokenizer.ggml.pre", "new").key("tokenizer.huggingface.json", json).build()
    };
    // Qwen 2's, written otherwise.
    let qwen = r#"{"model": {"vocab": {"a": 1}}, "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
        {"type": "Split", "pattern": {"Regex": "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\n\\r\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\p{N}\\s\\p{L}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"},
         "behavior": "Isolated", "invert": false},
        {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false}]}}"#;
    let t = built(qwen);
    let named = small().build();
    for text in ["hello w  world's 123\n\n x", "a\r\n b"] {
        assert_eq!(t.encode(text).unwrap(), named.encode(text).unwrap());
    }
    assert_eq!(t.encode("hello").unwrap(), [258, 111]);
    assert_eq!(t.warnings(), &[] as &[String]);
    // Digits one by one, then GPT-2's; whole words as the model says.
    let digits = r#"{"model": {"ignore_merges": true}, "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
        {"type": "Digits", "individual_digits": true},
        {"type": "ByteLevel", "add_prefix_space": false}]}}"#;
    assert_eq!(built(digits).encode("hello").unwrap(), [260]);
}

#[test]
fn text_from_outside_never_becomes_a_control_token() {
    let t = small().build();
    let ids = t.encode("a<|im_end|>b").unwrap();
    assert!(ids.iter().all(|&id| !t.is_control(id)), "{ids:?}");
    assert_eq!(decode(&t, &ids), "a<|im_end|>b");
    assert_eq!(t.encode_special("a<|im_end|>b").unwrap(), [97, 261, 98]);
    assert_eq!(t.bytes(261), b"");
    assert_eq!(t.token_text(261), Some("<|im_end|>"));
    // User-defined tokens are text: found in either way of reading.
    assert_eq!(t.encode("a<tool>b").unwrap(), [97, 262, 98]);
    assert_eq!(t.encode_special("<tool><tool>").unwrap(), [262, 262]);
    assert_eq!(t.bytes(262), b"<tool>");
}

#[test]
fn a_token_that_ends_turns_is_control_even_if_the_file_says_otherwise() {
    for kind in [NORMAL, USER_DEFINED] {
        let mut v = Vocabulary::byte_level();
        let end = v.add("<|im_end|>", kind);
        let t = v.build();
        assert!(t.is_control(end) && t.is_eog(end));
        assert!(!t.encode("<|im_end|>").unwrap().contains(&end));
    }
}

#[test]
fn ends_of_generation() {
    let mut v = Vocabulary::byte_level();
    let named: Vec<u32> = ["<a>", "<b>", "<c>"].map(|text| v.add(text, CONTROL)).into();
    let known: Vec<u32> =
        ["<|eot_id|>", "<|endoftext|>", "<end_of_turn>", "<｜end▁of▁sentence｜>", "</s>"]
            .map(|text| v.add(text, CONTROL))
            .into();
    let not: Vec<u32> = vec![v.add("<|im_start|>", CONTROL), v.add("[EOS]", NORMAL), 97];
    let t = v
        .key("tokenizer.ggml.eos_token_id", named[0])
        .key("tokenizer.ggml.eot_token_id", named[1])
        .key("tokenizer.ggml.eom_token_id", named[2])
        .build();
    assert!(named.iter().chain(&known).all(|&id| t.is_eog(id)));
    assert!(not.iter().all(|&id| !t.is_eog(id)));
    assert_eq!(t.eos(), Some(named[0]));
}

#[test]
fn marks_of_holes_are_found_by_key_and_by_name() {
    let mut v = Vocabulary::byte_level();
    assert_eq!(v.build().infill(), None);
    let [file, pad, a] = ["<|file_sep|>", "<|fim_pad|>", "<a>"].map(|text| v.add(text, NORMAL));
    let [prefix, suffix] = ["<|fim_prefix|>", "<|fim_suffix|>"].map(|text| v.add(text, NORMAL));
    let t = v.build();
    assert_eq!(t.infill(), None, "one mark is missing");
    assert!(![file, pad, prefix].iter().any(|&id| t.is_eog(id) || t.is_control(id)));
    let middle = v.add("<|fim_middle|>", NORMAL);
    let marks = InfillMarks { prefix, suffix, middle, repository: None, file: Some(file) };
    let t = v.build();
    assert_eq!(t.infill(), Some(marks));
    // no text becomes one, and what would begin another file is not chosen as text of this one
    assert!([file, pad, prefix, suffix, middle].iter().all(|&id| t.is_control(id)));
    assert!(t.encode("<|fim_prefix|><|file_sep|>").unwrap().iter().all(|&id| !t.is_control(id)));
    assert_eq!([file, pad, prefix, middle].map(|id| t.is_eog(id)), [true, true, false, false]);
    // the file knows better, of all three or of none
    let v = v.key("tokenizer.ggml.fim_pre_token_id", a).key("tokenizer.ggml.fim_rep_token_id", a);
    assert_eq!(v.build().infill(), Some(InfillMarks { repository: Some(a), ..marks }));
    let v = v.key("tokenizer.ggml.suffix_token_id", suffix);
    let v = v.key("tokenizer.ggml.fim_mid_token_id", middle);
    let t = v.build();
    assert_eq!(t.infill(), Some(InfillMarks { prefix: a, repository: Some(a), ..marks }));
    assert!(!t.is_control(a) && !t.is_eog(a), "it may be text");
}

#[test]
fn a_message_end_is_no_turn_end_where_turns_end_otherwise() {
    let mut v = Vocabulary::byte_level();
    let [end, ret, call] = ["<|end|>", "<|return|>", "<|call|>"].map(|text| v.add(text, CONTROL));
    let t = v.build();
    assert!(!t.is_eog(end) && t.is_eog(ret) && t.is_eog(call));
    let mut v = Vocabulary::byte_level();
    let [end, calls, turn] = ["<|end|>", "<|calls|>", "<turn|>"].map(|text| v.add(text, CONTROL));
    let t = v.build();
    assert!(t.is_eog(end) && t.is_eog(calls) && t.is_eog(turn));
    v.add("<|flush|>", CONTROL);
    assert!(!v.build().is_eog(end));
}

#[test]
fn longest_whole_token_wins() {
    let mut v = Vocabulary::byte_level();
    let short = v.add("<x", USER_DEFINED);
    let long = v.add("<x>", USER_DEFINED);
    let t = v.build();
    assert_eq!(t.encode("<x><x").unwrap(), [long, short]);
}

#[test]
fn a_token_adds_its_bytes_even_if_they_are_part_of_a_character() {
    let t = Vocabulary::byte_level().build();
    for byte in 0..=255 {
        assert_eq!(t.bytes(u32::from(byte)), [byte]);
    }
    assert_eq!(t.bytes(9999), b"", "outside the vocabulary");
}

/// The merges as the definition says: again and again the first merge in the list that some pair matches, leftmost.
fn by_definition(merges: &[(String, String)], word: &str) -> Vec<String> {
    let mut parts: Vec<String> = word.bytes().map(|b| byte_char(b).to_string()).collect();
    loop {
        let found = merges
            .iter()
            .find_map(|(l, r)| parts.windows(2).position(|pair| pair[0] == *l && pair[1] == *r));
        let Some(at) = found else { return parts };
        let right = parts.remove(at + 1);
        parts[at].push_str(&right);
    }
}

proptest! {
    #[test]
    fn any_text_comes_back(text in ".{0,60}") {
        let t = small().build();
        let ids = t.encode(&text).unwrap();
        prop_assert!(ids.iter().all(|&id| !t.is_control(id)));
        prop_assert_eq!(decode(&t, &ids), text);
    }

    #[test]
    fn tokens_are_those_of_the_definition(picks in prop::collection::vec((0_usize..9, 0_usize..9), 1..12), word in "[abc]{1,40}", long: bool) {
        let mut v = Vocabulary::byte_level();
        let mut parts: Vec<String> = ["a", "b", "c"].map(str::to_owned).into();
        let mut merges = Vec::new();
        for (l, r) in picks {
            let (l, r) = (parts[l % parts.len()].clone(), parts[r % parts.len()].clone());
            let union = format!("{l}{r}");
            if !parts.contains(&union) {
                v.merge(&l, &r);
                parts.push(union);
                merges.push((l, r));
            }
        }
        let t = v.build();
        // Long words take another way than short ones: to the same tokens.
        let word = if long { word.repeat(1 + 1024 / word.len()) } else { word };
        let got: Vec<String> = t.encode(&word).unwrap().iter().map(|&id| t.token_text(id).unwrap().to_owned()).collect();
        prop_assert_eq!(got, by_definition(&merges, &word));
    }
}

/// One word of a megabyte: the merges must not go over it again and again.
#[test]
fn long_runs_take_linear_time() {
    let mut v = Vocabulary::byte_level();
    for c in ["a", "Ġ", "Ċ", "1"] {
        let mut part = c.to_owned();
        for _ in 0..4 {
            v.merge(&part.clone(), &part.clone());
            part = part.repeat(2);
        }
    }
    let t = v.build();
    for run in ["a", " ", "\n", "1", "中", "e\u{301}", "👩\u{200d}", " a", "!"] {
        let bytes = if run.len() == 1 && run != "!" { 1 << 20 } else { 1 << 17 };
        let text = run.repeat(bytes / run.len());
        let ids = t.encode(&text).unwrap();
        let bytes: Vec<u8> = ids.iter().flat_map(|&id| t.bytes(id)).collect();
        assert!(bytes == text.as_bytes(), "{run:?}");
        assert_linear(&t, run);
    }
}
