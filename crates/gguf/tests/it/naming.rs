//! File names, parsed and produced.

use std::path::Path;

use gguf::naming::{FileKind, FileName, Shard};
use gguf::{FILE_TYPES, FileType};
use proptest::prelude::*;

/// `base|size|fine tune|version|encoding|kind|shard`, absent parts empty.
fn check(name: &str, expect: &str) {
    let n = FileName::parse(name);
    let text = |part: &Option<String>| part.clone().unwrap_or_default();
    let kind = n.kind.map_or("", FileKind::name);
    let shard = n.shard.map(|s| s.to_string()).unwrap_or_default();
    let (size, tune) = (text(&n.size_label), text(&n.fine_tune));
    let found = format!(
        "{}|{size}|{tune}|{}|{}|{kind}|{shard}",
        n.base,
        text(&n.version),
        text(&n.encoding)
    );
    assert_eq!(found, expect, "{name}");
}

#[test]
fn names_by_the_convention() {
    check("Mixtral-8x7B-v0.1-KQ2.gguf", "Mixtral|8x7B||v0.1|KQ2||");
    check("Hermes-2-Pro-Llama-3-8B-F16.gguf", "Hermes-2-Pro-Llama-3|8B|||F16||");
    check("Hermes-2-Pro-Llama-3-8B-v1.0-F16.gguf", "Hermes-2-Pro-Llama-3|8B||v1.0|F16||");
    check("Grok-100B-v1.0-Q4_0-00003-of-00009.gguf", "Grok|100B||v1.0|Q4_0||00003-of-00009");
    check(
        "Phi-3-mini-3.8B-ContextLength4k-instruct-v1.0.gguf",
        "Phi-3-mini|3.8B-ContextLength4k|instruct|v1.0|||",
    );
    check("Qwen3-30B-A3B-Instruct-v2507-Q4_K_M.gguf", "Qwen3|30B-A3B|Instruct|v2507|Q4_K_M||");
    check("Llama-3-8B-Instruct-v1.0-F16-LoRA.gguf", "Llama-3|8B|Instruct|v1.0|F16|LoRA|");
    check("Llama-3-8B-v1.0-vocab.gguf", "Llama-3|8B||v1.0||vocab|");
    check("Model-7B-v1-custom_enc.gguf", "Model|7B||v1|custom_enc||");
}

#[test]
fn names_outside_it() {
    check("qwen2.5-0.5b-instruct-q4_k_m.gguf", "qwen2.5|0.5b|instruct||q4_k_m||");
    check("mistral-7b-instruct-v0.2.Q4_K_M.gguf", "mistral|7b|instruct|v0.2|Q4_K_M||");
    check("tiny-quant.iq4_nl.gguf", "tiny-quant||||iq4_nl||");
    check("ggml-vocab-qwen2.gguf", "ggml-vocab-qwen2||||||");
    check("not-a-known-arrangement.gguf", "not-a-known-arrangement||||||");
    check("Qwen3-8B-UD-Q4_K_XL.gguf", "Qwen3|8B|UD||Q4_K_XL||");
    check("gpt-oss-20b-mxfp4.GGUF", "gpt-oss|20b|||mxfp4||");
    check("/models/sub/Q8_0.gguf", "Q8_0||||||");
    check("C:\\models\\a-1B.gguf", "a|1B|||||");
    check("m-00000-of-00003.gguf", "m-00000-of-00003||||||");
    check("m-00004-of-00003.gguf", "m-00004-of-00003||||||");
    check("m-00001-of-00003", "m||||||00001-of-00003");
    check("model.gguf.part", "model.gguf.part||||||");
    check("", "||||||");
    check(".gguf", "||||||");
    check("--.gguf", "--||||||");
    check("\u{1f600}-7B-Q4_0.gguf", "\u{1f600}|7B|||Q4_0||");
}

#[test]
fn absent_version_is_the_first() {
    let name = FileName::parse("Hermes-2-Pro-Llama-3-8B-F16.gguf");
    assert_eq!(name.version(), "v1.0");
    assert_eq!(name.to_string(), "Hermes-2-Pro-Llama-3-8B-v1.0-F16.gguf");
}

#[test]
fn siblings() {
    let path = Path::new("/a-00001-of-00009.gguf/m-00002-of-00003.GGUF");
    let shard = Shard::of(path);
    assert_eq!(shard, Some(Shard { no: 2, count: 3 }));
    let third = Shard { no: 3, count: 3 }.sibling_of(path);
    assert_eq!(third, Path::new("/a-00001-of-00009.gguf/m-00003-of-00003.GGUF"));
    assert_eq!(Shard::of(Path::new("m.gguf")), None);
}

fn name() -> impl Strategy<Value = FileName> {
    let option = prop::option::of::<&'static str>;
    (
        "[A-Z][a-z]{1,6}(-[A-Z][a-z]{1,5}){0,2}(-[0-9])?",
        (
            option("([1-9]x)?[1-9]{1,3}(\\.[0-9])?[QTBMK](-[A-Z][a-z]{0,4}[1-9]k)?"),
            option("[A-Z][a-z]{2,6}"),
        ),
        "v[0-9]{1,2}(\\.[0-9]){0,2}",
        option("(Q[2-8]_[0K]|IQ[1-4]_XS|F16|BF16|TQ1_0|my_type)"),
        prop::option::of(prop_oneof![Just(FileKind::Lora), Just(FileKind::Vocab)]),
        prop::option::of(
            (1_u32..5, 0_u32..5).prop_map(|(no, more)| Shard { no, count: no + more }),
        ),
    )
        .prop_map(|(base, (size_label, tune), version, encoding, kind, shard)| {
            // the size before a fine tune separates its name from that of the base model
            let fine_tune = tune.filter(|_| size_label.is_some());
            FileName { base, size_label, fine_tune, version: Some(version), encoding, kind, shard }
        })
}

proptest! {
    #[test]
    fn produced_names_parse_back(name in name()) {
        prop_assert_eq!(FileName::parse(&name.to_string()), name);
    }

    #[test]
    fn any_text_parses_and_settles(text in ".{0,40}", dashes in "[-a-zA-Z0-9._]{0,30}") {
        for text in [text, dashes] {
            let once = FileName::parse(&text);
            let produced = once.to_string();
            prop_assert_eq!(FileName::parse(&produced).to_string(), produced);
        }
    }
}

#[test]
fn file_types_have_one_name_each() {
    let described = |number| FileType::from_number(number).map(|ty| ty.description);
    assert_eq!(described(15), Some("Q4_K - Medium"));
    assert_eq!((described(4), described(1 << 40)), (None, None));
    assert!(FILE_TYPES.is_sorted_by(|a, b| a.number < b.number && a.name != b.name));
}
