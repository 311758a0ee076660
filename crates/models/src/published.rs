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
