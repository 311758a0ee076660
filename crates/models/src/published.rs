//! Published models by name: what can be planned for, or made, without a file.

mod families;
mod family;

use crate::{ModelConfig, Outline};

use families::families;
use family::Family;

/// Words in a model's name that say nothing about its shape.
const NO_SHAPE: &[&str] = &[
    "instruct", "chat", "base", "it", "hf", "gguf", "awq", "gptq", "meta", "latest", "thinking",
    "c4ai", "inst", "exp", "speciale",
];

/// Every published model, family by family, smallest first.
pub fn published() -> impl Iterator<Item = ModelConfig> {
    let outlines =
        |family: &'static Family| family.models.iter().map(|shape| family.outline(shape));
    families().flat_map(outlines).map(|outline| config(&outline))
}

/// Family and whole name of every published model, in the order of [`published`].
pub fn published_names() -> impl Iterator<Item = (&'static str, String)> {
    let names = |family: &'static Family| {
        family.models.iter().map(move |shape| (family.name, family.model(shape)))
    };
    families().flat_map(names)
}

/// The published model with this name, in the many ways it is written: `Qwen2.5-7B`, `qwen2.5:7b`,
/// `Qwen/Qwen2.5-7B-Instruct`.
pub fn find_published(name: &str) -> Option<ModelConfig> {
    find_outline(name).as_ref().map(config)
}

/// What a file of the published model with this name says, the name written as for [`find_published`].
pub fn find_outline(name: &str) -> Option<Outline> {
    let words = words(name);
    let known = |words: &[&str]| {
        let key = words.concat();
        families().find_map(|family| {
            let mut models = family.models.iter();
            let shape = models.find(|shape| self::key(&family.model(shape)) == key)?;
            Some(family.outline(shape))
        })
    };
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    known(&words).or_else(|| {
        // the day it was published, and a size where the name without it is one
        let mut words: Vec<&str> = words.into_iter().filter(|word| !is_date(word)).collect();
        loop {
            let found = known(&words);
            if found.is_some() || words.pop_if(|word| is_size(word)).is_none() {
                return found;
            }
        }
    })
}

/// `12`, `2024`, `0414`: parts of the day a model was published. Qwen's of 2507 differ from those before them.
fn is_date(word: &str) -> bool {
    matches!(word.len(), 2 | 4) && word.bytes().all(|b| b.is_ascii_digit()) && word != "2507"
}

/// `24b`, `16e`: billions of weights, experts.
fn is_size(word: &str) -> bool {
    let digits = word.strip_suffix(['b', 'e']);
    digits.is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
}

fn config(outline: &Outline) -> ModelConfig {
    outline.config().expect("tests read the outline of every published model")
}

/// Published names near a name that is not one, the nearest first; none if nothing is near.
pub fn similar_published(name: &str) -> Vec<String> {
    let key = key(name);
    let mut near: Vec<(usize, String)> = families()
        .flat_map(|family| family.models.iter().map(|shape| family.model(shape)))
        .map(|model| (distance(&key, &self::key(&model)), model))
        .filter(|(distance, _)| *distance <= 2)
        .collect();
    near.sort_by_key(|(distance, _)| *distance);
    near.into_iter().take(3).map(|(_, name)| name).collect()
}

/// The words of a name without its owner, in lower case, but those that say nothing about a shape.
fn words(name: &str) -> Vec<String> {
    let name = name.rsplit('/').next().unwrap_or(name).to_lowercase();
    let words = name.split(|c: char| !c.is_ascii_alphanumeric() && c != '.');
    words.filter(|word| !NO_SHAPE.contains(word)).map(str::to_owned).collect()
}

/// They without anything between them.
fn key(name: &str) -> String {
    words(name).concat()
}

/// Letters to insert, drop or change to come from one text to the other. Long texts are near to none.
fn distance(a: &str, b: &str) -> usize {
    if a.len().abs_diff(b.len()) > 2 {
        return usize::MAX;
    }
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, y) in b.iter().enumerate() {
            let changed = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(name: &str) -> Option<String> {
        find_published(name).and_then(|config| config.name)
    }

    #[test]
    fn names_as_people_write_them() {
        for config in published() {
            let name = config.name.unwrap();
            assert_eq!(found(&name).as_ref(), Some(&name), "unique");
        }
        for (written, want) in [
            ("qwen2.5:7b", "Qwen2.5-7B"),
            ("Qwen/Qwen2.5-7B-Instruct", "Qwen2.5-7B"),
            ("QWEN2.5_0.5b_instruct-GGUF", "Qwen2.5-0.5B"),
            ("qwen1.5-110b-chat", "Qwen1.5-110B"),
            ("meta-llama/Meta-Llama-3-8B", "Llama-3-8B"),
            ("llama3.1:8b", "Llama-3.1-8B"),
            ("llama3.2-1b", "Llama-3.2-1B"),
            ("deepseek-ai/DeepSeek-V2-Lite-Chat", "DeepSeek-V2-Lite"),
            ("deepseek-r1", "DeepSeek-R1"),
            ("deepseek-v3.2", "DeepSeek-V3.2"),
            ("deepseek-ai/DeepSeek-V3.2-Exp", "DeepSeek-V3.2"),
            ("Qwen/Qwen1.5-MoE-A2.7B-Chat", "Qwen1.5-MoE-A2.7B"),
            ("qwen3:30b-a3b", "Qwen3-30B-A3B"),
            ("zai-org/GLM-4.5-Air", "GLM-4.5-Air"),
            ("glm-4.5", "GLM-4.5"),
            ("granite-3.3-2b-instruct", "granite-3.3-2b"),
            ("Command-R7B", "command-r7b"),
            ("mistralai/Mistral-Small-3.2-24B-Instruct-2506", "Mistral-Small-3.2"),
            ("mistralai/Ministral-3-3B-Instruct-2512", "Ministral-3-3B"),
            ("THUDM/GLM-4-9B-0414", "GLM-4-9B"),
            ("LGAI-EXAONE/EXAONE-4.0-1.2B", "EXAONE-4.0-1.2B"),
            ("dots.llm1", "dots.llm1"),
            ("tencent/Hunyuan-A13B-Instruct", "Hunyuan-A13B"),
            ("hunyuan:7b", "Hunyuan-7B"),
            ("CohereLabs/c4ai-command-r7b-12-2024", "command-r7b"),
            ("command-r-08-2024", "command-r-08-2024"),
            ("allenai/OLMo-2-0425-1B", "OLMo-2-1B"),
            ("phi4:14b", "Phi-4"),
            ("google/gemma-3n-E2B-it", "gemma-3n-E2B"),
            ("meta-llama/Llama-4-Scout-17B-16E-Instruct", "Llama-4-Scout"),
            ("google/gemma-4-26B-A4B-it", "gemma-4-26B-A4B"),
            ("qwen3.5:0.8b", "Qwen3.5-0.8B"),
            ("Qwen/Qwen3.5-35B-A3B", "Qwen3.5-35B-A3B"),
            ("Qwen/Qwen3-Next-80B-A3B-Instruct", "Qwen3-Next-80B-A3B"),
            ("LiquidAI/LFM2-1.2B", "LFM2-1.2B"),
            ("ibm-granite/granite-4.0-h-tiny", "granite-4.0-h-tiny"),
            ("moonshotai/Kimi-Linear-48B-A3B-Instruct", "Kimi-Linear-48B-A3B"),
            ("state-spaces/mamba2-1.3b", "mamba2-1.3b"),
        ] {
            assert_eq!(found(written).as_deref(), Some(want), "{written}");
        }
        for other in
            ["qwen2.5", "qwen2.5-9b", "qwen3-4b-2507", "phi-4-vision", "command-r-plus", "24b"]
        {
            assert_eq!(found(other), None, "{other}");
        }
        assert_eq!(found(""), None);
    }

    #[test]
    fn near_misses() {
        assert_eq!(similar_published("qwen2.5:8b")[..2], ["Qwen2.5-3B", "Qwen2.5-7B"]);
        assert_eq!(similar_published("qwn3-8b")[0], "Qwen3-8B");
        assert!(similar_published("mamba").is_empty());
        assert!(similar_published(&"x".repeat(10_000)).is_empty());
    }
}
