//! WordPiece against the ids that `BertTokenizer` of `transformers` gives (`../data/wordpiece.py`).

use serde_json::Value;

use crate::common::{CONTROL, NORMAL, Vocabulary, assert_linear, decode};

const TABLES: &str = include_str!("../data/wordpiece.json");

fn ids(value: &Value) -> Vec<u32> {
    value.as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as u32).collect()
}

fn strings(value: &Value) -> Vec<&str> {
    value.as_array().unwrap().iter().map(|text| text.as_str().unwrap()).collect()
}

#[test]
fn ids_are_those_of_transformers() {
    let data: Value = serde_json::from_str(TABLES).unwrap();
    let texts = strings(&data["texts"]);
    let tables = data["tables"].as_array().unwrap();
    assert!(texts.len() > 200 && tables.len() == 4);
    for table in tables {
        let lowercase = table["lowercase"].as_bool().unwrap();
        let mut v = Vocabulary::wordpiece(strings(&data["tokens"]));
        // What a file says of an uncased model is nothing.
        if !lowercase {
            v = v.key("tokenizer.ggml.normalizer.lowercase", false);
        }
        if let Some(strips) = table["strip_accents"].as_bool() {
            v = v.key("tokenizer.ggml.normalizer.strip_accents", strips);
        }
        let t = v.build();
        for (text, expected) in texts.iter().zip(table["ids"].as_array().unwrap()) {
            assert_eq!(t.encode(text).unwrap(), ids(expected), "{text:?} {lowercase}");
        }
        assert_eq!(t.encode_whole("Hello, world!").unwrap(), ids(&table["whole"]));
        assert_eq!(t.encode_pair("Hello, world!", "don't").unwrap(), ids(&table["pair"]));
    }
}

/// Words without an end, and texts without words.
#[test]
fn long_runs_take_linear_time() {
    let tokens = ["[UNK]", "[CLS]", "[SEP]", "a", "##a", "##aa", "##aaaa", "b", "!", "中"];
    let t = Vocabulary::wordpiece(tokens).build();
    for run in ["a", "aab", "a ", " ", "\n", "!", "中", "e\u{301}", "É", "\u{1d400}", "[SEP]"] {
        assert!(t.encode(&run.repeat(100)).unwrap().len() <= 100 * run.len(), "{run:?}");
        assert_linear(&t, run);
    }
}

#[test]
fn roles_are_read_from_keys_or_from_spellings() {
    let tokens = ["[UNK]", "[CLS]", "[SEP]", "a", "##b"];
    let t = Vocabulary::wordpiece(tokens).build();
    assert_eq!((t.bos(), t.sep(), t.eos(), t.kind()), (Some(1), Some(2), None, "bert"));
    assert!(t.adds_bos() && t.is_control(1) && t.is_control(2));
    assert_eq!(t.encode_whole("ab c").unwrap(), [1, 3, 4, 0, 2]);
    assert_eq!(t.encode_special("ab[SEP]a").unwrap(), [3, 4, 2, 3]);
    assert_eq!(t.encode("[SEP]").unwrap(), [0, 0, 0], "text from outside");
    assert_eq!(decode(&t, &[3, 4, 3]), "ab a");

    let mut v = Vocabulary::wordpiece(["a", "##b"]);
    let named = ["<u>", "<c>", "<s>"].map(|text| v.add(text, CONTROL));
    let t = v
        .key("tokenizer.ggml.unknown_token_id", named[0])
        .key("tokenizer.ggml.cls_token_id", named[1])
        .key("tokenizer.ggml.seperator_token_id", named[2])
        .build();
    assert_eq!(t.encode_whole("c a").unwrap(), [named[1], named[0], 0, named[2]]);
}

#[test]
fn end_tokens_are_those_the_file_asks_for() {
    let mut v = Vocabulary::byte_level();
    let [bos, eos, sep] = ["<b>", "<e>", "<s>"].map(|text| v.add(text, CONTROL));
    let mut v = v
        .key("tokenizer.ggml.bos_token_id", bos)
        .key("tokenizer.ggml.eos_token_id", eos)
        .key("tokenizer.ggml.seperator_token_id", sep);
    assert_eq!(v.build().encode_whole("a").unwrap(), [97]);
    v = v.key("tokenizer.ggml.add_bos_token", true).key("tokenizer.ggml.add_eos_token", true);
    assert_eq!(v.build().encode_whole("a").unwrap(), [bos, 97, eos]);
    assert_eq!(v.build().encode_pair("a", "b").unwrap(), [bos, 97, eos, 98, eos]);
    v = v.key("tokenizer.ggml.add_sep_token", true);
    assert_eq!(v.build().encode_pair("a", "b").unwrap(), [bos, 97, eos, sep, 98, eos]);
}

#[test]
fn vocabularies_without_what_words_need_are_refused() {
    let error = |v: Vocabulary| v.try_build().err().unwrap().to_string();
    assert!(error(Vocabulary::wordpiece(["a"])).contains("unknown token"));
    let mut v = Vocabulary::wordpiece(["[UNK]", "##b"]);
    v.add("▁", NORMAL);
    assert!(error(v).contains("tokens that begin words"));
}

#[test]
fn long_texts_take_linear_time() {
    let t = Vocabulary::wordpiece(["[UNK]", "a", "##a", "!"]).build();
    assert_eq!(t.encode(&"a".repeat(1 << 22)).unwrap(), [0]);
    assert_eq!(t.encode(&"!".repeat(1 << 20)).unwrap().len(), 1 << 20);
    assert_eq!(t.encode(&"aaa ".repeat(1 << 18)).unwrap().len(), 3 << 18);
}

#[test]
fn unknown_text_is_no_control_token() {
    let mut v = Vocabulary::wordpiece(["a", "##b"]);
    let [unknown, end] = ["[X]", "[SEP]"].map(|text| v.add(text, CONTROL));
    let v = v.key("tokenizer.ggml.seperator_token_id", end);
    let v = v.key("tokenizer.ggml.unknown_token_id", unknown);
    let t = v.build();
    assert!(!t.is_control(unknown) && t.is_control(end));
    assert_eq!(t.encode("c a").unwrap(), [unknown, 0]);
    // one that ends texts is no unknown token, and without one there is no WordPiece
    let error = v.key("tokenizer.ggml.unknown_token_id", end).try_build().err().unwrap();
    assert!(error.to_string().contains("an unknown token"), "{error}");
}
