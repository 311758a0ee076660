//! Real files made by other programs, where the shared folder is present.

use std::path::PathBuf;

use gguf::naming::FileName;
use gguf::{GgmlType, Gguf};

use crate::build::exercise;

/// The folder, or that its tests are skipped.
fn shared() -> Option<PathBuf> {
    testing::shared().map_err(|why| testing::golden_skipped(&format!("gguf: {why}"))).ok()
}

#[test]
#[cfg_attr(miri, ignore = "megabytes")]
fn vocabularies() {
    let Some(shared) = shared() else { return };
    for (name, model, n_tokens) in [
        ("qwen2", "gpt2", 151_936),
        ("llama-spm", "llama", 32_000),
        ("deepseek-llm", "gpt2", 102_400),
    ] {
        let gguf =
            Gguf::open(&shared.join(format!("models/vocab/ggml-vocab-{name}.gguf"))).unwrap();
        let m = gguf.metadata();
        assert_eq!(
            (m.str("tokenizer.ggml.model").unwrap(), gguf.tensors().len()),
            (Some(model), 0),
            "{name}"
        );
        let tokens = m.strings("tokenizer.ggml.tokens").unwrap().unwrap();
        assert_eq!((tokens.len(), tokens.clone().count()), (n_tokens, n_tokens), "{name}");
        assert!(tokens.clone().all(|t| std::str::from_utf8(t).is_ok()), "{name}");
        assert_eq!(m.i32s("tokenizer.ggml.token_type").unwrap().unwrap().len(), n_tokens, "{name}");
        exercise(&gguf);
    }
}

#[test]
#[cfg_attr(miri, ignore = "megabytes")]
fn golden_models() {
    let Some(shared) = shared() else { return };
    let mut seen = 0;
    for entry in std::fs::read_dir(shared.join("golden/quant")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|e| e != "gguf") {
            continue;
        }
        let gguf = Gguf::open(&path).unwrap();
        assert_eq!((gguf.version(), gguf.metadata().architecture().unwrap()), (3, "qwen2"));
        assert_eq!(
            gguf.tensors().len(),
            2 * 12 + 2 + usize::from(gguf.tensor("output.weight").is_some()),
            "{path:?}"
        );
        assert!(exercise(&gguf) > 0);
        // `tiny-quant.q4_k_m.gguf`: the encoding after a dot is that of the matrices.
        let name = FileName::parse(path.file_name().unwrap().to_str().unwrap());
        let encoding = name.encoding.unwrap();
        let ty = gguf.tensor("blk.0.ffn_up.weight").unwrap().ty().unwrap();
        assert_eq!(GgmlType::from_name(encoding.trim_end_matches("_m")), Some(ty), "{path:?}");
        seen += 1;
    }
    assert_eq!(seen, 17);
}
