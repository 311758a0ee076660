//! Published models by name: what can be planned for, or made, without a file.

mod families;
mod family;

use quant::GgmlType;

use crate::{LayerConfig, Mixture, ModelConfig, Outline};

use families::families;
use family::Family;

/// Words in a model's name that say nothing about its shape.
const NO_SHAPE: &[&str] = &[
    "instruct", "chat", "base", "it", "hf", "gguf", "awq", "gptq", "meta", "latest", "thinking",
    "c4ai", "inst", "exp", "speciale",
];

/// Owners that names of other owners' repositories begin with, as in `bartowski/THUDM_GLM-4-9B-0414-GGUF`.
const OWNERS: &[&str] = &["thudm_", "mistralai_", "google_", "qwen_", "microsoft_", "nvidia_"];

/// Families that are published in one type of weights, by the beginning of their names.
const TYPES: &[(&str, &str)] = &[("gpt-oss", "MXFP4_MOE")];

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
        let mut sizes = Vec::new();
        loop {
            if let Some(found) = known(&words) {
                return has_sizes(&found, &sizes).then_some(found);
            }
            sizes.push(words.pop_if(|word| is_size(word))?);
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

/// Whether a model has these sizes, such as `24b` and `16e`. Of a mixture of experts, the size may be that of the parameters
/// that are active for a token.
fn has_sizes(outline: &Outline, sizes: &[&str]) -> bool {
    let config = config(outline);
    let experts = config.layers.iter().filter_map(|layer| layer.experts.as_ref());
    let n_experts = experts.map(|experts| experts.n_experts).max();
    sizes.iter().all(|size| {
        let Ok(n) = size.trim_end_matches(['b', 'e']).parse::<f64>() else { return false };
        if size.ends_with('e') {
            return n_experts.is_some_and(|experts| experts as f64 == n);
        }
        billions(&config).iter().any(|size| (0.9 * size..=1.1 * size).contains(&n))
    })
}

/// Number of all parameters of a model and of those that are active for a token, in billions; 0 if it cannot be built.
fn billions(config: &ModelConfig) -> [f64; 2] {
    let Ok(model) = crate::from_config(config, &|_, _| Some(GgmlType::F32)) else {
        return [0.0; 2];
    };
    let weights = model.program.weights.iter();
    let all: f64 = weights.map(|weight| 1e-9 * weight.rows as f64 * weight.cols as f64).sum();
    let idle = |layer: &LayerConfig| {
        let experts = layer.experts.as_ref()?;
        // gate, up and down
        let one = 3.0 * (config.hidden_size * experts.intermediate_size) as f64;
        Some(1e-9 * one * (experts.n_experts - experts.n_experts_used) as f64)
    };
    [all, all - config.layers.iter().filter_map(idle).sum::<f64>()]
}

/// The type in which a published model comes, if it is not published in many.
pub fn published_type(config: &ModelConfig) -> Option<&'static Mixture> {
    let name = config.name.as_deref()?;
    let (_, ty) = TYPES.iter().find(|(family, _)| name.starts_with(family))?;
    Mixture::from_name(ty)
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
    // repositories of others name the owner before an underscore
    let name = OWNERS.iter().find_map(|owner| name.strip_prefix(owner)).unwrap_or(&name);
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
