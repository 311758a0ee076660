//! The fuzzer's seed files, run through the reader without the fuzzer.

use std::path::Path;

use gguf::{GgmlType, Gguf, OwnedValue, ValueType, Writer};

use crate::build::{Raw, error, exercise, sample};

/// `(file name, content, whether it loads)`.
fn seeds() -> Vec<(&'static str, Vec<u8>, bool)> {
    let bytes = |w: &Writer| w.to_bytes().expect("the writer's own");
    let good = bytes(&sample());
    let mut wide = Writer::new();
    wide.version(2).set("general.alignment", 64_u32).set("tokenizer.ggml.tokens", vec!["t"; 20]);
    wide.tensor("blk.0.ffn_up.weight", GgmlType::Q6K, &[256, 1], vec![1; 210]);
    let deep = (0..7).fold(OwnedValue::from([1_u8, 2]), |inner, _| {
        OwnedValue::Array(ValueType::Array, vec![inner])
    });
    vec![
        ("sample", good.clone(), true),
        ("version2", bytes(&wide), true),
        ("empty", Raw::new(3, 0, 0).0, true),
        ("nested", bytes(Writer::new().set("k", deep)), true),
        ("unknown-type", Raw::entry(b"t", &[8], 99, 0).pad().0, true),
        ("cut-metadata", good[..300].to_vec(), false),
        ("cut-data", good[..good.len() - 40].to_vec(), false),
        ("huge-array", Raw::pair(b"k", 9).u32(4).u64(1 << 62).0, false),
        ("huge-offset", Raw::entry(b"t", &[8], 0, u64::MAX - 31).pad().0, false),
        ("page", b"<!doctype html>".to_vec(), false),
    ]
}

/// To write the files anew after a change to `seeds`: `ROOFLIGHT_BLESS=1 cargo test -p rooflight-gguf corpus`.
#[test]
fn corpus() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/gguf_reader");
    for (name, bytes, loads) in seeds() {
        let path = dir.join(name);
        if std::env::var_os("ROOFLIGHT_BLESS").is_some() {
            std::fs::write(&path, &bytes).unwrap();
        }
        assert_eq!(std::fs::read(&path).unwrap(), bytes, "{name}: see the comment above");
        assert_eq!(Gguf::from_bytes(bytes).is_ok(), loads, "{name}");
    }
    // Whatever else the fuzzer found and somebody kept.
    for entry in std::fs::read_dir(dir).unwrap() {
        let bytes = std::fs::read(entry.unwrap().path()).unwrap();
        match Gguf::from_bytes(bytes.clone()) {
            Ok(gguf) => drop(exercise(&gguf)),
            Err(_) => drop(error(bytes)),
        }
    }
}
