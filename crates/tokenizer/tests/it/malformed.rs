//! Vocabularies that are wrong: refused with the key named, or survived with a warning.

use gguf::OwnedValue;
use proptest::prelude::*;

use crate::common::{BYTE, CONTROL, NORMAL, UNKNOWN, USER_DEFINED, Vocabulary, byte_char, decode};

/// The error names all of `words`, on one line of at most 400 characters.
fn refused(v: &Vocabulary, words: &[&str]) {
    let message = match v.try_build() {
        Ok(_) => panic!("accepted, expected an error with {words:?}"),
        Err(e) => e.to_string(),
    };
    assert!(words.iter().all(|word| message.contains(word)), "{message}: expected {words:?}");
    assert!(!message.contains(char::is_control) && message.chars().count() <= 400, "{message}");
}

/// It loads, warns with all of `words`, and still encodes.
fn survived(v: &Vocabulary, words: &[&str]) {
    let t = v.build();
    let warnings = t.warnings().join("\n");
    assert!(words.iter().all(|word| warnings.contains(word)), "{warnings:?}: expected {words:?}");
    assert!(words.is_empty() == warnings.is_empty(), "{warnings:?}: expected {words:?}");
    t.encode("some text é \u{1F600}\n\n  <0x0A>").unwrap();
}

/// Templates are compared with what stands around the roles in control tokens, so there may be only a few of these.
#[test]
fn too_many_roles_in_control_tokens_are_refused() {
    let with = |tokens: usize, repeats: usize| {
        let mut v = Vocabulary::byte_level();
        for i in 0..tokens {
            v.add(&format!("{i:04}{}", "tool".repeat(repeats)), CONTROL);
        }
        tokenizer::ChatTemplate::new("{{ 'a' }}", &v.build()).map(drop)
    };
    let message = |result: tokenizer::Result<()>| result.unwrap_err().to_string();
    // Many tokens, or few that name roles over and over.
    assert!(message(with(4_000, 120)).contains("roles in more than 256 ways"));
    assert!(message(with(100, 100)).contains("roles in more than 256 ways"));
    assert!(with(60, 4).is_ok());
}

fn bpe() -> Vocabulary {
    let mut v = Vocabulary::byte_level();
    v.merge("a", "b");
    v
}

#[test]
fn tables() {
    refused(&bpe().key("tokenizer.ggml.tokens", 7_u32), &["tokenizer.ggml.tokens"]);
    refused(&bpe().key("tokenizer.ggml.tokens", vec![1_i32, 2]), &["tokenizer.ggml.tokens"]);
    refused(
        &bpe().key("tokenizer.ggml.tokens", Vec::<&str>::new()),
        &["tokenizer.ggml.tokens", "found 0"],
    );
    refused(
        &bpe().key("tokenizer.ggml.token_type", vec![1_i32; 10]),
        &["token_type", "257 entries", "found 10"],
    );
    refused(&bpe().key("tokenizer.ggml.token_type", 1_i32), &["token_type"]);
    refused(
        &Vocabulary::spm().key("tokenizer.ggml.scores", vec![1_f32; 10]),
        &["scores", "259 entries", "found 10"],
    );
    refused(&Vocabulary::spm().key("tokenizer.ggml.scores", 1_f32), &["scores"]);
    let nan = Vocabulary::spm().key("tokenizer.ggml.scores", vec![f32::NAN; 259]);
    survived(&nan, &[]);
}

#[test]
fn tables_of_extreme_size() {
    let long = |len: usize, n: usize, kind| {
        let mut v = Vocabulary::spm();
        for i in 0..n {
            v.add(&format!("{i:0len$}"), kind);
        }
        v
    };
    refused(&long(1, (1 << 20) - 258, NORMAL), &["tokenizer.ggml.tokens", "1048576", "1048577"]);
    refused(&long(500, 4_300, USER_DEFINED), &["tokenizer.ggml.token_type", "2150000"]);
    survived(&long(190, 3_000, NORMAL), &[]);
    let mut v = Vocabulary { model: "t5", ..long(400, 9_000, NORMAL) };
    survived(&v, &[]);
    v.tokens =
        (0..9_000).map(|i| (format!("{i}{}", "x".repeat(400)).into_bytes(), NORMAL, 0.0)).collect();
    v.add("<unk>", crate::common::UNKNOWN);
    refused(&v, &["tokenizer.ggml.tokens", "1048576"]);
}

#[test]
fn ids_outside_the_vocabulary_count_as_absent() {
    let v = bpe()
        .key("tokenizer.ggml.bos_token_id", u32::MAX)
        .key("tokenizer.ggml.eos_token_id", 257_u32);
    survived(&v, &["bos_token_id", "4294967295", "eos_token_id", "257"]);
    let t = v.key("tokenizer.ggml.add_bos_token", true).build();
    assert_eq!((t.bos(), t.eos(), t.adds_bos()), (None, None, false));
    survived(&bpe().key("tokenizer.ggml.bos_token_id", -1_i32), &[]);
    refused(&bpe().key("tokenizer.ggml.bos_token_id", "one"), &["bos_token_id"]);
}

#[test]
fn odd_tokens() {
    let mut v = Vocabulary::spm();
    for (text, kind) in [
        ("<0xZZ>", BYTE),
        ("<0x-1>", BYTE),
        ("<0x+1>", BYTE),
        ("<0x41>", BYTE),
        ("", NORMAL),
        ("", CONTROL),
        ("", USER_DEFINED),
        ("same", NORMAL),
        ("same", NORMAL),
    ] {
        v.add(text, kind);
    }
    v.tokens.push((b"\xff\xfe".to_vec(), NORMAL, 0.0));
    v.tokens.push((b"\xff".to_vec(), USER_DEFINED, 0.0));
    v.tokens.push(("x".repeat(1 << 20).into_bytes(), NORMAL, 0.0));
    v.tokens.push(("y".repeat(1 << 20).into_bytes(), USER_DEFINED, 0.0));
    survived(&v, &[]);
    let t = v.build();
    // The first token of a byte is the one.
    assert_eq!(t.encode("A").unwrap().last(), Some(&(3 + 0x41)));
    let invalid = t.vocab_size() as u32 - 4;
    assert_eq!((t.token_text(invalid), t.bytes(invalid)), (None, b"\xff\xfe".to_vec()));

    let (mut b, odd) = (bpe(), v.tokens);
    b.tokens.extend(odd);
    survived(&b, &[]);
    let mut u = Vocabulary { model: "t5", tokens: b.tokens, ..Vocabulary::default() };
    u.tokens[0].1 = crate::common::UNKNOWN;
    survived(&u, &[]);
}

#[test]
fn kinds_of_vocabulary() {
    refused(
        &Vocabulary { model: "word\x1b[31m\npiece", ..bpe() },
        &["tokenizer.ggml.model", "\\u{1b}", "gpt2"],
    );
    refused(&bpe().key("tokenizer.ggml.model", 3_u32), &["tokenizer.ggml.model"]);
    refused(&Vocabulary { model: "t5", ..bpe() }, &["tokenizer.ggml.model", "unknown token"]);
    let empty = gguf::Gguf::from_bytes(
        gguf::Writer::new().set("general.architecture", "x").to_bytes().unwrap(),
    )
    .unwrap();
    let message = tokenizer::Tokenizer::from_gguf(empty.metadata()).err().unwrap().to_string();
    assert!(message.contains("tokenizer.ggml.model") && message.contains("missing"), "{message}");
}

#[test]
fn merges() {
    let lines = |lines: &[&'static str]| bpe().key("tokenizer.ggml.merges", lines.to_vec());
    refused(&bpe().key("tokenizer.ggml.merges", 1_u32), &["tokenizer.ggml.merges"]);
    refused(&bpe().key("tokenizer.ggml.merges", vec![1_u32]), &["tokenizer.ggml.merges"]);
    refused(&lines(&["ab", "zzz", "no such"]), &["tokenizer.ggml.merges", "pairs of tokens"]);
    survived(&lines(&["a b", "nospace", "x y", ""]), &["tokenizer.ggml.merges", "3 of 4"]);
    // Longer than any token: nothing to merge into.
    survived(&lines(&["a b", "ab ab"]), &["1 of 2"]);
    survived(&lines(&["a b", "a b"]), &[]);
    survived(&lines(&[]), &[]);
    let invalid = OwnedValue::Array(
        gguf::ValueType::String,
        vec![OwnedValue::String(b"\xff\xff a".to_vec()), "a b".into()],
    );
    survived(&bpe().key("tokenizer.ggml.merges", invalid), &["1 of 2"]);
    let mut none = bpe();
    none.model = "llama";
    none.keys.push(("tokenizer.ggml.model", "gpt2".into()));
    refused(&none, &["tokenizer.ggml.merges", "missing"]);
}

#[test]
fn an_unknown_pre_tokenizer_is_refused() {
    const JSON: &str = "tokenizer.huggingface.json";
    let unknown = || bpe().key("tokenizer.ggml.pre", "qwen\n99");
    refused(&unknown(), &["tokenizer.ggml.pre", "qwen\\n99", "there is no key", JSON]);
    let with = |json: &str, word: &str| refused(&unknown().key(JSON, json), &["qwen\\n99", word]);
    with("{", "no tokenizer.json");
    with("{}", "a step \"\"");
    with(r#"{"pre_tokenizer": {"type": "Metaspace"}}"#, "Metaspace");
    let split = |regex: &str, behavior: &str| {
        let regex = serde_json::to_string(regex).unwrap();
        format!(
            r#"{{"pre_tokenizer": {{"type": "Split", "pattern": {{"Regex": {regex}}}, "behavior": "{behavior}"}}}}"#
        )
    };
    with(&split(r"\p{L}+x", "Isolated"), "those of none that is known");
    with(&split("(?<=a)b", "Isolated"), "cannot be read");
    with(&split("a", "MergedWithNext"), "drops or joins");
    with(r#"{"pre_tokenizer": {"type": "ByteLevel"}}"#, "space before");
    refused(&bpe().key("tokenizer.ggml.pre", 1_u32), &["tokenizer.ggml.pre"]);
    let mut absent = bpe();
    absent.keys.clear();
    survived(&absent, &["tokenizer.ggml.pre", "missing"]);
}

/// Lost bytes are reported only for a text that needs them, not for the vocabulary as a whole. Bytes that no UTF-8 text contains
/// are never reported.
#[test]
fn only_a_text_that_loses_bytes_is_told() {
    let lost = |v: &Vocabulary, text: &str| {
        survived(v, &[]);
        let lost = v.build().lost_bytes(text).unwrap();
        lost.map(|lost| lost.to_string()).unwrap_or_default()
    };
    let without = |mut v: Vocabulary, first: usize, bytes: &[u8]| {
        bytes.iter().rev().for_each(|byte| drop(v.tokens.remove(first + usize::from(*byte))));
        v
    };
    let impossible: Vec<u8> = [0xC0, 0xC1].into_iter().chain(0xF5..=0xFF).collect();
    let every_char: String = ('\0'..=char::MAX).step_by(7).collect();
    for v in [without(bpe(), 0, &impossible), without(Vocabulary::spm(), 3, &impossible)] {
        assert_eq!(lost(&v, &every_char), "");
    }
    for v in [without(bpe(), 0, &[0x01, 0xF1]), without(Vocabulary::spm(), 3, &[0x01, 0xF1])] {
        assert_eq!(lost(&v, "Привет, 你好 🙂"), "");
        let told = lost(&v, "a\u{1}b \u{40000}");
        assert!(told.contains("cannot encode: 0x01 0xF1 (in U+0001)"), "{told}");
    }
    // a character that has a token needs no bytes, and neither does a word that is a token
    let mut v = without(Vocabulary::spm(), 3, &[0xC3]);
    assert!(lost(&v, "é").contains("0xC3 (in U+00E9)"));
    v.add("é", NORMAL);
    assert_eq!(lost(&v, "é"), "");
    let mut v = without(bpe(), 0, &[0xC3]).key("tokenizer.ggml.pre", "llama-bpe");
    assert!(lost(&v, "é").contains("0xC3"));
    v.add(&[0xC3, 0xA9].map(byte_char).iter().collect::<String>(), NORMAL);
    assert_eq!(lost(&v, "é"), "");
    let long: String = ('\u{80}'..='\u{BF}').collect();
    let told = lost(&without(bpe(), 0, &(0x80..=0xBF).collect::<Vec<_>>()), &long);
    assert!(told.contains("0x87 and 56 more"), "{told}");
}

#[test]
fn unknown_pieces_are_lost() {
    let mut v = Vocabulary { model: "t5", ..Vocabulary::default() };
    v.add("<unk>", UNKNOWN);
    v.add("▁a", NORMAL);
    v.add("a", NORMAL);
    let t = v.build();
    assert_eq!(t.lost_bytes("aa").unwrap(), None);
    let lost = t.lost_bytes("a\u{e9}").unwrap().expect("it has no piece");
    assert_eq!(lost.bytes().collect::<Vec<_>>(), [0xA9, 0xC3]);
}

proptest! {
    /// Whatever the tokens, nothing panics, text makes no control token, and ids outside make no text.
    #[test]
    fn any_vocabulary_is_refused_or_works(
        model in prop::sample::select(&["gpt2", "llama", "t5"][..]),
        tokens in prop::collection::vec((prop::collection::vec(prop::sample::select(&b"ab<>\xe2\x96\x81\xc4\xa00x41 "[..]), 0..6), 0_i32..8, -3.0_f32..3.0), 0..40),
        merges in prop::collection::vec("[ab<> ]{0,5}", 0..10),
        bos: u32,
        text in "[ab<>0x41 ▁é]{0,20}",
    ) {
        let v = Vocabulary { model, tokens, merges, keys: vec![("tokenizer.ggml.bos_token_id", (bos % 50).into())] };
        if let Ok(t) = v.try_build() {
            let ids = t.encode(&text).unwrap();
            prop_assert!(ids.iter().all(|&id| !t.is_control(id) && (id as usize) < t.vocab_size()));
            let all: Vec<u32> = (0..v.tokens.len() as u32 + 2).collect();
            decode(&t, &all);
            t.encode_special(&text).unwrap();
        }
    }
}
