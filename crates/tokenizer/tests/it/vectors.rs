//! The real vocabularies of the shared folder and the ids llama.cpp makes of their texts.

use std::path::{Path, PathBuf};

use crate::common::{decode, shared};
use gguf::Gguf;
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use tokenizer::Tokenizer;

fn files(dir: &Path) -> Vec<PathBuf> {
    let mut files: Vec<_> = dir
        .read_dir()
        .expect("the folder of vocabularies can be read")
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|e| e == "gguf"))
        .collect();
    files.sort();
    files
}

/// What is wrong with some of the files, as loading tells it.
const FAULTS: &[(&str, &str)] = &[
    ("command-r", "1 of 253333 are no pairs of tokens"),
    ("mpt", "2 of 50009 are no pairs of tokens"),
];

fn load(path: &Path) -> Tokenizer {
    let tokenizer = Tokenizer::from_gguf(Gguf::open(path).unwrap().metadata()).unwrap();
    let name = path.file_stem().unwrap().to_string_lossy();
    let faults = FAULTS.iter().filter(|(file, _)| name.ends_with(file)).map(|(_, fault)| *fault);
    let warnings = tokenizer.warnings();
    let told = warnings.iter().zip(faults.clone()).all(|(warning, fault)| warning.contains(fault));
    assert!(told && warnings.len() == faults.count(), "{}: {warnings:?}", path.display());
    tokenizer
}

/// Texts and their ids.
fn vectors(path: &Path) -> Vec<(String, Vec<u32>)> {
    let read =
        |suffix: &str| std::fs::read_to_string(format!("{}{suffix}", path.display())).unwrap();
    let (texts, ids) = (read(".inp"), read(".out"));
    // Most files have one behind the last text too.
    let texts = texts.strip_suffix("\n__ggml_vocab_test__\n").unwrap_or(&texts);
    let texts: Vec<_> = texts.split("\n__ggml_vocab_test__\n").map(str::to_owned).collect();
    let ids: Vec<Vec<u32>> = ids
        .lines()
        .map(|line| line.split_whitespace().map(|id| id.parse().unwrap()).collect())
        .collect();
    assert_eq!(texts.len(), ids.len(), "{}", path.display());
    texts.into_iter().zip(ids).collect()
}

#[test]
fn every_line_gives_the_ids_of_llama_cpp_and_comes_back() {
    let Some(shared) = shared() else { return };
    let dir = shared.join("models/vocab");
    let files = files(&dir);
    assert!(!files.is_empty(), "no vocabulary in {}", dir.display());
    for path in files {
        let tokenizer = load(&path);
        for (i, (text, ids)) in vectors(&path).into_iter().enumerate() {
            let got = tokenizer.encode(&text).unwrap();
            assert_eq!(got, ids, "{} text {}: {text:?}", path.display(), i + 1);
            assert_eq!(decode(&tokenizer, &got), text, "{} text {}", path.display(), i + 1);
        }
    }
}

/// What ends a reply beside the end token that the file names. llama.cpp ends replies at `<|tool_response>` too, which the
/// file of Gemma 4 has as text.
#[test]
fn turns_end_at_the_tokens_that_end_them() {
    let Some(shared) = shared() else { return };
    for (file, ends) in [
        ("gemma-4", &[1_u32, 106][..]),
        ("qwen2", &[151_643, 151_645]),
        ("command-r", &[255_001]),
        ("deepseek-llm", &[100_001]),
        ("llama-spm", &[2]),
    ] {
        let path = shared.join(format!("models/vocab/ggml-vocab-{file}.gguf"));
        let tokenizer = load(&path);
        let found: Vec<u32> =
            (0..tokenizer.vocab_size() as u32).filter(|&id| tokenizer.is_eog(id)).collect();
        assert_eq!(found, ends, "{file}");
    }
}

/// Ids of llama.cpp for made-up texts (`../data/ids.py`).
const IDS: &str = include_str!("../data/ids.json");

/// Characters beside which llama.cpp's ids are others, by the vocabulary. These are spaces within U+0800 to U+4E00, which
/// the published patterns of DeepSeek cut from the letters behind them with the ideographs; llama.cpp leaves them there.
const DIFFERENCES: &[(&str, &str)] = &[("deepseek-llm", "\u{2009}\u{2028}\u{3000}")];

#[test]
fn made_up_texts_get_the_ids_of_llama_cpp() {
    let Some(shared) = shared() else { return };
    let data: Value = serde_json::from_str(IDS).unwrap();
    let texts = data["texts"].as_array().unwrap();
    let (mut equal, mut other, mut wrong) = (0, 0, Vec::new());
    for (file, digests) in data["files"].as_object().unwrap() {
        let tokenizer = load(&shared.join("models/vocab").join(file));
        let known =
            DIFFERENCES.iter().find(|(name, _)| file.contains(name)).map(|(_, chars)| chars);
        for (text, expected) in texts.iter().zip(digests.as_array().unwrap()) {
            let text = text.as_str().unwrap();
            let ids: Vec<String> =
                tokenizer.encode(text).unwrap().iter().map(u32::to_string).collect();
            let digest: String =
                Sha256::digest(ids.join(" "))[..4].iter().map(|b| format!("{b:02x}")).collect();
            match digest == expected.as_str().unwrap() {
                true => equal += 1,
                false if known.is_some_and(|chars| text.contains(|c| chars.contains(c))) => {
                    other += 1
                }
                false => wrong.push(format!("{file}: {text:?}: {}", ids.join(" "))),
            }
        }
    }
    eprintln!("{equal} texts have the ids of llama.cpp, {other} others as is known");
    assert!(wrong.is_empty(), "{} differ\n{}", wrong.len(), wrong.join("\n"));
    assert!(equal >= 3599 && other <= 1);
}
