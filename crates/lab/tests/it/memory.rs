//! `rooflight-lab memory`.

use conformance::demo_gguf;
use gguf::Gguf;
use serde_json::Value;
use testing::Sandbox;

/// The model that the product brings along: large enough for what the system counts to tell.
const DEMO: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../demo-model/assets/rooflight-demo-5m-q8_0.gguf");

/// S0.18: theory is what the tensors add up to, and the system counts what the executor declares.
#[test]
fn what_is_declared_is_taken() {
    let place = Sandbox::new(env!("CARGO_BIN_EXE_rooflight-lab"));
    place.write("small.gguf", demo_gguf());
    let args = ["memory", DEMO, "small.gguf", "-c", "2k", "--chunk", "128", "-t", "2"];
    let out = place.ok(&[&args[..], &["--json"]].concat());
    let models: Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!(models.as_array().map(Vec::len), Some(2));
    let number = |key: &str| models[0][key].as_u64().unwrap_or_else(|| panic!("{key}: {models}"));
    let file = Gguf::open(DEMO.as_ref()).expect("the bundled model");
    let tensors: u64 = file.tensors().iter().map(|tensor| tensor.byte_len() as u64).sum();
    assert_eq!(number("theory_bytes"), tensors);
    assert_eq!(number("file_bytes"), std::fs::metadata(DEMO).unwrap().len());
    assert!(number("file_bytes") > tensors);
    assert_eq!(number("declared_weight_bytes"), number("weight_bytes"));
    let declared = ["weight", "cache", "work"].map(|of| number(&format!("declared_{of}_bytes")));
    assert!(number("cache_bytes") <= declared[1]);
    // weights and cache are touched whole; buffers beside them are rounded up to large pages
    let (loaded, full) = (number("loaded_bytes"), number("full_bytes"));
    assert!(loaded as f64 > 0.9 * declared[0] as f64, "{models}");
    assert!(full > loaded && full - loaded > declared[1] / 2, "{models}");
    assert!(full < declared.iter().sum::<u64>() + (64 << 20), "{models}");
    let text = place.ok(&args);
    assert!(text.contains("Context 2048, cache f16, 128 at a time"), "{text}");
    assert!(text.contains("rooflight-demo-5m-q8_0.gguf") && text.contains("small.gguf"), "{text}");
}
