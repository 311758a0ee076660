//! Published models by name: what can be planned for, or made, without a file.

mod families;

use crate::{ModelConfig, Outline};

use families::{FAMILIES, Family};

/// Words in a model's name that say nothing about its shape.
const NO_SHAPE: &[&str] =
    &["instruct", "chat", "base", "it", "hf", "gguf", "awq", "gptq", "meta", "latest", "thinking"];

/// Every published model, family by family, smallest first.
pub fn published() -> impl Iterator<Item = ModelConfig> {
    let outlines =
        |family: &'static Family| family.models.iter().map(|shape| family.outline(shape));
    FAMILIES.iter().flat_map(outlines).map(|outline| config(&outline))
}

/// Family and size of every published model, in the order of [`published`]: the name is both, with a dash.
pub fn published_sizes() -> impl Iterator<Item = (&'static str, &'static str)> {
    let sizes =
        |family: &'static Family| family.models.iter().map(|shape| (family.name, shape.size));
    FAMILIES.iter().flat_map(sizes)
}

/// The published model with this name, in the many ways it is written: `Qwen2.5-7B`, `qwen2.5:7b`,
/// `Qwen/Qwen2.5-7B-Instruct`.
pub fn find_published(name: &str) -> Option<ModelConfig> {
    find_outline(name).as_ref().map(config)
}

/// What a file of the published model with this name says, the name written as for [`find_published`].
pub fn find_outline(name: &str) -> Option<Outline> {
    let key = key(name);
    FAMILIES.iter().find_map(|family| {
        let mut models = family.models.iter();
        let shape = models.find(|shape| self::key(&family.model(shape)) == key)?;
        Some(family.outline(shape))
    })
}

fn config(outline: &Outline) -> ModelConfig {
    outline.config().expect("tests read the outline of every published model")
}

/// Published names near a name that is not one, the nearest first; none if nothing is near.
pub fn similar_published(name: &str) -> Vec<String> {
    let key = key(name);
    let mut near: Vec<(usize, String)> = FAMILIES
        .iter()
        .flat_map(|family| family.models.iter().map(|shape| family.model(shape)))
        .map(|model| (distance(&key, &self::key(&model)), model))
        .filter(|(distance, _)| *distance <= 2)
        .collect();
    near.sort_by_key(|(distance, _)| *distance);
    near.into_iter().take(3).map(|(_, name)| name).collect()
}

/// A name without its owner, case, separators and the words that say nothing about a shape.
fn key(name: &str) -> String {
    let name = name.rsplit('/').next().unwrap_or(name).to_lowercase();
    let words = name.split(|c: char| !c.is_ascii_alphanumeric() && c != '.');
    words.filter(|word| !NO_SHAPE.contains(word)).collect()
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
            ("Qwen/Qwen1.5-MoE-A2.7B-Chat", "Qwen1.5-MoE-A2.7B"),
            ("qwen3:30b-a3b", "Qwen3-30B-A3B"),
        ] {
            assert_eq!(found(written).as_deref(), Some(want), "{written}");
        }
        assert_eq!(found("qwen2.5"), None);
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
